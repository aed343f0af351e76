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
	// horizon is how far ahead units are taken without being asked for.
	horizon = 125 * time.Millisecond

	// lifetime is how long after it was charged a unit may be used.
	lifetime = 2 * horizon

	// sweepEvery is how often it is seen which Keys have been leased for another horizon.
	sweepEvery = horizon / 5

	// defaultMaxLease is how many units are taken ahead if Max is zero.
	defaultMaxLease = 100

	// worthLeasing is how many times a Key must be used within a horizon.
	worthLeasing = 4
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
// fair part of what there is: of n processes that took some in the last second, each
// holds at most an n-th of what may be used in 125 ms, and one. What is held and not
// wanted goes back to Redis, once, less what has come back there since it was taken,
// rounded up: so of a limit of a few units a minute, too many would be lost.
//
// Nothing is kept of a Key until it is used four times within 125 ms, or is denied what
// would be free within 125 ms: the Store decides, and it costs what it does there. Nor is
// anything kept of a Key that is no longer used so often.
//
// Where nothing is held the Store decides, and its error is the caller's; or callers wait for
// one charge of all they want, each until its own context ends, and if that is denied ask by
// themselves. While Redis is gone, what is held is used.
// Charges that units are held for are those of one Key, all of different Limits, that are no
// DryRun, have no ID and are of Max units at most; calls with others are the Store's.
//
// The zero Lease needs a Store. It is safe for concurrent use and must not be copied.
// Its fields must not change once it is in use.
type Lease struct {
	// Store is where units are counted. If nil, every call fails.
	Store *Store

	// Max is how many units are taken ahead at most, for each Key and Limit. If
	// zero or negative, 100.
	Max int64

	shards [64]leaseShard // a Key's is that of its hash

	mu       sync.Mutex // guards what follows
	sweeping bool       // sweep will be called
	closed   bool
	inFlight sync.WaitGroup // refills and sweeps, which do not begin once l is closed
}

// A leaseShard is some of the Keys.
type leaseShard struct {
	mu     sync.Mutex           // guards what follows
	leased map[string]*leaseKey // by Key
	uses   [1024]useCount       // of the others, by their hash
}

// A useCount counts uses of a Key within a horizon, and of others that have the same hash.
type useCount struct{ horizon, n uint8 }

// A leaseKey is a Key that units are taken ahead for. Its shard's mu guards it.
type leaseKey struct {
	key       string
	tokens    []*tokens
	peers     peers
	waiters   []*leaseWaiter // for the refill after that in flight
	refilling bool           // a refill is in flight
	failed    bool           // the last refill was not answered, and no call has been since
	swept     time.Duration  // when the last horizon was over
}

// A leaseWaiter is a call for which not enough is held: it may wait for a refill.
type leaseWaiter struct {
	op
	key  *leaseKey     // of the refill
	done chan struct{} // closed when it need not wait any more: the rest but gone is set

	err  error
	held bool // enough was, which it has used; if not, Redis is to be asked
	wait time.Duration
	at   int64 // Redis' time when it may be used, in µs since the Unix epoch
	gone bool  // the caller did not wait
}

var (
	_ quota.Reserver = (*Lease)(nil)

	errNoStore = errors.New("redisstore: Lease.Store is nil")
)

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
	if !l.leases(charges) {
		return l.Store.Take(ctx, dst, charges...)
	}
	if ds, held := l.takeHeld(dst, charges); held {
		return ds, nil
	}
	if ds, denied := l.Store.denials.deny(dst, charges, l.Store.time()); denied {
		l.hasten(ds[len(dst):], charges)
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
	l.hasten(dst[n:], charges)
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

// Settle implements quota.Settler: it is the Store's.
func (l *Lease) Settle(ctx context.Context, charges ...quota.Charge) error {
	if l.Store == nil {
		return errNoStore
	}
	return l.Store.Settle(ctx, charges...)
}

// Close gives back all that is held, and has the Store decide from then on. The error
// says that some of it could not be given back: until ctx ended, or because Redis did
// not take it.
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
		var refunds []*refund // of keys that nobody else has any more
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

// leases reports whether units are held for such charges: of one Key, of different Limits, and
// each of a kind that is asked for again and again.
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

// takeHeld is Take of what is held.
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

// spendLocked uses units that are held for charges, if they may be used within a time.
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

// hasten has decisions that deny say when units may be used that are held here, if that is
// sooner than Redis has others.
func (l *Lease) hasten(ds []quota.Decision, charges []quota.Charge) {
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

// tokensOf returns the tokens of a Limit.
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

// spend uses units that are held for charges, if they may be used within a time.
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

// decisions appends those on charges for which units were held.
func (k *leaseKey) decisions(dst []quota.Decision, charges []quota.Charge, now time.Duration) []quota.Decision {
	for i := range charges {
		t := k.tokensOf(charges[i].Limit)
		b, at := t.stateAt(now)
		d := t.limit.Describe(t.limit.Settle(b, -t.left, 0, at), at) // without what is held here
		d.Allowed, d.At = true, time.UnixMicro(at)
		dst = append(dst, d)
	}
	return dst
}

// ask has w's charges made of what a refill brings, if that can be expected to be enough, and
// else by Redis.
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
	asked, sent := l.Store.denials.ask(w.charges, l.Store.time()), monotonic()
	if err := l.Store.ask(ctx, &w.op); err != nil {
		return err
	}
	if w.verb == take && !l.Store.AlwaysAsk {
		l.Store.denials.learn([]part{{op: &w.op, question: asked}}, w.allowed)
	}
	l.learn(s, w, sent)
	return nil
}

// enqueue has w wait for a refill, if one can be expected to bring enough.
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
		t.want = min(max(worthLeasing, 2*t.want), l.max()) // what was held did not suffice
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

// isUsedOften counts a use of a Key that is not leased, and reports whether it should be.
func (s *leaseShard) isUsedOften(hash uint64, now time.Duration) bool {
	c := &s.uses[hash%uint64(len(s.uses))]
	if h := uint8(now / horizon); c.horizon != h {
		*c = useCount{horizon: h}
	}
	c.n = min(c.n+1, worthLeasing)
	return c.n == worthLeasing
}

// leaseLocked begins to lease a Key, unless l is closed.
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

// learn takes note of what Redis answered to w. What it denied and will have within the horizon is
// taken ahead: or else a process that asks seldom would always come after those that take theirs
// ahead.
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
		t.know(w.left(i), w.now, sent)
		t.used += c.Units()
		if !w.found[i].fits {
			t.denied, t.want = true, min(max(t.want, c.Units()+1), l.max())
		}
	}
	if !w.allowed { // perhaps because a refill has brought what there was
		w.key = k
		w.wait, w.at, w.held = k.spend(w.charges, w.within, now)
	}
	if soon {
		l.refillLocked(s, k, now)
	}
}

