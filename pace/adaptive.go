package pace

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"sync"
	"syscall"
	"time"

	"golang.org/x/time/rate"

	"github.com/heedhttp/heed"
	"github.com/heedhttp/heed/internal/adaptive"
	"github.com/heedhttp/heed/internal/hostkey"
	"github.com/heedhttp/heed/internal/keyed"
	"github.com/heedhttp/heed/ratelimit"
)

// An Adaptive discovers the rate a server allows when the server announces none: it goes
// faster while delayed requests are answered, and halves the rate after a refusal. Each
// key has its own rate. Requests are evenly spaced, without bursts.
//
//	transport := &heed.Transport{Pacer: &pace.Adaptive{}} // the zero value is ready
//
// Use Advertised if the server announces its limit, and Keyed if you know it: an Adaptive
// cannot find a limit without some refusals.
//
// It starts with 10 requests a second and doubles the rate until the first refusal.
// Refusals of requests that were sent before the last halving do not count, so all
// refusals of one burst halve the rate once. While every answer is a refusal, as in the
// rest of a minute whose quota is used up, the rate keeps halving. After that it doubles
// with every answer up to half of the rate before the refusals, and rises slowly from
// there.
//
// The package's tests measure it with servers that allow 1 to 1,000 requests a second, by
// buckets or by windows of up to a minute, and only answer 429. It finds the rate of a
// bucket within 20 seconds. After 10 seconds, or the first window, at most 3 % of all
// requests are refused. It uses at least 80 % of the quota, of buckets of 10 and more at
// least 87 %, and of sliding windows at least 75 %. With the same servers, AIMD with a
// Step of one a second and the CUBIC of the AWS SDKs have up to 48 % and 38 % refused.
//
// An Adaptive is a heed.BoundedPacer. Do not change its fields or copy it after first
// use. Goroutines and Transports may share it. It uses Attempt.Took to learn when an
// answered request was sent. Wait returns an error if Min, Max, Step or MaxKeys is
// negative, or if Max is less than Min.
type Adaptive struct {
	// Min is the lowest rate, in requests a second: how often to ask a server that
	// refuses everything. If zero, 0.1.
	Min rate.Limit

	// Max is the highest rate. If zero, there is none.
	Max rate.Limit

	// Step is the increase of the rate per second, once it is half of the refused rate. A
	// Step suits one server only: too large for the server's limit, it causes refusals;
	// too small, recovery takes long. If zero, the rate follows a curve: it rises fast at
	// first, slowly near the refused rate, and faster beyond.
	Step rate.Limit

	// Key returns what a rate applies to. If nil, it is scheme://host, in lower case and
	// without the default port. All requests with the key "" share a rate. Error messages
	// contain keys, so a key must not be a secret.
	Key func(*http.Request) string

	// MaxKeys is the number of keys to remember: the most recently used ones, and those
	// with waiting requests. If zero, 1,024.
	MaxKeys int

	// Refused reports whether the server refused a request because there were too many.
	// If nil, a 429 is a refusal, and so are a 503 with a Retry-After and what a Profile of
	// the RetryPolicy calls one; a 503 without a Retry-After is an outage. It is also called
	// for errors, without a response. See Refusals.
	Refused func(heed.Attempt) bool

	hosts hostkey.Cache

	mu    sync.Mutex // guards the lines
	lines keyed.Table[adaptiveLine]
}

var _ heed.BoundedPacer = (*Adaptive)(nil)

type adaptiveLine struct {
	bucketLine
	search adaptive.Rate
	held   int // requests that waited and are not answered yet
}

// Refusals returns a function for Adaptive.Refused. A server refuses with one of statuses
// or, if closes is true, by closing the connection without an answer:
//
//	pacer := &pace.Adaptive{Refused: pace.Refusals(false, 503)} // behind nginx limit_req
//
// What gateways do when a client exceeds their limit:
//
//	nginx limit_req, limit_conn                503             Refusals(false, 503)
//	… with limit_req_status 429                429             nil
//	HAProxy http-request deny deny_status 429  429             nil
//	HAProxy http-request reject                closes          Refusals(true)
//	HAProxy http-request tarpit                500, late       Refusals(false, 500)
//	Varnish vsthrottle                         429             nil
//	Apache mod_qos                             500             Refusals(false, 500)
//	Apache mod_evasive, Squid maxconn          403             Refusals(false, 403)
//
// Where it says nil, leave Refused nil. Any other response with the same status counts as
// a refusal, too: with 500 or 503, an outage slows the Adaptive down.
func Refusals(closes bool, statuses ...int) func(heed.Attempt) bool {
	return func(a heed.Attempt) bool {
		if a.Response != nil {
			return slices.Contains(statuses, a.Response.StatusCode)
		}
		return closes &&
			(errors.Is(a.Err, io.EOF) || errors.Is(a.Err, io.ErrUnexpectedEOF) || errors.Is(a.Err, syscall.ECONNRESET))
	}
}

// Wait blocks until req may be sent, for as long as its context allows.
func (a *Adaptive) Wait(req *http.Request) error { return a.WaitAtMost(req, forever) }

