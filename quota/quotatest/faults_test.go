package quotatest_test

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"reflect"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"
	"unsafe"

	"github.com/heedhttp/heed/quota"
	"github.com/heedhttp/heed/quota/quotatest"
	"github.com/stretchr/testify/assert"
)

var ctx = context.Background()

// A faulty is a Memory with one fault. Hooks that are nil change nothing.
type faulty struct {
	quota.Memory
	clock func() time.Time

	alter   func(c *quota.Charge)                   // before Take, Peek and Reserve
	answer  func(d *quota.Decision, c quota.Charge) // of Take and Peek
	take    func(dst []quota.Decision, charges []quota.Charge) ([]quota.Decision, error)
	settle  func(charges []quota.Charge) error
	reserve func(max time.Duration, charges []quota.Charge) (wait time.Duration, at time.Time, ok bool, err error)
	inspect func(key string) ([]quota.State, error)
	reset   func(key string) error

	mu   sync.Mutex // guards seen
	seen map[string]bool
}

// setClock sets the clock of f's Memory, which only tests of package quota can set otherwise.
func (f *faulty) setClock(now func() time.Time) {
	f.clock = now
	field := reflect.ValueOf(&f.Memory).Elem().FieldByName("now")
	*(*func() time.Time)(unsafe.Pointer(field.UnsafeAddr())) = now
}

func (f *faulty) altered(charges []quota.Charge) []quota.Charge {
	charges = append([]quota.Charge(nil), charges...)
	for i := range charges {
		if f.alter != nil && charges[i].Limit != nil && charges[i].Limit.Name() != "" {
			f.alter(&charges[i])
		}
	}
	return charges
}

func (f *faulty) answered(ds []quota.Decision, charges []quota.Charge) {
	for i := range charges[:min(len(charges), len(ds))] {
		d := &ds[len(ds)-len(charges)+i]
		d.Limit = charges[i].Limit.Policy().Quota
		if f.answer != nil {
			f.answer(d, charges[i])
		}
	}
}

func (f *faulty) Take(_ context.Context, dst []quota.Decision, charges ...quota.Charge) (ds []quota.Decision, err error) {
	if f.take != nil && quota.CheckTake(charges) == nil {
		ds, err = f.take(dst, charges)
	} else {
		ds, err = f.Memory.Take(ctx, dst, f.altered(charges)...)
	}
	if err == nil {
		f.answered(ds, charges)
	}
	return ds, err
}

func (f *faulty) Peek(_ context.Context, dst []quota.Decision, charges ...quota.Charge) ([]quota.Decision, error) {
	ds, err := f.Memory.Peek(ctx, dst, f.altered(charges)...)
	if err == nil {
		f.answered(ds, charges)
	}
	return ds, err
}

func (f *faulty) Settle(_ context.Context, charges ...quota.Charge) error {
	if f.settle != nil && quota.CheckSettle(charges) == nil {
		return f.settle(charges)
	}
	return f.Memory.Settle(ctx, f.altered(charges)...)
}

func (f *faulty) Reserve(_ context.Context, max time.Duration, charges ...quota.Charge) (
	time.Duration, time.Time, bool, error,
) {
	if f.reserve != nil && quota.CheckTake(charges) == nil {
		return f.reserve(max, charges)
	}
	return f.Memory.Reserve(ctx, max, f.altered(charges)...)
}

func (f *faulty) Inspect(_ context.Context, key string) ([]quota.State, error) {
	if f.inspect != nil {
		return f.inspect(key)
	}
	return f.Memory.Inspect(ctx, key)
}

func (f *faulty) Reset(_ context.Context, key string) error {
	if f.reset != nil {
		return f.reset(key)
	}
	return f.Memory.Reset(ctx, key)
}

// first reports whether it is called with a name for the first time.
func (f *faulty) first(name string) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	first := !f.seen[name]
	if f.seen == nil {
		f.seen = make(map[string]bool)
	}
	f.seen[name] = true
	return first
}

// denied reports whether ds deny the call.
func denied(ds []quota.Decision, charges []quota.Charge) bool {
	for i, c := range charges {
		if !ds[len(ds)-len(charges)+i].Allowed && !c.DryRun {
			return true
		}
	}
	return false
}

