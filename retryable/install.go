package retryable

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"reflect"
	"time"

	"github.com/hashicorp/go-retryablehttp"

	"github.com/heedhttp/heed"
)

// Install lets heed do the retries of c, with the settings that c has. The callers of c
// stay as they are, those of its StandardClient included.
//
// What t.Retry and t.Trace leave zero is filled from c; what is set there stays:
//
//   - RetryMax: MaxAttempts is one more.
//   - CheckRetry: If. One difference stays: a request that is not idempotent, such as a
//     POST without an Idempotency-Key, is not repeated after a status from 500 on, a 408 or
//     a broken connection, as the server may have acted upon it. To have CheckRetry alone
//     decide, set t.Retry.If to If(c.CheckRetry). If CheckRetry is one of
//     go-retryablehttp's own, heed.Worthwhile decides as well: it knows more refusals
//     because of a limit, and errors that come back, such as a name that does not exist.
//   - Backoff, RetryWaitMin, RetryWaitMax: Backoff. DefaultBackoff gets a jitter within
//     the two. A server's hint is the least wait, whatever Backoff says.
//   - HTTPClient.Timeout: AttemptTimeout. It bounds each attempt, as before, and the reading
//     of the response's body with it. It never bounds all attempts together.
//   - Logger: Trace, by LogTrace.
//   - MaxWait is a day, or RetryWaitMax if that is more, and MaxElapsed is unlimited:
//     go-retryablehttp has neither. A deadline of the context holds.
//   - MaxBodyBuffer is 8 MiB. It is for a body that only streams, through StandardClient or
//     FromRequest; others are replayed whatever their size.
//
// A hook of c is called as before: RequestLogHook for each attempt, ResponseLogHook for each
// response, PrepareRetry for each retry. What a hook changes in a retry, it changes for that
// retry alone. An error of PrepareRetry is final.
//
// The last result goes to CheckRetry and ErrorHandler as before. So without an ErrorHandler
// a failure is still an error, and with retryablehttp.PassthroughErrorHandler the caller
// gets the last response. The error of a Request's ResponseHandler is final.
//
// Budget, Pacer, Board and Key are those of t. Install replaces a nil Budget and a nil Board by
// heed's defaults, so that two clients installed with one t share them; each client keeps its
// own settings. heed.Unlimited and heed.NoBoard turn them off. Install does not change t.Retry
// and t.Trace: t may be used elsewhere too.
//
// t.Base sends the requests. If it is nil, c.HTTPClient's Transport sends them, and the first
// Install sets t.Base to it; a second client still sends through its own. c.HTTPClient is
// replaced by a copy, so others may share the original. CloseIdleConnections of the copy does
// nothing, because c calls it whenever a request fails; t.CloseIdleConnections works.
//
// Install reads all of this once: neither c nor t may be in use, and later changes of the
// settings mean nothing, until Install is called again. Hooks and Logger may still be set. An
// earlier Install, and a heed.Transport that is in c, are replaced, not wrapped. A nil t is
// a zero heed.Transport. Install panics if c is nil.
func Install(c *retryablehttp.Client, t *heed.Transport) {
	if c == nil {
		panic("retryable: Install: the client is nil")
	}
	if t == nil {
		t = new(heed.Transport)
	}
	i := newInstalled(c)
	i.t = i.transport(t)
	own := i.http
	own.Transport, own.Timeout = i, 0
	c.HTTPClient, c.CheckRetry, c.ErrorHandler = &own, i.checkLast, i.giveUp
}

// An installed is the Transport of c's http.Client. It has no CloseIdleConnections: c would
// call it whenever a request fails, and close the connections of all others.
type installed struct {
	c *retryablehttp.Client
	t *heed.Transport

	// What was in c before.
	http   http.Client
	check  retryablehttp.CheckRetry
	handle retryablehttp.ErrorHandler
}

// newInstalled takes from c what Install replaces; from an earlier Install what that did.
func newInstalled(c *retryablehttp.Client) *installed {
	i := &installed{c: c, check: c.CheckRetry, handle: c.ErrorHandler}
	if c.HTTPClient == nil {
		i.http = *retryablehttp.NewClient().HTTPClient
	} else {
		i.http = *c.HTTPClient
	}
	former := &installed{check: retryablehttp.DefaultRetryPolicy}
	if earlier, ok := i.http.Transport.(*installed); ok {
		former = earlier
		if i.http.Timeout == 0 {
			i.http.Timeout = earlier.http.Timeout
		}
	}
	if same(i.check, former.checkLast) {
		i.check = former.check
	}
	if same(i.handle, former.giveUp) {
		i.handle = former.handle
	}
	i.http.Transport = below(i.http.Transport)
	return i
}

// same reports whether two functions are the same, or methods of the same name.
func same(f, g any) bool { return reflect.ValueOf(f).Pointer() == reflect.ValueOf(g).Pointer() }

// below is what heed sends with, if rt is heed: two loops, one around the other,
// would make the square of the attempts.
func below(rt http.RoundTripper) http.RoundTripper {
	switch rt := rt.(type) {
	case *installed:
		return below(rt.t)
	case *heed.Transport:
		return below(rt.Base)
	case *resender:
		return below(rt.base)
	case nil:
		return defaultBase
	}
	return rt
}

// defaultBase is that of heed: not a Transport that was made the default since.
var defaultBase = http.DefaultTransport

