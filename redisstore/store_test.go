package redisstore_test

import (
	"context"
	"fmt"
	"math/big"
	"math/rand/v2"
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
	fields, err := s.Client.HKeys(ctx, "heed:quota:me").Result()
	require.NoError(t, err)
	assert.ElementsMatch(t, []string{"60/1m", "100/1d", "100/1d\tdry"}, fields)
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
		ttl := expiry(t, s.Client, "heed:quota:"+key).Sub(at)
		assert.Greater(t, ttl, whole)
		assert.LessOrEqual(t, ttl, (whole+2*time.Second)*17/16)
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

	// A key that has lost its TTL gets one.
	s.Client.Persist(ctx, "heed:quota:key")
	charge(quota.Charge{Key: "key", Limit: compile(t, quota.PerSecond(1000))})
	lives("key", 0)
}

func TestAKeyExpiresWhenItsBucketIsFull(t *testing.T) {
	mostlyWaits(t)
	s := newStore(t, redistest.Shared(t))
	take(t, s,
		quota.Charge{Key: "slow", Limit: compile(t, quota.PerHour(1))},
		quota.Charge{Key: "fast", Limit: compile(t, quota.PerSecond(100))},
	)
	assert.EqualValues(t, 1, s.Client.Exists(ctx, "heed:quota:slow").Val())
	assert.Eventually(t, func() bool {
		return s.Client.Exists(ctx, "heed:quota:fast").Val() == 0
	}, hang, 50*time.Millisecond)
	assert.EqualValues(t, 1, s.Client.Exists(ctx, "heed:quota:slow").Val())
}

