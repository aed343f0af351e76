package main

import (
	"bytes"
	"errors"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/heedhttp/heed"
	"github.com/heedhttp/heed/examples/internal/stage"
	"github.com/heedhttp/heed/internal/redistest"
	"github.com/heedhttp/heed/internal/testenv"
	"github.com/heedhttp/heed/quota"
	"github.com/heedhttp/heed/testserver"
)

// small is the whole in a few seconds. There are fewer workers than the server admits at
// once: so who keeps to its limit is never refused, however late what he sends arrives.
var small = []string{"-workers", "12", "-jobs", "36", "-limit", "30", "-naive", "1m"}

const (
	jobs, limit = 36, 30

	// skew is what the clock of Redis, which may be set, may be ahead of this process's.
	skew = 100 * time.Millisecond
)

func parsed(t *testing.T, args ...string) *options {
	o, err := parse(append(small, args...), io.Discard)
	require.NoError(t, err)
	return o
}

func TestHeedDoesTheJobsWithoutTheStorm(t *testing.T) {
	t.Parallel()
	o := parsed(t)
	if testenv.Long() {
		o.limit = 15 // which makes more of a storm
	}
	s, out := plain()
	results, err := perform(t.Context(), o, s)
	require.NoError(t, err)
	require.NoError(t, verdict(s, results))
	assert.Contains(t, out.String(), "heed did all of its 72 jobs and handed none of them a 429.\n")
	require.Len(t, results, 3)
	storm, heeded, paced := results[0], results[1], results[2]
	for _, r := range results {
		assert.Equal(t, jobs, r.Done, r.Name)
		assert.Zero(t, r.Outcome, r.Name)
	}
	assert.Equal(t, jobs, paced.Requests)
	assertPaced(t, paced, heeded.Log[len(heeded.Log)-1].At, o.limit)
	if testenv.Long() { // how much of a storm there is, the machine decides
		assert.Greater(t, storm.Requests, 100)
		assert.Greater(t, heeded.Refused, 0)
		assert.Less(t, heeded.Requests, 2*jobs)
	}
}

// assertPaced asserts that what came after start came no faster than limit allows.
func assertPaced(t *testing.T, r stage.Result, start time.Time, limit int64) {
	for i, a := range r.Log {
		due := time.Duration(i) * time.Second / time.Duration(limit)
		require.GreaterOrEqual(t, a.At.Sub(start)+skew, due, "request %d", i)
	}
}

// The same in a bubble, where each machine is equally fast.
func TestHeedIsRefusedLittleAndWithABucketNever(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := stage.Load{Workers: 12, Jobs: jobs}
		heeded, paced := arrivals(t, l, &heed.Transport{}), arrivals(t, l, &heed.Transport{Pacer: bucket(&quota.Memory{}, limit)})
		assert.Greater(t, heeded.Refused, 0)
		assert.Less(t, heeded.Requests, 2*jobs)
		assert.Equal(t, jobs, paced.Requests)
		assert.InDelta(t, 35*time.Second/limit, paced.Took, float64(time.Millisecond))
	})
}

// arrivals is what a server sees of a load.
func arrivals(t *testing.T, l stage.Load, tr *heed.Transport) stage.Tally {
	limiter, err := stage.Limited(limit)
	require.NoError(t, err)
	srv := testserver.NewLimited(t, limiter)
	tr.Base = srv.Transport()
	assert.Zero(t, l.Do(t.Context(), stage.Get(&http.Client{Transport: tr}, srv.URL)))
	var log []stage.Arrival
	for _, r := range srv.Log() {
		log = append(log, stage.Arrival{Job: r.URL, At: r.Arrived, Status: r.Status, Answered: r.Arrived})
	}
	tally := stage.TallyOf(log)
	assert.Equal(t, l.Jobs, tally.Done)
	return tally
}

func TestSeveralProcessesShareOneBucketAndOneBudget(t *testing.T) {
	t.Parallel()
	store := redistest.Start(t)
	o := parsed(t, "-redis", store.Addr, "-processes", "3")
	s, out := plain()
	start := time.Now()
	together, err := play(t.Context(), parts(o)[2], o, s)
	require.NoError(t, err)
	require.NoError(t, verdict(s, []stage.Result{together}))
	assert.Contains(t, out.String(), "heed did all of its 36 jobs and handed none of them a 429.\n")
	assert.Equal(t, "heed, 3 processes", together.Name)
	assert.Equal(t, jobs, together.Done)
	if together.Degraded == 0 { // or else each had its share of a second rate meanwhile
		assert.Equal(t, jobs, together.Requests)
		assertPaced(t, together, start, o.limit)
	}
	budgets, err := store.Do("EVAL", "return #redis.call('KEYS', 'heed:budget:heed:workers:*')", "0")
	assert.NoError(t, err)
	assert.Equal(t, "1", budgets)
}

