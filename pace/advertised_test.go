package pace_test

import (
	"context"
	"net/http"
	"strconv"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/heedhttp/heed"
	"github.com/heedhttp/heed/pace"
)

// An advertisedTimeline sends requests and passes the server's responses to the pacer.
type advertisedTimeline struct {
	*timeline
	advertised *pace.Advertised
}

func newAdvertisedTimeline(t *testing.T, a *pace.Advertised) *advertisedTimeline {
	return &advertisedTimeline{newTimeline(t, a), a}
}

// waits asserts that a new request would wait d.
func (l *advertisedTimeline) waits(d time.Duration) {
	l.t.Helper()
	require.Equal(l.t, d.String(), l.advertised.WouldWait(get()).String(), "at %v", time.Since(l.start))
}

func (l *advertisedTimeline) observes(req *http.Request, status int, fields ...string) {
	h := http.Header{}
	for i := 0; i < len(fields); i += 2 {
		h.Set(fields[i], fields[i+1])
	}
	l.pacer.Observe(heed.Attempt{Request: req, Response: &http.Response{StatusCode: status, Header: h}})
}

// sends sends a request, which goes at once and is answered with fields.
func (l *advertisedTimeline) sends(fields ...string) {
	l.t.Helper()
	req := get()
	before := time.Now()
	require.NoError(l.t, l.pacer.WaitAtMost(req, 0), "at %v", time.Since(l.start))
	require.Zero(l.t, time.Since(before))
	l.observes(req, 200, fields...)
}

// window returns the fields of a window.
func window(remaining, reset int) []string {
	return []string{
		"RateLimit-Limit", "100", "RateLimit-Remaining", strconv.Itoa(remaining), "RateLimit-Reset",
		strconv.Itoa(reset),
	}
}

func TestTheRemainderIsSpreadUntilTheReset(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newAdvertisedTimeline(t, &pace.Advertised{})
		l.sends(window(9, 60)...)
		l.waits(6 * time.Second)
		l.at(6 * time.Second)
		l.sends(window(8, 54)...)
		l.waits(6 * time.Second)
	})
}

func TestAfterTheResetOneRequestGoesAndOthersWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newAdvertisedTimeline(t, &pace.Advertised{})
		l.sends(window(0, 3)...)
		l.waits(3 * time.Second)
		l.at(3 * time.Second)
		asks := get()
		require.NoError(t, l.pacer.WaitAtMost(asks, 0))
		b := l.joins()
		c := l.joins()
		l.at(3*time.Second + 100*ms)
		l.observes(asks, 200, window(99, 10)...)
		l.wg.Wait()
		l.admittedAt(3*time.Second+100*ms, b)
		l.admittedAt(3*time.Second+100*ms, c)
	})
}

func TestAnAnswerWithoutFieldsReleasesAllWaiters(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newAdvertisedTimeline(t, &pace.Advertised{})
		req := get()
		require.NoError(t, l.pacer.WaitAtMost(req, 0))
		l.observes(req, 429, window(0, 3)...)
		l.waits(3 * time.Second)
		l.at(3 * time.Second)
		asks := get()
		require.NoError(t, l.pacer.WaitAtMost(asks, 0))
		l.waits(time.Second)
		l.observes(asks, 200)
		l.goes()
		l.goes()
	})
}

func TestAMissingAnswerDelaysWaitersAtMostASecond(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newAdvertisedTimeline(t, &pace.Advertised{})
		l.sends(window(0, 3)...)
		l.at(3 * time.Second)
		l.goes()
		l.waits(time.Second)
		l.at(4 * time.Second)
		l.goes()
	})
}

func TestNothingIsDelayedAboveThreeQuartersOfTheQuota(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newAdvertisedTimeline(t, &pace.Advertised{})
		for left := 99; left >= 75; left-- {
			l.sends(window(left, 1000)...)
		}
		l.waits(time.Duration(1000) * time.Second / 76)
		l.at(500 * time.Second)
		l.waits(0)
		l.sends(window(74, 500)...)
		l.waits(500 * time.Second / 75)
	})
}

func TestAnEmptyQuotaIsProbedOnceAMinute(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newAdvertisedTimeline(t, &pace.Advertised{})
		l.sends(window(0, 100_000)...)
		l.waits(24 * time.Hour)
		assert.Equal(t, 24*time.Hour, overdueError(t, l.pacer.WaitAtMost(get(), time.Hour)).Wait)
		l.at(time.Minute)
		req := get()
		require.NoError(t, l.pacer.WaitAtMost(req, 0))
		l.observes(req, 429, window(0, 99_940)...)
		l.waits(24 * time.Hour)
		overdueError(t, l.pacer.WaitAtMost(get(), time.Hour))
		l.at(2 * time.Minute)
		l.sends(window(99, 50)...)
		l.goes()
	})
}

func TestANewLimitAppliesAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newAdvertisedTimeline(t, &pace.Advertised{})
		l.sends(window(9, 100)...)
		l.waits(10 * time.Second)
		asks := get()
		l.at(10 * time.Second)
		require.NoError(t, l.pacer.WaitAtMost(asks, 0))
		b := l.joins()
		l.observes(asks, 200, "RateLimit-Limit", "1000", "RateLimit-Remaining", "99", "RateLimit-Reset", "90")
		l.wg.Wait()
		l.admittedAt(10*time.Second+900*ms, b)
	})
}

func TestTheTightestOfSeveralPoliciesDecides(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newAdvertisedTimeline(t, &pace.Advertised{})
		l.sends("RateLimit", `"a";r=9;t=10, "b";r=1;t=60`, "RateLimit-Policy", `"a";q=10;w=10, "b";q=100;w=3600`)
		l.waits(30 * time.Second)
	})
}

func TestAPolicyWithoutAStateIsPacedByItsNumbers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newAdvertisedTimeline(t, &pace.Advertised{})
		l.sends("RateLimit-Policy", `"a";q=10;w=60`)
		l.waits(6 * time.Second)
	})
}

func TestAPolicyWithoutAStateYieldsToOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newAdvertisedTimeline(t, &pace.Advertised{})
		for range 10 {
			l.sends("RateLimit", `"a";r=99;t=60`, "RateLimit-Policy", `"a";q=100;w=60, "b";q=1000;w=86400`)
		}
	})
}

func TestARequestWaitsForItsWholeCost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newAdvertisedTimeline(t, &pace.Advertised{Cost: func(req *http.Request, unit string) int64 {
			if unit == "tokens" {
				return 50
			}
			return 1
		}})
		l.sends(
			"X-RateLimit-Limit-Tokens", "1000", "X-RateLimit-Remaining-Tokens", "99", "X-RateLimit-Reset-Tokens", "60s",
			"X-RateLimit-Limit-Requests", "60", "X-RateLimit-Remaining-Requests", "59", "X-RateLimit-Reset-Requests", "1s",
		)
		l.waits(30 * time.Second)
	})
}

func TestAnUnknownCostWaitsOnlyIfNothingIsLeft(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tokens := func(left string) []string {
			return []string{
				"X-RateLimit-Limit-Tokens", "1000", "X-RateLimit-Remaining-Tokens", left,
				"X-RateLimit-Reset-Tokens", "60s",
			}
		}
		l := newAdvertisedTimeline(t, &pace.Advertised{})
		l.sends(tokens("1")...)
		l.sends(tokens("0")...)
		l.waits(time.Minute)
	})
}

func TestALateAnswerNeverRaisesTheRemainder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newAdvertisedTimeline(t, &pace.Advertised{})
		a, b := get(), get()
		require.NoError(t, l.pacer.WaitAtMost(a, 0))
		require.NoError(t, l.pacer.WaitAtMost(b, 0))
		l.observes(b, 200, window(9, 60)...)
		l.observes(a, 200, window(50, 60)...)
		l.waits(6 * time.Second)
	})
}

func TestRequestsInFlightAreNotSpentTwice(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newAdvertisedTimeline(t, &pace.Advertised{})
		first := get()
		require.NoError(t, l.pacer.WaitAtMost(first, 0))
		for range 3 {
			l.goes()
		}
		l.observes(first, 200, window(5, 60)...)
		l.waits(20 * time.Second) // 2 of them are left
	})
}

func TestAdvertisedReturnsUnusedUnits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newAdvertisedTimeline(t, &pace.Advertised{})
		l.sends(window(2, 60)...)
		l.at(20 * time.Second)
		req := get()
		require.NoError(t, l.pacer.WaitAtMost(req, 0))
		l.waits(20 * time.Second) // 1 in 40 s
		l.pacer.Observe(heed.Attempt{Request: req, Err: heed.ErrNotSent})
		l.waits(40 * time.Second / 3)
	})
}

func TestLeavingTheLineMovesOthersUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newAdvertisedTimeline(t, &pace.Advertised{})
		l.sends(window(9, 60)...)
		b, c := l.joins(), l.joins()
		l.waits(18 * time.Second)
		b.cancel(errGone)
		l.wg.Wait()
		assert.ErrorIs(t, b.err, context.Canceled)
		l.admittedAt(6*time.Second, c)
	})
}

func TestWaitersThatBecomeLateAreRefusedWithinASecond(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newAdvertisedTimeline(t, &pace.Advertised{})
		asks := get()
		require.NoError(t, l.pacer.WaitAtMost(asks, 0))
		l.sends(window(9, 60)...)
		l.wg.Go(func() {
			err := l.pacer.WaitAtMost(get(), 10*time.Second)
			assert.Equal(t, 57*time.Second, overdueError(t, err).Wait)
			assert.Equal(t, 3*time.Second, time.Since(l.start), "the line is reviewed once a second")
		})
		l.at(2 * time.Second)
		l.observes(asks, 429, window(0, 58)...)
		l.wg.Wait()
	})
}

