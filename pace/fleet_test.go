package pace_test

import (
	"context"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
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
	"github.com/heedhttp/heed/serverside"
)

const (
	fleetProcesses = 8
	fleetWorkers   = 16
	fleetRate      = 200
)

// A reply is a request that the server of a fleet has answered.
type reply struct {
	process string
	at      time.Time
	status  int
}

// A recorder records what a server answers, and to which process.
type recorder struct {
	next http.Handler

	mu      sync.Mutex
	replies []reply // guarded by mu
}

type statusWriter struct {
	http.ResponseWriter
	status int
}

func (w *statusWriter) WriteHeader(status int) {
	w.status = status
	w.ResponseWriter.WriteHeader(status)
}

func (w *recorder) ServeHTTP(rw http.ResponseWriter, r *http.Request) {
	sw := &statusWriter{rw, http.StatusOK}
	w.next.ServeHTTP(sw, r)
	w.mu.Lock()
	defer w.mu.Unlock()
	w.replies = append(w.replies, reply{r.Header.Get("Process"), time.Now(), sw.status})
}

// A phase is what a fleet did for a while.
type phase struct {
	admitted, refused int
	fairness          float64 // Jain's index of the processes
	took              time.Duration
}

// watch returns what a fleet does in the given time.
func (w *recorder) watch(processes int, during time.Duration) phase {
	w.mu.Lock()
	first := len(w.replies)
	w.mu.Unlock()
	start := time.Now()
	time.Sleep(during)
	w.mu.Lock()
	defer w.mu.Unlock()
	p, each := phase{took: time.Since(start)}, map[string]int{}
	for _, v := range w.replies[first:] {
		if v.status == http.StatusOK {
			p.admitted++
			each[v.process]++
		} else {
			p.refused++
		}
	}
	var squares float64
	for _, n := range each {
		squares += float64(n) * float64(n)
	}
	p.fairness = float64(p.admitted) * float64(p.admitted) / (float64(processes) * squares)
	return p
}

// processes returns the number of processes seen.
func (w *recorder) processes() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	names := map[string]bool{}
	for _, v := range w.replies {
		names[v.process] = true
	}
	return len(names)
}

// check lets a fleet run for some time, and checks that it uses the limit, is hardly
// refused, and is fair to its processes.
func (w *recorder) check(t *testing.T, name string, processes int, during time.Duration) {
	p := w.watch(processes, during)
	rate := float64(p.admitted) / p.took.Seconds()
	t.Logf(
		"%s: %.1f a second of %d, %d refused of %d, fairness %.4f", name, rate, fleetRate, p.refused,
		p.admitted+p.refused, p.fairness,
	)
	assert.GreaterOrEqual(t, rate, 0.98*fleetRate, name)
	assert.LessOrEqual(t, rate, 1.02*fleetRate, name)
	assert.LessOrEqual(t, float64(p.refused), 0.005*float64(p.admitted), name)
	assert.GreaterOrEqual(t, p.fairness, 0.95, name)
}

// newRecorder returns a recorder before a server with the fleet's limit, which answers
// after took.
func newRecorder(t *testing.T, took time.Duration) *recorder {
	limiter, err := serverside.New(serverside.Config{
		Audit: func(serverside.Event) {},
		Rules: []serverside.Rule{{
			Name: "api", Key: serverside.KeyFunc(func(*http.Request) string { return "everybody" }),
			Policies: []quota.Policy{{Quota: fleetRate, Window: time.Second, Burst: fleetRate / 4}},
		}},
	})
	require.NoError(t, err)
	return &recorder{
		next: limiter.Wrap(
			http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { sleeps(r.Context(), took) }),
		),
	}
}

// fleetPacer returns the pacer of one process.
func fleetPacer(store quota.Reserver) *pace.Shared {
	return &pace.Shared{
		Store:     store,
		Policies:  []quota.Policy{{Name: "api", Quota: fleetRate, Window: time.Second, Burst: 10}},
		Processes: fleetProcesses,
	}
}

// work runs the workers of a process until ctx ends.
func work(ctx context.Context, t *testing.T, name, url string, tr *heed.Transport) {
	var workers sync.WaitGroup
	for range fleetWorkers {
		workers.Go(func() {
			for ctx.Err() == nil {
				req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
				if !assert.NoError(t, err) {
					return
				}
				req.Header.Set("Process", name)
				if resp, err := tr.RoundTrip(req); err == nil {
					resp.Body.Close()
				}
			}
		})
	}
	workers.Wait()
}

// A forgetful store can lose everything.
type forgetful struct{ atomic.Pointer[quota.Memory] }

