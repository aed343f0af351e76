package adaptive_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/heedhttp/heed/internal/adaptive"
)

// A concurrency is a search with a clock that counts seconds from a start.
type concurrency struct {
	t *testing.T
	adaptive.Concurrency
}

var beginning = time.Unix(1e9, 0)

func second(s float64) time.Time { return beginning.Add(time.Duration(s * float64(time.Second))) }

func (c *concurrency) raised(at float64, want int64) {
	c.t.Helper()
	c.Raise(second(at))
	assert.Equal(c.t, want, c.Limit, "at %v", at)
}

func (c *concurrency) refused(beside int64, sent, at float64, want int64) {
	c.t.Helper()
	c.Refuse(beside, second(sent), second(at))
	assert.Equal(c.t, want, c.Limit, "at %v", at)
}

func (c *concurrency) answered(n int, inFlight int64, sent, at float64) {
	for range n {
		c.Answer(inFlight, second(sent), second(at))
	}
}

func TestAConcurrencyFallsAndComesBack(t *testing.T) {
	c := &concurrency{t, adaptive.Concurrency{Limit: adaptive.FirstConcurrency}}
	c.raised(0, 11)
	c.raised(0.9, 11)
	c.raised(1, 12)
	c.refused(11, 1, 1.1, 11)
	c.refused(11, 1, 1.1, 11) // nothing new
	c.refused(10, 1, 1.1, 10) // of the same burst
	c.refused(0, 2, 2, 10)    // it was alone
	c.answered(1, 12, 0.5, 3) // sent before the fall
	c.answered(98, 10, 2, 4)
	c.raised(100, 10)
	c.answered(1, 10, 2, 101)
	c.raised(101, 11) // a hundred answers later

	c.answered(1, 11, 101, 101.2) // by chance: another had just ended
	c.refused(10, 101, 101.5, 10)
	c.raised(300, 10) // so it is not what it was lately
	c.answered(100, 10, 200, 300)

	c.refused(9, 301, 301, 9)
	c.refused(8, 302, 302, 6) // again, before any good answer
	c.refused(5, 303, 303, 4)
	c.answered(1, 4, 304, 304)
	c.refused(3, 305, 305, 3) // a good answer came before
	c.answered(1, 3, 306, 306)
	c.raised(328.9, 3)
	for at, want := range []int64{4, 5, 6, 7, 8, 9, 10, 10, 10} { // it rests at what it was
		c.raised(329+float64(at), want)
	}
	c.answered(100, 10, 330, 340)
	c.raised(340, 11)
	c.raised(341, 12)

	c.refused(4, 342, 342, 4)
	c.answered(1, 4, 343, 645) // more than five minutes later it is what it was
	c.raised(646, 4)
	c.answered(99, 4, 343, 646)
	c.raised(647, 5)
}

func TestARaiseLastsTwiceAsLongAsARefusal(t *testing.T) {
	for took, lasts := range map[float64]float64{0.1: 1, 3: 6, 60: 30} {
		c := &concurrency{t, adaptive.Concurrency{Limit: 100}}
		c.refused(63, 0, took, 63)
		c.answered(100, 50, took+1, took+2)
		c.raised(took+30, 64)
		c.raised(took+30+lasts-0.1, 64)
		c.raised(took+30+lasts, 68) // a sixteenth
	}
}

func TestAFewRequestsInTwoSecondsAreSlow(t *testing.T) {
	c := &concurrency{t, adaptive.Concurrency{}}
	for _, at := range []float64{0, 0.9, 1, 1.9} {
		c.Send(second(at))
	}
	assert.True(t, c.Slow(2))
	assert.False(t, c.Slow(1))
	c.Send(second(2)) // those of the first second are forgotten
	c.Send(second(2))
	assert.True(t, c.Slow(2))
	c.Send(second(9))
	assert.True(t, c.Slow(1))
}
