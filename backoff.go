package heed

import (
	"math/rand/v2"
	"time"
)

// A Backoff is the wait after attempt a. It must be safe for concurrent use.
// A negative wait counts as zero.
type Backoff func(a Attempt) time.Duration

// defaultBackoff is the Backoff of the zero RetryPolicy. Nobody asked for this wait, so it
// ends no call: it is drawn within MaxWait, unless there is to be no waiting at all, and
// within half of the time that is left, which leaves some for the attempt.
func defaultBackoff(a *Attempt, maxWait, left time.Duration) time.Duration {
	edge := min(Exponential(firstBackoff(a), longestBackoff)(*a), left/2)
	if maxWait > 0 {
		edge = min(edge, maxWait)
	}
	return uniform(edge)
}

const (
	firstFailed    = 50 * time.Millisecond
	firstThrottled = time.Second
	longestBackoff = 30 * time.Second
)

// firstBackoff is the upper edge of the first backoff. A failure that came quickly may be
// over as quickly. A limit gives room by the second. A server that took long, or did not
// answer in time, is overloaded, and to come back sooner makes that worse.
func firstBackoff(a *Attempt) time.Duration {
	if a.throttled() {
		return firstThrottled
	}
	return max(firstFailed, double(a.Took))
}

// Exponential doubles the wait after each attempt: base·2^(n-1) after the n-th,
// at most max. It never overflows. All clients that failed together come back
// together unless a jitter is put around it.
func Exponential(base, max time.Duration) Backoff {
	return func(a Attempt) time.Duration {
		wait := base
		for n := 1; n < a.Number && 0 < wait && wait < max; n++ {
			wait = double(wait)
		}
		return min(wait, max)
	}
}

// double saturates instead of overflowing.
func double(d time.Duration) time.Duration {
	if d > maxDuration/2 {
		return maxDuration
	}
	return 2 * d
}

// FullJitter draws the wait from [0, b(a)]: the most spread, and no least wait.
// See "Exponential Backoff And Jitter", AWS Architecture Blog, 2015.
func FullJitter(b Backoff) Backoff {
	return func(a Attempt) time.Duration { return uniform(b(a)) }
}

// EqualJitter draws the wait from [b(a)/2, b(a)]: less spread than FullJitter,
// but never at once.
func EqualJitter(b Backoff) Backoff {
	return func(a Attempt) time.Duration {
		wait := max(0, b(a))
		return wait - uniform(wait/2)
	}
}

// Decorrelated draws the wait from [base, 3·w], at most max, where w is the
// wait before the attempt, base for the first. It grows by what was really
// waited, a server's hint included, and needs no jitter around it.
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

// uniform draws from [0, d]. It is 0 if d is not positive.
func uniform(d time.Duration) time.Duration {
	switch {
	case d <= 0:
		return 0
	case d == maxDuration:
		d--
	}
	return time.Duration(rand.Int64N(int64(d) + 1))
}
