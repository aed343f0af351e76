package quotatest_test

import (
	"bytes"
	"context"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/heedhttp/heed/quota"
	"github.com/heedhttp/heed/quota/quotatest"
	"github.com/stretchr/testify/assert"
)

func TestThePlainStorePasses(t *testing.T) {
	suite(func(*faults) {}).Run(t)
}

func TestThePlainStorePassesInABubble(t *testing.T) {
	quotatest.Run(t, func(*testing.T, func() time.Time) quota.Store { return newPlain(time.Now) })
}

// bare has only Take.
type bare struct{ store *plain }

func (b *bare) Take(ctx context.Context, dst []quota.Decision, charges ...quota.Charge) ([]quota.Decision, error) {
	return b.store.Take(ctx, dst, charges...)
}

func TestAStoreWithOnlyTakePasses(t *testing.T) {
	quotatest.Run(t, func(_ *testing.T, now func() time.Time) quota.Store { return &bare{newPlain(now)} })
}

func decision(wrong func(d *quota.Decision)) func(*faults) {
	return func(f *faults) { f.decision = wrong }
}

func bucket(wrong func(b *quota.Bucket)) func(*faults) {
	return func(f *faults) { f.bucket = wrong }
}

func placed(wrong func(p *place)) func(*faults) {
	return func(f *faults) { f.place = func(p place) place { wrong(&p); return p } }
}

// wrongs are the faults of a Store, one by one.
var wrongs = map[string]func(*faults){
	"not all or nothing":     func(f *faults) { f.partly = true },
	"remaining one too many": decision(func(d *quota.Decision) { d.Remaining++ }),
	"retry a microsecond soon": decision(
		func(d *quota.Decision) { d.RetryAfter -= min(d.RetryAfter, time.Microsecond) },
	),
	"retry rounded up": decision(func(d *quota.Decision) {
		d.RetryAfter = d.RetryAfter.Round(time.Millisecond) + time.Millisecond
	}),
	"retry is next":        decision(func(d *quota.Decision) { d.RetryAfter = min(d.RetryAfter, d.NextAfter) }),
	"reset never":          decision(func(d *quota.Decision) { d.ResetAfter = 0 }),
	"next as reset":        decision(func(d *quota.Decision) { d.NextAfter = d.ResetAfter }),
	"never unsaid":         decision(func(d *quota.Decision) { d.Never = false }),
	"always never":         decision(func(d *quota.Decision) { d.Never = !d.Allowed }),
	"all allowed":          decision(func(d *quota.Decision) { d.Allowed = true }),
	"no delay":             decision(func(d *quota.Decision) { d.Delay = 0 }),
	"no limit":             decision(func(d *quota.Decision) { d.Limit++ }),
	"a time of its own":    decision(func(d *quota.Decision) { d.At = d.At.Add(time.Microsecond) }),
	"keeps nothing":        bucket(func(b *quota.Bucket) { *b = quota.Bucket{} }),
	"keeps no unit":        bucket(func(b *quota.Bucket) { b.Level, b.Unit = b.Level/max(1, b.Unit), 1 }),
	"keeps no window":      bucket(func(b *quota.Bucket) { b.Prev = 0 }),
	"keeps one entry":      bucket(func(b *quota.Bucket) { b.Log = b.Log[max(0, len(b.Log)-9):] }),
	"keeps milliseconds":   bucket(func(b *quota.Bucket) { b.Time -= b.Time % 1000 }),
	"one dry run for all":  placed(func(p *place) { p.dryRun = false }),
	"one name for all":     placed(func(p *place) { p.name = "" }),
	"keys cut at a colon":  placed(func(p *place) { p.key, _, _ = strings.Cut(p.key, ":") }),
	"keys in lower case":   placed(func(p *place) { p.key = strings.ToLower(p.key) }),
	"key and name glued":   placed(func(p *place) { p.key, p.name = p.key+p.name, "" }),
	"reserves for now":     func(f *faults) { f.at = func(at time.Time) time.Time { return at.Truncate(time.Hour) } },
	"refunds without time": func(f *faults) { f.settledAt = func(int64) int64 { return 0 } },
	"refunds all times":    func(f *faults) { f.settledAt = func(at int64) int64 { return at - at%1_000_000 } },
	"remembers denials":    func(f *faults) { f.deniedIDs = true },
	"settles twice":        func(f *faults) { f.settledIDs = true },
	"forgets IDs":          func(f *faults) { f.until = func(int64) int64 { return 0 } },
	"forgets IDs early":    func(f *faults) { f.until = func(until int64) int64 { return until - 1 } },
	"forgets IDs late":     func(f *faults) { f.until = func(until int64) int64 { return until + 1 } },
	"cuts IDs": func(f *faults) {
		f.id = func(c *quota.Charge) string { return c.ID[:min(255, len(c.ID))] }
	},
	"takes an ID for a key": func(f *faults) {
		f.id = func(c *quota.Charge) string { return strings.TrimSpace(c.ID) }
	},
	"resets no IDs": func(f *faults) { f.resetIDs = true },
	"shows what it likes": func(f *faults) {
		f.states = func(s []quota.State) []quota.State { return s[:min(1, len(s))] }
	},
	"shows dry runs as not": func(f *faults) { f.states = showAsEnforced },
	"writes denials":        func(f *faults) { f.writesDenials = true },
	"keeps for ever":        func(f *faults) { f.forever = true },
	"decides, then keeps":   func(f *faults) { f.racy = true },
	"counts nothing":        func(f *faults) { f.uncounted = true },
}

func showAsEnforced(states []quota.State) []quota.State {
	for i := range states {
		states[i].DryRun = false
	}
	return states
}

// endAtOnce stops the race detector of a child process from waiting a second at its end.
const endAtOnce = "GORACE=atexit_sleep_ms=0"

func TestFaultyStoresAreCaught(t *testing.T) {
	if name := os.Getenv("QUOTATEST_FAULT"); name != "" {
		suite(wrongs[name]).Run(t)
		return
	}
	for name := range wrongs {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			cmd := exec.Command(os.Args[0], "-test.run=^TestFaultyStoresAreCaught$", "-test.timeout=5m", "-test.failfast")
			cmd.Env = append(os.Environ(), "QUOTATEST_FAULT="+name, endAtOnce)
			output, err := cmd.CombinedOutput()
			assert.Error(t, err)
			assert.True(t, bytes.Contains(output, []byte("--- FAIL")), "%.2000s", output)
			assert.False(t, bytes.Contains(output, []byte("panic")), "%.2000s", output)
		})
	}
}
