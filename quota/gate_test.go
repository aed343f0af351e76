package quota_test

import (
	"context"
	"fmt"
	"runtime"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/heedhttp/heed/quota"
	"github.com/heedhttp/heed/quota/quotatest"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestMemoryIsAGate(t *testing.T) {
	quotatest.RunGate(t, func(*testing.T) quota.Gate { return new(quota.Memory) })
}

func acquire(t testing.TB, m *quota.Memory, key string, limit, n int64) *quota.Hold {
	t.Helper()
	hold, d, err := m.Acquire(ctx, key, limit, n)
	require.NoError(t, err)
	require.True(t, d.Allowed, "%+v", d)
	return hold
}

func TestPlacesAndBucketsAreIndependent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := &quota.Memory{MaxKeys: 1}
		hold := acquire(t, m, "key", 1, 1)
		assert.True(t, take(t, m, "key", 1, compile(t, quota.PerHour(1))).Allowed)
		assert.True(t, take(t, m, "other", 1, compile(t, quota.PerHour(1))).Allowed, "evicts a bucket")
		time.Sleep(time.Minute)
		_, d, err := m.Acquire(ctx, "key", 1, 1)
		require.NoError(t, err)
		assert.False(t, d.Allowed)
		assert.True(t, d.At.Equal(time.Now()))
		hold.Release()
		assert.Zero(t, quota.KeysInFlight(m))
	})
}

func TestAKeyWithoutHoldsTakesNoMemory(t *testing.T) {
	const keys = 20_000
	m := new(quota.Memory)
	before := inUse()
	for round := range 3 {
		holds := make([]*quota.Hold, keys)
		for i := range holds {
			holds[i] = acquire(t, m, fmt.Sprint("key ", round, i), 1, 1)
		}
		assert.EqualValues(t, keys, quota.KeysInFlight(m))
		for _, hold := range holds {
			hold.Release()
		}
		assert.Zero(t, quota.KeysInFlight(m))
	}
	if grown := inUse() - before; grown > 64<<10 {
		t.Errorf("%d bytes are retained", grown)
	}
	runtime.KeepAlive(m)
}

// inUse returns the size of the reachable heap.
func inUse() int64 {
	runtime.GC()
	runtime.GC()
	var stats runtime.MemStats
	runtime.ReadMemStats(&stats)
	return int64(stats.HeapAlloc)
}

func TestADroppedHoldReleasesItsPlacesAndIsCounted(t *testing.T) {
	m := new(quota.Memory)
	kept := acquire(t, m, "key", 20, 1)
	for range 10 {
		acquire(t, m, "key", 20, 1)
	}
	acquire(t, m, "key", 20, 1).Release()
	require.Eventually(t, func() bool { runtime.GC(); return m.Dropped() == 10 }, time.Minute, time.Millisecond)
	_, d, err := m.Acquire(ctx, "key", 20, 20)
	require.NoError(t, err)
	assert.EqualValues(t, 19, d.Remaining)
	kept.Release()
	runtime.GC()
	assert.EqualValues(t, 10, m.Dropped())
}

func TestALostHoldIsReleasedOnceAndOtherCallsWait(t *testing.T) {
	begun, end, lost := make(chan struct{}), make(chan struct{}), make(chan struct{})
	times := 0
	hold := quota.NewHold(func() { close(begun); <-end; times++ }, nil, lost)
	close(lost)
	<-hold.Lost()
	var all sync.WaitGroup
	all.Go(hold.Release)
	<-begun
	for range 5 {
		all.Go(func() {
			hold.Release()
			assert.Equal(t, 1, times)
		})
	}
	time.Sleep(10 * time.Millisecond) // for calls that do not wait
	close(end)
	all.Wait()
	new(quota.Hold).Release()
}

func TestAnAcquireErrorNamesTheArgument(t *testing.T) {
	for want, args := range map[string][2]int64{
		"limit is 0: must be at least 1":                {0, 1},
		"limit is 9007199254740992: must be below 2^53": {1 << 53, 1},
		"n is -2: must not be negative":                 {1, -2},
	} {
		assert.EqualError(t, quota.CheckAcquire(args[0], args[1]), "quota: acquire: "+want)
	}
}

// A handler serves at most two requests at a time.
func ExampleMemory_Acquire() {
	var gate quota.Memory
	serve := func(name string, work func()) {
		hold, decision, err := gate.Acquire(context.Background(), "reports", 2, 1)
		if err != nil || !decision.Allowed {
			fmt.Println(name, "is turned away")
			return
		}
		defer hold.Release()
		fmt.Println(name, "is served, and there is room for", decision.Remaining)
		work()
	}
	serve("alice", func() {
		serve("bob", func() {
			serve("carol", func() {})
		})
		serve("dave", func() {})
	})
	// Output:
	// alice is served, and there is room for 1
	// bob is served, and there is room for 0
	// carol is turned away
	// dave is served, and there is room for 0
}
