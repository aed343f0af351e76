package pace

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"sync"
	"time"

	"github.com/heedhttp/heed"
	"github.com/heedhttp/heed/quota"
)

// A Shared paces requests together with everybody else who uses the same
// Store: with a redisstore.Store, other processes. Units are reserved, so a
// request waits where it is for a turn that is its own; turns are given in
// the order in which the Store is asked.
//
// While the Store fails, or has not answered for 50 ms, each process paces
// itself by its share of Policies. The Store is then tried again once a second.
// Neither change brings a second burst: the share knows what this process took
// from the Store, and the Store is told, before it is asked for more, what was
// taken without it and has not come back since. So a process alone, with
// Processes 1, keeps to its Policies however often the Store fails, but for
// requests that are under way just then. Of several, those that were idle have
// their shares of a burst still, and those that had more than their share are
// not held up for it: together they may exceed a policy by about a burst each
// time the Store fails.
//
// A Shared is a heed.BoundedPacer. Its fields must not be changed, nor the
// Shared be copied, after first use. It may be used by any number of
// goroutines. Each Wait that returns nil must be followed by Observe, as a
// Transport does it; what was reserved is remembered until then.
//
// The zero Shared lets nothing go: Store and Policies are missing, and Wait
// says so.
type Shared struct {
	// Store is where units are counted. It must not be nil.
	Store quota.Reserver

	// Policies are the limits, all of which hold. There must be one at least,
	// and their names must differ.
	Policies []quota.Policy

	// Key is whom units are counted for, in the Store. If nil, or if it returns
	// "", it is "shared": one count for all. A key is part of error messages,
	// so it must not be a secret.
	Key func(*http.Request) string

	// Unit is what Policies count, such as "tokens". If empty, requests.
	Unit string

	// Cost is how many units of each policy a request takes: unit is Unit. If nil,
	// what WithCost says, or else 1 request, and nothing of any other Unit. A request
	// that costs nothing is not paced; a negative cost is an error. Of one request it
	// must always be the same.
	Cost func(req *http.Request, unit string) int64

	// Settle is what a request did cost, asked when its outcome is known: unit is
	// Unit. The difference to Cost is given back, or taken, into debt if need be. If
	// Settle is nil, or negative, what was taken is right. It is not asked if nothing
	// was sent: then all is given back. It must leave the response's body alone: see
	// SettleHeader, and Correct for a cost that is in the body.
	Settle func(a heed.Attempt, unit string) int64

	// Processes is how many share the Store. While it does not answer, this one
	// keeps to one Processes-th of Policies. If zero, 1: each process then
	// allows itself the whole, so that together they may exceed it.
	Processes int

	// Degraded is called with every error of the Store, by any goroutine: that
	// of the request may be gone by then. While the Store fails, that is about
	// once a second. A Trace's Degraded fits. If nil, errors are not reported.
	Degraded func(err error)

	once   sync.Once    // guards the making of the next four
	err    error        // what is wrong with the fields
	remote counter      // in the Store
	local  counter      // this process's share, in memory
	guard  guard        // of the Store
	memory quota.Memory // counts all that this process takes
	alone  debts        // what it took of late, and the Store does not know of

	mu    sync.Mutex // guards taken
	taken map[*http.Request]*taking
}

var _ heed.BoundedPacer = (*Shared)(nil)

// A taking is what a request has taken.
type taking struct {
	from     *counter
	key      string
	n        int64
	at       time.Time
	mirrored bool    // from the Store, and from the share, too
	next     *taking // of the same request, which is sent more than once at a time
}

// Wait blocks until req may be sent, for as long as its context allows.
func (s *Shared) Wait(req *http.Request) error { return s.WaitAtMost(req, forever) }

