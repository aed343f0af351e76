package pace_test

import (
	"cmp"
	"context"
	"errors"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/time/rate"

	"github.com/heedhttp/heed"
	"github.com/heedhttp/heed/pace"
	"github.com/heedhttp/heed/quota"
)

var errStore = errors.New("connection refused")

// A store is a quota.Memory that can fail, be slow, lose calls, or hang whatever the context
// says. It claims to answer in time.
type store struct {
	quota.Memory
	within  time.Duration
	fails   atomic.Bool
	loses   atomic.Bool
	slow    atomic.Int64 // nanoseconds before it counts
	late    atomic.Int64 // nanoseconds between its count and its answer
	hangs   atomic.Pointer[chan struct{}]
	asked   atomic.Int64
	settled atomic.Int64
}

func (s *store) AnswersWithin() time.Duration { return cmp.Or(s.within, 50*ms) }

func (s *store) fault(ctx context.Context) error {
	s.asked.Add(1)
	time.Sleep(time.Duration(s.slow.Load()))
	if c := s.hangs.Load(); c != nil {
		<-*c
	}
	if s.loses.Load() {
		<-ctx.Done()
		return ctx.Err()
	}
	if s.fails.Load() {
		return errStore
	}
	return nil
}

func (s *store) Reserve(
	ctx context.Context, most time.Duration, charges ...quota.Charge,
) (time.Duration, time.Time, bool, error) {
	if err := s.fault(ctx); err != nil {
		return 0, time.Time{}, false, err
	}
	defer func() { time.Sleep(time.Duration(s.late.Load())) }()
	return s.Memory.Reserve(ctx, most, charges...)
}

func (s *store) Settle(ctx context.Context, charges ...quota.Charge) error {
	s.settled.Add(1)
	if err := s.fault(ctx); err != nil {
		return err
	}
	return s.Memory.Settle(ctx, charges...)
}

// hang makes s hang until release is called.
func (s *store) hang() (release func()) {
	c := make(chan struct{})
	s.hangs.Store(&c)
	return func() {
		s.hangs.Store(nil)
		close(c)
	}
}

// tenPerSecond is 10/s with a burst of n.
func tenPerSecond(n int64) []quota.Policy {
	return []quota.Policy{{Quota: 10, Window: time.Second, Burst: n}}
}

// everyAlgorithm returns q per window in each algorithm.
func everyAlgorithm(q int64, window time.Duration) (policies []quota.Policy) {
	for a := quota.TokenBucket; a <= quota.SlidingLog; a++ {
		policies = append(policies, quota.Policy{Quota: q, Window: window, Algorithm: a})
	}
	return policies
}

func TestSharedPacesAllUsersOfOneStore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := new(store)
		one := newTimeline(t, &pace.Shared{Store: store, Policies: tenPerSecond(2)})
		other := newTimeline(t, &pace.Shared{Store: store, Policies: tenPerSecond(2)})
		one.goes()
		other.goes()
		one.waits(100 * ms)
		b, c, d := one.joins(), other.joins(), one.joins()
		one.wg.Wait()
		other.wg.Wait()
		one.admittedAt(100*ms, b)
		other.admittedAt(200*ms, c)
		one.admittedAt(300*ms, d)
		other.waits(100 * ms)
	})
}

func TestSharedAdmitsAnHoursQuota(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := new(quota.Memory)
		ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
		defer cancel()
		var (
			sent atomic.Int64
			wg   sync.WaitGroup
		)
		for range 3 {
			pacer := &pace.Shared{Store: store, Policies: tenPerSecond(5)}
			for range 8 {
				wg.Go(func() {
					for {
						req := request(ctx, "http://example.com/")
						if pacer.Wait(req) != nil {
							return
						}
						sent.Add(1)
						pacer.Observe(heed.Attempt{Request: req})
					}
				})
			}
		}
		wg.Wait()
		assert.InDelta(t, 36_000+5, sent.Load(), 1)
	})
}

func TestSharedKeepsEveryPolicy(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tl := newTimeline(t, &pace.Shared{Store: new(quota.Memory), Policies: []quota.Policy{
			{Quota: 10, Window: time.Second, Burst: 1},
			{Quota: 3, Window: time.Minute},
		}})
		tl.goes()
		tl.waits(100 * ms)
		tl.at(100 * ms)
		tl.goes()
		tl.at(200 * ms)
		tl.goes()
		tl.waits(20*time.Second - 200*ms)
	})
}

