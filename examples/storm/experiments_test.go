package main

import (
	"net/http"
	"os"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/heedhttp/heed"
	"github.com/heedhttp/heed/internal/testenv"
)

// The bounds of what heed does after a spike, and of what happens without it: otherwise the
// experiment would show nothing.
func TestNobodyKeepsTheServerDownThroughHeed(t *testing.T) {
	runs := 2
	if testenv.Long() {
		runs = 80
	}
	f := runCollapse(t, runs)
	require.Len(t, f.bounds, 2)
	assert.NoError(t, f.broken())
	down := map[string]string{}
	for _, row := range f.rows {
		t.Log(row)
		down[row[0]] = row[1][:1]
	}
	for _, name := range []string{"no retries", "heed"} {
		assert.Equal(t, "0", down[name], name)
	}
	for _, name := range []string{"naive retry loop", "backoff and jitter"} {
		assert.NotEqual(t, "0", down[name], name)
	}
}

func TestHeedAddsLittleToAnOutageHoweverManyClientsThereAre(t *testing.T) {
	bucket := []float64{1.105, 1.148, 1.532} // in the source's own language
	for i, n := range counts {
		o := outage{n, 10 * time.Millisecond, 0, 90 * time.Second, 1}
		perCall, lost := o.run(t, failureClients[2].client)
		t.Logf("%d clients: %.3f requests a call", n, perCall)
		assert.Greater(t, perCall, 1.05, "some are retried")
		assert.LessOrEqual(t, perCall, 1.25)
		assert.EqualValues(t, 1, lost)

		perCall, _ = o.run(t, client{"", tokenBucket})
		assert.InDelta(t, bucket[i], perCall, 0.06)
	}
}

func TestTheBoundsHoldInTheWholeExperiment(t *testing.T) {
	testenv.NeedLong(t)
	f := runFailures(t, 1)
	require.Len(t, f.bounds, 6)
	assert.NoError(t, f.broken())
	for _, row := range f.rows {
		t.Log(row)
	}
}

// The runs draw heed's backoff from their own random numbers. Left to itself it does the
// same.
func TestTheBackoffOfTheRunsIsHeedsOwn(t *testing.T) {
	own := client{"heed", func(base http.RoundTripper, _ *dice) http.RoundTripper {
		return &heed.Transport{Base: base, Retry: heed.RetryPolicy{MaxAttempts: 3}}
	}}
	var mine, theirs spike
	for seed := range uint64(2) {
		s := spikeOf(t, own, seed)
		assert.Less(t, s.lost(later), 0.5)
		mine.add(s)
		theirs.add(spikeOf(t, collapseClients[len(collapseClients)-1].client, seed))
	}
	assert.Equal(t, mine.begun, theirs.begun)
	assert.InDelta(t, float64(mine.sent), float64(theirs.sent), 0.02*float64(mine.calls(0)))
	assert.InDelta(t, mine.lost(0), theirs.lost(0), 0.02)

	assert.Equal(t, 50*time.Millisecond, byDefault(heed.Attempt{Number: 1, Took: time.Millisecond}))
	assert.Equal(t, 12*time.Second, byDefault(heed.Attempt{Number: 2, Took: 3 * time.Second}))
}

// The pictures in docs are those of the default.
func TestThePicturesInDocsAreDrawnFromTheseRuns(t *testing.T) {
	testenv.NeedLong(t)
	for _, e := range experiments {
		p := e.run(t, defaultRuns).picture
		want, err := os.ReadFile("../../docs/" + p.file)
		require.NoError(t, err)
		assert.Equal(t, string(want), string(p.svg()), "go run ./examples/storm -svg docs")
	}
}
