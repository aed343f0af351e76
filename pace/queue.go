package pace

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/heedhttp/heed"
	"github.com/heedhttp/heed/internal/hostkey"
)

// ErrQueueFull is the error of a request that a Queue had no room for.
var ErrQueueFull = errors.New("pace: the queue is full")

const defaultMaxQueued = 1000

// A Queue puts requests in order before they go to another Pacer, for batches
// that are sent by more workers, or for more customers, than a server's limit
// has room for. Put it where the Transport has its Pacer, around the Pacer that
// keeps the limit:
//
//	Pacer: &pace.Queue{Pacer: pace.PerHost(10, 1), Max: 100}
//
// There is a line for each key of the Pacer: a customer whose limit is spent
// holds up nobody else's. (A Pacer of another package has a line for each
// host.) The first in a line asks the Pacer, and only when that has let it go
// the next one does. So a request that comes with a higher priority is
// overtaken by one other at most. Within a priority, the requests of each Key
// are first in, first out, and keys take turns: each has as many units,
// whatever the others send. Higher priorities can hold lower ones up for ever.
//
// It does not send anything: the goroutine that calls http.Client.Do is the
// job, and waits. Have no more of them than Max, and set the RetryPolicy's
// MaxWait and MaxElapsed to what the batch may take, or those in line for longer
// are sent away with a *heed.OverdueError. An attempt that is a retry stands in
// line again.
//
// A Queue is a heed.BoundedPacer. Its fields must not be changed, nor the Queue
// be copied, after first use. It may be used by any number of goroutines, and
// shared by Transports; its functions are called by all of them. The zero Queue
// lets requests go one after the other, at once: its Pacer is missing.
type Queue struct {
	// Pacer keeps the limit. If nil, there is none.
	Pacer heed.Pacer

	// Max is how many requests may wait, in all lines together, those that ask
	// Pacer included. One more is refused at once, with ErrQueueFull. If zero, 1,000;
	// a negative one is an error.
	Max int

	// Priority is how urgent a request is: the highest goes first. If nil, what
	// WithPriority has put into its context, or else 0.
	Priority func(*http.Request) int

	// Key is among whom turns are shared fairly, as the customer for whom a
	// request is. If nil, or if all have the same, first in, first out.
	Key func(*http.Request) string

	// Cost is how many units a request takes of its key's turns: if less than 1, 1, and
	// if more than 2⁴⁰, that. If nil, what WithCost says.
	Cost func(req *http.Request, unit string) int64

	// Unit is the unit that Cost is asked for, such as "tokens". If empty, requests.
	Unit string

	// Progress is told whenever a number in it changes, one call at a time and
	// in order. It must be quick, and not use the Queue. If nil, nobody is.
	Progress func(Progress)

	hosts hostkey.Cache

	mu    sync.Mutex            // guards what follows, and the lines
	lines map[string]*queueLine // those in which nobody waits are forgotten
	state Progress
}

// A Progress is how many requests a Queue has.
type Progress struct {
	Waiting int   // in line, or asking the Pacer
	Sent    int   // under way: let go, and not observed yet
	Done    int64 // answered, or failed, since the beginning
	Refused int64 // of Done, with 429 or 503
}

var _ heed.BoundedPacer = (*Queue)(nil)

type priorityKey struct{}

// WithPriority returns a context whose requests have that priority in a Queue, which
// may be negative. Without it, it is 0; of two, the inner one holds.
func WithPriority(ctx context.Context, priority int) context.Context {
	return context.WithValue(ctx, priorityKey{}, priority)
}

// A queueLine is where the requests of one key of the Pacer wait, until they may ask it.
type queueLine struct {
	line
	asking  askGate
	gates   []gate           // asking
	flows   map[string]int64 // by Queue.Key: when what came before has had its units
	now     int64            // the latest start that was given
	present int              // requests in line, and one that asks the Pacer
}

// An askGate lets one request at a time ask the Pacer.
type askGate struct {
	waiters waiting
	taken   bool
}

func (g *askGate) cost(costs) int64                   { return 1 }
func (g *askGate) spare(int64, int64, time.Time) bool { return false }
func (g *askGate) take(int64, time.Time) int64        { g.taken = true; return -1 }
func (g *askGate) giveBack(int64, time.Time)          { g.taken = false }
func (g *askGate) rest(time.Time)                     {}
func (g *askGate) waiting() *waiting                  { return &g.waiters }

func (g *askGate) due(n int64, now time.Time) time.Duration { return g.delay(n, 0, now) }

func (g *askGate) delay(_, ahead int64, _ time.Time) time.Duration {
	if g.taken || ahead > 0 {
		return unknown
	}
	return 0
}

// A startTag orders requests: the highest priority first; of these, keys by start-time fair
// queueing (Goyal et al., 1996): each request starts, in a time that counts units, when the
// one before it of its key has had its units, and the earliest start is first; of these, who
// came first.
type startTag struct {
	priority int
	units    int64 // since when the line is, in which the request starts
}

