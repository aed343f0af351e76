package redisstore_test

import (
	_ "embed"
	"fmt"
	"math/rand/v2"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/heedhttp/heed/internal/redistest"
	"github.com/heedhttp/heed/quota"
	"github.com/heedhttp/heed/quota/quotatest"
	"github.com/heedhttp/heed/redisstore"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// gateKey is the sorted set of "key" for a Store of newGate.
const gateKey = "gate:\x01key"

//go:embed lua/gate.lua
var gateSource string

// newGate returns a Store whose Holds are not renewed during a test.
func newGate(client redis.UniversalClient) *redisstore.Store {
	return &redisstore.Store{Client: client, Prefix: "gate:", Timeout: patient, HoldTTL: 23 * time.Hour}
}

// mustAcquire takes n places, which must be free. The Hold does not become garbage during the test.
func mustAcquire(t testing.TB, s *redisstore.Store, key string, limit, n int64) *quota.Hold {
	t.Helper()
	hold, d, err := s.Acquire(ctx, key, limit, n)
	require.NoError(t, err)
	require.True(t, d.Allowed, "%+v", d)
	t.Cleanup(func() { runtime.KeepAlive(hold) })
	return hold
}

// eventually acquires places, and repeats that after errors and denials.
func eventually(t *testing.T, s *redisstore.Store, key string, limit, n int64) (hold *quota.Hold) {
	t.Helper()
	require.Eventually(t, func() bool {
		hold, _, _ = s.Acquire(ctx, key, limit, n)
		return hold != nil
	}, hang, 10*time.Millisecond)
	t.Cleanup(func() { runtime.KeepAlive(hold) })
	return hold
}

func isLost(hold *quota.Hold) bool {
	select {
	case <-hold.Lost():
		return true
	default:
		return false
	}
}

func TestStoreImplementsQuotaGate(t *testing.T) {
	t.Parallel()
	client := newClient(t, redistest.Shared(t))
	clients := map[string]redis.UniversalClient{"one": client, "cluster": newCluster(t), "ring": newRing(t)}
	for name, client := range clients {
		t.Run(name, func(t *testing.T) {
			stores := 0
			quotatest.RunGate(t, func(*testing.T) quota.Gate {
				stores++
				return &redisstore.Store{Client: client, Prefix: fmt.Sprintf("store %d:", stores), Timeout: patient}
			})
		})
	}
	assert.Empty(t, client.Keys(ctx, "*").Val(), "released holds are removed")
}

// A gateModel is what a sorted set should contain: when each entry expires, in ms.
type gateModel map[string]int64

// run does what the script should do.
func (m gateModel) run(now time.Time, args []any) []any {
	present, farthest, corrupt := now.UnixMilli(), now.Add(24*time.Hour).UnixMilli(), int64(0)
	for entry, expiry := range m {
		if expiry > farthest {
			corrupt = 1
		}
		if expiry > farthest || expiry <= present {
			delete(m, entry)
		}
	}
	var found []any
	for i := 1; i < len(args); i += 3 {
		verb, entry, limit := args[i], args[i+1].(string), args[i+2].(int64)
		_, there := m[entry]
		there = there || verb == "take" && m.used()+places(entry) <= limit
		if there && verb == "drop" {
			delete(m, entry)
		} else if there {
			m[entry] = present + args[0].(int64)
		}
		found = append(found, map[bool]int64{true: 1}[there])
	}
	return append([]any{now.UnixMicro(), m.used(), corrupt}, found...)
}

func (m gateModel) used() (sum int64) {
	for entry := range m {
		sum += places(entry)
	}
	return sum
}

func places(entry string) (n int64) {
	fmt.Sscanf(entry, "%d:", &n)
	return n
}

func TestGateScriptAgreesWithAModel(t *testing.T) {
	const clock, testClock = "redis.call('TIME')", "redis.call('HMGET', 'clock', 's', 'us')"
	require.Equal(t, 1, strings.Count(gateSource, clock))
	script := redis.NewScript(strings.Replace(gateSource, clock, testClock, 1))
	client := newClient(t, redistest.Shared(t))
	for seed := range uint64(4) {
		random, key, model := rand.New(rand.NewPCG(seed, 0)), fmt.Sprint("key ", seed), make(gateModel)
		now, began, longest := time.Date(2026, 2, 3, 4, 5, 6, 780_123_000, time.UTC), time.Now(), int64(0)
		for step := range stated(1000, 400) {
			stride := time.Duration(random.IntN(5)) * 5 * time.Second // often to the ms when an entry expires
			switch random.IntN(40) {
			case 0:
				stride = -25 * time.Hour // further back than the script accepts
			case 1, 2, 3:
				stride = -stride
			case 4, 5, 6:
				stride = 2 * time.Minute // past the TTL
			}
			now = now.Add(stride)
			require.NoError(t, client.HSet(ctx, "clock", "s", now.Unix(), "us", now.Nanosecond()/1000).Err())
			ttl := 60_000 + 5000*random.Int64N(12)
			args := []any{ttl}
			for range 1 + random.IntN(4) {
				verb, i := []string{"take", "take", "keep", "drop"}[random.IntN(4)], random.IntN(8)
				args = append(args, verb, fmt.Sprintf("%d:%c", 1+i%5, 'a'+i), 1+random.Int64N(12))
			}
			got, err := script.Run(ctx, client, []string{key}, args...).Slice()
			require.NoError(t, err)
			require.Equal(t, model.run(now, args), got, "seed %d, step %d: %v", seed, step, args)

			// The set lives a second longer than any of its entries, by the real clock.
			left := client.PTTL(ctx, key).Val()
			for i := 1; i < len(args); i += 3 {
				if _, there := model[args[i+1].(string)]; there && args[i] != "drop" {
					longest = max(longest, ttl+1000)
				}
			}
			if len(model) == 0 {
				longest = 0
				require.EqualValues(t, -2, left, "it does not exist")
			}
			least := time.Duration(longest-2)*ms - time.Since(began) // 2 ms because both times are rounded
			require.False(t, longest > 0 && left < least, "%v left, not %v", left, least)
		}
	}
}

func TestAnInvalidSetIsCountedAgain(t *testing.T) {
	client := newClient(t, redistest.Shared(t))
	for tampering, used := range map[string]int64{ // by two Holds of 3 places together
		"redis.call('ZREM', KEYS[1], 'places')":                                  3,
		"redis.call('ZADD', KEYS[1], '-1', 'places')":                            3,
		"redis.call('ZADD', KEYS[1], '5', 'places')":                             3,
		"redis.call('ZADD', KEYS[1], '-3.5', 'places')":                          3,
		"redis.call('ZADD', KEYS[1], '-inf', 'places')":                          3,
		"redis.call('ZADD', KEYS[1], '-1e16', 'places')":                         3,
		"redis.call('ZADD', KEYS[1], '9e12', 'stranger')":                        3,
		"redis.call('ZADD', KEYS[1], '9e14', '7:for ever')":                      3,
		"redis.call('ZADD', KEYS[1], '1', '7:long ago')":                         3,
		"redis.call('DEL', KEYS[1]) redis.call('ZADD', KEYS[1], '-7', 'places')": 0,
	} {
		s := newGate(client)
		holds := []*quota.Hold{mustAcquire(t, s, "key", 20, 1), mustAcquire(t, s, "key", 20, 2)}
		require.ErrorIs(t, client.Eval(ctx, tampering, []string{gateKey}).Err(), redis.Nil)
		hold, d, err := s.Acquire(ctx, "key", 20, 4)
		require.NoError(t, err)
		assert.EqualValues(t, 20-4-used, d.Remaining, tampering)
		assert.EqualValues(t, 1, s.Corrupt(), tampering)
		for _, hold := range append(holds, hold) {
			hold.Release()
		}
		assert.Zero(t, client.Exists(ctx, gateKey).Val(), tampering)
	}
}

func TestAGarbageHoldIsGivenBackAndCounted(t *testing.T) {
	s := newGate(newClient(t, redistest.Shared(t)))
	for range 5 {
		_, d, err := s.Acquire(ctx, "key", 5, 1)
		require.NoError(t, err)
		require.True(t, d.Allowed)
	}
	require.Eventually(t, func() bool {
		runtime.GC()
		hold, _, err := s.Acquire(ctx, "key", 5, 5)
		hold.Release()
		return err == nil && hold != nil
	}, hang, 5*time.Millisecond)
	assert.EqualValues(t, 5, s.Dropped())
}
