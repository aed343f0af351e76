package heed_test

import (
	"context"
	"fmt"
	"math"
	"net/http"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/heedhttp/heed"
	"github.com/heedhttp/heed/internal/testenv"
)

// A gateway admits or refuses, and sends nothing but a status.
type gateway struct {
	admits  func(now time.Duration) bool // called one at a time
	latency time.Duration

	mu            sync.Mutex
	start         time.Time
	sent, refused int
}

func newGateway(admits func(now time.Duration) bool) *gateway {
	return &gateway{admits: admits, latency: 2 * time.Millisecond, start: time.Now()}
}

func (g *gateway) RoundTrip(req *http.Request) (*http.Response, error) {
	time.Sleep(g.latency)
	g.mu.Lock()
	admitted := g.admits(time.Since(g.start))
	g.sent++
	if !admitted {
		g.refused++
	}
	g.mu.Unlock()
	if !admitted {
		return response(req, reply{status: 429}), nil
	}
	return response(req, ok), nil
}

// nginx is limit_req with nodelay: the excess over the rate drains at that rate.
func nginx(rate, burst float64) func(time.Duration) bool {
	excess, last := -1.0, time.Duration(0)
	return func(now time.Duration) bool {
		next := max(0, excess-rate*(now-last).Seconds()+1)
		if excess < 0 {
			next = 0
		}
		if next > burst {
			return false
		}
		excess, last = next, now
		return true
	}
}

// haproxy is http_req_rate over a second, which also counts denied requests.
func haproxy(most float64) func(time.Duration) bool {
	second, counts := time.Duration(0), [2]float64{}
	return func(now time.Duration) bool {
		for ; now >= second+time.Second; second += time.Second {
			counts = [2]float64{0, counts[0]}
		}
		counts[0]++
		return counts[0]+counts[1]*(1-(now-second).Seconds()) <= most
	}
}

// varnish is vsthrottle.is_denied: a bucket with the quota of a period, refilled in whole tokens
// since the last admitted request.
func varnish(most float64, period time.Duration) func(time.Duration) bool {
	tokens, last := most, time.Duration(0)
	return func(now time.Duration) bool {
		tokens = min(most, tokens+math.Floor(most*(now-last).Seconds()/period.Seconds()))
		if tokens < 1 {
			return false
		}
		tokens, last = tokens-1, now
		return true
	}
}

// bucket admits burst requests at once and rate a second.
func bucket(rate, burst float64) func(time.Duration) bool {
	tokens, last := burst, time.Duration(0)
	return func(now time.Duration) bool {
		tokens, last = min(burst, tokens+rate*(now-last).Seconds()), now
		if tokens < 1 {
			return false
		}
		tokens--
		return true
	}
}

// work has workers make one call after the other, with a pause in between.
func work(t *testing.T, rt http.RoundTripper, workers int, pause, during time.Duration) (done, lost int) {
	var mu sync.Mutex
	var all sync.WaitGroup
	start := time.Now()
	for range workers {
		all.Go(func() {
			for time.Since(start) < during {
				resp, err := rt.RoundTrip(get(t.Context()))
				good := err == nil && resp.StatusCode == 200
				if err == nil {
					resp.Body.Close()
				}
				mu.Lock()
				if good {
					done++
				} else {
					lost++
				}
				mu.Unlock()
				time.Sleep(pause)
			}
		})
	}
	all.Wait()
	return done, lost
}

func TestGatewaysWithoutHintsAreUsedNotFlooded(t *testing.T) {
	for name, test := range map[string]struct {
		admits func(time.Duration) bool
		used   float64
	}{
		"nginx, burst 10":    {nginx(20, 10), 0.75},
		"nginx, no burst":    {nginx(20, 0), 0.75},
		"haproxy":            {haproxy(20), 0.65},
		"varnish":            {varnish(20, time.Second), 0.75},
		"varnish, 200 in 10": {varnish(200, 10*time.Second), 0.75},
		"a bucket":           {bucket(20, 20), 0.75},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				g := newGateway(test.admits)
				const during = 30 * time.Second
				done, lost := work(t, &heed.Transport{Base: g}, 30, 50*time.Millisecond, during)
				took := time.Since(g.start)
				refused, used := float64(g.refused)/float64(g.sent), float64(done)/20/took.Seconds()
				t.Logf("%d done, %d lost in %v; %.1f %% of %d refused, %.0f %% used", done, lost, took, 100*refused, g.sent,
					100*used)
				// All four attempts of a call are refused once in 2e5 calls: one of a run's 600 calls in 300 runs,
				// but four of them never.
				assert.LessOrEqual(t, lost, 3)
				assert.LessOrEqual(t, refused, 0.1)
				assert.GreaterOrEqual(t, used, test.used)
			})
		})
	}
}

