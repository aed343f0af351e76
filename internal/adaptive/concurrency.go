package adaptive

import "time"

// FirstConcurrency is where a search for a Concurrency should begin. When such a burst meets a lower
// limit, its refusals tell that limit at once.
const FirstConcurrency = 10

// A raise of the limit counts as accepted after this time without a refusal, because a server that
// refuses does so at once; or after twice the time that the last refusal took.
const (
	shortestRaise = time.Second
	longestRaise  = 30 * time.Second
)

// When to probe whether the server allows one more. A limit that was higher lately is likely to come
// back, so it is looked for soon. Otherwise there is one probe in a hundred requests.
const (
	probeAfter      = 25 * time.Second // a fall
	heldLately      = 5 * time.Minute
	answersPerProbe = 100
)

// A Concurrency searches for the number of requests that a server allows in flight at a time and does
// not announce. Each request is sent beside so many others. If it is refused, the server allows no more
// than those others. If a later one is refused as well before any is answered, the limit is probably
// far lower, and falls by a quarter each time.
//
// After a fall the limit rises by one. If that is accepted, it rises every second: halfway to what the
// server accepted before, and from there by an eighth.
//
// A Concurrency has no clock and delays nothing: the caller passes the time, and keeps to Limit, which
// it sets to FirstConcurrency at first. It is not safe for concurrent use.
type Concurrency struct {
	Limit int64

	paused   bool          // the limit no longer rises every second
	raiseAt  time.Time     // not before that
	raise    time.Duration // how long it takes until a raise counts as accepted
	answered int           // requests answered well since the pause began

	fell    time.Time // when the limit last fell
	falling bool      // no request that was sent after that was answered well

	held   int64     // the highest number in flight, with the request itself, that was answered well
	heldAt time.Time // when it last was

	second       time.Time // when the present second of sending began
	sent, before int64     // requests sent in it and in the one before
}

// Send counts a request.
func (c *Concurrency) Send(now time.Time) {
	switch past := now.Sub(c.second); {
	case past >= 2*time.Second:
		c.second, c.before, c.sent = now, 0, 0
	case past >= time.Second:
		c.second, c.before, c.sent = c.second.Add(time.Second), c.sent, 0
	}
	c.sent++
}

// Slow reports whether requests take so long that fewer were sent in the last second than are in
// flight. A refusal beside them then hardly comes from a limit of the rate.
func (c *Concurrency) Slow(beside int64) bool { return c.before+c.sent <= beside }

// Refuse counts the refusal of a request that was sent beside so many others.
func (c *Concurrency) Refuse(beside int64, sent, now time.Time) {
	if beside == 0 || beside >= c.Limit {
		return // it is not about others in flight, or nothing new
	}
	c.Limit = beside
	if c.falling && sent.After(c.fell) {
		c.Limit = beside - beside/4
	}
	c.fell, c.falling = now, true
	c.raise = min(max(shortestRaise, 2*now.Sub(sent)), longestRaise)
	c.pause(now.Add(probeAfter))
}

func (c *Concurrency) pause(until time.Time) { c.paused, c.answered, c.raiseAt = true, 0, until }

// Answer counts a good answer to a request that was one of so many in flight when it was sent.
func (c *Concurrency) Answer(inFlight int64, sent, now time.Time) {
	c.answered++
	if sent.After(c.fell) {
		c.falling = false
	}
	if inFlight >= c.held || now.Sub(c.heldAt) > heldLately {
		c.held, c.heldAt = inFlight, now
	}
}

// Raise raises the limit if it is time. Call it while requests wait although the limit is used up.
func (c *Concurrency) Raise(now time.Time) {
	below := now.Sub(c.heldAt) <= heldLately && c.Limit < c.held
	switch {
	case now.Before(c.raiseAt), c.paused && !below && c.answered < answersPerProbe:
		return
	case c.paused:
		c.Limit++
	case below:
		c.Limit += (c.held - c.Limit + 1) / 2
	default:
		c.Limit += max(1, c.Limit/8)
	}
	c.paused, c.falling, c.raiseAt = false, false, now.Add(max(c.raise, shortestRaise))
	if below && c.Limit >= c.held {
		c.pause(c.raiseAt)
	}
}
