package main

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/heedhttp/heed/examples/internal/stage"
	"github.com/heedhttp/heed/internal/redistest"
	"github.com/heedhttp/heed/internal/testenv"
)

// TestMain lets the tests start processes from the test binary.
func TestMain(m *testing.M) {
	stage.Obey[order]()
	os.Exit(m.Run())
}

func TestAFleetKeepsToTheLimitAndOne429StopsAllOfIt(t *testing.T) {
	lasting := 1200 * time.Millisecond
	if testenv.Long() {
		lasting = 6 * time.Second
	}
	var out bytes.Buffer
	start := time.Now()
	store := redistest.Start(t)
	r, err := perform(t.Context(), stage.NewScreen(&out), store.Addr, lasting)
	require.NoError(t, err)
	keys, err := store.Do("DBSIZE")
	require.NoError(t, err)
	assert.NotEqual(t, "0", keys, "it is Redis that they share")
	p := newReport(r)
	err = p.write(&out)
	assert.Contains(t, out.String(), "Jain's index of fairness is ")

	assert.Equal(t, p.Begun, p.Done, "no job is lost")
	assert.Equal(t, p.Done+p.Refused, p.Requests, "none is done twice")
	assert.Zero(t, p.Throttled+p.Failed)
	require.NotNil(t, p.told, "at half-time")
	assert.GreaterOrEqual(t, again(p).Sub(p.told.At), coolDown)
	assertPace(t, p, start)
	if p.Degraded == 0 { // or else each had its share meanwhile
		assert.NoError(t, err, out.String())
		assert.Equal(t, 1, p.Refused, "at half-time, and never else")
	}
	if testenv.Long() {
		judge(t, p)
	}
}

// assertPace asserts that all keep to one pace, from start on, however late what they
// send arrives. While Redis does not answer in time, as it may on a busy machine, each
// has its share of a second one.
func assertPace(t *testing.T, p *report, start time.Time) {
	paces, bursts := 1.0, 1.0
	if p.Degraded > 0 {
		paces, bursts = 2, 1+processes
	}
	for i, a := range p.Log {
		if assert.LessOrEqual(t, float64(i+1), bursts+paces*limit*(a.At.Sub(start)+skew).Seconds(), "%v after the start", a.At.Sub(start)) {
			continue
		}
		return
	}
}

// skew is what the clock of Redis, which may be set, may be ahead of this process's.
const skew = 100 * time.Millisecond

// again is when the job that was refused came again.
func again(p *report) (at time.Time) {
	for _, a := range p.Log {
		if a.Job == p.told.Job {
			at = a.At
		}
	}
	return at
}

// judge measures how soon all have heard of a 429, which takes them up to 150 ms and
// what a busy machine adds, and how fairly they share.
func judge(t *testing.T, p *report) {
	const busy = 500 * time.Millisecond
	assert.LessOrEqual(t, p.wentOn, 150*time.Millisecond+busy)
	assert.GreaterOrEqual(t, p.wentOn+p.quiet, coolDown)
	assert.Zero(t, between(p, 150*time.Millisecond+busy, coolDown))
	assert.Positive(t, between(p, coolDown, coolDown+2*time.Second), "then they go on")
	assert.Greater(t, jain(p.served[:]), 0.9)
}

// between is how many requests came so long after the 429.
func between(p *report, from, to time.Duration) (n int) {
	for _, a := range p.Log {
		if after := a.At.Sub(p.told.Answered); from <= after && after < to {
			n++
		}
	}
	return n
}

func TestJainsIndexIsOneIfAllAreAlike(t *testing.T) {
	assert.Equal(t, 1.0, jain([]int{5, 5, 5, 5}))
	assert.Equal(t, 0.25, jain([]int{0, 0, 9, 0}))
	assert.InDelta(t, 0.9, jain([]int{1, 2}), 1e-9)
	assert.Zero(t, jain([]int{0, 0}))
}

var noon = time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC)

// seen is a request of process i, a millisecond before its answer.
func seen(at time.Duration, i, status int) stage.Arrival {
	job := fmt.Sprint("/jobs/", i*plenty+1)
	return stage.Arrival{Job: job, At: noon.Add(at), Status: status, Answered: noon.Add(at + time.Millisecond)}
}

func TestAReportSaysHowLongTheOthersWentOn(t *testing.T) {
	const ms = time.Millisecond
	p := newReport(stage.Result{Log: []stage.Arrival{
		seen(0, 0, 200), seen(10*ms, 1, 200), seen(20*ms, 2, 429), seen(21*ms, 0, 200), seen(91*ms, 3, 200),
		seen(2091*ms, 2, 200), seen(9000*ms, 2, 200),
	}})
	assert.Equal(t, [processes]int{2, 1, 2, 1}, p.served)
	assert.Equal(t, 2, process(p.told))
	assert.Equal(t, 70*ms, p.wentOn)
	assert.Equal(t, 2000*ms, p.quiet)
}

func TestWhatMustNotBeIsAnError(t *testing.T) {
	twice := stage.Tally{Begun: 2, Done: 2, Refused: 2}
	assert.EqualError(t, newReport(stage.Result{Tally: twice, Jobs: 2}).write(io.Discard),
		"2 requests were refused, and not the one of half-time alone")
	lost := stage.Result{Part: stage.Part{Name: "fleet"}, Tally: stage.Tally{Done: 1, Refused: 1}, Jobs: 2}
	assert.EqualError(t, newReport(lost).write(io.Discard), "fleet: 1 job was not done")
}

func TestWithoutARedisNothingBegins(t *testing.T) {
	err := run(t.Context(), stage.NewScreen(io.Discard), "127.0.0.1:1", time.Second)
	assert.ErrorContains(t, err, "-redis 127.0.0.1:1: no Redis answers there: ")
}
