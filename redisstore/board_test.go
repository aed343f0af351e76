package redisstore_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net/http"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/heedhttp/heed"
	"github.com/heedhttp/heed/redisstore"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

var _ heed.ProbeBoard = (*redisstore.Board)(nil)

const tick = 20 * ms // the server's interval

// left returns what b reports for key.
func left(t *testing.T, b *redisstore.Board, key string) time.Duration {
	wait, _, _ := b.Read(t.Context(), key)
	return wait
}

// openBoards returns n Boards that have subscribed.
func openBoards(t *testing.T, s *boardFake, n int) []*redisstore.Board {
	boards := make([]*redisstore.Board, n)
	for i := range boards {
		boards[i] = s.board(t)
		assert.Zero(t, left(t, boards[i], host), "it must ask first")
	}
	time.Sleep(10 * ms)
	s.took()
	return boards
}

// allWait asserts that key waits as long on all boards, and on a new one.
func allWait(t *testing.T, s *boardFake, boards []*redisstore.Board, key string, wait time.Duration) {
	t.Helper()
	newcomer := s.board(t)
	defer newcomer.Close()
	left(t, newcomer, key)
	time.Sleep(5 * ms)
	for i, b := range append(boards[:len(boards):len(boards)], newcomer) {
		assert.InDelta(t, max(0, wait-5*ms), left(t, b, key), float64(8*ms), "process %d", i)
	}
}

// released asserts that boards have the slots of one round: in some order they release their first requests
// a tick apart, the first one after wait, and then one request for each n ticks.
func released(t *testing.T, boards []*redisstore.Board, wait, tick time.Duration) {
	t.Helper()
	for _, b := range boards {
		b.Read(t.Context(), host)
		time.Sleep(ms)
	}
	time.Sleep(10 * ms)
	var waits []time.Duration
	for _, b := range boards {
		wait, every, _ := b.Read(t.Context(), host)
		waits = append(waits, wait)
		assert.Equal(t, time.Duration(len(boards))*tick, every)
	}
	slices.Sort(waits)
	wait -= 10*ms + time.Duration(len(boards))*ms
	for i := range waits {
		assert.InDelta(t, wait+time.Duration(i)*tick, waits[i], float64(4*ms), "%v", waits)
	}
}

func TestPostsAndReplacementsReachAllProcesses(t *testing.T) {
	for name, test := range map[string]struct {
		spoil  func(*boardFake)
		within time.Duration
	}{
		"by a message":            {func(*boardFake) {}, 2 * ms},
		"without messages":        {func(s *boardFake) { s.noMessages = true }, 1010 * ms},
		"without permission":      {func(s *boardFake) { s.noSubscriptions = true }, 110 * ms},
		"after the message broke": {func(s *boardFake) { s.noMessages = true }, 120 * ms},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T, s *boardFake) {
				test.spoil(s)
				boards := openBoards(t, s, 3)
				time.Sleep(5 * time.Second)
				post := func() {
					if name == "after the message broke" {
						s.become(s.saved())
					}
					require.NoError(t, boards[0].Post(t.Context(), host, time.Hour, 0))
				}
				post()
				assert.Equal(t, time.Hour, left(t, boards[0], host))
				time.Sleep(test.within)
				for _, b := range boards {
					assert.InDelta(t, time.Hour-test.within, left(t, b, host), float64(5*ms))
					assert.Zero(t, left(t, b, "other"))
				}
				for _, wait := range []time.Duration{10 * time.Second, 3 * time.Hour, 1 << 62, 0, -time.Hour} {
					require.NoError(t, boards[1].Replace(t.Context(), host, wait, 0))
					wait = min(max(0, wait), day)
					assert.InDelta(t, wait, left(t, boards[1], host), float64(2*ms), "at once")
					time.Sleep(1010 * ms)
					allWait(t, s, boards, host, max(0, wait-1010*ms))
					post()
					time.Sleep(test.within)
					wait -= 1015*ms + test.within
					allWait(t, s, boards, host, max(wait, time.Hour-test.within))
				}
			})
		})
	}
}

