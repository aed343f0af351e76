package quota_test

import (
	"fmt"
	"math/rand/v2"
	"runtime"
	"testing"
	"time"

	"github.com/heedhttp/heed/quota"
)

// A Take of a random key among n. Each iteration also pays for the cache misses of the
// key's string, as a server does that has just read its request.
func BenchmarkMemory(b *testing.B) {
	for _, n := range []int{1, 1000, 1_000_000} {
		store, limit, keys := filled(b, n)
		b.Run(fmt.Sprint(n, " keys"), func(b *testing.B) {
			random, dst := rand.New(rand.NewPCG(1, 2)), make([]quota.Decision, 0, 1)
			b.ReportAllocs()
			for b.Loop() {
				store.Take(ctx, dst, quota.Charge{Key: keys[random.IntN(n)], Limit: limit})
			}
		})
		b.Run(fmt.Sprint(n, " keys, parallel"), func(b *testing.B) {
			b.ReportAllocs()
			b.RunParallel(func(pb *testing.PB) {
				random, dst := rand.New(rand.NewPCG(rand.Uint64(), 2)), make([]quota.Decision, 0, 1)
				for pb.Next() {
					store.Take(ctx, dst, quota.Charge{Key: keys[random.IntN(n)], Limit: limit})
				}
			})
		})
	}
}

// The memory of a million keys, and their cost to the garbage collector.
func BenchmarkMemoryOfAMillionKeys(b *testing.B) {
	for b.Loop() {
		const n = 1_000_000
		before := inUse()
		store, _, keys := filled(b, n)
		clear(keys)
		keys = nil
		b.ReportMetric(float64(inUse()-before)/n, "B/key")
		start := time.Now()
		runtime.GC()
		b.ReportMetric(float64(time.Since(start).Microseconds())/1000, "ms/GC")
		runtime.KeepAlive(store)
	}
}

// filled returns a Memory in which n keys owe something throughout a benchmark.
func filled(b *testing.B, n int) (*quota.Memory, *quota.Limit, []string) {
	limit := compile(b, quota.Policy{Quota: 1_000_000_000, Window: 24 * time.Hour})
	if n > 1000 {
		limit = compile(b, quota.Policy{Quota: 100_000, Window: 10 * 365 * 24 * time.Hour})
	}
	store, keys := &quota.Memory{MaxKeys: 2 * n}, make([]string, n)
	for i := range keys {
		keys[i] = fmt.Sprintf("192.0.2.%07d", i)
	}
	for _, i := range rand.New(rand.NewPCG(3, 4)).Perm(n) {
		store.Take(ctx, nil, quota.Charge{Key: keys[i], Limit: limit})
	}
	return store, limit, keys
}
