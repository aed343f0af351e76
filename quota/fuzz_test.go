package quota_test

import (
	"cmp"
	"math/big"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/heedhttp/heed/quota"
	"github.com/stretchr/testify/require"
)

// FuzzNeverExceeds runs random takes, reservations and refunds on any policy, and
// compares what was used, when it was used, with the bound in the doc of the Algorithm:
// between any two moments, in exact fractions.
func FuzzNeverExceeds(f *testing.F) {
	run := []byte(
		"\x00\x00\x00\x01\x05\x10\x02\xff\xff\x00\x00\x00\x03\x10\x00\x00\x02\x33\x07\x09\x77\x01\x01\x80\x0b\x80\x80",
	)
	for algorithm := range uint8(6) {
		f.Add(algorithm, uint32(10), uint64(m), uint16(3), run)
		f.Add(algorithm, uint32(7), uint64(m), uint16(0), slices.Repeat([]byte{0, 0, 0, 4, 0, 200}, 40))
		f.Add(algorithm, uint32(1), uint64(s), uint16(0), slices.Repeat(run, 5))
		f.Add(algorithm, uint32(99_991), uint64(24*h), uint16(9), slices.Repeat([]byte{1, 255, 255}, 50))
	}
	f.Fuzz(func(t *testing.T, algorithm uint8, n uint32, window uint64, burst uint16, run []byte) {
		neverExceeds(t, algorithm, int64(n), time.Duration(window), int64(burst), run)
	})
}

func TestAlgorithmsKeepTheirBounds(t *testing.T) {
	random := rand.New(rand.NewChaCha8([32]byte{1}))
	run := make([]byte, 600)
	for range 15 {
		for i := range run {
			run[i] = byte(random.IntN(256) * random.IntN(256) >> random.IntN(12))
		}
		for algorithm := range uint8(6) {
			n, window := int64(1)<<random.IntN(20)+random.Int64N(9), time.Duration(1)<<(12+random.IntN(40))
			neverExceeds(t, algorithm, n, window, random.Int64N(9), run)
		}
	}
}

func neverExceeds(t *testing.T, algorithm uint8, n int64, window time.Duration, burst int64, run []byte) {
	t.Helper()
	p := quota.Policy{Quota: n, Window: window, Burst: burst, Algorithm: quota.Algorithm(algorithm % 6)}
	if p.Algorithm > quota.SlidingLog {
		p = calendar(n, quota.Day, zone(t, "Europe/Berlin"))
	} else if p.Algorithm >= quota.FixedWindow {
		p.Burst, p.Window = 0, p.Window.Truncate(µs)
	}
	limit, err := p.Compile()
	if err != nil {
		return
	}
	u := &user{count: count{t: t, limit: limit, now: noon.UnixMicro()}}
	for len(run) >= 3 && len(u.uses) < 60 {
		u.act(run[0], run[1], run[2])
		run = run[3:]
	}
	u.check()
}

// A user does what bytes say, and remembers its uses.
type user struct {
	count
	uses []use
}

// A use is of n units at a time.
type use struct{ n, at int64 }

// act moves the clock, and takes, reserves or refunds. Windows and quotas are divided
// into 256 parts, so that any of them is soon used up.
func (u *user) act(kind, move, size byte) {
	p := u.limit.Policy()
	window := cmp.Or(p.Window, 24*h)
	u.now += int64(window) / 1000 * int64(move) / 256
	n := 1 + u.limit.AtOnce()*int64(size)/256
	switch kind % 4 {
	case 0, 1:
		if d := u.take(n); d.Allowed {
			u.uses = append(u.uses, use{n, u.now + d.Delay.Microseconds()})
		}
	case 2:
		if wait, ok := u.reserve(n, 3*window); ok {
			u.uses = append(u.uses, use{n, u.now + wait.Microseconds()})
		}
	case 3:
		u.giveBack(int(size))
	}
}

