package redisstore_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"testing"
	"testing/synctest"
	"time"

	"github.com/heedhttp/heed/internal/redistest"
	"github.com/heedhttp/heed/redisstore"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

var _ interface {
	Post(ctx context.Context, key string, wait, every time.Duration) error
	Read(ctx context.Context, key string) (wait, every time.Duration, err error)
	Probe(ctx context.Context, key string) bool
	Replace(ctx context.Context, key string, wait, every time.Duration) error
} = (*redisstore.Board)(nil)

const day = 24 * time.Hour

// allWait asserts that key waits for the same time on all boards.
func allWait(t *testing.T, boards []*redisstore.Board, key string, wait time.Duration) {
	t.Helper()
	for i, b := range boards {
		assert.InDelta(t, wait, left(t, b, key), float64(5*ms), "process %d", i)
	}
}

func TestAReplacementHoldsEverywhere(t *testing.T) {
	for _, c := range []struct{ wait, every, left, interval time.Duration }{
		{10 * time.Second, tick, 10 * time.Second, tick},
		{3 * time.Hour, 0, 3 * time.Hour, 0},
		{1 << 62, 0, day, 0},
		{0, tick, 0, 0},
		{-time.Hour, tick, 0, 0},
	} {
		for name, lost := range map[string]struct {
			spoil  func(*boardFake)
			within time.Duration
		}{
			"by a message":         {func(*boardFake) {}, 3 * ms},
			"without subscription": {func(s *boardFake) { s.noSubscriptions = true }, 150 * ms},
			"without message":      {func(s *boardFake) { s.noMessages = true }, 1100 * ms},
		} {
			t.Run(fmt.Sprint(c.wait, ", ", name), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					s := newBoardFake(t)
					lost.spoil(s)
					boards := openBoards(t, s, 3)
					require.NoError(t, boards[0].Post(t.Context(), host, time.Hour, time.Second))
					time.Sleep(2 * time.Second)
					require.NoError(t, boards[1].Replace(t.Context(), host, c.wait, c.every))
					assert.InDelta(t, c.left, left(t, boards[1], host), float64(2*ms), "at once")
					time.Sleep(lost.within)
					for i, b := range boards {
						wait, every, _ := b.Read(t.Context(), host)
						slots := c.interval * 3 // each process that reads takes a slot
						assert.GreaterOrEqual(t, wait, max(0, c.left-lost.within-5*ms), "process %d", i)
						assert.LessOrEqual(t, wait, max(0, c.left-lost.within+5*ms)+slots, "process %d", i)
						assert.GreaterOrEqual(t, every, c.interval)
						assert.LessOrEqual(t, every, 4*c.interval, "of the new round")
					}
				})
			})
		}
	}
}

func TestAPostAfterAReplacementHolds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		boards := openBoards(t, newBoardFake(t), 3)
		require.NoError(t, boards[0].Post(t.Context(), host, day, 0))
		time.Sleep(time.Minute)
		require.NoError(t, boards[1].Replace(t.Context(), host, 0, 0))
		time.Sleep(2 * ms)
		allWait(t, boards, host, 0)
		require.NoError(t, boards[2].Post(t.Context(), host, 10*time.Second, 0))
		time.Sleep(2 * ms)
		allWait(t, boards, host, 10*time.Second)
		require.NoError(t, boards[0].Post(t.Context(), host, 20*time.Second, 0))
		time.Sleep(2 * ms)
		allWait(t, boards, host, 20*time.Second)
		require.NoError(t, boards[0].Post(t.Context(), host, 5*time.Second, 0))
		allWait(t, boards, host, 20*time.Second)
	})
}

