package redisstore_test

import (
	"context"
	"fmt"
	"maps"
	"net"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/heedhttp/heed"
	"github.com/heedhttp/heed/redisstore"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

var _ heed.Board = (*redisstore.Board)(nil)

const ms = time.Millisecond

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
		assert.Zero(t, left(t, boards[i], host))
	}
	time.Sleep(10 * ms)
	s.took()
	return boards
}

func TestAPostReachesAllProcessesARoundTripLater(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newBoardFake(t)
		boards := openBoards(t, s, 3)
		require.NoError(t, boards[0].Post(t.Context(), host, 10*time.Second, 0))
		assert.Equal(t, 10*time.Second, left(t, boards[0], host))
		time.Sleep(2 * ms)
		for _, b := range boards {
			assert.InDelta(t, 10*time.Second-2*ms, left(t, b, host), float64(ms))
			assert.Zero(t, left(t, b, "https://other.example.com"))
		}
		time.Sleep(10 * time.Second)
		for _, b := range boards {
			assert.Zero(t, left(t, b, host))
		}
	})
}

func TestTheLongestPostHoldsEverywhere(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newBoardFake(t)
		boards := openBoards(t, s, 3)
		for i, wait := range []time.Duration{3 * time.Second, 20 * time.Second, 5 * time.Second} {
			require.NoError(t, boards[i].Post(t.Context(), host, wait, 0))
			time.Sleep(10 * ms)
		}
		for _, b := range boards {
			assert.InDelta(t, 20*time.Second-20*ms, left(t, b, host), float64(2*ms))
		}
		s.took()
		require.NoError(t, boards[0].Post(t.Context(), host, 5*time.Second, 0))
		assert.Zero(t, s.took(), "nothing to send")
		require.NoError(t, boards[0].Post(t.Context(), host, 0, time.Second))
		require.NoError(t, boards[0].Post(t.Context(), host, -time.Hour, 0))
		assert.Zero(t, s.took())
		require.NoError(t, boards[2].Post(t.Context(), "b", 1<<62, 1<<62))
		wait, every, err := boards[2].Read(t.Context(), "b")
		assert.NoError(t, err)
		assert.InDelta(t, 24*time.Hour, wait, float64(ms), "a day is the longest")
		assert.Equal(t, 24*time.Hour, every)
	})
}

func TestConcurrentPostsShareSyncs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newBoardFake(t)
		boards := openBoards(t, s, 2)
		done := make(chan error)
		for i := range 1000 {
			go func() { done <- boards[0].Post(t.Context(), fmt.Sprint(i), 10*time.Second, 0) }()
		}
		for range 1000 {
			require.NoError(t, <-done)
		}
		time.Sleep(50 * ms)
		for i := range 1000 {
			assert.Positive(t, left(t, boards[1], fmt.Sprint(i)), i)
		}
		assert.Less(t, s.took(), 25)
	})
}

func TestAProcessThatStartsLaterLearnsOfEarlierPosts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newBoardFake(t)
		require.NoError(t, s.board(t).Post(t.Context(), host, 10*time.Second, 0))
		b := s.board(t)
		assert.Zero(t, left(t, b, host), "it must ask first")
		time.Sleep(5 * ms) // a probe, and a sync
		assert.InDelta(t, 10*time.Second, left(t, b, host), float64(8*ms))
	})
}

func TestPollingMakesUpForLostMessages(t *testing.T) {
	for name, test := range map[string]struct {
		spoil func(*boardFake)
		most  time.Duration
	}{
		"messages get lost":         {func(s *boardFake) { s.noMessages = true }, time.Second},
		"no permission to listen":   {func(s *boardFake) { s.noSubscriptions = true }, 100 * ms},
		"no connection for it":      {func(s *boardFake) { s.gone, s.noSubscriptions = true, true }, 100 * ms},
		"the connection was closed": {func(s *boardFake) { s.noMessages = true }, 110 * ms},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newBoardFake(t)
				s.set(func() { test.spoil(s) })
				a, b := s.board(t), s.board(t)
				b.Read(t.Context(), host)
				time.Sleep(2 * time.Second)
				s.set(func() { s.gone = false })
				time.Sleep(5 * time.Second)
				b.Read(t.Context(), host) // takes the error
				if name == "the connection was closed" {
					s.set(func() {
						for conn := range s.subs {
							conn.Close()
						}
					})
				}
				require.NoError(t, a.Post(t.Context(), host, 10*time.Second, 0))
				posted := time.Now()
				for left(t, b, host) == 0 {
					time.Sleep(ms)
				}
				assert.LessOrEqual(t, time.Since(posted), test.most+3*ms)
			})
		})
	}
}