func TestADenialWritesNothing(t *testing.T) {
	s := newStore(t, redistest.Shared(t))
	wide := quota.Charge{Key: "key", Limit: compile(t, quota.PerDay(100))}
	narrow := quota.Charge{Key: "other", Limit: compile(t, quota.PerDay(1))}
	take(t, s, narrow)
	state := s.Client.Dump(ctx, "heed:quota:other").Val()
	require.False(t, take(t, s, wide, narrow)[1].Allowed)
	assert.Zero(t, s.Client.Exists(ctx, "heed:quota:key").Val())
	assert.Equal(t, state, s.Client.Dump(ctx, "heed:quota:other").Val())
	_, err := s.Peek(ctx, nil, wide)
	require.NoError(t, err)
	require.NoError(t, s.Settle(ctx, quota.Charge{Key: "key", Limit: wide.Limit, N: -5}))
	assert.Zero(t, s.Client.Exists(ctx, "heed:quota:key").Val())
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

func TestAnInvalidStateCountsAsFull(t *testing.T) {
	s := newStore(t, redistest.Shared(t))
	c := quota.Charge{Key: "key", Limit: compile(t, quota.PerDay(10))}
	now := time.Now().UnixMicro()
	entry := func(at int64) string {
		return string([]byte{
			byte(at >> 48), byte(at >> 40), byte(at >> 32), byte(at >> 24), byte(at >> 16), byte(at >> 8), byte(at), 0, 1,
		})
	}
	for i, state := range []string{
		"abc", "", "nan", "inf", "-inf 1 1", "1:2:3", fmt.Sprint(now), fmt.Sprint(now, " 1"), fmt.Sprint(now, " 1 0"),
		fmt.Sprint(now, " -1 1"), fmt.Sprint(now, " 1.5 1"), fmt.Sprint(now, " 1e3 1"), fmt.Sprint(" ", now, " 1 1"),
		fmt.Sprint(now, "  1 1"), fmt.Sprint(now, " 1 1x"), fmt.Sprint(now, " 1 1 x"),
		strings.Repeat("9", 400), "{}", "null",
		strings.Repeat("x", 70_000), fmt.Sprint(now+25*time.Hour.Microseconds(), " 1 1"), fmt.Sprint(1<<52-1, " 1 1"),
		fmt.Sprint(now, " ", 1<<53, " 1"), fmt.Sprint(now, " 1 ", 1<<53), fmt.Sprint(now, " 0 1 ", 1<<53),
		fmt.Sprint(now, " 1 1 0x", entry(now)), fmt.Sprint(now, " 1 1 0 ", entry(now)[1:]),
		fmt.Sprint(now, " 1 1 0 ", entry(now-1)),
		fmt.Sprint(now, " 65536 1 0 ", entry(now)),
	} {
		require.NoError(t, s.Client.HSet(ctx, "heed:quota:key", "10/1d", state).Err())
		d := take(t, s, c)[0]
		assert.True(t, d.Allowed, "%q", state)
		assert.EqualValues(t, 9, d.Remaining, "%q", state)
		assert.EqualValues(t, i+1, s.Corrupt(), "%q", state)
		assert.EqualValues(t, 8, take(t, s, c)[0].Remaining, "%q", state)
	}
	corrupt := s.Corrupt()
	require.NoError(t, s.Client.HSet(ctx, "heed:quota:key", "10/1d", "x").Err())
	require.NoError(t, s.Settle(ctx, quota.Charge{Key: "key", Limit: c.Limit, N: 10}))
	assert.Equal(t, corrupt+1, s.Corrupt())
	assert.False(t, take(t, s, c)[0].Allowed)
	everyKeyExpires(t, s.Client.(*redis.Client))
}

func TestAKeyOfAnotherTypeIsAnError(t *testing.T) {
	s := newStore(t, redistest.Shared(t))
	limit := compile(t, quota.PerDay(10))
	require.NoError(t, s.Client.Set(ctx, "heed:quota:wrong", "1", 0).Err())
	for range 3 {
		_, err := s.Take(ctx, nil, quota.Charge{Key: "right", Limit: limit}, quota.Charge{Key: "wrong", Limit: limit})
		require.ErrorContains(t, err, "WRONGTYPE")
		require.ErrorContains(t, s.Settle(ctx, quota.Charge{Key: "wrong", Limit: limit, N: 1}), "WRONGTYPE")
	}
	assert.EqualValues(t, 9, take(t, s, quota.Charge{Key: "right", Limit: limit})[0].Remaining)
}

// Lua converts between the units of two Limits exactly as Go does, for numbers of any size.
func TestConversionsAgreeWithMathBig(t *testing.T) {
	server := redistest.Shared(t)
	s := newStore(t, server)
	random := rand.New(rand.NewPCG(1, 2))
	for range 1000 {
		limit := compile(t, quota.Policy{Name: "api", Quota: 1, Burst: 1 + random.Int64N(200),
			Window: time.Duration(1+random.Int64N(1<<44)) * time.Microsecond})
		from, level := 1+random.Int64N(1<<(1+random.IntN(53))-1), random.Int64N(1<<53)
		at := time.Now().Add(time.Hour).UnixMicro() // counts as now
		state := fmt.Sprintf("%d of 1/%d", level, from)
		value := fmt.Sprint(at, " ", level, " ", from)
		require.NoError(t, s.Client.HSet(ctx, "heed:quota:key", "api", value).Err())
		ds, err := s.Peek(ctx, nil, quota.Charge{Key: "key", Limit: limit})
		require.NoError(t, err)

		want := new(big.Int).Mul(big.NewInt(level), big.NewInt(limit.Unit()))
		want.Add(want, big.NewInt(from-1)).Quo(want, big.NewInt(from))
		owed := limit.Most()
		if want.IsInt64() {
			owed = min(owed, want.Int64())
		}
		remaining := max(0, (limit.Capacity()-owed)/limit.Unit())
		require.Equal(t, remaining, ds[0].Remaining, "%s in 1/%d", state, limit.Unit())
		ticks := (owed + limit.Rate() - 1) / limit.Rate()
		if owed > 0 {
			now, tick := ds[0].At.UnixMicro(), limit.Tick().Microseconds()
			whole := now + ds[0].ResetAfter.Microseconds()
			require.Equal(t, (now+tick-1)/tick*tick+ticks*tick, whole, "%s in 1/%d", state, limit.Unit())
		}
	}
}

func TestConvertIsExactForTheLargestNumbers(t *testing.T) {
	client := newClient(t, redistest.Shared(t))
	convert := redis.NewScript(redisstore.ConvertSource +
		"return string.format('%.0f', convert(tonumber(ARGV[1]), tonumber(ARGV[2]), tonumber(ARGV[3])))")
	random := rand.New(rand.NewPCG(3, 4))
	long := func() int64 { return 1<<53 - 1 - random.Int64N(1<<(1+random.IntN(52))) }
	for range 3000 {
		from, to := long(), long()
		parts := random.Int64N(from) // less than a unit, so that the result is exact in Lua
		want := new(big.Int).Mul(big.NewInt(parts), big.NewInt(to))
		want.Add(want, big.NewInt(from-1)).Quo(want, big.NewInt(from))
		got, err := convert.Run(ctx, client, nil, parts, from, to).Text()
		require.NoError(t, err)
		require.Equal(t, want.String(), got, "%d of 1/%d in 1/%d", parts, from, to)
	}
}