// WaitAtMost blocks until req may be sent. It returns a *heed.OverdueError if that takes
// longer than most or reaches the deadline of req's context: at once, or when refusals
// make the wait too long. If most is zero or negative, it does not wait.
func (a *Adaptive) WaitAtMost(req *http.Request, most time.Duration) error {
	ctx := req.Context()
	if ctx.Err() != nil {
		return ended(ctx)
	}
	l, w, err := a.join(ctx, a.key(req), most)
	if w == nil {
		return err
	}
	if err := w.wait(ctx, nil); err != nil {
		return err
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	l.held++
	return nil
}

func (a *Adaptive) behind(l *limit, ahead int64, now time.Time) time.Duration {
	a.mu.Lock()
	defer a.mu.Unlock()
	if line := a.lines.Find(hostkey.NameOf(l.key)); line != nil {
		return line.behindLocked(ahead, now)
	}
	return 0
}

func (a *Adaptive) join(ctx context.Context, key string, most time.Duration) (*adaptiveLine, *waiter, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	name := hostkey.NameOf(key)
	l := a.lines.Find(name)
	if l == nil {
		if err := a.check(); err != nil {
			return nil, nil, err
		}
		l = a.addLocked(name)
	}
	w, err := l.joinLocked(ctx, key, most, time.Now())
	return l, w, err
}

func (a *Adaptive) addLocked(name hostkey.Name) *adaptiveLine {
	a.lines.Most = maxKeys(a.MaxKeys)
	l := a.lines.Get(name, (*adaptiveLine).stateLocked)
	first := min(max(adaptive.First, a.min()), a.max())
	l.search = adaptive.From(time.Time{}, 0.5)
	l.search.PerSecond = float64(first)
	l.start(&a.mu, rate.NewLimiter(first, 1), true)
	return l
}

func (l *adaptiveLine) stateLocked() keyed.State {
	if l.waiting.Len() > 0 {
		return keyed.InUse
	}
	return keyed.Spare
}

// Observe adjusts the rate to the outcome of a request.
func (a *Adaptive) Observe(at heed.Attempt) {
	refused := at.Err != heed.ErrNotSent && a.refused(at)
	key := a.key(at.Request)
	a.mu.Lock()
	defer a.mu.Unlock()
	l := a.lines.Find(hostkey.NameOf(key))
	if l == nil {
		return // forgotten meanwhile
	}
	now := time.Now()
	sent := now.Add(-at.Took)
	switch {
	case at.Err == heed.ErrNotSent: // an outage says nothing about the rate
		l.giveBackLocked(now)
	case refused:
		l.search.Refuse(sent, now, l.held > 0, float64(a.min()))
	case at.Response != nil && at.Response.StatusCode < 500 && at.Meaning() != ratelimit.Retry: // of a failure nothing follows
		l.search.Answer(sent, now, l.held > 0, float64(a.Step), float64(a.max()))
	}
	l.held = max(l.held-1, 0)
	l.followLocked(now)
}

// followLocked applies the rate that was found. While it is low because the server
// refuses everything, waits are estimated by the last rate that worked.
func (l *adaptiveLine) followLocked(now time.Time) {
	if l.search.Peak > 0 {
		l.bucket.expected = rate.Limit(l.search.Sure())
	}
	if limit := rate.Limit(l.search.PerSecond); limit != l.bucket.limiter.Limit() {
		l.refreshLocked(now)
		l.bucket.limiter.SetLimitAt(now, limit)
		l.refreshLocked(now)
	}
}

// Limit returns the present rate of req's key, or 0 if the key is unknown.
func (a *Adaptive) Limit(req *http.Request) rate.Limit {
	key := a.key(req)
	a.mu.Lock()
	defer a.mu.Unlock()
	if l := a.lines.Find(hostkey.NameOf(key)); l != nil {
		return rate.Limit(l.search.PerSecond)
	}
	return 0
}

// check returns an error that names the first field that is wrong.
func (a *Adaptive) check() error {
	switch {
	case !(a.Min >= 0): // or not a number
		return fmt.Errorf("pace: Adaptive.Min is %v: it must not be negative", float64(a.Min))
	case !(a.Max >= 0):
		return fmt.Errorf("pace: Adaptive.Max is %v: it must not be negative", float64(a.Max))
	case a.max() < a.min():
		return fmt.Errorf("pace: Adaptive.Max is %v: it must not be less than Min, %v", float64(a.Max), float64(a.min()))
	case !(a.Step >= 0):
		return fmt.Errorf("pace: Adaptive.Step is %v: it must not be negative", float64(a.Step))
	case a.MaxKeys < 0:
		return fmt.Errorf("pace: Adaptive.MaxKeys is %d: it must not be negative", a.MaxKeys)
	}
	return nil
}

func (a *Adaptive) refused(at heed.Attempt) bool {
	if a.Refused != nil {
		return a.Refused(at)
	}
	switch {
	case at.Response == nil:
		return false
	case at.Meaning() == ratelimit.Limited: // whatever its status
		return true
	}
	switch at.Response.StatusCode {
	case http.StatusTooManyRequests:
		return true
	case http.StatusServiceUnavailable:
		_, hinted := heed.RetryAfter(at.Response, time.Now())
		return hinted
	}
	return false
}

func (a *Adaptive) key(req *http.Request) string {
	if a.Key != nil {
		return a.Key(req)
	}
	return a.hosts.Key(req.URL.Scheme, req.URL.Host)
}

func (a *Adaptive) min() rate.Limit {
	if a.Min == 0 {
		return min(0.1, a.max())
	}
	return a.Min
}

func (a *Adaptive) max() rate.Limit {
	if a.Max == 0 {
		return rate.Inf
	}
	return a.Max
}
