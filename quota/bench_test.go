package quota_test

import (
	"strconv"
	"testing"
	"time"

	"github.com/heedhttp/heed/quota"
)

// now keeps the compiler from dropping a call.
var now time.Time

func BenchmarkMemoryTake(b *testing.B) {
	limit := compile(b, quota.PerSecond(1_000_000_000))
	keys := make([]string, 1000)
	for i := range keys {
		keys[i] = "192.0.2." + strconv.Itoa(i)
	}
	b.Run("serial", func(b *testing.B) {
		store := &quota.Memory{}
		dst := make([]quota.Decision, 0, 1)
		b.ReportAllocs()
		for i := range b.N {
			store.Take(ctx, dst, quota.Charge{Key: keys[i%len(keys)], Limit: limit})
		}
	})
	b.Run("one key", func(b *testing.B) {
		store := &quota.Memory{}
		dst := make([]quota.Decision, 0, 1)
		b.ReportAllocs()
		for range b.N {
			store.Take(ctx, dst, quota.Charge{Key: keys[0], Limit: limit})
		}
	})
	b.Run("three charges", func(b *testing.B) {
		store := &quota.Memory{}
		minute, day := compile(b, quota.PerMinute(1e9)), compile(b, quota.PerDay(1e9))
		dst := make([]quota.Decision, 0, 3)
		b.ReportAllocs()
		for i := range b.N {
			key := keys[i%len(keys)]
			store.Take(
				ctx, dst, quota.Charge{Key: key, Limit: limit}, quota.Charge{Key: key, Limit: minute},
				quota.Charge{Key: key, Limit: day},
			)
		}
	})
	b.Run("denied", func(b *testing.B) {
		store := &quota.Memory{}
		one := compile(b, quota.PerDay(1))
		dst := make([]quota.Decision, 0, 1)
		b.ReportAllocs()
		for i := range b.N {
			store.Take(ctx, dst, quota.Charge{Key: keys[i%len(keys)], Limit: one})
		}
	})
	b.Run("flood of new keys", func(b *testing.B) {
		store := &quota.Memory{MaxKeys: 10_000}
		one := compile(b, quota.PerDay(1))
		dst := make([]quota.Decision, 0, 1)
		b.ReportAllocs()
		for i := range b.N {
			store.Take(ctx, dst, quota.Charge{Key: strconv.Itoa(i), Limit: one})
		}
	})
	b.Run("time.Now, for comparison", func(b *testing.B) {
		for range b.N {
			now = time.Now()
		}
	})
	b.Run("parallel", func(b *testing.B) {
		store := &quota.Memory{}
		b.ReportAllocs()
		b.RunParallel(func(pb *testing.PB) {
			dst := make([]quota.Decision, 0, 1)
			for i := 0; pb.Next(); i++ {
				store.Take(ctx, dst, quota.Charge{Key: keys[i%len(keys)], Limit: limit})
			}
		})
	})
}

// BenchmarkLimit measures a decision without a Store.
func BenchmarkLimit(b *testing.B) {
	for _, p := range ways(1000, m) {
		b.Run(p.Algorithm.String(), func(b *testing.B) {
			c := newCount(b, p)
			c.take(500)
			b.ReportAllocs()
			for range b.N {
				c.now += 60_000 // one unit comes back
				met := c.limit.Drain(c.bucket, c.now)
				c.bucket, _ = c.limit.Try(met, 1, c.now)
				c.limit.Describe(c.bucket, c.now)
			}
		})
	}
}
