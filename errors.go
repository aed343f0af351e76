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

// A failure is the error of a request that was attempted more than once, or
// whose caller gave up between two attempts. The first cause is the one it
// stands for; errors.Is and errors.As find them all.
type failure struct {
	what    string
	causes  []error
	retried bool // after the last of several attempts
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
	return &failure{fmt.Sprintf("%d attempts failed", attempts), causes, true}
}

// stopped is the failure of a request that could not be sent again after a,
// because of cause.
func stopped(a Attempt, cause error, errs []error) error {
	after := "failed"
	if a.Response != nil {
		after = strings.TrimSpace(fmt.Sprintf("ended with status %d %s", a.Response.StatusCode, http.StatusText(a.Response.StatusCode)))
	}
	what := fmt.Sprintf("not sent again after attempt %d, which %s", a.Number, after)
	return &failure{what: what, causes: append([]error{cause}, errs...)}
}

// text is what err says, without the URL that a *url.Error shows: its query may
// hold a secret.
func text(err error) string {
	if f, ok := err.(*failure); ok {
		return f.Error() // which is the text of its first cause
	}
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
	return &failure{what: "cancelled", causes: []error{err, cause}}
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

// finalError reports that err comes back however often the request is sent, or says
// that it is not to be sent again.
func finalError(err error) bool {
	var unknown *net.DNSError
	switch {
	case saysFinal(err), anyStruct(err, hasResponse):
		return true
	case errors.As(err, new(*timeoutError)):
		return false // it may wrap what the end of the attempt caused
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

// saysFinal reports that err says so itself, in one of the ways of Azure's and AWS'
// SDKs and of gRPC's and others' retry libraries.
func saysFinal(err error) bool {
	var azure interface{ NonRetriable() }
	var aws interface{ RetryableError() bool }
	var other interface{ Retryable() bool }
	return errors.As(err, &azure) || errors.As(err, &aws) && !aws.RetryableError() || errors.As(err, &other) && !other.Retryable()
}

// hasResponse reports that an error has a response in a field, as oauth2.RetrieveError
// has: that answers a request for a token, say, and not this one.
func hasResponse(v reflect.Value) bool {
	for i := range v.NumField() {
		if f := v.Field(i); f.Type() == reflect.TypeFor[*http.Response]() && !f.IsNil() {
			return true
		}
	}
	return false
}

// finalTexts are of errors of net/http and x/net/http2 that have no exported type.
var finalTexts = []string{
	"unsupported protocol scheme", "unsupported scheme", "invalid header", "invalid trailer", "invalid method",
	"no Host in request URL", "nil Request.URL", "nil Request.Header", // the request cannot be sent
	"is not valid in HTTP/2", "certificate is not trusted",
	"malformed HTTP", "malformed MIME header", "malformed response from server", "server response headers exceeded",
	"response header list larger than", "header list too large", // the answer cannot be read
	"net/http: request canceled", // by CancelRequest
}

// notSent reports that err proves that nothing of the request was sent, or that the
// server did not process it. Of several causes each must prove it: they may be of
// several attempts.
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
		return len(causes) > 0 && !slices.ContainsFunc(causes, func(cause error) bool { return cause == nil || !notSent(cause) })
	}
	return false
}

// provesNotSent is notSent for err alone, without its causes.
func provesNotSent(err error) bool {
	switch e := err.(type) {
	case *net.DNSError:
		return true
	case *net.OpError:
		return e != nil && (e.Op == "dial" || e.Op == "proxyconnect")
	}
	if isStruct(err, refusedStream) {
		return true
	}
	// The whole text must be one of these: a part of it may be the server's.
	text := err.Error()
	return slices.Contains(notSentTexts, text) ||
		strings.HasPrefix(text, h2CannotRetry) && !strings.Contains(text, "PROTOCOL_ERROR")
}

// notSentTexts are those of errors that prove it and have no exported type.
var notSentTexts = []string{
	"net/http: TLS handshake timeout",
	"http2: Transport received Server's graceful shutdown GOAWAY",
	"http2: client conn not usable",
}

// h2CannotRetry begins the text of HTTP/2's error for a request that the server did not
// process and that would be sent again, had its body not been read; or that met a
// protocol error, which proves nothing.
const h2CannotRetry = "http2: Transport: cannot retry err ["

// refusedStream reports that v is a stream error of net/http or x/net/http2, with the
// code that says that the stream was not processed at all (RFC 9113 section 8.7).
func refusedStream(v reflect.Value) bool {
	const refused = 7
	_, isStream := v.Type().FieldByName("StreamID")
	code, ok := v.Type().FieldByName("Code")
	return isStream && ok && len(code.Index) == 1 && code.Type.Kind() == reflect.Uint32 && v.FieldByIndex(code.Index).Uint() == refused
}

// anyStruct reports whether a struct in err's tree, or one that is pointed to, is such.
func anyStruct(err error, such func(reflect.Value) bool) bool {
	if err == nil {
		return false
	}
	if isStruct(err, such) {
		return true
	}
	switch err := err.(type) {
	case interface{ Unwrap() error }:
		return anyStruct(err.Unwrap(), such)
	case interface{ Unwrap() []error }:
		return slices.ContainsFunc(err.Unwrap(), func(cause error) bool { return anyStruct(cause, such) })
	}
	return false
}

// isStruct is anyStruct for err alone.
func isStruct(err error, such func(reflect.Value) bool) bool {
	v := reflect.ValueOf(err)
	if v.Kind() == reflect.Pointer && !v.IsNil() {
		v = v.Elem()
	}
	return v.Kind() == reflect.Struct && such(v)
}
