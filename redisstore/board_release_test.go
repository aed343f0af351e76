package redisstore_test

import (
	"context"
	"math/rand/v2"
	"net/http"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/heedhttp/heed"
	"github.com/heedhttp/heed/redisstore"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// arrivals is a server without limits that records when requests came.
type arrivals struct {
	mu sync.Mutex
	at []time.Time
}

func (a *arrivals) RoundTrip(req *http.Request) (*http.Response, error) {
	a.mu.Lock()
	a.at = append(a.at, time.Now())
	a.mu.Unlock()
	return &http.Response{StatusCode: 200, Header: http.Header{}, Body: http.NoBody, Request: req}, nil
}

// since returns the times since start, in order.
func (a *arrivals) since(start time.Time) (times []time.Duration) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, at := range a.at {
		times = append(times, at.Sub(start))
	}
	slices.Sort(times)
	return times
}

// A clientProcess has workers that send one request each.
type clientProcess struct {
	t    *testing.T
	tr   *heed.Transport
	done sync.WaitGroup
}

func newClientProcess(t *testing.T, b *redisstore.Board, server http.RoundTripper) *clientProcess {
	tr := &heed.Transport{Base: server, Board: b, Retry: heed.RetryPolicy{MaxElapsed: time.Hour}}
	return &clientProcess{t: t, tr: tr}
}

func (c *clientProcess) send(ctx context.Context, n int) {
	for range n {
		c.done.Go(func() {
			req, err := http.NewRequestWithContext(ctx, http.MethodGet, host, nil)
			require.NoError(c.t, err)
			if resp, err := c.tr.RoundTrip(req); ctx.Err() == nil && assert.NoError(c.t, err) {
				resp.Body.Close()
			}
		})
	}
}

const tick = 20 * ms // the server's interval

// evenly asserts that there was one arrival each tick, from start on.
func evenly(t *testing.T, start time.Duration, times []time.Duration) {
	t.Helper()
	for i, at := range times {
		require.InDelta(t, start+time.Duration(i)*tick, at, float64(3*ms), "%d of %v", i, times)
	}
}

func TestAFleetReleasesAsManyAsOneProcess(t *testing.T) {
	for _, n := range []int{1, 2, 3, 8, 32} {
		synctest.Test(t, func(t *testing.T) {
			s, server := newBoardFake(t), &arrivals{}
			boards := openBoards(t, s, n)
			require.NoError(t, boards[n/2].Post(t.Context(), host, time.Second, tick))
			start := time.Now()
			time.Sleep(2 * ms)
			for i, b := range boards {
				c := newClientProcess(t, b, server)
				c.send(t.Context(), 8)
				defer c.done.Wait()
				time.Sleep(time.Duration(i%3) * ms)
			}
			time.Sleep(time.Second + time.Duration(8*n)*tick)
			times := server.since(start)
			assert.Len(t, times, 8*n)
			evenly(t, time.Second, times)
		})
	}
}

func TestProcessesWithoutWaitersTakeNoSlot(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, server := newBoardFake(t), &arrivals{}
		boards := openBoards(t, s, 10)
		require.NoError(t, boards[0].Post(t.Context(), host, time.Second, tick))
		start := time.Now()
		time.Sleep(2 * ms)
		for _, b := range boards[4:6] {
			c := newClientProcess(t, b, server)
			c.send(t.Context(), 20)
			defer c.done.Wait()
		}
		time.Sleep(2 * time.Second)
		assert.Len(t, server.since(start), 40)
		evenly(t, time.Second, server.since(start))
	})
}

func TestAProcessThatJoinsAReleaseGetsTheNextSlot(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, server := newBoardFake(t), &arrivals{}
		boards := openBoards(t, s, 6)
		require.NoError(t, boards[0].Post(t.Context(), host, time.Second, tick))
		start := time.Now()
		time.Sleep(2 * ms)
		for i, b := range boards[:5] {
			c := newClientProcess(t, b, server)
			defer c.done.Wait()
			c.send(t.Context(), 10)
			if i == 2 {
				time.Sleep(970 * ms)
			}
			if i > 2 {
				time.Sleep(25 * ms) // the fourth comes before the end of the cool-down, the fifth after it
			}
		}
		time.Sleep(time.Second)
		assert.Len(t, server.since(start), 50)
		for i, at := range server.since(start)[1:] {
			assert.GreaterOrEqual(t, at-server.since(start)[i], tick-3*ms, "%d", i)
		}
		assert.Zero(t, left(t, boards[5], host), "a later process sees no cool-down")
	})
}