func TestTheLongestPostHolds(t *testing.T) {
	bubble(t, func(t *testing.T, s *boardFake) {
		boards := openBoards(t, s, 3)
		for key, slow := range map[string]time.Duration{"slow first": 0, "slow later": 1} {
			require.NoError(t, boards[slow].Post(t.Context(), key, time.Second+slow*time.Second, 5*tick-slow*4*tick))
			time.Sleep(5 * ms)
			require.NoError(t, boards[1-slow].Post(t.Context(), key, 2*time.Second-slow*time.Second, tick+slow*4*tick))
			time.Sleep(5 * ms)
			wait, every, _ := boards[2].Read(t.Context(), key)
			assert.InDelta(t, 2*time.Second, wait, float64(15*ms))
			assert.Equal(t, 5*tick, every, "the longest of the round")
			time.Sleep(3 * time.Second)
			require.NoError(t, boards[0].Post(t.Context(), key, 2*time.Second, tick))
			time.Sleep(5 * ms)
			_, every, _ = boards[2].Read(t.Context(), key)
			assert.Equal(t, tick, every, "in another round it is forgotten")
		}
		for i, wait := range []time.Duration{3 * time.Second, 20 * time.Second, 5 * time.Second} {
			require.NoError(t, boards[i].Post(t.Context(), host, wait, 0))
			time.Sleep(10 * ms)
		}
		allWait(t, s, boards, host, 20*time.Second-20*ms)
		go boards[0].Post(t.Context(), host, 30*time.Second, 0)
		time.Sleep(ms / 4)
		require.NoError(t, boards[0].Post(t.Context(), host, 40*time.Second, 0), "while a call runs")
		time.Sleep(2 * ms)
		allWait(t, s, boards, host, 40*time.Second-3*ms)
		s.took()
		require.NoError(t, boards[0].Post(t.Context(), host, 5*time.Second, 0))
		require.NoError(t, boards[0].Post(t.Context(), host, 0, time.Second))
		require.NoError(t, boards[0].Post(t.Context(), host, -time.Hour, 0))
		assert.Zero(t, s.took(), "nothing to send")
		require.NoError(t, boards[2].Post(t.Context(), "b", 1<<62, 1<<62))
		wait, every, err := boards[2].Read(t.Context(), "b")
		assert.NoError(t, err)
		assert.InDelta(t, day, wait, float64(ms), "a day is the longest")
		assert.Equal(t, day, every)
		require.NoError(t, boards[2].Replace(t.Context(), "b", 0, tick))
		_, every, _ = boards[2].Read(t.Context(), "b")
		assert.Zero(t, every)

		var all sync.WaitGroup
		for i := range 1000 {
			all.Go(func() {
				gone, cancel := context.WithTimeout(t.Context(), time.Duration(i%2)*time.Minute)
				defer cancel()
				if err := boards[0].Post(gone, fmt.Sprint(i), time.Hour, 0); err != nil {
					assert.ErrorIs(t, err, context.DeadlineExceeded, "but it holds")
				}
			})
		}
		all.Wait()
		assert.Less(t, s.took(), 25, "they share calls")
		s.set(func() { assert.LessOrEqual(t, s.longest, 7+7*256) })
		newcomer := openBoards(t, s, 1)[0]
		time.Sleep(50 * ms)
		for i := range 1000 {
			assert.Positive(t, min(left(t, boards[1], fmt.Sprint(i)), left(t, newcomer, fmt.Sprint(i))), i)
		}
		time.Sleep(time.Second)
		s.took()
		time.Sleep(5 * time.Minute)
		assert.InDelta(t, 4*300, s.took(), 20, "one a second")
	})
}

