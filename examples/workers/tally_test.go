package main

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
)

func TestATallyCountsTheLog(t *testing.T) {
	got := tallyOf(fixedLog())
	assert.Equal(t, tally{
		begun: 2, done: 2, requests: 5, refused: 3, took: 2501 * time.Millisecond,
		seconds: []second{{1, 3}, {0, 0}, {1, 0}},
	}, got)
	assert.Equal(t, 3, got.wasted())
	assert.Equal(t, 60, got.wastedPercent())
	assert.Equal(t, 1.5, got.retriesPerJob())
	assert.Equal(t, 4, got.busiest())
}

func TestATallyOfNothingIsZero(t *testing.T) {
	got := tallyOf(nil)
	assert.Equal(t, tally{}, got)
	assert.Zero(t, got.wastedPercent())
	assert.Zero(t, got.retriesPerJob())
}

func TestAJobThatIsDoneTwiceIsOneJobAndAWastedRequest(t *testing.T) {
	got := tallyOf([]arrival{seen(0, "a", 200), seen(0, "a", 200)})
	assert.Equal(t, 1, got.done)
	assert.Equal(t, 1, got.wasted())
}

func TestARequestWithoutAnAnswerIsNoJob(t *testing.T) {
	got := tallyOf([]arrival{{job: "a", at: start}})
	assert.Equal(t, tally{begun: 1, requests: 1, seconds: []second{{0, 1}}}, got)
}