// with returns l with another policy.
func with(l *quota.Limit, change func(p *quota.Policy)) *quota.Limit {
	p := l.Policy()
	change(&p)
	if changed, err := p.Compile(); err == nil {
		return changed
	}
	return l
}

// oneMore lets one unit more fit at once.
func oneMore(p *quota.Policy) {
	p.Burst++
	if p.Algorithm > quota.LeakyBucket {
		p.Quota++
	}
}

var storeFaults = map[string]func(f *faulty){
	"none": func(*faulty) {},

	// What a Decision says.
	"early RetryAfter":        answers(func(d *quota.Decision, _ quota.Charge) { d.RetryAfter = max(0, d.RetryAfter-1000) }),
	"late RetryAfter":         answers(func(d *quota.Decision, _ quota.Charge) { d.RetryAfter += d.RetryAfter & 1024 }),
	"early NextAfter":         answers(func(d *quota.Decision, _ quota.Charge) { d.NextAfter = max(0, d.NextAfter-1000) }),
	"early ResetAfter":        answers(func(d *quota.Decision, _ quota.Charge) { d.ResetAfter = max(d.NextAfter, d.ResetAfter-1000) }),
	"a unit too many remains": answers(func(d *quota.Decision, c quota.Charge) { d.Remaining = min(d.Remaining+1, c.Limit.AtOnce()) }),
	"a denial says nothing is left": answers(func(d *quota.Decision, _ quota.Charge) {
		if !d.Allowed {
			d.Remaining = 0
		}
	}),
	"no Never":                 answers(func(d *quota.Decision, _ quota.Charge) { d.Never = false }),
	"no Delay":                 answers(func(d *quota.Decision, _ quota.Charge) { d.Delay = 0 }),
	"the time of a second ago": answers(func(d *quota.Decision, _ quota.Charge) { d.At = d.At.Add(-time.Second) }),
	"a dry run always fits":    answers(func(d *quota.Decision, c quota.Charge) { d.Allowed = d.Allowed || c.DryRun }),

	// What a charge is counted as.
	"a unit too many fits":  alters(func(c *quota.Charge) { c.Limit = with(c.Limit, oneMore) }),
	"a dry run is enforced": alters(func(c *quota.Charge) { c.DryRun = false }),
	"all is a dry run":      alters(func(c *quota.Charge) { c.DryRun = true }),
	"IDs are ignored":       alters(func(c *quota.Charge) { c.ID = "" }),
	"IDs are cut off":       alters(func(c *quota.Charge) { c.ID = c.ID[:min(len(c.ID), 255)] }),
	"an ID is of all keys": func(f *faulty) {
		f.take = func(dst []quota.Decision, charges []quota.Charge) ([]quota.Decision, error) {
			for _, c := range charges {
				if c.ID != "" && !f.first(c.ID) {
					return f.Memory.Peek(ctx, dst, charges...)
				}
			}
			return f.Memory.Take(ctx, dst, charges...)
		}
	},
	"all keys are one": alters(func(c *quota.Charge) { c.Key = "" }),
	"keys are folded":  alters(func(c *quota.Charge) { c.Key = strings.ToLower(c.Key) }),
	"key and name run together": alters(func(c *quota.Charge) {
		c.Key, c.Limit = c.Key+":"+c.Limit.Name(), with(c.Limit, func(p *quota.Policy) { p.Name = "x" })
	}),
	"a changed Shape starts at zero": alters(func(c *quota.Charge) { c.Key += c.Limit.Shape() }),
	"two bursts of a Shape are two":  alters(func(c *quota.Charge) { c.Key += string(rune(c.Limit.AtOnce() % 50)) }),
	"days are those of UTC": alters(func(c *quota.Charge) {
		if c.Limit.Policy().Calendar != 0 {
			c.Limit = with(c.Limit, func(p *quota.Policy) { p.Location = time.UTC })
		}
	}),
	"a leaky bucket is a token bucket": alters(func(c *quota.Charge) {
		if c.Limit.Policy().Algorithm == quota.LeakyBucket {
			c.Limit = with(c.Limit, func(p *quota.Policy) { p.Algorithm = quota.TokenBucket; p.Burst++ })
		}
	}),
	"no cut of debt": alters(func(c *quota.Charge) {
		c.Limit = with(c.Limit, func(p *quota.Policy) { p.MaxDebt = 1000 * time.Hour })
	}),
	"a refund is for now": alters(func(c *quota.Charge) { c.At = time.Time{} }),

	// What calls do.
	"a denial is charged": takes(func(f *faulty, dst []quota.Decision, charges []quota.Charge) ([]quota.Decision, error) {
		ds, err := f.Memory.Take(ctx, dst, charges...)
		if denied(ds, charges) {
			_, err = f.Memory.Take(ctx, nil, charges[0])
		}
		return ds, err
	}),
	"charges are taken one by one": takes(func(f *faulty, dst []quota.Decision, charges []quota.Charge) (ds []quota.Decision, err error) {
		ds = dst
		for _, c := range charges {
			ds, err = f.Memory.Take(ctx, ds, c)
		}
		return ds, err
	}),
	"the last of several charges is forgotten": takes(func(f *faulty, dst []quota.Decision, charges []quota.Charge) ([]quota.Decision, error) {
		ds, err := f.Memory.Peek(ctx, dst, charges...)
		if !denied(ds, charges) {
			ds, err = f.Memory.Take(ctx, dst, charges[:max(1, len(charges)-1)]...)
			ds, _ = f.Memory.Peek(ctx, ds, charges[min(len(charges), max(1, len(charges)-1)):]...)
		}
		return ds, err
	}),
	"lost updates": takes(func(f *faulty, dst []quota.Decision, charges []quota.Charge) ([]quota.Decision, error) {
		ds, err := f.Memory.Peek(ctx, dst, charges...)
		if err == nil && !denied(ds, charges) {
			runtime.Gosched()
			taken, _ := f.Memory.Take(ctx, dst, charges...)
			if !denied(taken, charges) {
				return taken, nil
			}
		}
		return ds, err
	}),
	"an ID that was denied is remembered": takes(func(f *faulty, dst []quota.Decision, charges []quota.Charge) ([]quota.Decision, error) {
		ds, err := f.Memory.Take(ctx, dst, charges...)
		for i, c := range charges {
			if d := &ds[len(dst)+i]; c.ID != "" && !d.Allowed {
				d.Allowed = !f.first(c.ID + c.Key)
			}
		}
		return ds, err
	}),
	"Decisions are not appended": takes(func(f *faulty, _ []quota.Decision, charges []quota.Charge) ([]quota.Decision, error) {
		return f.Memory.Take(ctx, nil, charges...)
	}),
	"Take only looks": takes(func(f *faulty, dst []quota.Decision, charges []quota.Charge) ([]quota.Decision, error) {
		return f.Memory.Peek(ctx, dst, charges...)
	}),
	"refunds are lost": settles(func(f *faulty, charges []quota.Charge) (err error) {
		for _, c := range charges {
			c.N = max(0, c.N)
			err = errors.Join(err, f.Memory.Settle(ctx, c))
		}
		return err
	}),
	"Settle charges only what fits": settles(func(f *faulty, charges []quota.Charge) (err error) {
		for _, c := range charges {
			if c.N > 0 {
				ds, _ := f.Memory.Peek(ctx, nil, quota.Charge{Key: c.Key, Limit: c.Limit, DryRun: c.DryRun})
				c.N = min(c.N, ds[0].Remaining)
			}
			err = errors.Join(err, f.Memory.Settle(ctx, c))
		}
		return err
	}),
	"a cut is not told": settles(func(f *faulty, charges []quota.Charge) error {
		f.Memory.Settle(ctx, charges...)
		return nil
	}),
	"Settle ignores IDs": settles(func(f *faulty, charges []quota.Charge) error {
		charges = append([]quota.Charge(nil), charges...)
		for i := range charges {
			charges[i].ID = ""
		}
		return f.Memory.Settle(ctx, charges...)
	}),
	"Reserve waits for any time": func(f *faulty) {
		f.reserve = func(_ time.Duration, charges []quota.Charge) (time.Duration, time.Time, bool, error) {
			return f.Memory.Reserve(ctx, quota.Forever, charges...)
		}
	},
	"Reserve ends a microsecond early": func(f *faulty) {
		f.reserve = func(max time.Duration, charges []quota.Charge) (time.Duration, time.Time, bool, error) {
			return f.Memory.Reserve(ctx, max-time.Microsecond, charges...)
		}
	},
	"Reserve takes what it refuses": func(f *faulty) {
		f.reserve = func(max time.Duration, charges []quota.Charge) (time.Duration, time.Time, bool, error) {
			wait, at, ok, err := f.Memory.Reserve(ctx, max, charges...)
			if !ok {
				f.Memory.Take(ctx, nil, charges[0])
			}
			return wait, at, ok, err
		}
	},
	"Inspect shows no dry runs": func(f *faulty) {
		f.inspect = func(key string) (enforced []quota.State, err error) {
			states, err := f.Memory.Inspect(ctx, key)
			for _, s := range states {
				if !s.DryRun {
					enforced = append(enforced, s)
				}
			}
			return enforced, err
		}
	},
	"states are never forgotten": func(f *faulty) {
		f.inspect = func(key string) ([]quota.State, error) {
			states, err := f.Memory.Inspect(ctx, key)
			for _, shape := range []string{"b1,1,360000000", "b1,1,8640000000"} {
				if len(states) == 1 && states[0].Shape != shape {
					states = append(states, quota.State{Name: states[0].Name, Shape: shape})
				}
			}
			quota.SortStates(states)
			return states, err
		}
	},
	"Reset resets nothing": func(f *faulty) { f.reset = func(string) error { return nil } },
	"the clock waits after it was set back": func(f *faulty) {
		var latest time.Time
		now := f.clock
		f.setClock(func() time.Time {
			f.mu.Lock()
			defer f.mu.Unlock()
			if now().After(latest) {
				latest = now()
			}
			return latest
		})
		f.answer = func(d *quota.Decision, _ quota.Charge) { d.At = now() }
	},
	"a clock that is set back starts anew": func(f *faulty) {
		var latest time.Time
		f.alter = func(c *quota.Charge) {
			f.mu.Lock()
			defer f.mu.Unlock()
			if f.clock().Before(latest) {
				c.Key += "earlier"
			} else {
				latest = f.clock()
			}
		}
	},
}

