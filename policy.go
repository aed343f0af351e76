package heed

import (
	"context"
	"net/http"
	"time"

	"github.com/heedhttp/heed/internal/scope"
	"github.com/heedhttp/heed/ratelimit"
)

// A RetryPolicy says which requests are sent again, when, and for how long. Set only what should
// differ from the defaults:
//
//	heed.RetryPolicy{
//		MaxAttempts:    6,
//		MaxWait:        5 * time.Minute,  // obey a Retry-After of up to five minutes
//		MaxElapsed:     15 * time.Minute, // all attempts and waits together
//		AttemptTimeout: 10 * time.Second,
//	}
//
// The zero RetryPolicy makes at most four attempts, waits at most a minute before each, and ends
// after five minutes. Do not change a policy while it is in use.
type RetryPolicy struct {
	// MaxAttempts is the highest number of attempts for one request, the first included. Dials that
	// fail while the request may wait for its host (see MaxOutage) do not count. If zero, MaxAttempts
	// is 4; with 1 or less, nothing is retried.
	MaxAttempts int

	// If reports whether another attempt may do better than a. If nil, it is Worthwhile.
	If func(a Attempt) bool

	// Hint returns how long the server asks the client to wait from now on, and whether it asks at
	// all. It is called for every response, and must leave the response's Body as it was. If nil,
	// the Profile for the request's host answers, or RetryAfter if there is none; these two answer
	// only for statuses of 400 and above, and for others with which the vendor may refuse.
	Hint func(resp *http.Response, now time.Time) (time.Duration, bool)

	// Profiles know what the responses of certain vendors mean. The first one for the request's host is
	// used, or else a built-in one: those of ratelimit.Vendors are known without it. NoProfiles turns
	// all of them off. A response that the Profile calls a refusal is treated as a 429, whatever its
	// status. A Profile may read the beginning of a body; the caller still gets all of it. If it
	// has Events, a stream of events is returned when its first event is complete, but after 4 KiB or 100 ms
	// at the latest; a refusal in that event is retried as a 429 is. Without a Profile, only statuses and
	// header fields count.
	Profiles []*ratelimit.Profile

	// Backoff returns the wait after an attempt whose response has no hint, and the shortest wait
	// after one that has. If nil, it is FullJitter(Exponential(base, 30*time.Second)), where base
	// is one second after a refusal because of a limit, and otherwise 50 ms or twice the attempt's
	// duration, whichever is longer. If nobody has got a good answer from the host since the request
	// began, the second wait is at least 125 to 250 ms, and the third 1 to 2 s. This default stays
	// within MaxWait, and within half of the time until the deadline or the end of MaxElapsed.
	Backoff Backoff

	// MaxWait is the longest wait before an attempt. It limits the cool-down, its waiting line and
	// the Pacer together, and separately the hint or backoff before these. A wait that is longer is
	// not shortened: the last response is returned at once, or an *OverdueError if there is none.
	// The jitter after a hint, ten seconds at most, may exceed MaxWait. If zero, MaxWait is one
	// minute; if negative, requests never wait.
	MaxWait time.Duration

	// MaxOutage is how long a call waits for a host that is down: one of which nobody gets anything but
	// refused connections, failed look-ups, or a 502, 503 or 504 without a hint. Meanwhile one request
	// at a time finds out whether it is back. If it is not back in time, the call is sent nevertheless
	// if it never was, and what it gets is its result. If an outage lasts longer than half a minute,
	// calls that begin then wait for less: for MaxOutage less half of what it lasts longer. No call waits
	// longer than MaxWait, or until its deadline. A policy with a Backoff holds first attempts only. If
	// zero, MaxOutage is ten seconds; if negative, no call waits.
	MaxOutage time.Duration

	// MaxElapsed limits all attempts and waits of one RoundTrip together. It is checked before each
	// wait, as a deadline is. If zero, it is five minutes; if negative, there is no limit.
	MaxElapsed time.Duration

	// AttemptTimeout limits each attempt, until the response's header has arrived. Reading the body
	// may take longer; see IdleTimeout. If zero or negative, there is no limit, unless SplitDeadline sets one.
	AttemptTimeout time.Duration

	// SplitDeadline gives each attempt half of the time until the context's deadline (also that of
	// http.Client.Timeout), up to the response's header, and the last of MaxAttempts all that is left. So
	// there is time for another attempt if one hangs. After such a time-out the default Backoff waits for
	// at most an eighth of the rest. AttemptTimeout, if positive, takes precedence. Requests without an
	// idempotent method or an Idempotency-Key keep all their time.
	//
	// Its cost: a server that takes longer than half of the time is asked twice, and a call that it
	// would have answered just before the deadline may be lost.
	SplitDeadline bool

	// IdleTimeout is how long a response's body may send nothing. A Read that blocks for longer fails
	// with an error whose method Timeout returns true, and the attempt is cancelled; a caller who does
	// not read loses nothing. It suits streams, whose whole length no timeout should limit. The
	// response is not retried: the caller has it. If zero or negative, there is no limit.
	IdleTimeout time.Duration

	// MaxBodyBuffer is how many bytes of a request body without GetBody are kept for a retry. They
	// are copied while they are sent. If zero or negative, none are kept, and such a request is
	// sent again only if nothing of its body was read.
	MaxBodyBuffer int64

	// IgnoreGetBody treats each body as one without GetBody. Set it if something between the caller
	// and the Transport replaces Body but not GetBody, which then returns another body.
	IgnoreGetBody bool

	// IdempotencyKey returns the Idempotency-Key for a request that has none and whose method is
	// not idempotent. Such a request may then be retried after failures too. Set it only if the
	// server acts once for each key, to RandomIdempotencyKey or a function of your own: other
	// servers ignore the field and act on each attempt.
	//
	// The function is called once for each RoundTrip, and all attempts have the same key. If it
	// returns "", or is nil, the request gets no key.
	IdempotencyKey func(req *http.Request) string

	// TellServer adds the fields of ratelimit.Call to each attempt: its number, and how much time
	// is left for it. A server that reads them can refuse retries before first attempts, and
	// requests that it cannot answer in time.
	TellServer bool
}