// A refill is what Redis is asked in one request: for units of each Limit that needs some, and
// when that is due how many processes lease the Key.
type refill struct {
	waiters []*leaseWaiter // whose units are among them, or are held
	tokens  []*tokens
	ops     []*op // a reservation for each of tokens, and count
	count   *op   // nil if it is not due
}

// refillLocked has a refill made if there is need of one, unless one is in flight.
func (l *Lease) refillLocked(s *leaseShard, k *leaseKey, now time.Duration) {
	if k.refilling {
		return
	}
	r := k.nextRefill(now)
	switch {
	case r == nil:
	case l.begin():
		k.refilling = true
		go l.refill(s, k, r)
	default:
		k.serve(r.waiters, now, nil)
	}
}

// refill makes r, and others for as long as callers wait for them.
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

// nextRefill returns what Redis is to be asked, or nil if that is nothing. If it cannot be expected
// to have what callers wait for, their wait is over: they ask by themselves.
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

// receive holds what r has brought.
func (k *leaseKey) receive(r *refill, sent, now time.Duration) {
	for i, t := range r.tokens {
		o := r.ops[i]
		if t.know(o.left(0), o.now, sent); o.allowed {
			_, wait := o.after(0)
			t.add(reservation{found: o.found[0].bucket, wait: wait, at: o.now, sent: sent, got: now, n: o.charges[0].N})
		}
	}
	if r.count != nil {
		k.peers.know(r.count)
	}
}

// serve ends the wait of some: if err is nil, with what they want if that is held.
func (k *leaseKey) serve(waiters []*leaseWaiter, now time.Duration, err error) {
	for _, w := range waiters {
		if w.err = err; err == nil && !w.gone {
			w.wait, w.at, w.held = k.spend(w.charges, w.within, now)
		}
		close(w.done)
	}
}

// begin reports whether l is not closed: Close then waits for what begins.
func (l *Lease) begin() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.closed {
		l.inFlight.Add(1)
	}
	return !l.closed
}

// sweepSoon has sweep called, unless l is closed.
func (l *Lease) sweepSoon() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.closed && !l.sweeping {
		l.sweeping = true
		time.AfterFunc(sweepEvery, l.sweep)
	}
	return !l.closed
}

// sweep gives back what is held and will not be used, and forgets Keys that are not used often.
func (l *Lease) sweep() {
	if !l.begin() {
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
			s.leased = nil // and the memory of those there were
		}
		s.mu.Unlock()
	}
	if leased > 0 {
		l.sweepSoon()
	}
	_ = l.giveBack(context.Background(), refunds)
}

// sweepLocked ends a horizon of k. It appends what is to be given back.
func (l *Lease) sweepLocked(k *leaseKey, refunds []*refund, now time.Duration) []*refund {
	k.swept = now
	for _, t := range k.tokens {
		refunds = l.appendRefund(refunds, k, t, t.sweep(now, l.max()), now)
	}
	k.tokens = slices.DeleteFunc(k.tokens, func(t *tokens) bool { return t.left == 0 && t.want == 0 && !k.refilling })
	return refunds
}

// A refund gives back units that were held.
type refund struct {
	op
	units []reservation
}

// appendRefund has the last n units of t given back, or what Redis still counts of them: if that
// is nothing they stay, and may yet be used.
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

// giveBack makes refunds, a batch of them at a time.
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

// giveBackOne makes a refund once: again if it is not known whether it was made, as long as that
// is of any use.
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