func TestWithoutRedisABoardKeepsWhatItKnows(t *testing.T) {
	for name, lose := range map[string]func(*boardFake, bool){
		"silent": func(s *boardFake, lost bool) { s.silent = lost },
		"gone":   func(s *boardFake, lost bool) { s.gone = lost },
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T, s *boardFake) {
				boards := openBoards(t, s, 2)
				require.NoError(t, boards[1].Post(t.Context(), "known", time.Hour, 0))
				require.NoError(t, boards[1].Post(t.Context(), "replaced", time.Hour, 0))
				time.Sleep(2 * ms)
				s.set(func() { s.silent = true })
				time.AfterFunc(40*ms, func() { s.set(func() { s.silent = false }) })
				require.Error(t, boards[0].Post(t.Context(), "one reply is lost", 30*time.Second, 0))
				time.Sleep(10 * ms)
				assert.Positive(t, left(t, boards[1], "one reply is lost"))

				s.set(func() { lose(s, true) })
				began := time.Now()
				assert.ErrorContains(t, boards[0].Post(t.Context(), host, time.Minute, tick), "redisstore: ")
				assert.LessOrEqual(t, time.Since(began), 50*ms)
				synctest.Wait()
				began = time.Now()
				require.ErrorContains(t, boards[0].Post(t.Context(), "short", 2*time.Second, 0), "redisstore: ")
				require.Error(t, boards[0].Replace(t.Context(), "replaced", 2*time.Minute, 0))
				assert.Zero(t, time.Since(began), "only the first one waits")
				wait, every, _ := boards[0].Read(t.Context(), host)
				assert.InDelta(t, time.Minute, wait, float64(55*ms))
				assert.Equal(t, tick, every)
				assert.Positive(t, left(t, boards[0], "known"))
				assert.Zero(t, left(t, boards[1], host))
				s.took()
				s.set(func() { s.probes = 0 })
				time.Sleep(20 * time.Second)
				s.set(func() { assert.InDelta(t, 2*20, len(s.calls)+s.probes, 22, "it is asked less and less") })
				_, _, err := boards[1].Read(t.Context(), host)
				assert.Error(t, err)
				_, _, err = boards[1].Read(t.Context(), host)
				assert.NoError(t, err, "it is reported once")

				s.set(func() { lose(s, false) })
				time.Sleep(1200 * ms)
				assert.InDelta(t, left(t, boards[0], host), left(t, boards[1], host), float64(2*tick))
				allWait(t, s, boards, "short", 0)
				allWait(t, s, boards, "replaced", 2*time.Minute-time.Since(began))
				left(t, boards[0], host)
				require.NoError(t, boards[0].Post(t.Context(), "other", time.Second, 0))
				time.Sleep(time.Minute)
				before := s.saved()
				time.Sleep(time.Minute)
				assert.Equal(t, before, s.saved(), "and nothing more is written")
			})
		})
	}
}

// Two keys wait for an hour, and in one process a replacement of one counts.
func TestWhatRedisLosesIsRestored(t *testing.T) {
	for name, lose := range map[string]func(s *boardFake, before map[string]string){
		"an older copy": (*boardFake).become,
		"all forgotten": func(s *boardFake, _ map[string]string) {
			s.restart()
			s.set(func() { s.ahead = -3 * time.Hour })
		},
	} {
		for _, wait := range []time.Duration{0, time.Hour} {
			t.Run(fmt.Sprint(name, wait), func(t *testing.T) {
				bubble(t, func(t *testing.T, s *boardFake) {
					boards := openBoards(t, s, 6)
					require.NoError(t, boards[0].Post(t.Context(), "replaced", day, 0))
					require.NoError(t, boards[0].Post(t.Context(), "over", time.Second, tick))
					require.NoError(t, boards[0].Post(t.Context(), host, time.Hour, tick))
					posted := time.Now()
					time.Sleep(2 * ms)
					released(t, boards[:3], time.Hour-2*ms, tick)
					before := s.saved()
					for _, b := range boards {
						left(t, b, host) // the others get slots, which are lost
					}
					s.set(func() { s.cut[boards[5]] = true })
					time.Sleep(10 * ms)
					require.NoError(t, boards[1].Replace(t.Context(), "replaced", wait, 0))
					replaced := time.Now()
					time.Sleep(10 * time.Minute)
					lose(s, before)
					s.set(func() { clear(s.cut) }) // this one does not know the replacement
					time.Sleep(12 * time.Second)
					allWait(t, s, boards, "replaced", max(0, wait-time.Since(replaced)))
					s.lua.do(func() { assert.False(t, s.lua.client.HExists(ctx, hash, "kover").Val()) })
					boards = append(boards, openBoards(t, s, 2)...)
					for _, b := range boards {
						left(t, b, host)
						time.Sleep(5 * ms)
					}
					var waits []time.Duration
					for _, b := range boards {
						wait, every, err := b.Read(t.Context(), host)
						assert.NoError(t, err)
						assert.GreaterOrEqual(t, every, 8*tick)
						waits = append(waits, wait)
					}
					slices.Sort(waits)
					for i := range waits[1:] {
						assert.InDelta(t, tick, waits[i+1]-waits[i], float64(5*ms), "%v", waits)
					}
					assert.LessOrEqual(t, waits[0], time.Hour-time.Since(posted)+4*tick)
					again := s.saved()
					s.took()
					time.Sleep(time.Minute)
					assert.Equal(t, again, s.saved(), "nothing more is written")
					assert.InDelta(t, 8*60, s.took(), 20)
					require.NoError(t, boards[0].Post(t.Context(), host, 2*time.Hour, 0))
					time.Sleep(2 * ms)
					assert.Greater(t, left(t, boards[4], host), 119*time.Minute)
				})
			})
		}
	}
}