func TestSlotsOfDeadProcessesGoUnused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, server := newBoardFake(t), &arrivals{}
		boards := openBoards(t, s, 4)
		require.NoError(t, boards[0].Post(t.Context(), host, time.Second, tick))
		start := time.Now()
		time.Sleep(2 * ms)
		dying, die := context.WithCancel(t.Context())
		for i, b := range boards {
			c := newClientProcess(t, b, server)
			defer c.done.Wait()
			if i%2 == 0 {
				c.send(dying, 10)
			} else {
				c.send(t.Context(), 10)
			}
			time.Sleep(5 * ms) // so that slots are given in this order
		}
		time.Sleep(500 * ms)
		die()
		time.Sleep(3 * time.Second)
		times := server.since(start)
		require.Len(t, times, 20)
		for i, at := range times {
			assert.InDelta(t, time.Second+time.Duration(2*i+1)*tick, at, float64(3*ms))
		}
	})
}

// A cool-down posted during a release starts another round, with new slots.
func TestANewCoolDownStopsTheReleaseEverywhere(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, server := newBoardFake(t), &arrivals{}
		boards := openBoards(t, s, 3)
		require.NoError(t, boards[0].Post(t.Context(), host, time.Second, tick))
		start := time.Now()
		time.Sleep(2 * ms)
		for _, b := range boards {
			c := newClientProcess(t, b, server)
			defer c.done.Wait()
			c.send(t.Context(), 20)
		}
		time.Sleep(1300 * ms)
		require.NoError(t, boards[2].Post(t.Context(), host, 2*time.Second, tick))
		before := len(server.since(start))
		again := time.Since(start)
		time.Sleep(5 * time.Second)
		times := server.since(start)
		require.Len(t, times, 60)
		evenly(t, time.Second, times[:before])
		assert.GreaterOrEqual(t, times[before], again+2*time.Second-2*ms)
		for i := before + 1; i < len(times); i++ {
			assert.GreaterOrEqual(t, times[i]-times[i-1], tick-3*ms)
		}
		assert.LessOrEqual(t, times[59], again+2*time.Second+3*(20*tick), "all are released")
	})
}

// Whatever the processes do, in any time t at most n + t/every waiting requests arrive.
func TestTheReleaseNeverExceedsTheServersRate(t *testing.T) {
	for seed := range uint64(stated(30, 8)) {
		synctest.Test(t, func(t *testing.T) {
			r := rand.New(rand.NewPCG(seed, 0))
			s, server := newBoardFake(t), &arrivals{}
			s.delay = time.Duration(r.Int64N(int64(5 * ms)))
			n := 1 + r.IntN(8)
			boards := openBoards(t, s, n)
			time.Sleep(50 * ms)
			start := time.Now()
			require.NoError(t, boards[0].Post(t.Context(), host, time.Second, tick))
			time.Sleep(2*s.delay + ms)
			for _, b := range boards {
				c := newClientProcess(t, b, server)
				defer c.done.Wait()
				came := time.Duration(r.Int64N(int64(1100 * ms)))
				size := r.IntN(30)
				c.done.Go(func() {
					time.Sleep(came)
					if left(t, b, host) > 0 {
						c.send(t.Context(), size)
					}
				})
			}
			time.Sleep(time.Minute)
			times := server.since(start)
			for i := range times {
				for j := range i {
					if got := i - j + 1; got > n {
						span, least := times[i]-times[j], time.Duration(got-n)*tick
						require.GreaterOrEqual(t, span, least, "seed %d: %d arrivals in %v", seed, got, times[j:i+1])
					}
				}
			}
		})
	}
}

