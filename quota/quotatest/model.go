package quotatest

import (
	"math/big"
	"time"

	"github.com/heedhttp/heed/quota"
)

// A model counts as quota.Store promises, in fractions of any length. It shares
// no arithmetic with package quota but the sizes of a Limit's tick and unit, which
// say when something that is owed counts as paid, and the most it lets be owed.
type model struct{ buckets map[modelID]modelBucket }

type modelID struct {
	key, name string
	dryRun    bool
}

// A modelBucket owes units at a moment, in µs since the Unix epoch.
type modelBucket struct {
	owed *big.Rat
	at   int64
	unit int64 // of the Limit that wrote it
}

func newModel() *model { return &model{buckets: make(map[modelID]modelBucket)} }

// A modelVisit is what becomes of one charge.
type modelVisit struct {
	id                modelID
	found, met, after modelBucket
	wait              time.Duration
	fits              bool
}

// visit decides charges at now, in µs, changing nothing.
func (m *model) visit(charges []quota.Charge, longest time.Duration, now int64) (visits []modelVisit, allowed bool) {
	allowed = true
	mine := make(map[modelID]modelVisit)
	for _, c := range charges {
		v := modelVisit{id: modelID{c.Key, c.Limit.Name(), c.DryRun}}
		if before, ok := mine[v.id]; ok {
			v.found, v.met = advance(before.found, c.Limit, now), advance(before.after, c.Limit, now)
		} else {
			v.found = advance(m.buckets[v.id], c.Limit, now)
			v.met = v.found
		}
		v.after = v.met
		v.wait = waitFor(v.met, c.Limit, units(c), now)
		room := new(big.Rat).Sub(most(c.Limit), v.met.owed)
		if v.wait <= max(0, longest) && room.Cmp(big.NewRat(units(c), 1)) >= 0 {
			v.fits, v.after = true, v.met.with(c.Limit, units(c))
		}
		allowed = allowed && (v.fits || c.DryRun)
		mine[v.id] = v
		visits = append(visits, v)
	}
	return visits, allowed
}

// take decides charges, and makes them if taking and all fit.
func (m *model) take(charges []quota.Charge, taking bool, now int64) (ds []quota.Decision) {
	visits, allowed := m.visit(charges, 0, now)
	for i, v := range visits {
		c, left := charges[i], v.found
		if taking && allowed && v.fits {
			left = v.after
			m.buckets[v.id] = left
		}
		d := quota.Decision{Allowed: v.fits, Limit: c.Limit.Policy().Quota, At: time.UnixMicro(now)}
		if !v.fits {
			d.Never = asked(charges[:i+1]) > c.Limit.Policy().Burst
			if !d.Never {
				d.RetryAfter = v.wait
			}
		}
		describe(&d, left, c.Limit, now)
		ds = append(ds, d)
	}
	return ds
}

func (m *model) reserve(charges []quota.Charge, longest time.Duration, now int64) (wait time.Duration, ok bool) {
	visits, ok := m.visit(charges, longest, now)
	for i, v := range visits {
		if !charges[i].DryRun {
			wait = max(wait, v.wait)
		}
		if ok && v.fits {
			m.buckets[v.id] = v.after
		}
	}
	return wait, ok
}

func (m *model) settle(charges []quota.Charge, now int64) {
	for _, c := range charges {
		id := modelID{c.Key, c.Limit.Name(), c.DryRun}
		met := advance(m.buckets[id], c.Limit, now)
		if after := met.with(c.Limit, c.N); after.owed.Cmp(met.owed) != 0 {
			m.buckets[id] = after
		}
	}
}

// units is how many c asks for.
func units(c quota.Charge) int64 {
	if c.N == 0 {
		return 1
	}
	return c.N
}

// asked is how many units are asked in all of the bucket of the last of charges.
func asked(charges []quota.Charge) (sum int64) {
	last := charges[len(charges)-1]
	for _, c := range charges {
		if c.Key == last.Key && c.Limit.Name() == last.Limit.Name() && c.DryRun == last.DryRun {
			sum += units(c)
		}
	}
	return sum
}

