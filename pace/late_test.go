package pace_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/time/rate"

	"github.com/heedhttp/heed"
	"github.com/heedhttp/heed/pace"
)

// within returns a request of a customer that may wait for d.
func within(t *testing.T, d time.Duration, priority int, customer string) *http.Request {
	ctx, cancel := context.WithTimeout(pace.WithPriority(context.Background(), priority), d)
	t.Cleanup(cancel)
	req := request(ctx, "http://example.com/")
	req.Header.Set("Customer", customer)
	return req
}

func customerOf(req *http.Request) string { return req.Header.Get("Customer") }

// fill sends one request and has n others wait: the first for the Pacer, at one a second.
func fill(t *testing.T, q *pace.Queue, n int) *timeline {
	tl := newTimeline(t, q)
	tl.goes()
	for range n {
		tl.joins()
	}
	return tl
}

func TestAQueueRefusesAtOnceWhatWouldBeTooLate(t *testing.T) {
	for name, newPacer := range map[string]func() heed.Pacer{
		"PerHost":  func() heed.Pacer { return pace.PerHost(1, 1) },
		"With":     func() heed.Pacer { return pace.With(rate.NewLimiter(1, 1)) },
		"Adaptive": func() heed.Pacer { return &pace.Adaptive{Min: 1, Max: 1} },
		"Each":     func() heed.Pacer { return pace.Each(pace.PerHost(1, 1), pace.PerHost(10, 1)) },
		"Queue":    func() heed.Pacer { return &pace.Queue{Pacer: pace.PerHost(1, 1)} },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var progress []pace.Progress
				q := &pace.Queue{
					Pacer: newPacer(), Max: 101, Progress: func(p pace.Progress) { progress = append(progress, p) },
				}
				tl := fill(t, q, 100)
				reports := len(progress)

				err := overdueError(t, q.Wait(within(t, 10*time.Second, 0, "")))
				want := heed.OverdueError{Key: err.Key, Wait: 101 * time.Second, Left: 10 * time.Second, Deadline: true}
				assert.Equal(t, want, *err)
				err = overdueError(t, q.WaitAtMost(get(), 101*time.Second-1))
				want.Left, want.Deadline = 101*time.Second-1, false
				assert.Equal(t, want, *err)
				tl.waits(101 * time.Second)
				assert.Zero(t, time.Since(tl.start))
				assert.Len(t, progress, reports, "they were not in line")

				last := tl.joins() // there is a place for it
				assert.Equal(t, 101, progress[len(progress)-1].Waiting)
				assert.ErrorIs(t, q.Wait(get()), pace.ErrQueueFull)
				tl.wg.Wait()
				tl.admittedAt(101*time.Second, last)
			})
		})
	}
}

func TestOnlyThoseAheadMakeAPlaceLate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := &pace.Queue{Pacer: pace.PerHost(1, 1), Key: customerOf}
		tl := fill(t, q, 100)
		tl.wg.Go(func() {
			assert.NoError(t, q.Wait(within(t, 2*time.Second+1, 1, "")))
			assert.Equal(t, 2*time.Second, time.Since(tl.start), "a higher priority")
		})
		synctest.Wait()
		tl.wg.Go(func() {
			assert.NoError(t, q.Wait(within(t, 3*time.Second+1, 0, "other")))
			assert.Equal(t, 3*time.Second, time.Since(tl.start), "a customer with fewer requests")
		})
		synctest.Wait()
		assert.Equal(t, 3*time.Second, overdueError(t, q.Wait(within(t, 3*time.Second, 1, ""))).Wait)
		assert.Equal(t, 103*time.Second, overdueError(t, q.Wait(within(t, 10*time.Second, 0, ""))).Wait)
		assert.Equal(t, 103*time.Second, overdueError(t, q.Wait(within(t, 10*time.Second, -1, "other"))).Wait)
		tl.wg.Wait()
	})
}

func TestARefusedPlaceCostsItsCustomerNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := &pace.Queue{Pacer: pace.PerHost(1, 1), Key: customerOf}
		tl := fill(t, q, 10)
		for range 5 {
			assert.Equal(t, 2*time.Second, overdueError(t, q.Wait(within(t, time.Second, 0, "other"))).Wait)
		}
		require.NoError(t, q.Wait(within(t, 3*time.Second, 0, "other")))
		assert.Equal(t, 2*time.Second, time.Since(tl.start))
		tl.wg.Wait()
	})
}

// Waiters that are overtaken know it within a second, and those behind them count them no
// longer at once.
func TestOvertakenWaitersAreRefusedOnceTheyAreLate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := &pace.Queue{Pacer: pace.PerHost(1, 1)}
		tl := fill(t, q, 1)
		for range 5 { // at 2, 3, 4, 5 and 6 s
			tl.wg.Go(func() {
				err := overdueError(t, q.Wait(within(t, 6500*ms, 0, "")))
				assert.Equal(t, time.Second, time.Since(tl.start))
				assert.True(t, err.Deadline)
				assert.Greater(t, err.Wait, 6*time.Second)
			})
			synctest.Wait()
		}
		tl.at(500 * ms)
		for range 7 { // at 2, 3, 4, 5, 6, 7 and 8 s
			tl.wg.Go(func() { assert.NoError(t, q.Wait(within(t, time.Minute, 1, ""))) })
			synctest.Wait()
		}
		tl.wg.Wait()
		assert.Equal(t, 8*time.Second, time.Since(tl.start))
	})
	synctest.Test(t, func(t *testing.T) {
		q := &pace.Queue{Pacer: pace.PerHost(1, 1)}
		tl := fill(t, q, 1)
		tl.wg.Go(func() { overdueError(t, q.Wait(within(t, 2500*ms, 0, ""))) }) // at 2 s
		synctest.Wait()
		tl.wg.Go(func() { assert.NoError(t, q.Wait(within(t, time.Minute, 1, ""))) })
		synctest.Wait()
		assert.NoError(t, q.Wait(within(t, 3500*ms, 0, "")), "the first cannot be in time, the second can")
		assert.Equal(t, 3*time.Second, time.Since(tl.start))
		tl.wg.Wait()
	})
}

// At the review one request has just been admitted, and the next one is about to ask.
func TestTheRequestThatIsAboutToAskCountsAsAhead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := &pace.Queue{Pacer: pace.PerHost(1, 1)}
		tl := fill(t, q, 1)
		tl.wg.Go(func() {
			overdueError(t, q.Wait(within(t, 2500*ms, 0, ""))) // at 2 s
			assert.Equal(t, time.Second, time.Since(tl.start))
		})
		synctest.Wait()
		tl.wg.Go(func() { assert.NoError(t, q.Wait(within(t, time.Minute, 1, ""))) })
		tl.wg.Wait()
		assert.Equal(t, 2*time.Second, time.Since(tl.start))
	})
}

func TestAQueueNoticesALowerLimit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		limiter := rate.NewLimiter(1, 1)
		q := &pace.Queue{Pacer: pace.With(limiter)}
		tl := fill(t, q, 1)
		tl.wg.Go(func() {
			assert.Greater(t, overdueError(t, q.Wait(within(t, 10*time.Second, 0, ""))).Wait, 10*time.Second)
			assert.Equal(t, 1*time.Second, time.Since(tl.start))
		})
		synctest.Wait()
		tl.at(500 * ms)
		limiter.SetLimit(0.1)
		tl.wg.Wait()
	})
}