// giveBack refunds one of the last uses, perhaps one that is still in the future. Not a
// past one of a bucket: its units have come back already.
func (u *user) giveBack(which int) {
	if len(u.uses) == 0 || u.limit.Policy().Algorithm <= quota.LeakyBucket {
		return
	}
	i := len(u.uses) - 1 - which%min(4, len(u.uses))
	u.settle(-u.uses[i].n, time.Duration(u.now-u.uses[i].at)*µs)
	u.uses = slices.Delete(u.uses, i, i+1)
}

func (u *user) check() {
	u.t.Helper()
	p := u.limit.Policy()
	switch p.Algorithm {
	case quota.TokenBucket:
		u.spaced(u.limit.AtOnce())
	case quota.LeakyBucket:
		var longest int64 // all units of a charge go with its first
		for _, e := range u.uses {
			longest = max(longest, e.n)
		}
		u.spaced(longest)
	case quota.FixedWindow:
		u.checkFixed()
	case quota.SlidingWindow:
		u.within(p.Window, 2*p.Quota-1)
		u.checkSliding()
	case quota.SlidingLog:
		u.within(p.Window, p.Quota)
	}
}

// spaced checks that in any time t at most atOnce + Quota·t/Window is used. t may be a
// tick longer, because clocks, waits and delays are rounded to a tick.
func (u *user) spaced(atOnce int64) {
	u.t.Helper()
	p := u.limit.Policy()
	tick := u.limit.Tick().Microseconds()
	u.pairs(func(sum, span int64) {
		most := big.NewRat(span+tick, 1)
		most.Mul(
			most, big.NewRat(1000, int64(p.Window)),
		).Mul(most, big.NewRat(p.Quota, 1)).Add(most, big.NewRat(atOnce, 1))
		if big.NewRat(sum, 1).Cmp(most) > 0 {
			u.t.Fatalf("%d units of %s in %d µs", sum, u.limit.Name(), span)
		}
	})
}

// within checks that at most most is used in any half-open time as long as window.
func (u *user) within(window time.Duration, most int64) {
	u.t.Helper()
	u.pairs(func(sum, span int64) {
		if span < window.Microseconds() && sum > most {
			u.t.Fatalf("%d units of %s in %d µs", sum, u.limit.Name(), span)
		}
	})
}

// pairs calls check with what was used from any use to any later one.
func (u *user) pairs(check func(sum, span int64)) {
	slices.SortStableFunc(u.uses, func(e, f use) int { return cmp.Compare(e.at, f.at) })
	for i := range u.uses {
		sum := int64(0)
		for _, e := range u.uses[i:] {
			sum += e.n
			check(sum, e.at-u.uses[i].at)
		}
	}
}

// checkFixed checks that no window has more than the Quota.
func (u *user) checkFixed() {
	u.t.Helper()
	p := u.limit.Policy()
	used := make(map[any]int64)
	for _, e := range u.uses {
		var window any
		if p.Calendar != 0 {
			window = time.UnixMicro(e.at).In(p.Location).Format(time.DateOnly)
		} else {
			window = e.at / p.Window.Microseconds()
		}
		used[window] += e.n
		require.LessOrEqual(u.t, used[window], p.Quota, "units of %s in %v", u.limit.Name(), window)
	}
}

// checkSliding checks the formula for each use: used + before·(Window - e)/Window ≤
// Quota.
func (u *user) checkSliding() {
	u.t.Helper()
	p := u.limit.Policy()
	window := p.Window.Microseconds()
	used := make(map[int64]int64)
	for _, e := range u.uses { // sorted by time
		k, gone := e.at/window, e.at%window
		used[k] += e.n
		weighed := new(big.Rat).Mul(big.NewRat(used[k-1], 1), big.NewRat(window-gone, window))
		weighed.Add(weighed, big.NewRat(used[k], 1))
		require.LessOrEqual(
			u.t, weighed.Cmp(big.NewRat(p.Quota, 1)), 0, "%s of %s", weighed.FloatString(6), u.limit.Name(),
		)
	}
}
