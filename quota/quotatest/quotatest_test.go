package quotatest_test

import (
	"context"
	"os"
	"os/exec"
	"testing"
	"time"

	"github.com/heedhttp/heed/quota"
	"github.com/heedhttp/heed/quota/quotatest"
	"github.com/stretchr/testify/assert"
)

// A faulty Store is a Memory with one thing wrong.
type faulty struct {
	quota.Memory
	after func(ds []quota.Decision) // what is done to Decisions
	take  func(f *faulty, dst []quota.Decision, charges []quota.Charge) ([]quota.Decision, error)
}

func (f *faulty) Take(ctx context.Context, dst []quota.Decision, charges ...quota.Charge) (ds []quota.Decision, err error) {
	if f.take != nil {
		return f.take(f, dst, charges)
	}
	ds, err = f.Memory.Take(ctx, dst, charges...)
	if f.after != nil {
		f.after(ds[len(dst):])
	}
	return ds, err
}

// each makes charges one after the other.
func each(f *faulty, dst []quota.Decision, charges []quota.Charge) ([]quota.Decision, error) {
	for _, c := range charges {
		ds, err := f.Memory.Take(context.Background(), nil, c)
		if err != nil {
			return dst, err
		}
		dst = append(dst, ds...)
	}
	return dst, nil
}

// A change makes one thing wrong with each Decision.
func change(wrong func(d *quota.Decision)) *faulty {
	return &faulty{after: func(ds []quota.Decision) {
		for i := range ds {
			wrong(&ds[i])
		}
	}}
}

var faults = map[string]func() *faulty{
	"none":                   func() *faulty { return new(faulty) },
	"not all or nothing":     func() *faulty { return &faulty{take: each} },
	"remaining one too many": func() *faulty { return change(func(d *quota.Decision) { d.Remaining++ }) },
	"retry a microsecond soon": func() *faulty {
		return change(func(d *quota.Decision) { d.RetryAfter -= min(d.RetryAfter, time.Microsecond) })
	},
	"retry rounded up": func() *faulty {
		return change(func(d *quota.Decision) { d.RetryAfter = d.RetryAfter.Round(time.Millisecond) + time.Millisecond })
	},
	"reset never":   func() *faulty { return change(func(d *quota.Decision) { d.ResetAfter = 0 }) },
	"next as reset": func() *faulty { return change(func(d *quota.Decision) { d.NextAfter = d.ResetAfter }) },
	"never unsaid":  func() *faulty { return change(func(d *quota.Decision) { d.Never = false }) },
	"all allowed":   func() *faulty { return change(func(d *quota.Decision) { d.Allowed = true }) },
	"forgets":       func() *faulty { return &faulty{Memory: quota.Memory{MaxKeys: 2}} },
}

func TestFaultyStoresAreCaught(t *testing.T) {
	if name := os.Getenv("QUOTATEST_FAULT"); name != "" {
		quotatest.Run(t, func(*testing.T, func() time.Time) quota.Store { return faults[name]() })
		return
	}
	for name := range faults {
		cmd := exec.Command(os.Args[0], "-test.run=^TestFaultyStoresAreCaught$", "-test.timeout=20s")
		cmd.Env = append(os.Environ(), "QUOTATEST_FAULT="+name)
		output, err := cmd.CombinedOutput()
		if name == "none" {
			assert.NoError(t, err, "%s", output)
			continue
		}
		assert.Error(t, err, name)
		assert.Contains(t, string(output), "--- FAIL", name)
	}
}

// bare has nothing but Take.
type bare struct{ store quota.Memory }

func (b *bare) Take(ctx context.Context, dst []quota.Decision, charges ...quota.Charge) ([]quota.Decision, error) {
	return b.store.Take(ctx, dst, charges...)
}

func TestAStoreThatHasOnlyTakeIsTested(t *testing.T) {
	quotatest.Run(t, func(*testing.T, func() time.Time) quota.Store { return new(bare) })
}