// The quota is used up for an hour. One request waits to probe it after a minute.
func TestAQueueKnowsThatAnAdvertisedQuotaIsUsedUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		free := request(pace.WithCost(t.Context(), "", 0), "http://example.com/")
		q := &pace.Queue{Pacer: &pace.Advertised{}}
		first := get()
		require.NoError(t, q.Wait(first))
		q.Observe(heed.Attempt{Request: first, Response: &http.Response{StatusCode: 200, Header: http.Header{
			"X-Ratelimit-Limit": {"100"}, "X-Ratelimit-Remaining": {"0"}, "X-Ratelimit-Reset": {"3600"},
		}}})
		assert.NoError(t, q.WaitAtMost(free, 0), "it costs nothing")
		ctx, cancel := context.WithCancel(t.Context())
		var wg sync.WaitGroup
		wg.Go(func() { assert.ErrorIs(t, q.Wait(request(ctx, "http://example.com/")), context.Canceled) })
		synctest.Wait()
		time.Sleep(10 * time.Second)
		err := overdueError(t, q.Wait(within(t, 10*time.Second, 0, "")))
		assert.Equal(t, []time.Duration{50 * time.Second, 10 * time.Second}, []time.Duration{err.Wait, err.Left})
		cancel()
		wg.Wait()
	})
}

// One request waits in line, and another is about to ask. Whether that one delays others
// is not known, so a third one is not refused.
func TestAQueueRefusesNothingThatAnAdvertisedMayAdmit(t *testing.T) {
	for name, c := range map[string]struct {
		remaining string
		cost      int64
	}{
		"it costs nothing":               {"0", 0},
		"something is left to use early": {"10", 1},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				asks := make(chan bool)
				a := &pace.Advertised{Cost: func(req *http.Request, unit string) int64 {
					if req.Header.Get("Slow") != "" {
						<-asks
					}
					return pace.Cost(req, unit)
				}}
				q := &pace.Queue{Pacer: a, Cost: func(*http.Request, string) int64 { return 1 }}
				first := get()
				require.NoError(t, q.Wait(first))
				q.Observe(heed.Attempt{Request: first, Response: &http.Response{StatusCode: 200, Header: http.Header{
					"X-Ratelimit-Limit": {"100"}, "X-Ratelimit-Remaining": {c.remaining}, "X-Ratelimit-Reset": {"3600"},
				}}})
				of := func(slow string) *http.Request {
					ctx, cancel := context.WithTimeout(pace.WithCost(context.Background(), "", c.cost), time.Second)
					t.Cleanup(cancel)
					req := request(ctx, "http://example.com/")
					req.Header.Set("Slow", slow)
					return req
				}
				var wg sync.WaitGroup
				if c.cost > 0 { // it uses the Advertised without the Queue
					ctx, cancel := context.WithCancel(t.Context())
					defer cancel()
					go func() { _ = a.Wait(request(ctx, "http://example.com/")) }()
					synctest.Wait()
				}
				wg.Go(func() { assert.NoError(t, q.Wait(of("yes"))) })
				synctest.Wait()
				wg.Go(func() { assert.NoError(t, q.Wait(of(""))) })
				synctest.Wait()
				close(asks)
				wg.Wait()
			})
		})
	}
}

// The state has expired, and the answer to the only request that is allowed will say how
// much is left.
func TestAQueueWaitsForTheAnswerOfAnAdvertised(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := &pace.Queue{Pacer: &pace.Advertised{}}
		answer := func(req *http.Request, remaining string) {
			q.Observe(heed.Attempt{Request: req, Response: &http.Response{StatusCode: 200, Header: http.Header{
				"X-Ratelimit-Limit": {"1"}, "X-Ratelimit-Remaining": {remaining}, "X-Ratelimit-Reset": {"60"},
			}}})
		}
		first, second := get(), get()
		require.NoError(t, q.Wait(first))
		answer(first, "0")
		time.Sleep(time.Minute)
		require.NoError(t, q.Wait(second))
		var wg sync.WaitGroup
		wg.Go(func() { assert.NoError(t, q.Wait(get())) })
		synctest.Wait()
		wg.Go(func() { assert.NoError(t, q.Wait(within(t, 500*ms, 0, ""))) })
		time.Sleep(100 * ms)
		answer(second, "3")
		wg.Wait()
	})
}