func TestABoardWithASubscriptionPollsOnceASecond(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newBoardFake(t)
		b := openBoards(t, s, 1)[0]
		time.Sleep(5 * time.Minute)
		assert.InDelta(t, 300, s.took(), 5)
		s.set(func() { s.noSubscriptions = true })
		s.restart()
		time.Sleep(time.Minute)
		assert.InDelta(t, 600, s.took(), 20)
		_, _, err := b.Read(t.Context(), host)
		assert.ErrorContains(t, err, "redisstore: changes arrive late: cannot subscribe to heed:board:{cool-downs}: NOPERM")
		s.set(func() { s.noSubscriptions = false })
		time.Sleep(20 * time.Second)
		s.took()
		time.Sleep(time.Minute)
		assert.InDelta(t, 60, s.took(), 2)
	})
}

func TestASilentConnectionIsReplaced(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newBoardFake(t)
		boards := openBoards(t, s, 2)
		time.Sleep(5 * time.Minute) // the connection answers pings
		var before []net.Conn
		s.set(func() { before = slices.Collect(maps.Keys(s.subs)); s.silent = true })
		time.Sleep(5 * time.Second)
		s.set(func() { s.silent = false })
		time.Sleep(20 * time.Second)
		s.set(func() {
			assert.Len(t, s.subs, 2)
			for _, conn := range before {
				assert.Nil(t, s.subs[conn])
			}
		})
		boards[1].Read(t.Context(), host)
		require.NoError(t, boards[0].Post(t.Context(), host, 10*time.Second, 0))
		time.Sleep(2 * ms)
		assert.Positive(t, left(t, boards[1], host))
	})
}

func TestAProcessObeysItsOwnPostsWhileRedisIsDown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newBoardFake(t)
		boards := openBoards(t, s, 2)
		require.NoError(t, boards[1].Post(t.Context(), "known before", time.Hour, 0))
		time.Sleep(2 * ms)
		s.set(func() { s.silent = true })

		began := time.Now()
		err := boards[0].Post(t.Context(), host, 10*time.Second, 20*ms)
		assert.ErrorIs(t, err, context.DeadlineExceeded)
		assert.ErrorContains(t, err, "redisstore: ")
		assert.Equal(t, 50*ms, time.Since(began))
		synctest.Wait()
		for i := range 100 {
			began = time.Now()
			require.ErrorContains(t, boards[0].Post(t.Context(), fmt.Sprint(i), time.Hour, 0), "redisstore: ")
			wait, every, _ := boards[0].Read(t.Context(), host)
			require.InDelta(t, 10*time.Second, wait, float64(200*ms))
			require.Equal(t, 20*ms, every)
			require.Zero(t, time.Since(began))
			require.Positive(t, left(t, boards[0], "known before"))
			require.Zero(t, left(t, boards[1], host))
			time.Sleep(ms)
		}
	})
}

func TestPostsMadeWhileRedisIsDownReachItLater(t *testing.T) {
	for name, lose := range map[string]func(*boardFake, bool){
		"silent": func(s *boardFake, lost bool) { s.silent = lost },
		"gone":   func(s *boardFake, lost bool) { s.gone = lost },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newBoardFake(t)
				boards := openBoards(t, s, 2)
				s.set(func() { lose(s, true) })
				require.Error(t, boards[0].Post(t.Context(), host, 30*time.Second, 0))
				require.Error(t, boards[0].Post(t.Context(), "short", 2*time.Second, 0))
				time.Sleep(10 * time.Second)
				s.set(func() { lose(s, false) })
				back := time.Now()
				boards[1].Read(t.Context(), host)
				for left(t, boards[1], host) == 0 {
					time.Sleep(ms)
				}
				assert.LessOrEqual(t, time.Since(back), 1200*ms)
				assert.InDelta(t, left(t, boards[0], host), left(t, boards[1], host), float64(100*ms))
				assert.Zero(t, left(t, boards[1], "short"))
				boards[0].Read(t.Context(), host)
				require.NoError(t, boards[0].Post(t.Context(), "other", time.Second, 0))
			})
		})
	}
}

func TestOneLostReplyCostsOneTimeout(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newBoardFake(t)
		boards := openBoards(t, s, 2)
		s.set(func() { s.silent = true })
		time.AfterFunc(40*ms, func() { s.set(func() { s.silent = false }) })
		require.Error(t, boards[0].Post(t.Context(), host, 30*time.Second, 0))
		time.Sleep(10 * ms)
		assert.Positive(t, left(t, boards[1], host))
	})
}

func TestARedisThatIsDownIsAskedLessAndLess(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newBoardFake(t)
		b := openBoards(t, s, 1)[0]
		s.set(func() { s.gone = true })
		s.took()
		s.set(func() { s.probes = 0 })
		time.Sleep(5 * time.Minute)
		s.set(func() { assert.InDelta(t, 290, len(s.calls)+s.probes, 15) })
		_, _, err := b.Read(t.Context(), host)
		assert.ErrorIs(t, err, errGone)
		_, _, err = b.Read(t.Context(), host)
		assert.NoError(t, err, "it is reported once")
	})
}

