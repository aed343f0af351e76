package redisstore_test

import (
	_ "embed"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/heedhttp/heed/internal/redistest"
	"github.com/heedhttp/heed/quota"
	"github.com/heedhttp/heed/redisstore"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

const gateKey = "heed:quota:2:\x01key"

//go:embed lua/gate.lua
var gateSource string

func TestGateScriptAgreesWithAModel(t *testing.T) {
	const clock = "local clock = redis.call('TIME')\n"
	require.Equal(t, 1, strings.Count(gateSource, clock))
	const testClock = "local clock = redis.call('HMGET', 'clock', 's', 'us')\n"
	script := redis.NewScript(strings.Replace(gateSource, clock, testClock, 1))
	client := newClient(t, redistest.Shared(t))
	for seed := range uint64(4) {
		random, model := rand.New(rand.NewPCG(seed, 0)), make(sets)
		now, began := time.Date(2026, 2, 3, 4, 5, 6, 780_123_000, time.UTC), time.Now()
		for step := range int(stated(500, 200)) {
			now = now.Add(stride(random))
			require.NoError(t, client.HSet(ctx, "clock", "s", now.Unix(), "us", now.Nanosecond()/1000).Err())
			key, ttl := fmt.Sprint("key ", seed, random.IntN(2)), 60_000+random.Int64N(60_000)
			var notices []string
			for range 1 + random.IntN(4) {
				verb := []string{"take", "take", "keep", "drop"}[random.IntN(4)]
				hold := random.IntN(8)
				notices = append(notices, verb, fmt.Sprintf("%d:%c", 1+hold%5, 'a'+hold), fmt.Sprint(1+random.IntN(12)))
			}
			args := []any{ttl}
			for _, word := range notices {
				args = append(args, word)
			}
			got, err := script.Run(ctx, client, []string{key}, args...).Slice()
			require.NoError(t, err)
			want := model.run(key, now, ttl, notices)
			require.Equal(t, fmt.Sprint(want...), fmt.Sprint(got...), "seed %d, step %d: %q", seed, step, notices)
			if model.used(key) == 0 {
				require.Zero(t, client.Exists(ctx, key).Val(), "nothing is held")
			} else {
				require.Greater(t, client.PTTL(ctx, key).Val(), time.Minute-time.Since(began))
			}
		}
	}
}

// stride returns how far the clock moves: mostly a little, sometimes past HoldTTL, back, or further back
// than the script accepts.
func stride(random *rand.Rand) time.Duration {
	switch random.IntN(40) {
	case 0:
		return -25 * time.Hour
	case 1, 2, 3:
		return -time.Duration(random.IntN(30_000)) * time.Millisecond
	case 4, 5, 6:
		return 2 * time.Minute
	}
	return time.Duration(random.IntN(20_000)) * time.Millisecond
}

func TestEveryKeyOfAGateExpires(t *testing.T) {
	s, began := newStore(t, redistest.Shared(t)), time.Now()
	for i := range 10 {
		mustAcquire(t, s, fmt.Sprint(i%3), 20, 2)
	}
	everyKeyExpires(t, s.Client.(*redis.Client))
	expiresIn(t, s.Client, "heed:quota:2:\x010", 31*time.Second, began)
}

func TestAShortHoldTTLDoesNotShortenOthers(t *testing.T) {
	s := newStore(t, redistest.Shared(t))
	s.HoldTTL = time.Hour
	hasty := &redisstore.Store{Client: s.Client, HoldTTL: time.Second, Timeout: patient}
	long := mustAcquire(t, s, "key", 20, 1)
	mustAcquire(t, hasty, "key", 20, 1).Release()
	hold := mustAcquire(t, hasty, "key", 20, 1)
	assert.Greater(t, s.Client.PTTL(ctx, gateKey).Val(), 50*time.Minute)
	hold.Release()
	long.Release()
}

func TestADeniedAcquireWritesNothing(t *testing.T) {
	s := newStore(t, redistest.Shared(t))
	s.HoldTTL = time.Hour // nothing is renewed meanwhile
	mustAcquire(t, s, "key", 20, 20)
	dump := s.Client.Dump(ctx, gateKey).Val()
	require.NoError(t, s.Client.ConfigResetStat(ctx).Err())
	for range 10 {
		_, d, err := s.Acquire(ctx, "key", 20, 1)
		require.NoError(t, err)
		require.False(t, d.Allowed)
	}
	assert.Equal(t, dump, s.Client.Dump(ctx, gateKey).Val())
	stats := s.Client.Info(ctx, "commandstats").Val()
	for _, command := range []string{"zadd", "zrem", "del", "pexpire"} {
		assert.NotContains(t, stats, "cmdstat_"+command+":")
	}
}

func TestAGateAndABucketWithOneKeyAreIndependent(t *testing.T) {
	s := newStore(t, redistest.Shared(t))
	hold := mustAcquire(t, s, "key", 1, 1)
	c := quota.Charge{Key: "key", Limit: compile(t, quota.PerDay(10))}
	assert.EqualValues(t, 9, take(t, s, c)[0].Remaining)
	hold.Release()
	assert.EqualValues(t, 8, take(t, s, c)[0].Remaining)
}

func TestMemoryOfHoldsInRedis(t *testing.T) {
	s := newStore(t, redistest.Shared(t))
	held := 0
	for _, test := range []struct{ holds, most int }{{1, 136}, {20, 720}, {100, 3200}, {1000, 125_000}} {
		for ; held < test.holds; held++ {
			mustAcquire(t, s, "key", 1000, 1)
		}
		used := s.Client.MemoryUsage(ctx, gateKey, 0).Val()
		t.Logf("%d holds: %d bytes", test.holds, used)
		assert.LessOrEqual(t, used, int64(test.most))
	}
}

func TestAnInvalidSetIsCountedAgain(t *testing.T) {
	for name, test := range map[string]struct {
		tamper func(c *redis.Client) error
		used   int64 // of 20 places, after the write
	}{
		"no count":           {func(c *redis.Client) error { return c.ZRem(ctx, gateKey, "places").Err() }, 3},
		"a count too low":    {score("places", -1), 3},
		"a count above zero": {score("places", 5), 3},
		"a fraction":         {score("places", -3.5), 3},
		"infinite": {func(c *redis.Client) error {
			return c.Do(ctx, "ZADD", gateKey, "-inf", "places").Err()
		}, 3},
		"a stranger":           {score("stranger", 9e12), 3},
		"a hold for ever":      {score("7:for ever", 9e14), 3},
		"a hold from long ago": {score("7:long ago", 1), 3},
		"a count and no hold": {func(c *redis.Client) error {
			const onlyACount = "redis.call('DEL', KEYS[1]) return redis.call('ZADD', KEYS[1], -7, 'places')"
			return c.Eval(ctx, onlyACount, []string{gateKey}).Err()
		}, 0},
	} {
		t.Run(name, func(t *testing.T) {
			s := newStore(t, redistest.Shared(t))
			s.HoldTTL = time.Hour // nothing is renewed meanwhile
			one, two := mustAcquire(t, s, "key", 20, 1), mustAcquire(t, s, "key", 20, 2)
			require.NoError(t, test.tamper(s.Client.(*redis.Client)))
			hold, d, err := s.Acquire(ctx, "key", 20, 4)
			require.NoError(t, err)
			assert.EqualValues(t, 20-4-test.used, d.Remaining)
			assert.EqualValues(t, 1, s.Corrupt())
			one.Release()
			two.Release()
			hold.Release()
			assert.Zero(t, s.Client.Exists(ctx, gateKey).Val())
		})
	}
}

func score(member string, score float64) func(c *redis.Client) error {
	return func(c *redis.Client) error {
		return c.ZAdd(ctx, gateKey, redis.Z{Score: score, Member: member}).Err()
	}
}

func TestAcquireFailsIfTheKeyHasAnotherType(t *testing.T) {
	s := newStore(t, redistest.Shared(t))
	require.NoError(t, s.Client.Set(ctx, gateKey, "1", 0).Err())
	hold, _, err := s.Acquire(ctx, "key", 1, 1)
	assert.ErrorContains(t, err, "WRONGTYPE")
	assert.ErrorAs(t, err, new(redis.Error))
	assert.Nil(t, hold)
}

func TestAGateWritesNothingWithoutAllPermissions(t *testing.T) {
	admin := newClient(t, redistest.Start(t))
	holder := &redisstore.Store{Client: admin, Timeout: patient, HoldTTL: time.Hour} // nothing is renewed meanwhile
	mustAcquire(t, holder, "key", 2, 1)
	before := admin.ZRangeWithScores(ctx, gateKey, 0, -1).Val()
	for _, rule := range []string{"-zadd", "-zrem", "-pexpire", "-del"} {
		require.NoError(t, admin.Do(ctx, "ACL", "SETUSER", "limited", "reset", "on", "nopass", "~*", "+@all", rule).Err())
		limited := redis.NewClient(&redis.Options{Addr: admin.Options().Addr, Username: "limited", Password: "any"})
		s := &redisstore.Store{Client: limited, Timeout: patient}
		for _, key := range []string{"key", "new"} {
			_, _, err := s.Acquire(ctx, key, 2, 1)
			assert.ErrorAs(t, err, new(redis.Error), rule)
		}
		assert.Equal(t, before, admin.ZRangeWithScores(ctx, gateKey, 0, -1).Val(), rule)
		assert.Zero(t, admin.Exists(ctx, "heed:quota:2:\x01new").Val(), rule)
		assert.NoError(t, limited.Close())
	}
}

func TestWithoutMemoryHoldsAreRenewedAndReleasedOnly(t *testing.T) {
	t.Parallel() // it waits for a renewal
	s := newStore(t, redistest.Start(t))
	s.HoldTTL = patient
	hold, other := mustAcquire(t, s, "key", 20, 1), mustAcquire(t, s, "key", 20, 1)
	require.NoError(t, s.Client.ConfigSet(ctx, "maxmemory", "1").Err())
	for _, key := range []string{"key", "new"} {
		_, _, err := s.Acquire(ctx, key, 20, 1)
		assert.ErrorContains(t, err, "OOM", key)
	}
	renewed(t, s, gateKey)
	assert.False(t, isLost(hold) || isLost(other))
	assert.EqualValues(t, 3, s.Client.ZCard(ctx, gateKey).Val())
	other.Release()
	assert.EqualValues(t, 2, s.Client.ZCard(ctx, gateKey).Val())
	hold.Release()
	assert.Zero(t, s.Client.Exists(ctx, gateKey).Val())
}

// renewed waits until all holds of keys are renewed.
func renewed(t *testing.T, s *redisstore.Store, keys ...string) {
	t.Helper()
	before := map[string]map[string]int64{}
	for _, key := range keys {
		before[key] = expiries(t, s, key)
	}
	for key, holds := range before {
		for member, expiry := range holds {
			require.Eventually(t, func() bool { return expiries(t, s, key)[member] > expiry }, hang, 10*ms)
		}
	}
}

// expiries returns when the holds of a key expire, in ms.
func expiries(t *testing.T, s *redisstore.Store, key string) map[string]int64 {
	t.Helper()
	all := map[string]int64{}
	for _, z := range s.Client.ZRangeWithScores(ctx, key, 0, -1).Val() {
		if z.Member != "places" {
			all[z.Member.(string)] = int64(z.Score)
		}
	}
	require.NotEmpty(t, all)
	return all
}
