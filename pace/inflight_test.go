package pace_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/heedhttp/heed"
	"github.com/heedhttp/heed/internal/redistest"
	"github.com/heedhttp/heed/pace"
	"github.com/heedhttp/heed/quota"
	"github.com/heedhttp/heed/redisstore"
)

// uses asserts how many places are used, and how many there are.
func uses(t *testing.T, f *pace.InFlight, used, limit int64) {
	t.Helper()
	u, l := f.Places(get())
	assert.Equal(t, []int64{used, limit}, []int64{u, l})
}

// answers observes the answer to a request that was sent just now.
func answered(p heed.Pacer, status int, body io.ReadCloser, header ...string) *http.Response {
	resp := &http.Response{StatusCode: status, Header: http.Header{}, Body: body}
	for i := 0; i < len(header); i += 2 {
		resp.Header.Set(header[i], header[i+1])
	}
	p.Observe(heed.Attempt{Request: get(), Response: resp})
	return resp
}

func costing(n int64) *http.Request {
	return request(pace.WithCost(context.Background(), "", n), "http://example.com/")
}

func TestAPlaceIsHeldUntilTheBodyEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &pace.InFlight{Limit: 3}
		tl := newTimeline(t, f)
		text := func() io.ReadCloser { return io.NopCloser(strings.NewReader("text")) }
		held := int64(0)
		for _, ends := range []func(){
			func() { tl.givesBack() },
			func() { f.Observe(heed.Attempt{Request: get(), Err: errGone}) },
			func() { answered(f, 204, http.NoBody) },
			func() { _, _ = io.ReadAll(answered(f, 200, text()).Body) },
			func() {
				resp := answered(f, 200, text())
				_, _ = resp.Body.Read(make([]byte, 1))
				uses(t, f, held, 3)
				resp.Body.Close()
				_, _ = io.ReadAll(resp.Body)
				resp.Body.Close()
			},
			func() {
				resp := answered(f, 101, text())
				_, _ = io.ReadAll(resp.Body)
				uses(t, f, held, 3)
				resp.Body.Close()
			},
		} {
			for range 3 {
				tl.goes()
			}
			tl.waits(time.Second)
			for held = 3; held > 0; {
				ends()
				held--
				uses(t, f, held, 3)
			}
			f.Observe(heed.Attempt{Request: get()}) // of a request that never waited
			uses(t, f, 0, 3)
		}
	})
}

func TestRequestsWaitInLineForPlaces(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &pace.InFlight{Limit: 1}
		tl := newTimeline(t, f)
		tl.goes()
		first, gone, second, third := tl.joins(), tl.joins(), tl.joins(), tl.joins()
		tl.at(time.Second)
		gone.cancel(errGone)
		tl.givesBack()
		tl.waits(time.Second)
		tl.at(2 * time.Second)
		tl.givesBack()
		tl.at(3 * time.Second)
		tl.givesBack()
		tl.wg.Wait()
		tl.admittedAt(time.Second, first)
		tl.admittedAt(2*time.Second, second)
		tl.admittedAt(3*time.Second, third)
		assert.ErrorIs(t, gone.err, errGone)
		uses(t, f, 1, 1)
		tl.givesBack()
		uses(t, f, 0, 1)
	})
}

func TestARequestTakesAsManyPlacesAsItCosts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &pace.InFlight{Limit: 4}
		tl := newTimeline(t, f)
		big := costing(9)
		require.NoError(t, f.Wait(big))
		uses(t, f, 4, 4)
		require.NoError(t, f.WaitAtMost(costing(0), 0))
		require.NoError(t, f.WaitAtMost(costing(-1), 0))
		one := tl.joins()
		f.Observe(heed.Attempt{Request: big})
		tl.at(0)
		uses(t, f, 1, 4)
		two := make(chan error)
		go func() { two <- f.Wait(costing(4)) }()
		synctest.Wait()
		late := tl.joins() // does not overtake, though three places are free
		tl.at(time.Second)
		tl.givesBack()
		require.NoError(t, <-two)
		uses(t, f, 4, 4)
		assert.Zero(t, late.at)
		tl.givesBack()
		tl.wg.Wait()
		tl.admittedAt(0, one)
		tl.admittedAt(time.Second, late)
		uses(t, f, 1, 4)
	})
	f := &pace.InFlight{Limit: 4, Unit: "jobs", Cost: func(_ *http.Request, unit string) int64 { return int64(len(unit)) - 1 }}
	require.NoError(t, f.Wait(get()))
	uses(t, f, 3, 4)
}

func TestAWaitThatIsTooLongEndsInTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, f := range []*pace.InFlight{{Limit: 1}, {}, {Limit: 1, Gate: new(quota.Memory)}} {
			for f.WaitAtMost(get(), 0) == nil {
			}
			before, _ := f.Places(get())
			start := time.Now()
			err := f.WaitAtMost(get(), 300*ms)
			assert.Equal(t, &heed.OverdueError{Key: "http://example.com", Wait: time.Second, Left: 300 * ms}, overdueError(t, err))
			assert.Equal(t, 300*ms, time.Since(start))
			ctx, cancel := context.WithTimeout(t.Context(), 300*ms)
			defer cancel()
			require.ErrorIs(t, f.Wait(request(ctx, "http://example.com/")), context.DeadlineExceeded)
			assert.Equal(t, 600*ms, time.Since(start))
			over := request(justOver{t.Context(), time.Now()}, "http://example.com/")
			assert.True(t, overdueError(t, f.Wait(over)).Deadline)
			used, _ := f.Places(get())
			assert.Equal(t, before, used)
		}
	})
}

func TestWrongFieldsOfAnInFlight(t *testing.T) {
	assert.EqualError(t, (&pace.InFlight{Limit: -1}).Wait(get()), "pace: InFlight.Limit is -1: it must not be negative")
	assert.EqualError(t, (&pace.InFlight{MaxKeys: -1}).Wait(get()), "pace: InFlight.MaxKeys is -1: it must not be negative")
}

func TestEachKeyHasPlacesOfItsOwn(t *testing.T) {
	of := func(token string) *http.Request {
		req := get()
		req.Header.Set("Authorization", "Bearer "+token)
		return req
	}
	f := &pace.InFlight{Limit: 1, MaxKeys: 2}
	for i := range 4 {
		require.NoError(t, f.WaitAtMost(of(fmt.Sprint(i)), 0))
	}
	for i := range 4 { // those in flight are never forgotten
		require.Error(t, f.WaitAtMost(of(fmt.Sprint(i)), 0))
		f.Observe(heed.Attempt{Request: of(fmt.Sprint(i))})
	}
	require.NoError(t, f.Wait(of("5")))
	known := 0
	for i := range 6 {
		if _, limit := f.Places(of(fmt.Sprint(i))); limit > 0 {
			known++
		}
	}
	assert.LessOrEqual(t, known, 3)
	byPath := &pace.InFlight{Limit: 1, Key: func(req *http.Request) string { return req.URL.Path }}
	require.NoError(t, byPath.Wait(of("1")))
	require.Error(t, byPath.WaitAtMost(of("2"), 0))
}

// Each and Queue pass places on, and a Pacer that refuses gives them back.
func TestAnInFlightWithinOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &pace.InFlight{Limit: 2}
		hourly := pace.PerHost(1./3600, 1)
		tl := newTimeline(t, pace.Each(f, hourly))
		tl.goes()
		overdueError(t, tl.pacer.WaitAtMost(get(), time.Second))
		uses(t, f, 1, 2)
		tl.givesBack()
		uses(t, f, 0, 2)

		tl = newTimeline(t, &pace.Queue{Pacer: f, Priority: func(req *http.Request) int { return int(pace.Cost(req, "urgent")) }})
		tl.goes()
		tl.goes()
		_, low := tl.joins(), tl.joins()
		urgent := make(chan error)
		go func() {
			urgent <- tl.pacer.Wait(request(pace.WithCost(t.Context(), "urgent", 1), "http://example.com/"))
		}()
		synctest.Wait()
		answered(tl.pacer, 200, http.NoBody)
		answered(tl.pacer, 200, http.NoBody)
		require.NoError(t, <-urgent)
		assert.Zero(t, low.at)
		tl.givesBack()
		tl.wg.Wait()
	})
}

