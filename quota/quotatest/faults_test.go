package quotatest_test

import (
	"context"
	"crypto/rand"
	"os"
	"os/exec"
	"reflect"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
	"unsafe"

	"github.com/heedhttp/heed/quota"
	"github.com/heedhttp/heed/quota/quotatest"
	"github.com/stretchr/testify/assert"
)

type (
	charge   = quota.Charge
	decision = quota.Decision
)

var ctx = context.Background()

// A faulty is a Memory, each call of which goes through a fault.
type faulty struct {
	memory quota.Memory
	fault  func(c *call)
	clock  func() time.Time
	kept   sync.Map // what a fault remembers
}

// A call is what a fault changes, before and after do makes it.
type call struct {
	*faulty
	ctx      context.Context
	verb     string
	do       func()
	charges  []charge
	dst, ds  []decision // ds without dst
	max      time.Duration
	wait     time.Duration
	at       time.Time
	ok       bool
	key      string
	states   []quota.State
	limit, n int64
	hold     *quota.Hold
	err      error
}

// make makes c with do, unless c is invalid.
func (f *faulty) make(c *call, do func()) *call {
	c.faulty, c.do, c.charges = f, do, slices.Clone(c.charges)
	switch c.verb {
	case "Take", "Peek", "Reserve":
		c.err = quota.CheckTake(c.charges)
	case "Settle":
		c.err = quota.CheckSettle(c.charges)
	case "Acquire":
		c.err = quota.CheckAcquire(c.limit, c.n)
	}
	if c.err == nil {
		f.fault(c)
	}
	return c
}

func (f *faulty) Take(ctx context.Context, dst []decision, charges ...charge) ([]decision, error) {
	c := &call{verb: "Take", ctx: ctx, dst: dst, charges: charges}
	return f.make(c, func() { c.ds, c.err = f.memory.Take(ctx, nil, c.charges...) }).decisions(charges)
}

func (f *faulty) Peek(ctx context.Context, dst []decision, charges ...charge) ([]decision, error) {
	c := &call{verb: "Peek", dst: dst, charges: charges}
	return f.make(c, func() { c.ds, c.err = f.memory.Peek(ctx, nil, c.charges...) }).decisions(charges)
}

// decisions returns the Decisions on charges. No fault is so crude that it tells another Limit.
func (c *call) decisions(charges []charge) ([]decision, error) {
	for i := range c.ds {
		c.ds[i].Limit = charges[i].Limit.Policy().Quota
	}
	return append(c.dst, c.ds...), c.err
}

func (f *faulty) Settle(_ context.Context, charges ...charge) error {
	c := &call{verb: "Settle", charges: charges}
	return f.make(c, func() { c.err = f.memory.Settle(ctx, c.charges...) }).err
}

func (f *faulty) Reserve(_ context.Context, max time.Duration, charges ...charge) (
	wait time.Duration, at time.Time, ok bool, err error,
) {
	c := &call{verb: "Reserve", charges: charges, max: max}
	f.make(c, func() { c.wait, c.at, c.ok, c.err = f.memory.Reserve(ctx, c.max, c.charges...) })
	return c.wait, c.at, c.ok, c.err
}

func (f *faulty) Inspect(_ context.Context, key string) ([]quota.State, error) {
	c := &call{verb: "Inspect", key: key}
	f.make(c, func() { c.states, c.err = f.memory.Inspect(ctx, key) })
	return c.states, c.err
}

func (f *faulty) Reset(_ context.Context, key string) error {
	c := &call{verb: "Reset", key: key}
	return f.make(c, func() { c.err = f.memory.Reset(ctx, key) }).err
}

func (f *faulty) Acquire(_ context.Context, key string, limit, n int64) (*quota.Hold, decision, error) {
	c := &call{verb: "Acquire", key: key, limit: limit, n: n, ds: make([]decision, 1)}
	if f.make(c, func() { c.hold, c.ds[0], c.err = f.memory.Acquire(ctx, c.key, c.limit, c.n) }); c.err == nil {
		c.ds[0].Limit = limit
	}
	return c.hold, c.ds[0], c.err
}