func answers(answer func(d *quota.Decision, c quota.Charge)) func(f *faulty) {
	return func(f *faulty) { f.answer = answer }
}

func alters(alter func(c *quota.Charge)) func(f *faulty) { return func(f *faulty) { f.alter = alter } }

func takes(take func(f *faulty, dst []quota.Decision, charges []quota.Charge) ([]quota.Decision, error)) func(f *faulty) {
	return func(f *faulty) {
		f.take = func(dst []quota.Decision, charges []quota.Charge) ([]quota.Decision, error) {
			if len(charges) == 0 {
				return dst, nil
			}
			return take(f, dst, charges)
		}
	}
}

func settles(settle func(f *faulty, charges []quota.Charge) error) func(f *faulty) {
	return func(f *faulty) {
		f.settle = func(charges []quota.Charge) error { return settle(f, charges) }
	}
}

// An acquire is the method of a Gate.
type acquire func(key string, limit, n int64) (*quota.Hold, quota.Decision, error)

func (a acquire) Acquire(_ context.Context, key string, limit, n int64) (*quota.Hold, quota.Decision, error) {
	if err := quota.CheckAcquire(limit, n); err != nil {
		return nil, quota.Decision{}, err
	}
	hold, d, err := a(key, limit, n)
	d.Limit = limit
	return hold, d, err
}

