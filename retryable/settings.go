package retryable

import (
	"cmp"
	"math"
	"net/http"
	"time"

	"github.com/hashicorp/go-retryablehttp"

	"github.com/heedhttp/heed"
)

const (
	// longestWait is what no server means that is waited for: a longer Retry-After is an
	// epoch, or a mistake.
	longestWait = 24 * time.Hour

	// bodyBuffer is how much of a streamed body is kept. go-retryablehttp has read most of
	// them into memory before, whatever their size; a file it has not.
	bodyBuffer = 8 << 20
)

// policy is p, with what it leaves zero as c has it.
func (i *installed) policy(p heed.RetryPolicy) heed.RetryPolicy {
	p.MaxAttempts = cmp.Or(p.MaxAttempts, min(max(i.c.RetryMax, 0), math.MaxInt-1)+1)
	p.AttemptTimeout = cmp.Or(p.AttemptTimeout, max(i.http.Timeout, 0))
	p.MaxWait = cmp.Or(p.MaxWait, max(i.c.RetryWaitMax, longestWait))
	p.MaxElapsed = cmp.Or(p.MaxElapsed, -1)
	p.MaxBodyBuffer = cmp.Or(p.MaxBodyBuffer, bodyBuffer)
	if p.Backoff == nil {
		p.Backoff = backoff(i.c.Backoff, i.c.RetryWaitMin, i.c.RetryWaitMax)
	}
	if p.If == nil {
		p.If = i.worthwhile()
	}
	return p
}

// backoff is b between min and max. DefaultBackoff has no jitter: here it gets one that keeps
// each wait within the two.
func backoff(b retryablehttp.Backoff, min, max time.Duration) heed.Backoff {
	if b == nil || !same(b, retryablehttp.DefaultBackoff) {
		return Backoff(b, min, max)
	}
	first := max
	if min <= max/2 {
		first = 2 * min
	}
	jittered := heed.EqualJitter(heed.Exponential(first, max))
	return func(a heed.Attempt) time.Duration { return clamp(jittered(a), min, max) }
}

// clamp returns d between least and most, or most if that is less than least.
func clamp(d, least, most time.Duration) time.Duration { return min(max(d, least), most) }

// worthwhile is c's CheckRetry as an If, or nil if it has none. One difference stays: what
// the server may have acted upon is not repeated.
func (i *installed) worthwhile() func(heed.Attempt) bool {
	if i.check == nil {
		return nil
	}
	usual := same(i.check, retryablehttp.DefaultRetryPolicy) || same(i.check, retryablehttp.ErrorPropagatedRetryPolicy)
	return func(a heed.Attempt) bool {
		again, err := ask(i.check, a)
		worth := heed.Worthwhile(a)
		switch {
		case worth:
			worth = again || usual
		case usual:
			worth = again && a.Err == nil && mayRepeat(a)
		default:
			worth = again && (answeredBelow500(a) || mayRepeat(a))
		}
		if c := callOf(contextOf(a.Request)); c != nil {
			c.asked, c.again, c.checkErr = true, again, err
			c.unsafe = again && !worth && !mayRepeat(heed.Attempt{Request: a.Request})
		}
		return worth
	}
}

// answeredBelow500 reports that the server says what became of the request.
func answeredBelow500(a heed.Attempt) bool {
	return a.Response != nil && a.Response.StatusCode < 500 && a.Response.StatusCode != http.StatusRequestTimeout
}

// mayRepeat reports that a's request may be repeated although the server may have acted upon
// it, and that the server does not object: heed would repeat it after a 503.
func mayRepeat(a heed.Attempt) bool {
	unavailable := &http.Response{StatusCode: http.StatusServiceUnavailable, Header: http.Header{}}
	if a.Response != nil {
		unavailable.Header = a.Response.Header
	}
	a.Response, a.Err = unavailable, nil
	return heed.Worthwhile(a)
}
