package quotatest_test

import (
	"context"
	"os"
	"os/exec"
	"runtime"
	"sync/atomic"
	"testing"

	"github.com/heedhttp/heed/quota"
	"github.com/heedhttp/heed/quota/quotatest"
	"github.com/stretchr/testify/assert"
)

// A faultyGate is a Memory with one fault.
type faultyGate struct {
	quota.Memory
	wrong func(g *faultyGate, key string, limit, n int64) (*quota.Hold, quota.Decision, error)
	used  atomic.Int64
}

func (g *faultyGate) Acquire(ctx context.Context, key string, limit, n int64) (*quota.Hold, quota.Decision, error) {
	if g.wrong != nil {
		return g.wrong(g, key, limit, n)
	}
	return g.Memory.Acquire(ctx, key, limit, n)
}

// alterDecision returns a Gate whose Decisions are wrong.
func alterDecision(wrong func(d *quota.Decision)) *faultyGate {
	return &faultyGate{wrong: func(g *faultyGate, key string, limit, n int64) (*quota.Hold, quota.Decision, error) {
		hold, d, err := g.Memory.Acquire(context.Background(), key, limit, n)
		if err == nil {
			wrong(&d)
		}
		return hold, d, err
	}}
}

// alterCall returns a Gate that changes its arguments.
func alterCall(wrong func(key *string, limit, n *int64)) *faultyGate {
	return &faultyGate{wrong: func(g *faultyGate, key string, limit, n int64) (*quota.Hold, quota.Decision, error) {
		if err := quota.CheckAcquire(limit, n); err != nil {
			return nil, quota.Decision{}, err
		}
		asked := limit
		wrong(&key, &limit, &n)
		hold, d, err := g.Memory.Acquire(context.Background(), key, limit, n)
		d.Limit = asked
		return hold, d, err
	}}
}

// racing checks first and takes later.
func racing(g *faultyGate, _ string, limit, n int64) (*quota.Hold, quota.Decision, error) {
	if err := quota.CheckAcquire(limit, n); err != nil {
		return nil, quota.Decision{}, err
	}
	_, d, _ := new(quota.Memory).Acquire(context.Background(), "", limit, n)
	n = max(n, 1)
	used := g.used.Load()
	if d.Allowed = used+n <= limit; !d.Allowed {
		d.Remaining = max(0, limit-used)
		return nil, d, nil
	}
	runtime.Gosched()
	g.used.Add(n)
	d.Remaining = limit - used - n
	return quota.NewHold(func() { g.used.Add(-n) }, nil, nil), d, nil
}

// leaks keeps Holds from becoming garbage.
var leaks []*quota.Hold

var gateFaults = map[string]func() *faultyGate{
	"none": func() *faultyGate { return new(faultyGate) },
	"never releases": func() *faultyGate {
		return &faultyGate{wrong: func(g *faultyGate, key string, limit, n int64) (*quota.Hold, quota.Decision, error) {
			hold, d, err := g.Memory.Acquire(context.Background(), key, limit, n)
			if hold != nil {
				hold = quota.NewHold(func() { runtime.KeepAlive(hold) }, nil, nil)
			}
			return hold, d, err
		}}
	},
	"a denial takes a place": func() *faultyGate {
		return &faultyGate{wrong: func(g *faultyGate, key string, limit, n int64) (*quota.Hold, quota.Decision, error) {
			hold, d, err := g.Memory.Acquire(context.Background(), key, limit, n)
			if err == nil && hold == nil {
				leaked, _, _ := g.Memory.Acquire(context.Background(), key, 1<<50, 1)
				leaks = append(leaks, leaked)
			}
			return hold, d, err
		}}
	},
	"races":               func() *faultyGate { return &faultyGate{wrong: racing} },
	"one place too many":  func() *faultyGate { return alterCall(func(_ *string, limit, _ *int64) { *limit++ }) },
	"all Holds weigh one": func() *faultyGate { return alterCall(func(_ *string, _, n *int64) { *n = 1 }) },
	"one key":             func() *faultyGate { return alterCall(func(key *string, _, _ *int64) { *key = "" }) },
	"a count for each limit": func() *faultyGate {
		return alterCall(func(key *string, limit, _ *int64) { *key += string(rune(*limit)) })
	},
	"remaining one too many": func() *faultyGate { return alterDecision(func(d *quota.Decision) { d.Remaining++ }) },
	"never unsaid":           func() *faultyGate { return alterDecision(func(d *quota.Decision) { d.Never = false }) },
	"all allowed":            func() *faultyGate { return alterDecision(func(d *quota.Decision) { d.Allowed = true }) },
	"knows when":             func() *faultyGate { return alterDecision(func(d *quota.Decision) { d.RetryAfter = 1 }) },
}

func TestFaultyGatesAreCaught(t *testing.T) {
	if name := os.Getenv("QUOTATEST_GATE_FAULT"); name != "" {
		quotatest.RunGate(t, func(*testing.T) quota.Gate { return gateFaults[name]() })
		return
	}
	for name := range gateFaults {
		cmd := exec.Command(os.Args[0], "-test.run=^TestFaultyGatesAreCaught$", "-test.timeout=5m")
		cmd.Env = append(os.Environ(), "QUOTATEST_GATE_FAULT="+name, endAtOnce)
		output, err := cmd.CombinedOutput()
		if name == "none" {
			assert.NoError(t, err, "%s", output)
			continue
		}
		assert.Error(t, err, name)
		assert.Contains(t, string(output), "--- FAIL", name)
	}
}

// endAtOnce stops the race detector of a child process from waiting a second at its end.
const endAtOnce = "GORACE=atexit_sleep_ms=0"
