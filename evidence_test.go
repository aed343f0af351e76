package heed_test

import (
	"math/rand/v2"
	"net/http"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/heedhttp/heed"
	"github.com/heedhttp/heed/internal/testenv"
)

// A short hint without more says nothing about other requests if the key is answered well.
func TestAShortHintBindsOthersOnlyWithEvidence(t *testing.T) {
	const s, ms = time.Second, time.Millisecond
	good := func(n int) (all []reply) {
		for range n {
			all = append(all, ok)
		}
		return all
	}
	hint := func(fields ...string) reply { return reply{status: 429, header: fields} }
	second := throttle("1")
	for name, test := range map[string]struct {
		url     string
		replies []reply       // of requests sent one after the other, without retries
		pause   time.Duration // between the first of these and the others
		then    []reply       // of requests after all these
		binds   bool          // the next request waits
	}{
		"the first one":                         {"", append(good(1), second), 0, nil, false},
		"of two seconds":                        {"", append(good(1), throttle("2")), 0, nil, false},
		"of three":                              {"", append(good(1), throttle("3")), 0, nil, true},
		"nobody was answered well":              {"", []reply{second}, 0, nil, true},
		"only refusals were answers":            {"", []reply{{status: 429}, second}, 0, nil, true},
		"nor lately":                            {"", append(good(1), second), 12 * s, nil, true},
		"nine seconds ago":                      {"", append(good(1), second), 9 * s, nil, false},
		"a field says that nothing is left":     {"", append(good(1), hint("Retry-After", "1", "X-RateLimit-Remaining", "0")), 0, nil, true},
		"a field says that some is left":        {"", append(good(1), hint("Retry-After", "1", "X-RateLimit-Remaining", "7")), 0, nil, false},
		"a vendor's profile knows it":           {"https://api.github.com/user", append(good(1), reply{status: 403, header: []string{"Retry-After", "1"}}), 0, nil, true},
		"another one, sent later":               {"", append(good(1), second, second), 0, nil, true},
		"another one after four good ones":      {"", append(append(good(1), second), good(4)...), 0, []reply{second}, true},
		"another one after five":                {"", append(append(good(1), second), good(5)...), 0, []reply{second}, false},
		"the sixth in a row, after fifty":       {"", append(append(good(1), second), good(50)...), 0, []reply{second, second, second, second, second, second}, true},
		"the fifth":                             {"", append(append(good(1), second), good(50)...), 0, []reply{second, second, second, second, second}, false},
		"a third of all, one after each second": {"", append(append(good(1), second), good(6)...), 0, []reply{second, ok, second, ok, second, ok, second, ok, second, second}, true},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				replies := append(append(append([]reply{}, test.replies...), test.then...), ok)
				tr := &heed.Transport{Base: newScript(replies...), Retry: heed.RetryPolicy{MaxAttempts: 1}}
				call := func() {
					req := get(t.Context())
					if test.url != "" {
						req, _ = http.NewRequestWithContext(t.Context(), "GET", test.url, nil)
					}
					roundTrip(t, tr, req).Body.Close()
				}
				for i := range len(replies) - 1 {
					call()
					if i == 0 {
						time.Sleep(test.pause)
					}
					time.Sleep(ms)
				}
				start := time.Now()
				call()
				if waited := time.Since(start); test.binds {
					assert.GreaterOrEqual(t, waited, s-20*ms)
				} else {
					assert.Zero(t, waited)
				}
			})
		})
	}
}

// Once the refusals have shown a limit, each one binds all for a minute.
func TestAfterEvidenceEachRefusalBindsAll(t *testing.T) {
	for after, binds := range map[time.Duration]bool{50 * time.Second: true, 70 * time.Second: false} {
		synctest.Test(t, func(t *testing.T) {
			replies := []reply{ok}
			for range 7 { // the first one is not counted
				replies = append(replies, throttle("1"))
			}
			tr := &heed.Transport{Base: newScript(append(replies, ok)...), Board: new(heed.LocalBoard), Retry: heed.RetryPolicy{MaxAttempts: 1}}
			var wg sync.WaitGroup
			for range len(replies) {
				wg.Go(func() { roundTrip(t, tr, get(t.Context())).Body.Close() }) // before any of them is answered
			}
			wg.Wait()
			again := &heed.Transport{
				Base:  newScript(ok, throttle("1"), ok, ok, ok, ok, ok, ok, throttle("1"), ok),
				Board: tr.Board, Retry: tr.Retry,
			}
			time.Sleep(after / 2)
			for range 2 {
				status(t, again, get(t.Context())) // another refusal does not make that last longer
			}
			time.Sleep(after - after/2)
			for range 7 {
				status(t, again, get(t.Context()))
			}
			start := time.Now()
			status(t, again, get(t.Context()))
			assert.Equal(t, binds, time.Since(start) > 0, after)
		})
	}
}

