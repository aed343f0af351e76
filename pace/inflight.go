package pace

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net/http"
	"slices"
	"sync"
	"time"

	"github.com/heedhttp/heed"
	"github.com/heedhttp/heed/internal/adaptive"
	"github.com/heedhttp/heed/internal/hostkey"
	"github.com/heedhttp/heed/internal/keyed"
	"github.com/heedhttp/heed/quota"
	"github.com/heedhttp/heed/ratelimit"
)

// An InFlight limits how many requests of a key are in flight at a time:
//
//	transport := &heed.Transport{Pacer: &pace.InFlight{Limit: 10}}
//
// A request takes a place before it is sent, and keeps it until its response's body is closed or read
// to its end, or until it fails. A response that is dropped for a retry gives its place back. So close
// every body. Requests without a place wait in line, first in, first out. Nobody knows when a place
// will be free, so a request that waits too long gets its *heed.OverdueError when its time is over.
//
// The zero InFlight is ready to use, and learns the limit from refusals. It begins with 10. When a
// request is refused beside others, the limit falls to their number, and lower if another refusal
// follows. While requests wait, it rises by one: 24 seconds after a fall if it was higher in the last
// five minutes, and otherwise after a hundred good answers. If no refusal comes within a second, it
// goes on rising.
//
// A rate that is too high is refused, too. So a refusal with a hint when to come back counts only while
// so few requests are sent that they must take a second or more. That of a request that was alone never
// counts, and the limit does not fall below 1.
//
// The package's tests measure it with answers that take 1 to 20 seconds, and a server whose limit
// changes between 10 and 4 every two minutes. The limit is found again within 30 seconds, 5 % of all
// requests are refused, and 96 % of the places are used. With a limit that stays at 10, 1 % are
// refused, and 98 % are used. To find a limit of 100 may take a minute and a half.
//
// With other Pacers in an Each, put it last, so that no request has a place while it waits for them.
//
// An InFlight is a heed.BoundedPacer. Do not change its fields or copy it after first use. Goroutines
// and Transports may share it. Call Observe after each Wait that returns nil, as a Transport does. Wait
// returns an error if Limit or MaxKeys is negative.
type InFlight struct {
	// Limit is the number of places of a key. If zero, it is learnt.
	Limit int64

	// Cost returns how many places a request takes; unit is Unit. One that needs more than there are
	// takes all. If it is 0 or less, the request takes none and does not wait. If Cost is nil, it is
	// what WithCost set, or else 1 if Unit is empty and 0 if not.
	Cost func(req *http.Request, unit string) int64

	// Unit is what places count, such as "jobs". If empty, requests.
	Unit string

	// Key returns what the limit applies to. It must return the same before and after the request. If
	// nil, heed.ByCredential. All requests with the key "" share a limit. Error messages contain keys,
	// so a key must not be a secret.
	Key func(*http.Request) string

	// MaxKeys is the number of keys to remember: the most recently used ones, and those with requests
	// waiting or in flight. If zero, 1,024.
	MaxKeys int

	// Refused reports whether the server refused a request because too many were in flight; see
	// Refusals. If nil, a 429 is such a refusal, and so is a 503 with a hint, unless the hint belongs
	// to a rate (see above). It is not called if Limit is given.
	Refused func(heed.Attempt) bool

	// Gate counts the places that all processes use, under the same keys: a redisstore.Store. It must
	// end its calls in time by itself. If nil, this process has all places. If Limit is zero, each
	// process learns for itself.
	//
	// When other processes use all places, the first in line asks for one about ten times a second. A
	// request that waited in line lets others ask before, for a twentieth of the time that the last
	// place was used, and a tenth of a second at most. So processes that wait take turns.
	//
	// While the Gate fails, each process keeps the limit by itself, so together they may exceed it.
	// Requests that were sent meanwhile are not counted later.
	Gate quota.Gate

	// Degraded is called with errors of the Gate, on any goroutine, once a second at most. A Trace's
	// Degraded fits. If nil, errors are not reported.
	Degraded func(err error)

	mu       sync.Mutex // guards all below, and the lines
	lines    keyed.Table[inFlightLine]
	reported time.Time // when an error of the Gate was last reported
}

var _ heed.BoundedPacer = (*InFlight)(nil)

// An inFlightLine is the line for the places of one key.
type inFlightLine struct {
	line
	places   places
	gates    []gate        // places
	admitted []*place      // of requests that are not observed yet
	lasted   time.Duration // how long the last place was held
}

// A place is what a request holds: one or more places, or none.
type place struct {
	line   *inFlightLine
	req    *http.Request
	n      int64
	beside int64 // how many others held
	at     time.Time
	waited bool
	hold   *quota.Hold // at the Gate
}

// places are a gate.
type places struct {
	waiters demand
	fixed   int64 // the limit, or 0 if it is learnt
	search  adaptive.Concurrency
	used    int64
	asking  int // requests that ask the Gate again and again; no later one overtakes them
}

