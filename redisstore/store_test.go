package redisstore_test

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/heedhttp/heed/internal/redistest"
	"github.com/heedhttp/heed/quota"
	"github.com/heedhttp/heed/redisstore"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// patient is a Timeout for tests that do not test timeouts.
const patient = 10 * time.Second

var ctx = context.Background()

func newStore(t testing.TB, server *redistest.Server) *redisstore.Store {
	return &redisstore.Store{Client: newClient(t, server), Timeout: patient}
}

func compile(t testing.TB, p quota.Policy) *quota.Limit {
	t.Helper()
	l, err := p.Compile()
	require.NoError(t, err)
	return l
}

func take(t testing.TB, s *redisstore.Store, charges ...quota.Charge) []quota.Decision {
	t.Helper()
	ds, err := s.Take(ctx, nil, charges...)
	require.NoError(t, err)
	require.Len(t, ds, len(charges))
	return ds
}

func TestTwoClientsAdmitExactlyTheLimit(t *testing.T) {
	server := redistest.Shared(t)
	stores := []*redisstore.Store{newStore(t, server), newStore(t, server)}
	for round := range stated(100, 30) {
		algorithm := []quota.Algorithm{quota.TokenBucket, quota.SlidingWindow, quota.SlidingLog}[round%3]
		limit := compile(t, quota.Policy{Quota: 50, Window: 24 * time.Hour, Algorithm: algorithm})
		var allowed atomic.Int64
		var all sync.WaitGroup
		for i := range 200 {
			all.Go(func() {
				ds, err := stores[i%2].Take(ctx, nil, quota.Charge{Key: fmt.Sprint(round), Limit: limit})
				if assert.NoError(t, err) && ds[0].Allowed {
					allowed.Add(1)
				}
			})
		}
		all.Wait()
		require.EqualValues(t, 50, allowed.Load())
	}
}

func TestStateIsSharedAndSurvivesTheStore(t *testing.T) {
	server := redistest.Shared(t)
	c := quota.Charge{Key: "key", N: 4, Limit: compile(t, quota.PerDay(10))}
	assert.EqualValues(t, 6, take(t, newStore(t, server), c)[0].Remaining)
	assert.EqualValues(t, 2, take(t, newStore(t, server), c)[0].Remaining)
}

func TestOnlyTheClockOfRedisCounts(t *testing.T) {
	s := newStore(t, redistest.Shared(t))
	before := s.Client.Time(ctx).Val()
	at := take(t, s, quota.Charge{Key: "key", Limit: compile(t, quota.PerDay(10))})[0].At
	after := s.Client.Time(ctx).Val()
	assert.False(t, at.Before(before) || at.After(after), "%v is not between %v and %v", at, before, after)
}

func TestWaitingForRetryAfterIsEnoughByARealClock(t *testing.T) {
	s := newStore(t, redistest.Shared(t))
	c := quota.Charge{Key: "key", Limit: compile(t, quota.Policy{Quota: 50, Window: time.Second, Burst: 1})}
	for range 10 {
		var d quota.Decision
		require.Eventually(t, func() bool { d = take(t, s, c)[0]; return d.Allowed }, hang, time.Millisecond)
		free := d.At.Add(d.NextAfter)
		for polls := 0; ; polls++ {
			if d = take(t, s, c)[0]; d.Allowed {
				assert.False(t, d.At.Before(free), "%v early", free.Sub(d.At))
				break
			}
			require.Equal(t, free, d.At.Add(d.RetryAfter), "poll %d", polls)
		}
	}
}