// No more than the limit are in flight in the server until bodies are closed, over either protocol, and
// with retries.
func TestNoMoreThanTheLimitAreInFlight(t *testing.T) {
	for _, http2 := range []bool{false, true} {
		t.Run(fmt.Sprint("HTTP/2 ", http2), func(t *testing.T) {
			var now, most, sent atomic.Int64
			s := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
				if sent.Add(1)%5 == 0 {
					w.WriteHeader(http.StatusBadGateway)
				}
				fmt.Fprint(w, "text")
			}))
			s.EnableHTTP2 = http2
			s.StartTLS()
			defer s.Close()
			f := &pace.InFlight{Limit: 3}
			tr := &heed.Transport{Base: s.Client().Transport, Pacer: f, Budget: heed.Unlimited, Retry: heed.RetryPolicy{
				MaxAttempts: 100, Backoff: func(heed.Attempt) time.Duration { return 0 },
			}}
			var all sync.WaitGroup
			for range 20 {
				all.Go(func() {
					resp, err := tr.RoundTrip(request(t.Context(), s.URL))
					if !assert.NoError(t, err) {
						return
					}
					defer resp.Body.Close()
					assert.Equal(t, http2, resp.ProtoMajor == 2)
					n := now.Add(1)
					for m := most.Load(); n > m && !most.CompareAndSwap(m, n); m = most.Load() {
					}
					now.Add(-1)
				})
			}
			all.Wait()
			used, limit := f.Places(request(t.Context(), s.URL))
			assert.Equal(t, []int64{0, 3}, []int64{used, limit})
			assert.LessOrEqual(t, most.Load(), int64(3))
			assert.GreaterOrEqual(t, sent.Load(), int64(24))
		})
	}
}

func TestAGateSharesPlaces(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		gate := new(quota.Memory)
		f, other := &pace.InFlight{Limit: 2, Gate: gate}, &pace.InFlight{Limit: 2, Gate: gate}
		tl, there := newTimeline(t, f), newTimeline(t, other)
		tl.goes()
		there.goes()
		tl.waits(time.Second)
		uses(t, f, 1, 2)
		first, gone := tl.joins(), tl.joins()
		tl.at(3500 * ms)
		gone.cancel(errGone)
		second := tl.joins()
		there.givesBack()
		tl.at(3700 * ms) // it asks every 50 to 150 ms
		assert.NotZero(t, first.at)
		assert.Zero(t, second.at)
		tl.at(5 * time.Second)
		tl.givesBack()
		tl.wg.Wait()
		assert.Less(t, first.at, 3650*ms)
		assert.Less(t, second.at, 5150*ms)
		require.NoError(t, errors.Join(first.err, second.err))
		assert.ErrorIs(t, gone.err, errGone)
		tl.givesBack()
		tl.givesBack()
		uses(t, f, 0, 2)
		hold, _, err := gate.Acquire(t.Context(), "http://example.com", 2, 2)
		require.NoError(t, err)
		assert.NotNil(t, hold, "nothing is left behind")
	})
}

// A process that always wants more leaves a share to others.
func TestProcessesTakeTurns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		gate := new(quota.Memory)
		var served [2]int
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Minute)
		defer cancel()
		var all sync.WaitGroup
		for i := range served {
			f := &pace.InFlight{Limit: 1, Gate: gate}
			for range 3 {
				all.Go(func() {
					for req := request(ctx, "http://example.com/"); f.Wait(req) == nil; f.Observe(heed.Attempt{Request: req}) {
						time.Sleep(time.Second)
						served[i]++
					}
				})
			}
		}
		all.Wait()
		assert.Greater(t, served[0]+served[1], 540)
		assert.Greater(t, min(served[0], served[1]), 100)
	})
}

// A brokenGate fails.
type brokenGate struct{ quota.Gate }

func (brokenGate) Acquire(context.Context, string, int64, int64) (*quota.Hold, quota.Decision, error) {
	return nil, quota.Decision{}, errGone
}