func TestWhileSomethingIsLeftNothingIsRefused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newAdvertisedTimeline(t, &pace.Advertised{})
		l.sends(window(9, 6000)...)
		b := l.joins() // one unit is kept for the waiting request
		for range 8 {
			require.NoError(t, l.pacer.WaitAtMost(get(), time.Minute))
		}
		assert.Zero(t, time.Since(l.start))
		overdueError(t, l.pacer.WaitAtMost(get(), time.Minute))
		soon, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		assert.ErrorIs(t, l.pacer.Wait(request(soon, "http://example.com/")), context.DeadlineExceeded)
		b.cancel(nil)
		l.wg.Wait()
		assert.NoError(t, l.pacer.WaitAtMost(get(), time.Minute))
	})
}

// A script that sends twenty requests to GitHub without a token.
func TestTwentyRequestsAreNotDelayed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newAdvertisedTimeline(t, &pace.Advertised{})
		for sent := 1; sent <= 60; sent++ {
			req := get()
			require.NoError(t, l.pacer.WaitAtMost(req, time.Minute))
			time.Sleep(100 * ms)
			l.observes(
				req, 200, "X-RateLimit-Limit", "60", "X-RateLimit-Remaining", strconv.Itoa(60-sent),
				"X-RateLimit-Reset", "3600",
			)
		}
		assert.Equal(t, 6*time.Second, time.Since(l.start))
		overdueError(t, l.pacer.WaitAtMost(get(), time.Minute))
	})
}

func TestALaterAnswerEndsABogusOne(t *testing.T) {
	bogus := []string{"X-RateLimit-Limit", "100", "X-RateLimit-Remaining", "0", "X-RateLimit-Reset", "2147483647"}
	for name, test := range map[string]struct {
		status int
		fields []string
		ends   bool
	}{
		"no fields":                   {200, nil, true},
		"no fields, to a bad request": {404, nil, true},
		"other numbers":               {200, window(50, 60), true},
		"an outage":                   {503, nil, false},
		"a refusal without a time":    {429, nil, false},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				l := newAdvertisedTimeline(t, &pace.Advertised{})
				l.sends(bogus...)
				overdueError(t, l.pacer.WaitAtMost(get(), 30*time.Second))
				l.at(time.Minute)
				probe := get()
				require.NoError(t, l.pacer.WaitAtMost(probe, 30*time.Second))
				overdueError(t, l.pacer.WaitAtMost(get(), 30*time.Second))
				l.observes(probe, test.status, test.fields...)
				err := l.pacer.WaitAtMost(get(), 30*time.Second)
				if test.ends {
					assert.NoError(t, err)
				} else {
					overdueError(t, err)
				}
			})
		})
	}
}

func TestALimitOfZeroMeansNoLimit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newAdvertisedTimeline(t, &pace.Advertised{})
		for range 100 {
			l.sends("X-RateLimit-Limit", "0", "X-RateLimit-Remaining", "0", "X-RateLimit-Reset", "3600")
		}
		l.sends("X-RateLimit-Remaining", "0", "X-RateLimit-Reset", "3600")
		l.waits(time.Hour)
	})
}

func TestASilentServerIsNotPacedAndNothingAllocates(t *testing.T) {
	pacer := &pace.Advertised{}
	req, resp := get(), &http.Response{StatusCode: 200, Header: http.Header{"Content-Type": {"text/plain"}}}
	once := func() {
		if err := pacer.WaitAtMost(req, 0); err != nil {
			t.Error(err)
		}
		pacer.Observe(heed.Attempt{Request: req, Response: resp})
	}
	once()
	assert.Zero(t, testing.AllocsPerRun(1000, once))
}

func TestAdvertisedRemembersMaxKeys(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		pacer := &pace.Advertised{MaxKeys: 2}
		l := newAdvertisedTimeline(t, pacer)
		for _, host := range []string{"a", "b", "c"} {
			req := request(t.Context(), "http://"+host)
			require.NoError(t, pacer.WaitAtMost(req, 0))
			l.observes(req, 200, window(0, 60)...)
		}
		assert.NoError(t, pacer.WaitAtMost(request(t.Context(), "http://a"), 0), "it was forgotten")
		overdueError(t, pacer.WaitAtMost(request(t.Context(), "http://c"), 0))
	})
	assert.EqualError(
		t, (&pace.Advertised{MaxKeys: -1}).Wait(get()),
		"pace: Advertised.MaxKeys is -1: it must not be negative",
	)
}

func TestAdvertisedKeysAreIndependent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		pacer := &pace.Advertised{Key: heed.ByCredential}
		l := newAdvertisedTimeline(t, pacer)
		of := func(who string) *http.Request {
			req := get()
			req.Header.Set("Authorization", "Bearer "+who)
			return req
		}
		a := of("a")
		require.NoError(t, pacer.WaitAtMost(a, 0))
		l.observes(a, 429, window(0, 60)...)
		overdueError(t, pacer.WaitAtMost(of("a"), 0))
		assert.NoError(t, pacer.WaitAtMost(of("b"), 0))
	})
}
