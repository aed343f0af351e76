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

// teller lets requests go, and tells the pacer what the server says.
type teller struct {
	*timeline
	advertised *pace.Advertised
}

func newTeller(t *testing.T, a *pace.Advertised) *teller { return &teller{newTimeline(t, a), a} }

// waits asserts that a request that came now would wait so long.
func (l *teller) waits(d time.Duration) {
	l.t.Helper()
	require.Equal(l.t, d.String(), l.advertised.WouldWait(get()).String(), "at %v", time.Since(l.start))
}

func (l *teller) hears(req *http.Request, status int, fields ...string) {
	h := http.Header{}
	for i := 0; i < len(fields); i += 2 {
		h.Set(fields[i], fields[i+1])
	}
	l.pacer.Observe(heed.Attempt{Request: req, Response: &http.Response{StatusCode: status, Header: h}})
}

// sends is a request that goes at once and is answered so.
func (l *teller) sends(fields ...string) {
	l.t.Helper()
	req := get()
	before := time.Now()
	require.NoError(l.t, l.pacer.WaitAtMost(req, 0), "at %v", time.Since(l.start))
	require.Zero(l.t, time.Since(before))
	l.hears(req, 200, fields...)
}

// window is what a server says of a window.
func window(remaining, reset int) []string {
	return []string{"RateLimit-Limit", "100", "RateLimit-Remaining", strconv.Itoa(remaining), "RateLimit-Reset", strconv.Itoa(reset)}
}

func TestWhatIsLeftIsSpreadOverTheTimeToTheReset(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newTeller(t, &pace.Advertised{})
		l.sends(window(9, 60)...)
		l.waits(6 * time.Second)
		l.at(6 * time.Second)
		l.sends(window(8, 54)...)
		l.waits(6 * time.Second)
	})
}

func TestWithNothingLeftOneRequestGoesAfterTheResetAndTheOthersWaitForItsAnswer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newTeller(t, &pace.Advertised{})
		l.sends(window(0, 3)...)
		l.waits(3 * time.Second)
		l.at(3 * time.Second)
		asks := get()
		require.NoError(t, l.pacer.WaitAtMost(asks, 0))
		b := l.joins()
		c := l.joins()
		l.at(3*time.Second + 100*ms)
		l.hears(asks, 200, window(99, 10)...)
		l.wg.Wait()
		l.letGoAt(3*time.Second+100*ms, b)
		l.letGoAt(3*time.Second+100*ms, c)
	})
}

func TestWhereOnlyRefusalsTellAnAnswerThatDoesNotLetsAllGo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newTeller(t, &pace.Advertised{})
		req := get()
		require.NoError(t, l.pacer.WaitAtMost(req, 0))
		l.hears(req, 429, window(0, 3)...)
		l.waits(3 * time.Second)
		l.at(3 * time.Second)
		asks := get()
		require.NoError(t, l.pacer.WaitAtMost(asks, 0))
		l.waits(time.Second)
		l.hears(asks, 200)
		l.goes()
		l.goes()
	})
}

func TestAnAnswerThatNeverComesHoldsNobodyUpForMoreThanASecond(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newTeller(t, &pace.Advertised{})
		l.sends(window(0, 3)...)
		l.at(3 * time.Second)
		l.goes()
		l.waits(time.Second)
		l.at(4 * time.Second)
		l.goes()
	})
}

func TestNothingIsDelayedWhileMoreThanThreeQuartersAreLeft(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newTeller(t, &pace.Advertised{})
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

func TestWhereNothingIsLeftForLongOneRequestAMinuteLooks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newTeller(t, &pace.Advertised{})
		l.sends(window(0, 100_000)...)
		l.waits(24 * time.Hour)
		assert.Equal(t, 24*time.Hour, overdueError(t, l.pacer.WaitAtMost(get(), time.Hour)).Wait)
		l.at(time.Minute)
		req := get()
		require.NoError(t, l.pacer.WaitAtMost(req, 0))
		l.hears(req, 429, window(0, 99_940)...)
		l.waits(24 * time.Hour)
		overdueError(t, l.pacer.WaitAtMost(get(), time.Hour))
		l.at(2 * time.Minute)
		l.sends(window(99, 50)...)
		l.goes()
	})
}

func TestANewLimitIsFollowedAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newTeller(t, &pace.Advertised{})
		l.sends(window(9, 100)...)
		l.waits(10 * time.Second)
		asks := get()
		l.at(10 * time.Second)
		require.NoError(t, l.pacer.WaitAtMost(asks, 0))
		b := l.joins()
		l.hears(asks, 200, "RateLimit-Limit", "1000", "RateLimit-Remaining", "99", "RateLimit-Reset", "90")
		l.wg.Wait()
		l.letGoAt(10*time.Second+900*ms, b)
	})
}

func TestTheTightestOfSeveralPoliciesDecides(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newTeller(t, &pace.Advertised{})
		l.sends("RateLimit", `"a";r=9;t=10, "b";r=1;t=60`, "RateLimit-Policy", `"a";q=10;w=10, "b";q=100;w=3600`)
		l.waits(30 * time.Second)
	})
}

func TestAPolicyWithoutStateIsKeptAsItIs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newTeller(t, &pace.Advertised{})
		l.sends("RateLimit-Policy", `"a";q=10;w=60`)
		l.waits(6 * time.Second)
	})
}

func TestAPolicyWithoutStateBesideOthersIsNotKept(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newTeller(t, &pace.Advertised{})
		for range 10 {
			l.sends("RateLimit", `"a";r=99;t=60`, "RateLimit-Policy", `"a";q=100;w=60, "b";q=1000;w=86400`)
		}
	})
}

func TestACostIsWaitedForAsAWhole(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newTeller(t, &pace.Advertised{Cost: func(req *http.Request, unit string) int64 {
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
			return []string{"X-RateLimit-Limit-Tokens", "1000", "X-RateLimit-Remaining-Tokens", left, "X-RateLimit-Reset-Tokens", "60s"}
		}
		l := newTeller(t, &pace.Advertised{})
		l.sends(tokens("1")...)
		l.sends(tokens("0")...)
		l.waits(time.Minute)
	})
}

func TestOldNewsOnlyMakesItWorse(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newTeller(t, &pace.Advertised{})
		a, b := get(), get()
		require.NoError(t, l.pacer.WaitAtMost(a, 0))
		require.NoError(t, l.pacer.WaitAtMost(b, 0))
		l.hears(b, 200, window(9, 60)...)
		l.hears(a, 200, window(50, 60)...)
		l.waits(6 * time.Second)
	})
}

func TestWhatIsUnderWayIsNotSpentTwice(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newTeller(t, &pace.Advertised{})
		first := get()
		require.NoError(t, l.pacer.WaitAtMost(first, 0))
		for range 3 {
			l.goes()
		}
		l.hears(first, 200, window(5, 60)...)
		l.waits(20 * time.Second) // 2 of them are left
	})
}

func TestAdvertisedGivesTurnsBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newTeller(t, &pace.Advertised{})
		l.sends(window(2, 60)...)
		l.at(20 * time.Second)
		req := get()
		require.NoError(t, l.pacer.WaitAtMost(req, 0))
		l.waits(20 * time.Second) // 1 in 40 s
		l.pacer.Observe(heed.Attempt{Request: req, Err: heed.ErrNotSent})
		l.waits(40 * time.Second / 3)
	})
}

func TestWhoLeavesTheLineIsNotWaitedFor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newTeller(t, &pace.Advertised{})
		l.sends(window(9, 60)...)
		b, c := l.joins(), l.joins()
		l.waits(18 * time.Second)
		b.cancel(errGone)
		l.wg.Wait()
		assert.ErrorIs(t, b.err, context.Canceled)
		l.letGoAt(6*time.Second, c)
	})
}

