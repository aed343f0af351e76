package redisstore

import (
	"context"
	"crypto/rand"
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
	// horizon is how far ahead units are taken.
	horizon = 125 * time.Millisecond

	// lifetime is how long after it was charged a unit may be used.
	lifetime = 2 * horizon

	// sweepEvery is how often Keys are checked for the end of a horizon.
	sweepEvery = horizon / 5

	// defaultMaxLease is Max if it is zero.
	defaultMaxLease = 100

	// worthLeasing is how many uses within a horizon make a Key leased.
	worthLeasing = 4
)

// A Lease takes units from a Store ahead of need, so that most decisions on a busy limit need no
// round trip, and less than a microsecond:
//
//	pacer := &pace.Shared{Store: &redisstore.Lease{Store: store}, Policies: policies}
//
// It is a quota.Reserver, in place of its Store. Close it to give back what it holds.
//
// # What it admits
//
// A unit is charged in Redis when it is taken, up to 125 ms before it would be free. It may be used from
// the time when it would be free until 250 ms after it was charged. So in any time t all processes
// together use at most
//
//	Burst + Quota·(t + 250 ms)/Window
//
// and, counted from the first use, at most Burst + Quota·t/Window. (Other algorithms than the token bucket
// keep their own bounds, for t + 250 ms.) If a process dies, the units that it holds are lost: at
// most Max.
//
// # What it takes ahead
//
// A Lease takes about what was used recently, up to Max, and no more than a fair share: if n processes
// took units in the last second, each holds at most an n-th of what may be used in 125 ms, plus one.
// Units that are not used go back to Redis, except those that the bucket has refilled there since,
// rounded up. On a limit of a few units a minute, this rounding would lose too many: use the Store.
//
// A Key is leased after four uses within 125 ms, or after a denial of what would be free within
// 125 ms. Before that, and when it is used less often again, the Store decides on it, at the Store's
// cost.
//
// A Lease takes ahead for calls whose charges are of one Key and of different Limits, have no ID, are
// no DryRun and take at most Max units each. Other calls go to the Store.
//
// If not enough is held, callers share one charge for all that they need, and wait for it until
// their own contexts end. If it is denied, or nothing is held, the Store decides, and its error is
// returned. While Redis does not answer, held units can still be used.
//
// Set Store. A Lease is safe for concurrent use and must not be copied. Its fields must not change
// once it is in use.
type Lease struct {
	// Store counts the units. If nil, every call fails.
	Store *Store

	// Max is how many units are taken ahead at most, for each Key and Limit. If zero or
	// negative, 100.
	Max int64

	shards [64]leaseShard // by the hash of the Key

	mu       sync.Mutex // guards what follows
	sweeping bool       // a sweep is scheduled
	closed   bool
	inFlight sync.WaitGroup // refills and sweeps; none starts after closed is set
}

// A leaseShard holds some of the Keys.
type leaseShard struct {
	mu     sync.Mutex           // guards what follows
	leased map[string]*leaseKey // by Key
	uses   [1024]useCount       // of Keys that are not leased, by hash
}

// A useCount counts the uses, within a horizon, of all Keys with the same hash.
type useCount struct{ horizon, n uint8 }

// A leaseKey is a leased Key. The mutex of its shard guards it.
type leaseKey struct {
	key       string
	tokens    []*tokens
	peers     peers
	waiters   []*leaseWaiter // for the next refill
	refilling bool           // a refill is in flight
	failed    bool           // the last refill failed, and no call has succeeded since
	swept     time.Duration  // when the last horizon ended
}

// A leaseWaiter is a call for which not enough is held. It may wait for a refill.
type leaseWaiter struct {
	op
	key  *leaseKey
	done chan struct{} // closed at the end of the wait, when the fields below except gone are set

	err  error
	held bool // the refill was enough, and its units are used; otherwise ask Redis
	wait time.Duration
	at   int64 // when the units may be used, by Redis' clock, in µs since the Unix epoch
	gone bool  // the caller did not wait
}

var (
	_ quota.Reserver = (*Lease)(nil)

	errNoStore = errors.New("redisstore: Lease.Store is nil")
)

