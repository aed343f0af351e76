package pace

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"sync"
	"time"

	"github.com/heedhttp/heed"
	"github.com/heedhttp/heed/internal/remote"
	"github.com/heedhttp/heed/quota"
)

// A Shared limits requests together with everything else that uses the same Store: with a
// redisstore.Store, other processes.
//
//	pacer := &pace.Shared{
//		Store:     &redisstore.Store{Client: redis.NewClient(&redis.Options{Addr: "redis:6379"})},
//		Policies:  []quota.Policy{{Quota: 600, Window: time.Minute, Burst: 1}},
//		Processes: 3,
//		Degraded:  func(err error) { slog.Warn("pacing without Redis", "error", err) },
//	}
//	if err := pacer.Check(); err != nil {
//		log.Fatal(err)
//	}
//
// A request reserves its units, so it asks the Store once and then waits for the time
// that it got, in the order of asking.
//
// While the Store fails, each process paces itself by its share of Policies. The change in
// either direction causes no second burst. The share counts what this process took from the
// Store, and before the Store is used again it is charged with what was taken without it
// and still counts. So a single process, with Processes 1, stays within its Policies
// however often the Store fails, except for requests that wait or are on their way to the
// Store at that moment. With several processes, idle ones still have their shares of a
// burst, and one that used more than its share is hardly delayed for it: together they may
// exceed a policy by about a burst each time the Store fails.
//
// A Shared is a heed.BoundedPacer. Do not change its fields or copy it after first use.
// Goroutines may share it. Call Observe after each Wait that returns nil, as a Transport
// does, with the same request or a copy: the Shared finds a request by key and cost. It
// remembers what was taken until then, for up to 65,536 requests.
//
// The zero Shared admits nothing, because Store and Policies are missing: Check and Wait
// return an error.
type Shared struct {
	// Store counts units. It must not be nil.
	//
	// A redisstore.Store or Lease is asked for each request, and ends each call within its
	// own Timeout. So does any Store with a method AnswersWithin() time.Duration, which says
	// how long a call may take, if it fails at once while it cannot be reached. A request
	// waits twice as long at most: once more to charge what was taken while the Store failed.
	//
	// Any other Store has a second to answer a request. After that, or an error, it is not
	// asked until it has answered a probe in the background, of which there are ten a second
	// at most. A probe refunds one unit of a dry run with the key "shared", which changes
	// nothing. Few calls are left behind, however long the Store hangs.
	Store quota.Reserver

	// Policies are the limits to keep, all of them. There must be at least one, and their
	// names must differ. Most algorithms admit more than Quota in some windows, including
	// the first, and a server that counts differently may refuse that. For 60 a minute:
	//
	//	Algorithm               at once   in the first minute, and any other
	//	TokenBucket             60        up to 120: Burst + Quota
	//	TokenBucket, Burst 1    1         up to 61
	//	LeakyBucket             1         up to 61
	//	FixedWindow             60        up to 120, 60 in each minute of the clock
	//	SlidingWindow           60        up to 119
	//	SlidingLog              60        60
	//
	// For at most N in any Window use a SlidingLog with a Quota of N, which may be up to
	// 1,000, or a Burst of 1 and a Quota of N - 1.
	Policies []quota.Policy

	// Key returns the key that the Store charges for a request. If nil, or if it returns
	// "", it is "shared": one count for all. It must always return the same for one request.
	// Error messages contain keys, so a key must not be a secret.
	Key func(*http.Request) string

	// Unit is what Policies count, such as "tokens". If empty, requests.
	Unit string

	// Cost returns how many units of each policy a request takes; unit is Unit. If nil,
	// it is what WithCost set, or else 1 if Unit is empty and 0 if not. A request with a
	// cost of 0 is not paced, and a negative cost is an error. It must always return the
	// same for one request.
	Cost func(req *http.Request, unit string) int64

	// Settle returns what a request really cost, once its outcome is known; unit is Unit.
	// The difference to Cost is given back, or taken, if need be as debt. If Settle is
	// nil or returns a negative number, Cost was right. It is not called if nothing was
	// sent: then all units are given back. It must not touch the response's body. See
	// SettleHeader, and Correct for a cost that is in the body.
	Settle func(a heed.Attempt, unit string) int64

	// Processes is the number of processes that share the Store, at most 65,536; a
	// negative number is an error. While the Store fails, this process keeps to its share:
	// of a bucket, Quota and Burst divided by Processes; of a window or log, Quota divided
	// by Processes, rounded down. Together they stay within the policy.
	//
	// A share of less than one unit becomes one unit at once, and less often: each of 50
	// processes may take 1 in 5 minutes of a window of 10 a minute. A window of a
	// Calendar cannot be made longer, so there this is an error.
	//
	// If zero, 1: each process then allows itself the whole policy, and together they may
	// exceed it.
	Processes int

	// Degraded is called with errors of the Store, on any goroutine; the request may have
	// ended by then. While the Store fails, that is once a second at most. A Trace's
	// Degraded fits. If nil, errors are not reported.
	Degraded func(err error)

	once     sync.Once     // guards the preparation of the next five
	err      error         // what is wrong with the fields
	remote   counter       // in the Store
	local    counter       // this process's share, in memory
	inMemory bool          // the Store is in this process's memory and cannot fail
	caller   remote.Caller // asks the Store, unless inMemory
	memory   quota.Memory  // counts everything that this process takes
	unsynced unsynced      // the part of it that the Store does not know
	holds    holds         // of requests in flight

	mu       sync.Mutex                // guards all below
	lines    map[string]*reservedLines // of the keys with waiting requests
	reported time.Time                 // when an error of the Store was last reported
}

