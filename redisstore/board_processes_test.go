package redisstore_test

import (
	"cmp"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/heedhttp/heed"
	"github.com/heedhttp/heed/internal/redistest"
	"github.com/heedhttp/heed/internal/testenv"
	"github.com/heedhttp/heed/redisstore"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// lag is what an idle machine may add to the measured times.
const lag = 500 * time.Millisecond

// An upstream is an HTTP server that records which process sent a request when.
type upstream struct {
	mu      sync.Mutex // guards what follows
	came    []came
	refuse  bool   // the next request
	after   string // the Retry-After of a refusal
	refused came
}

type came struct {
	process string
	at      time.Time
}

func (u *upstream) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	u.mu.Lock()
	defer u.mu.Unlock()
	c := came{r.Header.Get("Process"), time.Now()}
	u.came = append(u.came, c)
	if u.refuse {
		u.refuse, u.refused = false, c
		w.Header().Set("Retry-After", cmp.Or(u.after, "1"))
		w.WriteHeader(http.StatusTooManyRequests)
	}
}

// refuseOne refuses the next request, and returns how long the other processes went on.
func (u *upstream) refuseOne(t *testing.T) (wentOn []time.Duration) {
	u.mu.Lock()
	u.refuse, u.came = true, nil
	u.mu.Unlock()
	require.Eventually(t, func() bool {
		u.mu.Lock()
		defer u.mu.Unlock()
		return !u.refuse
	}, hang, time.Millisecond)
	time.Sleep(900 * time.Millisecond)
	u.mu.Lock()
	defer u.mu.Unlock()
	last := map[string]time.Duration{}
	for _, c := range u.came {
		last[c.process] = max(0, c.at.Sub(u.refused.at))
	}
	delete(last, u.refused.process)
	for _, d := range last {
		wentOn = append(wentOn, d)
	}
	return wentOn
}

func (u *upstream) since(start time.Time) (times []time.Duration) {
	u.mu.Lock()
	defer u.mu.Unlock()
	for _, c := range u.came {
		if c.at.After(start) {
			times = append(times, c.at.Sub(start))
		}
	}
	slices.Sort(times)
	return times
}

// startProcesses starts n processes, each a run of the calling test, that send requests to u. They
// end with the test.
func startProcesses(t *testing.T, n int, store *redistest.Server, u *upstream) {
	server := httptest.NewServer(u)
	t.Cleanup(server.Close)
	for i := range n {
		child := exec.CommandContext(t.Context(), os.Args[0], "-test.run", "^"+t.Name()+"$")
		child.Env = append(os.Environ(),
			"BOARD_PROCESS="+strconv.Itoa(i), "BOARD_REDIS="+store.Addr, "BOARD_UPSTREAM="+server.URL)
		child.Stderr = os.Stderr
		require.NoError(t, child.Start())
		t.Cleanup(func() { child.Wait() })
	}
	for i := range n { // until all send requests
		require.Eventually(t, func() bool {
			u.mu.Lock()
			defer u.mu.Unlock()
			return slices.ContainsFunc(u.came, func(c came) bool { return c.process == strconv.Itoa(i) })
		}, hang, 5*time.Millisecond)
	}
}

// inProcess returns false in the parent. In a started process it sends requests with so many workers
// until it is killed.
func inProcess(workers int) bool {
	process := os.Getenv("BOARD_PROCESS")
	if process == "" {
		return false
	}
	go func() { // also ends if the parent has died
		for parent := os.Getppid(); os.Getppid() == parent; {
			time.Sleep(100 * time.Millisecond)
		}
		os.Exit(1)
	}()
	base := &http.Transport{MaxIdleConnsPerHost: workers}
	board := &redisstore.Board{Client: redis.NewClient(&redis.Options{Addr: os.Getenv("BOARD_REDIS")})}
	transport := &heed.Transport{Base: base, Board: board, Key: func(*http.Request) string { return host }}
	client := &http.Client{Transport: transport}
	var all sync.WaitGroup
	for range workers {
		all.Go(func() {
			for {
				req, _ := http.NewRequest(http.MethodGet, os.Getenv("BOARD_UPSTREAM"), nil)
				req.Header.Set("Process", process)
				if resp, err := client.Do(req); err == nil {
					resp.Body.Close()
				}
				time.Sleep(2 * time.Millisecond)
			}
		})
	}
	all.Wait()
	return true
}

// RoundTrip makes u an upstream for processes inside one bubble.
func (u *upstream) RoundTrip(req *http.Request) (*http.Response, error) {
	w := httptest.NewRecorder()
	u.ServeHTTP(w, req)
	resp := w.Result()
	resp.Request = req
	return resp, nil
}

