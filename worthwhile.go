package heed

import (
	"context"
	"net/http"
	"slices"
	"strings"
	"time"

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
// that nothing of the request was sent, or that the server did not process it: in
// the name look-up, in dialing, a TLS handshake that took too long, a stream that
// was refused, a connection whose GOAWAY excludes it (RFC 9113 sections 6.8 and 8.7).
//
// A Profile of the RetryPolicy may know more of what a response means, and is
// believed.
//
// A server's X-Should-Retry: false or Stripe-Should-Retry: false ends it, and so does
// the 504 that a cache gives to Cache-Control: only-if-cached (RFC 9111 section
// 5.2.1.7). Never worth it are a name that does not exist, a certificate, scheme or
// header that is wrong, an answer that is malformed, an error that has a response in
// it (that of a token endpoint, say) or says that it is final (by a method
// NonRetriable, or Retryable or RetryableError that returns false), and the caller's
// own cancellation.
func Worthwhile(a Attempt) bool { return a.worthwhile() }

func (a *Attempt) worthwhile() bool {
	switch {
	case a.Err != nil:
		return a.worthwhileError()
	case a.Response == nil || vetoed(a.Response.Header) || a.means == ratelimit.Final || a.notCached():
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
	if a.Request == nil || malformed(a.Request) || cancelled(a.Request) != nil || finalError(a.Err) {
		return false
	}
	return a.idempotent() || notSent(a.Err)
}

// notCached reports that a cache has answered that it has no answer, and was told not
// to ask the server (RFC 9111 section 5.2.1.7).
func (a *Attempt) notCached() bool {
	return a.Response.StatusCode == http.StatusGatewayTimeout && a.Request != nil &&
		slices.ContainsFunc(a.Request.Header["Cache-Control"], func(line string) bool {
			return strings.Contains(strings.ToLower(line), "only-if-cached")
		})
}

// throttled reports that the server refused the request because of a limit, and
// so did not act upon it. A 403 out of a cache refused another request.
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
		if ratelimit.FromCache(a.Response.Header) {
			return false
		}
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
