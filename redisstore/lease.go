package redisstore

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/heedhttp/heed/quota"
)

const (
	// horizon is how far ahead units are taken without being asked for.
	horizon = 125 * time.Millisecond

	// lifetime is how long after it was charged a unit may be used.
	lifetime = 2 * horizon

	// defaultMaxLease is how many units are taken ahead if Max is zero.
	defaultMaxLease = 100
)

// A Lease takes units of a Store ahead of need, so that most decisions take less than
// a microsecond and no round trip: a quota.Reserver for processes that share a busy
// limit, as in
//
//	pacer := &pace.Shared{Store: &redisstore.Lease{Store: store}, Policies: policies}
//
// Units are charged in Redis when they are taken ahead, not when they are used. Each
// has a time, at which it would have been free, up to 125 ms ahead, and is used from
// then on until 250 ms after it was charged, or never. So in any time t all processes
// together use at most
//
//	Burst + Quota·(t + 250 ms)/Window
//
// and since the first use no more than Burst + Quota·t/Window; what a process holds
// when it dies is not used by anyone, and that is at most Max. (Of the other
// algorithms, their own bounds hold, for t + 250 ms.)
//
// How many units are taken ahead follows what was used of late, up to Max and up to a
// fair part of what there is: of n processes that were heard in the last second, each
// holds at most an n-th of what may be used in 125 ms, and one. What is held and not
// wanted goes back to Redis, once, less what has come back there since it was taken,
// rounded up: so of a limit of a few units a minute, too many would be lost. Seldom
// used keys are not held at all.
//
// Where nothing is held the Store decides, and its error is the caller's; while Redis
// is gone, what is held is used. Charges that are held for are those of one Key, all
// of different Limits, that are no DryRun, have no ID and are of Max units at most;
// calls with others are the Store's.
//
// The zero Lease needs a Store. It is safe for concurrent use and must not be copied.
// Its fields must not change once it is in use.
type Lease struct {
	// Store is where units are counted. If nil, every call fails.
	Store *Store

	// Max is how many units are taken ahead at most, for each Key and Limit. If
	// zero or negative, 100.
	Max int64

	run runner // in tests; if nil, Store's

	mu       sync.Mutex          // guards the following
	holdings map[string]*holding // by Key
	closed   bool
}

// A runner has errands done, as Store.run does.
type runner func(ctx context.Context, errands ...*errand) error

var _ quota.Reserver = (*Lease)(nil)

var errNoStore = errors.New("redisstore: Lease.Store is nil")

// Take implements quota.Store. Decisions on what is held tell what is known of the
// bucket since Redis was last asked, which is more than there is if others have used
// it since.
func (l *Lease) Take(ctx context.Context, dst []quota.Decision, charges ...quota.Charge) ([]quota.Decision, error) {
	if l.Store == nil {
		return dst, errNoStore
	}
	if err := quota.CheckTake(charges); err != nil {
		return dst, err
	}
	h := l.holdingOf(charges)
	if h == nil {
		return l.Store.Take(ctx, dst, charges...)
	}
	ds, err := h.take(ctx, dst, charges)
	l.judge(err)
	return ds, err
}

// Reserve implements quota.Reserver.
func (l *Lease) Reserve(ctx context.Context, most time.Duration, charges ...quota.Charge) (wait time.Duration, at time.Time, ok bool, err error) {
	if l.Store == nil {
		return 0, time.Time{}, false, errNoStore
	}
	if err := quota.CheckTake(charges); err != nil {
		return 0, time.Time{}, false, err
	}
	h := l.holdingOf(charges)
	if h == nil {
		return l.Store.Reserve(ctx, most, charges...)
	}
	wait, at, ok, err = h.reserve(ctx, max(0, most), charges)
	l.judge(err)
	return wait, at, ok, err
}

// judge counts a call that ended with err.
func (l *Lease) judge(err error) {
	if err != nil {
		l.Store.degraded.Add(1)
	}
}

// Settle implements quota.Settler: it is the Store's.
func (l *Lease) Settle(ctx context.Context, charges ...quota.Charge) error {
	if l.Store == nil {
		return errNoStore
	}
	err := l.Store.Settle(ctx, charges...)
	for i := range charges {
		l.settled(charges[i].Key)
	}
	return err
}

// settled has what is known of key's buckets asked for again.
func (l *Lease) settled(key string) {
	l.mu.Lock()
	h := l.holdings[key]
	l.mu.Unlock()
	if h != nil {
		h.unknow()
	}
}

// Close gives back all that is held, and has the Store decide from then on. The error
// says that some of it could not be given back: until ctx ended, or because Redis did
// not take it.
func (l *Lease) Close(ctx context.Context) error {
	l.mu.Lock()
	l.closed = true
	holdings := l.holdings
	l.holdings = nil
	l.mu.Unlock()

	done := make(chan error, 1)
	go func() {
		var faults []error
		for _, h := range holdings {
			faults = append(faults, h.close(ctx))
		}
		done <- join(faults...)
	}()
	select {
	case err := <-done:
		return err
	case <-ctx.Done():
		return ctx.Err()
	}
}

// holdingOf returns what charges are taken from, or nil if nothing is held for such.
func (l *Lease) holdingOf(charges []quota.Charge) *holding {
	if len(charges) == 0 || !l.plain(charges) {
		return nil
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed {
		return nil
	}
	h := l.holdings[charges[0].Key]
	if h == nil {
		if l.holdings == nil {
			l.holdings = make(map[string]*holding)
		}
		h = newHolding(l, charges[0].Key)
		l.holdings[h.key] = h
	}
	return h
}

// plain reports whether charges are of one Key, of different Limits, and each of a
// kind that units are held for.
func (l *Lease) plain(charges []quota.Charge) bool {
	for i := range charges {
		c := &charges[i]
		if c.DryRun || c.ID != "" || c.Units() > l.max() || c.Key != charges[0].Key {
			return false
		}
		for j := range charges[:i] {
			if charges[j].Limit.Name() == c.Limit.Name() {
				return false
			}
		}
	}
	return true
}

// forget has the next call for h's Key begin with another holding.
func (l *Lease) forget(h *holding) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.holdings[h.key] == h {
		delete(l.holdings, h.key)
	}
}

func (l *Lease) max() int64 {
	if l.Max <= 0 {
		return defaultMaxLease
	}
	return l.Max
}

func (l *Lease) do(ctx context.Context, errands ...*errand) error {
	if l.run != nil {
		return l.run(ctx, errands...)
	}
	return l.Store.run(ctx, errands...)
}

// monotonic is the time of this process, and positive.
func monotonic() time.Duration { return time.Since(epoch) }