// setClock sets the clock of f's Memory, which only tests of package quota can set otherwise.
func (f *faulty) setClock(now func() time.Time) {
	field := reflect.ValueOf(&f.memory).Elem().FieldByName("now")
	*(*func() time.Time)(unsafe.Pointer(field.UnsafeAddr())) = now
}

// denied reports whether c was denied.
func (c *call) denied() bool {
	for i, d := range c.ds {
		if !d.Allowed && !c.charges[i].DryRun {
			return true
		}
	}
	return false
}

// answers returns a fault of Decisions.
func answers(alter func(d *decision, c *charge)) func(c *call) {
	return func(c *call) {
		asked := slices.Clone(c.charges)
		c.do()
		for i := range c.ds[:min(len(c.ds), len(asked))] {
			alter(&c.ds[i], &asked[i])
		}
	}
}

// charges returns a fault of what is charged.
func charges(alter func(c *charge)) func(c *call) {
	return func(c *call) {
		for i := range c.charges {
			alter(&c.charges[i])
		}
		c.do()
	}
}

// limits returns a fault of what a policy means.
func limits(alter func(p *quota.Policy)) func(c *call) {
	return charges(func(c *charge) {
		p := c.Limit.Policy()
		alter(&p)
		if l, err := p.Compile(); err == nil {
			c.Limit = l
		}
	})
}

// on returns a fault of some calls.
func on(verb string, fault func(c *call)) func(c *call) {
	return func(c *call) {
		if c.verb == verb {
			fault(c)
		} else {
			c.do()
		}
	}
}

// after returns a fault of what some calls leave behind.
func after(verb string, fault func(c *call)) func(c *call) {
	return on(verb, func(c *call) { c.do(); fault(c) })
}

