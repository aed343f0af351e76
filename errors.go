package heed

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"reflect"
	"slices"
	"strings"
	"time"
)

// A failure is the error of a request that was sent more than once, or that was cancelled between
// two attempts. Its text is that of the first cause; errors.Is and errors.As find all causes.
type failure struct {
	summary string
	causes  []error
	retried bool // after the last of several attempts
}

// maxCauses is how many errors a failure keeps, however many attempts there were.
const maxCauses = 8

func (f *failure) Error() string {
	return "heed: " + f.summary + ": " + errorText(f.causes[0])
}

func (f *failure) Unwrap() []error { return f.causes }

// Timeout reports whether the first cause is a timeout. It exists because url.Error asks only the
// error that it wraps directly.
func (f *failure) Timeout() bool {
	t, ok := f.causes[0].(interface{ Timeout() bool })
	return ok && t.Timeout()
}

// Temporary reports whether the first cause is temporary.
func (f *failure) Temporary() bool {
	t, ok := f.causes[0].(interface{ Temporary() bool })
	return ok && t.Temporary()
}

// attemptsFailed is the failure after the last of several attempts. It begins with the last of
// errs.
func attemptsFailed(attempts int, errs []error) error {
	last := errs[len(errs)-1]
	causes := append([]error{last}, errs[:len(errs)-1]...)
	return &failure{fmt.Sprintf("%d attempts failed", attempts), causes, true}
}

// notSentAgain is the failure of a request that could not be sent again after a, because of cause.
func notSentAgain(a Attempt, cause error, errs []error) error {
	after := "failed"
	if a.Response != nil {
		status := a.Response.StatusCode
		after = strings.TrimSpace(fmt.Sprintf("ended with status %d %s", status, http.StatusText(status)))
	}
	what := fmt.Sprintf("not sent again after attempt %d, which %s", a.Number, after)
	return &failure{summary: what, causes: append([]error{cause}, errs...)}
}

// A notSentError is the error of a call that was never sent. It matches ErrNotSent.
type notSentError struct{ error }

func (e *notSentError) Error() string {
	if _, ok := e.error.(*drainError); ok {
		return ErrNotSent.Error() + ": " + e.error.Error()
	}
	return e.error.Error()
}

func (e *notSentError) Is(target error) bool { return target == ErrNotSent }
func (e *notSentError) Unwrap() error        { return e.error }

// Timeout and Temporary are for url.Error, which asks only the error that it holds itself.
func (e *notSentError) Timeout() bool   { return isTimeout(e.error) }
func (e *notSentError) Temporary() bool { return isTemporary(e.error) }

// An attemptError is an error that matches ErrNotSent, in a call that was sent. It hides only that:
// errors.Is and errors.As find everything else. So it must not have an Unwrap.
type attemptError struct{ error }

func (e *attemptError) Is(target error) bool {
	return target != ErrNotSent && errors.Is(e.error, target)
}

func (e *attemptError) As(target any) bool { return errors.As(e.error, target) }
func (e *attemptError) Timeout() bool      { return isTimeout(e.error) }
func (e *attemptError) Temporary() bool    { return isTemporary(e.error) }

// asAttemptError returns err for use in the error of a call that was sent, which must not match
// ErrNotSent, even if one of its attempts was not sent.
func asAttemptError(err error) error {
	if e, ok := err.(*notSentError); ok {
		err = e.error
	}
	if errors.Is(err, ErrNotSent) {
		return &attemptError{err}
	}
	return err
}

// onlyError returns the error of a call with one attempt. A Transport in Base may report that it did
// not send the request. But if the caller cancelled req with the error of another call, net/http
// returns that error, which says nothing about this call.
func onlyError(req *http.Request, err error) error {
	cause := context.Cause(req.Context())
	if _, ok := err.(*notSentError); ok && err != cause || !errors.Is(cause, ErrNotSent) {
		return err
	}
	return asAttemptError(err)
}

func isTimeout(err error) bool {
	var t interface{ Timeout() bool }
	return errors.As(err, &t) && t.Timeout()
}

