package quota_test

import (
	"context"
	"fmt"
	"math"
	"math/big"
	"math/rand/v2"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/heedhttp/heed/internal/testenv"
	"github.com/heedhttp/heed/quota"
	"github.com/heedhttp/heed/quota/quotatest"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

var (
	_ quota.Store    = (*quota.Memory)(nil)
	_ quota.Peeker   = (*quota.Memory)(nil)
	_ quota.Reserver = (*quota.Memory)(nil)
)

var ctx = context.Background()

func compile(t testing.TB, p quota.Policy) *quota.Limit {
	t.Helper()
	l, err := p.Compile()
	require.NoError(t, err)
	return l
}

func ratio(a, b int64) *big.Rat { return big.NewRat(a, b) }

func TestMemoryIsAStore(t *testing.T) {
	quotatest.Run(t, func(t *testing.T, now func() time.Time) quota.Store {
		m := new(quota.Memory)
		quota.SetClock(m, now)
		return m
	})
}

// Setting the wall clock back cannot lock anybody out, because a Memory does not read it.
func TestAMemoryUsesTheMonotonicClock(t *testing.T) {
	m := new(quota.Memory)
	take(t, m, "key", 1, compile(t, quota.PerSecond(1)))
	assert.Contains(t, quota.Start(m).String(), " m=", "its String shows a monotonic reading")
}

func TestMemoryIsAStoreInASynctestBubble(t *testing.T) {
	quotatest.Run(t, func(t *testing.T, _ func() time.Time) quota.Store { return new(quota.Memory) })
}

func TestAMemoryWithOneShardIsAStore(t *testing.T) {
	quotatest.Run(t, func(t *testing.T, now func() time.Time) quota.Store {
		m := &quota.Memory{MaxKeys: 500}
		quota.SetClock(m, now)
		return m
	})
}

func take(t testing.TB, m *quota.Memory, key string, n int64, l *quota.Limit) quota.Decision {
	ds, err := m.Take(ctx, nil, quota.Charge{Key: key, N: n, Limit: l})
	if err != nil { // faster than a require
		t.Helper()
		require.NoError(t, err)
	}
	return ds[0]
}

func peek(t testing.TB, m *quota.Memory, key string, l *quota.Limit) quota.Decision {
	ds, err := m.Peek(ctx, nil, quota.Charge{Key: key, Limit: l})
	if err != nil {
		t.Helper()
		require.NoError(t, err)
	}
	return ds[0]
}

func TestAFloodEvictsTheLeastIndebtedFirst(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := &quota.Memory{MaxKeys: 1000}
		login, page := compile(t, quota.PerHour(5)), compile(t, quota.PerMinute(60))
		for i := range 100 {
			take(t, m, fmt.Sprint("victim ", i), 5, login)
		}
		for i := range 10_000 {
			take(t, m, fmt.Sprint("flood ", i), 1, page)
		}
		assert.EqualValues(t, 1000, quota.Kept(m))
		assert.EqualValues(t, 9100, m.Forgotten())
		for i := range 100 {
			assert.False(t, take(t, m, fmt.Sprint("victim ", i), 1, login).Allowed)
		}
	})
}

func TestTheSoonestFreeBucketIsEvicted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := &quota.Memory{MaxKeys: 3}
		l := compile(t, quota.PerHour(100))
		take(t, m, "a", 1, l)
		take(t, m, "b", 2, l)
		take(t, m, "c", 3, l)
		take(t, m, "a", 9, l) // now the most indebted
		require.NoError(t, m.Settle(ctx, quota.Charge{Key: "c", N: -2, Limit: l}))
		remain := func(want map[string]int64) {
			t.Helper()
			for key, remaining := range want {
				assert.Equal(t, remaining, peek(t, m, key, l).Remaining, key)
			}
		}
		take(t, m, "d", 5, l)
		remain(map[string]int64{"a": 90, "b": 98, "c": 100, "d": 95})
		take(t, m, "e", 5, l)
		remain(map[string]int64{"a": 90, "b": 100, "c": 100, "d": 95, "e": 95})
		assert.EqualValues(t, 2, m.Forgotten())
	})
}