func TestWithoutRedisEachProcessUsesTheSlotsItKnows(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newBoardFake(t)
		boards := openBoards(t, s, 3)
		require.NoError(t, boards[0].Post(t.Context(), host, time.Second, tick))
		time.Sleep(2 * ms)
		read := func(i int) [2]time.Duration {
			wait, every, _ := boards[i].Read(t.Context(), host)
			return [2]time.Duration{wait.Round(10 * ms), every}
		}
		assert.Equal(t, [2]time.Duration{1000 * ms, tick}, read(0), "before it has a slot, as with the next one")
		time.Sleep(10 * ms)
		assert.Equal(t, [2]time.Duration{1010 * ms, 2 * tick}, read(1))
		time.Sleep(10 * ms)
		s.set(func() { s.silent = true })
		assert.Equal(t, [2]time.Duration{1020 * ms, 3 * tick}, read(2))
		time.Sleep(80 * ms)
		assert.Equal(t, [2]time.Duration{900 * ms, 2 * tick}, read(0))
		assert.Equal(t, [2]time.Duration{920 * ms, 2 * tick}, read(1))
		assert.Equal(t, [2]time.Duration{940 * ms, 3 * tick}, read(2))
		time.Sleep(900 * ms)
		assert.Equal(t, [2]time.Duration{0, 2 * tick}, read(0), "the interval holds while others may wait")
		assert.Equal(t, [2]time.Duration{20 * ms, 2 * tick}, read(1))
		assert.Equal(t, [2]time.Duration{40 * ms, 3 * tick}, read(2))
		s.set(func() { s.silent = false })
		time.Sleep(12 * time.Second)
		for i := range boards {
			assert.Zero(t, read(i))
		}
	})
}

func TestARedisThatLostSlotsGivesNewOnes(t *testing.T) {
	for name, lose := range map[string]func(s *boardFake, before boardModel){
		"an older copy": (*boardFake).restore,
		"all forgotten": func(s *boardFake, _ boardModel) { s.restart() },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newBoardFake(t)
				boards := openBoards(t, s, 6)
				require.NoError(t, boards[0].Post(t.Context(), host, 10*time.Second, tick))
				time.Sleep(2 * ms)
				var before boardModel
				for i, b := range boards {
					if i == 2 {
						s.set(func() { before = s.model.copied() })
					}
					left(t, b, host)
					time.Sleep(5 * ms)
				}
				lose(s, before)
				time.Sleep(1200 * ms)
				var waits []time.Duration
				for _, b := range boards {
					wait, every, _ := b.Read(t.Context(), host)
					assert.GreaterOrEqual(t, every, 6*tick)
					waits = append(waits, wait)
				}
				slices.Sort(waits)
				for i := range waits[1:] {
					assert.InDelta(t, tick, waits[i+1]-waits[i], float64(5*ms), "%v", waits)
				}
			})
		})
	}
}

// Two policies deny, in two processes. The one with the longer wait has the shorter interval.
func TestTheLongestIntervalOfTheRoundHolds(t *testing.T) {
	for _, slowFirst := range []bool{true, false} {
		synctest.Test(t, func(t *testing.T) {
			boards := openBoards(t, newBoardFake(t), 3)
			slow := func() { require.NoError(t, boards[0].Post(t.Context(), host, time.Second, 5*tick)) }
			fast := func() { require.NoError(t, boards[1].Post(t.Context(), host, 2*time.Second, tick)) }
			first, second := slow, fast
			if !slowFirst {
				first, second = fast, slow
			}
			first()
			time.Sleep(5 * ms)
			second()
			time.Sleep(5 * ms)
			wait, every, _ := boards[2].Read(t.Context(), host)
			assert.InDelta(t, 2*time.Second, wait, float64(15*ms))
			assert.Equal(t, 5*tick, every)
			time.Sleep(3 * time.Second)
			fast()
			time.Sleep(5 * ms)
			_, every, _ = boards[2].Read(t.Context(), host)
			assert.Equal(t, tick, every, "in another round it is forgotten")
		})
	}
}
