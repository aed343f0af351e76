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

// Ten processes use one key together, each with its own Store.

var pooled = quota.Policy{Name: "pooled", Quota: 1000, Window: time.Second, Burst: 500}

// processes is the number of processes. Fewer find everything except the measurements of the long form.
var processes = stated(10, 4)

const (
	workers = 3 // in each process

	// idle is how long a worker waits after a denial, so that the bucket refills by some units
	// meanwhile.
	idle = 10 * time.Millisecond

	// timeout is the default of a Store. A decision takes no longer, except on a machine with
	// fewer processors than processes, until its goroutine runs again.
	timeout = 50 * time.Millisecond
	busy    = 500 * time.Millisecond
)

// A way is how the processes use their Stores.
type way struct {
	name   string
	faults bool          // also run it with faults
	late   time.Duration // how long after its admission a unit may be used
	held   int64         // how many unused units a process may hold: its share of 250 ms
	using  func(s *redisstore.Store, c quota.Charge) use
}

// A use tries to use one unit, and returns when it did.
type use func() (at time.Time, ok bool, err error)

var ways = []way{
	{name: "taking", faults: true, using: taking},
	{name: "reserving", using: func(s *redisstore.Store, c quota.Charge) use { return reserving(s, c) }},
	{name: "leasing", faults: true, late: 250 * time.Millisecond, held: 45, using: leasing},
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

// reserving waits for the time of its reservation.
func reserving(r quota.Reserver, c quota.Charge) use {
	return func() (time.Time, bool, error) {
		wait, at, ok, err := r.Reserve(ctx, 100*time.Millisecond, c)
		if ok {
			time.Sleep(wait)
		}
		return at, ok, err
	}
}

// leasing is reserving, but returns the time of the actual use, which may be later than reserved.
func leasing(s *redisstore.Store, c quota.Charge) use {
	reserve := reserving(&redisstore.Lease{Store: s}, c)
	return func() (time.Time, bool, error) {
		_, ok, err := reserve()
		return time.Now(), ok, err
	}
}

// The processes use the key while nothing happens, or a third of them are killed, or Redis is stopped, or
// killed and restarted. In the long form each case takes 20 s, and also measures how much of the limit
// they use, and how soon.
func TestTenProcessesUseOneKey(t *testing.T) {
	if os.Getenv("FLEET_REDIS") != "" {
		useKey(t)
		return
	}
	mostlyWaits(t)
	for _, w := range ways {
		t.Run(w.name, func(t *testing.T) {
			f := startFleet(t, w, patient)
			f.work(t, 20*time.Second)
			f.end()
			f.checkLimit(t, 0)
			first := time.UnixMicro(f.used.times()[0])
			f.checkUse(t, first, pooled.Burst-int64(processes)*w.held)
		})
		if !w.faults {
			continue
		}
		t.Run(w.name+", a third are killed", func(t *testing.T) {
			f := startFleet(t, w, patient)
			f.work(t, 10*time.Second)
			for _, child := range f.children[:processes/3] {
				require.NoError(t, child.Process.Kill())
			}
			killed := time.Now()
			f.work(t, 10*time.Second)
			f.end()
			f.checkLimit(t, 0)
			f.checkUse(t, killed, -int64(processes/3)*w.held)
		})
		t.Run(w.name+", Redis is stopped", func(t *testing.T) {
			f := startFleet(t, w, stated(timeout, 6*timeout))
			f.work(t, 5*time.Second)
			f.redis.Stop()
			f.miss(t, 5*time.Second)
			f.redis.Cont()
			back := time.Now()
			f.work(t, 10*time.Second)
			f.end()
			f.checkLimit(t, 0)
			f.checkRecovery(t, back)
		})
		t.Run(w.name+", Redis is killed", func(t *testing.T) {
			f := startFleet(t, w, stated(timeout, 6*timeout))
			f.work(t, 5*time.Second)
			f.redis.Kill()
			f.miss(t, 5*time.Second)
			f.redis.Restart()
			back := time.Now()
			f.work(t, 10*time.Second)
			f.end()
			f.checkLimit(t, pooled.Burst) // an empty Redis starts with a full bucket
			f.checkRecovery(t, back)
		})
	}
}

// A fleet is the processes of this test, with their output.
type fleet struct {
	redis    *redistest.Server
	children []*exec.Cmd
	way      way
	orders   []io.WriteCloser // to each process, which starts to work at a line and ends at the end
	began    time.Time
	ended    time.Time
	reading  sync.WaitGroup

	used ledger

	mu      sync.Mutex // guards what follows
	slowest time.Duration
	failed  int
}

// startFleet starts all processes.
func startFleet(t *testing.T, w way, timeout time.Duration) *fleet {
	f := &fleet{redis: redistest.Shared(t), way: w}
	var ready sync.WaitGroup
	for range processes {
		child := exec.CommandContext(t.Context(), os.Args[0], "-test.run", "^TestTenProcessesUseOneKey$")
		child.Env = append(os.Environ(), "FLEET_REDIS="+f.redis.Addr, "FLEET_WAY="+w.name,
			"GORACE=atexit_sleep_ms=0", "FLEET_TIMEOUT="+timeout.String())
		child.Stderr = os.Stderr
		orders, err := child.StdinPipe()
		require.NoError(t, err)
		said, err := child.StdoutPipe()
		require.NoError(t, err)
		require.NoError(t, child.Start())
		f.children, f.orders = append(f.children, child), append(f.orders, orders)
		ready.Add(1)
		f.reading.Go(func() { f.listen(said, sync.OnceFunc(ready.Done)) })
	}
	ready.Wait()
	f.began = time.Now()
	for _, order := range f.orders {
		_, err := io.WriteString(order, "go\n")
		require.NoError(t, err)
	}
	return f
}

// work lets the processes work: for the stated time in the long form, and otherwise until they have used
// more units than before, and than one bucket holds.
func (f *fleet) work(t *testing.T, stated time.Duration) {
	t.Helper()
	if testenv.Long() {
		time.Sleep(stated)
		return
	}
	enough := max(int(pooled.Burst), len(f.used.times())) + 100
	require.Eventually(t, func() bool { return len(f.used.times()) >= enough }, hang, ms)
}

// miss lets them fail: for the stated time in the long form, and otherwise until some have noticed that
// Redis does not answer.
func (f *fleet) miss(t *testing.T, stated time.Duration) {
	t.Helper()
	if testenv.Long() {
		time.Sleep(stated)
		return
	}
	_, before := f.troubles()
	require.Eventually(t, func() bool { _, failed := f.troubles(); return failed >= before+processes }, hang, ms)
}

// end ends all processes, and waits for them.
func (f *fleet) end() {
	f.ended = time.Now()
	for _, order := range f.orders {
		order.Close()
	}
	f.reading.Wait()
	for _, child := range f.children {
		child.Wait()
	}
}

// troubles returns how long the slowest decision took, and how many failed.
func (f *fleet) troubles() (slowest time.Duration, failed int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.slowest, f.failed
}

// listen reads the output of a process: that it is ready, the times in µs at which it used units, its
// slowest decision so far, or an error.
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
	i := slices.IndexFunc(ways, func(w way) bool { return w.name == os.Getenv("FLEET_WAY") })
	store := &redisstore.Store{Client: client, Timeout: timeout}
	use := ways[i].using(store, quota.Charge{Key: "pool", Limit: compile(t, pooled)})

	require.NoError(t, client.Ping(ctx).Err())
	fmt.Println("ready")
	orders := bufio.NewReader(os.Stdin)
	orders.ReadString('\n')
	within, end := context.WithCancel(ctx)
	go func() {
		defer end()
		io.Copy(io.Discard, orders) // until its end
	}()
	var all sync.WaitGroup
	for range workers {
		all.Go(func() { work(within, use) })
	}
	all.Wait()
}

