//go:build unix

package benchmarks_test

import (
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/heedhttp/heed/internal/redistest"
)

// These benchmarks measure a decision in a Redis on the same machine: the time of the client and
// the time of Redis. Each decision is checked.

// patience is a Timeout that is long enough for a busy machine.
const patience = 30 * time.Second

// plentiful is a limit that is never reached, and refills more slowly than it is used.
const plentiful = 1_000_000

func BenchmarkRedis1(b *testing.B)   { compare(b, workload{goroutines: 1, keys: 1000}) }
func BenchmarkRedis16(b *testing.B)  { compare(b, workload{goroutines: 16, keys: 1000}) }
func BenchmarkRedis64(b *testing.B)  { compare(b, workload{goroutines: 64, keys: 1000}) }
func BenchmarkRedis256(b *testing.B) { compare(b, workload{goroutines: 256, keys: 1000}) }
func BenchmarkRedisHot(b *testing.B) { compare(b, workload{goroutines: 64, keys: 1}) }

func BenchmarkRedisRules1(b *testing.B)  { compare(b, workload{goroutines: 1, keys: 1000, rules: 4}) }
func BenchmarkRedisRules64(b *testing.B) { compare(b, workload{goroutines: 64, keys: 1000, rules: 4}) }

func BenchmarkRedisDenied1(b *testing.B) { compare(b, workload{goroutines: 1, keys: 1, denied: true}) }
func BenchmarkRedisDenied64(b *testing.B) {
	compare(b, workload{goroutines: 64, keys: 1, denied: true})
}

// A lease takes up to most decisions in one round trip, for which the callers of its key wait.
func BenchmarkRedisLeased10(b *testing.B)      { leasing(b, 1, 10, 0) }
func BenchmarkRedisLeased100(b *testing.B)     { leasing(b, 1, 100, 0) }
func BenchmarkRedisLeased10By64(b *testing.B)  { leasing(b, 64, 10, 0) }
func BenchmarkRedisLeased100By64(b *testing.B) { leasing(b, 64, 100, 0) }

// BenchmarkRedisLeasedPaced measures how long a decision takes if there is time to take units
// ahead. The row bare decides in memory, and shows what the sleep of its caller alone adds.
func BenchmarkRedisLeasedPaced(b *testing.B) { leasing(b, 4, 100, time.Millisecond) }

func leasing(b *testing.B, goroutines int, most int64, pause time.Duration) {
	compare(b, workload{goroutines: goroutines, keys: 1, pause: pause, heed: openLease(most)})
}

// A workload says which decisions a library makes.
type workload struct {
	goroutines, keys int
	rules            int // 1 if zero
	denied           bool
	pause            time.Duration // of each goroutine, after a decision
	heed             openShared    // how heed decides; openStore if nil
}

// compare has each library do w: heed first, then the plain forms if heed uses a Store.
func compare(b *testing.B, w workload) {
	server, counters := redistest.Start(b), sharedCounters
	if w.heed == nil && !w.denied {
		counters = slices.Concat(sharedCounters, plainForms)
	}
	if w.pause > 0 {
		b.Run("bare", func(b *testing.B) { w.measure(b, inMemory, single(b, server), server) })
	}
	for _, c := range counters {
		b.Run(c.name, func(b *testing.B) {
			if w.heed != nil {
				if c.races {
					b.Skip("most of its answers would be errors: see BenchmarkRedisHot")
				}
				if c.name == "heed" {
					c.open = w.heed
				}
			}
			w.measure(b, c, single(b, server), server)
		})
	}
}

func BenchmarkRedisCluster(b *testing.B) {
	nodes := redistest.StartCluster(b)
	for _, c := range sharedCounters {
		b.Run(c.name, func(b *testing.B) {
			if c.alone {
				b.Skip("it has no Cluster")
			}
			workload{goroutines: 64, keys: 1000}.measure(b, c, cluster(b, nodes), nodes...)
		})
	}
}

// single and cluster return a client with the default options of go-redis.
func single(tb testing.TB, server *redistest.Server) redis.UniversalClient {
	client := redis.NewClient(&redis.Options{Addr: server.Addr})
	tb.Cleanup(func() { client.Close() })
	return client
}

func cluster(tb testing.TB, nodes []*redistest.Server) redis.UniversalClient {
	var addrs []string
	for _, node := range nodes {
		addrs = append(addrs, node.Addr)
	}
	client := redis.NewClusterClient(&redis.ClusterOptions{Addrs: addrs})
	tb.Cleanup(func() { client.Close() })
	return client
}

// measure makes b.N decisions.
func (w workload) measure(b *testing.B, c sharedCounter, client redis.UniversalClient, servers ...*redistest.Server) {
	limit := plentiful
	if w.denied {
		limit = 1
	}
	decide, keys := c.open(b, client, max(1, w.rules), limit), packKeys(w.keys).split()
	require.NoError(b, client.FlushAll(background).Err())
	for _, key := range keys {
		if ok, err := decide(background, key); !ok || err != nil {
			b.Fatal(ok, err)
		}
	}
	w.call(0, w.before(), decide, keys)
	b.ReportAllocs()
	client0, redis0 := processorTime(b), redisTime(b, servers)
	b.ResetTimer()
	took, wrong := w.call(0, b.N, decide, keys)
	b.StopTimer()
	tolerate(b, c.races, wrong)
	each := func(d time.Duration) float64 { return float64(d.Nanoseconds()) / float64(b.N) }
	b.ReportMetric(each(processorTime(b)-client0), "client-ns")
	b.ReportMetric(each(redisTime(b, servers)-redis0), "redis-ns")
	if w.pause > 0 {
		b.ReportMetric(0, "ns/op")
	}
	slices.Sort(took)
	b.ReportMetric(float64(took[len(took)/2]), "p50-ns")
	b.ReportMetric(float64(took[len(took)*99/100]), "p99-ns")
}

