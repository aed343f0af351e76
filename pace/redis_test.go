package pace_test

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/heedhttp/heed"
	"github.com/heedhttp/heed/internal/redistest"
	"github.com/heedhttp/heed/internal/testenv"
	"github.com/heedhttp/heed/pace"
	"github.com/heedhttp/heed/quota"
	"github.com/heedhttp/heed/redisstore"
)

const (
	burst   = 10
	rateHz  = 50
	runTime = 10 * time.Second
)

func inRedis(t testing.TB, addr string) *pace.Shared {
	client := redis.NewClient(
		&redis.Options{
			Addr: addr, DialTimeout: time.Minute, ReadTimeout: time.Minute, WriteTimeout: time.Minute,
		},
	)
	t.Cleanup(func() { client.Close() })
	return &pace.Shared{
		Store:     &redisstore.Store{Client: client},
		Policies:  []quota.Policy{{Name: "api", Quota: rateHz, Window: time.Second, Burst: burst}},
		Processes: 3,
	}
}

// An arrivals is a server that records when requests arrive.
type arrivals struct {
	mu sync.Mutex
	at []time.Time
}

func (a *arrivals) ServeHTTP(http.ResponseWriter, *http.Request) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.at = append(a.at, time.Now())
}

// Three processes with ten workers each take what one bucket in Redis has, and not a
// request more.
func TestThreeProcessesShareOneBucket(t *testing.T) {
	if os.Getenv("PACE_REDIS") != "" {
		takeAll(t)
		return
	}
	store := redistest.Start(t)
	var (
		all   sync.WaitGroup
		taken [3]int
	)
	for i := range taken {
		all.Go(func() {
			child := exec.Command(os.Args[0], "-test.run", "^"+t.Name()+"$", "-test.v")
			child.Env = append(os.Environ(), "PACE_REDIS="+store.Addr)
			out, err := child.CombinedOutput()
			assert.NoError(t, err, "process %d: %s", i, out)
			found := regexp.MustCompile(`(?m)^taken: (\d+)$`).FindSubmatch(out)
			if assert.NotNil(t, found, "process %d: %s", i, out) {
				taken[i], _ = strconv.Atoi(string(found[1]))
			}
		})
	}
	all.Wait()
	t.Logf("%v were taken", taken)
	assert.Equal(t, bucketful, taken[0]+taken[1]+taken[2])
}

// bucketful is more than a process needs that has the bucket to itself.
const bucketful = 300

// takeAll is the main function of a process.
func takeAll(t *testing.T) {
	awaitOthers(t)
	shared := inRedis(t, os.Getenv("PACE_REDIS"))
	shared.Store.(*redisstore.Store).Timeout = time.Minute // however busy the machine is
	shared.Policies = []quota.Policy{{Name: "api", Quota: bucketful, Window: 1000 * time.Hour}}
	shared.Degraded = func(err error) { t.Error(err) }
	var (
		taken atomic.Int64
		all   sync.WaitGroup
	)
	for range 10 {
		all.Go(func() {
			for {
				req := get()
				err := shared.WaitAtMost(req, 0)
				if err != nil {
					assert.ErrorAs(t, err, new(*heed.OverdueError))
					return
				}
				taken.Add(1)
				shared.Observe(heed.Attempt{Request: req})
			}
		})
	}
	all.Wait()
	fmt.Printf("\ntaken: %d\n", taken.Load())
}

// awaitOthers blocks until all three processes have started.
func awaitOthers(t *testing.T) {
	client := redis.NewClient(
		&redis.Options{Addr: os.Getenv("PACE_REDIS"), DialTimeout: time.Minute, ReadTimeout: time.Minute},
	)
	defer client.Close()
	require.NoError(t, client.Incr(t.Context(), "begun").Err())
	require.Eventually(t, func() bool {
		n, err := client.Get(t.Context(), "begun").Int()
		return err == nil && n == 3
	}, time.Minute, time.Millisecond)
}

// Three processes with ten workers each pace themselves by one bucket in Redis and use
// what it gives.
func TestThreeProcessesKeepOneRate(t *testing.T) {
	testenv.NeedLong(t)
	if os.Getenv("PACE_REDIS") != "" {
		callUntilStopped(t)
		return
	}
	at, lag := arrivalsOfThree(t)
	checkArrivals(t, at, lag)
}