// work uses units, and prints each use at once, because its process may be killed.
func work(ctx context.Context, use use) {
	var slowest time.Duration
	for ctx.Err() == nil {
		start := time.Now()
		at, ok, err := use()
		if took := time.Since(start); took > slowest {
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

// checkLimit checks that in no time more was used than the bucket admits, plus forgiven. In the long form
// it also limits how late units are used; otherwise a busy machine may suspend a process for longer.
// Counted from the start, no more is used than the bucket admits, however late.
func (f *fleet) checkLimit(t *testing.T, forgiven int64) {
	t.Helper()
	used := f.used.times()
	require.NotEmpty(t, used)
	most, late := pooled, pooled
	most.Burst += forgiven
	late.Burst += forgiven + pooled.Quota*f.way.late.Microseconds()/pooled.Window.Microseconds()
	since := append([]int64{f.began.UnixMicro()}, used...)
	if forgiven == 0 {
		assert.Zero(t, sinceBegin(since, most), "more than is admitted since the start")
	} else { // units of the near future may be unknown to an empty Redis
		assert.Zero(t, sinceBegin(since, late), "more than is admitted since the start")
	}
	if f.way.late == 0 || testenv.Long() {
		assert.Zero(t, excess(used, late), "more than is admitted in some time")
	}
	slowest, failed := f.troubles()
	t.Logf("%d units used, at most %d in one second; %d errors, the slowest decision took %v",
		len(used), mostIn(used, time.Second), failed, slowest.Round(time.Millisecond))
}

// sinceBegin returns how many units more than Burst + Quota·t/Window were used, counted from the first of
// times.
func sinceBegin(times []int64, p quota.Policy) (worst int64) {
	for n, at := range times {
		most := p.Burst + p.Quota*(at-times[0])/p.Window.Microseconds()
		worst = max(worst, int64(n)-most)
	}
	return worst
}

// mostIn returns the largest number of uses in any time d.
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

// nearly is the share of all units that must be used in 20 s. A pause at the end costs little of them.
const nearly = 0.98

// checkUse checks, in the long form, that since from nearly all units were used: the first ones, and those
// that were refilled until the end.
func (f *fleet) checkUse(t *testing.T, from time.Time, first int64) {
	t.Helper()
	if testenv.Long() {
		f.shareOf(t, from, first, nearly)
	}
}

func (f *fleet) shareOf(t *testing.T, from time.Time, first int64, least float64) {
	t.Helper()
	given := float64(first) + f.ended.Sub(from).Seconds()*float64(pooled.Quota)/pooled.Window.Seconds()
	share := float64(len(between(f.used.times(), from, f.ended))) / given
	assert.GreaterOrEqual(t, share, least, "of %.0f units", given)
	t.Logf("%.1f %% used of %.0f units", 100*share, given)
}

// checkRecovery checks that units are used again when Redis is back. In the long form this takes less than
// a second, and each decision is made in time.
func (f *fleet) checkRecovery(t *testing.T, back time.Time) {
	t.Helper()
	slowest, failed := f.troubles()
	assert.Positive(t, failed)
	again := between(f.used.times(), back, f.ended)
	require.NotEmpty(t, again, "nothing was used after Redis was back")
	if !testenv.Long() {
		return
	}
	assert.Less(t, slowest, timeout+busy)
	after := time.UnixMicro(again[0]).Sub(back)
	assert.Less(t, after, time.Second)
	f.shareOf(t, back.Add(time.Second), 0, 0.5) // by the breaker, a late answer costs a tenth of a second
	t.Logf("used again %v after Redis was back", after.Round(time.Millisecond))
}
