package pace

import (
	"container/list"
	"fmt"
	"net/http"
	"sync"
	"time"

	"github.com/heedhttp/heed"
	"github.com/heedhttp/heed/internal/hostkey"
	"github.com/heedhttp/heed/ratelimit"
)

// An Advertised keeps to the limits that servers tell in their responses'
// fields, in whatever dialect ratelimit.Parse reads, of successes as well as of
// refusals. What is left of a quota is spread evenly over the time until it is
// whole again, so that it is used and nobody is refused. Where several policies
// are told, all are kept.
//
// While no request waits, a tenth of a quota may be spent earlier than evenly, so
// that a few requests need not wait at all; and after some time without requests
// those that were not sent may be, at once. If nothing is left for longer than requests may wait, one a
// minute is let go to look whether that is still so.
//
// Every answer replaces what was known: a new limit is followed at once. What
// comes back of the quota, and what other clients take, is seen in what remains
// from one answer to the next. Others are left what they take. How units come back
// is seen, too, but where units slide or wait for their turn: that package
// serverside tells in RateLimit-Policy (see ratelimit.TokenBucket). Of a leaky bucket
// so told, hardly anything is spent early, since it would wait at the server.
//
// Measured with package serverside, 60 requests a minute and 50 workers who want
// more, for ten minutes after the first answer, alone and with a stranger who asks
// for half of the quota and does not pace himself (see the package's tests; a
// bucket is full at first, and so used to more than 100 %):
//
//	                            alone             with the stranger
//	                            refused  used     refused  used
//	with RateLimit-Policy (by default, and with draft 11 or draft 7 alone)
//	  token and leaky bucket    0        ≥ 100 %  0        ≥ 100 %
//	  fixed window              0        100 %    0        97 %
//	  sliding window            0        96 %     0        94 %
//	  sliding log               0        98 %     0        97 %
//	without it (draft 6 or X-RateLimit alone)
//	  sliding window            0        86 %     0        73 %
//	  sliding log               0        90 %     0        78 %
//	  others                    as above
//
// A key of which nothing was told, as at the beginning, or as one whose server
// never tells anything, is not held back: all who are there go at once. Fields
// tell whole seconds, so a window of a few seconds is not used up. What is told
// of one route is kept on all others of the same key, for as long as it was told
// to be true.
//
// An Advertised is a heed.BoundedPacer. The zero Advertised is ready to use. Its
// fields must not be changed, nor the Advertised be copied, after first use. It
// may be used by any number of goroutines, and shared by Transports. Each Wait
// that returns nil must be followed by Observe, as a Transport does it.
type Advertised struct {
	// Key is whose quota it is. If nil, scheme://host, in lower case and
	// without the default port: right if all requests to a host have one
	// credential. If not, use heed.ByCredential. All requests whose key is ""
	// share one. A key is part of error messages, so it must not be a secret.
	Key func(*http.Request) string

	// Cost is how many units a request takes that are counted so: unit is ""
	// for requests, or the word in the fields' names, such as "tokens". A
	// negative cost is 0. If nil, every request is 1 of unit "", and takes an
	// unknown part of any other: it waits only if nothing of that is left. What
	// it did cost after all is seen in the fields.
	Cost func(req *http.Request, unit string) int64

	// MaxKeys is how many keys are remembered: the most recently used ones, and
	// those for which requests wait or are under way. If zero, 1,024.
	MaxKeys int

	hosts hostkey.Cache

	mu    sync.Mutex // guards what follows
	lines table[advertisedLine]
}

var _ heed.BoundedPacer = (*Advertised)(nil)

// An advertisedLine is where requests of a key wait, first in, first out.
type advertisedLine struct {
	ledger
	mu       *sync.Mutex
	waiting  list.List // of *advertisedWaiter
	reviewed time.Time
	timer    *time.Timer // calls tick; nil if nobody waits
}

type advertisedWaiter struct {
	line  *advertisedLine
	key   string
	req   *http.Request
	costs costs
	bound bound
	place *list.Element // nil once it has left the line
	turn  chan error    // nil, or why there will be no turn
}

// Wait blocks until req may be sent, for as long as its context allows.
func (a *Advertised) Wait(req *http.Request) error { return a.WaitAtMost(req, forever) }

// WaitAtMost blocks until req may be sent. If that is later than most from
// now, or not before the deadline of req's context, it returns a
// *heed.OverdueError: at once, or when an answer makes the wait too long. If
// most is zero or negative, there is no wait.
func (a *Advertised) WaitAtMost(req *http.Request, most time.Duration) error {
	ctx := req.Context()
	if ctx.Err() != nil {
		return ended(ctx)
	}
	if a.MaxKeys < 0 {
		return fmt.Errorf("pace: Advertised.MaxKeys is %d: it must not be negative", a.MaxKeys)
	}
	key := a.key(req)
	w, err := a.join(req, key, a.costs(key, req), most)
	if w == nil {
		return err
	}
	select {
	case err := <-w.turn:
		return err
	case <-ctx.Done():
		w.leave()
		return ended(ctx)
	}
}

