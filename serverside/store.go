package serverside

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/heedhttp/heed/internal/remote"
	"github.com/heedhttp/heed/quota"
)

// storeTimeout is the default of Config.StoreTimeout.
const storeTimeout = 75 * time.Millisecond

// A counter counts charges, in this process or in a Store that may fail in any way.
type counter struct {
	memory *quota.Memory // counts in this process, or nil
	store  quota.Store   // counts if memory is nil
	local  *quota.Memory // counts while the Store fails
	caller remote.Caller
}

func newCounter(cfg *Config) *counter {
	c := &counter{store: cfg.Store, local: cfg.Memory}
	c.caller.Name, c.caller.Timeout = "serverside: the Store", cmp.Or(cfg.StoreTimeout, storeTimeout)
	memory, ok := cfg.Store.(*quota.Memory)
	switch {
	case cfg.Store == nil || ok && memory == nil:
		c.memory = cfg.Memory
	case ok:
		c.memory = memory
	}
	return c
}

// take asks the Store to decide on charges. A Store that is late may still hold them.
func (c *counter) take(ctx context.Context, charges []quota.Charge) ([]quota.Decision, error) {
	call := func(ctx context.Context) ([]quota.Decision, error) {
		decisions, err := c.store.Take(ctx, nil, charges...)
		if err == nil {
			err = checked(decisions, len(charges))
		}
		return decisions, err
	}
	decisions, err := remote.Do(context.WithoutCancel(ctx), &c.caller, call, nil)
	return decisions, storeError(err)
}

// memoryOf returns the Memory in which m was counted, or nil if it was the Store.
func (c *counter) memoryOf(m match) *quota.Memory {
	if m.local {
		return c.local
	}
	return c.memory
}

// takeOne decides on one charge of m's key.
func (c *counter) takeOne(ctx context.Context, m match, charge quota.Charge) (quota.Decision, error) {
	if memory := c.memoryOf(m); memory != nil {
		decisions, err := memory.Take(ctx, nil, charge)
		if err != nil {
			return quota.Decision{}, err
		}
		return decisions[0], nil
	}
	decisions, err := c.take(ctx, []quota.Charge{charge})
	if err != nil {
		return quota.Decision{}, err
	}
	return decisions[0], nil
}

// settle corrects charges of m's key where they were counted. The Store is a quota.Settler.
func (c *counter) settle(ctx context.Context, m match, charges []quota.Charge) error {
	if memory := c.memoryOf(m); memory != nil {
		return memory.Settle(ctx, charges...)
	}
	_ = c.local.Settle(ctx, charges...) // it was charged too, by check.remember
	cut, err := remote.Do(context.WithoutCancel(ctx), &c.caller, func(ctx context.Context) (*quota.DebtError, error) {
		err := c.store.(quota.Settler).Settle(ctx, charges...)
		if cut, ok := errors.AsType[*quota.DebtError](err); ok { // the Store has answered
			return cut, nil
		}
		return nil, err
	}, nil)
	if cut != nil {
		return cut
	}
	return storeError(err)
}

// settles reports whether c can correct charges.
func (c *counter) settles() bool {
	_, ok := c.store.(quota.Settler)
	return c.memory != nil || ok
}

// checked returns an error if decisions cannot be those on n charges.
func checked(decisions []quota.Decision, n int) error {
	if len(decisions) != n {
		return fmt.Errorf("serverside: the Store answered %d charges with %d decisions", n, len(decisions))
	}
	for i, d := range decisions {
		if d.Limit < 0 || d.Remaining < 0 || d.RetryAfter < 0 || d.NextAfter < 0 || d.ResetAfter < 0 {
			return fmt.Errorf("serverside: the Store's decision on charge %d has a negative number", i)
		}
	}
	return nil
}

// A StoreError says why the Store did not decide. It is the Event.Err of StoreFailed.
type StoreError struct {
	Err error // what the Store returned, or how it failed to return anything

	// Late means that this process was late rather than the Store gone: too many calls were
	// waiting, or the Store answered others meanwhile.
	Late bool
}

func (e *StoreError) Error() string { return e.Err.Error() }

// Unwrap returns e.Err.
func (e *StoreError) Unwrap() error { return e.Err }

func storeError(err error) error {
	if err == nil {
		return nil
	}
	failed, _ := errors.AsType[*remote.Error](err)
	return &StoreError{failed.Err, remote.IsLate(err)}
}

// isLate reports whether err means that this process was late.
func isLate(err error) bool {
	failed, ok := errors.AsType[*StoreError](err)
	return ok && failed.Late
}
