package redisstore_test

import (
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/heedhttp/heed/internal/testenv"
	"github.com/heedhttp/heed/quota"
	"github.com/stretchr/testify/assert"
)

// stated returns full for the long form of a test, and otherwise short.
func stated[T any](full, short T) T {
	if testenv.Long() {
		return full
	}
	return short
}

// A ledger records when units were used, in µs of Redis' clock.
type ledger struct {
	mu   sync.Mutex // guards what follows
	used []int64
}

func (l *ledger) add(at int64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.used = append(l.used, at)
}

// times returns all recorded times in order.
func (l *ledger) times() []int64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Sorted(slices.Values(l.used))
}

// excess returns by how many units the uses exceed Burst + Quota·t/Window, in the worst time t. It uses a
// bucket that admits everything.
func excess(used []int64, p quota.Policy) int64 {
	var worst, level int64 // in parts of 1/window of a unit
	window := p.Window.Microseconds()
	for i, at := range used {
		if i > 0 {
			level = max(0, level-(at-used[i-1])*p.Quota)
		}
		level += window
		worst = max(worst, level-p.Burst*window)
	}
	return (worst + window - 1) / window
}

// between returns the uses from one time to another.
func between(used []int64, from, to time.Time) []int64 {
	first, _ := slices.BinarySearch(used, from.UnixMicro())
	last, _ := slices.BinarySearch(used, to.UnixMicro())
	return used[first:max(first, last)]
}

func TestExcessCountsUnitsThatNoBucketAdmits(t *testing.T) {
	p := quota.Policy{Quota: 2, Window: time.Second, Burst: 3}
	for _, test := range []struct {
		want int64
		used []int64
	}{
		{0, nil},
		{0, []int64{0, 0, 0}},
		{1, []int64{0, 0, 0, 0}},
		{0, []int64{0, 0, 0, 500_000, 1_000_000}},
		{1, []int64{0, 0, 0, 499_999}},
		{2, []int64{0, 0, 0, 0, 0, 500_000}},
		{0, []int64{0, 10_000_000, 10_000_000, 10_000_000, 10_500_000}},
		{1, []int64{0, 10_000_000, 10_000_000, 10_000_000, 10_400_000}},
	} {
		assert.Equal(t, test.want, excess(test.used, p), "%v", test.used)
	}
}
