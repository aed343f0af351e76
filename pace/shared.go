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

// A Shared paces requests together with everybody else who uses the same Store:
// with a redisstore.Store, other processes. Units are reserved, so a request
// waits once, for a moment that is its own, in the order in which the Store is
// asked.
//
// While the Store fails, or has not answered for 50 ms, each process paces itself by
// its share of Policies. The Store is then tried again once a second. Neither change
// brings a second burst: the share counts what this process took from the Store, and
// the Store is charged, before it is asked for more, with what was taken without it
// and still counts. So a single process, with Processes 1, keeps to its Policies
// however often the Store fails, but for requests that wait, or are under way to the
// Store, just then. Of several processes, those that were idle have their shares of a
// burst still, and those that had more than their share are not held up for it:
// together they may exceed a policy by about a burst each time the Store fails.
//
// A Shared is a heed.BoundedPacer. Its fields must not be changed, nor the Shared be
// copied, after first use. It may be used by any number of goroutines. Each Wait that
// returns nil must be followed by Observe, as a Transport does it, with the same
// request or a copy: a request is known by its key and cost. What was taken is
// remembered until then, for 65,536 requests at a time.
//
// The zero Shared lets nothing go: Store and Policies are missing, and Check says so.
type Shared struct {
	// Store is where units are counted. It must not be nil.
	Store quota.Reserver

	// Policies are the limits, all of which hold. There must be one at least, and
	// their names must differ. Most Algorithms admit more than Quota in some windows,
	// the first one included, which a server that counts otherwise may refuse. Of 60
	// in a minute:
	//
	//	Algorithm               at once   in the first minute, and any other
	//	TokenBucket             60        up to 120: Burst + Quota
	//	TokenBucket, Burst 1    1         up to 61
	//	LeakyBucket             1         up to 61
	//	FixedWindow             60        up to 120, 60 in each that the clock shows
	//	SlidingWindow           60        up to 119
	//	SlidingLog              60        60
	//
	// To have no more than N in any Window, use a SlidingLog with a Quota of N, which
	// may be 1,000, or a Burst of 1 and a Quota of N - 1.
	Policies []quota.Policy

	// Key is whom units are counted for, in the Store. If nil, or if it returns
	// "", it is "shared": one count for all. A key is part of error messages,
	// so it must not be a secret. Of one request it must always be the same.
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

	// Processes is how many share the Store, at most 65,536. While it does not answer,
	// this one keeps to its share: of a bucket, Quota and Burst divided by Processes; of
	// a window or log, Quota divided by Processes and rounded down. Together they keep
	// to the policy. Only where it has less than a unit for each do they take one each
	// at once, and then no more than the policy in the long run: a window of 10 a minute
	// is 1 in 5 minutes for each of 50. (That cannot be done with a Calendar's window,
	// which is an error.) If zero, 1: each process then allows itself the whole, so that
	// together they may exceed it.
	Processes int

	// Degraded is called with every error of the Store, by any goroutine: that
	// of the request may be gone by then. While the Store fails, that is about
	// once a second. A Trace's Degraded fits. If nil, errors are not reported.
	Degraded func(err error)

	once     sync.Once    // guards the making of the next four
	err      error        // what is wrong with the fields
	remote   counter      // in the Store
	local    counter      // this process's share, in memory
	breaker  breaker      // of the Store
	memory   quota.Memory // counts all that this process takes
	unsynced unsynced     // what of that the Store does not know
	holds    holds        // of requests that are under way

	mu    sync.Mutex // guards the lines
	lines map[holdID]*reservedLine
}

var _ heed.BoundedPacer = (*Shared)(nil)

// maxProcesses bounds the parts in which a share owes the cost of a request: two
// of each process.
const maxProcesses = 65_536