// held keeps Holds from becoming garbage.
var held []*quota.Hold

var gateFaults = map[string]func(m *quota.Memory) acquire{
	"none": func(m *quota.Memory) acquire {
		return func(key string, limit, n int64) (*quota.Hold, quota.Decision, error) {
			return m.Acquire(ctx, key, limit, n)
		}
	},
	"nothing is released": func(m *quota.Memory) acquire {
		return func(key string, limit, n int64) (*quota.Hold, quota.Decision, error) {
			hold, d, err := m.Acquire(ctx, key, limit, n)
			if held = append(held, hold); hold != nil {
				hold = quota.NewHold(nil, nil, nil)
			}
			return hold, d, err
		}
	},
	"a denial takes a place": func(m *quota.Memory) acquire {
		return func(key string, limit, n int64) (*quota.Hold, quota.Decision, error) {
			hold, d, err := m.Acquire(ctx, key, limit, n)
			if hold == nil {
				more, _, _ := m.Acquire(ctx, key, 1<<50, 1)
				held = append(held, more)
			}
			return hold, d, err
		}
	},
	"a place is taken after a look": func(m *quota.Memory) acquire {
		return func(key string, limit, n int64) (*quota.Hold, quota.Decision, error) {
			hold, d, err := m.Acquire(ctx, key, limit, n)
			if hold.Release(); hold != nil {
				runtime.Gosched()
				hold, _, err = m.Acquire(ctx, key, 1<<50, n)
			}
			return hold, d, err
		}
	},
	"one place too many": func(m *quota.Memory) acquire {
		return func(key string, limit, n int64) (*quota.Hold, quota.Decision, error) {
			return m.Acquire(ctx, key, min(limit+1, 1<<53-1), n)
		}
	},
	"all Holds weigh one": func(m *quota.Memory) acquire {
		return func(key string, limit, _ int64) (*quota.Hold, quota.Decision, error) {
			return m.Acquire(ctx, key, limit, 1)
		}
	},
	"one key": func(m *quota.Memory) acquire {
		return func(_ string, limit, n int64) (*quota.Hold, quota.Decision, error) {
			return m.Acquire(ctx, "", limit, n)
		}
	},
	"a count for each limit": func(m *quota.Memory) acquire {
		return func(key string, limit, n int64) (*quota.Hold, quota.Decision, error) {
			return m.Acquire(ctx, key+string(rune(limit%1000)), limit, n)
		}
	},
	"one place too many remains": func(m *quota.Memory) acquire {
		return func(key string, limit, n int64) (*quota.Hold, quota.Decision, error) {
			hold, d, err := m.Acquire(ctx, key, limit, n)
			d.Remaining++
			return hold, d, err
		}
	},
	"no Never": func(m *quota.Memory) acquire {
		return func(key string, limit, n int64) (*quota.Hold, quota.Decision, error) {
			hold, d, err := m.Acquire(ctx, key, limit, n)
			d.Never = false
			return hold, d, err
		}
	},
}

