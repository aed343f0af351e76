package quotatest

import (
	"math/big"

	"github.com/heedhttp/heed/quota"
)

// draining is TokenBucket and LeakyBucket: debt is paid back at a rate, by a clock that
// ticks. A debt from the future is owed now.
type draining struct{ *quota.Limit }

func (l draining) read(a account, now int64) account {
	tick := l.Tick().Microseconds()
	a.at, now = min(a.at, now), now/tick*tick
	owed, at := new(big.Rat).Add(a.owed, a.prev), (a.at+tick-1)/tick*tick
	if a.by.Unit() != l.Unit() {
		owed = plus(a.prev, ceil(a.owed)) // rounded up to a unit
	}
	a = limited(account{by: l.Limit, at: at, owed: owed, prev: new(big.Rat)}, l.Limit)
	if at < now {
		a.owed, a.at = new(big.Rat).Sub(a.owed, new(big.Rat).Mul(l.perMicrosecond(), big.NewRat(now-at, 1))), now
	}
	if a.owed.Sign() <= 0 {
		a.owed, a.at = new(big.Rat), now
	}
	return a
}

func (l draining) first(a account, n, now int64) int64 {
	over := plus(a.owed, n-atOnce(l.Limit))
	if over.Sign() <= 0 {
		return now
	}
	return l.paid(a, over)
}

// paid returns when so many units of a's debt are paid: at a tick.
func (l draining) paid(a account, units *big.Rat) int64 {
	tick := l.Tick().Microseconds()
	perTick := new(big.Rat).Mul(l.perMicrosecond(), big.NewRat(tick, 1))
	return a.at + ceil(new(big.Rat).Quo(units, perTick))*tick
}

// charge charges now, even if the units may only be used later.
func (l draining) charge(a account, n, _ int64) account {
	a.owed = plus(a.owed, n)
	return a
}

func (l draining) refund(a account, n, _, _ int64) account {
	a.owed = minus(a.owed, n)
	return a
}

func (l draining) free(a account, _ int64) int64 {
	return max(0, floor(new(big.Rat).Sub(big.NewRat(atOnce(l.Limit), 1), a.owed)))
}

func (l draining) whole(a account) int64 {
	if a.owed.Sign() == 0 {
		return 0
	}
	return l.paid(a, a.owed)
}

// perMicrosecond returns the rate in units.
func (l draining) perMicrosecond() *big.Rat {
	p := l.Policy()
	return new(big.Rat).Mul(big.NewRat(p.Quota, int64(p.Window)), big.NewRat(1000, 1))
}