// Check returns what is wrong with the fields, in an error that joins all faults and
// names the fields and the policies; or nil. Wait returns the same. To find out when a
// program starts, call it then.
func (s *Shared) Check() error {
	s.once.Do(s.prepare)
	return s.err
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
	if s.Processes > maxProcesses {
		faults = append(faults, fmt.Errorf("pace: Shared.Processes is %d: it must not be more than %d", s.Processes, maxProcesses))
	}
	var err error
	if s.remote, err = newCounter(s.Store, s.Policies); err != nil {
		faults = append(faults, err)
	}
	_, s.breaker.trusted = s.Store.(*quota.Memory)
	s.breaker.report = func(err error) {
		if s.Degraded != nil {
			s.Degraded(err)
		}
	}
	if s.err = errors.Join(faults...); s.err == nil {
		s.local, s.err = s.remote.share(&s.memory, max(s.Processes, 1))
	}
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
	if err := s.Check(); err != nil {
		return err
	}
	n := costOf(s.Cost, req, s.Unit)
	if n < 0 {
		return fmt.Errorf("pace: Shared.Cost is %d: it must not be negative", n)
	}
	if n == 0 {
		return nil
	}
	b := deadlineOf(ctx, most, time.Now())
	h, wait, err := s.take(ctx, s.key(req), n, b)
	if err == nil {
		h, err = s.await(ctx, h, wait, b)
	}
	if err == nil {
		s.holds.add(h)
	}
	return err
}

// Observe gives back what was taken if nothing was sent, or else settles the
// difference to what the request did cost.
func (s *Shared) Observe(a heed.Attempt) {
	h := s.holds.remove(s.key(a.Request), costOf(s.Cost, a.Request, s.Unit))
	switch {
	case h == nil:
	case a.Err == heed.ErrNotSent:
		s.giveBack(a.Request.Context(), h)
	case s.Settle != nil:
		if n := s.Settle(a, s.Unit); n >= 0 {
			s.settle(a.Request.Context(), h, n-h.n)
		}
	}
}

// Correct counts that requests like req took so many units more than was thought, or
// fewer, if units is negative: for a cost that is known only when the response's body
// was read. What was taken may be owed then; requests that come next wait for it. It
// does nothing if Check returns an error.
func (s *Shared) Correct(req *http.Request, units int64) {
	if s.Check() == nil {
		s.settle(req.Context(), &hold{from: &s.remote, key: s.key(req), mirrored: !s.breaker.trusted}, units)
	}
}

// take reserves n units, in the Store if it answers, or else of the share.
func (s *Shared) take(ctx context.Context, key string, n int64, b deadline) (*hold, time.Duration, error) {
	if s.remote.atOnce() < n {
		return nil, 0, b.overdue(key, forever, time.Now())
	}
	from := &s.remote
	r, err := s.reserve(ctx, key, n, b.most(time.Now()))
	if failed(err) {
		if ctx.Err() != nil {
			return nil, 0, ended(ctx)
		}
		from = &s.local
		r, err = s.local.reserveOwing(ctx, key, n, b.most(time.Now()))
	}
	if err != nil {
		return nil, 0, err
	}
	if !r.ok {
		return nil, 0, b.overdue(key, r.wait, time.Now())
	}
	h := &hold{from: from, key: key, n: n, at: r.at}
	s.mirror(ctx, h, r.wait)
	return h, r.wait, nil
}

// reserve asks the Store.
func (s *Shared) reserve(ctx context.Context, key string, n int64, most time.Duration) (reservation, error) {
	var r reservation
	err := s.breaker.call(ctx, func(ctx context.Context) (err error) {
		err = s.unsynced.sync(ctx, key, func(n int64) error { return s.sync(ctx, key, n) })
		if err == nil {
			err = context.Cause(ctx)
		}
		if err == nil {
			r, err = s.remote.reserve(ctx, key, n, most)
		}
		return err
	}, func(err error) {
		if err == nil && r.ok { // the caller is gone
			_ = s.remote.settle(context.WithoutCancel(ctx), key, -n, r.at)
		}
	})
	if err != nil {
		return reservation{}, err // r may still be written to
	}
	return r, nil
}

