package main

import (
	"bytes"
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/heedhttp/heed/examples/internal/chart"
	"github.com/heedhttp/heed/testserver"
)

// worked returns what the server counts of a way, in a bubble.
func worked(t *testing.T, w way) *counts {
	var counted counts
	synctest.Test(t, func(t *testing.T) {
		handler, err := counted.limited()
		require.NoError(t, err)
		srv := testserver.NewLimited(t, func(http.Handler) http.Handler { return handler })
		assert.Zero(t, w.work(srv.Transport(), srv.URL))
	})
	assert.Equal(t, jobs, counted.done)
	took := counted.latest.Sub(counted.first)
	assert.GreaterOrEqual(t, took, (jobs-limit)*time.Second/limit, "no client is faster than the limit")
	assert.Less(t, took, 10*time.Second)
	t.Logf("%s: %d refused, %v", w.name, counted.refused, took)
	return &counted
}

func TestHeedIsRefusedLittleAndWithAPaceNever(t *testing.T) {
	naive, heeded, paced := worked(t, ways[0]), worked(t, ways[1]), worked(t, ways[2])
	assert.Greater(t, naive.refused, 10*jobs)
	assert.Positive(t, heeded.refused)
	assert.LessOrEqual(t, heeded.refused, workers, "each worker once at most")
	assert.Zero(t, paced.refused)
}

func TestTheTableAndThePictureShowWhatTheServerCounted(t *testing.T) {
	began := time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC)
	servers := make([]counts, len(ways))
	servers[0] = counts{done: 40, refused: 500, first: began, latest: began.Add(2500 * time.Millisecond),
		seconds: []chart.Bar{{Good: 38, Bad: 500}, {}, {Good: 2}}}
	servers[1] = counts{done: 2, first: began, latest: began, seconds: []chart.Bar{{Good: 2}}}
	var out bytes.Buffer
	picture := draw(&out, servers)
	assert.Equal(t, `                   jobs done  requests  refused  requests a job  time
naive retry loop   40         540       500      13.50           2.5 s
heed               2          2         0        1.00            0.0 s
heed, shared pace  0          0         0        0.00            0.0 s
`, out.String())
	for i, p := range picture.Panels {
		assert.Equal(t, 600.0, p.Most, "one scale")
		assert.Equal(t, []float64{0, 1, 2, 3}, p.Ticks)
		assert.Equal(t, servers[i].seconds, p.Bars)
	}
	assert.Equal(t, "500", picture.Panels[0].Figure)
	assert.Equal(t, []chart.Kind{chart.Bad, chart.Ours}, []chart.Kind{picture.Panels[0].Kind, picture.Panels[1].Kind})
}