// Take implements quota.Store. If held units are used, the decision describes the bucket as Redis last
// reported it: less may be left if other processes have used it since.
func (l *Lease) Take(ctx context.Context, dst []quota.Decision, charges ...quota.Charge) ([]quota.Decision, error) {
	if l.Store == nil {
		return dst, errNoStore
	}
	if err := quota.CheckTake(charges); err != nil {
		return dst, err
	}
	if !l.leases(charges) {
		return l.Store.Take(ctx, dst, charges...)
	}
	if ds, held := l.takeHeld(dst, charges); held {
		return ds, nil
	}
	if ds, denied := l.Store.denials.deny(dst, charges, l.Store.time()); denied {
		l.lowerRetryAfter(ds[len(dst):], charges)
		return ds, nil
	}
	w := &leaseWaiter{op: op{verb: take, charges: slices.Clone(charges)}}
	if err := l.ask(ctx, w); err != nil {
		l.Store.degraded.Add(1)
		return dst, err
	}
	if w.held {
		s, _ := l.shardOf(w.key.key)
		s.mu.Lock()
		defer s.mu.Unlock()
		return w.key.decisions(dst, charges, monotonic()), nil
	}
	n := len(dst)
	for i := range charges {
		dst = append(dst, w.decision(i))
	}
	l.lowerRetryAfter(dst[n:], charges)
	return dst, nil
}

// Reserve implements quota.Reserver.
func (l *Lease) Reserve(ctx context.Context, most time.Duration, charges ...quota.Charge) (
	wait time.Duration, at time.Time, ok bool, err error,
) {
	if l.Store == nil {
		return 0, time.Time{}, false, errNoStore
	}
	if err := quota.CheckTake(charges); err != nil {
		return 0, time.Time{}, false, err
	}
	if !l.leases(charges) {
		return l.Store.Reserve(ctx, most, charges...)
	}
	most = max(0, most)
	s, _ := l.shardOf(charges[0].Key)
	s.mu.Lock()
	wait, micros, ok := l.spendLocked(s, charges, most, monotonic())
	s.mu.Unlock()
	if ok {
		return wait, time.UnixMicro(micros), true, nil
	}
	w := &leaseWaiter{op: op{verb: reserve, within: most, charges: slices.Clone(charges)}}
	if err := l.ask(ctx, w); err != nil {
		l.Store.degraded.Add(1)
		return 0, time.Time{}, false, err
	}
	if w.held {
		return w.wait, time.UnixMicro(w.at), true, nil
	}
	wait, at = w.op.wait(), time.UnixMicro(w.now)
	if w.allowed {
		at = at.Add(wait)
	}
	return wait, at, w.allowed, nil
}

// Settle implements quota.Settler, by the Store.
func (l *Lease) Settle(ctx context.Context, charges ...quota.Charge) error {
	if l.Store == nil {
		return errNoStore
	}
	return l.Store.Settle(ctx, charges...)
}

// Close gives back all units that are held. Later calls go to the Store. The error is ctx's, or says
// that Redis did not take some of the units.
func (l *Lease) Close(ctx context.Context) error {
	l.mu.Lock()
	l.closed = true
	l.mu.Unlock()
	var keys []*leaseKey
	for i := range l.shards {
		s := &l.shards[i]
		s.mu.Lock()
		keys = slices.AppendSeq(keys, maps.Values(s.leased))
		s.leased = nil
		s.mu.Unlock()
	}
	done := make(chan error, 1)
	go func() {
		l.inFlight.Wait()
		var refunds []*refund // nothing else uses these keys now
		now := monotonic()
		for _, k := range keys {
			for _, t := range k.tokens {
				t.expire(now)
				refunds = l.appendRefund(refunds, k, t, t.left, now)
			}
		}
		done <- l.giveBack(ctx, refunds)
	}()
	select {
	case err := <-done:
		return err
	case <-ctx.Done():
		return ctx.Err()
	}
}

// leases reports whether units may be held for charges: they are of one Key and different Limits, and
// of a kind that repeats.
func (l *Lease) leases(charges []quota.Charge) bool {
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
	return len(charges) > 0
}

func (l *Lease) max() int64 {
	if l.Max <= 0 {
		return defaultMaxLease
	}
	return l.Max
}

func (l *Lease) shardOf(key string) (s *leaseShard, hash uint64) {
	hash = maphash.String(hashSeed, key)
	return &l.shards[hash%uint64(len(l.shards))], hash / uint64(len(l.shards))
}

// takeHeld is Take from units that are held.
func (l *Lease) takeHeld(dst []quota.Decision, charges []quota.Charge) ([]quota.Decision, bool) {
	s, _ := l.shardOf(charges[0].Key)
	s.mu.Lock()
	defer s.mu.Unlock()
	now := monotonic()
	if _, _, ok := l.spendLocked(s, charges, 0, now); !ok {
		return dst, false
	}
	return s.leased[charges[0].Key].decisions(dst, charges, now), true
}

