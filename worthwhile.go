package heed

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"net"
	"net/http"
	"net/url"
	"time"

	"github.com/hashicorp/go-retryablehttp"

	"github.com/heedhttp/heed/ratelimit"
)

// Worthwhile reports whether another attempt may do better than a. It is the If
// of the zero RetryPolicy.
//
// Broken connections and the statuses 408, 500, 502, 503 and 504 are worth
// another attempt of an idempotent request: one by its method (RFC 9110 section
// 9.2.2), or one with an Idempotency-Key, be it of RetryPolicy.IdempotencyKey, or
// X-Idempotency-Key. What the server
// has not acted upon is worth one of any request: 429, 425, and the statuses
// 403, 413, 420, 430 and 529 if they come with a hint; and errors which prove
// that the request was not sent: in the name look-up, in dialing, a TLS
// handshake that took too long, a stream that was refused (RFC 9113 section 8.7), a body of which
// not one byte was read.
//
// A Profile of the RetryPolicy may know more of what a response means, and is
// believed.
//
// A server's X-Should-Retry: false or Stripe-Should-Retry: false ends it. Never
// worth it are a name that does not exist, a certificate, scheme or header that
// is wrong, and the caller's own cancellation.
func Worthwhile(a Attempt) bool { return a.worthwhile() }

func (a *Attempt) worthwhile() bool {
	switch {
	case a.Err != nil:
		return a.worthwhileError()
	case a.Response == nil || vetoed(a.Response.Header) || a.means == ratelimit.Final:
		return false
	case a.throttled(), a.Response.StatusCode == http.StatusTooEarly, a.means == ratelimit.Retry:
		return true
	}
	switch a.Response.StatusCode {
	case http.StatusRequestTimeout, http.StatusInternalServerError, http.StatusBadGateway,
		http.StatusServiceUnavailable, http.StatusGatewayTimeout:
		return a.idempotent()
	}
	return false
}

func (a *Attempt) idempotent() bool { return a.keyed || idempotent(a.Request) }

func (a *Attempt) worthwhileError() bool {
	if a.Request == nil || malformed(a.Request) || cancelled(a.Request) != nil || permanent(a.Err) {
		return false
	}
	return a.idempotent() || a.unread || notSent(a.Err)
}

// throttled reports that the server refused the request because of a limit, and
// so did not act upon it.
func (a *Attempt) throttled() bool {
	if a.Response == nil {
		return false
	}
	switch a.means {
	case ratelimit.Limited:
		return true
	case ratelimit.Retry, ratelimit.Final:
		return false
	}
	switch a.Response.StatusCode {
	case http.StatusTooManyRequests:
		return true
	case http.StatusForbidden, http.StatusRequestEntityTooLarge, 420, 430, 529:
		if !a.heard {
			_, ok := RetryAfter(a.Response, time.Time{})
			return ok
		}
		return a.hinted
	}
	return false
}

// invited reports that the server named the time of the next attempt: that one
// costs no budget.
func (a *Attempt) invited() bool { return a.throttled() && a.hint > 0 }

// vetoed reports that the server asks not to be asked again.
func vetoed(h http.Header) bool {
	return isFalse(h["X-Should-Retry"]) || isFalse(h["Stripe-Should-Retry"])
}

func isFalse(values []string) bool { return len(values) > 0 && values[0] == "false" }

// malformed reports that req lacks what net/http refuses to send it without.
func malformed(req *http.Request) bool {
	return req.URL == nil || req.URL.Host == "" || req.Header == nil
}

// idempotent reports whether req may be repeated even if the server has acted
// upon it. Methods are case-sensitive; that the header has a key is enough, as
// it is for net/http.
func idempotent(req *http.Request) bool {
	if req == nil {
		return false
	}
	switch req.Method {
	case "", http.MethodGet, http.MethodHead, http.MethodOptions, http.MethodTrace, http.MethodPut, http.MethodDelete:
		return true
	}
	_, ok := req.Header["Idempotency-Key"]
	_, x := req.Header["X-Idempotency-Key"]
	return ok || x
}

// cancelled returns why the caller no longer wants req, or nil if he does.
func cancelled(req *http.Request) error {
	if ctx := req.Context(); ctx.Err() != nil {
		return errorOf(ctx)
	}
	if done := cancelOf(req); done != nil {
		select {
		case <-done:
			return context.Canceled
		default:
		}
	}
	return nil
}

// cancelOf is the channel with which requests were cancelled before contexts:
// http.Client still uses it, for its Timeout.
func cancelOf(req *http.Request) <-chan struct{} {
	//lint:ignore SA1019 who sets it wants it obeyed
	return req.Cancel
}

// permanent reports that err comes back however often the request is sent.
// go-retryablehttp knows most of it, but only from within a *url.Error, which
// is what it is used to.
func permanent(err error) bool {
	var overdue *OverdueError
	var unknown *net.DNSError
	var plain tls.RecordHeaderError
	var address *net.AddrError
	switch {
	case errors.Is(err, http.ErrSkipAltProtocol), errors.As(err, &overdue):
		return true
	case errors.As(err, &unknown):
		return unknown.IsNotFound
	case errors.As(err, &plain), errors.As(err, &address), untrusted(err):
		return true
	}
	again, _ := retryablehttp.DefaultRetryPolicy(context.Background(), nil, &url.Error{Op: "Get", Err: err})
	return !again
}

// untrusted reports that err is about a certificate, however it is wrapped.
func untrusted(err error) bool {
	var verification *tls.CertificateVerificationError
	var authority x509.UnknownAuthorityError
	var name x509.HostnameError
	var invalid x509.CertificateInvalidError
	return errors.As(err, &verification) || errors.As(err, &authority) || errors.As(err, &name) || errors.As(err, &invalid)
}

// notSent reports that err proves that the server did not act upon the request.
func notSent(err error) bool {
	var op *net.OpError
	var dns *net.DNSError
	var stream streamError
	switch {
	case errors.As(err, &dns):
		return true
	case errors.As(err, &op) && (op.Op == "dial" || op.Op == "proxyconnect"):
		return true
	case errors.As(err, &stream):
		return stream.Code == refusedStream
	}
	return err.Error() == handshakeTimeout
}

// handshakeTimeout is what net/http says of the one failure of a TLS handshake
// that can be told from one of a connection in use; it does not export the type.
const handshakeTimeout = "net/http: TLS handshake timeout"

// streamError has the shape of net/http's own HTTP/2 stream error, which
// converts itself to any struct of this shape: the errors.As of its package's
// users.
type streamError struct {
	StreamID uint32
	Code     uint32
	Cause    error
}

func (streamError) Error() string { return "http2: stream error" }

// refusedStream says that a stream was not processed at all (RFC 9113 section 8.7).
const refusedStream = 7
