package lab

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/heedhttp/heed"
)

func TestABubbleBeginsWithATenthOfABudget(t *testing.T) {
	for range 3 {
		time.Sleep(37 * time.Millisecond) // the process is older each time
		Run(t, func() {
			b := &heed.LocalBudget{Ratio: 1, MinPerSecond: -1}
			b.Deposit(context.Background(), "key")
			time.Sleep(10*time.Second - 2*time.Nanosecond)
			assert.Equal(t, 1.0, b.Balance("key"))
			time.Sleep(2 * time.Nanosecond)
			assert.Zero(t, b.Balance("key"))
		})
	}
}

func TestASeedGivesTheSameNumbers(t *testing.T) {
	a, b, other := newRandom(7, 1), newRandom(7, 1), newRandom(7, 2)
	assert.Equal(t, a.Wait(time.Second), b.Wait(time.Second))
	share := a.Share()
	assert.Equal(t, share, b.Share())
	assert.NotEqual(t, share, other.Share())
}

func TestShareLostIsTheShareOfLaterCalls(t *testing.T) {
	calls := []Call{{At: 1, OK: false}, {At: 2, OK: true}, {At: 3, OK: false}}
	assert.Equal(t, 0.5, ShareLost(calls, 2))
	assert.Zero(t, ShareLost(calls, 4))
}