var faults = map[string]func(c *call){
	"none":            func(c *call) { c.do() },
	"only Take, none": func(c *call) { c.do() },
	"gate none":       func(c *call) { c.do() },

	// What a Decision says.
	"RetryAfter is early":       answers(func(d *decision, _ *charge) { d.RetryAfter = max(0, d.RetryAfter-1000) }),
	"RetryAfter is late":        answers(func(d *decision, _ *charge) { d.RetryAfter += min(d.RetryAfter, 1000) }),
	"NextAfter is early":        answers(func(d *decision, _ *charge) { d.NextAfter = max(0, d.NextAfter-1000) }),
	"ResetAfter is early":       answers(func(d *decision, _ *charge) { d.ResetAfter = max(0, d.ResetAfter-1000) }),
	"one unit too many remains": answers(func(d *decision, c *charge) { d.Remaining += min(d.Remaining, 1) }),
	"a denial says 0 remain": answers(func(d *decision, _ *charge) {
		if !d.Allowed {
			d.Remaining = 0
		}
	}),
	"Never is not said":           answers(func(d *decision, _ *charge) { d.Never = false }),
	"Delay is not said":           answers(func(d *decision, _ *charge) { d.Delay = 0 }),
	"At is rounded":               answers(func(d *decision, _ *charge) { d.At = d.At.Truncate(time.Millisecond) }),
	"a dry run always fits":       answers(func(d *decision, c *charge) { d.Allowed = d.Allowed || c.DryRun }),
	"Decisions are not appended":  func(c *call) { c.do(); c.dst = nil },
	"Decisions are one too few":   func(c *call) { c.do(); c.ds = c.ds[:len(c.ds)/2+len(c.ds)%2] },
	"an ID makes all charges fit": answers(func(d *decision, c *charge) { d.Allowed = d.Allowed || c.ID == "x" }),

	// What a charge is counted as.
	"one unit too many fits": limits(func(p *quota.Policy) {
		if p.Burst++; p.Algorithm > quota.LeakyBucket {
			p.Quota++
		}
	}),
	"a log is a sliding window": limits(func(p *quota.Policy) { p.Algorithm = min(p.Algorithm, quota.SlidingWindow) }),
	"days are those of UTC": limits(func(p *quota.Policy) {
		if p.Calendar != 0 {
			p.Location = time.UTC
		}
	}),
	"a debt has no bound":   limits(func(p *quota.Policy) { p.MaxDebt = 1000 * time.Hour }),
	"0 units are 0":         on("Take", charges(func(c *charge) { c.DryRun = c.DryRun || c.N == 0 })),
	"a dry run is enforced": charges(func(c *charge) { c.DryRun = false }),
	"a dry run is not counted": charges(func(c *charge) {
		if c.DryRun {
			c.Key = rand.Text()
		}
	}),
	"IDs are ignored":                charges(func(c *charge) { c.ID = "" }),
	"IDs are cut off":                charges(func(c *charge) { c.ID = c.ID[:min(len(c.ID), 255)] }),
	"IDs are ignored by Settle":      on("Settle", charges(func(c *charge) { c.ID = "" })),
	"a refund is for now":            charges(func(c *charge) { c.At = time.Time{} }),
	"keys are folded":                charges(func(c *charge) { c.Key = strings.ToLower(c.Key) }),
	"a changed Shape starts at zero": charges(func(c *charge) { c.Key += c.Limit.Shape() }),
	"a changed Burst starts at zero": charges(func(c *charge) { c.Key += string(rune(c.Limit.AtOnce() % 50)) }),

	// What a call does.
	"Take only looks":           on("Take", func(c *call) { c.ds, c.err = c.memory.Peek(ctx, nil, c.charges...) }),
	"Peek takes":                on("Peek", func(c *call) { c.ds, c.err = c.memory.Take(ctx, nil, c.charges...) }),
	"Settle is lost":            on("Settle", func(*call) {}),
	"refunds are lost":          on("Settle", charges(func(c *charge) { c.N = max(c.N, 0) })),
	"only whole debts are made": on("Settle", charges(func(c *charge) { c.N = min(c.N, c.Limit.AtOnce()) })),
	"a cut is not told":         after("Settle", func(c *call) { c.err = nil }),
	"Reserve ignores its limit": on("Reserve", func(c *call) { c.max = quota.Forever; c.do() }),
	"Reserve ends early":        on("Reserve", func(c *call) { c.max -= time.Microsecond; c.do() }),
	"Reserve takes at once":     after("Reserve", func(c *call) { c.at = c.at.Add(-c.wait) }),
	"Reset is lost":             on("Reset", func(*call) {}),
	"a denial is charged": after("Take", func(c *call) {
		if c.denied() {
			c.memory.Take(ctx, nil, c.charges[0])
		}
	}),
	"a refused reservation is charged": after("Reserve", func(c *call) {
		if !c.ok {
			c.memory.Take(ctx, nil, c.charges[0])
		}
	}),
	"charges are taken one by one": on("Take", func(c *call) {
		all, ds := c.charges, []decision(nil)
		for i := range all {
			c.charges = all[i : i+1]
			c.do()
			ds = append(ds, c.ds...)
		}
		c.ds = ds
	}),
	"updates are lost": on("Take", func(c *call) {
		if c.ds, c.err = c.memory.Peek(ctx, nil, c.charges...); c.denied() {
			return
		}
		runtime.Gosched()
		if c.do(); c.denied() { // after all
			c.memory.Settle(ctx, c.charges...)
			for i := range c.ds {
				c.ds[i].Allowed = true
			}
		}
	}),
	"an ended context charges twice": on("Take", func(c *call) {
		if c.do(); c.ctx.Err() != nil {
			c.do()
		}
	}),
	"a denied ID is remembered": after("Take", func(c *call) {
		for i, d := range c.ds {
			if id := c.charges[i].ID; id != "" {
				_, known := c.kept.LoadOrStore(id+c.charges[i].Key, nil)
				c.ds[i].Allowed = d.Allowed || known
			}
		}
	}),
	"Inspect shows no dry runs": after("Inspect", func(c *call) {
		c.states = slices.DeleteFunc(c.states, func(s quota.State) bool { return s.DryRun })
	}),
	"states are not sorted": after("Inspect", func(c *call) { slices.Reverse(c.states) }),
	"states are not forgotten": after("Inspect", func(c *call) {
		if kept, ok := c.kept.Load(c.key); ok && len(c.states) < len(kept.([]quota.State)) {
			c.states = kept.([]quota.State)
		}
		c.kept.Store(c.key, c.states)
	}),
	"the clock waits after it was set back": func(c *call) {
		latest, _ := c.kept.LoadOrStore("latest", c.clock())
		if c.clock().After(latest.(time.Time)) {
			latest = c.clock()
			c.kept.Store("latest", latest)
		}
		c.setClock(func() time.Time { return latest.(time.Time) })
		answers(func(d *decision, _ *charge) { d.At = c.clock() })(c)
	},

	"gate one place too many":         func(c *call) { c.limit = min(c.limit+1, 1<<53-1); c.do() },
	"gate all Holds weigh one":        func(c *call) { c.n = 1; c.do() },
	"gate one key":                    func(c *call) { c.key = ""; c.do() },
	"gate a count for each limit":     func(c *call) { c.key += string(rune(c.limit % 1000)); c.do() },
	"gate one too many remains":       func(c *call) { c.do(); c.ds[0].Remaining++ },
	"gate Never is not said":          func(c *call) { c.do(); c.ds[0].Never = false },
	"gate all is allowed":             func(c *call) { c.do(); c.ds[0].Allowed = true },
	"gate it knows when":              func(c *call) { c.do(); c.ds[0].RetryAfter = 1 },
	"gate Holds are released at once": func(c *call) { c.do(); c.hold.Release() },
	"gate nothing is released": func(c *call) {
		c.do()
		c.kept.Store(c.hold, nil) // so that it does not become garbage
		if c.hold != nil {
			c.hold = quota.NewHold(nil, nil, nil)
		}
	},
	"gate a denial takes a place": func(c *call) {
		if c.do(); c.hold == nil {
			hold, _, _ := c.memory.Acquire(ctx, c.key, 1<<50, 1)
			c.kept.Store(hold, nil)
		}
	},
	"gate updates are lost": func(c *call) {
		if c.do(); c.hold != nil {
			c.hold.Release()
			runtime.Gosched()
			c.hold, _, _ = c.memory.Acquire(ctx, c.key, 1<<53-1, c.n)
		}
	},
}

// Each fault is tested by a process of its own, which must fail.
func TestFaultsAreFound(t *testing.T) {
	if name := os.Getenv("QUOTATEST_FAULT"); strings.HasPrefix(name, "gate") {
		quotatest.RunGate(t, func(*testing.T) quota.Gate { return &faulty{fault: faults[name]} })
		return
	} else if name != "" {
		quotatest.Run(t, func(t *testing.T, now func() time.Time) quota.Store {
			f := &faulty{fault: faults[name], clock: now}
			if f.setClock(now); strings.HasPrefix(name, "only Take") {
				return struct{ quota.Store }{f}
			}
			return f
		})
		return
	}
	for name := range faults {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			cmd := exec.Command(os.Args[0], "-test.run=^TestFaultsAreFound$", "-test.failfast", "-test.short")
			// The race detector would wait for a second at the end.
			cmd.Env = append(os.Environ(), "QUOTATEST_FAULT="+name, "GORACE=atexit_sleep_ms=0")
			output, err := cmd.CombinedOutput()
			t.Logf("%s", output)
			if strings.HasSuffix(name, "none") {
				assert.NoError(t, err)
				return
			}
			assert.Error(t, err)
			assert.Contains(t, string(output), "--- FAIL")
		})
	}
}