var _ heed.BoundedPacer = (*Shared)(nil)

// maxProcesses caps the parts in which a share owes the cost of a request: two for each
// process.
const maxProcesses = 65_536

// sharedKey is the key of requests without one.
const sharedKey = "shared"

// Check returns an error that names every invalid field and policy, or nil. Wait returns
// the same error. Call Check when the program starts.
func (s *Shared) Check() error {
	s.once.Do(s.prepare)
	return s.err
}

// prepare compiles Policies and checks the other fields.
func (s *Shared) prepare() {
	var faults []error
	if s.Store == nil {
		faults = append(faults, errors.New("pace: Shared.Store is nil"))
	}
	if len(s.Policies) == 0 {
		faults = append(faults, errors.New("pace: Shared.Policies is empty: at least one limit is required"))
	}
	if s.Processes < 0 {
		faults = append(faults, fmt.Errorf("pace: Shared.Processes is %d: it must not be negative", s.Processes))
	}
	if s.Processes > maxProcesses {
		faults = append(
			faults,
			fmt.Errorf("pace: Shared.Processes is %d: it must not be more than %d", s.Processes, maxProcesses),
		)
	}
	var err error
	if s.remote, err = newCounter(s.Store, s.Policies); err != nil {
		faults = append(faults, err)
	}
	if s.err = errors.Join(faults...); s.err == nil {
		s.prepareStore()
		s.local, s.err = s.remote.share(&s.memory, max(s.Processes, 1))
	}
}

// Wait blocks until req may be sent, for as long as its context allows.
func (s *Shared) Wait(req *http.Request) error { return s.WaitAtMost(req, forever) }

// WaitAtMost blocks until req may be sent. It returns a *heed.OverdueError if that takes
// longer than most or reaches the deadline of req's context, as soon as the Store has
// answered. If most is zero or negative, it waits only for that answer.
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

// Observe gives all units back if nothing was sent. Otherwise it settles the difference
// between Cost and Settle.
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

// Correct charges the key of req with more units, or gives units back if the number is
// negative. Use it for a cost that is known only after reading the response's body. Units
// may become debt; later requests wait for it. If all Policies are buckets, those requests
// of this process that wait already go earlier when units are given back; otherwise only
// later requests use them. Correct does nothing if Check returns an error.
func (s *Shared) Correct(req *http.Request, units int64) {
	if s.Check() == nil {
		s.settle(req.Context(), &hold{from: &s.remote, key: s.key(req), mirrored: !s.inMemory}, units)
	}
}

// take reserves n units, in the Store or, if that fails, from the share.
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
	return s.ask(ctx, func(ctx context.Context) (reservation, error) {
		if err := s.unsynced.sync(ctx, key, func(n int64) error { return s.sync(ctx, key, n) }); err != nil {
			return reservation{}, err
		}
		return s.remote.reserve(ctx, key, n, most)
	}, func(r reservation) {
		if r.ok {
			ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), s.caller.Timeout)
			defer cancel()
			_ = s.remote.settle(ctx, key, -n, r.at)
		}
	})
}

