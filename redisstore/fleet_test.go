package redisstore_test

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/heedhttp/heed/internal/redistest"
	"github.com/heedhttp/heed/internal/testenv"
	"github.com/heedhttp/heed/quota"
	"github.com/heedhttp/heed/redisstore"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// What ten processes use of one key together, each through a Store of its own.

var pooled = quota.Policy{Name: "pooled", Quota: 1000, Window: time.Second, Burst: 500}

const (
	processes = 10
	workers   = 3 // in each

	// idle is how long a worker waits that was denied: the bucket gathers some units
	// meanwhile, and is not asked in vain.
	idle = 10 * time.Millisecond

	// timeout is that of a Store by default. A decision takes no longer, but for what
	// a machine with fewer processors than processes adds until its goroutine is let run
	// again; without it one would take seconds.
	timeout = 50 * time.Millisecond
	busy    = 500 * time.Millisecond
)

// A way is how a process uses a Store.
type way struct {
	name  string
	fuss  bool          // it is shown what becomes of it when something happens
	late  time.Duration // how much later than it was admitted a unit may be used
	held  int64         // how many units a process may hold that it has not used: its part of those of 250 ms
	using func(s *redisstore.Store, c quota.Charge) use
}

// A use tries to use one unit, and returns the moment at which it did.
type use func() (at time.Time, ok bool, err error)

var ways = []way{
	{name: "taking", fuss: true, using: taking},
	{name: "reserving", using: func(s *redisstore.Store, c quota.Charge) use { return reserving(s, c) }},
	{name: "leasing", fuss: true, late: 250 * time.Millisecond, held: 45, using: leasing},
}

func taking(s *redisstore.Store, c quota.Charge) use {
	return func() (at time.Time, ok bool, err error) {
		ds, err := s.Take(ctx, nil, c)
		if err != nil {
			return at, false, err
		}
		return ds[0].At, ds[0].Allowed, nil
	}
}

// reserving waits for its turn.
func reserving(r quota.Reserver, c quota.Charge) use {
	return func() (time.Time, bool, error) {
		wait, at, ok, err := r.Reserve(ctx, 100*time.Millisecond, c)
		if ok {
			time.Sleep(wait)
		}
		return at, ok, err
	}
}

// leasing is reserving, but says when it is done: what was held may be used later than
// it was to be.
func leasing(s *redisstore.Store, c quota.Charge) use {
	reserve := reserving(&redisstore.Lease{Store: s}, c)
	return func() (time.Time, bool, error) {
		_, ok, err := reserve()
		return time.Now(), ok, err
	}
}

// TestTenProcessesUseOneKey has them use it for 20 s, in which nothing happens, or
// three of them are killed, or Redis is stopped, or killed and started anew.
func TestTenProcessesUseOneKey(t *testing.T) {
	if os.Getenv("FLEET_REDIS") != "" {
		useKey(t)
		return
	}
	for _, w := range ways {
		t.Run(w.name, func(t *testing.T) {
			f := startFleet(t, w, patient, stated(20*time.Second, 2*time.Second))
			f.end()
			f.keepsToTheLimit(t, 0)
			first := time.UnixMicro(f.used.times()[0])
			f.isUsed(t, first, f.ended, pooled.Burst-processes*w.held, nearly())
		})
		if !w.fuss {
			continue
		}
		t.Run(w.name+", three are killed", func(t *testing.T) {
			f := startFleet(t, w, patient, stated(20*time.Second, 2*time.Second))
			time.Sleep(stated(10*time.Second, time.Second))
			for _, child := range f.children[:3] {
				require.NoError(t, child.Process.Kill())
			}
			killed := time.Now()
			f.end()
			f.keepsToTheLimit(t, 0)
			f.isUsed(t, killed, f.ended, -3*w.held, nearly())
		})
		t.Run(w.name+", Redis is stopped", func(t *testing.T) {
			f := startFleet(t, w, timeout, stated(20*time.Second, 3200*time.Millisecond))
			time.Sleep(stated(5*time.Second, 700*time.Millisecond))
			f.redis.Stop()
			time.Sleep(stated(5*time.Second, time.Second))
			f.redis.Cont()
			back := time.Now()
			f.end()
			f.keepsToTheLimit(t, 0)
			f.answersInTime(t, back)
		})
		t.Run(w.name+", Redis is killed", func(t *testing.T) {
			f := startFleet(t, w, timeout, stated(20*time.Second, 3200*time.Millisecond))
			time.Sleep(stated(5*time.Second, 700*time.Millisecond))
			f.redis.Kill()
			time.Sleep(stated(5*time.Second, time.Second))
			f.redis.Restart()
			back := time.Now()
			f.end()
			f.keepsToTheLimit(t, pooled.Burst) // an empty Redis knows a whole bucket
			f.answersInTime(t, back)
		})
	}
}

// A fleet is some processes of this test, and what they said.
type fleet struct {
	redis    *redistest.Server
	children []*exec.Cmd
	way      way
	began    time.Time
	ended    time.Time
	reading  sync.WaitGroup

	used ledger

	mu      sync.Mutex // guards what follows
	slowest time.Duration
	failed  int
}