// Each fault is tested by a process of its own, which must fail.
func TestFaultsAreFound(t *testing.T) {
	switch kind, name, _ := strings.Cut(os.Getenv("QUOTATEST_FAULT"), ": "); kind {
	case "store":
		quotatest.Run(t, func(t *testing.T, now func() time.Time) quota.Store {
			f := new(faulty)
			f.setClock(now)
			storeFaults[name](f)
			return f
		})
		return
	case "gate":
		quotatest.RunGate(t, func(*testing.T) quota.Gate { return gateFaults[name](new(quota.Memory)) })
		return
	}
	test := func(fault, name string) {
		t.Run(fault, func(t *testing.T) {
			t.Parallel()
			cmd := exec.Command(os.Args[0], "-test.run=^TestFaultsAreFound$", "-test.failfast", "-test.short")
			// The race detector would wait for a second at the end.
			cmd.Env = append(os.Environ(), "QUOTATEST_FAULT="+fault, "GORACE=atexit_sleep_ms=0")
			output, err := cmd.CombinedOutput()
			if name == "none" {
				assert.NoError(t, err, "%s", output)
				return
			}
			assert.Error(t, err)
			assert.Contains(t, string(output), "--- FAIL")
			t.Logf("%s", output)
		})
	}
	for name := range storeFaults {
		test("store: "+name, name)
	}
	for name := range gateFaults {
		test("gate: "+name, name)
	}
}
