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

// processes are ten in the long form. Fewer find all that has nothing to do with how long
// anything takes.
var processes = stated(10, 4)

const (
	workers = 3 // in each

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

// TestTenProcessesUseOneKey has them use it while nothing happens, or a third of them
// are killed, or Redis is stopped, or killed and started anew. In its long form that takes 20 s
// each, and shows also how much of what there is they use, and how soon.
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
			f.keepsToTheLimit(t, 0)
			first := time.UnixMicro(f.used.times()[0])
			f.isUsed(t, first, pooled.Burst-int64(processes)*w.held)
		})
		if !w.fuss {
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
			f.keepsToTheLimit(t, 0)
			f.isUsed(t, killed, -int64(processes/3)*w.held)
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
			f.keepsToTheLimit(t, 0)
			f.answersInTime(t, back)
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
	orders   []io.WriteCloser // for each child, which begins at a line and ends with it
	began    time.Time
	ended    time.Time
	reading  sync.WaitGroup

	used ledger

	mu      sync.Mutex // guards what follows
	slowest time.Duration
	failed  int
}

// startFleet returns when all processes have begun.
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

// work lets the processes work: for a while in the long form, and else until they have
// used some more units than they had, or than one bucket has.
func (f *fleet) work(t *testing.T, stated time.Duration) {
	t.Helper()
	if testenv.Long() {
		time.Sleep(stated)
		return
	}
	enough := max(int(pooled.Burst), len(f.used.times())) + 100
	require.Eventually(t, func() bool { return len(f.used.times()) >= enough }, hang, ms)
}

// miss lets them try in vain: for a while in the long form, and else until some have
// noticed that Redis does not answer.
func (f *fleet) miss(t *testing.T, stated time.Duration) {
	t.Helper()
	if testenv.Long() {
		time.Sleep(stated)
		return
	}
	_, before := f.troubles()
	require.Eventually(t, func() bool { _, failed := f.troubles(); return failed >= before+processes }, hang, ms)
}

// end has all processes end, and waits until they have.
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

// troubles are how long the slowest decision took, and how many failed.
func (f *fleet) troubles() (slowest time.Duration, failed int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.slowest, f.failed
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
	i := slices.IndexFunc(ways, func(w way) bool { return w.name == os.Getenv("FLEET_WAY") })
	use := ways[i].using(&redisstore.Store{Client: client, Timeout: timeout}, quota.Charge{Key: "pool", Limit: compile(t, pooled)})

	require.NoError(t, client.Ping(ctx).Err())
	fmt.Println("ready")
	orders := bufio.NewReader(os.Stdin)
	orders.ReadString('\n')
	within, end := context.WithCancel(ctx)
	go func() {
		defer end()
		io.Copy(io.Discard, orders) // until there are no more
	}()
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
// what was forgiven. What is used late by its own clock is checked so in the long form:
// a process that does not run for a while is later. But since the beginning no more was
// used than the bucket admits however late that was.
func (f *fleet) keepsToTheLimit(t *testing.T, forgiven int64) {
	t.Helper()
	used := f.used.times()
	require.NotEmpty(t, used)
	most, late := pooled, pooled
	most.Burst += forgiven
	late.Burst += forgiven + pooled.Quota*f.way.late.Microseconds()/pooled.Window.Microseconds()
	since := append([]int64{f.began.UnixMicro()}, used...)
	if forgiven == 0 {
		assert.Zero(t, sinceBegin(since, most), "more than is admitted since the beginning")
	} else { // what an empty Redis does not know of includes units of the time to come
		assert.Zero(t, sinceBegin(since, late), "more than is admitted since the beginning")
	}
	if f.way.late == 0 || testenv.Long() {
		assert.Zero(t, excess(used, late), "more than is admitted in some time")
	}
	slowest, failed := f.troubles()
	t.Logf("%d units used, at most %d in one second; %d errors, the slowest decision took %v",
		len(used), mostIn(used, time.Second), failed, slowest.Round(time.Millisecond))
}

// sinceBegin is how many units more were used, from the first of times to some other, than
// a token bucket admits: Burst + Quota·t/Window. At the first none was.
func sinceBegin(times []int64, p quota.Policy) (worst int64) {
	for n, at := range times {
		most := p.Burst + p.Quota*(at-times[0])/p.Window.Microseconds()
		worst = max(worst, int64(n)-most)
	}
	return worst
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
const nearly = 0.98

// isUsed checks, in the long form, that nearly all is used of what there was at a moment,
// and what was given back until the end.
func (f *fleet) isUsed(t *testing.T, from time.Time, first int64) {
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

// answersInTime checks that units are used again when Redis is back; in the long form,
// that it is within a second, and that each decision was made in time.
func (f *fleet) answersInTime(t *testing.T, back time.Time) {
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
	f.shareOf(t, back.Add(time.Second), 0, 0.5) // an answer that is late costs a tenth of a second, by the breaker
	t.Logf("used again %v after Redis was back", after.Round(time.Millisecond))
}
