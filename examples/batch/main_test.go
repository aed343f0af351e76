package main

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/time/rate"
)

const (
	jobs    = 1000
	workers = 20
)

// mainEnv makes the test binary the program itself.
const mainEnv = "HEED_EXAMPLES_BATCH_MAIN"

func TestMain(m *testing.M) {
	if os.Getenv(mainEnv) != "" {
		main()
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// An office is a server that does each job once, by its Idempotency-Key. When half of
// all are done it becomes so slow that the others take seconds, for as long as the test
// wants to stop who sends them.
type office struct {
	mu    sync.Mutex
	sent  map[string]int // requests by path
	done  map[string]int // jobs that were done, by path
	known map[string]bool
	half  chan struct{} // closed when half of all were done
	slow  atomic.Bool
}

func (o *office) ServeHTTP(_ http.ResponseWriter, r *http.Request) {
	time.Sleep(2 * time.Millisecond)
	o.mu.Lock()
	o.sent[r.URL.Path]++
	if key := r.Header.Get("Idempotency-Key"); !o.known[key] {
		o.known[key] = true
		o.done[r.URL.Path]++
		if len(o.done) == jobs/2 {
			o.slow.Store(true)
			close(o.half)
		}
	}
	o.mu.Unlock()
	time.Sleep(2 * time.Millisecond)
	if o.slow.Load() {
		time.Sleep(time.Second)
	}
}

func open(t *testing.T) (*office, string) {
	o := &office{sent: map[string]int{}, done: map[string]int{}, known: map[string]bool{}, half: make(chan struct{})}
	srv := httptest.NewServer(o)
	t.Cleanup(srv.Close)
	return o, srv.URL
}

// program is the command that sends all jobs to url.
func program(t *testing.T) func(url string) *exec.Cmd {
	self, err := os.Executable()
	require.NoError(t, err)
	journal := filepath.Join(t.TempDir(), "journal")
	return func(url string) *exec.Cmd {
		cmd := exec.Command(self, "-server", url, "-rate", "2000", "-jobs", fmt.Sprint(jobs),
			"-workers", fmt.Sprint(workers), "-journal", journal)
		cmd.Env = append(os.Environ(), mainEnv+"=1")
		return cmd
	}
}

// interrupted runs the program until half of all jobs are done and then sends
// it sig.
func interrupted(t *testing.T, o *office, cmd *exec.Cmd, sig os.Signal) {
	if runtime.GOOS == "windows" {
		t.Skip("there is no signal to send")
	}
	require.NoError(t, cmd.Start())
	select {
	case <-o.half:
	case <-time.After(2 * time.Minute):
		cmd.Process.Kill()
		t.Fatal("half of the jobs took more than two minutes")
	}
	require.NoError(t, cmd.Process.Signal(sig))
	assert.Error(t, cmd.Wait())
	o.slow.Store(false)
	o.mu.Lock()
	defer o.mu.Unlock()
	require.Less(t, len(o.done), jobs, "it was stopped in the middle")
}

// finished runs the program to its end.
func finished(t *testing.T, o *office, cmd *exec.Cmd) {
	out, err := cmd.CombinedOutput()
	require.NoError(t, err, string(out))
	assert.Contains(t, string(out), "1000 of 1000 jobs are done")
	o.mu.Lock()
	defer o.mu.Unlock()
	require.Len(t, o.done, jobs, "none is lost")
	for path, n := range o.done {
		assert.Equal(t, 1, n, path)
	}
}

// repeated is how many requests there were beside one for each job.
func repeated(o *office) (n int) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for _, sent := range o.sent {
		n += sent - 1
	}
	return n
}

func TestABatchThatIsInterruptedGoesOnWithoutLosingOrRepeatingAJob(t *testing.T) {
	batch := program(t)
	o, url := open(t)
	interrupted(t, o, batch(url), os.Interrupt)
	finished(t, o, batch(url))
	assert.Zero(t, repeated(o), "not one request was sent twice")
	finished(t, o, batch(url))
	assert.Zero(t, repeated(o), "there was nothing left to do")
}

// What was in hand when the process was killed is sent again: the server knows
// it by its Idempotency-Key, and does it once.
func TestABatchThatIsKilledRepeatsNoMoreThanWasInHand(t *testing.T) {
	batch := program(t)
	o, url := open(t)
	interrupted(t, o, batch(url), syscall.SIGKILL)
	finished(t, o, batch(url))
	t.Logf("%d requests were sent twice", repeated(o))
	assert.LessOrEqual(t, repeated(o), workers)
}

func TestALineOfTheJournalThatWasCutOffDoesNotCount(t *testing.T) {
	path := filepath.Join(t.TempDir(), "journal")
	require.NoError(t, os.WriteFile(path, []byte("1\n23\n45"), 0o644))
	j, err := openJournal(path)
	require.NoError(t, err)
	assert.True(t, j.has(1))
	assert.True(t, j.has(23))
	assert.False(t, j.has(45))
	require.NoError(t, j.add(456))
	require.NoError(t, j.close())
	text, err := os.ReadFile(path)
	require.NoError(t, err)
	assert.Equal(t, "1\n23\n456\n", string(text))
}

func TestAFileThatIsNoJournalIsLeftAlone(t *testing.T) {
	path := filepath.Join(t.TempDir(), "journal")
	const text = "Dear Sir,\nI write to you"
	require.NoError(t, os.WriteFile(path, []byte(text), 0o644))
	_, err := openJournal(path)
	assert.ErrorContains(t, err, `"Dear Sir,\n" is no job's number`)
	left, err := os.ReadFile(path)
	require.NoError(t, err)
	assert.Equal(t, text, string(left))
}

// The server allows a job in half an hour: those in line are left for the next time.
func TestABatchThatIsStoppedWaitsForNoneInLine(t *testing.T) {
	ctx, stop := context.WithCancel(t.Context())
	srv := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { stop() }))
	defer srv.Close()
	j, err := openJournal(filepath.Join(t.TempDir(), "journal"))
	require.NoError(t, err)
	defer j.close()
	b := &batch{server: srv.URL, jobs: 100, workers: 20, journal: j}
	b.client = b.newClient(rate.Every(30 * time.Minute))
	assert.EqualError(t, b.run(ctx), "stopped: start it again to go on")
	assert.Equal(t, 1, j.count())
}

func TestAJobThatFailsIsNotDone(t *testing.T) {
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if strings.HasSuffix(r.URL.Path, "/2") {
			w.WriteHeader(http.StatusBadRequest)
		}
	}))
	defer srv.Close()
	j, err := openJournal(filepath.Join(t.TempDir(), "journal"))
	require.NoError(t, err)
	defer j.close()
	b := &batch{server: srv.URL, jobs: 3, workers: 2, journal: j}
	b.client = b.newClient(1000)
	assert.EqualError(t, b.run(t.Context()), "job 2: 400 Bad Request")
	assert.True(t, j.has(1) && !j.has(2) && j.has(3))
}