func TestABatchGetsThroughALimitWithoutHints(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGateway(bucket(5, 20))
		tr := &heed.Transport{Base: g}
		var workers sync.WaitGroup
		var mu sync.Mutex
		done := 0
		for range 50 {
			workers.Go(func() {
				for range 4 {
					if status(t, tr, get(t.Context())) == 200 {
						mu.Lock()
						done++
						mu.Unlock()
					}
				}
			})
		}
		workers.Wait()
		t.Logf("%d of 200 done, %d requests, %v", done, g.sent, time.Since(g.start))
		assert.GreaterOrEqual(t, done, 190)
		assert.LessOrEqual(t, g.sent, 320)
	})
}

// The server refuses one request in a hundred at random.
func TestRandomRefusalsSlowNoOtherRequests(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRandom(1)
		g := newGateway(func(time.Duration) bool { return !r.oneIn(100) })
		tr := &heed.Transport{Base: g}
		var calls sync.WaitGroup
		var mu sync.Mutex
		slow, lost, n := 0, 0, 10_000
		for range n {
			time.Sleep(2 * time.Millisecond)
			calls.Go(func() {
				start := time.Now()
				code := status(t, tr, get(t.Context()))
				mu.Lock()
				defer mu.Unlock()
				if time.Since(start) > 200*time.Millisecond {
					slow++
				}
				if code != 200 {
					lost++
				}
			})
		}
		calls.Wait()
		t.Logf("%.2f %% of the calls took more than 200 ms, %d were lost", 100*float64(slow)/float64(n), lost)
		assert.LessOrEqual(t, slow, n*4/100)
		// A call is lost if all its four attempts are refused, by chance one in 1e8. So of 10,000 calls one
		// is lost in one of 10,000 runs, and two in one of 2e8.
		assert.LessOrEqual(t, lost, 1)
	})
}

func TestALimitOfOneRouteSlowsNoOther(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		limit, start := nginx(5, 0), time.Now()
		var mu sync.Mutex
		answered, refused, lost := map[string]int{}, 0, 0
		tr := &heed.Transport{Base: roundTripFunc(func(req *http.Request) (*http.Response, error) {
			time.Sleep(10 * time.Millisecond)
			mu.Lock()
			defer mu.Unlock()
			if req.URL.Path == "/search" && !limit(time.Since(start)) {
				refused++
				return response(req, reply{status: 429}), nil
			}
			answered[req.URL.Path]++
			return response(req, ok), nil
		})}
		var workers sync.WaitGroup
		for i := range 30 {
			workers.Go(func() {
				for time.Since(start) < 30*time.Second {
					req := get(t.Context())
					req.URL.Path = "/items"
					if i < 10 {
						req.URL.Path = "/search"
					}
					if code := status(t, tr, req); code != 200 {
						assert.Equal(t, "/search", req.URL.Path)
						mu.Lock()
						lost++
						mu.Unlock()
					}
					time.Sleep(50 * time.Millisecond)
				}
			})
		}
		workers.Wait()
		assert.LessOrEqual(t, lost, answered["/search"]/20)
		took := time.Since(start).Seconds()
		t.Logf("%v answered in %.0f s, %d refused", answered, took, refused)
		assert.GreaterOrEqual(t, float64(answered["/items"]), 0.85*20/0.06*took)
		assert.GreaterOrEqual(t, float64(answered["/search"]), 0.7*5*took)
		assert.LessOrEqual(t, refused, answered["/search"]/2)
	})
}

