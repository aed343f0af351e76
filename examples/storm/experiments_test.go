package main

import (
	"net/http"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/heedhttp/heed"
	"github.com/heedhttp/heed/internal/lab"
	"github.com/heedhttp/heed/internal/testenv"
)

// spikes returns how many runs stay down, all calls, and how many requests they sent.
func spikes(t *testing.T, c client, runs int) (down int, all []lab.Call, sent int) {
	for seed := range uint64(runs) {
		log := spike(t, c, seed)
		all, sent = append(all, log.Calls...), sent+len(log.Attempts)
		if lab.StaysDown(log.Calls) {
			down++
		}
	}
	t.Logf("%s: %d of %d stay down, %.1f %% are lost", c.name, down, runs, 100*lab.ShareLost(all, 0))
	return down, all, sent
}

// What stays down without heed shows that the experiment can fail.
func TestHeedLetsTheServerRecoverAfterASpike(t *testing.T) {
	runs, most := 2, 0.03 // few runs differ more
	if testenv.Long() {
		runs, most = 80, 0.02
	}
	for _, c := range collapseClients {
		down, all, _ := spikes(t, c, runs)
		switch c.name {
		case "heed":
			assert.Zero(t, down)
			assert.LessOrEqual(t, lab.ShareLost(all, 0), most)
		case "no retries":
			assert.Zero(t, down)
		case "naive retry loop", "backoff and jitter":
			assert.Positive(t, down)
		}
	}
}

func TestHeedAddsLittleToAnOutageOfManyClients(t *testing.T) {
	published := []float64{1.105, 1.148, 1.532} // the article's code, run for 10, 100 and 1000 clients
	for i, n := range counts {
		o := outage{clients: n, gap: 10 * time.Millisecond, lasts: 5 * time.Minute, share: 1}
		perCall, lost := o.run(t, retriesClients[2])
		t.Logf("%d clients: %.3f requests a call", n, perCall)
		assert.Greater(t, perCall, 1.05, "some are retried")
		assert.LessOrEqual(t, perCall, 1.2)
		assert.EqualValues(t, 1, lost)

		o.lasts = 90 * time.Second
		perCall, _ = o.run(t, client{over: tokenBucket})
		assert.InDelta(t, published[i], perCall, 0.06)
	}
}

func TestHeedAddsLittleToAnOutageAfterAHealthyMinute(t *testing.T) {
	testenv.NeedLong(t)
	for _, n := range counts {
		o := outage{clients: n, gap: 10 * time.Millisecond, healthy: time.Minute, lasts: 5 * time.Minute, share: 1}
		perCall, _ := o.run(t, retriesClients[2])
		t.Logf("%d clients: %.3f requests a call", n, perCall)
		assert.LessOrEqual(t, perCall, 1.2)
	}
}

// The runs draw heed's backoff from their own random numbers, which can be seeded.
func TestTheBackoffOfTheRunsIsHeedsOwn(t *testing.T) {
	own := client{"heed itself", "", func(base http.RoundTripper, _ *lab.Random) http.RoundTripper {
		return &heed.Transport{Base: base, Retry: heed.RetryPolicy{MaxAttempts: 3}}
	}}
	_, itself, sentItself := spikes(t, own, 2)
	_, seeded, sentSeeded := spikes(t, collapseClients[len(collapseClients)-1], 2)
	require.Equal(t, len(itself), len(seeded), "the same calls")
	assert.InDelta(t, sentItself, sentSeeded, 0.02*float64(len(itself)))
	assert.InDelta(t, lab.ShareLost(itself, 0), lab.ShareLost(seeded, 0), 0.02)

	assert.Equal(t, 50*time.Millisecond, byDefault(heed.Attempt{Number: 1, Took: time.Millisecond}))
	assert.Equal(t, 12*time.Second, byDefault(heed.Attempt{Number: 2, Took: 3 * time.Second}))
}

// heed draws its own jitter where calls wait for a host that is down, so its line differs by a pixel.
func TestThePicturesInDocsAreOfTheseRuns(t *testing.T) {
	testenv.NeedLong(t)
	others := func(svg []byte) (lines []string) {
		for line := range strings.Lines(string(svg)) {
			if !strings.Contains(line, `class="ours" d=`) {
				lines = append(lines, line)
			}
		}
		return lines
	}
	for file, r := range map[string]report{"storm-retries.svg": retries(t), "storm-collapse.svg": collapse(t, 20)} {
		want, err := os.ReadFile("../../docs/" + file)
		require.NoError(t, err)
		assert.Equal(t, others(want), others(r.picture.SVG()), "go run ./examples/storm -svg docs")
	}
}