// Each of four processes has four workers that send a request every 2 ms.
func TestA429StopsTheOtherProcessesARoundTripLater(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		u, working := new(upstream), new(atomic.Bool)
		working.Store(true)
		var all sync.WaitGroup
		for i, board := range openBoards(t, newBoardFake(t), 4) {
			tr := &heed.Transport{Base: u, Board: board}
			for range 4 {
				all.Go(func() {
					for ; working.Load(); time.Sleep(2 * ms) {
						req := httptest.NewRequest(http.MethodGet, host, nil)
						req.Header.Set("Process", strconv.Itoa(i))
						if resp, err := tr.RoundTrip(req); err == nil {
							resp.Body.Close()
						}
					}
				})
			}
		}
		time.Sleep(200*ms + ms) // when no request is in flight
		u.mu.Lock()
		u.refuse, u.after, u.came = true, "10", nil
		u.mu.Unlock()
		time.Sleep(11 * time.Second)
		working.Store(false)
		time.Sleep(time.Minute)
		all.Wait()
		again := map[string]bool{}
		for _, c := range u.came {
			since := c.at.Sub(u.refused.at)
			assert.True(t, since <= 3*ms || since >= 10*time.Second, since)
			if since >= 10*time.Second {
				again[c.process] = true
			}
		}
		assert.Len(t, again, 4, "from all processes")
	})
}

// It refuses one request of four processes, again and again, and measures how long the other three go
// on.
func TestHowLongOtherProcessesSendAfterA429(t *testing.T) {
	if inProcess(4) {
		return
	}
	testenv.NeedLong(t)
	u := new(upstream)
	startProcesses(t, 4, redistest.Shared(t), u)
	time.Sleep(200 * time.Millisecond)
	var wentOn []time.Duration
	for range 40 {
		wentOn = append(wentOn, u.refuseOne(t)...)
		time.Sleep(time.Second) // until the waiters are released
	}
	slices.Sort(wentOn)
	n := len(wentOn)
	t.Logf("of %d, half went on for at most %v, nine of ten for %v, all for %v",
		n, wentOn[n/2], wentOn[n*9/10], wentOn[n-1])
	assert.LessOrEqual(t, wentOn[n*3/4], 150*time.Millisecond)
	assert.LessOrEqual(t, wentOn[n-1], 150*time.Millisecond+lag)
}

// Three processes of five workers each wait, and then go on at the posted interval.
func TestProcessesShareTheServersInterval(t *testing.T) {
	const n, workers, every = 3, 5, 40 * time.Millisecond
	if inProcess(workers) {
		return
	}
	testenv.NeedLong(t)
	store, u := redistest.Shared(t), new(upstream)
	startProcesses(t, n, store, u)
	time.Sleep(200 * time.Millisecond)
	b := openBoard(t, newClient(t, store))
	require.NoError(t, b.Post(ctx, host, time.Second, every))
	time.Sleep(500 * time.Millisecond) // for requests in flight
	start := time.Now()
	time.Sleep(20 * time.Second)
	times := u.since(start)
	assert.GreaterOrEqual(t, times[0], 400*time.Millisecond)
	took := times[len(times)-1] - times[0]
	t.Logf("%d arrivals in %v, one each %v", len(times), took, took/time.Duration(len(times)-1))
	assert.GreaterOrEqual(t, took, time.Duration(len(times)-n)*every-200*time.Millisecond)
	assert.Greater(t, len(times), int(took/every)*3/4, "nearly all of the rate is used")
}

// The long form also measures that nothing waits for Redis, and how long other processes go on after
// a 429.
func TestProcessesGoOnWithoutRedisAndAgreeAfterwards(t *testing.T) {
	if inProcess(4) {
		return
	}
	t.Parallel()
	store, u := redistest.Start(t), new(upstream)
	startProcesses(t, 3, store, u)
	for name, lost := range map[string]struct{ start, end func() }{
		"stopped": {store.Stop, store.Cont}, "killed": {store.Kill, store.Restart},
	} {
		lost.start()
		start := time.Now()
		if testenv.Long() {
			time.Sleep(time.Second)
			times := u.since(start)
			longest := times[0]
			for i := range times[1:] {
				longest = max(longest, times[i+1]-times[i])
			}
			assert.Less(t, longest, lag, "%s: nobody waits", name)
		}
		for i := range 3 {
			require.Eventually(t, func() bool {
				return u.from(strconv.Itoa(i), start) >= 100
			}, hang, 5*time.Millisecond, name)
		}
		lost.end()
		if testenv.Long() {
			time.Sleep(1500 * time.Millisecond)
			wentOn := u.refuseOne(t)
			t.Logf("%s: the others went on for %v", name, wentOn)
			require.NotEmpty(t, wentOn)
			assert.LessOrEqual(t, slices.Max(wentOn), 150*time.Millisecond+lag, name)
			time.Sleep(time.Second)
		}
	}
	u.refuseAll(t)
}

// from returns how many requests of process have come since start.
func (u *upstream) from(process string, start time.Time) (n int) {
	u.mu.Lock()
	defer u.mu.Unlock()
	for _, c := range u.came {
		if c.process == process && c.at.After(start) {
			n++
		}
	}
	return n
}

// refuseAll refuses one request, for an hour, and waits until all processes have stopped.
func (u *upstream) refuseAll(t *testing.T) {
	t.Helper()
	u.mu.Lock()
	u.refuse, u.after = true, "3600"
	u.mu.Unlock()
	var last time.Time
	require.Eventually(t, func() bool {
		u.mu.Lock()
		defer u.mu.Unlock()
		quiet := !u.refuse && u.came[len(u.came)-1].at.Equal(last)
		last = u.came[len(u.came)-1].at
		return quiet
	}, hang, 500*time.Millisecond)
}
