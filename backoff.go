package heed

import (
	"errors"
	"time"

	"github.com/heedhttp/heed/internal/cool"
)

// A Backoff returns the wait after attempt a. Use one of this package, or write one:
//
//	policy.Backoff = heed.EqualJitter(heed.Exponential(100*time.Millisecond, 10*time.Second))
//
// It must be safe for concurrent use. A negative wait counts as zero.
type Backoff func(a Attempt) time.Duration

// defaultBackoff is the Backoff of the zero RetryPolicy. No server asked for this wait, so it
// should not end the call: it stays within MaxWait, unless that forbids waiting, and within half of
// the time left, so that the next attempt has some.
func defaultBackoff(a *Attempt, maxWait, left time.Duration) time.Duration {
	n := max(1, a.sentTimes)
	edge, least := Exponential(firstBackoff(a), longestBackoff)(Attempt{Number: n}), time.Duration(0)
	if a.nobodyReached && n > 1 && !a.throttled() {
		// Nobody has reached the host since the call began: what is left of it must last for a restart.
		edge = max(edge, min(secondAlone<<(3*min(n-2, 8)), longestBackoff))
		least = edge / 2
	}
	limit := left / 2
	if timeout := (*timeoutError)(nil); errors.As(a.Err, &timeout) && timeout.split {
		limit = left / 8 // the attempt took long already, and each next one has half of the rest
	}
	if maxWait > 0 {
		limit = min(limit, maxWait)
	}
	edge, least = min(edge, limit), min(least, limit/2)
	return least + uniform(edge-least)
}

const (
	firstFailed    = 50 * time.Millisecond
	secondAlone    = 250 * time.Millisecond // eight times as long after each further attempt
	firstThrottled = time.Second
	longestBackoff = 30 * time.Second
)

// firstBackoff is the upper end of the first backoff. A failure that came quickly may be over soon.
// Most limits are counted by the second. A server that was slow or did not answer is overloaded,
// and an early retry adds to the load.
func firstBackoff(a *Attempt) time.Duration {
	if a.throttled() {
		return firstThrottled
	}
	return max(firstFailed, double(a.Took))
}

// Exponential doubles the wait after each attempt: it is base·2^(n-1) after the n-th, at most max.
// It does not overflow. Put FullJitter or EqualJitter around it, or all clients that failed
// together return together.
func Exponential(base, max time.Duration) Backoff {
	return func(a Attempt) time.Duration {
		wait := base
		for n := 1; n < a.Number && 0 < wait && wait < max; n++ {
			wait = double(wait)
		}
		return min(wait, max)
	}
}

// double returns 2·d, or the longest Duration instead of overflowing.
func double(d time.Duration) time.Duration {
	if d > maxDuration/2 {
		return maxDuration
	}
	return 2 * d
}

// FullJitter draws the wait from [0, b(a)]. It spreads clients best, but some retry at once. See
// "Exponential Backoff And Jitter", AWS Architecture Blog, 2015.
func FullJitter(b Backoff) Backoff {
	return func(a Attempt) time.Duration { return uniform(b(a)) }
}

// EqualJitter draws the wait from [b(a)/2, b(a)]. It spreads clients less than FullJitter, but none
// retries at once.
func EqualJitter(b Backoff) Backoff {
	return func(a Attempt) time.Duration {
		wait := max(0, b(a))
		return wait - uniform(wait/2)
	}
}

// Decorrelated draws the wait from [base, 3·w], at most max, where w is the wait before the
// attempt, or base for the first one. It grows with the real waits, a server's hints included, and
// needs no other jitter.
func Decorrelated(base, max time.Duration) Backoff {
	return func(a Attempt) time.Duration {
		least := min(base, max)
		most := min(triple(a.Waited), max)
		if a.Waited < base {
			most = min(triple(base), max)
		}
		return least + uniform(most-least)
	}
}

func triple(d time.Duration) time.Duration {
	if d > maxDuration/3 {
		return maxDuration
	}
	return 3 * d
}

const maxDuration = time.Duration(1<<63 - 1)

// uniform draws from [0, d]. It returns 0 if d is not positive.
func uniform(d time.Duration) time.Duration { return cool.Uniform(d) }