func TestAReplacementGivesNewSlots(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, server := newBoardFake(t), &arrivals{}
		boards := openBoards(t, s, 3)
		require.NoError(t, boards[0].Post(t.Context(), host, time.Hour, 10*tick))
		time.Sleep(2 * ms)
		for _, b := range boards {
			b.Read(t.Context(), host)
			time.Sleep(10 * ms)
		}
		require.NoError(t, boards[0].Replace(t.Context(), host, time.Second, tick))
		start := time.Now()
		time.Sleep(2 * ms)
		for i, b := range boards {
			c := newClientProcess(t, b, server)
			defer c.done.Wait()
			c.send(t.Context(), 8)
			time.Sleep(time.Duration(i) * ms)
		}
		time.Sleep(2 * time.Second)
		assert.Len(t, server.since(start), 24)
		evenly(t, time.Second, server.since(start))
	})
}

// Redis keeps the old cool-down meanwhile.
func TestAReplacementReachesRedisWhenItIsBack(t *testing.T) {
	for name, lost := range map[string]struct {
		set  func(*boardFake, bool)
		long time.Duration
	}{
		"silent": {func(s *boardFake, lost bool) { s.silent = lost }, 20 * time.Second},
		"gone":   {func(s *boardFake, lost bool) { s.gone = lost }, 30 * time.Minute},
	} {
		for _, wait := range []time.Duration{0, time.Hour} {
			t.Run(fmt.Sprint(name, wait), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					s := newBoardFake(t)
					boards := openBoards(t, s, 3)
					require.NoError(t, boards[0].Post(t.Context(), host, day, 0))
					time.Sleep(2 * ms)
					s.set(func() { lost.set(s, true) })
					require.Error(t, boards[1].Replace(t.Context(), host, wait, 0))
					replaced := time.Now()
					for range 100 {
						require.InDelta(t, max(0, wait-time.Since(replaced)), left(t, boards[1], host), float64(60*ms))
						time.Sleep(lost.long / 100)
					}
					require.Greater(t, left(t, boards[0], host), 20*time.Hour)
					s.set(func() { lost.set(s, false) })
					time.Sleep(1200 * ms)
					boards = append(boards, s.board(t))
					left(t, boards[3], host)
					time.Sleep(5 * ms)
					for i, b := range boards {
						assert.InDelta(t, max(0, wait-time.Since(replaced)), left(t, b, host), float64(60*ms), "process %d", i)
					}
					before := s.model.last
					time.Sleep(time.Minute)
					assert.Equal(t, before, s.model.last, "and nothing more is written")
				})
			})
		}
	}
}

func TestAReplacementIsSentAgainAfterRedisLostIt(t *testing.T) {
	for _, wait := range []time.Duration{0, time.Hour} {
		for name, lose := range map[string]func(s *boardFake, before boardModel){
			"an older copy": (*boardFake).restore,
			"all forgotten": func(s *boardFake, _ boardModel) { s.restart() },
		} {
			t.Run(fmt.Sprint(name, wait), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					s := newBoardFake(t)
					boards := openBoards(t, s, 3)
					require.NoError(t, boards[0].Post(t.Context(), host, day, 0))
					time.Sleep(2 * ms)
					var before boardModel
					s.set(func() { before = s.model.copied(); s.cut[boards[2]] = true })
					require.NoError(t, boards[1].Replace(t.Context(), host, wait, 0))
					replaced := time.Now()
					time.Sleep(10 * time.Minute)
					lose(s, before)
					s.set(func() { s.cut[boards[2]] = false }) // this one knows only the old cool-down
					time.Sleep(15 * time.Second)
					boards = append(boards, s.board(t))
					left(t, boards[3], host)
					time.Sleep(5 * ms)
					allWait(t, boards, host, max(0, wait-time.Since(replaced)))
					time.Sleep(time.Minute)
					s.took()
					last := s.model.last
					time.Sleep(time.Minute)
					assert.Equal(t, last, s.model.last, "and nothing more is written")
				})
			})
		}
	}
}

