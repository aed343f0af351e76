package pace

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/heedhttp/heed"
	"github.com/heedhttp/heed/internal/hostkey"
	"github.com/heedhttp/heed/ratelimit"
)

// ErrQueueFull is the error of a request for which a Queue has no room.
var ErrQueueFull = errors.New("pace: the queue is full")

const defaultMaxQueued = 1000

// A Queue orders requests before they go to another Pacer: for a batch with more workers,
// or for more customers, than the server's limit has room for. Put it around the Pacer
// that keeps the limit:
//
//	Pacer: &pace.Queue{
//		Pacer: pace.PerHost(10, 1),
//		Key:   func(req *http.Request) string { return req.Header.Get("X-Customer") },
//		Max:   100,
//	}
//
// Higher priorities go first. Within a priority, the requests of each Key are first in,
// first out, and keys share the limit fairly: each gets as many units, however much the
// others send. Higher priorities can starve lower ones.
//
// The Queue has a line for each key of its Pacer, so that one customer's limit delays
// only that customer. (For a Pacer of another package it has a line for each host.) Only
// the first in a line waits for the Pacer, so a new request with a higher priority is
// delayed by at most one other.
//
// A Queue sends nothing: the goroutine that calls http.Client.Do is the job, and waits.
// Start no more of them than Max. Set the RetryPolicy's MaxWait and MaxElapsed to what
// the batch may take. A retry joins the line again.
//
// A request whose place comes later than it may wait gets a *heed.OverdueError at once, and
// takes no place. For that the Queue computes how long those before it take at the limit as
// it stands, if its Pacer is a Keyed, an Adaptive or the result of PerHost or With, or an
// Each or Queue of these. A request in line that will be too late, because others overtook
// it or the limit fell, gets the error within a second. Of an Advertised the Queue knows how
// long the first in line must wait, once the quota is used up. Of a Shared, an InFlight and
// Pacers of other packages it knows nothing: there a request is refused when its time is over.
//
// A Queue is a heed.BoundedPacer. Do not change its fields or copy it after first use.
// Goroutines and Transports may share it; its functions are called concurrently. The zero
// Queue has no Pacer: it admits requests one after the other, without delay.
type Queue struct {
	// Pacer keeps the limit. If nil, there is none.
	Pacer heed.Pacer

	// Max is the number of requests that may wait, in all lines together, including those
	// that wait for Pacer. Another one is refused at once, with ErrQueueFull. If zero,
	// 1,000; a negative one is an error.
	Max int

	// Priority returns how urgent a request is: the highest goes first. If nil, it is
	// what WithPriority set, or else 0.
	Priority func(*http.Request) int

	// Key returns the customer, or whatever else gets a fair part of the limit. If nil, or
	// if all requests have the same key, requests are first in, first out.
	Key func(*http.Request) string

	// Cost returns how many units a request uses of its key's part: at least 1, at
	// most 2⁴⁰. If nil, it is what WithCost set, or else 1.
	Cost func(req *http.Request, unit string) int64

	// Unit is the unit passed to Cost, such as "tokens". If empty, requests.
	Unit string

	// Progress is called whenever one of its numbers changes, one call at a time and in
	// order. It must be quick and must not use the Queue.
	Progress func(Progress)

	hosts hostkey.Cache

	mu    sync.Mutex            // guards all below, and the lines
	lines map[string]*queueLine // those with waiting requests
	state Progress
}

// A Progress counts the requests of a Queue.
type Progress struct {
	Waiting int   // in line, or waiting for the Pacer
	Sent    int   // in flight: admitted and not observed yet
	Done    int64 // answered or failed, in total
	Refused int64 // of Done, those answered 429 or 503
}

var _ heed.BoundedPacer = (*Queue)(nil)

type priorityKey struct{}

// WithPriority returns a context whose requests have that priority in a Queue:
//
//	ctx = pace.WithPriority(ctx, 1) // ahead of the others
//
// The default is 0, and a priority may be negative. The innermost call counts.
func WithPriority(ctx context.Context, priority int) context.Context {
	return context.WithValue(ctx, priorityKey{}, priority)
}

// A queueLine is where the requests of one key of the Pacer wait until they may ask it.
type queueLine struct {
	line
	asking  askGate
	gates   []gate           // asking
	flows   map[string]int64 // by Queue.Key: the start of the flow's next request
	now     int64            // the latest start that was admitted
	present int              // requests in line or asking the Pacer
}

// A limit is a Pacer of this package, and what it counts the requests of a line for.
type limit struct {
	pacer estimator // nil if it cannot tell
	key   string
	route string // of an Advertised
}

