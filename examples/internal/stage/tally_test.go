package stage

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
)

func TestATallyCountsTheLog(t *testing.T) {
	got := TallyOf(fixedLog())
	assert.Equal(t, Tally{
		Begun: 2, Done: 2, Requests: 5, Refused: 3, Took: 2501 * time.Millisecond,
		Seconds: []Second{{1, 3}, {0, 0}, {1, 0}},
	}, got)
	assert.Equal(t, 3, got.Wasted())
	assert.Equal(t, 60, got.WastedPercent())
	assert.Equal(t, 1.5, got.RetriesPerJob())
	assert.Equal(t, 4, got.Busiest())
}

func TestATallyOfNothingIsZero(t *testing.T) {
	got := TallyOf(nil)
	assert.Equal(t, Tally{}, got)
	assert.Zero(t, got.WastedPercent())
	assert.Zero(t, got.RetriesPerJob())
}

func TestAJobThatIsDoneTwiceIsOneJobAndAWastedRequest(t *testing.T) {
	got := TallyOf([]Arrival{seen(0, "a", 200), seen(0, "a", 200)})
	assert.Equal(t, 1, got.Done)
	assert.Equal(t, 1, got.Wasted())
}

func TestARequestWithoutAnAnswerIsNoJob(t *testing.T) {
	got := TallyOf([]Arrival{{Job: "a", At: noon}})
	assert.Equal(t, Tally{Begun: 1, Requests: 1, Seconds: []Second{{0, 1}}}, got)
}
