package pace_test

import (
	"context"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"strconv"
	"sync"
	"testing"
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

// A visit is a request that a server of a fleet has answered.
type visit struct {
	process string
	at      time.Time
	status  int
}

// A witness writes down what a server answers, and to whom.
type witness struct {
	next http.Handler

	mu     sync.Mutex
	visits []visit // guarded by mu
}

type statusWriter struct {
	http.ResponseWriter
	status int
}

func (w *statusWriter) WriteHeader(status int) {
	w.status = status
	w.ResponseWriter.WriteHeader(status)
}

func (w *witness) ServeHTTP(rw http.ResponseWriter, r *http.Request) {
	sw := &statusWriter{rw, http.StatusOK}
	w.next.ServeHTTP(sw, r)
	w.mu.Lock()
	defer w.mu.Unlock()
	w.visits = append(w.visits, visit{r.Header.Get("Process"), time.Now(), sw.status})
}

// A phase is what a fleet did for a while.
type phase struct {
	admitted, refused int
	fairness          float64 // Jain's index of the processes
	took              time.Duration
}

// watch lets a fleet of so many processes go on for some time.
func (w *witness) watch(processes int, during time.Duration) phase {
	w.mu.Lock()
	first := len(w.visits)
	w.mu.Unlock()
	start := time.Now()
	time.Sleep(during)
	w.mu.Lock()
	defer w.mu.Unlock()
	p, each := phase{took: time.Since(start)}, map[string]int{}
	for _, v := range w.visits[first:] {
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

// processes is how many it has seen.
func (w *witness) processes() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	names := map[string]bool{}
	for _, v := range w.visits {
		names[v.process] = true
	}
	return len(names)
}

// Eight processes, sixteen workers each, before one server that allows so much and no
// more: it is used, nobody is refused, and nobody starves, also after four were
// killed, and after Redis has lost everything.
func TestAFleetUsesItsLimitAndIsNotRefused(t *testing.T) {
	if name := os.Getenv("PACE_FLEET"); name != "" {
		workInFleet(t, name)
		return
	}
	during, least, most, refused, fair := 1500*time.Millisecond, 0.5, 1.2, 0.03, 0.5 // beside the tests of other packages
	if testenv.Long() {
		during, least, most, refused, fair = 20*time.Second, 0.98, 1.02, 0.005, 0.95
	}
	limiter, err := serverside.New(serverside.Config{
		Audit: func(serverside.Event) {},
		Rules: []serverside.Rule{{
			Name: "api", Key: func(*http.Request) string { return "everybody" },
			Policies: []quota.Policy{{Quota: fleetRate, Window: time.Second, Burst: fleetRate / 4}},
		}},
	})
	require.NoError(t, err)
	seen := &witness{next: limiter.Wrap(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))}
	srv := httptest.NewServer(seen)
	defer srv.Close()
	store := redistest.Start(t)
	fleet := startFleet(t, srv.URL, store.Addr)
	require.Eventually(t, func() bool { return seen.processes() == fleetProcesses }, 20*time.Second, 10*time.Millisecond, "all have begun")

	judge := func(name string, processes int) {
		p := seen.watch(processes, during)
		rate := float64(p.admitted) / p.took.Seconds()
		t.Logf("%s: %.1f a second of %d, %d refused of %d, fairness %.4f", name, rate, fleetRate, p.refused, p.admitted+p.refused, p.fairness)
		assert.GreaterOrEqual(t, rate, least*fleetRate, name)
		assert.LessOrEqual(t, rate, most*fleetRate, name)
		assert.LessOrEqual(t, float64(p.refused), refused*float64(p.admitted), name)
		assert.GreaterOrEqual(t, p.fairness, fair, name)
	}
	judge("all eight", fleetProcesses)
	for _, process := range fleet[:4] {
		require.NoError(t, process.Process.Kill())
	}
	time.Sleep(300 * time.Millisecond) // what they had reserved lapses
	judge("four were killed", fleetProcesses-4)
	store.Restart()
	time.Sleep(time.Second)
	judge("Redis was restarted", fleetProcesses-4)
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

// workInFleet is one of the processes.
func workInFleet(t *testing.T, name string) {
	client := redis.NewClient(&redis.Options{Addr: os.Getenv("PACE_REDIS_ADDR")})
	tr := &heed.Transport{
		Base: &http.Transport{MaxIdleConnsPerHost: fleetWorkers},
		Pacer: &pace.Shared{
			Store:     &redisstore.Store{Client: client},
			Policies:  []quota.Policy{{Name: "api", Quota: fleetRate, Window: time.Second, Burst: 10}},
			Processes: fleetProcesses,
		},
	}
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
	defer cancel()
	var workers sync.WaitGroup
	for range fleetWorkers {
		workers.Go(func() {
			for ctx.Err() == nil {
				req, err := http.NewRequestWithContext(ctx, http.MethodGet, os.Getenv("PACE_SERVER"), nil)
				require.NoError(t, err)
				req.Header.Set("Process", name)
				if resp, err := tr.RoundTrip(req); err == nil {
					resp.Body.Close()
				}
			}
		})
	}
	workers.Wait()
}