func isTemporary(err error) bool {
	var t interface{ Temporary() bool }
	return errors.As(err, &t) && t.Temporary()
}

// errorText returns the text of err without the URL in a *url.Error: the query may hold a secret.
func errorText(err error) string {
	if f, ok := err.(*failure); ok {
		return f.Error() // it uses errorText for its cause
	}
	var u *url.Error
	if errors.As(err, &u) {
		return errorText(u.Err)
	}
	return err.Error()
}

// contextError returns the error of a context that has ended, and its cause if that is a different
// error.
func contextError(ctx context.Context) error {
	err, cause := ctx.Err(), context.Cause(ctx)
	if errors.Is(cause, err) {
		return cause
	}
	return &failure{summary: "cancelled", causes: []error{err, cause}}
}

// A timeoutError is the error of an attempt that took longer than AttemptTimeout, or than its part of
// the time until the deadline.
type timeoutError struct {
	after time.Duration
	split bool
	err   error
}

func (e *timeoutError) Error() string {
	limit := "RetryPolicy.AttemptTimeout"
	if e.split {
		limit = "half of the time left, by RetryPolicy.SplitDeadline"
	}
	return fmt.Sprintf("heed: no response within %s (%v)", limit, e.after)
}
func (e *timeoutError) Unwrap() error   { return e.err }
func (e *timeoutError) Timeout() bool   { return true }
func (e *timeoutError) Temporary() bool { return true }

var (
	errAttemptTimeout = errors.New("heed: the attempt's time is over")
	errNoResult       = errors.New("heed: the Base RoundTripper returned neither a response nor an error")
)

// finalError reports whether err would come back on every attempt, or says that the request must
// not be sent again.
func finalError(err error) bool {
	var unknown *net.DNSError
	switch {
	case saysFinal(err), anyStruct(err, hasResponse):
		return true
	case errors.As(err, new(*timeoutError)):
		return false // it may wrap errors that the timeout itself caused
	case errors.As(err, &unknown):
		return unknown.IsNotFound
	case errors.Is(err, http.ErrSkipAltProtocol), errors.As(err, new(*OverdueError)),
		errors.As(err, new(tls.RecordHeaderError)), errors.As(err, new(*net.AddrError)),
		errors.As(err, new(*tls.CertificateVerificationError)), errors.As(err, new(x509.UnknownAuthorityError)),
		errors.As(err, new(x509.HostnameError)), errors.As(err, new(x509.CertificateInvalidError)):
		return true
	}
	text := err.Error()
	return slices.ContainsFunc(finalTexts, func(t string) bool { return strings.Contains(text, t) })
}

// saysFinal reports whether err itself says that it is final, by a method that the SDKs of Azure
// and AWS, gRPC and several retry libraries use.
func saysFinal(err error) bool {
	var azure interface{ NonRetriable() }
	var aws interface{ RetryableError() bool }
	var other interface{ Retryable() bool }
	return errors.As(err, &azure) || errors.As(err, &aws) && !aws.RetryableError() ||
		errors.As(err, &other) && !other.Retryable()
}

// hasResponse reports whether an error has a response in a field, as oauth2.RetrieveError has. That
// response answers another request, such as one for a token.
func hasResponse(v reflect.Value) bool {
	for i := range v.NumField() {
		if f := v.Field(i); f.Type() == reflect.TypeFor[*http.Response]() && !f.IsNil() {
			return true
		}
	}
	return false
}

// asProxyError gives the error of an http.Transport whose proxy refused a CONNECT the form of one whose
// proxy could not be reached: nothing was sent. It is a mere text, so of another Base, which may have sent
// the request, it is not believed. Of a 403 or 407, which another attempt would get too, it stays.
func asProxyError(base http.RoundTripper, req *http.Request, err error) error {
	t, ok := base.(*http.Transport)
	if !ok || t.Proxy == nil || req.URL.Scheme != "https" || req.Context().Err() != nil ||
		reflect.TypeOf(err) != reflect.TypeOf(errNoResult) {
		return err
	}
	for _, status := range []int{408, 429, 500, 502, 503, 504} {
		if http.StatusText(status) == err.Error() {
			return &net.OpError{Op: "proxyconnect", Net: "tcp", Err: err}
		}
	}
	return err
}