// Of any kind: one unit of each of these is owed for longer than one of the previous.
func TestTheSoonestFreeStateOfAnyKindIsEvicted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		policies := []quota.Policy{
			quota.PerSecond(5),
			{Quota: 5, Window: time.Second, Algorithm: quota.FixedWindow},
			{Quota: 5, Window: time.Second, Algorithm: quota.SlidingWindow},
			{Quota: 5, Window: 3 * time.Second, Algorithm: quota.SlidingLog},
			{Quota: 1, Window: 7 * time.Second, Algorithm: quota.LeakyBucket},
			quota.PerDay(1_000_003_000_000),
			{Quota: 5, Window: time.Hour, Algorithm: quota.FixedWindow},
			{Quota: 5, Calendar: quota.Day, Algorithm: quota.FixedWindow},
			{Quota: 5, Calendar: quota.Month, Algorithm: quota.FixedWindow},
		}
		m := &quota.Memory{MaxKeys: len(policies)}
		limits := make([]*quota.Limit, len(policies))
		for i, p := range policies {
			limits[i] = compile(t, p)
			n := int64(1)
			if i == 5 {
				n = 1_000_003_000_000 / 24 / 60 // owed for a minute
			}
			take(t, m, "key", n, limits[i])
		}
		year := compile(t, quota.Policy{Quota: 1, Window: 365 * 24 * time.Hour})
		for i, l := range limits {
			require.NotZero(t, peek(t, m, "key", l).ResetAfter, l.Name())
			take(t, m, fmt.Sprint(i), 1, year)
			require.Zero(t, peek(t, m, "key", l).ResetAfter, l.Name())
			require.EqualValues(t, i+1, m.Forgotten())
		}
	})
}

func TestStatesThatOweNothingMakeRoom(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, most := range []int{10, 1000, 20_000} {
			m := &quota.Memory{MaxKeys: most}
			l := compile(t, quota.PerMinute(60))
			rounds := 3
			if most > 1000 && !testenv.Long() {
				rounds = 2
			}
			for round := range rounds {
				for i := range most * 9 / 10 {
					take(t, m, fmt.Sprint(round, " ", i), 1, l)
				}
				assert.LessOrEqual(t, quota.Kept(m), int64(most))
				time.Sleep(time.Minute)
			}
			assert.LessOrEqual(t, m.Forgotten(), int64(most/1000), "some in other shards may be missed")
		}
	})
}

// ExampleMemory_Take_worker, to the moment.
func TestAWorkerThatWaitsIsAdmitted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m, l := new(quota.Memory), compile(t, quota.Policy{Quota: 5, Window: time.Second})
		for range 5 {
			require.True(t, take(t, m, "worker", 1, l).Allowed)
		}
		for range 5 {
			d := take(t, m, "worker", 1, l)
			require.False(t, d.Allowed)
			require.Equal(t, 200*time.Millisecond, d.RetryAfter)
			time.Sleep(d.RetryAfter)
			require.True(t, take(t, m, "worker", 1, l).Allowed)
		}
	})
}

// With a full Memory, a tenth of the states always owe nothing: enough to find one.
func TestEvictionFindsStatesThatOweNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const most = 20_000
		m := &quota.Memory{MaxKeys: most}
		second, day := compile(t, quota.PerSecond(1)), compile(t, quota.PerDay(1))
		for i := range most {
			l := day
			if i%10 == 0 {
				l = second
			}
			take(t, m, fmt.Sprint(i), 1, l)
		}
		time.Sleep(time.Second)
		for i := range most / 20 {
			take(t, m, fmt.Sprint("new ", i), 1, day)
		}
		assert.Less(t, m.Forgotten(), int64(most/20/20))
		assert.LessOrEqual(t, quota.Kept(m), int64(most))
	})
}

func TestAFloodReturnsItsMemory(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := &quota.Memory{MaxKeys: 100_000}
		l := compile(t, quota.PerSecond(1))
		keys := 20_000 // twice the memory that may remain
		if testenv.Long() {
			keys = 100_000
		}
		before := heap()
		for i := range keys {
			take(t, m, fmt.Sprint(i), 1, l)
		}
		assert.Greater(t, heap()-before, int64(300_000))
		time.Sleep(2 * time.Hour)
		for i := range 1000 { // all shards
			take(t, m, fmt.Sprint(i), 1, l)
		}
		assert.EqualValues(t, 1000, quota.Kept(m))
		assert.Less(t, heap()-before, int64(200_000))
		runtime.KeepAlive(m)
	})
}

