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
)

// An Adaptive finds out at what rate a server of which nothing else is known
// lets requests through: it goes faster while requests that had to wait are
// answered, and halves its rate when one is refused. It does so for each key
// apart. Requests are evenly spaced, without bursts.
//
// A refusal of a request that was sent before the rate was last halved says
// nothing new, so all refusals of one burst halve it once. While every answer
// is a refusal, as for the rest of a minute whose quota is spent, the rate goes
// on halving; then it doubles with every answer until it is half of what it
// was, and goes up slowly from there. It begins with 10 requests a second, and
// doubles until the first refusal.
//
// Measured with servers that allow 1 to 1,000 requests a second, by buckets or
// by windows of up to a minute, and only ever say 429 (see the package's tests):
// the rate of a bucket is found within 20 seconds; after 10, or the first
// window, at most 3 % of all requests are refused, and at least 80 % of the quota
// is used, of buckets of 10 and more at least 87 %, of windows that slide at least
// 75 %. AIMD with a Step of one a second, and the CUBIC of the AWS SDKs, have
// 48 % and 38 % refused at their worst by the same servers. No client can do
// without refusals where nothing else tells the limit. Where the server tells it,
// use Advertised, and where you know it, Keyed.
//
// An Adaptive is a heed.BoundedPacer. The zero Adaptive is ready to use. Its
// fields must not be changed, nor the Adaptive be copied, after first use. It
// may be used by any number of goroutines, and shared by Transports. When each
// answered request was sent, it learns from Attempt.Took.
type Adaptive struct {
	// Min is the least rate, in requests a second: at which a server that
	// refuses everything is asked again. If zero, 0.1.
	Min rate.Limit

	// Max is the highest rate. If zero, there is none.
	Max rate.Limit

	// Step is by how much the rate goes up in a second, once it is half of what
	// was refused. It is right for one server only: small beside what that
	// allows, or else too many requests are refused, and not too small, or else
	// it is long before a halving is made up for. If zero, the rate goes up
	// along a curve: fast at first, slow near what was refused, and faster
	// beyond.
	Step rate.Limit

	// Key is what a rate applies to. If nil, scheme://host, in lower case and
	// without the default port. All requests whose key is "" share one. A key
	// is part of error messages, so it must not be a secret.
	Key func(*http.Request) string

	// MaxKeys is how many keys are remembered: the most recently used ones, and
	// those for which requests wait. If zero, 1,024.
	MaxKeys int

	// Refused reports whether the server refused a request because there were too
	// many. If nil, that is what 429 says, and 503 with a Retry-After: without one,
	// a 503 is an outage. It is asked about errors, too: then there is no response.
	// See Refusals.
	Refused func(heed.Attempt) bool

	hosts hostkey.Cache

	mu    sync.Mutex // guards the lines
	lines keyed.Table[adaptiveLine]
}

var _ heed.BoundedPacer = (*Adaptive)(nil)

type adaptiveLine struct {
	bucketLine
	search adaptive.Rate
	held   int // requests that waited, and have not been answered
}

// Refusals returns a function for Adaptive.Refused: a server refuses by one of these
// statuses, or, if closes is true, by closing the connection without an answer. What
// gateways do when a client exceeds their limit:
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
// What else has these statuses is taken for a refusal, too: an outage slows an Adaptive that
// goes by 500 or 503.
func Refusals(closes bool, statuses ...int) func(heed.Attempt) bool {
	return func(a heed.Attempt) bool {
		if a.Response != nil {
			return slices.Contains(statuses, a.Response.StatusCode)
		}
		return closes && (errors.Is(a.Err, io.EOF) || errors.Is(a.Err, io.ErrUnexpectedEOF) || errors.Is(a.Err, syscall.ECONNRESET))
	}
}

// Wait blocks until req may be sent, for as long as its context allows.
func (a *Adaptive) Wait(req *http.Request) error { return a.WaitAtMost(req, forever) }

// WaitAtMost blocks until req may be sent. If that is later than most from
// now, or not before the deadline of req's context, it returns a
// *heed.OverdueError: at once, or when refusals make the wait too long. If most
// is zero or negative, there is no wait.
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

// Observe learns from what became of a request.
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
	case at.Err == heed.ErrNotSent:
		l.giveBackLocked(now)
	case refused:
		l.search.Refuse(sent, now, l.held > 0, float64(a.min()))
	case at.Response != nil && at.Response.StatusCode < 500: // of an outage nothing follows
		l.search.Answer(sent, now, l.held > 0, float64(a.Step), float64(a.max()))
	}
	l.held = max(l.held-1, 0)
	l.followLocked(now)
}

// followLocked has the line keep to the rate that was found. While that is low, since the
// server refuses all, those who wait are not told that it will be so for ever.
func (l *adaptiveLine) followLocked(now time.Time) {
	if l.search.Peak > 0 {
		l.bucket.hope = rate.Limit(l.search.Sure())
	}
	if limit := rate.Limit(l.search.PerSecond); limit != l.bucket.limiter.Limit() {
		l.refreshLocked(now)
		l.bucket.limiter.SetLimitAt(now, limit)
		l.refreshLocked(now)
	}
}

// Limit is the rate at which requests of req's key are let go now; 0 if there
// were none yet, or so long ago that they are forgotten.
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
	if at.Response == nil {
		return false
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
