package heed

import (
	"context"
	"net/http"
	"time"

	"github.com/heedhttp/heed/ratelimit"
)

// A RetryPolicy says which attempts are worth repeating, when, and for how
// long. The zero RetryPolicy is a careful one. A policy must not change while
// it is in use.
type RetryPolicy struct {
	// MaxAttempts bounds the attempts of one request, the first included.
	// If zero, 4; if one or negative, nothing is retried.
	MaxAttempts int

	// If reports whether another attempt may do better than a. If nil,
	// Worthwhile.
	If func(a Attempt) bool

	// Hint reports how long the server asks the client to wait, counted from
	// now. If nil, the Profile that serves the request's host, or else
	// RetryAfter; they are asked of statuses from 400 on, and of those that the
	// Profile suspects. It must leave the response's Body as it was.
	Hint func(resp *http.Response, now time.Time) (time.Duration, bool)

	// Profiles say what the responses of certain vendors mean: the first that
	// serves the request's host. What it takes for a limit's is treated as a 429,
	// whatever its status. It may have to read the beginning of a body, which the
	// caller still gets whole. If there is none, statuses and header fields say it
	// all. See ratelimit.Vendors.
	Profiles []*ratelimit.Profile

	// Backoff is the wait after an attempt whose response says nothing, and
	// the least wait after one that does. If nil, FullJitter(Exponential(base,
	// 30*time.Second)) with a base of a second after a throttle, and otherwise of
	// 50 ms or twice what the attempt took, if that is more; but drawn within MaxWait,
	// and within half of the time that is left before the deadline and within MaxElapsed.
	Backoff Backoff

	// MaxWait is the longest wait before an attempt: for a cool-down, the line after it
	// and the Pacer together; and as much before that for a hint or the backoff. A longer
	// one is never shortened: the response is returned at once, or an *OverdueError if
	// there is none. Only the jitter window after a hint, ten seconds at most, comes on top.
	// If zero, 1 minute; if negative, there is no waiting at all.
	MaxWait time.Duration

	// MaxElapsed bounds all attempts and waits of one RoundTrip. It is checked
	// like a deadline, before each wait. If zero, 5 minutes; if negative, there
	// is no such bound.
	MaxElapsed time.Duration

	// AttemptTimeout bounds each attempt, up to the end of its response's
	// header: a body may stream for longer. If zero or negative, there is no
	// such bound.
	AttemptTimeout time.Duration

	// MaxBodyBuffer is how many bytes of a request body without GetBody are
	// kept for replay, as they are sent. If zero or negative, none: such a
	// request is repeated only if nothing of its body was read.
	MaxBodyBuffer int64

	// IgnoreGetBody treats every body as one without GetBody. It is for
	// requests whose Body was replaced by something between the caller and the
	// Transport that left GetBody as it was: what that returns is not what was
	// sent.
	IgnoreGetBody bool

	// IdempotencyKey returns the Idempotency-Key of a request that is not idempotent
	// by its method and has none: with one it may be repeated after a failure as
	// well. It is asked once for each request, and the key is the same on
	// every attempt; if it is "", or if IdempotencyKey is nil, the request has none.
	// Set it, to RandomIdempotencyKey or a function of your own, where the server is
	// known to act upon each key once: others ignore it, and act upon each attempt.
	IdempotencyKey func(req *http.Request) string

	// TellServer has each attempt tell its number and how much time is left for it,
	// in the fields of ratelimit.Call: a server that reads them can refuse
	// repetitions before first attempts, and what it cannot answer in time.
	TellServer bool
}

// WithRetry returns a context in which p is the whole policy of a request,
// instead of the Transport's: what p leaves zero has its default, whatever the
// Transport's policy says. WithRetryFunc changes only a part. A redirect keeps it:
// http.Client gives the context of the first request to those that follow.
func WithRetry(ctx context.Context, p RetryPolicy) context.Context {
	return WithRetryFunc(ctx, func(RetryPolicy) RetryPolicy { return p })
}

// WithRetryFunc returns a context in which a request's policy is what change makes of the
// Transport's, or of that which ctx brings already: change is given a copy, is called once for
// each RoundTrip, and must be safe for concurrent use.
//
//	ctx = heed.WithRetryFunc(ctx, func(p heed.RetryPolicy) heed.RetryPolicy {
//		p.MaxAttempts = 2
//		return p
//	})
func WithRetryFunc(ctx context.Context, change func(RetryPolicy) RetryPolicy) context.Context {
	o := overridesOf(ctx)
	if before := o.retry; before != nil {
		o.retry = func(p RetryPolicy) RetryPolicy { return change(before(p)) }
	} else {
		o.retry = change
	}
	return context.WithValue(ctx, overridesKey{}, &o)
}

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

func (p *RetryPolicy) maxElapsed() time.Duration {
	switch {
	case p.MaxElapsed == 0:
		return 5 * time.Minute
	case p.MaxElapsed < 0:
		return maxDuration
	}
	return p.MaxElapsed
}

// rewinds reports whether req can give its body anew.
func (p *RetryPolicy) rewinds(req *http.Request) bool {
	return req.GetBody != nil && !p.IgnoreGetBody
}

// readHint asks for the server's hint, unless there is nobody to ask.
func (p *RetryPolicy) readHint(a *Attempt) {
	a.hintRead = true
	switch resp := a.Response; {
	case resp == nil:
	case len(p.Profiles) > 0 || p.Hint != nil:
		p.askProfile(a)
	case resp.StatusCode >= 400:
		a.hint, a.hinted = RetryAfter(resp, time.Time{})
	}
}

// askProfile asks the Profile of the response, if it has one, and Hint, which has the last
// word; if there is neither, RetryAfter.
func (p *RetryPolicy) askProfile(a *Attempt) {
	resp := a.Response
	if p.suspects(a.Request, resp) || resp.StatusCode >= 400 {
		if profile := p.profile(a.Request); profile != nil {
			answer := profile.Read(resp, time.Time{})
			a.means, a.hint, a.hinted = answer.Meaning, answer.Wait, answer.Known
			a.judged, a.all, a.own = true, answer.All, answer.Own
		} else if p.Hint == nil {
			a.hint, a.hinted = RetryAfter(resp, time.Time{})
		}
	}
	if p.Hint != nil {
		a.hint, a.hinted = p.Hint(resp, time.Now())
	}
	if a.hint = max(0, a.hint); !a.hinted {
		a.hint = 0
	}
}

// profile returns the first that serves req's host, or nil.
func (p *RetryPolicy) profile(req *http.Request) *ratelimit.Profile {
	if len(p.Profiles) == 0 || req.URL == nil {
		return nil
	}
	return ratelimit.For(req.URL.Host, p.Profiles)
}

// suspects reports whether a response below 400 may have to be repeated.
func (p *RetryPolicy) suspects(req *http.Request, resp *http.Response) bool {
	return len(p.Profiles) > 0 && resp.StatusCode < 400 && p.suspected(req, resp)
}

func (p *RetryPolicy) suspected(req *http.Request, resp *http.Response) bool {
	profile := p.profile(req)
	return profile != nil && profile.Suspects(resp.StatusCode, resp.Header)
}
