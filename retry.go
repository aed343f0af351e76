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

// An Attempt is one sending of a request, and what came of it.
type Attempt struct {
	Number   int            // 1 for the first
	Request  *http.Request  // as the caller gave it
	Response *http.Response // nil if Err is not nil; leave its Body alone
	Err      error
	Took     time.Duration // of this attempt, without its waits
	Elapsed  time.Duration // since RoundTrip was called
	Waited   time.Duration // the wait between the attempt before and this one; 0 for the first
	Cause    Cause         // why the next attempt waits, once that is decided; 0 if there is none

	hintRead, hinted bool          // whether the policy's Hint was asked, and whether it knew
	keyed            bool          // it was sent with an Idempotency-Key of the call's own
	most             int32         // MaxAttempts
	givenUps         int64         // of all responses, before it was sent
	hint             time.Duration // what the policy's Hint said, not negative
	backoff          time.Duration // what its Backoff said, once it was asked
	limit            string        // the setting that the verdict comes from, or "deadline"; once there is one

	means  ratelimit.Meaning // what a Profile says of it
	judged bool              // whether there is one that was asked
	all    bool              // it says that the limit is one of all requests of the credential
	own    bool              // or that it is one of this request, and says nothing of others
}

// A Verdict is what follows from an attempt.
type Verdict int

const (
	Final         Verdict = iota // there is nothing to retry
	Again                        // another attempt follows
	OutOfAttempts                // MaxAttempts were made
	OutOfBudget                  // the Budget has no retry left
	OutOfTime                    // the wait does not end before the deadline, or within MaxElapsed, or WithDrain ends it
	WaitTooLong                  // the wait is longer than MaxWait
	NotReplayable                // the request's body cannot be sent again
)

var verdicts = [...]string{
	Final: "final", Again: "again", OutOfAttempts: "out of attempts", OutOfBudget: "out of budget",
	OutOfTime: "out of time", WaitTooLong: "wait too long", NotReplayable: "not replayable",
}

// String returns v in lower case, with spaces.
func (v Verdict) String() string {
	if v < 0 || int(v) >= len(verdicts) {
		return "unknown verdict"
	}
	return verdicts[v]
}

// circumstances are what a verdict depends on beside the attempt.
type circumstances struct {
	replayable bool
	cooling    time.Duration // what is left of the key's cool-down
	free       bool          // the retry waits for as long as the server, or the key's throttle, says
	left       time.Duration // before the deadline and within MaxElapsed
	withdraw   func() bool
}

// decide is the one place where it is decided whether another attempt follows one that is
// worth it. Its order matters: nothing is spent, and nothing is waited for, that another
// answer makes useless. wait is what the next attempt waits, or would have to.
func (p *RetryPolicy) decide(a *Attempt, c circumstances) (v Verdict, wait time.Duration) {
	a.backoff = p.backoff(a, c.left)
	wait = max(a.hint, a.backoff, c.cooling)
	switch {
	case a.Number >= p.maxAttempts():
		return OutOfAttempts, wait
	case !c.replayable:
		return NotReplayable, wait
	case wait > p.maxWait():
		return WaitTooLong, wait
	case wait >= c.left: // how long an attempt takes, the one before does not tell
		return OutOfTime, wait
	case !c.free && !c.withdraw():
		return OutOfBudget, wait
	}
	return Again, wait
}

// givenUp reports that a Transport in Base has retried as often as it could.
func (a *Attempt) givenUp() bool {
	if a.Response == nil {
		var f *failure
		return errors.As(a.Err, &f) && f.retried
	}
	return wasGivenUp(a.Response, a.givenUps)
}

// limitOf names what a verdict comes from; the wait did not fit into left.
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
		if !a.hintRead {
			_, ok := RetryAfter(a.Response, time.Time{})
			return ok
		}
		return a.hinted
	}
	return false
}

// hintedThrottle reports that the server named the time of the next attempt: that one
// costs no budget.
func (a *Attempt) hintedThrottle() bool { return a.throttled() && a.hint > 0 }

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