func TestThoseForWhomItIsTooLateAreToldWhenItIsKnown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newTeller(t, &pace.Advertised{})
		asks := get()
		require.NoError(t, l.pacer.WaitAtMost(asks, 0))
		l.sends(window(9, 60)...)
		l.wg.Go(func() {
			err := l.pacer.WaitAtMost(get(), 10*time.Second)
			assert.Equal(t, 57*time.Second, overdueError(t, err).Wait)
			assert.Equal(t, 3*time.Second, time.Since(l.start), "all are looked at once a second")
		})
		l.at(2 * time.Second)
		l.hears(asks, 429, window(0, 58)...)
		l.wg.Wait()
	})
}

func TestWhileSomethingIsLeftNothingIsRefused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newTeller(t, &pace.Advertised{})
		l.sends(window(9, 6000)...)
		b := l.joins() // for the one that waits, one of them is kept
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
func TestAFewRequestsTakeNoLongerThanWithout(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newTeller(t, &pace.Advertised{})
		for sent := 1; sent <= 60; sent++ {
			req := get()
			require.NoError(t, l.pacer.WaitAtMost(req, time.Minute))
			time.Sleep(100 * ms)
			l.hears(req, 200, "X-RateLimit-Limit", "60", "X-RateLimit-Remaining", strconv.Itoa(60-sent), "X-RateLimit-Reset", "3600")
		}
		assert.Equal(t, 6*time.Second, time.Since(l.start))
		overdueError(t, l.pacer.WaitAtMost(get(), time.Minute))
	})
}

func TestWhatContradictsABogusAnswerEndsIt(t *testing.T) {
	bogus := []string{"X-RateLimit-Limit", "100", "X-RateLimit-Remaining", "0", "X-RateLimit-Reset", "2147483647"}
	for name, test := range map[string]struct {
		status int
		fields []string
		ends   bool
	}{
		"nothing is told":              {200, nil, true},
		"nothing, to a bad request":    {404, nil, true},
		"other numbers":                {200, window(50, 60), true},
		"an outage":                    {503, nil, false},
		"a refusal that tells no time": {429, nil, false},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				l := newTeller(t, &pace.Advertised{})
				l.sends(bogus...)
				overdueError(t, l.pacer.WaitAtMost(get(), 30*time.Second))
				l.at(time.Minute)
				probe := get()
				require.NoError(t, l.pacer.WaitAtMost(probe, 30*time.Second))
				overdueError(t, l.pacer.WaitAtMost(get(), 30*time.Second))
				l.hears(probe, test.status, test.fields...)
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

func TestALimitOfZeroIsNone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newTeller(t, &pace.Advertised{})
		for range 100 {
			l.sends("X-RateLimit-Limit", "0", "X-RateLimit-Remaining", "0", "X-RateLimit-Reset", "3600")
		}
		l.sends("X-RateLimit-Remaining", "0", "X-RateLimit-Reset", "3600")
		l.waits(time.Hour)
	})
}

func TestAServerThatTellsNothingIsNotPacedAndCostsNoAllocation(t *testing.T) {
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
		l := newTeller(t, pacer)
		for _, host := range []string{"a", "b", "c"} {
			req := request(t.Context(), "http://"+host)
			require.NoError(t, pacer.WaitAtMost(req, 0))
			l.hears(req, 200, window(0, 60)...)
		}
		assert.NoError(t, pacer.WaitAtMost(request(t.Context(), "http://a"), 0), "it was forgotten")
		overdueError(t, pacer.WaitAtMost(request(t.Context(), "http://c"), 0))
	})
	assert.EqualError(t, (&pace.Advertised{MaxKeys: -1}).Wait(get()), "pace: Advertised.MaxKeys is -1: it must not be negative")
}

func TestKeysOfAdvertisedAreApart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		pacer := &pace.Advertised{Key: heed.ByCredential}
		l := newTeller(t, pacer)
		of := func(who string) *http.Request {
			req := get()
			req.Header.Set("Authorization", "Bearer "+who)
			return req
		}
		a := of("a")
		require.NoError(t, pacer.WaitAtMost(a, 0))
		l.hears(a, 429, window(0, 60)...)
		overdueError(t, pacer.WaitAtMost(of("a"), 0))
		assert.NoError(t, pacer.WaitAtMost(of("b"), 0))
	})
}
