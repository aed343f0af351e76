package heed

import "time"

// left is the time before the context's deadline, or within MaxElapsed if that
// is less; limit says which.
func (c *call) left(now time.Duration) (left time.Duration, limit string) {
	left = c.elapsedLeft(now)
	if deadline, ok := c.req.Context().Deadline(); ok {
		if d := time.Until(deadline); d <= left {
			return max(0, d), limitDeadline
		}
	}
	return left, limitMaxElapsed
}

// timeLeft is how long an attempt that is sent now may take; 0 if there is no bound.
func (c *call) timeLeft() time.Duration {
	left, _ := c.left(c.clock())
	if d := c.policy.AttemptTimeout; d > 0 {
		left = min(left, d)
	}
	if left > longestElapsed {
		return 0
	}
	return max(left, time.Millisecond)
}

// longestElapsed is more than any bound that is meant as one.
const longestElapsed = 1 << 31 * time.Second

func (c *call) elapsedLeft(now time.Duration) time.Duration {
	return max(0, c.policy.maxElapsed()-(now-c.start))
}

// pause waits before the next attempt. The wait for a cool-down is left to its
// lane, where the request keeps its place in line meanwhile.
func (c *call) pause(wait time.Duration) error {
	if c.open {
		c.open = false
		c.kept = keep(c.resp, &c.t.draining, c.stoppedTimer)
		c.still = c.still && (c.kept.live || c.resp.ContentLength == 0) // or its body was waited for
	}
	if c.cooling() >= wait-(c.clock()-c.ended) {
		wait = 0
	}
	if wait > 0 {
		wait += c.jitter(wait)
	}
	return c.sleep(c.ended+wait-c.clock(), nil)
}

// jitter is what comes on top of a hint. It leaves the attempt half of the time that
// is left after the wait.
func (c *call) jitter(wait time.Duration) time.Duration {
	if c.last.hint == 0 {
		return 0
	}
	left, _ := c.left(c.ended)
	return min(uniform(jitterWindow(c.last.hint)), max(0, left-wait)/2)
}

// sleep waits for d or until woken. It returns why the caller gave up.
func (c *call) sleep(d time.Duration, wake <-chan struct{}) error {
	if d <= 0 {
		return cancelled(c.req)
	}
	c.still = false
	c.stoppedTimer().Reset(d)
	select {
	case <-c.timer.C:
	case <-wake:
	case <-c.req.Context().Done():
	case <-cancelOf(c.req):
	}
	return cancelled(c.req)
}

// stoppedTimer is the one timer of all waits of the call.
func (c *call) stoppedTimer() *time.Timer {
	if c.timer == nil {
		c.timer = time.NewTimer(time.Hour)
		c.timer.Stop()
	}
	return c.timer
}
