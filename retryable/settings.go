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
	// longestWait bounds the waits, unless RetryWaitMax is longer. A server that asks for more
	// has sent a point in time, or is mistaken.
	longestWait = 24 * time.Hour

	// bodyBuffer is how much heed keeps of a body without GetBody. go-retryablehttp has read
	// all of it into memory already, unless it is a file.
	bodyBuffer = 8 << 20
)

// policy returns p, its zero fields filled from c.
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

// backoff makes b one of heed's. DefaultBackoff has no jitter: here it gets one that keeps each
// wait between min and max.
func backoff(b retryablehttp.Backoff, min, max time.Duration) heed.Backoff {
	if b == nil || !same(b, retryablehttp.DefaultBackoff) {
		return Backoff(b, min, max)
	}
	first := max
	if min <= max/2 {
		first = 2 * min // EqualJitter waits for half of it at least
	}
	jittered := heed.EqualJitter(heed.Exponential(first, max))
	return func(a heed.Attempt) time.Duration { return clamp(jittered(a), min, max) }
}

// clamp returns d between least and most, or most if that is less than least.
func clamp(d, least, most time.Duration) time.Duration { return min(max(d, least), most) }

// worthwhile returns c's CheckRetry as an If, or nil if c has none. One difference stays: what
// the server may have acted upon is not repeated.
func (i *installed) worthwhile() func(heed.Attempt) bool {
	if i.check == nil {
		return nil
	}
	usual := same(i.check, retryablehttp.DefaultRetryPolicy) || same(i.check, retryablehttp.ErrorPropagatedRetryPolicy)
	return func(a heed.Attempt) bool {
		again, err := ask(i.check, a)
		get := a
		get.Request = &http.Request{Method: http.MethodGet}
		allowed := repeatable(get) // unless the server objects
		worth := heed.Worthwhile(a)
		switch {
		case worth:
			worth = again || usual
		case usual:
			worth = again && a.Err == nil && repeatable(a)
		default:
			worth = again && (repeatable(a) || allowed && answeredBelow500(a))
		}
		if c := callOf(contextOf(a.Request)); c != nil {
			c.asked, c.again, c.checkErr = true, again, err
			c.unsafe = again && !worth && allowed && a.Response != nil
		}
		return worth
	}
}

// repeatable reports that heed would repeat a's request after a 503: the server may act upon
// it twice, and does not object to a retry.
func repeatable(a heed.Attempt) bool {
	unavailable := &http.Response{StatusCode: http.StatusServiceUnavailable, Header: http.Header{}}
	if a.Response != nil {
		unavailable.Header = a.Response.Header
	}
	a.Response, a.Err = unavailable, nil
	return heed.Worthwhile(a)
}

// answeredBelow500 reports that the server says what became of the request.
func answeredBelow500(a heed.Attempt) bool {
	return a.Response != nil && a.Response.StatusCode < 500 && a.Response.StatusCode != http.StatusRequestTimeout
}