func TestSharedKeysAreIndependent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		pacer := &pace.Shared{Store: new(quota.Memory), Policies: tenPerSecond(1), Key: func(req *http.Request) string {
			return req.URL.Query().Get("account")
		}}
		let := func(query string) error {
			return pacer.WaitAtMost(request(t.Context(), "http://example.com/"+query), 0)
		}
		assert.NoError(t, let("?account=a"))
		assert.NoError(t, let("?account=b"))
		assert.Equal(t, "a", overdueError(t, let("?account=a")).Key)
		assert.NoError(t, let(""))
		assert.Equal(t, "shared", overdueError(t, let("")).Key)
	})
}

func TestACancelledReservationIsGivenBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tl := newTimeline(t, &pace.Shared{Store: new(quota.Memory), Policies: tenPerSecond(1)})
		tl.goes()
		b := tl.joins()
		tl.waits(200 * ms)
		tl.at(50 * ms)
		b.cancel(errGone)
		tl.wg.Wait()
		assert.Equal(t, 50*ms, b.at)
		assert.ErrorIs(t, b.err, context.Canceled)
		assert.ErrorIs(t, b.err, errGone)
		tl.waits(50 * ms)
	})
}

func TestSharedRefusesATooLongWaitAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tl := newTimeline(t, &pace.Shared{Store: new(quota.Memory), Policies: tenPerSecond(1)})
		tl.goes()
		ctx, cancel := context.WithTimeout(t.Context(), 100*ms)
		defer cancel()
		err := tl.pacer.Wait(request(ctx, "http://example.com/"))
		assert.Equal(t, &heed.OverdueError{Key: "shared", Wait: 100 * ms, Left: 100 * ms, Deadline: true}, err)
		assert.Zero(t, time.Since(tl.start))
		require.NoError(t, tl.pacer.WaitAtMost(get(), 100*ms), "nothing was taken")
	})
}

func TestUnsentRequestsReturnTheirUnits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		pacer := &pace.Shared{
			Store: new(quota.Memory), Policies: tenPerSecond(5),
			Cost: func(*http.Request, string) int64 { return 5 },
		}
		req := get()
		require.NoError(t, pacer.Wait(req))
		overdueError(t, pacer.WaitAtMost(get(), 0))
		notSent := heed.Attempt{Request: req, Err: heed.ErrNotSent}
		pacer.Observe(notSent)
		require.NoError(t, pacer.WaitAtMost(get(), 0))
		overdueError(t, pacer.WaitAtMost(get(), 0))
	})
}

func TestObserveWithoutWaitReturnsNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		settled := 0
		store := new(store)
		pacer := &pace.Shared{
			Store: store, Policies: tenPerSecond(5),
			Settle: func(heed.Attempt, string) int64 { settled++; return 0 },
		}
		for range 5 {
			req := get()
			require.NoError(t, pacer.Wait(req))
			pacer.Observe(heed.Attempt{Request: req, Err: errGone})
		}
		asked := store.asked.Load()
		for range 3 { // of requests that were observed, or that never waited
			pacer.Observe(heed.Attempt{Request: get(), Err: heed.ErrNotSent})
			pacer.Observe(heed.Attempt{Request: get(), Response: &http.Response{}})
			pacer.Observe(
				heed.Attempt{
					Request: request(pace.WithCost(t.Context(), "", 5), "http://example.com/"),
					Err:     heed.ErrNotSent,
				},
			)
		}
		assert.Equal(t, 5, settled)
		assert.Equal(t, asked, store.asked.Load())
	})
}

// A copier is a Pacer that passes a copy of the request on, with another context, and
// observes the original.
type copier struct {
	*pace.Shared
	clones bool
}

func (c copier) WaitAtMost(req *http.Request, most time.Duration) error {
	ctx, cancel := context.WithCancel(req.Context())
	defer cancel()
	if c.clones {
		return c.Shared.WaitAtMost(req.Clone(ctx), most)
	}
	return c.Shared.WaitAtMost(req.WithContext(ctx), most)
}

func TestSharedObservesACopyOfTheRequest(t *testing.T) {
	for _, clones := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			shared := &pace.Shared{
				Store:    new(quota.Memory),
				Policies: []quota.Policy{{Quota: 100, Window: 1000 * time.Hour}},
				Settle:   func(heed.Attempt, string) int64 { return 0 },
			}
			pacer := copier{shared, clones}
			var all sync.WaitGroup
			one := get() // all send the same request
			for i := range 1000 {
				all.Go(func() {
					req := one
					if i%2 == 0 {
						req = request(pace.WithCost(t.Context(), "", 2), "http://example.com/")
					}
					if pacer.WaitAtMost(req, 0) != nil {
						return
					}
					a := heed.Attempt{Request: req, Response: &http.Response{}}
					if i%4 < 2 {
						a = heed.Attempt{Request: req, Err: heed.ErrNotSent}
					}
					pacer.Observe(a)
				})
			}
			all.Wait()
			assert.Zero(t, shared.Held(), "no hold is left")
			for range 100 {
				require.NoError(t, pacer.WaitAtMost(get(), 0), "all was given back")
			}
			overdueError(t, pacer.WaitAtMost(get(), 0))
		})
	}
}

