package adaptive

import "time"

// FirstConcurrency is the Limit with which to begin. If a server that allows less gets such a burst, its
// refusals tell at once what it allows.
const FirstConcurrency = 10

// A server that refuses a request does so at once. So a raise of the limit is accepted if no refusal
// comes within this time, or within twice the time that the last refusal took.
const (
	shortestRaise = time.Second
	longestRaise  = 30 * time.Second
)

// A limit that was higher lately is likely to come back, so that is tried some time after a fall.
// Otherwise a raise, which may be refused, is tried once in a hundred answers.
const (
	raiseAfter      = 24 * time.Second
	lately          = 5 * time.Minute
	answersPerRaise = 100
)

// A Concurrency searches for the number of requests that a server allows in flight at a time, but does
// not announce. If a request is refused that was sent beside others, the limit falls to their number.
// If a later one is refused before any is answered well, the server probably allows far less, and the
// limit falls to three quarters of the number.
//
// Some time later the limit rises by one, and, while that is accepted, by a sixteenth each second. It
// rests at what the server accepted lately.
//
// A Concurrency has no clock and delays nothing: the caller passes the time, and keeps to Limit. It is
// not safe for concurrent use.
type Concurrency struct {
	Limit int64

	resting  bool          // the limit does not rise every second
	raiseAt  time.Time     // it does not rise before
	raise    time.Duration // how long it takes to accept a raise; if 0, shortestRaise
	answered int           // requests that were answered well since the rest began

	fell    time.Time // when the limit last fell
	falling bool      // no request that was sent after that was answered well

	held   int64     // the most that were in flight when one of them was sent and answered well
	heldAt time.Time // when that was

	second       time.Time // when the current second began
	sent, before int64     // how many requests were sent in it, and in the second before
}

// Send counts a request that is sent.
func (c *Concurrency) Send(now time.Time) {
	switch past := now.Sub(c.second); {
	case past >= 2*time.Second:
		c.second, c.sent, c.before = now, 0, 0
	case past >= time.Second:
		c.second, c.sent, c.before = c.second.Add(time.Second), 0, c.sent
	}
	c.sent++
}

// Slow reports whether so few requests were sent in the last two seconds that those in flight must take
// a second or more. A refusal then hardly comes from a limit of the rate.
func (c *Concurrency) Slow(inFlight int64) bool { return c.before+c.sent <= 2*inFlight }

// Refuse counts the refusal of a request that was sent beside so many others.
func (c *Concurrency) Refuse(beside int64, sent, now time.Time) {
	if beside == 0 || beside >= c.Limit {
		return // it says nothing about others, or nothing new
	}
	if beside+1 >= c.held && !c.resting && now.Before(c.raiseAt) {
		c.held = beside // it was answered by chance, because another request had just ended
	}
	c.Limit = beside
	if c.falling && sent.After(c.fell) {
		c.Limit -= max(0, beside-2) / 3
	}
	c.fell, c.falling = now, true
	c.raise = min(max(2*now.Sub(sent), shortestRaise), longestRaise)
	c.rest(now.Add(raiseAfter))
}

func (c *Concurrency) rest(until time.Time) { c.resting, c.answered, c.raiseAt = true, 0, until }

// Answer counts a good answer to a request that was the last of so many in flight when it was sent.
func (c *Concurrency) Answer(inFlight int64, sent, now time.Time) {
	c.answered++
	if !sent.After(c.fell) {
		return
	}
	c.falling = false
	if inFlight >= c.held || now.Sub(c.heldAt) > lately {
		c.held, c.heldAt = inFlight, now
	}
}

// Raise raises the limit if it is time. Call it when the limit is used up and another request waits.
func (c *Concurrency) Raise(now time.Time) {
	below := c.Limit < c.held && now.Sub(c.heldAt) <= lately
	if now.Before(c.raiseAt) || c.resting && !below && c.answered < answersPerRaise {
		return
	}
	step := int64(1)
	if !c.resting {
		step = max(step, c.Limit/16)
	}
	c.Limit += step
	c.resting, c.falling, c.raiseAt = false, false, now.Add(max(c.raise, shortestRaise))
	if below && c.Limit >= c.held {
		c.Limit = c.held
		c.rest(c.raiseAt)
	}
}