// Process 2 cannot reach Redis for a while, in which process 1 replaces the cool-down.
func TestAProcessThatWasCutOffAgreesWithTheOthers(t *testing.T) {
	for _, test := range []struct {
		name   string
		alone  func(t *testing.T, b *redisstore.Board)
		wait   time.Duration // of the replacement
		cutOff time.Duration
		want   time.Duration
	}{
		{"it knows nothing", nil, 0, 20 * time.Minute, 0},
		{"its replacement is older", func(t *testing.T, b *redisstore.Board) {
			require.Error(t, b.Replace(t.Context(), host, 0, 0))
		}, time.Hour, time.Minute, 59 * time.Minute},
		{"its post is later than both", func(t *testing.T, b *redisstore.Board) {
			require.Error(t, b.Post(t.Context(), host, 36*time.Hour, 0)) // at most a day
		}, 0, 10 * time.Minute, day - 10*time.Minute},
		{"its post after its replacement", func(t *testing.T, b *redisstore.Board) {
			require.Error(t, b.Replace(t.Context(), host, 0, 0))
			time.Sleep(time.Minute)
			require.Error(t, b.Post(t.Context(), host, 2*time.Hour, 0))
		}, time.Hour, 10 * time.Minute, 110 * time.Minute},
	} {
		t.Run(test.name, func(t *testing.T) {
			bubble(t, func(t *testing.T, s *boardFake) {
				boards := openBoards(t, s, 3)
				require.NoError(t, boards[0].Post(t.Context(), host, 23*time.Hour, 0))
				time.Sleep(2 * ms)
				s.set(func() { s.cut[boards[2]] = true })
				if test.alone != nil {
					test.alone(t, boards[2])
				}
				alone := left(t, boards[2], host)
				require.NoError(t, boards[1].Replace(t.Context(), host, test.wait, 0))
				time.Sleep(test.cutOff)
				assert.InDelta(t, max(0, alone-test.cutOff), left(t, boards[2], host), float64(ms))
				s.set(func() { clear(s.cut) })
				time.Sleep(1200 * ms)
				allWait(t, s, boards, host, max(0, test.want-1200*ms))
			})
		})
	}
}

// Also if the later one is about to be sent when its process learns of the other.
func TestOfConcurrentReplacementsTheLaterHolds(t *testing.T) {
	bubble(t, func(t *testing.T, s *boardFake) {
		boards := openBoards(t, s, 3)
		for i := range time.Duration(20) {
			require.NoError(t, boards[0].Post(t.Context(), host, time.Hour, 0))
			time.Sleep(2 * ms)
			go boards[1].Replace(t.Context(), host, time.Minute, 0)
			time.Sleep((i + 1) * ms / 10)
			require.NoError(t, boards[2].Replace(t.Context(), host, 2*time.Minute, 0))
			time.Sleep(5 * ms)
			allWait(t, s, boards, host, 2*time.Minute-6*ms)
		}
	})
}