// An estimator is a Pacer that can tell how long requests have to wait for it.
type estimator interface {
	// behind returns how long a request of l must wait at least, behind those that wait
	// for the Pacer already and so many others. 0 means that nothing is known.
	behind(l *limit, ahead int64, now time.Time) time.Duration
}

// An askGate admits one request at a time, to ask the Pacer.
type askGate struct {
	waiters demand
	taken   bool
	coming  bool    // and the request has not asked the Pacer yet
	limits  []limit // of the Pacer
}

func (g *askGate) cost(costs) int64                   { return 1 }
func (g *askGate) spare(costs, int64, time.Time) bool { return false }
func (g *askGate) take(int64, time.Time) int64        { g.taken, g.coming = true, true; return -1 }
func (g *askGate) giveBack(int64, time.Time)          { g.taken, g.coming = false, false }
func (g *askGate) idle(time.Time)                     {}
func (g *askGate) demand() *demand                    { return &g.waiters }

func (g *askGate) due(int64, time.Time) time.Duration {
	if g.taken {
		return unknown
	}
	return 0
}

// delay is how long a request must wait for the Pacer, too. Once a request asks it, the
// Pacer counts that itself.
func (g *askGate) delay(_, ahead int64, now time.Time) (longest time.Duration) {
	if !g.taken && ahead == 0 {
		return 0
	}
	if g.coming {
		ahead++
	}
	for i := range g.limits {
		if l := &g.limits[i]; l.pacer != nil {
			longest = max(longest, l.pacer.behind(l, ahead, now))
		}
	}
	if longest <= 0 {
		return unknown
	}
	return longest
}

// A startTag orders requests: by priority, and within a priority by start-time fair
// queueing (Goyal et al., 1996). Time counts units there. A request starts when the
// previous one of its key has had its units, and the earliest start goes first; of equal
// ones, the first that came.
type startTag struct {
	priority int
	units    int64 // the start, in units that the line has admitted
}

func (t startTag) before(u startTag) bool {
	return cmp.Or(cmp.Compare(u.priority, t.priority), cmp.Compare(t.units, u.units)) < 0
}

// highestCost caps the cost of one request, so that no sum of them overflows.
const highestCost = 1 << 40

// tag returns the place of a flow's next request in the order.
func (l *queueLine) tag(flow string, priority int) startTag {
	return startTag{priority, max(l.now, l.flows[flow])}
}

// charge charges a flow for a request: its next one follows after the other flows have had
// as many units.
func (l *queueLine) charge(flow string, start startTag, units int64) {
	if len(l.flows) > 2*l.present {
		for other, next := range l.flows {
			if next <= l.now { // a new flow gets the same tag
				delete(l.flows, other)
			}
		}
	}
	l.flows[flow] = start.units + units
}

// Wait blocks until req may be sent, for as long as its context allows.
func (q *Queue) Wait(req *http.Request) error { return q.WaitAtMost(req, forever) }

// WaitAtMost blocks until req may be sent. It returns a *heed.OverdueError if that takes
// longer than most or reaches the deadline of req's context: as soon as the wait is known
// to be too long, or when most is over. If most is zero or negative, it does not wait.
//
// The Wait of the error is the time until req's place comes. If that is not
// known, it is how long req may wait, and at least a second.
func (q *Queue) WaitAtMost(req *http.Request, most time.Duration) (err error) {
	ctx := req.Context()
	if ctx.Err() != nil {
		return ended(ctx)
	}
	start := time.Now()
	e, err := q.enter(req, most, start)
	if err != nil {
		return err
	}
	var asked, sent bool
	defer func() { q.leave(e, asked, sent) }() // even if the Pacer panics
	if e.waiter != nil {
		timer := time.NewTimer(min(most, forever))
		defer timer.Stop()
		if err = e.waiter.wait(ctx, timer.C); err == errExpired {
			return &heed.OverdueError{Key: e.key, Wait: max(most, atLeast), Left: max(most, 0)}
		}
		if err != nil {
			return err
		}
	}
	asked = true
	q.starts(e)
	if q.Pacer != nil {
		err = waitAtMost(q.Pacer, req, most-time.Since(start))
	}
	sent = err == nil
	return err
}

// A queued is a request in a Queue.
type queued struct {
	key    string // of line
	line   *queueLine
	flow   string
	units  int64
	start  startTag
	waiter *waiter // nil if it need not wait
}

