package redisstore

import (
	"cmp"
	"context"
	"errors"
	"hash/maphash"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/heedhttp/heed/quota"
)

const (
	// leaseFor is how long after it was charged a unit may be used.
	leaseFor = 250 * time.Millisecond

	// worthLeasing is how many equal calls within half of leaseFor make it worth to take units ahead.
	worthLeasing = 4

	// plenty is how many times as much as is taken ahead must be left.
	plenty = 10

	// defaultMaxLease is Max if it is zero.
	defaultMaxLease = 100
)

// A Lease takes units from a Store ahead of need, so that most decisions on a busy Key need no round trip,
// and less than a microsecond:
//
//	pacer := &pace.Shared{Store: &redisstore.Lease{Store: store}, Policies: policies}
//
// It is a quota.Reserver, in place of its Store. Close it to give back what it holds.
//
// It pays if each process asks about the same Key tens of times a second, and the limit is seldom reached.
// Otherwise it decides as its Store does, at the Store's cost.
//
// # What it takes ahead
//
// After four equal calls within 125 ms, a Lease takes ahead what it expects to be used within 250 ms: at most
// Max units, and a tenth of what is left. So near the limit it takes nothing ahead, and every call asks the
// Store. Calls are equal if they have the same Keys, Limits and N. What is not used within 250 ms goes back to
// Redis, except units that the bucket has refilled since.
//
// A call for more than half of Max units, with an ID, a DryRun or a LeakyBucket always asks the Store.
//
// # What it admits
//
// Units are free when they are charged, and are used within 250 ms. So in any time t all processes together
// use at most
//
//	Burst + Quota·(t + 250 ms)/Window
//
// and, counted from the first use, at most Burst + Quota·t/Window. A FixedWindow admits no more than its Quota
// in each of its windows. A SlidingWindow or SlidingLog keeps its own bound, for t + 250 ms.
//
// What one process holds is denied to others. It is lost until the limit refills if the process dies,
// or if Redis does not answer when it should go back.
//
// A decision on held units is the one that Redis made when it charged them. A denial is the Store's, and
// nothing is taken ahead but by a call. So who waits alone for RetryAfter is admitted then.
//
// While Redis does not answer, held units can still be used. Other calls return the Store's error.
//
// Set Store. A Lease is safe for concurrent use and must not be copied. Its fields must not change
// once it is in use.
type Lease struct {
	// Store counts the units. If nil, every call fails as that of a Store without a Client.
	Store *Store

	// Max is how many units are taken ahead at most, for equal calls, of each Limit. If zero or negative, 100.
	Max int64

	shards   [64]leaseShard // by the hash of a call
	inFlight sync.WaitGroup // refills and refunds; none starts after closed is set
}

// A leaseShard has some of the calls.
type leaseShard struct {
	mu     sync.Mutex // guards what follows
	closed bool
	held   map[uint64]*heldCalls // by their hash
	seldom [1024]uint8           // how many calls came since start, by their hash, if none is held
	start  time.Time
}

// heldCalls are equal calls whose units were taken ahead.
type heldCalls struct {
	charges     []quota.Charge // of one call
	taken, left int64          // calls; none was taken if the last refill failed, or after expire
	decisions   []quota.Decision
	asked       time.Time // when Redis was asked for them
	until       time.Time // when they expire; if none was taken, when to try again

	want  int64         // how many calls to take ahead next
	spare int64         // how many might be, by what the last refill left
	done  chan struct{} // closed at the end of the refill in flight, or nil
	timer *time.Timer   // runs expire
}

var (
	_ quota.Reserver = (*Lease)(nil)

	noStore Store // has no Client
)

func (l *Lease) store() *Store { return cmp.Or(l.Store, &noStore) }

// Take implements quota.Store. If units are used that were taken ahead, the decision is up to 250 ms old.
func (l *Lease) Take(ctx context.Context, dst []quota.Decision, charges ...quota.Charge) ([]quota.Decision, error) {
	if ds := l.use(ctx, charges); ds != nil {
		return append(dst, ds...), nil
	}
	return l.store().Take(ctx, dst, charges...)
}

// Reserve implements quota.Reserver.
func (l *Lease) Reserve(ctx context.Context, most time.Duration, charges ...quota.Charge) (
	wait time.Duration, at time.Time, ok bool, err error,
) {
	if ds := l.use(ctx, charges); ds != nil {
		return 0, ds[0].At, true, nil
	}
	return l.store().Reserve(ctx, most, charges...)
}

