package retryable

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"

	"github.com/heedhttp/heed"
)

// A call is one request of the http.Client of c, with all its attempts.
//
// go-retryablehttp gives CheckRetry and ErrorHandler a response or an error, and no call. So
// the call goes with these: in the context of the response's Request, or in a callError.
type call struct {
	client *installed
	req    *http.Request
	sent   int // attempts that have begun

	attempts int          // that have ended
	verdict  heed.Verdict // on the last of them
	late     bool         // the next one would have come after the context's deadline

	// What CheckRetry said of the last attempt, if it was asked.
	asked    bool
	again    bool
	checkErr error
	unsafe   bool // it wanted a retry, but the server may have acted upon the request
}

// RoundTrip has heed send req.
func (i *installed) RoundTrip(req *http.Request) (*http.Response, error) {
	c := &call{client: i, req: req}
	resp, err := i.t.RoundTrip(c.in(req))
	if err != nil {
		return nil, &callError{asTimeout(err), c}
	}
	if callOf(resp.Request.Context()) != c { // Base has sent a request of its own
		resp.Request = c.in(resp.Request)
	}
	return resp, nil
}

type callKey struct{}

// in returns req with c in its context.
func (c *call) in(req *http.Request) *http.Request {
	return req.WithContext(context.WithValue(req.Context(), callKey{}, c))
}

// callOf returns the innermost call that ctx belongs to, or nil.
func callOf(ctx context.Context) *call {
	c, _ := ctx.Value(callKey{}).(*call)
	return c
}

// callOfResult returns the call of a response or an error, or an empty one: an error that
// http.Client itself makes has none.
func callOfResult(resp *http.Response, err error) *call {
	var e *callError
	if errors.As(err, &e) {
		return e.call
	}
	if resp != nil && resp.Request != nil {
		if c := callOf(resp.Request.Context()); c != nil {
			return c
		}
	}
	return &call{attempts: 1}
}

// A callError brings a call to CheckRetry and ErrorHandler. The caller never sees it.
type callError struct {
	error
	call *call
}

func (e *callError) Unwrap() error { return e.error }

// withoutCall returns err as the caller sees it.
func withoutCall(err error) error {
	switch e := err.(type) {
	case *callError:
		return e.error
	case *url.Error: // http.Client has made it of a callError
		e.Err = withoutCall(e.Err)
	}
	return err
}

// errGaveUp is the error of a response for which CheckRetry wanted another attempt.
var errGaveUp = errors.New("retryable: gave up")

// checkLast is c's CheckRetry. heed has made all attempts, so it never asks for another one.
// If the former CheckRetry wants one, or has an error, c gets an error, and calls giveUp.
func (i *installed) checkLast(ctx context.Context, resp *http.Response, err error) (bool, error) {
	c := callOfResult(resp, err)
	switch {
	case err == errWhich:
		return false, &callError{err, &call{client: i}}
	case i.check == nil, isPrepareError(err):
		return false, nil
	case err != nil && c.verdict == heed.Again: // the call ended while it waited
		return false, nil
	case !c.asked, err != nil && !errors.As(err, new(*callError)):
		// It was not asked yet, or not about this error: a redirect's, or a ResponseHandler's.
		c.again, c.checkErr = i.check(ctx, resp, err)
	}
	switch {
	case c.checkErr != nil && !errors.Is(err, c.checkErr):
		return false, &callError{c.checkErr, c}
	case c.again && err == nil:
		return false, &callError{errGaveUp, c}
	}
	return false, nil
}

// giveUp is c's ErrorHandler: the former one, or what c does if it has none.
func (i *installed) giveUp(resp *http.Response, err error, _ int) (*http.Response, error) {
	if err == errWhich {
		return nil, &callError{err, &call{client: i}}
	}
	c := callOfResult(resp, err)
	err = withoutCall(err)
	if unprepared := new(prepareError); errors.As(err, &unprepared) {
		err = unprepared.err
	}
	gaveUp := err == errGaveUp
	if gaveUp {
		err = nil
	}
	if i.handle != nil {
		return i.handle(resp, err, c.attempts)
	}
	if resp != nil {
		io.CopyN(io.Discard, resp.Body, drained)
		resp.Body.Close()
	}
	if _, ok := err.(*url.Error); ok {
		return nil, err
	}
	if gaveUp {
		err = c.reason()
	}
	return nil, asTimeout(c.failure(err))
}

// drained is how much of a body is read so that its connection can be used again.
const drained = 4 << 10

// reason returns why there was no other attempt, or nil if there were as many as there may be.
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

// failure is the error that go-retryablehttp makes, with the number of attempts that heed made.
func (c *call) failure(cause error) error {
	what := fmt.Sprintf("giving up after %d attempt(s)", c.attempts)
	if c.req != nil {
		what = fmt.Sprintf("%s %s %s", c.req.Method, c.req.URL.Redacted(), what)
	}
	if cause == nil {
		return errors.New(what)
	}
	return fmt.Errorf("%s: %w", what, cause)
}