func TestAProcessCutOffForHoursLearnsOfAReplacement(t *testing.T) {
	for _, wait := range []time.Duration{0, time.Minute} {
		synctest.Test(t, func(t *testing.T) {
			s := newBoardFake(t)
			boards := openBoards(t, s, 3)
			require.NoError(t, boards[0].Post(t.Context(), host, day, 0))
			time.Sleep(2 * ms)
			s.set(func() { s.cut[boards[2]] = true })
			time.Sleep(time.Minute)
			require.NoError(t, boards[1].Replace(t.Context(), host, wait, 0))
			time.Sleep(5 * time.Hour)
			assert.InDelta(t, 19*time.Hour, left(t, boards[2], host), float64(2*time.Minute))
			s.set(func() { s.cut[boards[2]] = false })
			time.Sleep(1200 * ms)
			allWait(t, boards, host, 0)
		})
	}
}

func TestAnUnsentPostOutlivesAReplacementByAnotherProcess(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newBoardFake(t)
		boards := openBoards(t, s, 3)
		require.NoError(t, boards[0].Post(t.Context(), host, day, 0))
		require.NoError(t, boards[0].Post(t.Context(), "other", time.Minute, 0))
		time.Sleep(2 * ms)
		s.set(func() { s.cut[boards[2]] = true })
		require.Error(t, boards[2].Post(t.Context(), "other", 2*time.Hour, tick))
		require.NoError(t, boards[1].Replace(t.Context(), host, 0, 0))
		require.NoError(t, boards[1].Replace(t.Context(), "other", 0, 0))
		time.Sleep(time.Hour)
		s.set(func() { s.cut[boards[2]] = false })
		time.Sleep(1200 * ms)
		allWait(t, boards, host, 0)
		for _, b := range boards {
			wait, every, _ := b.Read(t.Context(), "other")
			assert.InDelta(t, time.Hour, wait, float64(1300*ms))
			assert.Positive(t, every)
		}
	})
}

// The replacement was made while Redis was down, and is dropped for another one. The post after it is
// later than both.
func TestAPostOutlivesAReplacementThatIsDropped(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newBoardFake(t)
		boards := openBoards(t, s, 3)
		require.NoError(t, boards[0].Post(t.Context(), host, day, 0))
		time.Sleep(2 * ms)
		s.set(func() { s.cut[boards[2]] = true })
		require.Error(t, boards[2].Replace(t.Context(), host, 0, 0))
		time.Sleep(time.Minute)
		require.Error(t, boards[2].Post(t.Context(), host, 2*time.Hour, 0))
		require.NoError(t, boards[1].Replace(t.Context(), host, time.Hour, 0))
		s.set(func() { s.cut[boards[2]] = false })
		time.Sleep(1200 * ms)
		allWait(t, boards, host, 2*time.Hour-1200*ms)
	})
}

// The replacement that reaches Redis later counts.
func TestOfConcurrentReplacementsOneHoldsEverywhere(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newBoardFake(t)
		boards := openBoards(t, s, 3)
		for i := range time.Duration(20) {
			require.NoError(t, boards[0].Post(t.Context(), host, time.Hour, 0))
			time.Sleep(2 * ms)
			done := make(chan error)
			go func() { done <- boards[1].Replace(t.Context(), host, time.Minute, 0) }()
			go func() {
				time.Sleep(i * ms / 10)
				done <- boards[2].Replace(t.Context(), host, 2*time.Minute, 0)
			}()
			require.NoError(t, <-done)
			require.NoError(t, <-done)
			time.Sleep(10 * ms)
			if i > 0 {
				allWait(t, boards, host, 2*time.Minute-10*ms)
			}
			for _, b := range boards[1:] {
				assert.InDelta(t, left(t, boards[0], host), left(t, b, host), float64(2*ms))
			}
			require.NoError(t, boards[1].Replace(t.Context(), host, 0, 0))
			time.Sleep(5 * ms)
		}
	})
}