// advance is what b owes under l when its clock, which ticks, shows now.
func advance(b modelBucket, l *quota.Limit, now int64) modelBucket {
	tick := l.Tick().Microseconds()
	now = now / tick * tick
	if b.owed == nil || b.at > now+24*time.Hour.Microseconds() {
		return modelBucket{new(big.Rat), now, l.Unit()}
	}
	owed, at := b.owed, (b.at+tick-1)/tick*tick
	if b.unit != l.Unit() {
		owed = roundUp(owed, l.Unit())
	}
	if owed.Cmp(most(l)) > 0 {
		owed = most(l)
	}
	if at < now {
		paid := new(big.Rat).Mul(perMicrosecond(l), big.NewRat(now-at, 1))
		owed, at = new(big.Rat).Sub(owed, paid), now
		if owed.Sign() < 0 {
			owed = new(big.Rat)
		}
	}
	return modelBucket{owed, at, l.Unit()}
}

// with is b with n units more, or less.
func (b modelBucket) with(l *quota.Limit, n int64) modelBucket {
	owed := new(big.Rat).Add(b.owed, big.NewRat(n, 1))
	if owed.Sign() < 0 {
		owed = new(big.Rat)
	}
	if owed.Cmp(most(l)) > 0 {
		owed = most(l)
	}
	return modelBucket{owed, b.at, l.Unit()}
}

// most is what can be owed under l, in units.
func most(l *quota.Limit) *big.Rat { return big.NewRat(l.Most(), l.Unit()) }

// perMicrosecond is l's rate, in units.
func perMicrosecond(l *quota.Limit) *big.Rat {
	p := l.Policy()
	return new(big.Rat).Mul(big.NewRat(p.Quota, int64(p.Window)), big.NewRat(1000, 1))
}

// waitFor is how long after now n units fit into b.
func waitFor(b modelBucket, l *quota.Limit, n, now int64) time.Duration {
	burst := l.Policy().Burst
	if n > burst {
		return quota.Forever
	}
	return paidAfter(b, l, new(big.Rat).Sub(b.owed, big.NewRat(burst-n, 1)), now)
}

// paidAfter is how long after now so many units of what b owes are paid: at a
// tick.
func paidAfter(b modelBucket, l *quota.Limit, units *big.Rat, now int64) time.Duration {
	if units.Sign() <= 0 {
		return 0
	}
	tick := l.Tick().Microseconds()
	perTick := new(big.Rat).Mul(perMicrosecond(l), big.NewRat(tick, 1))
	ticks := ceil(new(big.Rat).Quo(units, perTick))
	return time.Duration(b.at-now+ticks*tick) * time.Microsecond
}

func describe(d *quota.Decision, b modelBucket, l *quota.Limit, now int64) {
	free := new(big.Rat).Sub(big.NewRat(l.Policy().Burst, 1), b.owed)
	if free.Sign() > 0 {
		d.Remaining = new(big.Int).Quo(free.Num(), free.Denom()).Int64()
	}
	if b.owed.Sign() > 0 {
		next := new(big.Rat).Sub(big.NewRat(d.Remaining+1, 1), free)
		d.NextAfter = paidAfter(b, l, next, now)
		d.ResetAfter = paidAfter(b, l, b.owed, now)
	}
}

// roundUp is the least multiple of 1/unit that is not below x.
func roundUp(x *big.Rat, unit int64) *big.Rat {
	return big.NewRat(ceil(new(big.Rat).Mul(x, big.NewRat(unit, 1))), unit)
}

func ceil(x *big.Rat) int64 {
	q, rest := new(big.Int).QuoRem(x.Num(), x.Denom(), new(big.Int))
	if rest.Sign() > 0 {
		q.Add(q, big.NewInt(1))
	}
	return q.Int64()
}