// callsByMinute makes a call every 20 ms, and returns how many got a 200 in each minute.
func callsByMinute(t *testing.T, rt http.RoundTripper, path func() string, minutes int) []int {
	good := make([]int, minutes)
	var mu sync.Mutex
	var calls sync.WaitGroup
	for minute := range minutes {
		for range 3000 {
			time.Sleep(20 * time.Millisecond)
			calls.Go(func() {
				req := get(t.Context())
				req.URL.Path = path()
				resp, err := rt.RoundTrip(req)
				if err != nil {
					return
				}
				resp.Body.Close()
				if resp.StatusCode == 200 {
					mu.Lock()
					good[minute]++
					mu.Unlock()
				}
			})
		}
	}
	calls.Wait()
	return good
}

// The refusals do not depend on the rate, so a lower rate is of no use.
func TestRefusalsAtAnyRateEndTheThrottleSoon(t *testing.T) {
	const minutes = 4
	for name, refuses := range map[string]func(r *random, since time.Duration, path string) bool{
		"one in ten": func(r *random, _ time.Duration, _ string) bool { return r.oneIn(10) },
		"one in two at first, then one in a hundred": func(r *random, since time.Duration, _ string) bool {
			if since < 10*time.Second {
				return r.oneIn(2)
			}
			return r.oneIn(100)
		},
		"all at first, then none": func(_ *random, since time.Duration, _ string) bool { return since < time.Minute },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r, start := newRandom(3), time.Now()
				tr := &heed.Transport{Base: roundTripFunc(func(req *http.Request) (*http.Response, error) {
					time.Sleep(10 * time.Millisecond)
					if refuses(r, time.Since(start), req.URL.Path) {
						return response(req, reply{status: 429}), nil
					}
					return response(req, ok), nil
				})}
				good := callsByMinute(t, tr, func() string { return "/things" }, minutes)
				t.Logf("good of 3000 in each minute: %v", good)
				assert.GreaterOrEqual(t, good[minutes-1], 2700)
			})
		})
	}
}

// One route refuses everything; each of the others is called only once.
func TestARefusingRouteSlowsNoOtherForLong(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRandom(5)
		tr := &heed.Transport{Base: roundTripFunc(func(req *http.Request) (*http.Response, error) {
			time.Sleep(10 * time.Millisecond)
			if req.URL.Path == "/bad" {
				return response(req, reply{status: 429}), nil
			}
			return response(req, ok), nil
		})}
		ctx, cancel := context.WithCancel(t.Context())
		var bad sync.WaitGroup
		for range 5 {
			bad.Go(func() {
				for ctx.Err() == nil {
					req := get(ctx)
					req.URL.Path = "/bad"
					if resp, err := tr.RoundTrip(req); err == nil {
						resp.Body.Close()
					}
					time.Sleep(200 * time.Millisecond)
				}
			})
		}
		good := callsByMinute(t, tr, func() string { return fmt.Sprintf("/things/%d", r.upTo(1e6)) }, 4)
		cancel()
		bad.Wait()
		t.Logf("good of 3000 in each minute: %v", good)
		assert.GreaterOrEqual(t, good[3], 2900)
	})
}

// A route that the throttle exempts still obeys its own backoff and hints.
func TestAnExemptRouteBacksOff(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var mu sync.Mutex
		down := false
		var sent []time.Time
		tr := &heed.Transport{Budget: heed.Unlimited, Base: roundTripFunc(func(req *http.Request) (*http.Response, error) {
			time.Sleep(10 * time.Millisecond)
			mu.Lock()
			defer mu.Unlock()
			switch {
			case req.URL.Path == "/limited":
				return response(req, reply{status: 429}), nil
			case down:
				sent = append(sent, time.Now())
				return response(req, reply{status: 503, header: []string{"Retry-After", "4"}}), nil
			}
			return response(req, ok), nil
		})}
		ask := func(ctx context.Context, path string) {
			req := get(ctx)
			req.URL.Path = path
			if resp, err := tr.RoundTrip(req); err == nil {
				resp.Body.Close()
			}
		}
		ctx, cancel := context.WithCancel(t.Context())
		var limited sync.WaitGroup
		for range 20 {
			limited.Go(func() { ask(ctx, "/limited") })
			ask(t.Context(), "/spared")
		}
		down = true
		ask(t.Context(), "/spared")
		cancel()
		limited.Wait()
		for i := range sent[1:] {
			assert.GreaterOrEqual(t, sent[i+1].Sub(sent[i]), 4*time.Second)
		}
		assert.Len(t, sent, 4)
	})
}