// WaitAtMost blocks until req may be sent. If that is later than most from now,
// or not before the deadline of req's context, it returns a *heed.OverdueError
// as soon as the Store has answered. If most is zero or negative, only for the
// answer there is a wait.
func (s *Shared) WaitAtMost(req *http.Request, most time.Duration) error {
	ctx := req.Context()
	if ctx.Err() != nil {
		return ended(ctx)
	}
	if s.once.Do(s.prepare); s.err != nil {
		return s.err
	}
	n := costOf(s.Cost, req, s.Unit)
	if n < 0 {
		return fmt.Errorf("pace: Shared.Cost is %d: it must not be negative", n)
	}
	if n == 0 {
		return nil
	}
	b := deadlineOf(ctx, most, time.Now())
	t, wait, err := s.take(ctx, s.key(req), n, b)
	if err == nil {
		err = s.await(ctx, t, wait, b)
	}
	if err == nil {
		s.remember(req, t)
	}
	return err
}

// Observe gives back what was taken if nothing was sent, or else settles the
// difference to what the request did cost.
func (s *Shared) Observe(a heed.Attempt) {
	t := s.recall(a.Request)
	switch {
	case t == nil:
	case a.Err == heed.ErrNotSent:
		s.settle(a.Request.Context(), t, -t.n)
	case s.Settle != nil:
		if n := s.Settle(a, s.Unit); n >= 0 {
			s.settle(a.Request.Context(), t, n-t.n)
		}
	}
}

// Correct counts that requests like req took so many units more than was thought,
// or fewer, if units is negative: for a cost that is known only when the
// response's body was read. What was taken may be owed then; those who come next
// wait for it. It does nothing if the fields of s are wrong, as Wait says.
func (s *Shared) Correct(req *http.Request, units int64) {
	if s.once.Do(s.prepare); s.err == nil {
		s.settle(req.Context(), &taking{from: &s.remote, key: s.key(req), mirrored: !s.guard.trusted}, units)
	}
}

// prepare compiles Policies, and checks the other fields.
func (s *Shared) prepare() {
	var faults []error
	if s.Store == nil {
		faults = append(faults, errors.New("pace: Shared.Store is nil"))
	}
	if len(s.Policies) == 0 {
		faults = append(faults, errors.New("pace: Shared.Policies is empty: it must name one limit at least"))
	}
	if s.Processes < 0 {
		faults = append(faults, fmt.Errorf("pace: Shared.Processes is %d: it must not be negative", s.Processes))
	}
	var err error
	if s.remote, err = newCounter(s.Store, s.Policies); err != nil {
		faults = append(faults, err)
	}
	_, s.guard.trusted = s.Store.(*quota.Memory)
	s.guard.report = s.report
	if s.err = errors.Join(faults...); s.err == nil {
		s.local, s.err = s.share()
	}
}

// share is the counter of this process alone.
func (s *Shared) share() (counter, error) {
	shares := make([]quota.Policy, len(s.remote.limits))
	for i, l := range s.remote.limits {
		shares[i] = share(l.Policy(), max(s.Processes, 1))
	}
	c, err := newCounter(&s.memory, shares)
	if err != nil {
		err = fmt.Errorf("pace: Shared.Processes is %d: %w", s.Processes, err)
	}
	return c, err
}

// take reserves n units, in the Store if it answers.
func (s *Shared) take(ctx context.Context, key string, n int64, b deadline) (*taking, time.Duration, error) {
	if s.remote.burst() < n {
		return nil, 0, b.overdue(key, forever, time.Now())
	}
	from := &s.remote
	r, err := s.reserve(ctx, key, n, b.most(time.Now()))
	if failed(err) {
		if ctx.Err() != nil {
			return nil, 0, ended(ctx)
		}
		from = &s.local
		r, err = s.local.reserveDebt(ctx, key, n, b.most(time.Now()))
	}
	if err != nil {
		return nil, 0, err
	}
	if !r.ok {
		return nil, 0, b.overdue(key, r.wait, time.Now())
	}
	t := &taking{from: from, key: key, n: n, at: r.at}
	s.mirror(ctx, t, r.wait)
	return t, r.wait, nil
}