// finalTexts are parts of final errors of net/http and x/net/http2 that have no exported type.
var finalTexts = []string{
	"unsupported protocol scheme", "unsupported scheme", "invalid header", "invalid trailer", "invalid method",
	"no Host in request URL", "nil Request.URL", "nil Request.Header", // the request cannot be sent
	"is not valid in HTTP/2", "certificate is not trusted",
	"malformed HTTP", "malformed MIME header", "malformed response from server", "server response headers exceeded",
	"response header list larger than", "header list too large", // the response cannot be read
	"net/http: request canceled", // by CancelRequest
}

// notSent reports whether err proves that nothing of the request was sent, or that the server did
// not process it. If err has several causes each must prove it, because they may come from several
// attempts.
func notSent(err error) bool {
	if provesNotSent(err) {
		return true
	}
	switch err := err.(type) {
	case interface{ Unwrap() error }:
		cause := err.Unwrap()
		return cause != nil && notSent(cause)
	case interface{ Unwrap() []error }:
		causes := err.Unwrap()
		unproved := func(cause error) bool { return cause == nil || !notSent(cause) }
		return len(causes) > 0 && !slices.ContainsFunc(causes, unproved)
	}
	return false
}

// provesNotSent is notSent for err alone, without its causes.
func provesNotSent(err error) bool {
	switch e := err.(type) {
	case *net.DNSError:
		return true
	case *net.OpError:
		return e != nil && dials(e.Op)
	}
	if isStruct(err, refusedStream) {
		return true
	}
	// Compare the whole text: a part of it may come from the server.
	text := err.Error()
	return slices.Contains(notSentTexts, text) ||
		strings.HasPrefix(text, h2CannotRetry) && !strings.Contains(text, "PROTOCOL_ERROR")
}

// dials reports whether a net.OpError with this Op has made no connection to the host.
func dials(op string) bool { return op == "dial" || op == "proxyconnect" || op == "socks connect" }

// notSentTexts are the texts of such errors that have no exported type.
var notSentTexts = []string{
	"net/http: TLS handshake timeout",
	"http2: Transport received Server's graceful shutdown GOAWAY",
	"http2: client conn not usable",
}

// h2CannotRetry begins the text of an HTTP/2 error: the server did not process the request, but
// net/http cannot resend it because its body was read. After a protocol error it proves nothing.
const h2CannotRetry = "http2: Transport: cannot retry err ["

// refusedStream reports whether v is a stream error of net/http or x/net/http2 with the code
// REFUSED_STREAM: the stream was not processed at all (RFC 9113 section 8.7).
func refusedStream(v reflect.Value) bool {
	const refused = 7
	_, isStream := v.Type().FieldByName("StreamID")
	code, ok := v.Type().FieldByName("Code")
	return isStream && ok && len(code.Index) == 1 && code.Type.Kind() == reflect.Uint32 &&
		v.FieldByIndex(code.Index).Uint() == refused
}

// anyStruct reports whether match holds for a struct, or a pointer to one, in err's tree.
func anyStruct(err error, match func(reflect.Value) bool) bool {
	if err == nil {
		return false
	}
	if isStruct(err, match) {
		return true
	}
	switch err := err.(type) {
	case interface{ Unwrap() error }:
		return anyStruct(err.Unwrap(), match)
	case interface{ Unwrap() []error }:
		return slices.ContainsFunc(err.Unwrap(), func(cause error) bool { return anyStruct(cause, match) })
	}
	return false
}

// isStruct is anyStruct for err alone.
func isStruct(err error, match func(reflect.Value) bool) bool {
	v := reflect.ValueOf(err)
	if v.Kind() == reflect.Pointer && !v.IsNil() {
		v = v.Elem()
	}
	return v.Kind() == reflect.Struct && match(v)
}
