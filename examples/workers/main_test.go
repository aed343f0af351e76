package main

import (
	"bytes"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/heedhttp/heed/examples/internal/stage"
	"github.com/heedhttp/heed/internal/redistest"
)

// small is the whole in a few seconds.
var small = []string{"-workers", "12", "-jobs", "36", "-limit", "15", "-naive", "3s"}

const (
	evenly = 35*time.Second/15 - 250*time.Millisecond // how long 36 jobs take at the least, as the server sees it
	stalls = 3                                        // how many refusals are left to a machine that is busy
)

func parsed(t *testing.T, args ...string) *options {
	o, err := parse(append(small, args...), io.Discard)
	require.NoError(t, err)
	return o
}

func performed(t *testing.T, o *options) []stage.Result {
	s, out := plain()
	results, err := perform(t.Context(), o, s)
	require.NoError(t, err)
	require.NoError(t, verdict(s, results))
	assert.Contains(t, out.String(), "heed did all of its 72 jobs and handed none of them a 429.\n")
	require.Len(t, results, 3)
	return results
}

func TestHeedDoesTheJobsWithoutTheStorm(t *testing.T) {
	t.Parallel()
	results := performed(t, parsed(t))
	storm, heeded, paced := results[0], results[1], results[2]
	for _, r := range results {
		assert.Equal(t, 36, r.Done, r.Name)
		assert.Zero(t, r.Outcome, r.Name)
	}
	assert.Greater(t, storm.Requests, 100)
	assert.Greater(t, heeded.Refused, 0)
	assert.Less(t, heeded.Requests, 72)
	assert.InDelta(t, 36, paced.Requests, stalls)
	assert.GreaterOrEqual(t, paced.Took, evenly)
}

func TestSeveralProcessesShareOneBucketAndOneBudget(t *testing.T) {
	t.Parallel()
	store := redistest.Start(t)
	results := performed(t, parsed(t, "-redis", store.Addr, "-processes", "3"))
	together := results[2]
	assert.Equal(t, "heed, 3 processes", together.Name)
	assert.InDelta(t, 36, together.Requests, stalls)
	// A Redis that does not answer in time, on a busy machine, may cost a burst.
	assert.GreaterOrEqual(t, together.Took, evenly*2/3, "with a bucket each, they would need a third of it")
	budgets, err := store.Do("EVAL", "return #redis.call('KEYS', 'heed:budget:heed:workers:*')", "0")
	assert.NoError(t, err)
	assert.Equal(t, "1", budgets)
}

func TestProcessesThatLoseRedisKeepToTheirShares(t *testing.T) {
	t.Parallel()
	store := redistest.Start(t)
	o := parsed(t, "-redis", store.Addr, "-processes", "3")
	s, out := plain()
	time.AfterFunc(700*time.Millisecond, store.Stop)
	defer store.Cont()
	r, err := play(t.Context(), parts(o)[2], o, s)
	require.NoError(t, err)
	assert.NoError(t, verdict(s, []stage.Result{r}))
	assert.Equal(t, 36, r.Done)
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
	require.NoError(t, run(t.Context(), append(small, "-svg", svg), &out, io.Discard))
	for _, text := range []string{
		"12 workers, 36 jobs, a limit of 15 requests a second.\n",
		"\nnaive retry loop     ▰▰▰▰▰▰▰▰▰▰ 36/36 jobs, ",
		"\nheed, shared bucket  36/36 ",
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
	program := exec.Command(self)
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