// A visit is a request in a random timeline of a Queue.
type visit struct {
	at       time.Duration
	most     time.Duration // 0: any time
	context  bool          // most is the context's
	priority int
	customer string
}

// A leaving is how a visit ended.
type leaving struct {
	at  time.Duration
	err error
}

// randomVisits returns visits of which no two events fall on the same moment.
func randomVisits(r *rand.Rand, n int) []visit {
	visits := make([]visit, n)
	for i := range visits {
		v := visit{
			at:       time.Duration(i)*10*ms + time.Duration(r.IntN(8))*ms + time.Duration(i)*time.Microsecond,
			context:  r.IntN(2) == 0,
			priority: r.IntN(3) * r.IntN(2),
			customer: string(rune('a' + r.IntN(3)*r.IntN(2))),
		}
		if r.IntN(3) > 0 {
			v.most = time.Duration(r.IntN(3000))*ms + 417*time.Microsecond
		}
		visits[i] = v
	}
	return visits
}

// visiting runs visits and returns how they end.
func visiting(t *testing.T, limit rate.Limit, burst int, visits []visit) []leaving {
	ends := make([]leaving, len(visits))
	synctest.Test(t, func(t *testing.T) {
		q := &pace.Queue{Pacer: pace.PerHost(limit, burst), Key: customerOf}
		tl := newTimeline(t, q)
		for i, v := range visits {
			tl.wg.Go(func() {
				tl.at(v.at)
				ctx, most := pace.WithPriority(t.Context(), v.priority), time.Hour
				switch {
				case v.most > 0 && v.context:
					c, cancel := context.WithTimeout(ctx, v.most)
					defer cancel()
					ctx = c
				case v.most > 0:
					most = v.most
				}
				req := request(ctx, "http://example.com/")
				req.Header.Set("Customer", v.customer)
				err := q.WaitAtMost(req, most)
				ends[i] = leaving{time.Since(tl.start), err}
			})
		}
		tl.wg.Wait()
	})
	return ends
}

// A request is refused at once only if it would have been too late, which another run
// without its bound shows. One that is in line is refused only within a second after the
// last arrival, because nobody overtakes it later.
func FuzzAQueueRefusesAtOnceWhatWouldBeTooLate(f *testing.F) {
	for seed := range uint64(20) {
		f.Add(seed, 1+seed%13, 1+seed%4)
	}
	f.Fuzz(func(t *testing.T, seed, limit, burst uint64) {
		if limit < 1 || limit > 50 || burst < 1 || burst > 20 {
			t.Skip()
		}
		visits := randomVisits(rand.New(rand.NewPCG(seed, 2)), 40)
		ends := visiting(t, rate.Limit(limit), int(burst), visits)
		settled := visits[len(visits)-1].at + time.Second
		for i, end := range ends { // what is late by less than the grace is found out later
			var err *heed.OverdueError
			if end.at > visits[i].at && errors.As(end.err, &err) && err.Wait-err.Left < 2*ms {
				t.Skip()
			}
		}
		for i, end := range ends {
			v := visits[i]
			late, what := v.at+v.most, fmt.Sprintf("request %d of seed %d: %+v, %+v", i, seed, v, end)
			switch {
			case end.err == nil:
				assert.True(t, v.most == 0 || end.at < late, what)
			case end.at == v.at:
				unbound := slices.Clone(visits)
				unbound[i].most = 0
				patient := visiting(t, rate.Limit(limit), int(burst), unbound)[i]
				assert.NoError(t, patient.err, what)
				assert.Greater(t, patient.at, late, what)
			case end.at < late:
				wait := overdueError(t, end.err).Wait
				assert.Greater(t, wait, late-end.at, what)
				assert.LessOrEqual(t, end.at, settled, what)
			default:
				assert.LessOrEqual(t, end.at, settled, what)
			}
		}
	})
}