// mirror makes the other count know of t, for when it takes over: at once if
// that is the share, or else when the Store answers again.
//
// The share is not charged if that made others wait for longer than t does,
// and the Store may take to answer. So a process that had more than its share
// from the Store is not held up for that when the Store fails. One that has the
// Store for itself, with Processes 1, never has more.
func (s *Shared) mirror(ctx context.Context, t *taking, wait time.Duration) {
	switch {
	case s.guard.trusted:
	case t.from == &s.local:
		s.alone.add(t.key, t.n)
	default:
		m, _ := s.local.reserveDebt(ctx, t.key, t.n, wait+storeTime)
		t.mirrored = m.ok
	}
}

// reserve asks the Store.
func (s *Shared) reserve(ctx context.Context, key string, n int64, most time.Duration) (reservation, error) {
	var r reservation
	err := s.guard.call(ctx, func(ctx context.Context) (err error) {
		err = s.alone.pay(ctx, key, func(owed int64) error { return s.repay(ctx, key, owed) })
		if err == nil {
			err = context.Cause(ctx)
		}
		if err == nil {
			r, err = s.remote.reserve(ctx, key, n, most)
		}
		return err
	}, func(err error) {
		if err == nil && r.ok { // nobody is there any more to use it
			_ = s.remote.settle(context.WithoutCancel(ctx), key, -n, r.at)
		}
	})
	if err != nil {
		return reservation{}, err // r may still be written to
	}
	return r, nil
}

// await sleeps until what was taken may be used. It gives it back if that is
// not to be: if the answer took so long that the wait is too long now, or if
// ctx ends.
func (s *Shared) await(ctx context.Context, t *taking, wait time.Duration, b deadline) error {
	if wait <= 0 {
		return nil
	}
	if now := time.Now(); !b.eased().allows(wait, now) {
		s.settle(ctx, t, -t.n)
		return b.overdue(t.key, wait, now)
	}
	timer := time.NewTimer(wait)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		s.settle(ctx, t, -t.n)
		return ended(ctx)
	}
}

// settle takes n units more than t did, or gives them back if n is negative:
// also if ctx has ended. If the Store does not answer, what was to be given
// back is lost, and what was taken is told it later.
func (s *Shared) settle(ctx context.Context, t *taking, n int64) {
	if n == 0 {
		return
	}
	ctx = context.WithoutCancel(ctx)
	if t.from == &s.local || t.mirrored {
		_ = s.local.settle(ctx, t.key, n, t.at) // Memory knows no error but of a charge that is none
	}
	if t.from == &s.local {
		s.alone.add(t.key, n)
		return
	}
	err := s.guard.call(ctx, func(ctx context.Context) error {
		return s.remote.settle(ctx, t.key, n, t.at)
	}, func(error) {})
	if failed(err) && n > 0 {
		s.alone.add(t.key, n)
	}
}

// report tells Degraded of a Store that was asked and failed.
func (s *Shared) report(err error) {
	if s.Degraded != nil {
		s.Degraded(err)
	}
}

func (s *Shared) remember(req *http.Request, t *taking) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.taken == nil {
		s.taken = make(map[*http.Request]*taking)
	}
	t.next = s.taken[req]
	s.taken[req] = t
}

// recall returns what req has taken, once; nil if that was nothing.
func (s *Shared) recall(req *http.Request) *taking {
	s.mu.Lock()
	defer s.mu.Unlock()
	t := s.taken[req]
	if t != nil && t.next != nil {
		s.taken[req] = t.next
	} else {
		delete(s.taken, req)
	}
	return t
}

// sharedKey is the key of requests that have none.
const sharedKey = "shared"

func (s *Shared) key(req *http.Request) string {
	if s.Key != nil {
		if key := s.Key(req); key != "" {
			return key
		}
	}
	return sharedKey
}