// before is how many decisions are made before any is measured: enough to open all connections,
// and for a lease to learn the demand.
func (w workload) before() int {
	if w.heed != nil {
		return 100 * w.goroutines
	}
	return 2 * w.goroutines
}

// call makes n decisions, beginning with number first, and returns how long each took and how
// many were wrong.
func (w workload) call(first, n int, decide decideShared, keys []string) ([]time.Duration, int64) {
	took := make([]time.Duration, n)
	var wrong atomic.Int64
	var all sync.WaitGroup
	for g := range w.goroutines {
		all.Go(func() {
			for i := g; i < n; i += w.goroutines {
				begin := time.Now()
				ok, err := decide(background, keys[(first+i)*7919%w.keys])
				took[i] = time.Since(begin)
				if ok == w.denied || err != nil {
					wrong.Add(1)
				}
				if w.pause > 0 {
					time.Sleep(w.pause)
				}
			}
		})
	}
	all.Wait()
	return took, wrong.Load()
}

// processorTime returns the processor time of this process.
func processorTime(tb testing.TB) time.Duration {
	var u syscall.Rusage
	require.NoError(tb, syscall.Getrusage(syscall.RUSAGE_SELF, &u))
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// redisTime returns the processor time of the servers.
func redisTime(tb testing.TB, servers []*redistest.Server) (total time.Duration) {
	for _, s := range servers {
		info, err := s.Do("INFO", "cpu")
		require.NoError(tb, err)
		for _, name := range []string{"used_cpu_sys:", "used_cpu_user:"} {
			_, rest, found := strings.Cut(info, name)
			require.True(tb, found, info)
			var seconds float64
			_, err := fmt.Sscan(rest, &seconds)
			require.NoError(tb, err)
			total += time.Duration(seconds * float64(time.Second))
		}
	}
	return total
}

// BenchmarkRedisContention is BenchmarkMemoryContention, on one key in Redis.
func BenchmarkRedisContention(b *testing.B) {
	const goroutines, limit = 64, 1000
	server := redistest.Start(b)
	for _, c := range sharedCounters {
		b.Run(c.name, func(b *testing.B) {
			client := single(b, server)
			var wrong, asked int
			for b.Loop() {
				require.NoError(b, client.FlushAll(background).Err())
				decide := c.open(b, client, 1, limit) // a new one, without memory
				wrong += contend(goroutines, limit, func() (bool, error) { return decide(background, c.key) })
				asked += 3 * limit
			}
			reportWrong(b, wrong, asked)
		})
	}
}

// BenchmarkRedisMemory measures the memory of Redis for one subject, whose key has 20 characters.
func BenchmarkRedisMemory(b *testing.B) {
	server := redistest.Start(b)
	for _, c := range sharedCounters {
		b.Run(c.name, func(b *testing.B) {
			client := single(b, server)
			b.ReportMetric(0, "ns/op")
			b.ReportMetric(memoryUsage(b, c, client, 1), "one-B")
			b.ReportMetric(memoryUsage(b, c, client, 4), "four-B")
		})
	}
}

// memoryUsage returns the bytes of all keys of one subject, with so many rules.
func memoryUsage(tb testing.TB, c sharedCounter, client redis.UniversalClient, rules int) (total float64) {
	decide := c.open(tb, client, rules, plentiful)
	require.NoError(tb, client.FlushAll(background).Err())
	ok, err := decide(background, c.key)
	require.NoError(tb, err)
	require.True(tb, ok)
	names, err := client.Keys(background, "*").Result()
	require.NoError(tb, err)
	require.NotEmpty(tb, names)
	for _, name := range names {
		require.Len(tb, name, 20)
		used, err := client.MemoryUsage(background, name).Result()
		require.NoError(tb, err)
		total += float64(used)
	}
	return total
}

func TestEverySharedCounterAdmitsItsLimitAndNoMore(t *testing.T) {
	server := redistest.Start(t)
	client := redis.NewClient(&redis.Options{
		Addr: server.Addr, DialTimeout: patience, ReadTimeout: patience, WriteTimeout: patience,
		MaxRetries: -1, // a retry would count a second time
	})
	t.Cleanup(func() { client.Close() })
	for _, c := range slices.Concat(sharedCounters, plainForms) {
		for _, rules := range []int{1, 4} {
			require.NoError(t, client.FlushAll(background).Err())
			decide := c.open(t, client, rules, 5)
			for i := range 8 {
				ok, err := decide(background, c.key)
				require.NoError(t, err, c.name)
				require.Equal(t, i < 5, ok, "%s, %d rules, request %d", c.name, rules, i)
			}
		}
	}
}
