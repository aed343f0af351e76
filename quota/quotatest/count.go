package quotatest

import (
	"cmp"
	"math/big"
	"slices"
	"time"

	"github.com/heedhttp/heed/quota"
)

// A count is what is owed. It finds by trying when units fit. From a Limit it takes only what the
// documentation leaves to the arithmetic: the Tick, whether two Units are equal, and Most. Times
// are in µs since the Unix epoch. Counts are values: no method changes what a count refers to.
type count struct {
	by   *quota.Limit
	at   int64    // when owed was owed; the start of a window; the newest entry of a log
	far  int64    // how far ahead of the clock at was reserved
	owed *big.Rat // units; of a window, those charged in it
	prev *big.Rat // units charged in the window before
	log  []entry  // oldest first
}

func nothing(l *quota.Limit) count { return count{by: l, owed: zero, prev: zero} }

// An entry is the units charged at one time.
type entry struct{ at, units int64 }

// on returns c when time has moved on to t.
func (c count) on(t int64) count {
	window := micros(c.by.Policy().Window)
	switch start := startOf(c.by, t); c.by.Policy().Algorithm {
	case quota.FixedWindow, quota.SlidingWindow:
		if start > c.at {
			c.prev, c.owed = c.owed, zero
		}
		if start > c.at+window || c.by.Policy().Algorithm == quota.FixedWindow {
			c.prev = zero
		}
		c.at = max(c.at, start)
	case quota.SlidingLog:
		gone := func(e entry) bool { return e.units == 0 || e.at <= t-window }
		c.log = slices.DeleteFunc(slices.Clone(c.log), gone)
		c.at, c.owed = t, zero
		for _, e := range c.log {
			c.at, c.owed = e.at, add(c.owed, units(e.units))
		}
	default:
		t -= t % tickOf(c.by)
		if t > c.at {
			c.owed = highest(zero, sub(c.owed, mul(perMicrosecond(c.by), units(t-c.at))))
		}
		if t > c.at || c.owed.Sign() == 0 {
			c.at = t
		}
	}
	return c
}

// free returns how many units fit at t, and parts of one.
func (c count) free(t int64) *big.Rat {
	c = c.on(t)
	free := sub(units(atOnce(c.by)), c.owed)
	switch {
	case windowed(c.by) && c.at > t:
		return zero
	case c.by.Policy().Algorithm == quota.SlidingWindow:
		window, tick := micros(c.by.Policy().Window), tickOf(c.by)
		free = sub(free, mul(c.prev, big.NewRat(window-(t-c.at)/tick*tick, window)))
	}
	return highest(zero, free)
}

// fits reports whether n units fit at t.
func (c count) fits(n, t int64) bool { return c.free(t).Cmp(units(n)) >= 0 }

// first returns the earliest time, from now on, at which n units fit, at most atOnce. What
// fits at one time also fits later.
func (c count) first(n, now int64) int64 {
	if c.fits(n, now) {
		return now
	}
	early, at := now, now+1<<53
	for at-early > 1 {
		if between := early + (at-early)/2; c.fits(n, between) {
			at = between
		} else {
			early = between
		}
	}
	return at
}

// whole returns the earliest time, from now on, at which nothing is owed.
func (c count) whole(now int64) int64 { return c.first(atOnce(c.by), now) }

// owes reports whether anything is owed at now. What was counted in a Calendar's window that
// has ended is not.
func (c count) owes(now int64) bool {
	return !c.over(now) && c.as(c.by, now).whole(now) > now
}

// over reports whether c is of a Calendar's window that has ended.
func (c count) over(now int64) bool {
	return c.by.Policy().Calendar != 0 && endOf(c.by, c.at) <= now
}

// as returns c at now, read by l. Another Limit or Algorithm may have written it, and the clock
// may have been set back since.
func (c count) as(l *quota.Limit, now int64) count {
	latest := now + c.far
	read := count{by: l, at: min(c.at, latest), owed: c.owed, prev: zero}
	if c.by.Unit() != l.Unit() || !drains(l) {
		read.owed = units(ceil(c.owed))
	}
	switch {
	case drains(l):
		read.owed = lowest(add(read.owed, c.prev), most(l))
		tick := tickOf(l)
		read.at = (min(c.at, now) + tick - 1) / tick * tick
	case windowed(l):
		if read.at < c.at {
			read.at = startOf(l, read.at)
		}
		if start := startOf(l, read.at); start < read.at { // so the window before may be a part of this one
			read.at, read.owed = start, add(read.owed, c.prev)
		} else if l.Policy().Algorithm == quota.SlidingWindow {
			read.prev = lowest(c.prev, most(l))
		}
		read.owed = lowest(read.owed, most(l))
	case len(c.log) > 0:
		for _, e := range c.log {
			read.log = append(read.log, entry{min(e.at, latest), e.units})
		}
	default:
		read.log = []entry{{read.at, floor(lowest(add(read.owed, c.prev), most(l)))}}
	}
	return read.on(now).seen(now)
}

// seen returns c with how far its time is ahead of now. Only windows and logs are reserved ahead.
func (c count) seen(now int64) count {
	if c.far = 0; !drains(c.by) {
		c.far = max(0, c.at-now)
	}
	return c
}

// charged returns c with n more units at t.
func (c count) charged(n, t int64) count {
	c.log = slices.Clone(c.log)
	switch last := len(c.log) - 1; {
	case c.by.Policy().Algorithm != quota.SlidingLog:
		c = c.on(t)
	case last >= 0 && c.log[last].at >= t:
		c.log[last].units += n
	default: // what expires before t still counts
		c.log, c.at = append(c.log, entry{t, n}), t
	}
	c.owed = add(c.owed, units(n))
	return c
}