// A request that was refused three times by short hints, as other retries were, holds back the others: they
// would take what it waits for.
func TestTheThirdRefusalOfACallBindsAll(t *testing.T) {
	for name, test := range map[string]struct {
		other reply // to the retry of another call
		binds bool
	}{
		"other retries are refused too": {throttle("1"), true},
		"others are answered well":      {ok, false},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				attempts := map[string]int{}
				var mu sync.Mutex
				base := roundTripFunc(func(req *http.Request) (*http.Response, error) {
					who := req.Header.Get("X-Call")
					mu.Lock()
					attempts[who]++
					n := attempts[who]
					mu.Unlock()
					switch {
					case who == "first" && n <= 3, who == "other" && n == 1:
						return response(req, throttle("1")), nil
					case who == "other" && n == 2:
						return response(req, test.other), nil
					case who == "other":
						time.Sleep(10 * time.Second) // it is no good retry in between
					}
					return response(req, ok), nil
				})
				tr := &heed.Transport{Base: base}
				call := func(who string) time.Duration {
					req, start := get(t.Context()), time.Now()
					req.Header.Set("X-Call", who)
					status(t, tr, req)
					return time.Since(start)
				}
				var wg sync.WaitGroup
				stop := time.Now().Add(20 * time.Second)
				var longest time.Duration
				wg.Go(func() { // answers of many others
					for time.Now().Before(stop) {
						longest = max(longest, call(""))
						time.Sleep(10 * time.Millisecond)
					}
				})
				time.Sleep(time.Second)
				wg.Go(func() { call("first") })
				time.Sleep(500 * time.Millisecond)
				wg.Go(func() { call("other") })
				wg.Wait()
				assert.Equal(t, 4, attempts["first"])
				assert.Equal(t, test.binds, longest > 0, longest)
			})
		})
	}
}

// One node of many that refuses at random must not cost the throughput.
func TestRandomShortHintsCostNoThroughput(t *testing.T) {
	testenv.NeedLong(t)
	for _, share := range []float64{0.001, 0.01, 0.05} {
		var good [2]int
		for range 3 {
			for i, board := range []heed.Board{nil, heed.NoBoard} {
				synctest.Test(t, func(t *testing.T) {
					base := roundTripFunc(func(req *http.Request) (*http.Response, error) {
						time.Sleep(50 * time.Millisecond)
						if rand.Float64() < share {
							return response(req, throttle("1")), nil
						}
						return response(req, ok), nil
					})
					n, _ := work(t, &heed.Transport{Base: base, Board: board}, 50, 0, 2*time.Minute)
					good[i] += n
				})
			}
		}
		ratio := float64(good[0]) / float64(good[1])
		t.Logf("%.1f %% refused at random: %.3f of the throughput without a Board", 100*share, ratio)
		assert.GreaterOrEqual(t, ratio, 0.93)
	}
}

// A limit of ten requests in flight is used, and no call is lost.
func TestALimitInFlightIsUsed(t *testing.T) {
	testenv.NeedLong(t)
	for _, workers := range []int{12, 50} {
		synctest.Test(t, func(t *testing.T) {
			inFlight := make(chan struct{}, 10)
			base := roundTripFunc(func(req *http.Request) (*http.Response, error) {
				time.Sleep(10 * time.Millisecond)
				select {
				case inFlight <- struct{}{}:
				default:
					return response(req, throttle("1")), nil
				}
				defer func() { <-inFlight }()
				time.Sleep(500*time.Millisecond + rand.N(time.Second))
				return response(req, ok), nil
			})
			good, lost := work(t, &heed.Transport{Base: base}, workers, 0, 10*time.Minute)
			used := float64(good) / 6000
			t.Logf("%d workers, ten in flight: %.0f %% used, %d of %d calls lost", workers, 100*used, lost, good+lost)
			assert.GreaterOrEqual(t, used, 0.8)
			assert.LessOrEqual(t, lost, good/200)
		})
	}
}

// Evidence must not cost a real limit much.
func TestAShortHintWithoutFieldsKeepsTheLimit(t *testing.T) {
	testenv.NeedLong(t)
	refused, all, lost := 0, 0, 0
	for range 10 {
		synctest.Test(t, func(t *testing.T) {
			l := &limitedServer{rate: 10, burst: 10, latency: 30 * time.Millisecond}
			_, n := work(t, &heed.Transport{Base: l}, 40, 0, time.Minute)
			lost += n
			for _, a := range l.arrivals {
				if all++; !a.admitted {
					refused++
				}
			}
		})
	}
	share := float64(refused) / float64(all)
	t.Logf("40 workers at 10/s: %.1f %% refused, %d lost", 100*share, lost)
	assert.LessOrEqual(t, share, 0.32)
	assert.Zero(t, lost)
}

// What was a cool-down costs later requests nothing.
func TestAGoodAnswerAfterACoolDownAllocatesNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		good := response(get(t.Context()), ok)
		refused := response(get(t.Context()), throttle("1"))
		next := refused
		tr := &heed.Transport{Retry: heed.RetryPolicy{MaxAttempts: 1}, Base: roundTripFunc(func(*http.Request) (*http.Response, error) {
			return next, nil
		})}
		req := get(t.Context())
		_, err := tr.RoundTrip(req)
		assert.NoError(t, err)
		next = good
		for range 3 {
			time.Sleep(3 * time.Second)
			_, err := tr.RoundTrip(req)
			assert.NoError(t, err)
		}
		assert.Zero(t, testing.AllocsPerRun(100, func() { tr.RoundTrip(req) }))
	})
}
