package quota_test

import (
	"fmt"
	"testing"

	"github.com/heedhttp/heed/quota"
)

func BenchmarkMemoryAcquire(b *testing.B) {
	b.Run("1 key", func(b *testing.B) {
		var m quota.Memory
		b.ReportAllocs()
		for b.Loop() {
			hold, _, _ := m.Acquire(ctx, "key", 20, 1)
			hold.Release()
		}
	})
	b.Run("1 key, parallel", func(b *testing.B) {
		var m quota.Memory
		b.ReportAllocs()
		b.RunParallel(func(pb *testing.PB) {
			for pb.Next() {
				hold, _, _ := m.Acquire(ctx, "key", 20, 1)
				hold.Release()
			}
		})
	})
	b.Run("1k keys, parallel", func(b *testing.B) {
		var m quota.Memory
		keys := make([]string, 1000)
		for i := range keys {
			keys[i] = fmt.Sprint("key ", i)
		}
		b.ReportAllocs()
		b.RunParallel(func(pb *testing.PB) {
			for i := 0; pb.Next(); i++ {
				hold, _, _ := m.Acquire(ctx, keys[i%len(keys)], 20, 1)
				hold.Release()
			}
		})
	})
	b.Run("denied", func(b *testing.B) {
		var m quota.Memory
		hold, _, _ := m.Acquire(ctx, "key", 1, 1)
		defer hold.Release()
		b.ReportAllocs()
		for b.Loop() {
			m.Acquire(ctx, "key", 1, 1)
		}
	})
}
