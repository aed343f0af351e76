package heed

import (
	"context"
	"errors"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/heedhttp/heed/ratelimit"
)

// An Attempt describes one sending of a request and its outcome. RetryPolicy.If, Backoff, Pacer and
// Trace get it.
type Attempt struct {
	Number   int            // 1 for the first
	Request  *http.Request  // the caller's request
	Response *http.Response // nil if Err is not nil; do not touch its Body
	Err      error
	Took     time.Duration // duration of this attempt, without waits
	Elapsed  time.Duration // since RoundTrip was called
	Waited   time.Duration // between the previous attempt and this one; 0 for the first
	Cause    Cause         // why the next attempt waits; 0 before that is decided, or if there is none

	hintRead, hinted bool          // the policy's Hint was called; it returned true
	hasKey           bool          // the policy added an Idempotency-Key
	maxAttempts      int32         // RetryPolicy.MaxAttempts
	sent             time.Duration // when it was sent
	givenUps         int64         // value of the package's givenUps before it was sent
	hint             time.Duration // what the policy's Hint returned, not negative
	backoff          time.Duration // what its Backoff returned
	limit            string        // the setting behind the verdict, or "deadline"

	meaning       ratelimit.Meaning // by its Profile
	vendorRepeats bool              // the vendor's own client sends such a request again
	sdkRepeats    bool              // somebody outside heed counts attempts, and repeats what heed does not
	accountWide   bool              // the limit covers all requests of the credential
	requestOnly   bool              // the limit covers this request alone

	sentTimes     int  // how many attempts were sent; those whose dial failed are not
	dial          bool // this one failed because no connection could be made
	known         bool // the host gave a good answer within ten minutes
	nobodyReached bool // but none to anybody since the call began
}

// Meaning returns what the response means to its Profile; see RetryPolicy.Profiles. It is Unsaid if only the
// status counts.
func (a Attempt) Meaning() ratelimit.Meaning { return a.meaning }

// A Verdict says whether another attempt follows, and if not, why. The zero Verdict is Final.
type Verdict int

const (
	Final         Verdict = iota // the outcome is not worth a retry
	Again                        // another attempt follows
	OutOfAttempts                // MaxAttempts is reached
	OutOfBudget                  // the Budget has no retry left
	OutOfTime                    // the wait would end after the deadline or MaxElapsed, or WithDrain forbids it
	WaitTooLong                  // the wait is longer than MaxWait
	NotReplayable                // the request's body cannot be sent again
)

var verdicts = [...]string{
	Final: "final", Again: "again", OutOfAttempts: "out of attempts", OutOfBudget: "out of budget",
	OutOfTime: "out of time", WaitTooLong: "wait too long", NotReplayable: "not replayable",
}

// String returns v in lower case, for example "out of attempts".
func (v Verdict) String() string {
	if v < 0 || int(v) >= len(verdicts) {
		return "unknown verdict"
	}
	return verdicts[v]
}

// circumstances are what a verdict depends on besides the attempt.
type circumstances struct {
	attempts   int // how many were sent
	replayable bool
	hold       hold
	cooling    time.Duration // how long the key's cool-down still lasts
	contended  bool          // and others were answered well since the call began
	free       bool          // the retry costs no budget, because it waits as long as the server or the throttle requires
	left       time.Duration // until the deadline or the end of MaxElapsed
	withdraw   func() bool
}

// decide returns the verdict on an attempt that is worth a retry. wait is how long the next attempt
// waits, or would have to wait. The checks are ordered so that the budget pays only for a retry
// that nothing else forbids.
func (p *RetryPolicy) decide(a *Attempt, c circumstances) (v Verdict, wait time.Duration) {
	a.sentTimes = c.attempts
	if a.backoff = c.hold.backoff; !c.hold.unsent {
		a.backoff = p.backoff(a, c.left)
	}
	if c.contended && p.Backoff == nil && c.attempts == p.maxAttempts()-1 {
		a.backoff = 0 // it is the first in line, but only until the others have gone
	}
	wait = max(a.hint, a.backoff, c.cooling)
	switch {
	case c.hold.over:
		return OutOfTime, wait
	case c.attempts >= p.maxAttempts():
		return OutOfAttempts, wait
	case !c.replayable:
		return NotReplayable, wait
	case wait > p.maxWait():
		return WaitTooLong, wait
	case wait >= c.left: // only the wait has to fit: how long the next attempt takes is unknown
		return OutOfTime, wait
	case !c.free && !c.withdraw() && c.hold.suspect == 0:
		return OutOfBudget, wait
	}
	return Again, max(wait, c.hold.suspect)
}