// heap returns how many bytes are in use without the garbage of other tests: unique names
// and cleanups outlive a collection or two.
func heap() (least int64) {
	least = math.MaxInt64
	for same := 0; same < 5; same++ {
		var stats runtime.MemStats
		runtime.GC()
		runtime.ReadMemStats(&stats)
		if now := int64(stats.HeapAlloc); now < least-10_000 {
			least, same = now, 0
		}
	}
	return least
}

func TestReadingStoresNothing(t *testing.T) {
	m := new(quota.Memory)
	l := compile(t, quota.PerMinute(1))
	_, err := m.Peek(ctx, nil, quota.Charge{Key: "peek", Limit: l})
	require.NoError(t, err)
	_, err = m.Take(ctx, nil, quota.Charge{Key: "denied", Limit: l}, quota.Charge{Key: "denied", Limit: l, N: 2})
	require.NoError(t, err)
	_, _, _, err = m.Reserve(ctx, time.Hour, quota.Charge{Key: "never", Limit: l, N: 2})
	require.NoError(t, err)
	require.NoError(t, m.Settle(ctx, quota.Charge{Key: "refund", Limit: l, N: -1}))
	assert.Zero(t, quota.Kept(m))
}

func TestMaxKeysIsKeptExactly(t *testing.T) {
	l := compile(t, quota.PerDay(1))
	sizes := []int{1, 2, 1000, 5000, 20_000} // of one shard, and of more
	if testenv.Long() {
		sizes = append(sizes, 0)
	}
	for _, most := range sizes {
		m := &quota.Memory{MaxKeys: most}
		if most == 0 {
			most = 65_536
		}
		for i := range most {
			take(t, m, fmt.Sprint(i), 1, l)
		}
		require.Zero(t, m.Forgotten(), "%d keys", most)
		for i := range most {
			if take(t, m, fmt.Sprint(i), 1, l).Allowed {
				t.Fatalf("of %d keys, number %d was evicted", most, i)
			}
		}
		take(t, m, "one more", 1, l)
		assert.EqualValues(t, most, quota.Kept(m))
		assert.EqualValues(t, 1, m.Forgotten())
	}
}

// A call whose own charges exceed MaxKeys is made nevertheless.
func TestACallMayEvictItsOwnBuckets(t *testing.T) {
	m := &quota.Memory{MaxKeys: 1}
	hour, day := compile(t, quota.PerHour(10)), compile(t, quota.PerDay(10))
	a, b := quota.Charge{Key: "key", Limit: hour}, quota.Charge{Key: "key", Limit: day, N: 2}
	for range 3 {
		_, err := m.Take(ctx, nil, a, b, a, b)
		require.NoError(t, err)
		assert.EqualValues(t, 1, quota.Kept(m))
	}
}

func TestAKeyDoesNotKeepItsRequestAlive(t *testing.T) {
	m := new(quota.Memory)
	l := compile(t, quota.PerDay(1))
	var before, after runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	for i := range 100 {
		request := strings.Repeat(fmt.Sprint(i%10), 1<<20)
		take(t, m, request[:16]+fmt.Sprint(i), 1, l)
		take(t, m, request[i:i+16], 1, l)
	}
	runtime.GC()
	runtime.ReadMemStats(&after)
	assert.Less(t, int64(after.HeapAlloc)-int64(before.HeapAlloc), int64(5<<20))
	runtime.KeepAlive(m)
}

func TestCallsWithTheSameKeysDoNotDeadlock(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := new(quota.Memory)
		l := compile(t, quota.PerDay(1_000_000))
		var all sync.WaitGroup
		for seed := range uint64(8) {
			all.Go(func() {
				random := rand.New(rand.NewPCG(seed, 0))
				for range 500 {
					charges := make([]quota.Charge, 6)
					for i := range charges {
						charges[i] = quota.Charge{Key: fmt.Sprint(random.IntN(100)), Limit: l}
					}
					ds, err := m.Take(ctx, nil, charges...)
					assert.NoError(t, err)
					assert.Len(t, ds, 6)
				}
			})
		}
		all.Wait()
		var taken int64
		for i := range 100 {
			ds, err := m.Peek(ctx, nil, quota.Charge{Key: fmt.Sprint(i), Limit: l})
			require.NoError(t, err)
			taken += 1_000_000 - ds[0].Remaining
		}
		assert.EqualValues(t, 8*500*6, taken)
	})
}

