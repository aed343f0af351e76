//go:build unix

package benchmarks_test

import (
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/heedhttp/heed/internal/redistest"
)

// These benchmarks compare a Lease with its own Store, with 64 callers: from the first decision
// on, and after a second of use. For keys that are seldom used, a Lease takes nothing ahead.

func BenchmarkRedisLeaseCold1(b *testing.B)      { leaseBesideStore(b, 1, 0) }
func BenchmarkRedisLeaseCold1000(b *testing.B)   { leaseBesideStore(b, 1000, 0) }
func BenchmarkRedisLeaseCold100000(b *testing.B) { leaseBesideStore(b, 100_000, 0) }
func BenchmarkRedisLeaseWarm1(b *testing.B)      { leaseBesideStore(b, 1, time.Second) }
func BenchmarkRedisLeaseWarm1000(b *testing.B)   { leaseBesideStore(b, 1000, time.Second) }
func BenchmarkRedisLeaseWarm100000(b *testing.B) { leaseBesideStore(b, 100_000, time.Second) }

func leaseBesideStore(b *testing.B, n int, warmUp time.Duration) {
	server := redistest.Start(b)
	for _, c := range []sharedCounter{{name: "heed", open: openLease(100)}, {name: "store", open: openStore}} {
		b.Run(c.name, func(b *testing.B) {
			const batch = 6400
			w, keys, client := workload{goroutines: 64, keys: n}, packKeys(n).split(), single(b, server)
			require.NoError(b, client.FlushAll(background).Err())
			decide, done := c.open(b, client, 1, ample), 0
			for begin := time.Now(); time.Since(begin) < warmUp; done += batch {
				w.call(done, batch, decide, keys)
			}
			var took []time.Duration
			client0, redis0 := processorTime(b), redisTime(b, []*redistest.Server{server})
			for b.Loop() {
				some, wrong := w.call(done, batch, decide, keys)
				done, took = done+batch, append(took, some...)
				tolerate(b, false, wrong)
			}
			each := func(d time.Duration) float64 { return float64(d.Nanoseconds()) / float64(len(took)) }
			b.ReportMetric(each(b.Elapsed()), "ns/op")
			b.ReportMetric(each(processorTime(b)-client0), "client-ns")
			b.ReportMetric(each(redisTime(b, []*redistest.Server{server})-redis0), "redis-ns")
			slices.Sort(took)
			b.ReportMetric(float64(took[len(took)/2]), "p50-ns")
			b.ReportMetric(float64(took[len(took)*99/100]), "p99-ns")
		})
	}
}