// A process that could not reach Redis does not replace what another one has replaced since.
func TestALateReplacementIsDroppedAfterAnotherOne(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newBoardFake(t)
		boards := openBoards(t, s, 3)
		require.NoError(t, boards[0].Post(t.Context(), host, day, 0))
		time.Sleep(2 * ms)
		s.set(func() { s.cut[boards[2]] = true })
		require.Error(t, boards[2].Replace(t.Context(), host, 0, 0))
		time.Sleep(time.Minute)
		require.NoError(t, boards[1].Replace(t.Context(), host, time.Hour, 0))
		time.Sleep(time.Minute)
		assert.Zero(t, left(t, boards[2], host))
		s.set(func() { s.cut[boards[2]] = false })
		time.Sleep(1200 * ms)
		allWait(t, boards, host, 59*time.Minute-1200*ms)
	})
}

// After random posts, replacements, interruptions and restarts, all processes agree with Redis.
func TestProcessesAgreeEventually(t *testing.T) {
	for seed := range uint64(stated(200, 30)) {
		synctest.Test(t, func(t *testing.T) {
			r := rand.New(rand.NewPCG(seed, 1))
			s := newBoardFake(t)
			boards := openBoards(t, s, 4)
			before := s.model.copied()
			for range 60 {
				b := boards[r.IntN(4)]
				wait, every := time.Duration(r.Int64N(int64(2*time.Minute))), time.Duration(r.IntN(2))*tick
				switch r.IntN(12) {
				case 0, 1, 2:
					go b.Replace(t.Context(), host, wait-30*time.Second, every)
				case 3:
					s.set(func() { s.cut[b] = true })
				case 4, 5:
					s.set(func() { clear(s.cut) })
				case 6:
					s.set(func() { before = s.model.copied() })
				case 7:
					s.restore(before.copied())
				case 8:
					s.restart()
				default:
					go b.Post(t.Context(), host, wait, every)
				}
				time.Sleep(time.Duration(r.Int64N(r.Int64N(int64(5*time.Second)) + 1)))
			}
			s.set(func() { clear(s.cut) })
			time.Sleep(15 * time.Second)
			var want time.Duration
			s.set(func() {
				if c := s.model.all[host]; c != nil {
					want = max(0, time.Duration(c.ends-time.Now().UnixMicro())*time.Microsecond)
				}
			})
			for i, b := range boards {
				got := left(t, b, host)
				require.GreaterOrEqual(t, got, want-5*ms, "seed %d: process %d", seed, i)
				require.LessOrEqual(t, got, want+5*ms+4*tick, "seed %d: process %d", seed, i) // includes slots
			}
		})
	}
}

func TestReplacementsReachOtherBoardsOnARealRedis(t *testing.T) {
	mostlyWaits(t)
	server := redistest.Shared(t)
	client := newClient(t, server)
	a, b := openBoard(t, client), openBoard(t, newClient(t, server))
	waits := func(least, most time.Duration) {
		t.Helper()
		require.Eventually(t, func() bool { l := left(t, b, host); return least <= l && l <= most }, hang, ms)
	}
	for range 3 {
		require.NoError(t, a.Post(ctx, host, day, tick))
		waits(time.Hour, 25*time.Hour)
		require.NoError(t, a.Replace(ctx, host, 30*time.Minute, 0))
		waits(time.Minute, 30*time.Minute+time.Second)
		require.NoError(t, a.Replace(ctx, host, 0, 0))
		waits(0, 0)
		assert.Zero(t, left(t, a, host))
	}
	require.NoError(t, a.Post(ctx, host, 2*time.Hour, 0))
	for _, key := range []string{hash, changes} { // as after an eviction
		require.NoError(t, client.Del(ctx, key).Err())
		require.Eventually(t, func() bool {
			newcomer := openBoard(t, client)
			defer newcomer.Close()
			time.Sleep(10 * ms)
			return left(t, newcomer, host) > time.Hour
		}, hang, 100*ms, key)
	}
}
