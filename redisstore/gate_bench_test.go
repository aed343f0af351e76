package redisstore_test

import (
	"testing"

	"github.com/heedhttp/heed/internal/redistest"
)

func BenchmarkStoreAcquire(b *testing.B) {
	s := newStore(b, redistest.Shared(b))
	b.Run("and release", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			hold, _, err := s.Acquire(ctx, "key", 20, 1)
			if err != nil {
				b.Fatal(err)
			}
			hold.Release()
		}
	})
	b.Run("denied", func(b *testing.B) {
		hold, _, _ := s.Acquire(ctx, "other", 1, 1)
		defer hold.Release()
		b.ReportAllocs()
		for b.Loop() {
			if _, _, err := s.Acquire(ctx, "other", 1, 1); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("PING, for comparison", func(b *testing.B) {
		for b.Loop() {
			s.Client.Ping(ctx)
		}
	})
}