// startFleet returns when all processes have begun, and will end after a while.
func startFleet(t *testing.T, w way, timeout, lasting time.Duration) *fleet {
	f := &fleet{redis: redistest.Start(t), way: w}
	var ready sync.WaitGroup
	var starters []io.Writer
	for range processes {
		child := exec.CommandContext(t.Context(), os.Args[0], "-test.run", "^TestTenProcessesUseOneKey$")
		child.Env = append(os.Environ(), "FLEET_REDIS="+f.redis.Addr, "FLEET_WAY="+w.name,
			"GORACE=atexit_sleep_ms=0", "FLEET_TIMEOUT="+timeout.String(), "FLEET_LASTING="+lasting.String())
		child.Stderr = os.Stderr
		orders, err := child.StdinPipe()
		require.NoError(t, err)
		said, err := child.StdoutPipe()
		require.NoError(t, err)
		require.NoError(t, child.Start())
		f.children, starters = append(f.children, child), append(starters, orders)
		ready.Add(1)
		f.reading.Go(func() { f.listen(said, sync.OnceFunc(ready.Done)) })
	}
	ready.Wait()
	f.began = time.Now()
	for _, starter := range starters {
		_, err := io.WriteString(starter, "go\n")
		require.NoError(t, err)
	}
	f.ended = f.began.Add(lasting)
	return f
}

// end waits until all processes have ended.
func (f *fleet) end() {
	f.reading.Wait()
	for _, child := range f.children {
		child.Wait()
	}
}

// listen records what a process says: that it is ready, the µs at which it used a
// unit, its slowest decision so far, or an error.
func (f *fleet) listen(said io.Reader, ready func()) {
	defer ready()
	for lines := bufio.NewScanner(said); lines.Scan(); {
		var verb string
		var value int64
		fmt.Sscan(lines.Text(), &verb, &value)
		switch verb {
		case "ready":
			ready()
		case "used":
			f.used.add(value)
		case "slowest":
			f.mu.Lock()
			f.slowest = max(f.slowest, time.Duration(value))
			f.mu.Unlock()
		case "failed":
			f.mu.Lock()
			f.failed++
			f.mu.Unlock()
		}
	}
}

// useKey is one of the processes.
func useKey(t *testing.T) {
	client := redis.NewClient(&redis.Options{Addr: os.Getenv("FLEET_REDIS")})
	defer client.Close()
	timeout, err := time.ParseDuration(os.Getenv("FLEET_TIMEOUT"))
	require.NoError(t, err)
	lasting, err := time.ParseDuration(os.Getenv("FLEET_LASTING"))
	require.NoError(t, err)
	i := slices.IndexFunc(ways, func(w way) bool { return w.name == os.Getenv("FLEET_WAY") })
	use := ways[i].using(&redisstore.Store{Client: client, Timeout: timeout}, quota.Charge{Key: "pool", Limit: compile(t, pooled)})

	require.NoError(t, client.Ping(ctx).Err())
	fmt.Println("ready")
	fmt.Scanln()
	within, end := context.WithTimeout(ctx, lasting)
	defer end()
	var all sync.WaitGroup
	for range workers {
		all.Go(func() { work(within, use) })
	}
	all.Wait()
}

// work uses units, and says so at once: its process may be killed.
func work(ctx context.Context, use use) {
	var slowest time.Duration
	for ctx.Err() == nil {
		begin := time.Now()
		at, ok, err := use()
		if took := time.Since(begin); took > slowest {
			slowest = took
			fmt.Println("slowest", took.Nanoseconds())
		}
		switch {
		case ok:
			fmt.Println("used", at.UnixMicro())
		case err != nil:
			fmt.Println("failed", 1, err)
			fallthrough
		default:
			time.Sleep(idle)
		}
	}
}

// keepsToTheLimit checks that in no time more was used than the bucket admits, and
// what was forgiven.
func (f *fleet) keepsToTheLimit(t *testing.T, forgiven int64) {
	t.Helper()
	used := f.used.times()
	require.NotEmpty(t, used)
	late := pooled
	late.Burst += forgiven + pooled.Quota*f.way.late.Microseconds()/pooled.Window.Microseconds()
	assert.Zero(t, excess(used, late), "more than is admitted in some time")
	t.Logf("%d units used, at most %d in one second; %d errors, the slowest decision took %v",
		len(used), mostIn(used, time.Second), f.failed, f.slowest.Round(time.Millisecond))
}

// mostIn returns how many were used in whichever time they were most.
func mostIn(used []int64, d time.Duration) (most int) {
	first := 0
	for i, at := range used {
		for used[first] <= at-d.Microseconds() {
			first++
		}
		most = max(most, i-first+1)
	}
	return most
}

// nearly is the share of all units that is used of 20 s, of which a moment at the end
// is less than of a few.
func nearly() float64 {
	if testenv.Long() {
		return 0.98
	}
	return 0.9
}

// isUsed checks that at least a share is used of what there was at a moment, and what
// was given back until another.
func (f *fleet) isUsed(t *testing.T, from, to time.Time, first int64, least float64) {
	t.Helper()
	given := float64(first) + to.Sub(from).Seconds()*float64(pooled.Quota)/pooled.Window.Seconds()
	share := float64(len(between(f.used.times(), from, to))) / given
	assert.GreaterOrEqual(t, share, least, "of %.0f units", given)
	t.Logf("%.1f %% used of %.0f units", 100*share, given)
}

// answersInTime checks that each decision was made in time, and that units are used
// again within a second from when Redis was back.
func (f *fleet) answersInTime(t *testing.T, back time.Time) {
	t.Helper()
	assert.Positive(t, f.failed)
	assert.Less(t, f.slowest, timeout+busy)
	again := between(f.used.times(), back, f.ended)
	require.NotEmpty(t, again, "nothing was used after Redis was back")
	after := time.UnixMicro(again[0]).Sub(back)
	assert.Less(t, after, time.Second)
	if testenv.Long() { // a second later, there is some time left to look at
		f.isUsed(t, back.Add(time.Second), f.ended, 0, 0.5) // an answer that is late costs a tenth of a second, by the breaker
	}
	t.Logf("used again %v after Redis was back", after.Round(time.Millisecond))
}