func TestWithoutItsGateAProcessKeepsTheLimit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var errs []string
		f := &pace.InFlight{Limit: 2, Gate: brokenGate{}, Degraded: func(err error) { errs = append(errs, err.Error()) }}
		tl := newTimeline(t, f)
		tl.goes()
		tl.goes()
		tl.waits(time.Second)
		tl.at(time.Second)
		tl.givesBack()
		tl.goes()
		tl.waits(time.Second)
		assert.Equal(t, []string{"pace: InFlight.Gate: " + errGone.Error(), "pace: InFlight.Gate: " + errGone.Error()}, errs)
	})
}

func TestRefusalsOfABurstTellTheLimit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := new(pace.InFlight)
		tl := newTimeline(t, f)
		for range 10 {
			tl.goes()
		}
		for range 6 {
			answered(f, 429, http.NoBody)
		}
		uses(t, f, 4, 4)
		answered(f, 503, http.NoBody)
		f.Observe(heed.Attempt{Request: get(), Err: errGone})
		answered(f, 200, http.NoBody)
		answered(f, 429, http.NoBody)
		uses(t, f, 0, 4) // neither an outage nor the refusal of one that was alone is about others

		for i, status := range []int{500, 200} { // a hundred good answers raise the limit
			for range 100 {
				tl.goes()
				answered(f, status, http.NoBody)
			}
			tl.at(time.Minute)
			for range 4 + i {
				tl.goes()
			}
			tl.waits(time.Second)
			for range 4 + i {
				tl.givesBack()
			}
		}
	})
}

func TestWhichRefusalsCount(t *testing.T) {
	for name, c := range map[string]struct {
		pacer  *pace.InFlight
		status int
		header []string
		sent   int // in the last seconds
		limit  int64
	}{
		"429":                            {new(pace.InFlight), 429, nil, 20, 4},
		"429 with a hint, at a low rate": {new(pace.InFlight), 429, []string{"Retry-After", "1"}, 7, 4},
		"429 with a hint":                {new(pace.InFlight), 429, []string{"Retry-After", "1"}, 8, 10},
		"503 with a hint, at a low rate": {new(pace.InFlight), 503, []string{"Retry-After", "1"}, 0, 4},
		"503":                            {new(pace.InFlight), 503, nil, 0, 10},
		"503 behind nginx":               {&pace.InFlight{Refused: pace.Refusals(false, 503)}, 503, nil, 20, 4},
		"429 with a given limit":         {&pace.InFlight{Limit: 7}, 429, nil, 0, 7},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				tl := newTimeline(t, c.pacer)
				for range 4 {
					tl.goes()
				}
				tl.at(3 * time.Second)
				for range c.sent {
					tl.goes()
					tl.givesBack()
				}
				tl.goes() // of 5 in flight the last is refused
				answered(c.pacer, c.status, http.NoBody, c.header...)
				uses(t, c.pacer, 4, c.limit)
			})
		})
	}
}

// A crowded server refuses what comes while it has limit requests.
type crowded struct {
	latency time.Duration
	took    func() time.Duration

	mu              sync.Mutex // guards all below
	limit, inFlight int
	sent, refused   int
	used, possible  time.Duration // of all places
	since           time.Time
}

// becomes changes the limit, and how many requests are in flight.
func (s *crowded) becomes(limit, change int) {
	now := time.Now()
	s.used += now.Sub(s.since) * time.Duration(min(s.inFlight, s.limit))
	s.possible += now.Sub(s.since) * time.Duration(s.limit)
	s.since, s.limit, s.inFlight = now, limit, s.inFlight+change
}

func (s *crowded) RoundTrip(req *http.Request) (*http.Response, error) {
	time.Sleep(s.latency)
	defer time.Sleep(s.latency)
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.sent++; s.inFlight >= s.limit {
		s.refused++
		return &http.Response{StatusCode: 429, Body: http.NoBody, Request: req}, nil
	}
	s.becomes(s.limit, 1)
	took := s.took()
	s.mu.Unlock()
	time.Sleep(took)
	s.mu.Lock()
	s.becomes(s.limit, -1)
	return &http.Response{StatusCode: 200, Body: http.NoBody, Request: req}, nil
}