// After random posts, replacements, interruptions and restarts, all processes agree.
func TestProcessesAgreeEventually(t *testing.T) {
	lua := newLuaServer(t)
	for seed := range uint64(stated(100, 12)) {
		lua.client.FlushAll(ctx)
		synctest.Test(t, func(t *testing.T) {
			r := rand.New(rand.NewPCG(seed, 1))
			s := newBoardFake(t)
			s.lua = lua
			boards := openBoards(t, s, 4)
			before := s.saved()
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
					before = s.saved()
				case 7:
					s.become(before)
				case 8:
					s.restart()
				default:
					go b.Post(t.Context(), host, wait, every)
				}
				time.Sleep(time.Duration(r.Int64N(r.Int64N(int64(5*time.Second)) + 1)))
			}
			s.set(func() { clear(s.cut) })
			time.Sleep(15 * time.Second)
			boards = append(boards, s.board(t)) // it knows what Redis has
			left(t, boards[4], host)
			time.Sleep(20 * ms)
			var waits []time.Duration
			for _, b := range boards {
				waits = append(waits, left(t, b, host))
			}
			assert.LessOrEqual(t, slices.Max(waits)-slices.Min(waits), 10*ms+5*tick, "seed %d: %v", seed, waits)
		})
	}
}

func TestEachProcessThatReadsGetsASlot(t *testing.T) {
	for _, n := range []int{1, 3, 32} {
		bubble(t, func(t *testing.T, s *boardFake) {
			boards := openBoards(t, s, n+2)
			require.NoError(t, boards[n/2].Post(t.Context(), host, time.Second, tick))
			posted := time.Now()
			time.Sleep(2 * ms)
			released(t, boards[:n], time.Second-2*ms, tick)
			time.Sleep(time.Second - time.Since(posted) + time.Duration(n)*tick - 5*ms)
			s.took()
			late, every, _ := boards[n].Read(t.Context(), host)
			assert.InDelta(t, 5*ms, late, float64(3*ms), "before the last process releases its first request")
			assert.Equal(t, time.Duration(n+1)*tick, every)
			time.Sleep(2 * tick)
			wait, every, _ := boards[n+1].Read(t.Context(), host)
			assert.Zero(t, wait+every, "a later process sees no cool-down")
			time.Sleep(8 * time.Second)
			_, every, _ = boards[0].Read(t.Context(), host)
			assert.Equal(t, time.Duration(n+1)*tick, every, "the interval holds while others may wait")

			require.NoError(t, boards[0].Post(t.Context(), host, time.Second, 2*tick))
			time.Sleep(2 * ms)
			released(t, boards, time.Second-2*ms, 2*tick) // in another round
			require.NoError(t, boards[0].Replace(t.Context(), host, 3*time.Second, tick))
			time.Sleep(2 * ms)
			released(t, boards[1:], 3*time.Second-2*ms, tick)
			time.Sleep(15 * time.Second)
			for _, b := range boards {
				wait, every, _ := b.Read(t.Context(), host)
				assert.Zero(t, wait+every)
			}
		})
	}
}

// probed has n callers of each board call Probe every 200 ms for as long as long. It asserts that the
// first one is granted a minute after start, and one a minute later, want in all.
func probed(t *testing.T, boards []*redisstore.Board, n int, start time.Time, long time.Duration, want int) {
	t.Helper()
	var mu sync.Mutex // guards times
	var times []time.Time
	var all sync.WaitGroup
	for i := range n * len(boards) {
		all.Go(func() {
			for end := time.Now().Add(long); time.Now().Before(end); time.Sleep(200 * ms) {
				if boards[i%len(boards)].Probe(t.Context(), host) {
					mu.Lock()
					times = append(times, time.Now())
					mu.Unlock()
				}
			}
		})
	}
	all.Wait()
	require.Len(t, times, want)
	for i, at := range times {
		assert.InDelta(t, time.Duration(i+1)*time.Minute, at.Sub(start), float64(time.Duration(i+1)*3*time.Second), i)
		assert.GreaterOrEqual(t, at.Sub(start), time.Duration(i+1)*time.Minute-5*ms, i)
	}
}