// mirror counts h where it was not taken from, for the time when that is used: the Store
// is charged when it answers again, the share at once.
//
// The share is charged only if it has room within h's own wait and the time that the Store
// may take to answer. So a process that had more than its share from the Store is not held
// up for that when the Store fails. With Processes 1 it never has more.
func (s *Shared) mirror(ctx context.Context, h *hold, wait time.Duration) {
	switch {
	case s.breaker.trusted:
	case h.from == &s.local:
		s.unsynced.add(h.key, h.n)
	default:
		r, _ := s.local.reserveOwing(ctx, h.key, h.n, wait+storeTime)
		h.mirrored = r.ok
	}
}

// await waits until what was taken may be used, and returns it. It gives it back if that is not
// to be: if the answer took so long that the wait is too long now, or if ctx ends.
func (s *Shared) await(ctx context.Context, h *hold, wait time.Duration, b deadline) (*hold, error) {
	if wait <= 0 {
		return h, nil
	}
	now := time.Now()
	if !b.eased().allows(wait, now) {
		s.settle(ctx, h, -h.n)
		return nil, b.overdue(h.key, wait, now)
	}
	h.due = now.Add(wait)
	l, w, err := s.enter(h, b, now)
	if w != nil {
		err = w.wait(ctx, nil)
	}
	h = s.fetch(l, h, w != nil && w.passed || w == nil && err == nil)
	if err != nil {
		s.giveBack(ctx, h)
		return nil, err
	}
	return h, nil
}

// giveBack gives back what h took, as the first in line may have it now: the latest of what is
// waited for goes back to the Store.
func (s *Shared) giveBack(ctx context.Context, h *hold) {
	s.mu.Lock()
	if l := s.lines[holdID{h.key, h.n}]; l != nil && l.waiters.count > 0 {
		h = l.exchangeLocked(h, time.Now())
	}
	s.mu.Unlock()
	s.settle(ctx, h, -h.n)
}

// enter puts a request in the line of its key and cost.
func (s *Shared) enter(h *hold, b deadline, now time.Time) (*reservedLine, *waiter, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	id := holdID{h.key, h.n}
	l := s.lines[id]
	if l == nil {
		l = &reservedLine{line: line{mu: &s.mu, fixed: true}}
		l.gates = []gate{l}
		if s.lines == nil {
			s.lines = map[holdID]*reservedLine{}
		}
		s.lines[id] = l
	}
	l.enterLocked(h)
	c := claim{key: h.key, gates: &l.gates, deadline: b.eased()}
	w, _, err := l.joinLocked(&c, startTag{}, now)
	return l, w, err
}

// fetch returns the hold of a request that no longer waits, whose own may be another's now.
// passed tells that it was let go.
func (s *Shared) fetch(l *reservedLine, own *hold, passed bool) *hold {
	s.mu.Lock()
	defer s.mu.Unlock()
	h := l.fetchLocked(passed)
	if len(l.holds) == 0 && len(l.released) == 0 {
		delete(s.lines, holdID{own.key, own.n})
	}
	return h
}

// settle takes n units more than h did, or gives them back if n is negative: also if ctx
// has ended. If the Store does not answer, what was to be given back is lost, and what was
// taken is charged later.
func (s *Shared) settle(ctx context.Context, h *hold, n int64) {
	if n == 0 {
		return
	}
	ctx = context.WithoutCancel(ctx)
	if h.from == &s.local || h.mirrored {
		_ = s.local.settle(ctx, h.key, n, h.at) // a Memory has no error but of a charge that is wrong
	}
	if h.from == &s.local {
		s.unsynced.add(h.key, n)
		return
	}
	err := s.breaker.call(ctx, func(ctx context.Context) error {
		return s.remote.settle(ctx, h.key, n, h.at)
	}, func(error) {})
	if failed(err) && n > 0 {
		s.unsynced.add(h.key, n)
	}
}

func (s *Shared) key(req *http.Request) string {
	if s.Key != nil {
		if key := s.Key(req); key != "" {
			return key
		}
	}
	return "shared"
}