// It is traced as a wait for a cool-down, at most once for each attempt.
func TestAWaitForAThrottleIsTraced(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var mu sync.Mutex
		cooled := 0
		g := newGateway(bucket(5, 1))
		tr := &heed.Transport{Base: g, Trace: &heed.Trace{Cooled: func(_ *http.Request, _ string, wait time.Duration) {
			mu.Lock()
			defer mu.Unlock()
			assert.Positive(t, wait)
			cooled++
		}}}
		work(t, tr, 10, 0, 5*time.Second)
		assert.Positive(t, cooled)
		assert.LessOrEqual(t, cooled, g.sent)
	})
}

func TestARouteWithoutAGoodAnswerIsNotExempt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var mu sync.Mutex
		var sent []time.Time
		tr := &heed.Transport{Retry: heed.RetryPolicy{MaxAttempts: 1},
			Base: roundTripFunc(func(req *http.Request) (*http.Response, error) {
				mu.Lock()
				defer mu.Unlock()
				sent = append(sent, time.Now())
				return response(req, reply{status: 429}), nil
			})}
		ask := func(path string) {
			req := get(t.Context())
			req.URL.Path = path
			if resp, err := tr.RoundTrip(req); err == nil {
				resp.Body.Close()
			}
		}
		for range 10 {
			ask("/refused")
		}
		for range 70 { // another route keeps the throttle on
			ask("/other")
		}
		before := len(sent)
		start := time.Now()
		var all sync.WaitGroup
		for range 5 {
			all.Go(func() { ask("/refused") })
		}
		all.Wait()
		for _, at := range sent[before:] {
			assert.NotEqual(t, start, at, "sent at once")
		}
	})
}

// A pause of ten seconds is long for four attempts.
func TestSlowLimitsWithoutAHintLoseNoCall(t *testing.T) {
	testenv.NeedLong(t)
	for _, test := range []struct {
		rate, burst float64 // a minute
		workers     int
		used        float64
	}{
		{20, 1, 1, 0.8}, {20, 1, 5, 0.8}, {6, 1, 1, 0.8}, {60, 1, 5, 0.8},
	} {
		done, lost := 0, 0
		for range 5 {
			synctest.Test(t, func(t *testing.T) {
				admits, start := bucket(test.rate/60, test.burst), time.Now()
				var mu sync.Mutex
				base := roundTripFunc(func(req *http.Request) (*http.Response, error) {
					time.Sleep(30 * time.Millisecond)
					mu.Lock()
					defer mu.Unlock()
					if !admits(time.Since(start)) {
						return response(req, reply{status: 429}), nil
					}
					return response(req, ok), nil
				})
				d, l := work(t, &heed.Transport{Base: base}, test.workers, 0, time.Hour)
				done, lost = done+d, lost+l
			})
		}
		used := float64(done) / (5 * 60 * test.rate)
		t.Logf("%v a minute, %d workers, five hours: %.0f %% used, %d lost", test.rate, test.workers, 100*used, lost)
		assert.GreaterOrEqual(t, used, test.used)
		assert.LessOrEqual(t, lost, 1)
	}
}

// A last attempt is spared for half of what it may wait, not longer.
func TestALastAttemptIsSentWithinItsMaxWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newScript(reply{status: 429}, reply{status: 429}, reply{status: 429}, ok)
		assert.Equal(t, 200, status(t, &heed.Transport{Base: s, Retry: heed.RetryPolicy{MaxWait: 6 * time.Second}}, get(t.Context())))
		between(t, 3*time.Second, s.times()[3]-s.times()[2], 6*time.Second)
	})
}

func TestAShortHintDoesNotEndAThrottlesPause(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		board := &heed.LocalBoard{}
		s := newScript(reply{status: 429})
		tr := &heed.Transport{Base: s, Board: board, Retry: heed.RetryPolicy{MaxAttempts: 1}}
		for range 2 {
			assert.Equal(t, 429, status(t, tr, get(t.Context())))
		}
		board.Post(t.Context(), key, time.Millisecond, 0)
		start := time.Now()
		assert.Equal(t, 429, status(t, tr, get(t.Context())))
		between(t, 900*time.Millisecond, time.Since(start), 1500*time.Millisecond)
	})
}