// spendLocked uses held units for charges, if all may be used after at most within.
func (l *Lease) spendLocked(s *leaseShard, charges []quota.Charge, within, now time.Duration) (
	wait time.Duration, at int64, ok bool,
) {
	k := s.leased[charges[0].Key]
	if k == nil {
		return 0, 0, false
	}
	if wait, at, ok = k.spend(charges, within, now); !ok {
		return 0, 0, false
	}
	for i := range charges {
		if k.tokensOf(charges[i].Limit).isLow(now) {
			l.refillLocked(s, k, now)
			break
		}
	}
	return wait, at, true
}

// lowerRetryAfter lowers RetryAfter in decisions that deny, if units that are held here may be used
// sooner.
func (l *Lease) lowerRetryAfter(ds []quota.Decision, charges []quota.Charge) {
	s, _ := l.shardOf(charges[0].Key)
	s.mu.Lock()
	defer s.mu.Unlock()
	k := s.leased[charges[0].Key]
	for i := range ds {
		if k != nil && !ds[i].Allowed {
			wait, _, ok := k.tokensOf(charges[i].Limit).find(charges[i].Units(), monotonic())
			if ok {
				ds[i].RetryAfter = min(ds[i].RetryAfter, max(wait, time.Microsecond))
			}
		}
	}
}

// tokensOf returns the tokens of limit.
func (k *leaseKey) tokensOf(limit *quota.Limit) *tokens {
	for _, t := range k.tokens {
		if t.limit == limit {
			return t
		}
	}
	t := &tokens{limit: limit}
	k.tokens = append(k.tokens, t)
	return t
}

// spend uses held units for charges, if all may be used after at most within.
func (k *leaseKey) spend(charges []quota.Charge, within, now time.Duration) (
	wait time.Duration, at int64, ok bool,
) {
	for i := range charges {
		w, micros, ok := k.tokensOf(charges[i].Limit).find(charges[i].Units(), now)
		if !ok || w > within {
			return 0, 0, false
		}
		if w >= wait {
			wait, at = w, micros
		}
	}
	for i := range charges {
		k.tokensOf(charges[i].Limit).spend(charges[i].Units())
	}
	return wait, at, true
}

// decisions appends decisions on charges that held units were used for.
func (k *leaseKey) decisions(dst []quota.Decision, charges []quota.Charge, now time.Duration) []quota.Decision {
	for i := range charges {
		t := k.tokensOf(charges[i].Limit)
		b, at := t.stateAt(now)
		d := t.limit.Describe(t.limit.Settle(b, -t.left, 0, at), at) // as if held units were not charged
		d.Allowed, d.At = true, time.UnixMicro(at)
		dst = append(dst, d)
	}
	return dst
}

// ask makes w's charges from a refill, if one may be enough, and otherwise asks Redis.
func (l *Lease) ask(ctx context.Context, w *leaseWaiter) error {
	s, hash := l.shardOf(w.charges[0].Key)
	if l.enqueue(s, hash, w) {
		select {
		case <-w.done:
		case <-ctx.Done():
			s.mu.Lock()
			defer s.mu.Unlock()
			select {
			case <-w.done:
			default:
				w.gone = true
				return ctx.Err()
			}
		}
		if w.err != nil || w.held {
			return w.err
		}
	}
	asked, sent := l.Store.denials.read(w.charges, l.Store.time()), monotonic()
	if err := l.Store.ask(ctx, &w.op); err != nil {
		return err
	}
	if w.verb == take && !l.Store.AlwaysAsk {
		l.Store.denials.learn([]part{{op: &w.op, denialRead: asked}}, w.allowed)
	}
	l.learn(s, w, sent)
	return nil
}

// enqueue makes w wait for a refill, and returns true, if a refill may be enough.
func (l *Lease) enqueue(s *leaseShard, hash uint64, w *leaseWaiter) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := monotonic()
	k := s.leased[w.charges[0].Key]
	if k == nil && s.isUsedOften(hash, now) {
		k = l.leaseLocked(s, w.charges[0].Key, now)
	}
	if k == nil || k.failed {
		return false
	}
	expected := true
	for i := range w.charges {
		t := k.tokensOf(w.charges[i].Limit)
		t.want = min(max(worthLeasing, 2*t.want), l.max()) // not enough was held
		_, ok := t.toRefill(w.charges[i].Units(), k.peers.n, now)
		expected = expected && ok
	}
	if !expected {
		return false
	}
	for i := range w.charges {
		k.tokensOf(w.charges[i].Limit).waiting += w.charges[i].Units()
	}
	w.key, w.done = k, make(chan struct{})
	k.waiters = append(k.waiters, w)
	l.refillLocked(s, k, now)
	return true
}

