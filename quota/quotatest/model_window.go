package quotatest

import (
	"math/big"
	"sort"
	"time"

	"github.com/heedhttp/heed/quota"
)

// fixed is FixedWindow.
type fixed struct{ *quota.Limit }

// start returns the start of the window that contains t.
func (l fixed) start(t int64) int64 {
	p := l.Policy()
	if p.Calendar == 0 {
		window := int64(p.Window / µs)
		return t / window * window
	}
	day := time.UnixMicro(t).In(p.Location)
	switch p.Calendar {
	case quota.Week:
		for day.Weekday() != time.Monday {
			day = day.AddDate(0, 0, -1)
		}
	case quota.Month:
		for day.Day() != 1 {
			day = day.AddDate(0, 0, -1)
		}
	}
	year, month, date := day.Date()
	return time.Date(year, month, date, 0, 0, 0, 0, p.Location).UnixMicro()
}

// after returns the start of the window after that one.
func (l fixed) after(t int64) int64 {
	if p := l.Policy(); p.Calendar == 0 {
		return l.start(t) + int64(p.Window/µs)
	}
	start, next := l.start(t), t
	for l.start(next) == start {
		next += int64(20 * time.Hour / µs) // less than the shortest day
	}
	return l.start(next)
}

// counted returns the count of the window that contains a's time. That includes the
// previous window of a unless it ends where a's window starts.
func (l fixed) counted(a account) *big.Rat {
	owed := a.owed
	if l.start(a.at) < a.at {
		owed = new(big.Rat).Add(owed, a.prev)
	}
	return limited(account{owed: new(big.Rat).SetInt64(ceil(owed))}, l.Limit).owed
}

// setBack returns a in the window that it is in if the clock was set back.
func (l fixed) setBack(a account, now int64) account {
	if a.at > now+a.far {
		a.at = l.start(now + a.far)
	}
	return a
}

func (l fixed) read(a account, now int64) account {
	a = l.setBack(a, now)
	start := max(l.start(now), l.start(a.at))
	owed := new(big.Rat)
	if a.at >= start {
		owed = l.counted(a)
	}
	return account{by: l.Limit, at: start, owed: owed, prev: new(big.Rat)}
}

func (l fixed) first(a account, n, now int64) int64 {
	if plus(a.owed, n).Cmp(big.NewRat(l.Policy().Quota, 1)) <= 0 {
		return max(now, a.at)
	}
	return l.after(a.at)
}

func (l fixed) charge(a account, n, at int64) account {
	if l.start(at) > a.at {
		return account{by: l.Limit, at: l.start(at), owed: new(big.Rat).SetInt64(n), prev: new(big.Rat)}
	}
	a.owed = plus(a.owed, n)
	return a
}

func (l fixed) refund(a account, n, at, now int64) account {
	if at == 0 {
		at = now
	}
	if l.start(at) == a.at {
		a.owed = minus(a.owed, n)
	}
	return a
}

func (l fixed) free(a account, now int64) int64 {
	if a.at > now {
		return 0
	}
	return floor(minus(big.NewRat(l.Policy().Quota, 1), floor(a.owed)))
}

func (l fixed) whole(a account) int64 {
	if a.owed.Sign() == 0 {
		return a.at
	}
	return l.after(a.at)
}

// sliding is SlidingWindow.
type sliding struct{ *quota.Limit }

func (l sliding) window() int64 { return int64(l.Policy().Window / µs) }

func (l sliding) read(a account, now int64) account {
	windows := fixed(l)
	a = windows.setBack(a, now)
	was := account{by: l.Limit, at: windows.start(a.at), owed: windows.counted(a), prev: new(big.Rat)}
	if was.at == a.at {
		was.prev = limited(account{owed: a.prev}, l.Limit).owed
	}
	for was.at+2*l.window() <= windows.start(now) && was.owed.Sign()+was.prev.Sign() > 0 {
		was = l.next(was)
	}
	if was.owed.Sign()+was.prev.Sign() == 0 {
		was.at = max(was.at, windows.start(now))
	}
	for was.at < windows.start(now) {
		was = l.next(was)
	}
	return was
}

// next returns a in the next window.
func (l sliding) next(a account) account {
	return account{by: l.Limit, at: a.at + l.window(), owed: new(big.Rat), prev: a.owed}
}

// fits reports whether n units fit at a time in a's window or later: the formula in the
// doc.
func (l sliding) fits(a account, n, at int64) bool {
	for at >= a.at+l.window() {
		a = l.next(a)
	}
	if at < a.at {
		return false
	}
	tick := l.Tick().Microseconds()
	gone := (at - a.at) / tick * tick
	weighed := new(big.Rat).Mul(a.prev, big.NewRat(l.window()-gone, l.window()))
	weighed.Add(weighed, a.owed)
	return plus(weighed, n).Cmp(big.NewRat(l.Policy().Quota, 1)) <= 0
}

// first searches for the time: what fits at one time also fits later.
func (l sliding) first(a account, n, now int64) int64 {
	from := max(now, a.at)
	return from + int64(
		sort.Search(int(a.at+3*l.window()-from), func(i int) bool { return l.fits(a, n, from+int64(i)) }),
	)
}

func (l sliding) charge(a account, n, at int64) account {
	for at >= a.at+l.window() {
		a = l.next(a)
	}
	a.owed = plus(a.owed, n)
	return a
}

func (l sliding) refund(a account, n, at, now int64) account {
	if at == 0 {
		at = now
	}
	switch fixed(l).start(at) {
	case a.at:
		a.owed = minus(a.owed, n)
	case a.at - l.window():
		a.prev = minus(a.prev, n)
	}
	return a
}

// free searches for the most units that fit.
func (l sliding) free(a account, now int64) int64 {
	return int64(sort.Search(int(l.Policy().Quota), func(n int) bool { return !l.fits(a, int64(n)+1, now) }))
}

func (l sliding) whole(a account) int64 {
	switch {
	case a.owed.Sign() > 0:
		return a.at + 2*l.window()
	case a.prev.Sign() > 0:
		return a.at + l.window()
	default:
		return a.at
	}
}
