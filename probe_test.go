package heed_test

import (
	"cmp"
	"context"
	"errors"
	"net/http"
	"slices"
	"strconv"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/heedhttp/heed"
)

// callEverySecond makes a call a second. It returns how many got a 200, and how many an error.
func callEverySecond(t *testing.T, rt http.RoundTripper, during time.Duration) (good, failed int) {
	for range int(during / time.Second) {
		time.Sleep(time.Second)
		resp, err := rt.RoundTrip(get(t.Context()))
		switch {
		case err != nil:
			failed++
		case resp.StatusCode == 200:
			good++
			fallthrough
		default:
			resp.Body.Close()
		}
	}
	return good, failed
}

// One wrong hint of a day must not cost a day.
func TestAGoodAnswerToAProbeOpensTheKey(t *testing.T) {
	for name, answer := range map[string]reply{
		"200": ok, "404": {status: 404}, "500, which is not about a limit": {status: 500},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				tr := &heed.Transport{Base: newScript(throttle("86400"), answer, ok), Retry: heed.RetryPolicy{MaxAttempts: 1}}
				assert.Equal(t, 429, status(t, tr, get(t.Context())))
				good, failed := callEverySecond(t, tr, time.Hour)
				assert.Equal(t, 59, failed)
				assert.GreaterOrEqual(t, good, 3600-60)
			})
		})
	}
}

func TestAProbesShorterHintReplacesALongerOne(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tr := &heed.Transport{Base: newScript(throttle("86400"), throttle("1"), ok)}
		assert.Equal(t, 429, status(t, tr, get(t.Context())))
		good, failed := callEverySecond(t, tr, time.Hour)
		assert.Equal(t, 59, failed)
		assert.Equal(t, 3600-59, good)
	})
}

func TestAProbeWithoutAHintLeavesTheKeyClosed(t *testing.T) {
	for name, answer := range map[string]reply{
		"a 429 without a hint": {status: 429}, "a broken connection": {err: errBroken},
		"an answer of a cache": {status: 200, header: []string{"X-From-Cache", "1"}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newScript(throttle("86400"), answer)
				tr := &heed.Transport{Base: s, Retry: heed.RetryPolicy{MaxAttempts: 1}}
				assert.Equal(t, 429, status(t, tr, get(t.Context())))
				callEverySecond(t, tr, 10*time.Minute)
				assert.Equal(t, 1+4, s.count(), "after 1, 2, 4 and 8 minutes")
			})
		})
	}
}

func TestAProbesLongerHintReplacesAShorterOne(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		board := &heed.LocalBoard{}
		tr := &heed.Transport{Base: newScript(throttle("600"), throttle("7200")), Board: board,
			Retry: heed.RetryPolicy{MaxAttempts: 1}}
		assert.Equal(t, 429, status(t, tr, get(t.Context())))
		time.Sleep(time.Minute)
		assert.Equal(t, 429, status(t, tr, get(t.Context())))
		wait, _, _ := board.Read(t.Context(), key)
		assert.Equal(t, 2*time.Hour, wait)
	})
}

// Vendors ban clients that send during a wait. Only what nothing confirms is probed.
func TestConfirmedCoolDownsAreNotProbed(t *testing.T) {
	const left = "X-RateLimit-Remaining"
	for name, test := range map[string]struct {
		url      string
		status   int
		fields   []string
		constant bool // the hint does not count down
		noProbes bool
		sent     int // within 58 minutes of a hint of an hour
	}{
		"a probe is told the same end":      {sent: 2},
		"a hint that does not count down":   {constant: true, sent: 1 + 6}, // after 1, 2, 4, 8, 16 and 32 minutes
		"a field says that nothing is left": {fields: []string{left, "0"}, constant: true, sent: 1},
		"a field says that some is left":    {fields: []string{left, "9"}, constant: true, sent: 1 + 6},
		"GitHub's hints are exact":          {url: "https://api.github.com/user", status: 403, sent: 1},
		"and its secondary limit's":         {url: "https://api.github.com/user", status: 403, fields: []string{left, "9"}, constant: true, sent: 1},
		"Binance's ban":                     {url: "https://api.binance.com/api/v3/order", status: 418, constant: true, sent: 1},
		"an unknown host's":                 {status: 418, constant: true, sent: 1 + 6},
		"NoProbes":                          {constant: true, noProbes: true, sent: 1},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				start, sent := time.Now(), 0
				base := roundTripFunc(func(req *http.Request) (*http.Response, error) {
					sent++
					hint := time.Hour
					if !test.constant {
						hint -= time.Since(start).Truncate(time.Second)
					}
					header := append([]string{"Retry-After", strconv.Itoa(int(hint.Seconds()))}, test.fields...)
					return response(req, reply{status: cmp.Or(test.status, 429), header: header}), nil
				})
				tr := &heed.Transport{Base: base, Board: &heed.LocalBoard{NoProbes: test.noProbes}}
				for i := range 58 * 60 {
					req := get(t.Context())
					if test.url != "" {
						req, _ = http.NewRequestWithContext(t.Context(), "GET", test.url, nil)
					}
					req.Header.Set("X-Mbx-Apikey", strconv.Itoa(i%2)) // Binance counts by address
					if test.url == "" {
						req.Header.Del("X-Mbx-Apikey")
					}
					if resp, err := tr.RoundTrip(req); err == nil {
						resp.Body.Close()
					}
					time.Sleep(time.Second)
				}
				assert.Equal(t, test.sent, sent)
			})
		})
	}
}

