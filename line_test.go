package heed_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net/http"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/heedhttp/heed"
	"github.com/heedhttp/heed/internal/testenv"
)

// Requests come, give up, are refused, fail and hang in random order, and cool-downs are posted
// meanwhile. Each must end with a response or an error, and none may be sent during a cool-down.
func TestEveryRequestEndsAndNoneIsSentEarly(t *testing.T) {
	seeds := uint64(12)
	if testenv.Long() {
		seeds = 60
	}
	for seed := range seeds {
		synctest.Test(t, func(t *testing.T) {
			random := newRandom(seed)
			board := &heed.LocalBoard{}
			var early atomic.Int64
			tr := &heed.Transport{Board: board, Base: roundTripFunc(func(req *http.Request) (*http.Response, error) {
				wait, _, _ := board.Read(context.Background(), key)
				if wait > 0 && wait < time.Minute && !random.closed.Load().(time.Time).Equal(time.Now()) {
					early.Add(1)
				}
				return random.answer(req)
			})}
			if seed%2 == 0 {
				tr.Pacer = &intervalPacer{every: time.Millisecond}
			}
			var all sync.WaitGroup
			for range 200 {
				wait, patience := random.upTo(20*time.Second), 24*time.Hour
				if random.oneIn(4) {
					patience = random.upTo(5 * time.Second)
				}
				all.Go(func() {
					time.Sleep(wait)
					ctx, cancel := context.WithCancel(t.Context())
					defer cancel()
					time.AfterFunc(patience, cancel)
					resp, err := tr.RoundTrip(get(ctx))
					assert.NotEqual(t, resp == nil, err == nil)
				})
			}
			for range 10 {
				time.Sleep(random.upTo(3 * time.Second))
				random.closed.Store(time.Now())
				board.Post(t.Context(), key, random.upTo(3*time.Second), random.upTo(2)*20*time.Millisecond)
			}
			all.Wait()
			assert.Zero(t, early.Load(), "seed %d", seed)
		})
	}
}

type random struct {
	mu sync.Mutex
	r  *rand.Rand

	// closed is when a cool-down last began. A request may be sent at the same nanosecond: the order of
	// the two is undefined.
	closed atomic.Value
}

func newRandom(seed uint64) *random {
	r := &random{r: rand.New(rand.NewPCG(seed, 7))}
	r.closed.Store(time.Time{})
	return r
}

func (r *random) upTo(d time.Duration) time.Duration {
	r.mu.Lock()
	defer r.mu.Unlock()
	return time.Duration(r.r.Int64N(int64(d)))
}

func (r *random) oneIn(n time.Duration) bool { return r.upTo(n) == 0 }

func (r *random) answer(req *http.Request) (*http.Response, error) {
	took := r.upTo(200 * time.Millisecond)
	if r.oneIn(40) {
		took = time.Hour
	}
	select {
	case <-time.After(took):
	case <-req.Context().Done():
		return nil, req.Context().Err()
	}
	switch r.upTo(10) {
	case 0:
		r.closed.Store(time.Now())
		return response(req, throttle(fmt.Sprint(1+int(r.upTo(5))))), nil
	case 1:
		return response(req, unavailable), nil
	case 2:
		return nil, errBroken
	case 3:
		return response(req, reply{status: 429}), nil
	}
	return response(req, ok), nil
}

func TestAnExpiredCoolDownDelaysNoRequest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		board := &heed.LocalBoard{}
		board.Post(t.Context(), key, time.Minute, 0)
		time.Sleep(time.Hour)
		tr := &heed.Transport{Base: newScript(reply{status: 200, took: 10 * time.Millisecond}), Board: board}
		start := time.Now()
		var all sync.WaitGroup
		for range 100 {
			all.Go(func() { assert.Equal(t, 200, status(t, tr, get(t.Context()))) })
		}
		all.Wait()
		assert.Equal(t, 10*time.Millisecond, time.Since(start))
	})
}

// A 503 is not a refusal because of a limit.
func TestAnOutageDoesNotBlockTheLine(t *testing.T) {
	for name, outage := range map[string]reply{
		"503": {status: 503, took: 10 * time.Millisecond}, "broken": {err: errBroken, took: 10 * time.Millisecond},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				tr := &heed.Transport{Base: newScript(throttle("30"), outage), Retry: heed.RetryPolicy{MaxAttempts: 1}}
				assert.Equal(t, 429, status(t, tr, get(t.Context())))
				start := time.Now()
				var all sync.WaitGroup
				var overdue atomic.Int64
				for range 100 {
					all.Go(func() {
						resp, err := tr.RoundTrip(get(t.Context()))
						if err == nil {
							resp.Body.Close()
						} else if _, late := err.(*heed.OverdueError); late {
							overdue.Add(1)
						}
					})
				}
				all.Wait()
				between(t, 30*time.Second, time.Since(start), 39100*time.Millisecond)
				assert.Zero(t, overdue.Load())
			})
		})
	}
}

func TestOtherKeysDoNotEvictABusyLine(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		board := &heed.LocalBoard{}
		board.Post(t.Context(), key, 10*time.Second, 0)
		s := newScript(reply{status: 200, took: 500 * time.Millisecond})
		tr := &heed.Transport{Base: s, Board: board}
		var all sync.WaitGroup
		all.Go(func() { status(t, tr, get(t.Context())) })
		time.Sleep(10 * time.Second)
		for s.count() == 0 {
			time.Sleep(time.Millisecond)
		}
		for i := range 1000 { // the table removes old entries meanwhile
			board.Post(t.Context(), fmt.Sprint(i), time.Hour, 0)
		}
		for range 50 {
			all.Go(func() { status(t, tr, get(t.Context())) })
		}
		time.Sleep(100 * time.Millisecond)
		assert.Equal(t, 1, s.count(), "the first answer is not there yet")
		all.Wait()
	})
}

func TestARetryThatCannotWaitReturnsItsLastResponse(t *testing.T) {
	for range 20 {
		synctest.Test(t, func(t *testing.T) {
			board := &heed.LocalBoard{}
			board.Post(t.Context(), key, time.Second, time.Hour)
			l := &countingBudget{}
			s := newScript(reply{status: 503, body: readCloser("busy")}, ok)
			tr := &heed.Transport{Base: s, Board: board, Budget: l, Retry: heed.RetryPolicy{Backoff: constant(time.Second)}}
			ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
			defer cancel()
			resp := roundTrip(t, tr, get(ctx))
			assert.Equal(t, 503, resp.StatusCode)
			assert.Equal(t, "busy", content(t, resp))
			assert.Equal(t, []int{1, 1}, []int{l.withdrawals, l.refunds})
		})
	}
}

func TestAShortMaxWaitKeepsTheCoolDown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newScript(throttle("120"))
		tr := &heed.Transport{Base: s, Retry: heed.RetryPolicy{MaxWait: time.Millisecond}}
		for range 1190 {
			if resp, err := tr.RoundTrip(get(t.Context())); err == nil {
				resp.Body.Close()
			}
			time.Sleep(100 * time.Millisecond)
		}
		assert.Equal(t, 2, s.count(), "the refused one, and a probe after a minute")
	})
}