func TestCoolDownsThatRedisForgotAreRestored(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newBoardFake(t)
		boards := openBoards(t, s, 3)
		require.NoError(t, boards[0].Post(t.Context(), host, 30*time.Second, 20*ms))
		require.NoError(t, boards[0].Post(t.Context(), "over", time.Second, 0))
		time.Sleep(5 * time.Second)
		s.restart()
		time.Sleep(1100 * ms)
		for _, b := range append(boards, s.board(t)) {
			b.Read(t.Context(), host)
			time.Sleep(5 * ms)
			wait, every, err := b.Read(t.Context(), host)
			assert.NoError(t, err)
			assert.InDelta(t, 24*time.Second, wait, float64(200*ms))
			assert.Positive(t, every)
		}
		s.set(func() { assert.NotContains(t, s.model.all, "over") })
		s.took()
		time.Sleep(time.Second)
		assert.InDelta(t, 4, s.took(), 2, "and nothing more is sent")
	})
}

func TestACanceledPostHolds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newBoardFake(t)
		boards := openBoards(t, s, 2)
		gone, cancel := context.WithCancel(t.Context())
		cancel()
		if err := boards[0].Post(gone, host, 10*time.Second, 0); err != nil {
			assert.ErrorIs(t, err, context.Canceled)
		}
		time.Sleep(3 * ms)
		for _, b := range boards {
			assert.Positive(t, left(t, b, host))
		}
	})
}

func TestBoardsWithDifferentPrefixesShareNothing(t *testing.T) {
	b := &redisstore.Board{Prefix: "{a}"}
	assert.NotEqual(t, redisstore.BoardKeys(b), redisstore.BoardKeys(new(redisstore.Board)))
	assert.Equal(t, []string{hash, changes}, redisstore.BoardKeys(new(redisstore.Board)))
}

func TestAClosedBoardKeepsWhatItKnowsAndSendsNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newBoardFake(t)
		boards := openBoards(t, s, 2)
		require.NoError(t, boards[0].Post(t.Context(), host, 10*time.Second, 0))
		assert.NoError(t, boards[0].Close())
		assert.NoError(t, boards[0].Close(), "twice")
		time.Sleep(ms)
		assert.Positive(t, left(t, boards[0], host))
		assert.EqualError(t, boards[0].Post(t.Context(), "other", 10*time.Second, 0), "redisstore: Board is closed")
		assert.Positive(t, left(t, boards[0], "other"))
		boards[1].Close()
		time.Sleep(5 * ms) // for a sync in flight
		s.took()
		time.Sleep(time.Hour)
		assert.Zero(t, s.took())
		s.set(func() { assert.Empty(t, s.subs) })

		unused := s.board(t)
		assert.NoError(t, unused.Close())
		assert.Zero(t, left(t, unused, host))
		time.Sleep(time.Hour)
		assert.Zero(t, s.took())
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
		s := newBoardFake(t)
		s.set(func() { s.gone = true })
		b := s.board(t)
		for i := range 70_000 {
			b.Post(t.Context(), fmt.Sprint(i), 2*time.Second, 0)
		}
		assert.Equal(t, 1<<16, redisstore.Known(b))
		assert.Positive(t, left(t, b, "69999"))
		b.Post(t.Context(), host, 20*time.Second, 0)
		time.Sleep(14 * time.Second)
		assert.Equal(t, 1, redisstore.Known(b))
		assert.Positive(t, left(t, b, host))
		time.Sleep(17 * time.Second)
		assert.Zero(t, redisstore.Known(b))
	})
}

func TestReadDoesNotAllocate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) { // so that no timer fires meanwhile
		b := &redisstore.Board{}
		defer b.Close()
		ctx := t.Context()
		b.Post(ctx, "interval", time.Hour, time.Second)
		b.Post(ctx, host, time.Hour, 0)
		for _, key := range []string{"interval", host, "other"} {
			b.Read(ctx, key)
			synctest.Wait()
			assert.Zero(t, testing.AllocsPerRun(1000, func() { b.Read(ctx, key) }), key)
		}
	})
}

func BenchmarkBoardRead(b *testing.B) {
	ctx := context.Background()
	for name, post := range map[string][]string{
		"no cool-down": nil, "other keys cool down": {"a", "b", "c"}, "the key cools down": {"a", "b", host},
	} {
		board := &redisstore.Board{}
		for _, key := range post {
			board.Post(ctx, key, time.Hour, time.Second)
		}
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				board.Read(ctx, host)
			}
		})
		b.Run(name+"/parallel", func(b *testing.B) {
			b.ReportAllocs()
			b.RunParallel(func(pb *testing.PB) {
				for pb.Next() {
					board.Read(ctx, host)
				}
			})
		})
		board.Close()
	}
}