// Settle implements quota.Settler, by the Store.
func (l *Lease) Settle(ctx context.Context, charges ...quota.Charge) error {
	return l.store().Settle(ctx, charges...)
}

// Ping calls Ping of the Store.
func (l *Lease) Ping(ctx context.Context) error { return l.store().Ping(ctx) }

// AnswersWithin returns AnswersWithin of the Store.
func (l *Lease) AnswersWithin() time.Duration { return l.store().AnswersWithin() }

// Close gives back all units that are held. Later calls go to the Store. The error is ctx's, or says
// that Redis did not take some of the units.
func (l *Lease) Close(ctx context.Context) error {
	var held []*heldCalls
	for i := range l.shards {
		s := &l.shards[i]
		s.mu.Lock()
		held = slices.AppendSeq(held, maps.Values(s.held))
		s.held, s.closed = nil, true
		s.mu.Unlock()
	}
	done := make(chan error, 1)
	go func() {
		l.inFlight.Wait() // nothing else uses held now
		faults := make([]error, len(held))
		var all sync.WaitGroup
		for i, h := range held {
			all.Go(func() { faults[i] = l.giveBack(ctx, h.refunds(time.Now(), l.store().timeout())) })
		}
		all.Wait()
		done <- errors.Join(faults...)
	}()
	select {
	case err := <-done:
		return err
	case <-ctx.Done():
		return ctx.Err()
	}
}

// use uses a call that is held, if necessary after a refill, and returns the decisions on it. It returns nil if
// the Store must decide.
func (l *Lease) use(ctx context.Context, charges []quota.Charge) []quota.Decision {
	most := l.most(charges)
	if most < 2 { // taking one call ahead saves nothing
		return nil
	}
	hash := hashOf(charges)
	s := &l.shards[hash%uint64(len(l.shards))]
	s.mu.Lock()
	defer s.mu.Unlock()
	now, h := time.Now(), s.held[hash]
	if h == nil {
		if h = s.addLocked(hash, charges, now); h == nil {
			return nil
		}
		h.timer = time.AfterFunc(leaseFor, func() { l.expire(s, hash, h) })
	}
	if ds := h.use(charges, now); ds != nil {
		return ds
	}
	inTime, brought := now.Before(h.until), h.taken > 0
	if h.left > 0 || inTime && !brought {
		return nil // the rest expires just now, or it is too soon to try again
	}
	if h.done == nil {
		if inTime { // all were used
			h.want *= 2
		}
		h.want, h.done = min(h.want, most), make(chan struct{})
		want, spare := h.want, h.spare
		if now.Sub(h.asked) > leaseFor/10 {
			spare = 0 // others may have used it
		}
		l.inFlight.Go(func() { l.refill(context.WithoutCancel(ctx), s, h, want, spare) }) // others may wait for it
	}
	if !brought {
		return nil // this refill may not bring anything either
	}
	done := h.done
	s.mu.Unlock()
	select {
	case <-done:
	case <-ctx.Done():
	}
	s.mu.Lock()
	return s.held[hash].use(charges, time.Now())
}

// most returns how many calls may be taken ahead at most. It is 0 if all must go to the Store.
func (l *Lease) most(charges []quota.Charge) int64 {
	if quota.CheckTake(charges) != nil || len(charges) == 0 {
		return 0
	}
	units := int64(1)
	for i := range charges {
		c := &charges[i]
		if c.DryRun || c.ID != "" || c.Limit.Policy().Algorithm == quota.LeakyBucket {
			return 0
		}
		units = max(units, c.Units())
	}
	return cmp.Or(max(l.Max, 0), defaultMaxLease) / units
}

func hashOf(charges []quota.Charge) (hash uint64) {
	for i := range charges {
		c := &charges[i]
		hash = 31*hash + maphash.String(leaseSeed, c.Key) + 7*maphash.String(leaseSeed, c.Limit.Name()) + uint64(c.Units())
	}
	return hash
}

var leaseSeed = maphash.MakeSeed()

// addLocked counts a call for which nothing is held. If there were several lately, it adds heldCalls.
func (s *leaseShard) addLocked(hash uint64, charges []quota.Charge, now time.Time) *heldCalls {
	if now.Sub(s.start) > leaseFor/2 {
		clear(s.seldom[:])
		s.start = now
	}
	n := &s.seldom[hash/64%uint64(len(s.seldom))]
	if *n++; *n < worthLeasing || s.closed {
		return nil
	}
	h := &heldCalls{charges: slices.Clone(charges), want: 2 * worthLeasing}
	for i := range h.charges {
		h.charges[i].Key = strings.Clone(h.charges[i].Key)
	}
	if s.held == nil {
		s.held = make(map[uint64]*heldCalls)
	}
	s.held[hash] = h
	return h
}