func (t startTag) before(u startTag) bool {
	return cmp.Or(cmp.Compare(u.priority, t.priority), cmp.Compare(t.units, u.units)) < 0
}

// highestCost bounds the cost of one request, so that no sum of them overflows.
const highestCost = 1 << 40

// tag gives a request of a flow its place in the order: the next one of the flow follows when
// others have had as many units.
func (l *queueLine) tag(flow string, priority int, units int64) startTag {
	start := max(l.now, l.flows[flow])
	if len(l.flows) > 2*l.present {
		for other, next := range l.flows {
			if next <= l.now { // one that is not known has the same tag
				delete(l.flows, other)
			}
		}
	}
	l.flows[flow] = start + units
	return startTag{priority, start}
}

// Wait blocks until req may be sent, for as long as its context allows.
func (q *Queue) Wait(req *http.Request) error { return q.WaitAtMost(req, forever) }

// WaitAtMost blocks until req may be sent. If that is later than most from now, it
// returns a *heed.OverdueError: when that time has passed in line, since it is
// not known before; at once, if Pacer knows, or if most is zero or negative.
func (q *Queue) WaitAtMost(req *http.Request, most time.Duration) (err error) {
	ctx := req.Context()
	if ctx.Err() != nil {
		return ended(ctx)
	}
	begin := time.Now()
	e, err := q.enter(req, most, begin)
	if e == nil {
		return err
	}
	var asked, sent bool
	defer func() { q.leave(e, asked, sent) }() // even if the Pacer panics
	if err != nil {
		return err
	}
	if e.waiter != nil {
		timer := time.NewTimer(min(most, forever))
		defer timer.Stop()
		if err = e.waiter.wait(ctx, timer.C); err == errExpired {
			return &heed.OverdueError{Key: e.key, Wait: most, Left: most}
		}
		if err != nil {
			return err
		}
	}
	asked = true
	q.starts(e)
	if q.Pacer != nil {
		err = waitAtMost(q.Pacer, req, most-time.Since(begin))
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

// enter puts req in line, unless the Queue has no room. There may be an error all the same.
func (q *Queue) enter(req *http.Request, most time.Duration, now time.Time) (*queued, error) {
	e := &queued{key: q.key(req), units: min(max(costOf(q.Cost, req, q.Unit), 1), highestCost)}
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
	e.line = q.lineLocked(e.key)
	e.line.present++
	q.state.Waiting++
	q.tellLocked()
	e.start = e.line.tag(e.flow, priority, e.units)
	c := claim{key: e.key, gates: &e.line.gates, deadline: deadlineOf(req.Context(), most, now)}
	var err error
	e.waiter, _, err = e.line.joinLocked(&c, e.start, now)
	return e, err
}

func (q *Queue) lineLocked(key string) *queueLine {
	l := q.lines[key]
	if l == nil {
		l = &queueLine{flows: map[string]int64{}}
		l.mu, l.fixed, l.gates = &q.mu, true, []gate{&l.asking}
		l.before = func(a, b *waiter) bool { return a.start.before(b.start) }
		if q.lines == nil {
			q.lines = map[string]*queueLine{}
		}
		q.lines[key] = l
	}
	return l
}

// starts counts that a request asks the Pacer.
func (q *Queue) starts(e *queued) {
	q.mu.Lock()
	defer q.mu.Unlock()
	e.line.now = max(e.line.now, e.start.units)
}

// leave counts that a request is no longer in line, sent or not. If it asked the Pacer, the
// next one may; if not, others of its flow need not make up for it.
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
	q.tellLocked()
}

// Observe passes a on to Pacer.
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
	q.tellLocked()
}

// refusal reports whether the server refused a request because there were too
// many.
func refusal(a heed.Attempt) bool {
	return a.Response.StatusCode == http.StatusTooManyRequests || a.Response.StatusCode == http.StatusServiceUnavailable
}

func (q *Queue) tellLocked() {
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

// key is that of the Pacer, as far as it is known.
func (q *Queue) key(req *http.Request) string {
	if key, ok := keyOf(q.Pacer, req); ok {
		return key
	}
	return q.hosts.Key(req.URL.Scheme, req.URL.Host)
}

// keyOf is what p counts req for, if p is of this package.
func keyOf(p heed.Pacer, req *http.Request) (key string, ok bool) {
	switch p := p.(type) {
	case each:
		keys := make([]string, len(p))
		for i, one := range p {
			if keys[i], ok = keyOf(one, req); !ok {
				return "", false
			}
		}
		return strings.Join(keys, " "), len(p) > 0
	case *Advertised: // which has limits of each route
		host := p.hosts.Name(req.URL.Scheme, req.URL.Host)
		route, _ := p.scopes.AppendRoute(append([]byte(p.key(req)), ' '), req, host, p.Profiles)
		return string(route), true
	case interface{ key(*http.Request) string }:
		return p.key(req), true
	}
	return "", false
}

func (q *Queue) max() int {
	if q.Max == 0 {
		return defaultMaxQueued
	}
	return q.Max
}
