package pace

import (
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// At any time, what came back is what was spent a window ago, but for what was spent
// in the time of a slot.
func TestWhatWasSpentComesBackAWindowLater(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 1))
	for _, window := range []time.Duration{time.Second, time.Minute, 17 * time.Hour} {
		var spent []time.Time
		s := slide{window: window}
		start := time.Unix(1e9, 0)
		now := start
		inWindow := func(from, to time.Time) (n float64) {
			for _, at := range spent {
				if !at.Before(from) && at.Before(to) {
					n++
				}
			}
			return n
		}
		for range 500 {
			now = now.Add(time.Duration(r.Int64N(int64(window) / 50)))
			s.spend(1, now)
			spent = append(spent, now)
			slot := s.slot()
			from, to := now, now.Add(time.Duration(r.Int64N(int64(window))))
			was := func(t time.Time, more time.Duration) time.Time { return t.Add(more - window) }
			require.LessOrEqual(t, s.returns(from, to), 1e-9+inWindow(was(from, -slot), was(to, slot)))
			require.GreaterOrEqual(t, s.returns(from, to), -1e-9+inWindow(was(from, slot), was(to, -slot)))
		}
		assert.Zero(t, s.returns(now.Add(window+s.slot()), now.Add(2*window)))
		s.spend(-500, now)
		assert.Less(t, s.returns(now, now.Add(window+s.slot())), 500.0)
	}
}

func TestWhatWasNotSpentAfterAllDoesNotComeBack(t *testing.T) {
	s, now := slide{window: time.Minute}, time.Unix(1e9, 0)
	later := now.Add(30 * time.Second)
	s.spend(5, now)
	s.spend(2, later)
	s.spend(-3, now)
	assert.InDelta(t, 2, s.returns(later, now.Add(time.Minute+s.slot())), 1e-9)
	s.spend(-9, later)
	assert.Zero(t, s.returns(now.Add(time.Minute+s.slot()), now.Add(2*time.Minute)), "there is no less than nothing")
}

func TestTheRateIsTheFastestThatDoesNotRunOut(t *testing.T) {
	now := time.Unix(1e9, 0)
	fresh := slide{window: time.Minute}
	assert.InDelta(t, 1, fresh.rate(60, now), 0.001, "what is left is spread over the window")
	assert.InDelta(t, 0, fresh.rate(0, now), 0)

	steady := slide{window: time.Minute}
	for range 120 {
		now = now.Add(500 * time.Millisecond)
		steady.spend(1, now)
	}
	assert.InDelta(t, 2, steady.rate(0, now), 0.1, "what was spent evenly can be again")
	assert.InDelta(t, 2.5, steady.rate(30, now), 0.1)

	burst := slide{window: time.Minute}
	burst.spend(60, now)
	now = now.Add(30 * time.Second)
	assert.InDelta(t, 0, burst.rate(0, now), 0, "nothing comes back for half a minute")
	assert.InDelta(t, 1, burst.rate(30, now), 0.05, "so what is left must do until then")
	assert.InDelta(t, 30, burst.wait(1, now).Seconds(), 1)
	assert.Equal(t, time.Minute, burst.wait(61, now))
}