// givenUp reports whether another heed Transport in Base already gave this request up.
func (a *Attempt) givenUp() bool {
	if a.Response == nil {
		var f *failure
		return errors.As(a.Err, &f) && f.retried
	}
	return wasGivenUp(a.Response, a.givenUps)
}

// limitOf names the setting behind a verdict. left is the one that limits the time left.
func limitOf(v Verdict, left string) string {
	switch v {
	case OutOfAttempts:
		return "RetryPolicy.MaxAttempts"
	case WaitTooLong:
		return limitMaxWait
	case OutOfTime:
		return left
	case OutOfBudget:
		return "Transport.Budget"
	case NotReplayable:
		return "RetryPolicy.MaxBodyBuffer"
	}
	return ""
}

// Worthwhile reports whether another attempt may do better than a. It is what RetryPolicy.If does
// if it is nil; call it in an If of your own to extend it:
//
//	policy.If = func(a heed.Attempt) bool {
//		return heed.Worthwhile(a) || a.Response != nil && a.Response.StatusCode == http.StatusConflict
//	}
//
// Worth a retry for every request, because the server has not acted on it:
//
//   - 429, 425, and with a hint also 403, 413, 418, 420, 430 and 529.
//   - Errors which prove that nothing was sent or that the server did not process the request: a
//     failed name look-up or dial, a proxy that answers CONNECT with 408, 429, 500, 502, 503 or 504
//     (if Base is an *http.Transport), a TLS handshake that took too long, a refused stream, a
//     connection whose GOAWAY excludes the request (RFC 9113 sections 6.8 and 8.7).
//
// Worth a retry for an idempotent request only:
//
//   - 408, 500, 502, 503, 504, and every 5xx that is not registered, such as Cloudflare's 520 to
//     526: it means the same as 500 (RFC 9110 section 15).
//   - Broken connections.
//
// Worth a retry also if it is not idempotent: what the vendor's own client sends again by default, such as a
// question to a language model (ratelimit.Profile.Repeats); but only once if it timed out, because the
// answer was probably paid for.
//
// A request is idempotent by its method (GET, HEAD, OPTIONS, TRACE, PUT and DELETE by RFC 9110
// section 9.2.2; PROPFIND, REPORT, SEARCH and QUERY by IANA's HTTP Method Registry), or if it has an
// Idempotency-Key, from the caller or from RetryPolicy.IdempotencyKey, or an X-Idempotency-Key.
//
// A Profile for the host may know better what a response means, and overrides these rules.
//
// A field may say that an SDK counts attempts, which it makes itself (X-Stainless-Retry-Count, Amz-Sdk-Request). Then
// the SDK repeats what failed. Worth a retry here is only what was not sent and, once, what was refused with a hint. As
// SDKs that repeat nothing send a count of 0, too, that alone counts only if an SDK has repeated a request to the host
// within the last hour.
//
// Never worth a retry:
//
//   - a response with X-Should-Retry: false or Stripe-Should-Retry: false
//   - the 504 of a cache to a request with Cache-Control: only-if-cached (RFC 9111 section 5.2.1.7)
//   - a name that does not exist, unless the host gave a good answer within ten minutes
//   - an invalid certificate, scheme or header, a malformed response
//   - an error that contains a response, such as that of an OAuth token endpoint
//   - an error that says so itself: by a method NonRetriable, or by Retryable or RetryableError
//     returning false
//   - an error of a request that the caller cancelled
func Worthwhile(a Attempt) bool { return a.worthwhile() }

func (a *Attempt) worthwhile() bool {
	switch {
	case a.Err != nil:
		return a.worthwhileError()
	case a.Response == nil || forbidsRetry(a.Response.Header) || a.meaning == ratelimit.Final || a.notCached():
		return false
	case a.sdkRepeats: // the SDK comes again; what it may not know is how long a refusal asks to wait
		return a.throttled() && a.hinted && a.Number <= 1
	case a.throttled(), a.Response.StatusCode == http.StatusTooEarly, a.vendorRepeats:
		return true
	case a.meaning == ratelimit.Retry:
		return !a.failedInBody() || a.idempotent() // in a body it is no request to try again
	}
	switch a.Response.StatusCode {
	case http.StatusRequestTimeout, http.StatusInternalServerError, http.StatusBadGateway,
		http.StatusServiceUnavailable, http.StatusGatewayTimeout:
		return a.idempotent()
	default:
		// net/http has no text for a code that is not registered. It means the same as 500.
		return a.Response.StatusCode/100 == 5 && http.StatusText(a.Response.StatusCode) == "" && a.idempotent()
	}
}