// mirror counts h in the other place, too. The Store is charged when it answers again,
// the share at once.
//
// The share is charged only if it has room within h's own wait and the longest time that an
// answer takes, by which the share knows of some units later than the Store. So when the
// Store fails, a process that took more than its share is hardly delayed for that. With
// Processes 1 it never has.
func (s *Shared) mirror(ctx context.Context, h *hold, wait time.Duration) {
	switch {
	case s.inMemory:
	case h.from == &s.local:
		s.unsynced.add(h.key, h.n)
	default:
		r, _ := s.local.reserveOwing(ctx, h.key, h.n, wait+s.caller.Timeout)
		h.mirrored = r.ok
	}
}

// await waits until the units of h may be used. It gives them back if the wait has become
// too long because the answer was slow, or if ctx ends.
func (s *Shared) await(ctx context.Context, h *hold, wait time.Duration, b deadline) (*hold, error) {
	if wait <= 0 {
		return h, nil
	}
	now := time.Now()
	if !b.withGrace().allows(wait, now) {
		s.settle(ctx, h, -h.n)
		return nil, b.overdue(h.key, wait, now)
	}
	h.due = now.Add(wait)
	l, w, err := s.enter(h, b, now)
	if w != nil {
		err = w.wait(ctx, nil)
	}
	h = s.fetch(l, h, w != nil && w.admitted || w == nil && err == nil)
	if err != nil {
		s.giveBack(ctx, h)
		return nil, err
	}
	return h, nil
}

// giveBack returns the units of h. The first in line may use them now, and the latest
// reservation in line goes back to the Store instead.
func (s *Shared) giveBack(ctx context.Context, h *hold) {
	s.mu.Lock()
	if l := s.lines[h.key].of(h.n); l != nil && l.waiters.count > 0 {
		h = l.exchangeLocked(h, time.Now())
	}
	s.mu.Unlock()
	s.settle(ctx, h, -h.n)
}

// enter puts a request in the line of its key and cost.
func (s *Shared) enter(h *hold, b deadline, now time.Time) (*reservedLine, *waiter, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	all := s.lines[h.key]
	if all == nil {
		all = &reservedLines{byCost: map[int64]*reservedLine{}}
		if s.lines == nil {
			s.lines = map[string]*reservedLines{}
		}
		s.lines[h.key] = all
	}
	l := all.byCost[h.n]
	if l == nil {
		l = &reservedLine{line: line{mu: &s.mu, fixed: true}}
		l.gates = []gate{l}
		all.byCost[h.n] = l
	}
	l.enterLocked(h)
	c := claim{key: h.key, gates: &l.gates, deadline: b.withGrace()}
	w, _, err := l.joinLocked(&c, startTag{}, now)
	return l, w, err
}

// fetch returns the hold of a request that no longer waits. It may differ from own, its
// original one. admitted says how the wait ended.
func (s *Shared) fetch(l *reservedLine, own *hold, admitted bool) *hold {
	s.mu.Lock()
	defer s.mu.Unlock()
	h := l.fetchLocked(admitted)
	if len(l.holds) == 0 && len(l.released) == 0 {
		delete(s.lines[own.key].byCost, own.n)
		if len(s.lines[own.key].byCost) == 0 {
			delete(s.lines, own.key)
		}
	}
	return h
}

// settle takes n more units than h did, or gives them back if n is negative, even if ctx
// has ended. If the Store does not answer, units to give back are lost, and units to take
// are charged later.
func (s *Shared) settle(ctx context.Context, h *hold, n int64) {
	if n == 0 {
		return
	}
	ctx = context.WithoutCancel(ctx)
	if h.from == &s.local || h.mirrored {
		_ = s.local.settle(ctx, h.key, n, h.at) // a Memory only fails for invalid charges
	}
	if h.from == &s.local {
		s.unsynced.add(h.key, n)
		s.advance(h, -n)
		return
	}
	_, err := s.ask(ctx, func(ctx context.Context) (reservation, error) {
		return reservation{}, s.remote.settle(ctx, h.key, n, h.at)
	}, nil)
	switch {
	case !failed(err):
		s.advance(h, -n)
	case n > 0:
		s.unsynced.add(h.key, n)
	}
}

// advance lets the requests of h's key that wait behind h go earlier, by the time in which
// the n units that h gave back come back.
func (s *Shared) advance(h *hold, n int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if l := s.lines[h.key]; l != nil {
		l.advanceLocked(h, n, time.Now())
	}
}

func (s *Shared) key(req *http.Request) string {
	if s.Key != nil {
		if key := s.Key(req); key != "" {
			return key
		}
	}
	return sharedKey
}