func (a *Advertised) join(req *http.Request, key string, c costs, most time.Duration) (*advertisedWaiter, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	l := a.lines.use(key)
	if l == nil {
		l = a.lines.add(key, a.maxKeys(), (*advertisedLine).idleLocked)
		l.mu = &a.mu
	}
	now := time.Now()
	l.refreshLocked(now)
	b := boundOf(req.Context(), most, now)
	wait := l.ahead(l.waiting.Len(), c, now)
	late := !b.holds(wait, now)
	switch {
	case l.waiting.Len() == 0 && (wait <= 0 || l.early(c, now)), late && l.looks(c, wait, now):
		l.spend(req, c, now)
		return nil, nil
	case late:
		return nil, b.overdue(key, wait, now)
	}
	w := &advertisedWaiter{line: l, key: key, req: req, costs: c, bound: b.eased(), turn: make(chan error, 1)}
	w.place = l.waiting.PushBack(w)
	l.refreshLocked(now)
	return w, nil
}

// Observe learns what the response tells.
func (a *Advertised) Observe(at heed.Attempt) {
	var limits []ratelimit.Limit
	now := time.Now()
	if at.Response != nil && !ratelimit.FromCache(at.Response.Header) {
		limits = ratelimit.Parse(at.Response.Header, now)
	}
	key := a.key(at.Request)
	a.mu.Lock()
	defer a.mu.Unlock()
	l := a.lines.use(key)
	if l == nil {
		return // forgotten meanwhile
	}
	if at.Err == heed.ErrNotSent {
		l.notSent(at.Request)
	} else if f, ok := l.land(at.Request); ok && at.Response != nil {
		l.learn(limits, f, !refusal(at), now)
	}
	l.refreshLocked(now)
}

// notSent gives req's turn back.
func (l *ledger) notSent(req *http.Request) {
	if f, ok := l.land(req); ok {
		l.giveBack(f)
	}
}

// refusal reports whether the server refused a request because there were too
// many.
func refusal(a heed.Attempt) bool {
	return a.Response.StatusCode == http.StatusTooManyRequests || a.Response.StatusCode == http.StatusServiceUnavailable
}

// costs asks Cost, without a lock, what req takes of what is told of key.
func (a *Advertised) costs(key string, req *http.Request) costs {
	if a.Cost == nil {
		return nil
	}
	c := costs{{unit: ""}}
	a.mu.Lock()
	if l := a.lines.use(key); l != nil {
		for i := range l.policies {
			c = append(c, cost{unit: l.policies[i].unit})
		}
	}
	a.mu.Unlock()
	for i := range c {
		c[i].n = a.Cost(req, c[i].unit)
	}
	return c
}

func (a *Advertised) key(req *http.Request) string {
	if a.Key != nil {
		return a.Key(req)
	}
	return a.hosts.Key(req.URL.Scheme, req.URL.Host)
}

func (a *Advertised) maxKeys() int {
	if a.MaxKeys == 0 {
		return defaultMaxKeys
	}
	return a.MaxKeys
}

func (l *advertisedLine) idleLocked() bool { return l.waiting.Len() == 0 && len(l.flights) == 0 }

// refreshLocked lets those go whose turn it is, and sends those away whose turn
// would come too late.
func (l *advertisedLine) refreshLocked(now time.Time) {
	for l.waiting.Len() > 0 {
		w := l.waiting.Front().Value.(*advertisedWaiter)
		if l.ledger.wait(w.costs, now) > 0 {
			break
		}
		l.spend(w.req, w.costs, now)
		l.dismissLocked(w, nil)
	}
	if now.Sub(l.reviewed) >= reviewEvery {
		l.reviewed = now
		l.reviewLocked(now)
	}
	l.armLocked(now)
}

func (l *advertisedLine) reviewLocked(now time.Time) {
	ahead := 0
	for place := l.waiting.Front(); place != nil; {
		w := place.Value.(*advertisedWaiter)
		place = place.Next()
		if wait := l.ahead(ahead, w.costs, now); w.bound.holds(wait, now) {
			ahead++
		} else {
			l.dismissLocked(w, w.bound.overdue(w.key, wait, now))
		}
	}
}

// dismissLocked takes w out of the line and tells it why: nil is its turn.
func (l *advertisedLine) dismissLocked(w *advertisedWaiter, why error) {
	l.waiting.Remove(w.place)
	w.place = nil
	w.turn <- why
}

// armLocked sets the timer to the next moment when there is something to do.
func (l *advertisedLine) armLocked(now time.Time) {
	if l.waiting.Len() == 0 {
		if l.timer != nil {
			l.timer.Stop()
			l.timer = nil
		}
		return
	}
	first := l.waiting.Front().Value.(*advertisedWaiter)
	d := min(l.ledger.wait(first.costs, now), reviewEvery)
	if l.timer == nil {
		l.timer = time.AfterFunc(d, l.tick)
	} else {
		l.timer.Reset(d)
	}
}

// tick is what the timer calls.
func (l *advertisedLine) tick() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.refreshLocked(time.Now())
}

// leave gives up the place in line, or the turn if it came at the same moment.
func (w *advertisedWaiter) leave() {
	l := w.line
	l.mu.Lock()
	defer l.mu.Unlock()
	if w.place != nil {
		l.dismissLocked(w, nil)
	} else if err := <-w.turn; err == nil {
		l.notSent(w.req)
	}
	l.refreshLocked(time.Now())
}
