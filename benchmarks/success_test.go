package benchmarks_test

import (
	"net/http"
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/heedhttp/heed"
)

// These benchmarks measure a request that succeeds at once. heed has its default budget and
// cool-downs; rivals have neither.

func BenchmarkSuccessSerial(b *testing.B) {
	each(b, append([]rival{bare, ours}, rivals...), func(b *testing.B, r rival) {
		rt, req := r.over(answer{}), request(b, "GET", url, nil)
		for b.Loop() {
			if _, err := rt.RoundTrip(req); err != nil {
				b.Fatal(err)
			}
		}
	})
}

func BenchmarkSuccessParallel(b *testing.B) {
	each(b, append([]rival{bare, ours}, rivals...), func(b *testing.B, r rival) {
		rt := r.over(answer{})
		b.RunParallel(func(pb *testing.PB) {
			req := request(b, "GET", url, nil)
			for pb.Next() {
				if _, err := rt.RoundTrip(req); err != nil {
					b.Error(err)
					return
				}
			}
		})
	})
}

func BenchmarkSuccessClient(b *testing.B) {
	each(b, append([]rival{bare, ours}, rivals...), func(b *testing.B, r rival) {
		client := &http.Client{Transport: r.over(answer{})}
		for b.Loop() {
			if _, err := client.Get(url); err != nil {
				b.Fatal(err)
			}
		}
	})
}

func TestASuccessAllocatesNothing(t *testing.T) {
	req := request(t, "GET", url, nil)
	allocs := func(rt http.RoundTripper) float64 {
		return testing.AllocsPerRun(1000, func() { rt.RoundTrip(req) })
	}
	assert.Equal(t, allocs(answer{}), allocs(&heed.Transport{Base: answer{}}))
}