// WithRetry returns a context whose requests use p instead of the Transport's policy. Fields that p
// leaves zero have their defaults, not the Transport's values: to change single fields, use
// WithRetryFunc. The policy also holds for redirects, which http.Client sends with the same
// context.
func WithRetry(ctx context.Context, p RetryPolicy) context.Context {
	return WithRetryFunc(ctx, func(RetryPolicy) RetryPolicy { return p })
}

// WithRetryFunc returns a context whose requests use a changed copy of the Transport's policy:
//
//	ctx = heed.WithRetryFunc(ctx, func(p heed.RetryPolicy) heed.RetryPolicy {
//		p.MaxAttempts = 2
//		return p
//	})
//
// If ctx already has a policy or a change, this one is applied to its result. The function is
// called once for each RoundTrip, and must be safe for concurrent use.
func WithRetryFunc(ctx context.Context, change func(RetryPolicy) RetryPolicy) context.Context {
	o := overridesOf(ctx)
	if before := o.retry; before != nil {
		o.retry = func(p RetryPolicy) RetryPolicy { return change(before(p)) }
	} else {
		o.retry = change
	}
	return context.WithValue(ctx, overridesKey{}, &o)
}

// NoProfiles, as RetryPolicy.Profiles, turns off what is known of vendors: only statuses and header fields
// count. Behind others, it turns off the built-in ones:
//
//	policy.Profiles = append([]*ratelimit.Profile{mine}, heed.NoProfiles...)
//
// Do not modify it.
var NoProfiles = []*ratelimit.Profile{scope.None}

func (p *RetryPolicy) worthwhile(a *Attempt) bool {
	if p.If != nil {
		return p.If(*a)
	}
	return a.worthwhile()
}

func (p *RetryPolicy) maxAttempts() int {
	if p.MaxAttempts == 0 {
		return 4
	}
	return max(1, p.MaxAttempts)
}

func (p *RetryPolicy) backoff(a *Attempt, left time.Duration) time.Duration {
	if p.Backoff == nil {
		return defaultBackoff(a, p.maxWait(), left)
	}
	return max(0, p.Backoff(*a))
}

func (p *RetryPolicy) maxWait() time.Duration {
	if p.MaxWait == 0 {
		return time.Minute
	}
	return max(0, p.MaxWait)
}

func (p *RetryPolicy) maxOutage() time.Duration {
	if p.MaxOutage == 0 {
		return 10 * time.Second
	}
	return max(0, p.MaxOutage)
}

func (p *RetryPolicy) maxElapsed() time.Duration {
	switch {
	case p.MaxElapsed == 0:
		return 5 * time.Minute
	case p.MaxElapsed < 0:
		return maxDuration
	}
	return p.MaxElapsed
}

// canRewind reports whether req.GetBody can be used.
func (p *RetryPolicy) canRewind(req *http.Request) bool {
	return req.GetBody != nil && !p.IgnoreGetBody
}

// readHint stores in a what its response means and asks for: by the host's Profile, if there is one, or
// RetryAfter. Hint, if set, overrides the wait.
func (p *RetryPolicy) readHint(a *Attempt, profile *ratelimit.Profile) {
	a.hintRead = true
	resp := a.Response
	switch {
	case resp == nil:
		return
	case profile != nil && (resp.StatusCode >= 400 || profile.Suspects(resp.StatusCode, resp.Header) ||
		profile.HasEvents(resp.StatusCode, resp.Header)):
		answer := readAnswer(profile, a)
		a.meaning, a.hint, a.hinted = answer.Meaning, answer.Wait, answer.Known
		a.accountWide, a.requestOnly = answer.All, answer.Own
		if a.meaning == ratelimit.Final && a.hinted && a.hint <= p.maxWait() {
			a.meaning = ratelimit.Limited // a quota of a day that is back soon
		}
	case p.Hint == nil && resp.StatusCode >= 400:
		a.hint, a.hinted = ratelimit.Wait(resp.StatusCode, resp.Header, time.Time{})
	}
	if p.Hint != nil {
		a.hint, a.hinted = p.Hint(resp, time.Now())
	}
	if a.hint = max(0, a.hint); !a.hinted {
		a.hint = 0
	}
}
