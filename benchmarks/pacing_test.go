package benchmarks_test

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"golang.org/x/time/rate"

	"github.com/heedhttp/heed/pace"
)

// This benchmark measures pacing with a limit that is never reached. pace.PerHost finds the
// limiter of the host, and calls rate.Limiter.Wait, which is the other row.

const plenty = rate.Limit(1e12)

func BenchmarkPacing(b *testing.B) {
	req := request(b, "GET", url, nil)
	b.Run("bare", func(b *testing.B) {
		limiter := rate.NewLimiter(plenty, 1000)
		b.ReportAllocs()
		for b.Loop() {
			if err := limiter.Wait(req.Context()); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("heed", func(b *testing.B) {
		pacer := pace.PerHost(plenty, 1000)
		b.ReportAllocs()
		for b.Loop() {
			if err := pacer.Wait(req); err != nil {
				b.Fatal(err)
			}
		}
	})
}

func TestAPacedRequestAllocatesNothing(t *testing.T) {
	pacer, req := pace.PerHost(plenty, 1000), request(t, "GET", url, nil)
	assert.Zero(t, testing.AllocsPerRun(1000, func() { _ = pacer.Wait(req) }))
}
