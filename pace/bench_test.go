package pace_test

import (
	"context"
	"net/http"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"

	"golang.org/x/time/rate"

	"github.com/heedhttp/heed"
	"github.com/heedhttp/heed/pace"
)

// plenty is a limit that is counted but never reached.
const plenty = rate.Limit(1e12)

// Compare PerHost with x/time/rate's own Wait: PerHost adds the host's name, the table of
// hosts, and the line.

func BenchmarkRateWait(b *testing.B) {
	limiter := rate.NewLimiter(plenty, 1000)
	ctx := context.Background()
	b.ReportAllocs()
	for b.Loop() {
		if err := limiter.Wait(ctx); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkPerHost(b *testing.B) { benchmarkWait(b, pace.PerHost(plenty, 1000)) }

func BenchmarkWith(b *testing.B) { benchmarkWait(b, pace.With(rate.NewLimiter(plenty, 1000))) }

func benchmarkWait(b *testing.B, pacer heed.Pacer) {
	req, _ := http.NewRequest("GET", "https://api.example.com/v1/orders?page=2", nil)
	b.ReportAllocs()
	for b.Loop() {
		if err := pacer.Wait(req); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkRateWaitParallel(b *testing.B) {
	limiter := rate.NewLimiter(plenty, 1000)
	b.ReportAllocs()
	b.RunParallel(func(pb *testing.PB) {
		for pb.Next() {
			_ = limiter.Wait(context.Background())
		}
	})
}

func BenchmarkPerHostParallel(b *testing.B) {
	pacer := pace.PerHost(plenty, 1000)
	b.ReportAllocs()
	b.RunParallel(func(pb *testing.PB) {
		req, _ := http.NewRequest("GET", "https://api.example.com/v1/orders?page=2", nil)
		for pb.Next() {
			_ = pacer.Wait(req)
		}
	})
}

func BenchmarkAdaptive(b *testing.B) {
	pacer := &pace.Adaptive{Min: plenty}
	req, _ := http.NewRequest("GET", "https://api.example.com/v1/orders?page=2", nil)
	resp := &http.Response{StatusCode: 200}
	b.ReportAllocs()
	for b.Loop() {
		if err := pacer.Wait(req); err != nil {
			b.Fatal(err)
		}
		pacer.Observe(heed.Attempt{Request: req, Response: resp})
	}
}

func BenchmarkAdvertisedWithoutFields(b *testing.B) {
	benchmarkAdvertised(b, http.Header{"Content-Type": {"text/plain"}})
}

func BenchmarkAdvertisedWithFields(b *testing.B) {
	benchmarkAdvertised(b, http.Header{"Ratelimit": {`"default";r=999999999999;t=1`}})
}

func benchmarkAdvertised(b *testing.B, h http.Header) {
	pacer := &pace.Advertised{}
	req, _ := http.NewRequest("GET", "https://api.example.com/v1/orders?page=2", nil)
	resp := &http.Response{StatusCode: 200, Header: h}
	b.ReportAllocs()
	for b.Loop() {
		if err := pacer.Wait(req); err != nil {
			b.Fatal(err)
		}
		pacer.Observe(heed.Attempt{Request: req, Response: resp})
	}
}

// So many goroutines wait in one line of a Queue, and each goes to its end again.
func BenchmarkQueue(b *testing.B) {
	for _, waiting := range []int{0, 1, 1000} {
		b.Run(strconv.Itoa(waiting), func(b *testing.B) {
			pacer := &pace.Queue{Pacer: pace.PerHost(plenty, 1000), Max: waiting + 1}
			var left atomic.Int64
			left.Store(int64(b.N))
			var all sync.WaitGroup
			b.ReportAllocs()
			for range waiting + 1 {
				all.Go(func() {
					req, _ := http.NewRequest("GET", "https://api.example.com/v1/orders?page=2", nil)
					for left.Add(-1) >= 0 {
						if err := pacer.Wait(req); err != nil {
							b.Error(err)
						}
					}
				})
			}
			all.Wait()
		})
	}
}
