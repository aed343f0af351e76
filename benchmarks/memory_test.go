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

// What a decision costs that is made in memory, the reading of the clock
// included. Each is checked: a limit that is not reached admits, and one that is
// denies.

// ample is a limit that is not reached, and yet gives so little back that every key
// owes something all the time: a store could forget one that does not.
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
		keys, decide := newKeys(n), c.open(b, n, ample)
		for i := 0; b.Loop(); i++ {
			if ok, err := decide(keys.at(i % n)); !ok || err != nil {
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
		keys, decide := newKeys(n), c.open(b, n, limit)
		for i := range n {
			if ok, err := decide(keys.at(i)); !ok || err != nil {
				b.Fatal(ok, err)
			}
		}
		var first, wrong atomic.Int64
		b.ReportAllocs()
		b.ResetTimer()
		b.RunParallel(func(pb *testing.PB) {
			for i := int(first.Add(7919)); pb.Next(); i++ {
				if ok, err := decide(keys.at(i % n)); ok != admitted || err != nil {
					wrong.Add(1)
				}
			}
		})
		tolerate(b, c.races, wrong.Load())
	})
}

// tolerate reports wrong answers, of a library that is known for them.
func tolerate(b *testing.B, races bool, wrong int64) {
	if wrong > 0 {
		if !races {
			b.Errorf("%d of %d answers are wrong", wrong, b.N)
		}
		b.ReportMetric(100*float64(wrong)/float64(b.N), "wrong-%")
	}
}

// keys are n keys of one length in one string, so that they cost the garbage
// collector nothing.
type keys string

const keyBytes = len("192.0.2.0000001")

func newKeys(n int) keys {
	var all strings.Builder
	for i := range n {
		fmt.Fprintf(&all, "192.0.2.%07d", i)
	}
	return keys(all.String())
}

func (k keys) at(i int) string { return string(k[i*keyBytes : (i+1)*keyBytes]) }

const million = 1_000_000

// BenchmarkMemoryMillion measures a decision on one of a million keys that are
// visited in no order, how many bytes each key costs, and what the garbage
// collector needs for all of them.
//
// No order is that of what is kept for the keys: they are added in another one than
// they are visited in, and what is hashed is in none. But their own bytes are visited
// as they lie in memory: to fetch them is nobody's work, for a request brings its key
// along, in the cache.
func BenchmarkMemoryMillion(b *testing.B) {
	const limit = 100 // of which one is given back every 864 s
	keys := newKeys(million)
	eachCounter(b, func(b *testing.B, c counter) {
		if c.keyless {
			b.Skip("it has no keys")
		}
		heapBefore, timeBefore := collected()
		decide := c.open(b, million, limit)
		for i := range million {
			key := strings.Clone(keys.at(i * 611_953 % million)) // as a request brings it
			if ok, err := decide(key); !ok || err != nil {
				b.Fatal(ok, err)
			}
		}
		heap, took := collected()
		next := 0
		visit := func() {
			if ok, err := decide(keys.at(next)); !ok || err != nil {
				b.Fatal(ok, err)
			}
			next = (next + 1) % million
		}
		for range million / 10 { // after the collections
			visit()
		}
		for b.Loop() {
			visit()
		}
		if c.denies && decideAll(decide, keys.at(million/2), limit) == limit {
			b.Error("a key was forgotten")
		}
		b.ReportMetric(float64(heap-heapBefore)/million, "B/key")
		b.ReportMetric(float64(max(0, took-timeBefore).Nanoseconds()), "gc-ns")
		runtime.KeepAlive(decide)
	})
}

// decideAll asks n times, and returns how often the answer was yes.
func decideAll(decide decide, key string, n int) (admitted int) {
	for range n {
		if ok, err := decide(key); ok && err == nil {
			admitted++
		}
	}
	return admitted
}

// collected returns how many bytes of the heap a collection of the garbage leaves,
// and how long it takes, at best. It needs more than one to be rid of what is in pools
// or has finalizers.
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

// BenchmarkMemoryContention has 64 goroutines ask for three times what there is.
// What they are given beyond that, or short of it, or an error instead, is a wrong
// answer.
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

// contend asks three times limit, and counts the wrong answers.
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

// reportWrong reports the wrong answers, and no time: it says nothing here.
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