func TestACallIsOneScriptAndAKeyOneHash(t *testing.T) {
	s := newStore(t, redistest.Shared(t))
	minute, day := compile(t, quota.PerMinute(60)), compile(t, quota.PerDay(100))
	c := []quota.Charge{{Key: "me", Limit: minute}, {Key: "me", Limit: day}, {Key: "me", Limit: day, DryRun: true}}
	take(t, s, c...) // so that Redis knows the script
	before := commandsProcessed(t, s.Client)
	take(t, s, c...)
	assert.Equal(t, int64(2), commandsProcessed(t, s.Client)-before, "EVALSHA and this INFO")
	value, err := s.Client.Get(ctx, "heed:quota:2:me").Result()
	require.NoError(t, err)
	line := `(100/1d|\t100/1d|60/1m)\tb1,1,\d+ \d{16} \d{16} \d+\n`
	assert.Regexp(t, "^"+line+line+line+"$", value)
}

// commandsProcessed returns how many commands clients have sent, without those inside scripts.
func commandsProcessed(t *testing.T, client redis.UniversalClient) (n int64) {
	t.Helper()
	stats, err := client.Info(ctx, "commandstats").Result()
	require.NoError(t, err)
	for _, name := range []string{"evalsha", "eval", "info", "ping"} {
		_, rest, _ := strings.Cut(stats, "cmdstat_"+name+":calls=")
		var calls int64
		fmt.Sscan(strings.ReplaceAll(rest, ",", " "), &calls)
		n += calls
	}
	return n
}

func TestKeysLiveUntilTheirBucketsAreFull(t *testing.T) {
	s := newStore(t, redistest.Shared(t))
	var at time.Time // the time of the last decision
	charge := func(charges ...quota.Charge) { at = take(t, s, charges...)[0].At }
	lives := func(key string, whole time.Duration) {
		t.Helper()
		ttl := expiry(t, s.Client, "heed:quota:2:"+key).Sub(at)
		assert.Greater(t, ttl, whole)
		assert.LessOrEqual(t, ttl, (whole+3*time.Second)*17/16)
	}

	login := quota.Charge{Key: "key", N: 5, Limit: compile(t, quota.Policy{Quota: 5, Window: 5 * time.Minute})}
	charge(login)
	lives("key", 5*time.Minute)

	// A slower limit extends the TTL, a faster one does not shorten it.
	charge(quota.Charge{Key: "key", N: 10, Limit: compile(t, quota.PerDay(10))})
	lives("key", 24*time.Hour)
	day := at
	charge(quota.Charge{Key: "key", Limit: compile(t, quota.PerSecond(1000))})
	at = day
	lives("key", 24*time.Hour)

	// The same holds if both are written at once.
	charge(
		quota.Charge{Key: "new", Limit: compile(t, quota.PerDay(1))},
		quota.Charge{Key: "new", Limit: compile(t, quota.PerSecond(1))},
	)
	lives("new", 24*time.Hour)
}

func TestAKeyExpiresWhenItsBucketIsFull(t *testing.T) {
	mostlyWaits(t)
	s := newStore(t, redistest.Shared(t))
	take(t, s,
		quota.Charge{Key: "slow", Limit: compile(t, quota.PerHour(1))},
		quota.Charge{Key: "fast", Limit: compile(t, quota.PerSecond(100))},
	)
	assert.EqualValues(t, 1, s.Client.Exists(ctx, "heed:quota:2:slow").Val())
	assert.Eventually(t, func() bool {
		return s.Client.Exists(ctx, "heed:quota:2:fast").Val() == 0
	}, hang, 50*time.Millisecond)
	assert.EqualValues(t, 1, s.Client.Exists(ctx, "heed:quota:2:slow").Val())
}

func TestADenialWritesNothing(t *testing.T) {
	s := newStore(t, redistest.Shared(t))
	wide := quota.Charge{Key: "key", Limit: compile(t, quota.PerDay(100))}
	narrow := quota.Charge{Key: "other", Limit: compile(t, quota.PerDay(1))}
	take(t, s, narrow)
	state := s.Client.Dump(ctx, "heed:quota:2:other").Val()
	require.False(t, take(t, s, wide, narrow)[1].Allowed)
	assert.Zero(t, s.Client.Exists(ctx, "heed:quota:2:key").Val())
	assert.Equal(t, state, s.Client.Dump(ctx, "heed:quota:2:other").Val())
	_, err := s.Peek(ctx, nil, wide)
	require.NoError(t, err)
	require.NoError(t, s.Settle(ctx, quota.Charge{Key: "key", Limit: wide.Limit, N: -5}))
	assert.Zero(t, s.Client.Exists(ctx, "heed:quota:2:key").Val())
}