// settled returns c after n units that need not fit. A refund is for what was charged at at or,
// if zero, now.
func (c count) settled(n, at, now int64) count {
	switch l := c.by; {
	case l.Policy().Algorithm == quota.SlidingLog && n > 0:
		if n = min(n, floor(sub(most(l), c.owed))); n > 0 {
			c = c.charged(n, max(now, c.at))
		}
	case l.Policy().Algorithm == quota.SlidingLog && (at == 0 || at > now-micros(l.Policy().Window)):
		c.log, n = slices.Clone(c.log), -max(n, -1<<53)
		for i := range c.log { // the oldest entries from at on, or else the newest
			e := &c.log[i]
			if at == 0 {
				e = &c.log[len(c.log)-1-i]
			}
			if e.at >= at {
				less := min(n, e.units)
				e.units, n = e.units-less, n-less
			}
		}
		c = c.on(now)
	case windowed(l) && n < 0:
		if start := startOf(l, cmp.Or(at, now)); start == c.at {
			c.owed = highest(zero, add(c.owed, units(n)))
		} else if endOf(l, start) == c.at {
			c.prev = highest(zero, add(c.prev, units(n)))
		}
	case l.Policy().Algorithm != quota.SlidingLog:
		c.owed = highest(zero, lowest(most(l), add(c.owed, units(n))))
	}
	return c.seen(now)
}

// compare compares what two counts of one Limit owe.
func (c count) compare(d count) int {
	return cmp.Or(c.owed.Cmp(d.owed), c.prev.Cmp(d.prev), cmp.Compare(c.at, d.at),
		slices.CompareFunc(c.log, d.log, func(e, f entry) int {
			return cmp.Or(cmp.Compare(e.at, f.at), cmp.Compare(e.units, f.units))
		}))
}

func describe(c count, now int64) (d quota.Decision) {
	d.Limit, d.Remaining = c.by.Policy().Quota, floor(c.free(now))
	if whole := c.whole(now); whole > now {
		d.ResetAfter = time.Duration(whole-now) * µs
		d.NextAfter = time.Duration(c.first(d.Remaining+1, now)-now) * µs
	}
	return d
}

// atOnce returns how many units fit if nothing is owed.
func atOnce(l *quota.Limit) int64 {
	if l.Policy().Algorithm == quota.LeakyBucket {
		return l.Policy().Burst + 1
	}
	return l.Policy().Burst
}

// most returns the highest debt that is stored, in units.
func most(l *quota.Limit) *big.Rat { return big.NewRat(l.Most(), l.Unit()) }

// maxDebt returns the highest debt that Settle leaves in a bucket, in units.
func maxDebt(l *quota.Limit) *big.Rat {
	p := l.Policy()
	ticks := micros(cmp.Or(p.MaxDebt, min(10*min(p.Window, 24*h), 24*h))) / tickOf(l)
	return lowest(most(l), add(units(atOnce(l)), mul(perMicrosecond(l), units(ticks*tickOf(l)))))
}

// perMicrosecond returns the rate in units.
func perMicrosecond(l *quota.Limit) *big.Rat {
	return mul(big.NewRat(l.Policy().Quota, int64(l.Policy().Window)), units(1000))
}

func drains(l *quota.Limit) bool { return l.Policy().Algorithm <= quota.LeakyBucket }

func windowed(l *quota.Limit) bool {
	return l.Policy().Algorithm == quota.FixedWindow || l.Policy().Algorithm == quota.SlidingWindow
}

// startOf returns the start of the window that contains t.
func startOf(l *quota.Limit, t int64) int64 {
	p := l.Policy()
	if p.Calendar == 0 {
		return t - t%max(1, micros(p.Window))
	}
	year, month, day := time.UnixMicro(t).In(p.Location).Date()
	start := time.Date(year, month, day, 0, 0, 0, 0, p.Location)
	for p.Calendar == quota.Week && start.Weekday() != time.Monday || p.Calendar == quota.Month && start.Day() != 1 {
		start = start.AddDate(0, 0, -1)
	}
	return start.UnixMicro()
}

// endOf returns the end of the window that contains t.
func endOf(l *quota.Limit, t int64) int64 {
	p, start := l.Policy(), startOf(l, t)
	if p.Calendar == 0 {
		return start + micros(p.Window)
	}
	day := time.UnixMicro(start).In(p.Location)
	switch p.Calendar {
	case quota.Week:
		day = day.AddDate(0, 0, 7)
	case quota.Month:
		day = day.AddDate(0, 1, 0)
	default:
		day = day.AddDate(0, 0, 1)
	}
	return day.UnixMicro()
}

func tickOf(l *quota.Limit) int64 { return micros(l.Tick()) }

func micros(d time.Duration) int64 { return int64(d / µs) }

var zero = new(big.Rat)

func units(n int64) *big.Rat     { return new(big.Rat).SetInt64(n) }
func add(x, y *big.Rat) *big.Rat { return new(big.Rat).Add(x, y) }
func sub(x, y *big.Rat) *big.Rat { return new(big.Rat).Sub(x, y) }
func mul(x, y *big.Rat) *big.Rat { return new(big.Rat).Mul(x, y) }

func lowest(x, y *big.Rat) *big.Rat {
	if x.Cmp(y) < 0 {
		return x
	}
	return y
}

func highest(x, y *big.Rat) *big.Rat {
	if x.Cmp(y) > 0 {
		return x
	}
	return y
}

// floor returns the highest integer that is not above x.
func floor(x *big.Rat) int64 { return new(big.Int).Div(x.Num(), x.Denom()).Int64() } // Div rounds down

func ceil(x *big.Rat) int64 { return -floor(new(big.Rat).Neg(x)) }
