package pace

import (
	"context"
	"errors"
	"fmt"
	"math"
	"time"

	"github.com/heedhttp/heed/quota"
)

var noTime time.Time // for charges that correct no earlier one

// A counter is a store and the limits to count in it.
type counter struct {
	store  quota.Reserver
	limits []*quota.Limit
}

// newCounter compiles policies for store. Its error names each invalid policy.
func newCounter(store quota.Reserver, policies []quota.Policy) (counter, error) {
	c := counter{store, make([]*quota.Limit, len(policies))}
	var faults []error
	names := make(map[string]bool)
	for i, p := range policies {
		limit, err := p.Compile()
		if err == nil && names[limit.Name()] {
			err = fmt.Errorf("its name %q is not unique", limit.Name())
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

// share returns a counter in store for what one of n processes may use of c.
func (c *counter) share(store quota.Reserver, n int) (counter, error) {
	share := counter{store, make([]*quota.Limit, len(c.limits))}
	var faults []error
	for i, l := range c.limits {
		p, err := shareOf(l, int64(n))
		if err == nil {
			share.limits[i], err = p.Compile()
		}
		if err != nil {
			faults = append(
				faults,
				fmt.Errorf(
					"pace: Shared.Policies[%d]: %q cannot be shared by %d Processes: %w", i, l.Name(), n, err,
				),
			)
		}
	}
	return share, errors.Join(faults...)
}

// shareOf returns the n-th part of a policy. A bucket keeps its rate exactly and gets the
// n-th part of its burst; any other algorithm gets the n-th part of its quota. A part of
// less than 1 unit becomes 1, in a window so much longer that n units in it stay within
// the policy.
func shareOf(l *quota.Limit, n int64) (quota.Policy, error) {
	p, longer := l.Policy(), n
	if !isBucket(l) {
		longer = (n + p.Quota - 1) / p.Quota
		p.Quota = max(1, p.Quota/n)
		p.Burst = p.Quota
	}
	if p.Calendar != 0 && longer > 1 {
		return p, fmt.Errorf("its Quota must be at least %d", n) // the window cannot be made longer
	}
	if isBucket(l) {
		p.Burst = max(1, p.Burst/n)
	}
	if p.Window > math.MaxInt64/time.Duration(longer) {
		p.Window = math.MaxInt64 / 1000 * 1000 // whole µs
	} else {
		p.Window *= time.Duration(longer)
	}
	return p, nil
}

// isBucket reports whether units come back continuously.
func isBucket(l *quota.Limit) bool { return l.Rate() > 0 }

// timeOf returns the time in which n units come back, or 0 if a limit is no bucket: what is
// given back to a window does not bring the next window forward.
func (c *counter) timeOf(n int64) time.Duration {
	least := unknown
	for _, l := range c.limits {
		if !isBucket(l) {
			return 0
		}
		p := l.Policy()
		least = min(least, time.Duration(float64(n)/float64(p.Quota)*float64(p.Window)))
	}
	return least
}

// atOnce returns the number of units that all limits can admit at once.
func (c *counter) atOnce() int64 {
	least := int64(math.MaxInt64)
	for _, l := range c.limits {
		least = min(least, l.AtOnce())
	}
	return least
}

// charges returns a charge of n units for each limit.
func (c *counter) charges(key string, n int64, at time.Time) []quota.Charge {
	charges := make([]quota.Charge, len(c.limits))
	for i, l := range c.limits {
		charges[i] = quota.Charge{Key: key, Limit: l, N: n, At: at}
	}
	return charges
}

// A reservation is the result of Store.Reserve.
type reservation struct {
	wait time.Duration
	at   time.Time
	ok   bool
}

// reserve takes n units of each limit if that is possible within most.
func (c *counter) reserve(ctx context.Context, key string, n int64, most time.Duration) (r reservation, err error) {
	r.wait, r.at, r.ok, err = c.store.Reserve(ctx, most, c.charges(key, n, noTime)...)
	return r, err
}

// reserveOwing is reserve for a share, which may be smaller than n. It takes the rest as
// debt, and later requests wait for it.
func (c *counter) reserveOwing(
	ctx context.Context, key string, n int64, most time.Duration,
) (r reservation, err error) {
	if n <= c.atOnce() {
		return c.reserve(ctx, key, n, most)
	}
	charges := c.charges(key, n, noTime)
	for i, l := range c.limits {
		charges[i].N = min(n, l.AtOnce())
	}
	r.wait, r.at, r.ok, err = c.store.Reserve(ctx, most, charges...)
	for i := 0; i < len(charges) && r.ok && err == nil; i++ {
		err = c.owe(ctx, key, c.limits[i], n-charges[i].N)
	}
	return r, err
}

// owe charges n units above what a limit can admit. A bucket goes into debt. A window
// would forget the debt at its end, so owe reserves units of the next windows.
func (c *counter) owe(ctx context.Context, key string, l *quota.Limit, n int64) error {
	if isBucket(l) {
		return asOwed(c.store.Settle(ctx, quota.Charge{Key: key, Limit: l, N: n}))
	}
	for n > 0 {
		part := min(n, l.AtOnce())
		_, _, ok, err := c.store.Reserve(ctx, forever, quota.Charge{Key: key, Limit: l, N: part})
		if !ok || err != nil {
			return err // only as far ahead as a day
		}
		n -= part
	}
	return nil
}

// settle takes n more units, or returns them if n is negative.
func (c *counter) settle(ctx context.Context, key string, n int64, at time.Time) error {
	return asOwed(c.store.Settle(ctx, c.charges(key, n, at)...))
}

// asOwed returns err, unless it says that a debt is as large as it can be.
func asOwed(err error) error {
	if _, cut := errors.AsType[*quota.DebtError](err); cut {
		return nil
	}
	return err
}
