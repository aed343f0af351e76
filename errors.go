package heed

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"time"
)

// A failure is the error of a request that was attempted more than once, or
// whose caller gave up between two attempts. The first cause is the one it
// stands for; errors.Is and errors.As find them all.
type failure struct {
	what   string
	causes []error
}

// maxCauses bounds what a failure remembers, however many attempts there were.
const maxCauses = 8

func (f *failure) Error() string {
	return "heed: " + f.what + ": " + text(f.causes[0])
}

func (f *failure) Unwrap() []error { return f.causes }

// Timeout reports whether the first cause is a timeout. url.Error asks only the
// error that it holds itself, hence the method.
func (f *failure) Timeout() bool {
	t, ok := f.causes[0].(interface{ Timeout() bool })
	return ok && t.Timeout()
}

// Temporary reports whether the first cause is temporary.
func (f *failure) Temporary() bool {
	t, ok := f.causes[0].(interface{ Temporary() bool })
	return ok && t.Temporary()
}

// gaveUp is the failure after the last of several attempts, which failed with
// the last of errs.
func gaveUp(attempts int, errs []error) error {
	last := errs[len(errs)-1]
	causes := append([]error{last}, errs[:len(errs)-1]...)
	return &failure{fmt.Sprintf("%d attempts failed", attempts), causes}
}

// stopped is the failure of a request that could not be sent again after a,
// because of cause.
func stopped(a Attempt, cause error, errs []error) error {
	after := "failed"
	if a.Response != nil {
		after = strings.TrimSpace(fmt.Sprintf("ended with status %d %s", a.Response.StatusCode, http.StatusText(a.Response.StatusCode)))
	}
	what := fmt.Sprintf("not sent again after attempt %d, which %s", a.Number, after)
	return &failure{what, append([]error{cause}, errs...)}
}

// text is what err says, without the URL that a *url.Error shows: its query may
// hold a secret.
func text(err error) string {
	var u *url.Error
	if errors.As(err, &u) {
		return text(u.Err)
	}
	return err.Error()
}

// errorOf is the error of a context that has ended, with the cause if that is
// another one.
func errorOf(ctx context.Context) error {
	err, cause := ctx.Err(), context.Cause(ctx)
	if errors.Is(cause, err) {
		return cause
	}
	return &failure{"cancelled", []error{err, cause}}
}

// A timeoutError is the error of an attempt that took longer than
// AttemptTimeout.
type timeoutError struct {
	after time.Duration
	err   error
}

func (e *timeoutError) Error() string   { return fmt.Sprintf("heed: no response within %v", e.after) }
func (e *timeoutError) Unwrap() error   { return e.err }
func (e *timeoutError) Timeout() bool   { return true }
func (e *timeoutError) Temporary() bool { return true }

var (
	errAttemptTimeout = errors.New("heed: the attempt's time is over")
	errNoResult       = errors.New("heed: the Base RoundTripper returned neither a response nor an error")
)