func (p *places) cost(c costs) int64                       { return min(c.of(""), p.limit()) }
func (p *places) due(n int64, now time.Time) time.Duration { return p.delay(n, 0, now) }
func (p *places) spare(costs, int64, time.Time) bool       { return false }
func (p *places) giveBack(n int64, _ time.Time)            { p.used -= n }
func (p *places) idle(time.Time)                           {}
func (p *places) demand() *demand                          { return &p.waiters }

func (p *places) delay(n, ahead int64, now time.Time) time.Duration {
	switch {
	case n == 0:
		return 0
	case p.used+n > p.limit():
		p.raise(now)
	}
	if ahead > 0 || p.asking > 0 || p.used+n > p.limit() {
		return unknown
	}
	return 0
}

func (p *places) take(n int64, now time.Time) (before int64) {
	p.used += n
	p.search.Send(now)
	return p.used - n
}

func (p *places) limit() int64 {
	if p.fixed > 0 {
		return p.fixed
	}
	return p.search.Limit
}

// raise may raise the limit, because it is used up.
func (p *places) raise(now time.Time) {
	if p.fixed == 0 {
		p.search.Raise(now)
	}
}

// Wait blocks until req may be sent, for as long as its context allows.
func (f *InFlight) Wait(req *http.Request) error { return f.WaitAtMost(req, forever) }