func TestUnobservedRequestsAreForgotten(t *testing.T) {
	pacer := &pace.Shared{Store: new(quota.Memory), Policies: []quota.Policy{quota.PerHour(1_000_000)}}
	for range 65_536 + 10 {
		require.NoError(t, pacer.WaitAtMost(get(), 0))
	}
	assert.Equal(t, 10, pacer.Held())
}

func TestARequestSentTwiceCountsTwice(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		pacer := &pace.Shared{Store: new(quota.Memory), Policies: tenPerSecond(2)}
		req := get()
		require.NoError(t, pacer.Wait(req))
		require.NoError(t, pacer.Wait(req))
		overdueError(t, pacer.WaitAtMost(req, 0))
		for range 2 {
			pacer.Observe(heed.Attempt{Request: req, Err: heed.ErrNotSent})
		}
		require.NoError(t, pacer.WaitAtMost(req, 0))
		require.NoError(t, pacer.WaitAtMost(req, 0))
	})
}

func TestTheTrueCostIsSettled(t *testing.T) {
	for _, c := range []struct {
		settled int64
		wait    time.Duration // for 20 more, after 10 and these
	}{
		{0, 1000 * ms}, {-1, 2000 * ms}, {4, 1400 * ms}, {10, 2000 * ms}, {30, 4000 * ms},
	} {
		synctest.Test(t, func(t *testing.T) {
			pacer := &pace.Shared{
				Store:    new(quota.Memory),
				Policies: tenPerSecond(20),
				Cost:     func(*http.Request, string) int64 { return 10 },
				Settle:   func(heed.Attempt, string) int64 { return c.settled },
			}
			req := get()
			require.NoError(t, pacer.Wait(get()))
			require.NoError(t, pacer.Wait(req))
			pacer.Observe(heed.Attempt{Request: req, Response: &http.Response{StatusCode: 200}})
			start := time.Now()
			require.NoError(t, pacer.Wait(get()))
			require.NoError(t, pacer.Wait(get()))
			assert.Equal(t, c.wait, time.Since(start), "settled %d", c.settled)
		})
	}
}

func TestInvalidCosts(t *testing.T) {
	var cost int64
	store := new(store)
	pacer := &pace.Shared{
		Store: store, Policies: tenPerSecond(5), Cost: func(*http.Request, string) int64 { return cost },
	}
	for range 100 {
		require.NoError(t, pacer.WaitAtMost(get(), 0), "what costs nothing is not paced")
	}
	cost = -1
	assert.EqualError(t, pacer.Wait(get()), "pace: Shared.Cost is -1: it must not be negative")
	cost = 6
	err := pacer.Wait(get())
	assert.Equal(t, rate.InfDuration, overdueError(t, err).Wait)
	assert.ErrorContains(t, err, "pace: the limit of shared never admits this request")
	assert.Zero(t, store.asked.Load())
}

func TestSharedNamesEveryInvalidField(t *testing.T) {
	err := (&pace.Shared{Processes: -1}).Wait(get())
	assert.EqualError(t, err, strings.Join([]string{
		"pace: Shared.Store is nil",
		"pace: Shared.Policies is empty: at least one limit is required",
		"pace: Shared.Processes is -1: it must not be negative",
	}, "\n"))

	pacer := &pace.Shared{
		Store: new(quota.Memory), Policies: []quota.Policy{quota.PerSecond(1), {}, quota.PerSecond(1)},
	}
	for range 2 {
		err = pacer.Wait(get())
		assert.ErrorContains(t, err, "pace: Shared.Policies[1]: ")
		assert.ErrorContains(t, err, `pace: Shared.Policies[2]: its name "1/1s" is not unique`)
	}
	assert.Equal(t, err, pacer.Check())
	pacer.Observe(heed.Attempt{Request: get(), Err: heed.ErrNotSent})

	assert.EqualError(
		t, new(pace.Shared).Check(),
		"pace: Shared.Store is nil\npace: Shared.Policies is empty: at least one limit is required",
	)
	assert.NoError(t, (&pace.Shared{Store: new(quota.Memory), Policies: tenPerSecond(1), Processes: 65_536}).Check())
	assert.EqualError(t, (&pace.Shared{Store: new(quota.Memory), Policies: tenPerSecond(1), Processes: 65_537}).Check(),
		"pace: Shared.Processes is 65537: it must not be more than 65536")
}