// isUsedOften counts a use of a Key that is not leased, and reports whether to lease it.
func (s *leaseShard) isUsedOften(hash uint64, now time.Duration) bool {
	c := &s.uses[hash%uint64(len(s.uses))]
	if h := uint8(now / horizon); c.horizon != h {
		*c = useCount{horizon: h}
	}
	c.n = min(c.n+1, worthLeasing)
	return c.n == worthLeasing
}

// leaseLocked starts to lease a Key. It returns nil if l is closed.
func (l *Lease) leaseLocked(s *leaseShard, key string, now time.Duration) *leaseKey {
	if !l.sweepSoon() {
		return nil
	}
	if s.leased == nil {
		s.leased = make(map[string]*leaseKey)
	}
	k := &leaseKey{key: strings.Clone(key), swept: now}
	s.leased[k.key] = k
	return k
}

// learn records Redis' answer to w. If Redis denied units that will be free within the horizon, it takes
// them ahead: otherwise a process with few calls would always lose to those that take ahead.
func (l *Lease) learn(s *leaseShard, w *leaseWaiter, sent time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	now, soon := monotonic(), false
	for i := range w.charges {
		c, f := &w.charges[i], &w.found[i]
		if !f.fits {
			_, _, fits := c.Limit.TryWithin(f.bucket, c.Units(), w.now, horizon)
			soon = soon || fits
		}
	}
	k := s.leased[w.charges[0].Key]
	if k == nil && soon {
		k = l.leaseLocked(s, w.charges[0].Key, now)
	}
	if k == nil {
		return
	}
	k.failed = false
	for i := range w.charges {
		c, t := &w.charges[i], k.tokensOf(w.charges[i].Limit)
		t.record(w.left(i), w.now, sent)
		t.used += c.Units()
		if !w.found[i].fits {
			t.denied, t.want = true, min(max(t.want, c.Units()+1), l.max())
		}
	}
	if !w.allowed { // perhaps a refill took what was left
		w.key = k
		w.wait, w.at, w.held = k.spend(w.charges, w.within, now)
	}
	if soon {
		l.refillLocked(s, k, now)
	}
}

// A refill is one request to Redis: it takes units for each Limit that needs some. From time to time
// it also counts the processes that lease the Key.
type refill struct {
	waiters []*leaseWaiter // calls that wait for it
	tokens  []*tokens
	ops     []*op // a reservation for each of tokens, then count
	count   *op   // nil if counting is not due
}

// refillLocked starts a refill if one is needed and none is in flight.
func (l *Lease) refillLocked(s *leaseShard, k *leaseKey, now time.Duration) {
	if k.refilling {
		return
	}
	r := k.nextRefill(now)
	switch {
	case r == nil:
	case l.addInFlight():
		k.refilling = true
		go l.refill(s, k, r)
	default:
		k.serve(r.waiters, now, nil)
	}
}

// refill sends r, and further refills as long as callers wait for them.
func (l *Lease) refill(s *leaseShard, k *leaseKey, r *refill) {
	defer l.inFlight.Done()
	for r != nil {
		sent := monotonic()
		err := l.Store.ask(context.Background(), r.ops...)
		s.mu.Lock()
		now := monotonic()
		if k.failed = err != nil; !k.failed {
			k.receive(r, sent, now)
		}
		k.serve(r.waiters, now, err)
		if r = nil; len(k.waiters) > 0 {
			r = k.nextRefill(now)
		}
		k.refilling = r != nil
		s.mu.Unlock()
	}
}

// nextRefill returns the next refill, or nil if none is needed. If Redis is not expected to have what
// callers wait for, it ends their wait, and they ask Redis themselves.
func (k *leaseKey) nextRefill(now time.Duration) *refill {
	r, expected := &refill{waiters: k.waiters}, !k.failed
	k.waiters = nil
	for _, t := range k.tokens {
		n, ok := t.toRefill(0, k.peers.n, now)
		expected = expected && ok
		if t.waiting = 0; n > 0 {
			c := quota.Charge{Key: k.key, Limit: t.limit, N: n}
			r.tokens = append(r.tokens, t)
			r.ops = append(r.ops, &op{verb: reserve, within: horizon, charges: []quota.Charge{c}})
		}
	}
	if !expected || len(r.ops) == 0 {
		k.serve(r.waiters, now, nil)
		return nil
	}
	if r.count = k.peers.count(k.key, now); r.count != nil {
		r.ops = append(r.ops, r.count)
	}
	return r
}