// A probe's short hint is about the key, however well others are answered.
func TestAProbesShortHintOpensTheKeySoon(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		script := newScript(throttle("86400"), throttle("1"), ok)
		tr := &heed.Transport{Base: roundTripFunc(func(req *http.Request) (*http.Response, error) {
			if req.Header.Get("Authorization") != "" {
				return response(req, ok), nil
			}
			return script.RoundTrip(req)
		})}
		assert.Equal(t, 429, status(t, tr, get(t.Context())))
		other := get(t.Context())
		other.Header.Set("Authorization", "Bearer other")
		time.Sleep(time.Minute)
		assert.Equal(t, 200, status(t, tr, other))
		assert.Equal(t, 200, status(t, tr, get(t.Context())), "the probe, then its retry")
		assert.Equal(t, 3, script.count())
	})
}

// A probe would cost it an attempt.
func TestARequestThatCanWaitIsNotAProbe(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newScript(throttle("600"), throttle("540"), ok)
		tr := &heed.Transport{Base: s, Retry: heed.RetryPolicy{MaxWait: time.Hour, MaxElapsed: time.Hour}}
		assert.Equal(t, 429,
			status(t, &heed.Transport{Base: s, Board: tr.Board, Retry: heed.RetryPolicy{MaxAttempts: 1}}, get(t.Context())))
		assert.Equal(t, 200, status(t, tr, get(t.Context())))
		assert.Equal(t, 3, s.count())
	})
}

func TestTransportsThatShareABoardShareItsProbes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newScript(throttle("86400"), throttle("3600"), ok)
		board := &sharedBoard{}
		fleet := make([]*heed.Transport, 100)
		for i := range fleet {
			fleet[i] = &heed.Transport{Base: s, Board: board, Retry: heed.RetryPolicy{MaxAttempts: 1}}
		}
		assert.Equal(t, 429, status(t, fleet[0], get(t.Context())))
		ask := func() (sent, refused int) {
			before := s.count()
			var all sync.WaitGroup
			var mu sync.Mutex
			for _, tr := range fleet {
				all.Go(func() {
					resp, err := tr.RoundTrip(get(t.Context()))
					mu.Lock()
					defer mu.Unlock()
					if err != nil {
						assert.ErrorAs(t, err, new(*heed.OverdueError))
						refused++
						return
					}
					resp.Body.Close()
				})
			}
			all.Wait()
			return s.count() - before, refused
		}
		time.Sleep(30 * time.Second)
		sent, refused := ask()
		assert.Equal(t, []int{0, 100}, []int{sent, refused}, "too early")
		time.Sleep(30 * time.Second)
		sent, refused = ask()
		assert.Equal(t, []int{1, 99}, []int{sent, refused}, "one probe, whose hint is an hour")
		time.Sleep(time.Minute)
		sent, _ = ask()
		assert.GreaterOrEqual(t, sent, 1, "one probe, which opens the key")
		sent, refused = ask()
		assert.Equal(t, []int{100, 0}, []int{sent, refused}, "all know that the key is open")
	})
}

// The Board stays closed; each process probes by itself.
func TestABoardWithoutReplaceIsStillProbed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		board := &scriptedBoard{}
		board.set(24*time.Hour, 0)
		s := newScript(ok)
		tr := &heed.Transport{Base: s, Board: board}
		good, failed := callEverySecond(t, tr, 10*time.Minute)
		assert.InDelta(t, 10, good, 1, "each one opens the key")
		assert.Equal(t, 600, good+failed)
	})
}