// arrivalsOfThree runs three processes. lag is the longest delay of this machine in waking a
// process.
func arrivalsOfThree(t *testing.T) (at []time.Time, lag time.Duration) {
	store, seen := redistest.Start(t), &arrivals{}
	defer store.Kill()
	srv := httptest.NewServer(seen)
	defer srv.Close()
	var all sync.WaitGroup
	stop := measureLag(&lag)
	for i := range 3 {
		all.Go(func() {
			child := exec.Command(os.Args[0], "-test.run", "^"+t.Name()+"$")
			child.Env = append(os.Environ(), "PACE_REDIS="+store.Addr, "PACE_SERVER="+srv.URL)
			out, err := child.CombinedOutput()
			assert.NoError(t, err, "process %d: %s", i, out)
		})
	}
	all.Wait()
	stop()
	slices.SortFunc(seen.at, time.Time.Compare)
	return seen.at, lag
}

// measureLag writes the longest delay of a sleep to lag, until stopped.
func measureLag(lag *time.Duration) (stop func()) {
	stopped, done := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(done)
		for {
			start := time.Now()
			select {
			case <-stopped:
				return
			case <-time.After(time.Millisecond):
				*lag = max(*lag, time.Since(start)-time.Millisecond)
			}
		}
	}()
	return func() { close(stopped); <-done }
}

func checkArrivals(t *testing.T, at []time.Time, lag time.Duration) {
	most := 0.0
	for i := range at {
		for j := i; j < len(at); j++ {
			most = max(most, float64(j-i+1)-rateHz*at[j].Sub(at[i]).Seconds())
		}
	}
	// A late request shortens the windows that start with it: by 20 ms in transit, and by
	// this machine's delays of its sender and its receiver.
	late := 20*time.Millisecond + 2*lag
	assert.LessOrEqual(t, most, burst+rateHz*late.Seconds(), "more than burst + %d·t in some window", rateHz)
	end := at[0].Add(runTime)
	used, _ := slices.BinarySearchFunc(at, end, time.Time.Compare)
	allowed := burst + rateHz*runTime.Seconds()
	assert.GreaterOrEqual(t, float64(used), 0.98*allowed)
	t.Logf("%d of %.0f in %v; at most %.2f beyond %d·t in any window; the machine was up to %v late",
		used, allowed, runTime, most, rateHz, lag)
}

// callUntilStopped is the main function of a process.
func callUntilStopped(t *testing.T) {
	shared := inRedis(t, os.Getenv("PACE_REDIS"))
	shared.Store.(*redisstore.Store).Timeout = time.Minute // however busy the machine is
	shared.Degraded = func(err error) { t.Error(err) }
	client := &http.Client{Transport: &heed.Transport{Pacer: shared}}
	ctx, cancel := context.WithTimeout(t.Context(), runTime+2*time.Second)
	defer cancel()
	var all sync.WaitGroup
	for range 10 {
		all.Go(func() {
			for {
				req, err := http.NewRequestWithContext(ctx, "GET", os.Getenv("PACE_SERVER"), nil)
				require.NoError(t, err)
				resp, err := client.Do(req)
				if err != nil {
					return // the time is over
				}
				resp.Body.Close()
			}
		})
	}
	all.Wait()
}

// An answering store counts its answers, and the calls that wait for one.
type answering struct {
	*redisstore.Store
	answers, pending atomic.Int64
}

func (a *answering) Reserve(
	ctx context.Context, most time.Duration, charges ...quota.Charge,
) (time.Duration, time.Time, bool, error) {
	a.pending.Add(1)
	defer a.pending.Add(-1)
	wait, at, ok, err := a.Store.Reserve(ctx, most, charges...)
	if err == nil {
		a.answers.Add(1)
	}
	return wait, at, ok, err
}

func TestWithoutRedisEachProcessUsesItsShare(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	shared := inRedis(t, server.Addr)
	store := &answering{Store: shared.Store.(*redisstore.Store)}
	shared.Store = store
	var lost atomic.Int64
	shared.Degraded = func(error) { lost.Add(1) }
	req := httptest.NewRequest("GET", "http://api.example.com/", nil)
	asked := func() bool { // whether Redis answered
		before := store.answers.Load()
		require.NoError(t, shared.Wait(req))
		return store.answers.Load() > before
	}
	require.Eventually(t, asked, time.Minute, time.Millisecond)
	require.Eventually(t, func() bool { return store.pending.Load() == 0 }, time.Minute, time.Millisecond)

	server.Stop()
	before := lost.Load()
	require.Eventually(t, func() bool { return !asked() && lost.Load() > before }, time.Minute, time.Millisecond)
	start, answered, n := time.Now(), store.answers.Load(), 0
	for ; n < 20; n++ {
		require.NoError(t, shared.Wait(req))
	}
	assert.LessOrEqual(
		t, float64(n), float64(burst)/3+rateHz*time.Since(start).Seconds()/3+1,
		"its share, however long that took",
	)
	assert.Equal(t, answered, store.answers.Load())

	server.Cont() // Redis is only asked when there are requests
	require.Eventually(t, asked, time.Minute, time.Millisecond)
}

