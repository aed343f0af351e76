package redisstore_test

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/heedhttp/heed/internal/redistest"
	"github.com/heedhttp/heed/redisstore"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// probed calls Probe n times for each board at every interval, for as long as long. It returns when
// Probe returned true.
func probed(
	t *testing.T, boards []*redisstore.Board, key string, n int, every, long time.Duration,
) (times []time.Time) {
	var mu sync.Mutex
	var all sync.WaitGroup
	end := time.Now().Add(long)
	for i, b := range boards {
		for j := range n {
			all.Go(func() {
				time.Sleep(every * time.Duration(i*n+j) / time.Duration(len(boards)*n))
				for ; time.Now().Before(end); time.Sleep(every) {
					if b.Probe(t.Context(), key) {
						mu.Lock()
						times = append(times, time.Now())
						mu.Unlock()
					}
				}
			})
		}
	}
	all.Wait()
	return times
}

// aMinuteApart asserts that the first probe was a minute after start, and the others a minute apart.
func aMinuteApart(t *testing.T, start time.Time, times []time.Time, n int) {
	t.Helper()
	require.Len(t, times, n)
	for i, at := range times {
		d := at.Sub(start)
		assert.GreaterOrEqual(t, d, time.Duration(i+1)*time.Minute-5*ms, "%d", i)
		assert.LessOrEqual(t, d, time.Duration(i+1)*(time.Minute+3*time.Second), "%d", i)
	}
}

func TestAFleetOfAThousandCallersProbesOnceAMinute(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newBoardFake(t)
		boards := openBoards(t, s, 20)
		require.NoError(t, boards[0].Post(t.Context(), host, day, 0))
		posted := time.Now()
		boards = append(boards, s.board(t)) // a Board that starts late
		s.took()
		times := probed(t, boards, host, 50, time.Second, 3*time.Minute+30*time.Second)
		aMinuteApart(t, posted, times, 3)
		polls := 21 * (3*60 + 30)
		assert.Less(t, s.took()-polls, 21*3*10, "round trips in addition to polling")
		assert.Len(t, s.model.grants[host], 3)
	})
}

func TestOnlyLongCoolDownsAreProbed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newBoardFake(t)
		boards := openBoards(t, s, 2)
		b := boards[0]
		require.NoError(t, b.Post(t.Context(), host, 2*time.Minute-time.Second, 0))
		probes := probed(t, boards, host, 1, time.Second, 3*time.Minute)
		assert.Empty(t, probes, "a minute after the post, less than a minute is left")
		s.took()
		assert.False(t, b.Probe(t.Context(), "other"))
		require.NoError(t, b.Post(t.Context(), host, time.Hour, 0))
		s.took()
		for range 59 {
			assert.False(t, b.Probe(t.Context(), host), "not at once")
			time.Sleep(time.Second)
		}
		assert.LessOrEqual(t, s.took(), 2*61, "and Redis is not asked")
		time.Sleep(2 * time.Second)
		over, cancel := context.WithCancel(t.Context())
		cancel()
		assert.False(t, b.Probe(over, host))
		assert.True(t, b.Probe(t.Context(), host))
		assert.False(t, b.Probe(t.Context(), host))

		require.NoError(t, boards[1].Replace(t.Context(), host, 30*time.Minute, 0))
		replaced := time.Now()
		aMinuteApart(t, replaced, probed(t, boards, host, 5, 100*ms, 150*time.Second), 2)
		require.NoError(t, boards[1].Post(t.Context(), host, time.Hour, 0)) // as after a probe that got a 429
		posted := time.Now()
		aMinuteApart(t, posted, probed(t, boards, host, 5, 100*ms, 90*time.Second), 1)
		require.NoError(t, boards[1].Replace(t.Context(), host, 0, 0))
		time.Sleep(2 * ms)
		assert.Empty(t, probed(t, boards, host, 5, 100*ms, 3*time.Minute))
	})
}

func TestWithoutRedisEachProcessProbesOnceAMinute(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newBoardFake(t)
		boards := openBoards(t, s, 3)
		require.NoError(t, boards[0].Post(t.Context(), host, day, 0))
		posted := time.Now()
		time.Sleep(2 * ms)
		s.set(func() { s.gone = true })
		var all sync.WaitGroup
		for _, b := range boards {
			all.Go(func() {
				aMinuteApart(t, posted, probed(t, []*redisstore.Board{b}, host, 20, 100*ms, 210*time.Second), 3)
			})
		}
		all.Wait()
		s.set(func() { s.gone = false })
		time.Sleep(1200 * ms)
		probes := probed(t, boards, host, 20, 100*ms, 179*time.Second)
		assert.LessOrEqual(t, len(probes), 3, "the processes share probes again")
	})
}

func TestWithoutAnAnswerAProbeIsGrantedAfterTheTimeout(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newBoardFake(t)
		b := openBoards(t, s, 1)[0]
		require.NoError(t, b.Post(t.Context(), host, day, 0))
		time.Sleep(61 * time.Second)
		s.set(func() { s.silent = true })
		began := time.Now()
		assert.True(t, b.Probe(t.Context(), host))
		assert.LessOrEqual(t, time.Since(began), 50*ms)
		assert.False(t, b.Probe(t.Context(), host))
		require.Error(t, b.Replace(t.Context(), host, 0, 0), "Redis went down in between")
		assert.Zero(t, left(t, b, host))
		assert.False(t, b.Probe(t.Context(), host))
		s.set(func() { s.silent = false })
		time.Sleep(1200 * ms)
		newcomer := s.board(t)
		left(t, newcomer, host)
		time.Sleep(5 * ms)
		assert.Zero(t, left(t, newcomer, host))
	})
}