func TestARequestWaitsOnlyWithinMaxWaitAndDeadline(t *testing.T) {
	for name, test := range map[string]struct {
		hint     string
		maxWait  time.Duration
		waits    bool
		deadline time.Duration
		limit    string
	}{
		"a minute fits the default":   {"60", 0, true, 0, ""},
		"more does not":               {"61", 0, false, 0, "RetryPolicy.MaxWait"},
		"two seconds":                 {"2", 2 * time.Second, true, 0, ""},
		"three are more than two":     {"3", 2 * time.Second, false, 0, "RetryPolicy.MaxWait"},
		"no waiting at all":           {"1", -1, false, 0, "RetryPolicy.MaxWait"},
		"the deadline is too early":   {"10", 0, false, 5 * time.Second, "deadline"},
		"the deadline is late enough": {"10", 0, true, 20 * time.Second, ""},
		"both are too early":          {"100", 0, false, 5 * time.Second, "RetryPolicy.MaxWait"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newScript(throttle(test.hint), ok)
				tr := &heed.Transport{Base: s, Retry: heed.RetryPolicy{MaxWait: test.maxWait}}
				once := &heed.Transport{Base: s, Board: &heed.LocalBoard{}, Retry: heed.RetryPolicy{MaxAttempts: 1}}
				tr.Board = once.Board
				assert.Equal(t, 429, status(t, once, get(t.Context())))
				hint, _ := time.ParseDuration(test.hint + "s")
				ctx, start := t.Context(), time.Now()
				if test.deadline > 0 {
					c, cancel := context.WithTimeout(ctx, test.deadline)
					defer cancel()
					ctx = c
				}
				resp, err := tr.RoundTrip(get(ctx))
				if test.waits {
					if assert.NoError(t, err) {
						resp.Body.Close()
					}
					between(t, hint, time.Since(start), hint+hint*3/10)
					return
				}
				var overdue *heed.OverdueError
				if assert.True(t, errors.As(err, &overdue), err) {
					assert.Equal(t, test.limit, overdue.Limit)
					assert.Equal(t, heed.CauseCoolDown, overdue.Cause)
					assert.Contains(t, err.Error(), "cool-down")
					assert.Contains(t, err.Error(), test.limit)
				}
				assert.Zero(t, time.Since(start), "at once")
			})
		})
	}
}

func TestTheLineLengthIsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tr := &heed.Transport{Base: newScript(throttle("30"), ok), Retry: heed.RetryPolicy{MaxAttempts: 1}}
		assert.Equal(t, 429, status(t, tr, get(t.Context())))
		start := time.Now()
		var all sync.WaitGroup
		var mu sync.Mutex
		refused, done := 0, 0
		for range 10_100 {
			all.Go(func() {
				resp, err := tr.RoundTrip(get(t.Context()))
				mu.Lock()
				defer mu.Unlock()
				if err == nil {
					resp.Body.Close()
					done++
					return
				}
				refused++
				var overdue *heed.OverdueError
				if assert.ErrorAs(t, err, &overdue) {
					assert.Equal(t, "line", overdue.Limit)
					assert.Contains(t, err.Error(), "10000 requests wait for it already")
				}
				assert.Zero(t, time.Since(start), "at once")
			})
		}
		all.Wait()
		assert.Equal(t, []int{10_000, 100}, []int{done, refused})
	})
}

// The times differ whatever else the responses say.
func TestProcessesWithTheSameHintReturnAtDifferentTimes(t *testing.T) {
	for name, answer := range map[string]reply{
		"Retry-After alone": throttle("12"), "a bucket": denial(0, "12", bucketPolicy("x", 5, 60), `"x";r=0;t=12`),
		"what may be a bucket": denial(0, "12", `"x";q=5;w=60`, `"x";r=0;t=12`),
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var moments []time.Duration
				var mu sync.Mutex
				var all sync.WaitGroup
				for range 20 {
					s := newScript(answer, ok)
					all.Go(func() {
						assert.Equal(t, 200, status(t, &heed.Transport{Base: s}, get(t.Context())))
						mu.Lock()
						defer mu.Unlock()
						between(t, 12*time.Second, s.times()[1], 15600*time.Millisecond)
						moments = append(moments, s.times()[1])
					})
				}
				all.Wait()
				slices.Sort(moments)
				// Of 3.6e9 ns, two of twenty draw the same once in 2e7 runs, and three cases add up; four draw two
				// pairs once in 1e15.
				assert.GreaterOrEqual(t, len(slices.Compact(slices.Clone(moments))), 19)
				assert.Greater(t, moments[19]-moments[0], time.Second, "twenty draws of 3.6 s miss this once in 1e9 runs")
			})
		})
	}
}