func TestAForgottenScriptIsSentAgain(t *testing.T) {
	s := newStore(t, redistest.Shared(t))
	c := quota.Charge{Key: "key", Limit: compile(t, quota.PerDay(10))}
	for remaining := range int64(3) {
		assert.Equal(t, 9-remaining, take(t, s, c)[0].Remaining)
		require.NoError(t, s.Client.ScriptFlush(ctx).Err())
	}
	require.NoError(t, s.Client.FlushAll(ctx).Err())
	assert.EqualValues(t, 9, take(t, s, c)[0].Remaining)
}

func TestAnInvalidLineCountsAsAbsent(t *testing.T) {
	s := newStore(t, redistest.Shared(t))
	c := quota.Charge{Key: "key", Limit: compile(t, quota.Policy{Quota: 10, Window: 24 * time.Hour, Algorithm: quota.SlidingLog})}
	now := time.Now().UnixMicro()
	id := fmt.Sprintf("%s\t%s ", c.Limit.Name(), c.Limit.Shape())
	line := func(fields ...any) string { return id + strings.TrimSuffix(fmt.Sprintln(fields...), "\n") }
	for i, value := range []string{
		"abc", "{}", "\t", strings.Repeat("x", 70_000), id, line(now + 1e9), line(now+1e9, now), line(now+1e9, now, -1),
		line(now+1e9, now, "1.5"), line(now+1e9, now, "1e3"), line(now+1e9, now, 1, 1), line(now+1e9, now, 1, "x"),
		line(now+1e9, now, 1<<53), line(now+1e9, 1<<53, 1), line(1<<53, now, 1), line(now+1e9, now, 1, 0, 86_400_000_001, ""),
		line(now+1e9, now, 1, 0, 0, fmt.Sprintf("%016d00001", now-1)), line(now+1e9, now, 1, 0, 0, fmt.Sprintf("%016d0001", now)),
		line(now+1e9, now, 65536, 0, 0, fmt.Sprintf("%016d00001", now)), strings.Replace(line(now+1e9, now, 1), "\tl", "\tx", 1),
	} {
		require.NoError(t, s.Client.Set(ctx, "heed:quota:2:key", value+"\n", time.Hour).Err())
		d := take(t, s, c)[0]
		assert.True(t, d.Allowed, "%q", value)
		assert.EqualValues(t, 9, d.Remaining, "%q", value)
		assert.EqualValues(t, i+1, s.Corrupt(), "%q", value)
		assert.EqualValues(t, 8, take(t, s, c)[0].Remaining, "%q", value)
	}
	everyKeyExpires(t, s.Client.(*redis.Client))
}

func TestAKeyOfAnotherTypeIsAnError(t *testing.T) {
	s := newStore(t, redistest.Shared(t))
	limit := compile(t, quota.PerDay(10))
	require.NoError(t, s.Client.HSet(ctx, "heed:quota:2:wrong", "a", "1").Err())
	for range 3 {
		_, err := s.Take(ctx, nil, quota.Charge{Key: "right", Limit: limit}, quota.Charge{Key: "wrong", Limit: limit})
		require.ErrorContains(t, err, "WRONGTYPE")
		require.ErrorContains(t, s.Settle(ctx, quota.Charge{Key: "wrong", Limit: limit, N: 1}), "WRONGTYPE")
	}
	assert.EqualValues(t, 9, take(t, s, quota.Charge{Key: "right", Limit: limit})[0].Remaining)
}
