package pace

import (
	"context"
	"errors"
	"fmt"
	"math"
	"time"

	"github.com/heedhttp/heed/quota"
)

var noTime time.Time // of charges that are not corrections

// A counter is a store and the limits as it counts them.
type counter struct {
	store  quota.Reserver
	limits []*quota.Limit
}

// newCounter compiles policies for store. Its error names the policy by its
// index.
func newCounter(store quota.Reserver, policies []quota.Policy) (counter, error) {
	c := counter{store, make([]*quota.Limit, len(policies))}
	var faults []error
	names := make(map[string]bool)
	for i, p := range policies {
		limit, err := p.Compile()
		if err == nil && names[limit.Name()] {
			err = fmt.Errorf("its name %q is that of another", limit.Name())
		}
		if err != nil {
			faults = append(faults, fmt.Errorf("pace: Shared.Policies[%d]: %w", i, err))
			continue
		}
		names[limit.Name()] = true
		c.limits[i] = limit
	}
	return c, errors.Join(faults...)
}

// share is one n-th of p. Its rate is exact; its burst is rounded down, but to
// one unit at least.
func share(p quota.Policy, n int) quota.Policy {
	if p.Window > math.MaxInt64/time.Duration(n) {
		p.Window = math.MaxInt64
	} else {
		p.Window *= time.Duration(n)
	}
	p.Burst = max(1, p.Burst/int64(n))
	return p
}

// burst is what all limits have room for at once.
func (c *counter) burst() int64 {
	least := int64(math.MaxInt64)
	for _, l := range c.limits {
		least = min(least, l.Policy().Burst)
	}
	return least
}

// charges are n units of each limit.
func (c *counter) charges(key string, n int64, at time.Time) []quota.Charge {
	charges := make([]quota.Charge, len(c.limits))
	for i, l := range c.limits {
		charges[i] = quota.Charge{Key: key, Limit: l, N: n, At: at}
	}
	return charges
}

// A reservation is what a Store answers to Reserve.
type reservation struct {
	wait time.Duration
	at   time.Time
	ok   bool
}

// reserve takes n units of each limit if they are there within most.
func (c *counter) reserve(ctx context.Context, key string, n int64, most time.Duration) (r reservation, err error) {
	r.wait, r.at, r.ok, err = c.store.Reserve(ctx, most, c.charges(key, n, noTime)...)
	return r, err
}

// reserveDebt is reserve for a counter whose bursts may be smaller than n: what
// does not fit into one is owed, and waited for by those who come later.
func (c *counter) reserveDebt(ctx context.Context, key string, n int64, most time.Duration) (r reservation, err error) {
	if n <= c.burst() {
		return c.reserve(ctx, key, n, most)
	}
	charges, debts := c.charges(key, n, noTime), c.charges(key, 0, noTime)
	for i, l := range c.limits {
		charges[i].N = min(n, l.Policy().Burst)
		debts[i].N = n - charges[i].N
	}
	r.wait, r.at, r.ok, err = c.store.Reserve(ctx, most, charges...)
	if err == nil && r.ok {
		err = c.store.Settle(ctx, debts...)
	}
	return r, err
}

// settle takes n units more, or gives them back if n is negative.
func (c *counter) settle(ctx context.Context, key string, n int64, at time.Time) error {
	return c.store.Settle(ctx, c.charges(key, n, at)...)
}