// enter puts req in line, unless the Queue is full or its place would come too late.
func (q *Queue) enter(req *http.Request, most time.Duration, now time.Time) (*queued, error) {
	limits := q.limits(nil, req)
	e := &queued{key: keyOf(limits), units: min(max(costOf(q.Cost, req, q.Unit), 1), highestCost)}
	priority := q.priority(req)
	if q.Key != nil {
		e.flow = q.Key(req)
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	switch {
	case q.Max < 0:
		return nil, fmt.Errorf("pace: Queue.Max is %d: it must not be negative", q.Max)
	case q.state.Waiting >= q.max():
		return nil, ErrQueueFull
	}
	e.line = q.lineLocked(e.key, limits)
	e.start = e.line.tag(e.flow, priority)
	c := claim{key: e.key, gates: &e.line.gates, deadline: deadlineOf(req.Context(), most, now)}
	var err error
	if e.waiter, _, err = e.line.joinLocked(&c, e.start, now); err != nil {
		return nil, err
	}
	e.line.present++
	e.line.charge(e.flow, e.start, e.units)
	q.state.Waiting++
	q.reportLocked()
	return e, nil
}

func (q *Queue) lineLocked(key string, limits []limit) *queueLine {
	l := q.lines[key]
	if l == nil {
		l = &queueLine{asking: askGate{limits: limits}, flows: map[string]int64{}}
		l.fixed = !slices.ContainsFunc(limits, func(l limit) bool { return l.pacer != nil })
		l.mu, l.before, l.gates = &q.mu, startTag.before, []gate{&l.asking}
		if q.lines == nil {
			q.lines = map[string]*queueLine{}
		}
		q.lines[key] = l
	}
	return l
}

// starts records that a request asks the Pacer.
func (q *Queue) starts(e *queued) {
	q.mu.Lock()
	defer q.mu.Unlock()
	e.line.now = max(e.line.now, e.start.units)
	e.line.asking.coming = false
}

// leave removes a request from its line, sent or not. If it asked the Pacer, the next one
// may ask. If not, its flow gets its units back.
func (q *Queue) leave(e *queued, asked, sent bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	l := e.line
	if asked {
		l.asking.taken = false
		l.refreshLocked(time.Now())
	} else if l.flows[e.flow] > e.units {
		l.flows[e.flow] -= e.units
	}
	if l.present--; l.present == 0 {
		delete(q.lines, e.key)
	}
	q.state.Waiting--
	if sent {
		q.state.Sent++
	}
	q.reportLocked()
}

// Observe passes a on to Pacer and updates Progress.
func (q *Queue) Observe(a heed.Attempt) {
	if q.Pacer != nil {
		q.Pacer.Observe(a)
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	q.state.Sent--
	if a.Err != heed.ErrNotSent {
		q.state.Done++
		if a.Response != nil && refusal(a) {
			q.state.Refused++
		}
	}
	q.reportLocked()
}

// refusal reports whether the server refused a request because there were too many.
func refusal(a heed.Attempt) bool {
	return a.Meaning() == ratelimit.Limited || a.Response.StatusCode == http.StatusTooManyRequests ||
		a.Response.StatusCode == http.StatusServiceUnavailable
}

func (q *Queue) reportLocked() {
	if q.Progress != nil {
		q.Progress(q.state)
	}
}

func (q *Queue) priority(req *http.Request) int {
	if q.Priority != nil {
		return q.Priority(req)
	}
	priority, _ := req.Context().Value(priorityKey{}).(int)
	return priority
}

// limits appends those of the Pacer, or the host if it is of another package.
func (q *Queue) limits(limits []limit, req *http.Request) []limit {
	if all, ok := limitsOf(limits, q.Pacer, req); ok {
		return all
	}
	return append(limits, limit{key: q.hosts.Key(req.URL.Scheme, req.URL.Host)})
}

// limitsOf appends the limits of req at p. ok is false if p is of another package.
func limitsOf(limits []limit, p heed.Pacer, req *http.Request) (all []limit, ok bool) {
	switch p := p.(type) {
	case each:
		for _, one := range p {
			if limits, ok = limitsOf(limits, one, req); !ok {
				return nil, false
			}
		}
		return limits, len(p) > 0
	case *Queue:
		return p.limits(limits, req), true
	case *Advertised: // which has limits for each route
		host := p.hosts.Name(req.URL.Scheme, req.URL.Host)
		route, _ := p.scopes.AppendRoute(nil, req, host, p.Profiles)
		return append(limits, limit{p, p.key(req), string(route)}), true
	case interface{ key(*http.Request) string }:
		e, _ := p.(estimator)
		return append(limits, limit{pacer: e, key: p.key(req)}), true
	}
	return nil, false
}

// keyOf returns the key of the line for limits.
func keyOf(limits []limit) string {
	parts := make([]string, 0, 4)
	for _, l := range limits {
		if parts = append(parts, l.key); l.route != "" {
			parts = append(parts, l.route)
		}
	}
	return strings.Join(parts, " ")
}

func (q *Queue) max() int {
	if q.Max == 0 {
		return defaultMaxQueued
	}
	return q.Max
}