// The figures in the doc of InFlight, with some room: the order of requests and the waits of retries
// are random.
func TestTheLimitIsFoundAgain(t *testing.T) {
	for _, c := range []struct {
		phases        []int
		refused, used float64
	}{
		{[]int{10, 4, 10, 4, 10, 4}, 0.06, 0.94},
		{[]int{10, 10, 10, 10, 10}, 0.02, 0.96},
		{[]int{1, 1, 1, 1}, 0.2, 0.98},
	} {
		t.Run(fmt.Sprint(c.phases), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				random := rand.New(rand.NewPCG(1, 2))
				s := &crowded{latency: 20 * ms, since: time.Now(), took: func() time.Duration {
					return time.Second + time.Duration(random.Int64N(int64(19*time.Second)))
				}}
				f := new(pace.InFlight)
				tr := &heed.Transport{Base: s, Pacer: f, Retry: heed.RetryPolicy{MaxWait: time.Hour, MaxElapsed: -1, MaxAttempts: 99}}
				var done atomic.Bool
				var all sync.WaitGroup
				for range 30 {
					all.Go(func() {
						for !done.Load() {
							_, err := tr.RoundTrip(get())
							assert.NoError(t, err)
						}
					})
				}
				for _, limit := range c.phases {
					s.mu.Lock()
					s.becomes(limit, 0)
					s.mu.Unlock()
					time.Sleep(30 * time.Second)
					_, found := f.Places(get())
					assert.InDelta(t, limit, found, 1)
					time.Sleep(90 * time.Second)
				}
				done.Store(true)
				all.Wait()
				refused, used := float64(s.refused)/float64(s.sent), float64(s.used)/float64(s.possible)
				t.Logf("%.3f refused, %.3f used", refused, used)
				assert.Less(t, refused, c.refused)
				assert.Greater(t, used, c.used)
			})
		})
	}
}

// A limit of the rate, with hints, does not shrink the number in flight: it is as without an InFlight.
func TestALimitOfTheRateIsNotTakenForOneOfRequestsInFlight(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		bucket := pace.PerHost(20, 20)
		base := roundTripper(func(req *http.Request) (*http.Response, error) {
			if bucket.WaitAtMost(req, 0) != nil {
				return &http.Response{StatusCode: 429, Header: http.Header{"Retry-After": {"1"}}, Body: http.NoBody, Request: req}, nil
			}
			time.Sleep(200 * ms)
			return &http.Response{StatusCode: 200, Body: http.NoBody, Request: req}, nil
		})
		f := new(pace.InFlight)
		tr := &heed.Transport{Base: base, Pacer: f, Retry: heed.RetryPolicy{MaxElapsed: -1, MaxAttempts: 99}}
		var all sync.WaitGroup
		for range 30 {
			all.Go(func() {
				for range 50 {
					_, err := tr.RoundTrip(get())
					assert.NoError(t, err)
				}
			})
		}
		all.Wait()
		_, limit := f.Places(get())
		assert.GreaterOrEqual(t, limit, int64(10))
	})
}

// Two processes with a Store each have three places in Redis.
func TestPlacesInRedis(t *testing.T) {
	server := redistest.Start(t)
	var now, most atomic.Int64
	var all sync.WaitGroup
	for range 2 {
		gate := inRedis(t, server.Addr).Store.(*redisstore.Store)
		gate.Timeout = time.Minute // however busy the machine is
		f := &pace.InFlight{Limit: 3, Gate: gate, Degraded: func(err error) { t.Error(err) }}
		for range 6 {
			all.Go(func() {
				for range 3 {
					req := get()
					assert.NoError(t, f.Wait(req))
					if n := now.Add(1); n > most.Load() {
						most.Store(n)
					}
					time.Sleep(ms)
					now.Add(-1)
					f.Observe(heed.Attempt{Request: req})
				}
			})
		}
	}
	all.Wait()
	assert.LessOrEqual(t, most.Load(), int64(3))
}
