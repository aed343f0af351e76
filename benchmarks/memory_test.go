package benchmarks_test

import (
	"fmt"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// These benchmarks measure a decision in memory. Each row pays for reading the clock and for
// fetching a random key from memory. Each decision is checked.

// ample is a limit that is never reached. It refills so slowly that no key is ever full, because
// a store could evict a full one.
const ample = 100_000_000

func BenchmarkMemoryOneSerial(b *testing.B)        { serially(b, 1) }
func BenchmarkMemoryOneParallel(b *testing.B)      { inParallel(b, 1, true) }
func BenchmarkMemoryThousandSerial(b *testing.B)   { serially(b, 1000) }
func BenchmarkMemoryThousandParallel(b *testing.B) { inParallel(b, 1000, true) }
func BenchmarkMemoryDenial(b *testing.B)           { inParallel(b, 1000, false) }

func eachCounter(b *testing.B, bench func(*testing.B, counter)) {
	for _, c := range counters {
		b.Run(c.name, func(b *testing.B) { bench(b, c) })
	}
}

func serially(b *testing.B, n int) {
	eachCounter(b, func(b *testing.B, c counter) {
		b.ReportAllocs()
		keys, decide := packKeys(n).split(), c.open(b, n, ample)
		fill(b, keys, decide)
		order := newOrder(1)
		for b.Loop() {
			if ok, err := decide(keys[order.next(n)]); !ok || err != nil {
				b.Fatal(ok, err)
			}
		}
	})
}

func inParallel(b *testing.B, n int, admitted bool) {
	limit := 1
	if admitted {
		limit = ample
	}
	eachCounter(b, func(b *testing.B, c counter) {
		if !admitted && !c.denies {
			b.Skip("it does not deny")
		}
		keys, decide := packKeys(n).split(), c.open(b, n, limit)
		fill(b, keys, decide)
		var goroutines, wrong atomic.Int64
		b.ReportAllocs()
		b.ResetTimer()
		b.RunParallel(func(pb *testing.PB) {
			for order := newOrder(goroutines.Add(1)); pb.Next(); {
				if ok, err := decide(keys[order.next(n)]); ok != admitted || err != nil {
					wrong.Add(1)
				}
			}
		})
		tolerate(b, c.races, wrong.Load())
	})
}

// fill decides each key once, which adds it. The string is a new one, as in each request.
func fill(b *testing.B, keys []string, decide decide) {
	for _, key := range keys {
		if ok, err := decide(strings.Clone(key)); !ok || err != nil {
			b.Fatal(ok, err)
		}
	}
}

// An order has random numbers, by xorshift, so that successive keys are far apart in memory.
type order uint64

func newOrder(seed int64) order { return order(uint64(seed) * 0x9e3779b97f4a7c15) }

// next returns a number below n.
func (o *order) next(n int) int {
	*o ^= *o << 13
	*o ^= *o >> 7
	*o ^= *o << 17
	return int(uint64(*o) >> 32 * uint64(n) >> 32)
}

// tolerate reports the wrong answers of a library that is known for them.
func tolerate(b *testing.B, races bool, wrong int64) {
	if wrong > 0 {
		if !races {
			b.Errorf("%d of %d answers are wrong", wrong, b.N)
		}
		b.ReportMetric(100*float64(wrong)/float64(b.N), "wrong-%")
	}
}

// packed has keys of one length in one string, so that the garbage collector has no work.
type packed string

const keyBytes = len("192.0.2.0000001")

func packKeys(n int) packed {
	var all strings.Builder
	for i := range n {
		fmt.Fprintf(&all, "192.0.2.%07d", i)
	}
	return packed(all.String())
}

func (p packed) at(i int) string { return string(p[i*keyBytes : (i+1)*keyBytes]) }

// split returns each key as a string.
func (p packed) split() []string {
	keys := make([]string, len(p)/keyBytes)
	for i := range keys {
		keys[i] = p.at(i)
	}
	return keys
}

const million = 1_000_000

// BenchmarkMemoryMillion measures a decision on one of a million keys, with one goroutine and
// with one for each processor. It also measures the bytes of each key, and how long a garbage
// collection takes with all of them.
func BenchmarkMemoryMillion(b *testing.B) {
	const limit = 100 // refilled by one every 864 s
	packed := packKeys(million)
	eachCounter(b, func(b *testing.B, c counter) {
		if c.keyless {
			b.Skip("it has no keys")
		}
		heapBefore, timeBefore := collected()
		decide := c.open(b, million, limit)
		for i := range million {
			key := strings.Clone(packed.at(i)) // as a request brings it
			if ok, err := decide(key); !ok || err != nil {
				b.Fatal(ok, err)
			}
		}
		heap, took := collected()
		keys, order := packed.split(), newOrder(1)
		visit := func() {
			if ok, err := decide(keys[order.next(million)]); !ok || err != nil {
				b.Fatal(ok, err)
			}
		}
		for range million / 10 { // after the collections
			visit()
		}
		for b.Loop() {
			visit()
		}
		b.ReportMetric(parallelTime(b, c, keys, decide), "parallel-ns")
		if c.denies && decideAll(decide, keys[million/2], limit) == limit {
			b.Error("a key was forgotten")
		}
		b.ReportMetric(float64(heap-heapBefore)/million, "B/key")
		b.ReportMetric(float64(max(0, took-timeBefore).Nanoseconds()), "gc-ns")
		runtime.KeepAlive(decide)
	})
}

// parallelTime returns how long a decision takes, in ns, while all processors make decisions.
func parallelTime(b *testing.B, c counter, keys []string, decide decide) float64 {
	const each = 200_000
	var wrong atomic.Int64
	var all sync.WaitGroup
	begin, processors := time.Now(), runtime.GOMAXPROCS(0)
	for g := range processors {
		all.Go(func() {
			order := newOrder(int64(2 + g))
			for range each {
				if ok, err := decide(keys[order.next(len(keys))]); !ok || err != nil {
					wrong.Add(1)
				}
			}
		})
	}
	all.Wait()
	took := time.Since(begin)
	if wrong.Load() > 0 && !c.races {
		b.Errorf("%d answers are wrong", wrong.Load())
	}
	return float64(took.Nanoseconds()) / float64(each*processors)
}

// decideAll makes n decisions, and returns how many admit.
func decideAll(decide decide, key string, n int) (admitted int) {
	for range n {
		if ok, err := decide(key); ok && err == nil {
			admitted++
		}
	}
	return admitted
}

// collected returns how many bytes a garbage collection leaves on the heap, and how long the
// fastest takes. Several are needed to empty pools and run finalizers.
func collected() (heap int64, took time.Duration) {
	took = time.Hour
	for range 3 {
		begin := time.Now()
		runtime.GC()
		took = min(took, time.Since(begin))
	}
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc), took
}