func TestTakeDoesNotAllocate(t *testing.T) {
	m := new(quota.Memory)
	minute, day := compile(t, quota.PerMinute(1e9)), compile(t, quota.PerDay(1e9))
	dst := make([]quota.Decision, 0, 3)
	a, b := quota.Charge{Key: "a", Limit: minute}, quota.Charge{Key: "a", Limit: day}
	c := quota.Charge{Key: "b", Limit: day}
	for name, call := range map[string]func(){
		"one charge":    func() { m.Take(ctx, dst, a) },
		"three charges": func() { m.Take(ctx, dst, a, b, c) },
		"a peek":        func() { m.Peek(ctx, dst, a, b) },
		"a reservation": func() { m.Reserve(ctx, time.Second, a, b) },
		"a settlement":  func() { m.Settle(ctx, a, b) },
	} {
		call()
		assert.Zero(t, testing.AllocsPerRun(100, call), name)
	}
}

// Keys come, are charged and go, under several Limits each. A table that grows or loses
// entries still finds the others, and nothing else.
func TestKeysThatComeAndGoStayIndependent(t *testing.T) {
	for _, most := range []int{900, 100_000} { // one shard, and many
		synctest.Test(t, func(t *testing.T) {
			m := &quota.Memory{MaxKeys: most}
			limits := []*quota.Limit{
				compile(t, quota.PerDay(1000)),
				compile(t, quota.Policy{Quota: 999, Window: time.Hour, Algorithm: quota.FixedWindow}),
				compile(t, quota.Policy{Quota: 998, Window: time.Hour, Algorithm: quota.SlidingLog}),
			}
			type place struct{ key, limit int }
			random, used := rand.New(rand.NewPCG(1, uint64(most))), make(map[place]int64)
			for range 20_000 {
				p := place{random.IntN(200), random.IntN(3)}
				key := fmt.Sprint(p.key)
				if random.IntN(10) == 0 {
					require.NoError(t, m.Reset(ctx, key))
					for i := range limits {
						delete(used, place{p.key, i})
					}
					continue
				}
				used[p]++
				require.Equal(t, limits[p.limit].AtOnce()-used[p], take(t, m, key, 1, limits[p.limit]).Remaining)
			}
			assert.EqualValues(t, len(used), quota.Kept(m))
			for key := range 200 {
				states, err := m.Inspect(ctx, fmt.Sprint(key))
				require.NoError(t, err)
				for _, l := range limits {
					i := slices.IndexFunc(states, func(s quota.State) bool { return s.Name == l.Name() })
					n := used[place{key, slices.Index(limits, l)}]
					require.Equal(t, n > 0, i >= 0)
					if i >= 0 {
						require.Equal(t, n*l.Unit(), states[i].Bucket.Level)
					}
				}
			}
		})
	}
}

// More Limits than a table has numbers for are counted, too.
func TestAKeyMayHaveThousandsOfLimits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const n = 3000
		m := new(quota.Memory)
		for i := range int64(n) {
			take(t, m, "key", 1, compile(t, quota.PerDay(i+2)))
		}
		for i := range int64(n) {
			require.Equal(t, i, take(t, m, "key", 1, compile(t, quota.PerDay(i+2))).Remaining)
		}
		states, err := m.Inspect(ctx, "key")
		require.NoError(t, err)
		assert.Len(t, states, n)
		require.NoError(t, m.Reset(ctx, "key"))
		assert.Zero(t, quota.Kept(m))
	})
}

// A Limit compiled for each call, with other numbers each time, is counted under its Name
// and leaves nothing behind.
func TestALimitMayBeCompiledForEachCall(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m, before := new(quota.Memory), heap()
		calls := int64(20_000)
		for i := range calls {
			l := compile(t, quota.Policy{Name: "api", Quota: 100_000 + i, Window: 24 * time.Hour})
			require.EqualValues(t, 100_000-1, take(t, m, "key", 1, l).Remaining, i)
		}
		assert.LessOrEqual(t, quota.Kept(m), int64(16))
		assert.Less(t, heap()-before, int64(1_000_000))
		runtime.KeepAlive(m)
	})
}