// transport is a Transport for c alone, which shares with t what clients can share.
func (i *installed) transport(t *heed.Transport) *heed.Transport {
	if t.Budget == nil {
		t.Budget = new(heed.LocalBudget)
	}
	if t.Board == nil {
		t.Board = new(heed.LocalBoard)
	}
	return &heed.Transport{
		Base: i.base(t), Retry: i.policy(t.Retry), Trace: i.trace(t.Trace),
		Budget: t.Budget, Pacer: t.Pacer, Board: t.Board, Key: t.Key,
	}
}

// base is t.Base if the caller has set it: one that an Install has set is another client's.
func (i *installed) base(t *heed.Transport) http.RoundTripper {
	if t.Base == nil {
		t.Base = &resender{i.http.Transport}
	}
	if _, ok := t.Base.(*resender); ok {
		return &resender{i.http.Transport}
	}
	return &resender{t.Base}
}

// A call is one request while heed sends it. It is in the request's context.
type call struct {
	client *installed

	attempts int
	took     time.Duration // of the last attempt, up to the end of its response's header
	verdict  heed.Verdict  // after it
	late     bool          // the next one would have come after the context's deadline

	asked    bool // whether CheckRetry was, about the last attempt
	again    bool // what it said
	checkErr error
	unsafe   bool // it wanted a retry, but the server may have acted upon the request
}

type callKey struct{}

func callOf(ctx context.Context) *call {
	c, _ := ctx.Value(callKey{}).(*call)
	return c
}

// callOfResponse returns the call of a response, or an empty one if the response has none.
func callOfResponse(resp *http.Response) *call {
	if resp != nil && resp.Request != nil {
		if c := callOf(resp.Request.Context()); c != nil {
			return c
		}
	}
	return &call{attempts: 1}
}

// RoundTrip lets heed send req. The call is in the context of the response's Request.
func (i *installed) RoundTrip(req *http.Request) (*http.Response, error) {
	c := &call{client: i}
	ctx := context.WithValue(req.Context(), callKey{}, c)
	resp, err := i.boundedRoundTrip(req.WithContext(ctx), c)
	if err != nil && (c.attempts > 1 || isTimeout(err)) {
		return nil, &attemptsError{err, c.attempts}
	}
	return resp, err
}

// An attemptsError is the error after several attempts, or after one that took too long.
type attemptsError struct {
	error
	attempts int
}

func (e *attemptsError) Unwrap() error { return e.error }

// Timeout is for url.Error, which asks only the error that it holds itself.
func (e *attemptsError) Timeout() bool { return isTimeout(e.error) }

// Is makes an attempt that took too long what it is with HTTPClient.Timeout.
func (e *attemptsError) Is(target error) bool {
	return target == context.DeadlineExceeded && e.Timeout()
}

func isTimeout(err error) bool {
	var t interface{ Timeout() bool }
	return errors.As(err, &t) && t.Timeout()
}

// errGaveUp tells giveUp that CheckRetry wanted another attempt, and there is none.
var errGaveUp = errors.New("retryable: gave up")

// checkLast is c's CheckRetry: heed has made all attempts, so it never says again. A result
// that does not satisfy c's former CheckRetry becomes an error, with which c asks giveUp.
func (i *installed) checkLast(ctx context.Context, resp *http.Response, err error) (bool, error) {
	if i.check == nil || isPrepareError(err) {
		return false, nil
	}
	again, checkErr := false, error(nil)
	if call := callOfResponse(resp); call.asked && err == nil {
		again, checkErr = call.again, call.checkErr
	} else {
		again, checkErr = i.check(ctx, resp, err)
	}
	switch {
	case checkErr != nil && !errors.Is(err, checkErr):
		return false, checkErr
	case again && err == nil:
		return false, errGaveUp
	}
	return false, nil
}

// giveUp is c's ErrorHandler: the former one, or what c does if it has none.
func (i *installed) giveUp(resp *http.Response, err error, _ int) (*http.Response, error) {
	call := callOfResponse(resp)
	if several := new(attemptsError); errors.As(err, &several) {
		call.attempts = several.attempts
	}
	gaveUp := err == errGaveUp
	if gaveUp {
		err = nil
	}
	if i.handle != nil {
		return i.handle(resp, err, call.attempts)
	}
	if resp == nil {
		return nil, err
	}
	io.CopyN(io.Discard, resp.Body, drained)
	resp.Body.Close()
	if _, ok := err.(*url.Error); ok {
		return nil, err
	}
	if gaveUp {
		err = call.reason()
	}
	return nil, call.failure(resp.Request, err)
}

// drained is how much of a body is read so that its connection can be used again.
const drained = 4 << 10

// reason is why there is no other attempt, if there were some left.
func (c *call) reason() error {
	switch {
	case c.late:
		return fmt.Errorf("%v: %w", c.verdict, context.DeadlineExceeded)
	case c.unsafe:
		return errUnsafe
	case c.verdict > heed.OutOfAttempts:
		return errors.New(c.verdict.String())
	}
	return nil
}

var errUnsafe = errors.New("not idempotent")

// failure is what c itself says, with the number of attempts that heed has made.
func (c *call) failure(req *http.Request, err error) error {
	what := fmt.Sprintf("giving up after %d attempt(s)", c.attempts)
	if req != nil && req.URL != nil {
		what = fmt.Sprintf("%s %s %s", req.Method, req.URL.Redacted(), what)
	}
	if err == nil {
		return errors.New(what)
	}
	return fmt.Errorf("%s: %w", what, err)
}