// A later probe was answered first.
func TestALateAnswerToAProbeChangesNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		board := &heed.LocalBoard{}
		s := newScript(throttle("600"), reply{status: 200, took: 90 * time.Second}, throttle("3600"))
		tr := &heed.Transport{Base: s, Board: board, Retry: heed.RetryPolicy{MaxAttempts: 1}}
		assert.Equal(t, 429, status(t, tr, get(t.Context())))
		time.Sleep(time.Minute)
		var late sync.WaitGroup
		late.Go(func() { assert.Equal(t, 200, status(t, tr, get(t.Context()))) })
		time.Sleep(time.Minute)
		assert.Equal(t, 429, status(t, tr, get(t.Context())))
		late.Wait()
		wait, _, _ := board.Read(t.Context(), key)
		assert.Equal(t, time.Hour-30*time.Second, wait)
	})
}

func TestWaitersNoticeThatAnotherProcessOpenedTheKey(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		board := &sharedBoard{}
		board.Post(t.Context(), key, 30*time.Minute, 0)
		s := newScript(ok)
		tr := &heed.Transport{Base: s, Board: board, Retry: heed.RetryPolicy{MaxWait: time.Hour, MaxElapsed: time.Hour}}
		time.AfterFunc(time.Minute, func() { board.Replace(t.Context(), key, 0, 0) })
		assert.Equal(t, 200, status(t, tr, get(t.Context())))
		between(t, time.Minute, s.times()[0], time.Minute+time.Second)
	})
}

// slowBoard has a clock that is slower than the process's.
type slowBoard struct {
	heed.LocalBoard
	start time.Time
	until time.Duration
	slow  float64
}

func (b *slowBoard) Post(context.Context, string, time.Duration, time.Duration) error { return nil }

func (b *slowBoard) Read(context.Context, string) (time.Duration, time.Duration, error) {
	return max(0, b.until-time.Duration(float64(time.Since(b.start))*(1-b.slow))), 0, nil
}

func (b *slowBoard) Probe(context.Context, string) bool { return true }

func TestABoardsClockMayDrift(t *testing.T) {
	for _, slow := range []float64{-200e-6, 0, 10e-6, 200e-6} {
		synctest.Test(t, func(t *testing.T) {
			board := &slowBoard{start: time.Now(), until: 24 * time.Hour, slow: slow}
			s := newScript(reply{status: 429})
			callEverySecond(t, &heed.Transport{Base: s, Board: board, Retry: heed.RetryPolicy{MaxAttempts: 1}}, 20*time.Minute)
			assert.Equal(t, 5, s.count(), "after 1, 2, 4, 8 and 16 minutes")
		})
		synctest.Test(t, func(t *testing.T) {
			board := &slowBoard{start: time.Now(), until: 50 * time.Second, slow: slow}
			s := newScript(reply{status: 200, took: time.Millisecond})
			tr := &heed.Transport{Base: s, Board: board}
			var all sync.WaitGroup
			for range 50 {
				all.Go(func() { assert.Equal(t, 200, status(t, tr, get(t.Context()))) })
			}
			all.Wait()
			times := s.times()
			slices.Sort(times)
			assert.GreaterOrEqual(t, times[49]-times[0], 9*time.Second,
				"the jitter window belongs to the wait that was asked for")
		})
	}
}

func TestAHintIsObeyedThoughTheBoardFailed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		board := &slowBoard{start: time.Now()} // it has no cool-down
		s := newScript(throttle("10"), ok)
		assert.Equal(t, 200, status(t, &heed.Transport{Base: s, Board: &failingPostBoard{board}}, get(t.Context())))
		between(t, 10*time.Second, s.times()[1], 13*time.Second)
	})
}

type failingPostBoard struct{ *slowBoard }

func (*failingPostBoard) Post(context.Context, string, time.Duration, time.Duration) error {
	return errors.New("no route to host")
}

// A healthy server's answers do not mention the interval.
func TestAnUnconfirmedIntervalIsDropped(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tr := &heed.Transport{Base: newScript(denial(0, "1", bucketPolicy("x", 1, 60), `"x";r=0;t=1`), ok)}
		good, failed := callEverySecond(t, tr, 10*time.Minute)
		assert.LessOrEqual(t, failed, 62)
		assert.GreaterOrEqual(t, good, 600-62)
	})
}