func TestAFleetProbesOnceAMinute(t *testing.T) {
	bubble(t, func(t *testing.T, s *boardFake) {
		boards := openBoards(t, s, 10)
		require.NoError(t, boards[0].Post(t.Context(), host, 2*time.Minute-time.Second, 0))
		probed(t, boards, 1, time.Now(), 2*time.Minute, 0) // after a minute, less than a minute is left
		require.NoError(t, boards[0].Post(t.Context(), host, day, 0))
		posted := time.Now()
		boards = append(boards, s.board(t)) // a Board that starts late
		s.took()
		probed(t, boards, 20, posted, 3*time.Minute+30*time.Second, 3)
		assert.Less(t, s.took()-11*210, 11*30, "calls in addition to polling")
		assert.False(t, boards[0].Probe(t.Context(), "other"))

		require.NoError(t, boards[1].Replace(t.Context(), host, 30*time.Minute, 0))
		probed(t, boards, 2, time.Now(), 150*time.Second, 2)
		require.NoError(t, boards[1].Post(t.Context(), host, time.Hour, 0)) // as after a probe that got a 429
		posted = time.Now()
		go func() {
			for range 9 {
				time.Sleep(17 * time.Second)
				s.restart() // the processes also restore when the last probe was
			}
		}()
		probed(t, boards, 2, posted, 160*time.Second, 2)
		s.set(func() { s.gone = true })
		require.Error(t, boards[1].Post(t.Context(), host, 2*time.Hour, 0))
		probed(t, boards[1:2], 20, time.Now(), 150*time.Second, 2)
		s.set(func() { s.gone = false })
		time.Sleep(2 * time.Second)
		require.NoError(t, boards[1].Replace(t.Context(), host, 0, 0))
		time.Sleep(2 * ms)
		probed(t, boards, 2, time.Now(), 2*time.Minute, 0)
	})
}

func TestAProbeIsGrantedAfterTheTimeout(t *testing.T) {
	bubble(t, func(t *testing.T, s *boardFake) {
		b := openBoards(t, s, 1)[0]
		require.NoError(t, b.Post(t.Context(), host, day, 0))
		require.NoError(t, b.Post(t.Context(), "short", 2*time.Minute, 0))
		require.NoError(t, b.Post(t.Context(), "evicted", day, 0))
		s.lua.do(func() { s.lua.client.HDel(ctx, hash, "kevicted") })
		time.Sleep(61 * time.Second)
		s.took()
		for range 100 {
			b.Probe(t.Context(), "evicted")
			time.Sleep(10 * ms)
		}
		assert.LessOrEqual(t, s.took(), 4, "Redis is asked once a second")
		canceled, cancel := context.WithCancel(t.Context())
		cancel()
		assert.False(t, b.Probe(canceled, host))
		s.set(func() { s.silent = true })
		canceled, cancel = context.WithTimeout(t.Context(), ms)
		defer cancel()
		assert.False(t, b.Probe(canceled, host))
		time.Sleep(2 * time.Second)
		began := time.Now()
		assert.True(t, b.Probe(t.Context(), host))
		assert.LessOrEqual(t, time.Since(began), 50*ms)
		assert.False(t, b.Probe(t.Context(), host))
		assert.False(t, b.Probe(t.Context(), "short"), "less than a minute is left")
		require.Error(t, b.Replace(t.Context(), host, 0, 0), "Redis went down in between")
		assert.False(t, b.Probe(t.Context(), host))
		s.set(func() { s.silent = false })
		time.Sleep(1200 * ms)
		allWait(t, s, nil, host, 0)
	})
}

// arrivals is a server that records when requests came.
type arrivals struct {
	mu sync.Mutex
	at []time.Time
}

func (a *arrivals) RoundTrip(req *http.Request) (*http.Response, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.at = append(a.at, time.Now())
	return &http.Response{StatusCode: 200, Header: http.Header{}, Body: http.NoBody, Request: req}, nil
}