// Redis is slower here than a Store of unknown kind may be.
func TestRedisIsWaitedForAsLongAsTheTimeoutSays(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	client := redis.NewClient(&redis.Options{Addr: server.Addr, ReadTimeout: time.Minute})
	defer client.Close()
	store := &redisstore.Store{Client: client, Timeout: time.Minute}
	lease := &redisstore.Lease{Store: store}
	defer lease.Close(t.Context())
	policy := quota.Policy{Quota: 100, Window: 1000 * time.Hour}
	pacer := func(s quota.Reserver, key string) *pace.Shared {
		return &pace.Shared{
			Store: s, Policies: []quota.Policy{policy}, Key: func(*http.Request) string { return key },
			Degraded: func(err error) { t.Error(err) },
		}
	}
	pacers := []*pace.Shared{pacer(store, "shared"), pacer(lease, "leased")}
	send := func() {
		var all sync.WaitGroup
		for i := range 10 {
			all.Go(func() { assert.NoError(t, pacers[i%2].WaitAtMost(get(), 0)) })
		}
		all.Wait()
	}
	send()
	server.Stop()
	time.AfterFunc(1200*time.Millisecond, server.Cont)
	var all sync.WaitGroup
	for _, p := range pacers { // by a call that a Lease passes on, whatever it holds
		all.Go(func() { p.Correct(get(), 1) })
	}
	all.Wait()
	send()
	assert.EqualValues(t, 100-10-1, left(t, store, policy))
}

func TestAfterARedisOutageTheWholeLimitIsUsedAgain(t *testing.T) {
	testenv.NeedLong(t)
	store := redistest.Start(t)
	shared := inRedis(t, store.Addr)
	var lost atomic.Int64
	shared.Degraded = func(error) { lost.Add(1) }
	req := httptest.NewRequest("GET", "http://api.example.com/", nil)
	require.NoError(t, shared.Wait(req))
	assert.Zero(t, lost.Load())

	store.Stop()
	start := time.Now()
	require.NoError(t, shared.Wait(req), "the first one learns of it")
	assert.Less(t, time.Since(start), 150*time.Millisecond, "its Timeout of 50 ms and the delay of a busy machine")
	assert.EqualValues(t, 1, lost.Load())
	n := 1
	for ; time.Since(start) < 3*time.Second; n++ {
		require.NoError(t, shared.Wait(req))
	}
	share := float64(burst)/3 + rateHz*time.Since(start).Seconds()/3
	assert.LessOrEqual(t, float64(n), share+1)
	assert.GreaterOrEqual(t, float64(n), 0.8*share, "neither unlimited nor blocked")

	store.Cont()
	for start = time.Now(); time.Since(start) < 3*time.Second; { // Redis is only asked when there are requests
		require.NoError(t, shared.Wait(req))
	}
	before := lost.Load()
	start, n = time.Now(), 0
	for ; time.Since(start) < time.Second; n++ {
		require.NoError(t, shared.Wait(req))
	}
	assert.Equal(t, before, lost.Load(), "no more errors of Redis")
	assert.GreaterOrEqual(t, n, rateHz*8/10, "the other processes are idle")
}

// mute dials a server that reads everything and never answers.
func mute(context.Context, string, string) (net.Conn, error) {
	client, server := net.Pipe()
	go func() { _, _ = io.Copy(io.Discard, server) }()
	return client, nil
}

func TestWithASilentRedisShortDeadlinesUseTheShare(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		client := redis.NewClient(&redis.Options{Addr: "192.0.2.1:6379", Dialer: mute})
		defer client.Close()
		var lost atomic.Int64
		shared := &pace.Shared{
			Store:     &redisstore.Store{Client: client},
			Policies:  []quota.Policy{{Name: "api", Quota: rateHz, Window: time.Second, Burst: 600}},
			Processes: 3,
			Degraded:  func(error) { lost.Add(1) },
		}
		failed := 0
		for range 60 {
			ctx, cancel := context.WithTimeout(t.Context(), 40*time.Millisecond)
			if shared.Wait(request(ctx, "http://api.example.com/")) != nil {
				failed++
			}
			cancel()
		}
		assert.LessOrEqual(t, failed, 2, "those that came before the Store knew")
		assert.Positive(t, lost.Load())
	})
}