func TestProcessesThatLoseRedisKeepToTheirShares(t *testing.T) {
	t.Parallel()
	store := redistest.Start(t)
	o := parsed(t, "-redis", store.Addr, "-processes", "3")
	s, out := plain()
	begun := make(chan struct{})
	go func() {
		defer close(begun)
		for t.Context().Err() == nil {
			if n, err := store.Do("DBSIZE"); err == nil && n != "0" {
				store.Stop()
				return
			}
			time.Sleep(5 * time.Millisecond)
		}
	}()
	r, err := play(t.Context(), parts(o)[2], o, s)
	<-begun
	defer store.Cont()
	require.NoError(t, err)
	assert.NoError(t, verdict(s, []stage.Result{r}))
	assert.Equal(t, jobs, r.Done)
	assert.Positive(t, r.Degraded)
	assert.Contains(t, out.String(), "Redis did not answer ")
}

func TestWhatGoesWrongInAProcessIsHeardOf(t *testing.T) {
	t.Parallel()
	out, err := stage.Processes(t.Context(), []order{{Load: stage.Load{Workers: 1, Jobs: 1}, Limit: -1}})
	assert.NoError(t, err)
	assert.Equal(t, 1, out.Failed)
	assert.Contains(t, out.Reason, "Policies[0]")
}

func TestTheProgramShowsATableAndChartsAndWritesThePicture(t *testing.T) {
	t.Parallel()
	svg := filepath.Join(t.TempDir(), "arrivals.svg")
	var out bytes.Buffer
	args := []string{"-workers", "4", "-jobs", "12", "-limit", "15", "-naive", "1m", "-svg", svg}
	require.NoError(t, run(t.Context(), args, &out, io.Discard))
	for _, text := range []string{
		"4 workers, 12 jobs, a limit of 15 requests a second.\n",
		"\nnaive retry loop     ▰▰▰▰▰▰▰▰▰▰ 12/12 jobs, ",
		"\nheed, shared bucket  12/12 ",
		"\nArrivals in each second: ",
	} {
		assert.Contains(t, out.String(), text)
	}
	drawn, err := os.ReadFile(svg)
	require.NoError(t, err)
	assert.Len(t, with(elements(t, drawn), "title"), 1)
}

func TestCtrlCStopsTheProgram(t *testing.T) {
	t.Parallel()
	if runtime.GOOS == "windows" {
		t.Skip("there is no interrupt to send")
	}
	self, err := os.Executable()
	require.NoError(t, err)
	var stderr bytes.Buffer
	program := exec.Command(self, "-jobs", "10000", "-limit", "1", "-naive", "1h")
	program.Env = append(os.Environ(), mainEnv+"=1")
	program.Stderr = &stderr
	stdout, err := program.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, program.Start())
	_, err = stdout.Read(make([]byte, 1)) // it has begun
	require.NoError(t, err)
	require.NoError(t, program.Process.Signal(os.Interrupt))
	_, err = io.Copy(io.Discard, stdout)
	require.NoError(t, err)
	var exit *exec.ExitError
	require.ErrorAs(t, program.Wait(), &exit)
	assert.Equal(t, 130, exit.ExitCode())
	assert.Equal(t, "workers: interrupted during \"naive retry loop\"\n", stderr.String())
}

func TestTheVerdictNamesWhatMustNotBe(t *testing.T) {
	heed := stage.Part{Name: "heed", Heeds: true}
	for want, r := range map[string]stage.Result{
		"heed: 2 jobs were handed a 429": {
			Part: heed, Outcome: stage.Outcome{Throttled: 2}, Jobs: 4, Tally: stage.Tally{Done: 4}},
		"heed: 1 job was not done\nheed: 1 job was handed an error: broken": {
			Part: heed, Outcome: stage.Outcome{Failed: 1, Reason: "broken"}, Jobs: 4, Tally: stage.Tally{Done: 3}},
		"a process: killed\nheed: 1,000 jobs were not done": {
			Part: heed, Err: errors.New("a process: killed"), Jobs: 1000},
	} {
		err := verdict(io.Discard, []stage.Result{r})
		assert.EqualError(t, err, want)
		assert.Equal(t, 1, exitCode(err))
	}
	assert.NoError(t, verdict(io.Discard, []stage.Result{{Part: stage.Part{Name: "naive"}, Jobs: 4, Tally: stage.Tally{Done: 1}}}))
}
