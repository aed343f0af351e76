package quotatest

import (
	"math/big"
	"slices"

	"github.com/heedhttp/heed/quota"
)

// logged is SlidingLog.
type logged struct{ *quota.Limit }

func (l logged) window() int64 { return int64(l.Policy().Window / µs) }

func (l logged) read(a account, now int64) account {
	log := slices.Clone(a.log)
	for i := range log {
		log[i].at = min(log[i].at, now+a.far) // the clock was set back
	}
	if len(log) == 0 {
		owed := limited(account{owed: new(big.Rat).Add(new(big.Rat).SetInt64(ceil(a.owed)), a.prev)}, l.Limit).owed
		log = []entry{{min(a.at, now+a.far), floor(owed)}}
	}
	log = slices.DeleteFunc(log, func(e entry) bool { return e.units == 0 || e.at <= now-l.window() })
	return l.of(log, now)
}

// of returns the account of log.
func (l logged) of(log []entry, now int64) account {
	a := account{by: l.Limit, at: now, owed: new(big.Rat), prev: new(big.Rat), log: log}
	for _, e := range log {
		a.at, a.owed = e.at, plus(a.owed, e.units)
	}
	return a
}

// used returns how many units of the log, past and future, count at a time.
func (l logged) used(a account, at int64) (sum int64) {
	for _, e := range a.log {
		if e.at > at-l.window() {
			sum += e.units
		}
	}
	return sum
}

func (l logged) first(a account, n, now int64) int64 {
	if l.used(a, now)+n <= l.Policy().Quota {
		return now
	}
	for _, e := range a.log {
		if at := e.at + l.window(); l.used(a, at)+n <= l.Policy().Quota {
			return at
		}
	}
	panic("a log never empties")
}

func (l logged) charge(a account, n, at int64) account {
	if n <= 0 {
		return a // owes the maximum
	}
	log := slices.Clone(a.log)
	if last := len(log) - 1; last >= 0 && at <= log[last].at {
		log[last].units += n
	} else {
		log = append(log, entry{at, n})
	}
	return l.of(log, at)
}

func (l logged) refund(a account, n, at, now int64) account {
	if at != 0 && at <= now-l.window() {
		return a
	}
	log := slices.Clone(a.log)
	if at == 0 {
		slices.Reverse(log)
	}
	for i := range log {
		if at == 0 || log[i].at >= at {
			less := min(n, log[i].units)
			log[i].units, n = log[i].units-less, n-less
		}
	}
	if at == 0 {
		slices.Reverse(log)
	}
	return l.of(slices.DeleteFunc(log, func(e entry) bool { return e.units == 0 }), now)
}

func (l logged) free(a account, now int64) int64 { return max(0, l.Policy().Quota-l.used(a, now)) }

func (l logged) whole(a account) int64 {
	if len(a.log) == 0 {
		return a.at
	}
	return a.log[len(a.log)-1].at + l.window()
}