// BenchmarkMemoryContention has 64 goroutines ask for three times the limit. Each unit too many
// or too few, and each error, is a wrong answer.
func BenchmarkMemoryContention(b *testing.B) {
	const goroutines, limit = 64, 1000
	eachCounter(b, func(b *testing.B, c counter) {
		if !c.denies {
			b.Skip("it does not deny")
		}
		var wrong, asked int
		for b.Loop() {
			decide := c.open(b, 2, limit)
			wrong += contend(goroutines, limit, func() (bool, error) { return decide("192.0.2.1") })
			asked += 3 * limit
		}
		reportWrong(b, wrong, asked)
	})
}

// contend asks three times as often as limit, and counts the wrong answers.
func contend(goroutines, limit int, decide func() (bool, error)) (wrong int) {
	var asked, admitted, failed atomic.Int64
	var all sync.WaitGroup
	for range goroutines {
		all.Go(func() {
			for asked.Add(1) <= int64(3*limit) {
				ok, err := decide()
				if err != nil {
					failed.Add(1)
				} else if ok {
					admitted.Add(1)
				}
			}
		})
	}
	all.Wait()
	return max(int(admitted.Load())-limit, limit-int(admitted.Load())) + int(failed.Load())
}

// reportWrong reports the wrong answers, and no time, which means nothing here.
func reportWrong(b *testing.B, wrong, asked int) {
	b.ReportMetric(0, "ns/op")
	b.ReportMetric(100*float64(wrong)/float64(asked), "wrong-%")
}

func TestEveryCounterAdmitsItsLimitAndNoMore(t *testing.T) {
	for _, c := range counters {
		for _, keys := range []int{1, 2} {
			decide := c.open(t, keys, 5)
			for i := range 8 {
				ok, err := decide("192.0.2.1")
				require.NoError(t, err, c.name)
				require.Equal(t, i < 5 || !c.denies, ok, "%s, request %d", c.name, i)
			}
		}
	}
}