// onlyIdempotent reports whether another attempt would be worth it if the request were idempotent.
func (a *Attempt) onlyIdempotent() bool {
	b := *a
	b.hasKey = true
	return !a.worthwhile() && b.worthwhile()
}

func (a *Attempt) idempotent() bool { return a.hasKey || idempotent(a.Request) }

func (a *Attempt) worthwhileError() bool {
	if a.Request == nil || malformed(a.Request) || cancelled(a.Request) != nil ||
		finalError(a.Err) && !(a.known && noSuchName(a.Err)) {
		return false
	}
	return !a.sdkRepeats && (a.vendorRepeats || a.idempotent()) || notSent(a.Err)
}

// notCached reports whether a cache returned this 504 because it was not allowed to ask the server
// (RFC 9111 section 5.2.1.7).
func (a *Attempt) notCached() bool {
	return a.Response.StatusCode == http.StatusGatewayTimeout && a.Request != nil &&
		slices.ContainsFunc(a.Request.Header["Cache-Control"], func(line string) bool {
			return strings.Contains(strings.ToLower(line), "only-if-cached")
		})
}

// throttled reports whether the server refused the request because of a limit, and so did not act
// on it. A 403 from a cache was the answer to another request.
func (a *Attempt) throttled() bool {
	if a.Response == nil {
		return false
	}
	switch a.meaning {
	case ratelimit.Limited:
		return true
	case ratelimit.Retry, ratelimit.Final:
		return false
	}
	switch a.Response.StatusCode {
	case http.StatusTooManyRequests:
		return true
	case http.StatusForbidden, http.StatusRequestEntityTooLarge, http.StatusTeapot, 420, 430, 529:
		if ratelimit.FromCache(a.Response.Header) {
			return false
		}
		if !a.hintRead {
			_, ok := RetryAfter(a.Response, time.Time{})
			return ok
		}
		return a.hinted
	}
	return false
}

// exhausted reports whether a quota is used up for so long that no retry waits for it.
func (a *Attempt) exhausted() bool {
	return a.Response != nil && a.meaning == ratelimit.Final &&
		(a.hint > 0 || a.Response.StatusCode == http.StatusTooManyRequests)
}

// good reports whether the server works and has capacity.
func (a *Attempt) good() bool {
	return a.Err == nil && a.Response != nil && a.Response.StatusCode < 500 && !a.throttled() && !a.exhausted() &&
		!a.failedInBody()
}

// failedInBody reports whether the server failed although the status says that it did not.
func (a *Attempt) failedInBody() bool {
	return a.meaning == ratelimit.Retry && a.Response != nil && a.Response.StatusCode < 400
}

// hintedThrottle reports whether the server refused the request and said when to come back. The
// next attempt then costs no budget.
func (a *Attempt) hintedThrottle() bool { return a.throttled() && a.hint > 0 }

// forbidsRetry reports whether the server asks the client not to retry.
func forbidsRetry(h http.Header) bool {
	return isFalse(h["X-Should-Retry"]) || isFalse(h["Stripe-Should-Retry"])
}

func isFalse(values []string) bool { return len(values) > 0 && values[0] == "false" }

// malformed reports whether net/http would refuse to send req.
func malformed(req *http.Request) bool {
	return req.URL == nil || req.URL.Host == "" || req.Header == nil
}

// idempotent reports whether req may be sent again even if the server acted on it. Methods are
// case-sensitive. An empty Idempotency-Key is enough, as it is for net/http.
func idempotent(req *http.Request) bool {
	if req == nil {
		return false
	}
	switch req.Method {
	case "", http.MethodGet, http.MethodHead, http.MethodOptions, http.MethodTrace, http.MethodPut, http.MethodDelete,
		"PROPFIND", "REPORT", "SEARCH", "QUERY": // queries with a body (RFC 4918, 3253 and 5323)
		return true
	}
	_, ok := req.Header["Idempotency-Key"]
	_, x := req.Header["X-Idempotency-Key"]
	return ok || x
}

// cancelled returns an error if the caller has cancelled req.
func cancelled(req *http.Request) error {
	if ctx := req.Context(); ctx.Err() != nil {
		return contextError(ctx)
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

// cancelOf returns the channel that cancelled requests before contexts did. http.Client still sets
// it for its Timeout.
func cancelOf(req *http.Request) <-chan struct{} {
	//lint:ignore SA1019 callers that set it expect it to work
	return req.Cancel
}