// use uses a call, and returns the decisions on it. It returns nil if none is left for charges. h may be nil.
func (h *heldCalls) use(charges []quota.Charge, now time.Time) []quota.Decision {
	if h == nil || h.left == 0 || !now.Before(h.until) || !equal(h.charges, charges) {
		return nil
	}
	h.left--
	return h.decisions
}

func equal(a, b []quota.Charge) bool {
	return slices.EqualFunc(a, b, func(c, d quota.Charge) bool {
		return c.Key == d.Key && c.Limit == d.Limit && c.Units() == d.Units()
	})
}

// refill takes up to want calls ahead, but no more than spare. If that is 0, it asks Redis how many can be spared.
func (l *Lease) refill(ctx context.Context, s *leaseShard, h *heldCalls, want, spare int64) {
	if spare == 0 {
		spare = h.spareOf(l.store().Peek(ctx, nil, h.charges...))
	}
	n, asked := min(want, spare), time.Now()
	var ds []quota.Decision
	if n > 1 {
		ahead := slices.Clone(h.charges)
		for i := range ahead {
			ahead[i].N = n * ahead[i].Units()
		}
		ds, _ = l.store().Take(ctx, nil, ahead...) // its error is the next call's, too
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	h.taken, h.until, h.asked = 0, asked.Add(leaseFor), asked
	if len(ds) > 0 && !slices.ContainsFunc(ds, func(d quota.Decision) bool { return !d.Allowed }) {
		h.taken, h.decisions, h.spare = n, ds, h.spareOf(ds, nil)
		for i := range ds {
			if end := asked.Add(ds[i].ResetAfter); h.charges[i].Limit.Rate() == 0 && end.Before(h.until) {
				h.until = end // the next window counts anew
			}
		}
	}
	h.left = h.taken
	h.timer.Reset(time.Until(h.until))
	close(h.done)
	h.done = nil
}

// spareOf returns how many calls may be taken ahead of what ds says is left.
func (h *heldCalls) spareOf(ds []quota.Decision, err error) int64 {
	if err != nil {
		return 0
	}
	least := ds[0].Remaining
	for i := range ds {
		least = min(least, ds[i].Remaining/h.charges[i].Units())
	}
	return least / plenty
}

// expire gives back what is left of h, and forgets h if it was hardly used.
func (l *Lease) expire(s *leaseShard, hash uint64, h *heldCalls) {
	s.mu.Lock()
	now := time.Now()
	if s.closed || h.done != nil || now.Before(h.until) { // a refill sets the timer anew
		s.mu.Unlock()
		return
	}
	l.inFlight.Add(1)
	defer l.inFlight.Done()
	refunds := h.refunds(now, l.store().timeout())
	if h.want = h.taken - h.left; h.want < worthLeasing {
		delete(s.held, hash)
	} else {
		h.timer.Reset(leaseFor)
	}
	h.taken, h.left = 0, 0
	s.mu.Unlock()
	_ = l.giveBack(context.Background(), refunds)
}

// refunds returns the charges that give back what is left, within a time from now. That is no more than Redis'
// bucket will still owe if only h was charged: what has drained, others may have used.
func (h *heldCalls) refunds(now time.Time, within time.Duration) (refunds []quota.Charge) {
	if h.left == 0 {
		return nil
	}
	for i, c := range h.charges {
		n := h.left * c.Units()
		if c.Limit.Rate() > 0 {
			const start = 1 // in µs; any time will do
			owed := c.Limit.Settle(c.Limit.Drain(quota.Bucket{}, start), h.taken*c.Units(), 0, start)
			later := now.Sub(h.asked) + within + c.Limit.Tick()
			n = min(n, c.Limit.Drain(owed, start+later.Microseconds()).Level/c.Limit.Unit())
		}
		if n > 0 {
			c.N, c.At = -n, h.decisions[i].At
			refunds = append(refunds, c)
		}
	}
	return refunds
}

func (l *Lease) giveBack(ctx context.Context, refunds []quota.Charge) error {
	if len(refunds) == 0 {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, l.store().timeout()) // also if they are on several servers
	defer cancel()
	return l.store().Settle(ctx, refunds...)
}