// receive adds the units that r took.
func (k *leaseKey) receive(r *refill, sent, now time.Duration) {
	for i, t := range r.tokens {
		o := r.ops[i]
		if t.record(o.left(0), o.now, sent); o.allowed {
			_, wait := o.after(0)
			t.add(reservation{found: o.found[0].bucket, wait: wait, at: o.now, sent: sent, got: now, n: o.charges[0].N})
		}
	}
	if r.count != nil {
		k.peers.record(r.count)
	}
}

// serve ends the wait of waiters. If err is nil, it uses held units for those for which there are enough.
func (k *leaseKey) serve(waiters []*leaseWaiter, now time.Duration, err error) {
	for _, w := range waiters {
		if w.err = err; err == nil && !w.gone {
			w.wait, w.at, w.held = k.spend(w.charges, w.within, now)
		}
		close(w.done)
	}
}

// addInFlight adds one to the calls that Close waits for. It returns false if l is closed.
func (l *Lease) addInFlight() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.closed {
		l.inFlight.Add(1)
	}
	return !l.closed
}

// sweepSoon schedules a sweep, and returns false if l is closed.
func (l *Lease) sweepSoon() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.closed && !l.sweeping {
		l.sweeping = true
		time.AfterFunc(sweepEvery, l.sweep)
	}
	return !l.closed
}

// sweep gives back units that will not be used, and stops leasing Keys that are not used often.
func (l *Lease) sweep() {
	if !l.addInFlight() {
		return
	}
	defer l.inFlight.Done()
	l.mu.Lock()
	l.sweeping = false
	l.mu.Unlock()
	var refunds []*refund
	leased := 0
	for i := range l.shards {
		s := &l.shards[i]
		s.mu.Lock()
		now := monotonic()
		for _, k := range s.leased {
			if now-k.swept >= horizon {
				refunds = l.sweepLocked(k, refunds, now)
			}
			if len(k.tokens) == 0 {
				delete(s.leased, k.key)
			}
		}
		if leased += len(s.leased); len(s.leased) == 0 {
			s.leased = nil // frees its memory
		}
		s.mu.Unlock()
	}
	if leased > 0 {
		l.sweepSoon()
	}
	_ = l.giveBack(context.Background(), refunds)
}

// sweepLocked starts a new horizon for k, and appends refunds of units that will not be used.
func (l *Lease) sweepLocked(k *leaseKey, refunds []*refund, now time.Duration) []*refund {
	k.swept = now
	for _, t := range k.tokens {
		refunds = l.appendRefund(refunds, k, t, t.sweep(now, l.max()), now)
	}
	k.tokens = slices.DeleteFunc(k.tokens, func(t *tokens) bool {
		return t.left == 0 && t.want == 0 && !k.refilling
	})
	return refunds
}

// A refund gives back units that were held.
type refund struct {
	op
	units []reservation
}

// appendRefund appends a refund of the last n units of t, less those that the bucket has refilled
// since. If no units remain to refund, t keeps them, and they may still be used.
func (l *Lease) appendRefund(refunds []*refund, k *leaseKey, t *tokens, n int64, now time.Duration) []*refund {
	rest, units := t.split(n)
	if undrained(t.limit, units, now+l.Store.timeout()) == 0 {
		return refunds
	}
	t.reservations, t.left = rest, t.left-n
	first := &units[0]
	at := time.UnixMicro(first.at).Add(first.freeAfter(t.limit, first.first))
	c := quota.Charge{Key: k.key, Limit: t.limit, ID: "lease " + rand.Text(), At: at}
	return append(refunds, &refund{op{verb: settle, charges: []quota.Charge{c}}, units})
}

// giveBack sends refunds, a batch at a time.
func (l *Lease) giveBack(ctx context.Context, refunds []*refund) error {
	var faults []error
	until := monotonic() + horizon
	for some := range slices.Chunk(refunds, maxBatch/2) {
		errs := make([]error, len(some))
		var all sync.WaitGroup
		for i, r := range some {
			all.Go(func() { errs[i] = l.giveBackOne(ctx, r, until) })
		}
		all.Wait()
		faults = append(faults, errs...)
	}
	return join(faults...)
}

// giveBackOne sends a refund, and repeats it after an error as long as that is useful. Its ID keeps
// Redis from counting it twice.
func (l *Lease) giveBackOne(ctx context.Context, r *refund, until time.Duration) error {
	for c := &r.charges[0]; ; time.Sleep(horizon / 10) {
		c.N = -undrained(c.Limit, r.units, monotonic()+l.Store.timeout())
		if c.N == 0 {
			return nil
		}
		if err := l.Store.ask(ctx, &r.op); err == nil || ctx.Err() != nil || monotonic() > until {
			return err
		}
	}
}