func (f *forgetful) Take(
	ctx context.Context, dst []quota.Decision, charges ...quota.Charge,
) ([]quota.Decision, error) {
	return f.Load().Take(ctx, dst, charges...)
}

func (f *forgetful) Reserve(
	ctx context.Context, most time.Duration, charges ...quota.Charge,
) (time.Duration, time.Time, bool, error) {
	return f.Load().Reserve(ctx, most, charges...)
}

func (f *forgetful) Settle(ctx context.Context, charges ...quota.Charge) error {
	return f.Load().Settle(ctx, charges...)
}

// A killable store belongs to one process: once that is killed, nothing is given back.
type killable struct {
	quota.Reserver
	killed atomic.Bool
}

func (m *killable) Settle(ctx context.Context, charges ...quota.Charge) error {
	if m.killed.Load() {
		return errStore
	}
	return m.Reserver.Settle(ctx, charges...)
}

// Eight processes with sixteen workers each use the limit of one server without refusals
// and fairly, also after four were killed and after the store has lost everything.
func TestAFleetUsesItsLimitWithoutRefusals(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const during = 5 * time.Second
		seen, store := newRecorder(t, ms), new(forgetful)
		store.Store(new(quota.Memory))
		var (
			all   sync.WaitGroup
			fleet []func()
		)
		for i := range fleetProcesses {
			ctx, cancel := context.WithCancel(t.Context())
			own := &killable{Reserver: store}
			all.Go(func() {
				work(
					ctx, t, strconv.Itoa(i), "http://example.com/",
					&heed.Transport{Base: inProcess{seen}, Pacer: fleetPacer(own)},
				)
			})
			fleet = append(fleet, func() { own.killed.Store(true); cancel() })
		}
		time.Sleep(time.Second)
		require.Equal(t, fleetProcesses, seen.processes(), "all have started")
		seen.check(t, "all eight", fleetProcesses, during)
		for _, kill := range fleet[:4] {
			kill()
		}
		time.Sleep(time.Second) // for their reservations to lapse
		seen.check(t, "four were killed", fleetProcesses-4, during)
		store.Store(new(quota.Memory))
		time.Sleep(3 * time.Second) // the bucket is full again, and refused requests wait for it
		seen.check(t, "the store was emptied", fleetProcesses-4, during)
		for _, kill := range fleet[4:] {
			kill()
		}
		all.Wait()
	})
}

// The same with real processes and a real Redis, in real time.
func TestAFleetOfProcessesUsesItsLimitWithoutRefusals(t *testing.T) {
	testenv.NeedLong(t)
	if name := os.Getenv("PACE_FLEET"); name != "" {
		workInFleet(t, name)
		return
	}
	const during = 20 * time.Second
	seen := newRecorder(t, 0)
	srv := httptest.NewServer(seen)
	defer srv.Close()
	store := redistest.Start(t)
	fleet := startFleet(t, srv.URL, store.Addr)
	require.Eventually(
		t, func() bool { return seen.processes() == fleetProcesses }, 20*time.Second, 10*time.Millisecond,
		"all have started",
	)

	seen.check(t, "all eight", fleetProcesses, during)
	for _, process := range fleet[:4] {
		require.NoError(t, process.Process.Kill())
	}
	time.Sleep(300 * time.Millisecond) // for their reservations to lapse
	seen.check(t, "four were killed", fleetProcesses-4, during)
	store.Restart()
	time.Sleep(time.Second)
	seen.check(t, "Redis was restarted", fleetProcesses-4, during)
}

// startFleet starts the processes, which end with the test.
func startFleet(t *testing.T, server, store string) (fleet []*exec.Cmd) {
	for i := range fleetProcesses {
		cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run", "^"+t.Name()+"$")
		cmd.Env = append(os.Environ(), "PACE_FLEET="+strconv.Itoa(i), "PACE_SERVER="+server, "PACE_REDIS_ADDR="+store)
		require.NoError(t, cmd.Start())
		t.Cleanup(func() { cmd.Process.Kill(); cmd.Wait() })
		fleet = append(fleet, cmd)
	}
	return fleet
}

// workInFleet is the main function of a process.
func workInFleet(t *testing.T, name string) {
	client := redis.NewClient(&redis.Options{Addr: os.Getenv("PACE_REDIS_ADDR")})
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
	defer cancel()
	work(ctx, t, name, os.Getenv("PACE_SERVER"), &heed.Transport{
		Base:  &http.Transport{MaxIdleConnsPerHost: fleetWorkers},
		Pacer: fleetPacer(&redisstore.Store{Client: client}),
	})
}