// Whatever the processes do, in any time t at most n + t/every waiting requests arrive.
func TestTheReleaseNeverExceedsTheServersRate(t *testing.T) {
	lua := newLuaServer(t)
	for seed := range uint64(stated(30, 6)) {
		lua.client.FlushAll(ctx)
		synctest.Test(t, func(t *testing.T) {
			r, server := rand.New(rand.NewPCG(seed, 0)), new(arrivals)
			s := newBoardFake(t)
			s.lua, s.delay = lua, time.Duration(r.Int64N(int64(5*ms)))
			n := 1 + r.IntN(8)
			boards := openBoards(t, s, n)
			time.Sleep(50 * ms)
			require.NoError(t, boards[0].Post(t.Context(), host, time.Second, tick))
			time.Sleep(2*s.delay + ms)
			var all sync.WaitGroup
			for _, b := range boards {
				tr := &heed.Transport{Base: server, Board: b, Retry: heed.RetryPolicy{MaxElapsed: time.Hour}}
				came, size := time.Duration(r.Int64N(int64(1100*ms))), r.IntN(30)
				all.Go(func() {
					if time.Sleep(came); left(t, b, host) > 0 {
						for range size {
							all.Go(func() {
								req, _ := http.NewRequestWithContext(t.Context(), http.MethodGet, host, nil)
								_, err := tr.RoundTrip(req)
								assert.NoError(t, err)
							})
						}
					}
				})
			}
			all.Wait()
			times := server.at
			for i := range times {
				for j := range i + 1 - n {
					require.GreaterOrEqual(t, times[i].Sub(times[j]), time.Duration(i-j+1-n)*tick, "seed %d: %d, %d", seed, i, j)
				}
			}
		})
	}
}

func TestAClosedBoardKeepsWhatItKnowsAndSendsNothing(t *testing.T) {
	bubble(t, func(t *testing.T, s *boardFake) {
		boards := openBoards(t, s, 1)
		require.NoError(t, boards[0].Post(t.Context(), host, 10*time.Second, 0))
		assert.NoError(t, boards[0].Close())
		assert.NoError(t, boards[0].Close(), "twice")
		time.Sleep(ms)
		assert.Positive(t, left(t, boards[0], host))
		assert.EqualError(t, boards[0].Post(t.Context(), "other", 10*time.Second, 0), "redisstore: Board is closed")
		assert.Positive(t, left(t, boards[0], "other"))
		unused := s.board(t)
		assert.NoError(t, unused.Close())
		assert.Zero(t, left(t, unused, host))
		time.Sleep(5 * ms) // for a sync in flight
		s.took()
		time.Sleep(time.Hour)
		assert.Zero(t, s.took())
		s.set(func() { assert.Empty(t, s.subs) })
	})
}

func TestABoardWithoutAClientKeepsItsOwnPosts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		clients := []redis.UniversalClient{nil, (*redis.Client)(nil), (*redis.ClusterClient)(nil), (*redis.Ring)(nil)}
		for _, client := range clients {
			b := &redisstore.Board{Client: client}
			assert.EqualError(t, b.Post(t.Context(), host, 10*time.Second, 0), "redisstore: Client is nil")
			assert.Equal(t, 10*time.Second, left(t, b, host))
			time.Sleep(11 * time.Second)
			_, _, err := b.Read(t.Context(), host)
			assert.EqualError(t, err, "redisstore: Client is nil")
			assert.Zero(t, left(t, b, host))
			b.Close()
		}
	})
}

func TestABoardForgetsOldCoolDownsAndIsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := new(redisstore.Board)
		defer b.Close()
		for i := range 70_000 {
			b.Post(t.Context(), fmt.Sprint(i), 2*time.Second, 0)
		}
		assert.Equal(t, 1<<16, redisstore.Known(b))
		assert.Positive(t, left(t, b, "69999"))
		b.Post(t.Context(), host, 20*time.Second, 0)
		b.Replace(t.Context(), host, 0, 0)
		time.Sleep(14 * time.Second)
		assert.Equal(t, 1, redisstore.Known(b), "a replacement is kept as long as what it replaced")
		time.Sleep(17 * time.Second)
		assert.Zero(t, redisstore.Known(b))
	})
}

func TestReadAndProbeDoNotAllocate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) { // so that no timer fires meanwhile
		b, ctx := new(redisstore.Board), t.Context()
		defer b.Close()
		b.Post(ctx, "interval", time.Hour, time.Second)
		b.Post(ctx, host, time.Hour, 0)
		for _, key := range []string{"interval", host, "other"} {
			b.Read(ctx, key)
			synctest.Wait()
			assert.Zero(t, testing.AllocsPerRun(1000, func() { b.Read(ctx, key); b.Probe(ctx, key) }), key)
		}
	})
}