// WaitAtMost blocks until req may be sent. It returns a *heed.OverdueError when that has taken longer
// than most. If most is zero or negative, it waits only for the answer of a Gate.
func (f *InFlight) WaitAtMost(req *http.Request, most time.Duration) error {
	ctx, now := req.Context(), time.Now()
	if ctx.Err() != nil {
		return ended(ctx)
	}
	c := claim{key: f.key(req), deadline: deadlineOf(ctx, most, now)}
	if n := costOf(f.Cost, req, f.Unit); n != 1 {
		c.costs = costs{{n: n}}
	}
	patience := c.deadline.left(now)
	p, err := f.enter(ctx, &c, now)
	if err == nil && f.Gate != nil && p.n > 0 {
		if err = f.ask(ctx, &c, p); err != nil {
			f.release(p)
		}
	}
	switch {
	case err == errExpired:
		return &heed.OverdueError{
			Key: c.key, Wait: max(patience, atLeast), Left: patience, Deadline: c.deadline.context,
		}
	case err != nil:
		return err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	p.req = req
	p.line.admitted = append(p.line.admitted, p)
	return nil
}

// enter waits for a place in this process.
func (f *InFlight) enter(ctx context.Context, c *claim, now time.Time) (*place, error) {
	l, w, taken, err := f.join(c, now)
	if w != nil {
		last := c.deadline
		if last.context { // ctx ends before, if it keeps its deadline
			last = last.withGrace()
		}
		err, taken = w.wait(ctx, time.After(last.left(now))), w.taken
		now = time.Now()
	}
	if err != nil {
		return nil, err
	}
	return &place{line: l, n: taken[0].n, beside: taken[0].before, at: now, waited: w != nil}, nil
}

func (f *InFlight) join(c *claim, now time.Time) (*inFlightLine, *waiter, []charge, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	name := hostkey.NameOf(c.key)
	l := f.lines.Find(name)
	if l == nil {
		if err := f.check(); err != nil {
			return nil, nil, nil, err
		}
		f.lines.Most = maxKeys(f.MaxKeys)
		l = f.lines.Get(name, (*inFlightLine).stateLocked)
		l.mu, l.fixed = &f.mu, f.Limit > 0
		l.places.fixed, l.places.search.Limit = f.Limit, adaptive.FirstConcurrency
		l.gates = []gate{&l.places}
	}
	c.gates = &l.gates
	w, taken, err := l.joinLocked(c, startTag{}, now)
	return l, w, taken, err
}

// check returns an error that names the first field that is wrong.
func (f *InFlight) check() error {
	switch {
	case f.Limit < 0:
		return fmt.Errorf("pace: InFlight.Limit is %d: it must not be negative", f.Limit)
	case f.MaxKeys < 0:
		return fmt.Errorf("pace: InFlight.MaxKeys is %d: it must not be negative", f.MaxKeys)
	}
	return nil
}

// stateLocked reports whether the line may be forgotten. With it a limit that was learnt is lost.
func (l *inFlightLine) stateLocked() keyed.State {
	if l.waiting.Len() > 0 || l.places.used > 0 {
		return keyed.InUse
	}
	return keyed.IdleIf(l.places.fixed > 0)
}

// askEvery is how often to ask a Gate whose places are all taken, on average.
const askEvery = 100 * time.Millisecond

// ask takes p at the Gate, too. It asks until it gets p or c's time is over.
func (f *InFlight) ask(ctx context.Context, c *claim, p *place) error {
	l, pause := p.line, time.Duration(0)
	if p.waited { // so may other processes, and ask before
		f.mu.Lock()
		pause = min(l.lasted/20, askEvery)
		f.mu.Unlock()
	}
	for denied := false; ; denied = true {
		if err := sleep(ctx, min(pause, c.deadline.left(time.Now()))); err != nil {
			return err
		}
		f.mu.Lock()
		limit := l.places.limit()
		f.mu.Unlock()
		hold, d, err := f.Gate.Acquire(ctx, c.key, limit, min(p.n, limit))
		now := time.Now()
		switch {
		case err != nil && ctx.Err() != nil:
			return ended(ctx)
		case err != nil:
			f.report(err, now)
			return nil
		case d.Allowed:
			p.hold, p.beside = hold, max(0, d.Limit-d.Remaining-p.n)
			return nil
		case c.deadline.left(now) <= 0:
			return errExpired
		}
		f.mu.Lock()
		if !denied {
			l.places.asking++
			defer f.asked(l)
		}
		l.places.raise(now)
		f.mu.Unlock()
		pause = askEvery/2 + rand.N(askEvery)
	}
}

func (f *InFlight) asked(l *inFlightLine) {
	f.mu.Lock()
	defer f.mu.Unlock()
	l.places.asking--
	l.refreshLocked(time.Now())
}

func sleep(ctx context.Context, d time.Duration) error {
	if d <= 0 {
		return nil
	}
	select {
	case <-time.After(d):
		return nil
	case <-ctx.Done():
		return ended(ctx)
	}
}

// report passes an error of the Gate to Degraded, once a second at most.
func (f *InFlight) report(err error, now time.Time) {
	f.mu.Lock()
	due := f.Degraded != nil && now.Sub(f.reported) >= reportEvery
	if due {
		f.reported = now
	}
	f.mu.Unlock()
	if due {
		f.Degraded(fmt.Errorf("pace: InFlight.Gate: %w", err))
	}
}

// Observe learns from a response, and gives the place back when its body has ended. It replaces the
// response's body.
func (f *InFlight) Observe(a heed.Attempt) {
	var refused, hinted bool
	if f.Limit == 0 {
		refused, hinted = f.refused(a)
	}
	key, now := hostkey.NameOf(f.key(a.Request)), time.Now()
	f.mu.Lock()
	l := f.lines.Find(key)
	if l == nil {
		f.mu.Unlock()
		return
	}
	p := l.remove(a.Request)
	if p != nil && f.Limit == 0 {
		l.learnLocked(p, a, refused, hinted, now)
	}
	f.mu.Unlock()
	if p != nil {
		a.OnEnd(func() { f.release(p) })
	}
}

// remove returns what req holds and is not observed yet, or nil. A Pacer around the InFlight may have
// copied req: then it is the newest place.
func (l *inFlightLine) remove(req *http.Request) *place {
	at := len(l.admitted) - 1
	for i, p := range l.admitted {
		if p.req == req {
			at = i
		}
	}
	if at < 0 {
		return nil
	}
	p := l.admitted[at]
	p.req = nil
	l.admitted = slices.Delete(l.admitted, at, at+1)
	return p
}

// learnLocked learns from the outcome of a request that held p.
func (l *inFlightLine) learnLocked(p *place, a heed.Attempt, refused, hinted bool, now time.Time) {
	sent, search := now.Add(-a.Took), &l.places.search
	// Of several that were sent at the same moment, any may have come last.
	beside := max(p.beside, l.places.used-p.n)
	switch {
	case a.Err == heed.ErrNotSent:
	case refused && (!hinted || search.Slow(beside)):
		search.Refuse(beside, sent, now)
	case !refused && a.Response != nil && a.Response.StatusCode < 500:
		search.Answer(p.beside+p.n, sent, now)
	}
}

// refused reports whether the server refused a request, and whether it said when to come back.
func (f *InFlight) refused(a heed.Attempt) (refused, hinted bool) {
	switch {
	case f.Refused != nil:
		return f.Refused(a), false
	case a.Response == nil:
		return false, false
	}
	_, hinted = heed.RetryAfter(a.Response, time.Now())
	switch a.Meaning() {
	case ratelimit.Limited:
		return true, hinted
	case ratelimit.Final: // a quota that fewer requests at a time do not spare
		return false, hinted
	}
	status := a.Response.StatusCode
	return status == http.StatusTooManyRequests || hinted && status == http.StatusServiceUnavailable, hinted
}

// release gives p back.
func (f *InFlight) release(p *place) {
	p.hold.Release() // before the next in line asks the Gate
	f.mu.Lock()
	defer f.mu.Unlock()
	now := time.Now()
	p.line.lasted = now.Sub(p.at)
	p.line.places.giveBack(p.n, now)
	p.line.refreshLocked(now)
}

// Places returns how many places of req's key are used by this process, and how many there are now. For
// an unknown key both are 0.
func (f *InFlight) Places(req *http.Request) (used, limit int64) {
	key := hostkey.NameOf(f.key(req))
	f.mu.Lock()
	defer f.mu.Unlock()
	if l := f.lines.Find(key); l != nil {
		return l.places.used, l.places.limit()
	}
	return 0, 0
}

func (f *InFlight) key(req *http.Request) string {
	if f.Key != nil {
		return f.Key(req)
	}
	return heed.ByCredential(req)
}