// The process also restores when the last probe was.
func TestARestartOfRedisGrantsNoExtraProbe(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newBoardFake(t)
		boards := openBoards(t, s, 5)
		require.NoError(t, boards[0].Post(t.Context(), host, day, 0))
		posted := time.Now()
		go func() {
			for range 20 {
				time.Sleep(17 * time.Second)
				s.restart()
			}
		}()
		aMinuteApart(t, posted, probed(t, boards, host, 10, 300*ms, 330*time.Second), 5)
		time.Sleep(time.Minute)
	})
}

func TestManyCallersOnARealRedisGetOneProbe(t *testing.T) {
	mostlyWaits(t)
	const every = 2 * time.Second
	server := redistest.Shared(t)
	boards := make([]*redisstore.Board, 30)
	for i := range boards {
		boards[i] = openBoard(t, newClient(t, server))
		redisstore.SetProbeEvery(boards[i], every)
	}
	began := time.Now()
	require.NoError(t, boards[0].Post(ctx, host, time.Hour, 0))
	for _, b := range boards {
		held(t, b, host)
	}
	var granted atomic.Int64
	var all sync.WaitGroup
	for i := range 1000 {
		all.Go(func() {
			unfinished := func(took time.Duration) bool {
				return took < 2*every+every/2 || granted.Load() == 0 && took < hang
			}
			for took := time.Since(began); unfinished(took); took = time.Since(began) {
				if boards[i%30].Probe(ctx, host) {
					granted.Add(1)
				}
				time.Sleep(time.Duration(20+i%7) * ms)
			}
		})
	}
	all.Wait()
	assert.Positive(t, granted.Load())
	assert.LessOrEqual(t, granted.Load(), int64(time.Since(began)/every))
}

// A thousand callers ask at one moment of Redis' clock, again and again.
func TestBoardScriptGrantsOneProbeAMinute(t *testing.T) {
	s := newBoardScript(t)
	s.run(t, 0, posted("k", time.Hour, 0)...)
	grants := func(at int64, n int) int64 {
		var granted atomic.Int64
		var all sync.WaitGroup
		for range n {
			all.Go(func() {
				granted.Add(s.probe(t, at, "k").(int64))
			})
		}
		all.Wait()
		return granted.Load()
	}
	for at := second; at < 59*second; at += 10 * second {
		assert.Zero(t, grants(at, 10))
	}
	assert.Zero(t, grants(60*second-1, 10))
	assert.EqualValues(t, 1, grants(60*second, 1000))
	assert.Zero(t, grants(120*second-1, 10))
	assert.EqualValues(t, 1, grants(120*second, 100))
	s.run(t, 150*second, posted("k", 2*time.Hour, 0)...)
	assert.Zero(t, grants(210*second-1, 10))
	assert.EqualValues(t, 1, grants(210*second, 10))

	assert.Zero(t, grants(-3600*second, 10), "the clock has stepped back")
	assert.Zero(t, grants(-3541*second, 10))
	assert.EqualValues(t, 1, grants(-3540*second, 10))
	assert.EqualValues(t, 1, grants(0, 10), "and on")
	assert.Zero(t, grants(59*second, 10))
	assert.Zero(t, grants(8000*second, 10), "after the end")
	assert.Zero(t, s.probe(t, 0, "other"))
	assert.Len(t, s.client.Keys(ctx, "*").Val(), 2)
}

func TestBoardScriptReplacesNothingWithoutAllPermissions(t *testing.T) {
	s := newBoardScript(t)
	s.run(t, 0, posted("k", time.Hour, 0)...)
	for _, denied := range []string{"hset", "hdel", "zadd", "zrem", "pexpire"} {
		args := []any{"ACL", "SETUSER", denied, "on", "nopass", "~*", "&*", "+@all", "-" + denied}
		require.NoError(t, s.client.Do(ctx, args...).Err())
		user := redis.NewClient(&redis.Options{Addr: s.client.Options().Addr, Username: denied, Password: "x"})
		before := s.client.HGetAll(ctx, hash).Val()
		for _, args := range [][]any{
			ops(op("replace", "k", 0, 0, 0, 0, -1)),
			ops(op("restore", "k", 0, 0, 0, 0, t0*1000+100)),
			ops(op("restore", "new", second)),
			ops(op("probe", "k", 0, 60*second)),
		} {
			now := t0/1000 + 100
			err := user.Eval(ctx, s.source, []string{hash, changes, fmt.Sprint(now), "0"}, args...).Err()
			assert.Error(t, err, "%s: %v", denied, args)
			assert.Equal(t, before, s.client.HGetAll(ctx, hash).Val(), denied)
		}
		user.Close()
	}
}

func TestBoardScriptIgnoresAReplacementFromTheFuture(t *testing.T) {
	s := newBoardScript(t)
	s.run(t, 0, posted("k", time.Hour, 0)...)
	future := t0*1000 + 86_400*second + 1
	reply := s.run(t, 0, ops(op("restore", "k", second, 0, 0, future, future))...)
	assert.Equal(t, []int64{3600 * second, 0, 0}, s.read(t, 0, "k"))
	assert.Equal(t, t0*1000+1, reply[1])
}

func TestProbeDoesNotAllocate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := &redisstore.Board{}
		defer b.Close()
		b.Post(t.Context(), host, time.Hour, 0)
		for _, key := range []string{host, "other"} {
			synctest.Wait()
			assert.Zero(t, testing.AllocsPerRun(1000, func() { b.Probe(ctx, key) }), key)
		}
	})
}