func TestPoliciesThatCannotBeSharedAreNamed(t *testing.T) {
	pacer := &pace.Shared{Store: new(quota.Memory), Processes: 50, Policies: []quota.Policy{
		{Quota: 50, Calendar: quota.Month, Algorithm: quota.FixedWindow},
		{Quota: 49, Calendar: quota.Day, Algorithm: quota.FixedWindow},
		{Name: "decade", Quota: 1, Window: 10 * 365 * 24 * time.Hour, Algorithm: quota.SlidingLog},
	}}
	assert.EqualError(t, pacer.Check(),
		`pace: Shared.Policies[1]: "49/day" cannot be shared by 50 Processes: its Quota must be at least 50`+"\n"+
			`pace: Shared.Policies[2]: "decade" cannot be shared by 50 Processes: `+
			`quota: policy "decade": Window is 2562047h47m16.854775s: must not be longer than 71 years`)
	assert.Equal(t, pacer.Check(), pacer.Wait(get()))
}

func TestSixtyFourPacersShareOneBurstExactly(t *testing.T) {
	synctest.Test(t, func(t *testing.T) { // a bubble, where nothing is slow
		var (
			store quota.Memory
			sent  atomic.Int64
			wg    sync.WaitGroup
		)
		for range 64 {
			pacer := &pace.Shared{
				Store:    &store,
				Policies: []quota.Policy{{Quota: 1000, Window: 1000 * time.Hour}},
				Degraded: func(err error) { t.Error(err) },
			}
			wg.Go(func() {
				for n := range 100 {
					req := get()
					if pacer.WaitAtMost(req, 0) != nil {
						continue
					}
					if n%4 == 0 {
						pacer.Observe(heed.Attempt{Request: req, Err: heed.ErrNotSent})
					} else {
						sent.Add(1)
						pacer.Observe(heed.Attempt{Request: req})
					}
				}
			})
		}
		wg.Wait()
		assert.EqualValues(t, 1000, sent.Load())
	})
}

// A place that becomes free goes to the next in line, not to new requests.
func TestSharedNeverReusesAReservedTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		shared := &pace.Shared{
			Store: &quota.Memory{}, Policies: []quota.Policy{{Quota: 60, Window: time.Minute, Burst: 1}},
		}
		require.NoError(t, shared.Wait(get()))
		start := time.Now()
		var (
			mu sync.Mutex
			at []time.Duration
			wg sync.WaitGroup
		)
		join := func(ctx context.Context) {
			wg.Go(func() {
				if shared.Wait(request(ctx, "http://example.com/")) == nil {
					mu.Lock()
					defer mu.Unlock()
					at = append(at, time.Since(start))
				}
			})
			synctest.Wait()
		}
		leaving, leave := context.WithCancel(t.Context())
		for i := range 10 {
			if i < 5 {
				join(leaving)
			} else {
				join(t.Context())
			}
		}
		leave()
		synctest.Wait()
		for range 5 {
			join(t.Context())
		}
		wg.Wait()
		var want []time.Duration
		for i := range 10 {
			want = append(want, time.Duration(i+1)*time.Second)
		}
		assert.Equal(t, want, at)
	})
}

// However many requests come and go, exactly what the policy allows is admitted.
func TestSharedLosesAndCreatesNoUnits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const limit, burst, seconds = 20, 5, 60
		shared := &pace.Shared{
			Store: &quota.Memory{}, Policies: []quota.Policy{{Quota: limit, Window: time.Second, Burst: burst}},
		}
		start := time.Now()
		var (
			mu  sync.Mutex
			at  []time.Duration
			all sync.WaitGroup
		)
		for i := range 64 {
			all.Go(func() {
				for n := i; time.Since(start) < seconds*time.Second; n++ {
					ctx, cancel := context.WithTimeout(t.Context(), time.Duration(n%80+30)*50*ms)
					if n%3 == 0 {
						time.AfterFunc(time.Duration(n%37)*50*ms, cancel)
					}
					req := request(ctx, "http://example.com/")
					switch err := shared.Wait(req); {
					case err != nil:
						time.Sleep(ms)
					case n%5 == 0:
						shared.Observe(heed.Attempt{Request: req, Err: heed.ErrNotSent})
						time.Sleep(ms)
					default:
						mu.Lock()
						at = append(at, time.Since(start))
						mu.Unlock()
					}
					cancel()
				}
			})
		}
		all.Wait()
		level, last := float64(burst), time.Duration(0)
		for _, moment := range at {
			level, last = min(burst, level+limit*(moment-last).Seconds())-1, moment
			require.GreaterOrEqual(t, level, -0.001, "at %v", moment)
		}
		assert.GreaterOrEqual(t, len(at), limit*seconds*9/10)
	})
}
