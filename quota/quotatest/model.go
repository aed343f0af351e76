package quotatest

import (
	"cmp"
	"math/big"
	"time"

	"github.com/heedhttp/heed/quota"
)

// A model counts as quota.Store promises, with exact integers and fractions. It shares no
// arithmetic with package quota except a Limit's tick and unit, which decide when a debt
// is paid, and the highest debt.
type model struct {
	accounts map[accountID]map[string]account // by Shape
	once     map[onceID]int64                 // until when an ID is remembered
}

// An accountID names the counts of all Shapes.
type accountID struct {
	key, name string
	dryRun    bool
}

func idOf(c *quota.Charge) accountID { return accountID{c.Key, c.Limit.Name(), c.DryRun} }

type onceID struct {
	accountID
	id string
}

func newModel() *model {
	return &model{accounts: make(map[accountID]map[string]account), once: make(map[onceID]int64)}
}

// An account is what is owed. Times are in µs since the Unix epoch.
type account struct {
	by   *quota.Limit // of the last charge; nil if there was none
	at   int64        // when owed was owed; the start of a window; the newest entry
	far  int64        // how far ahead of the clock at was reserved
	owed *big.Rat     // units
	prev *big.Rat     // units of the previous window
	log  []entry      // oldest first
}

// An entry is the units charged at one time.
type entry struct{ at, units int64 }

// A rule is an algorithm as its doc defines it. It returns new accounts.
type rule interface {
	// read returns a as of now. Another rule may have written it.
	read(a account, now int64) account

	// first returns the earliest time at which n units fit. They fit at some time.
	first(a account, n, now int64) int64

	// charge returns a with n more units at a time.
	charge(a account, n, at int64) account

	// refund returns a with n units less, charged at at or, if zero, now.
	refund(a account, n, at, now int64) account

	// free returns how many units fit at now.
	free(a account, now int64) int64

	// whole returns when nothing is owed.
	whole(a account) int64
}

func ruleOf(l *quota.Limit) rule {
	switch l.Policy().Algorithm {
	case quota.FixedWindow:
		return fixed{l}
	case quota.SlidingWindow:
		return sliding{l}
	case quota.SlidingLog:
		return logged{l}
	default:
		return draining{l}
	}
}

// read returns the account of l as of now. If there is none, it begins with what the one of another Shape says that owes
// most.
func (m *model) read(id accountID, l *quota.Limit, now int64) account {
	all := m.accounts[id]
	if own, ok := all[l.Shape()]; ok && !isOver(own, now) {
		return as(own, l, now)
	}
	most := as(nothing(l), l, now)
	for _, other := range all {
		if other = as(other, other.by, now); isOver(other, now) || ruleOf(other.by).whole(other) <= now {
			continue
		}
		if other = as(other, l, now); other.compare(most) > 0 {
			most = other
		}
	}
	return most
}

// write stores a charge of n units as the account a of its limit, and charges those of other Shapes unless nothing was owed.
func (m *model) write(c *quota.Charge, a account, n, at, now int64) {
	id, l := idOf(c), c.Limit
	owes := false
	for _, b := range m.accounts[id] {
		by := b.by
		if by.Shape() == l.Shape() {
			by = l
		}
		if b = as(b, by, now); !isOver(b, now) && ruleOf(by).whole(b) > now {
			owes = true
		}
	}
	if !owes {
		delete(m.accounts, id)
	}
	for shape, b := range m.accounts[id] {
		if shape == l.Shape() || isOver(b, now) {
			continue
		}
		units := n
		b = as(b, b.by, now)
		if n > 0 {
			units = min(n, max(0, atOnce(l)-ceil(b.owed)))
		}
		m.accounts[id][shape] = settled(b, b.by, units, at, now)
	}
	if m.accounts[id] == nil {
		m.accounts[id] = make(map[string]account)
	}
	a.by = l
	m.accounts[id][l.Shape()] = a
}

// as returns a as of now, counted by l.
func as(a account, l *quota.Limit, now int64) account {
	a = ruleOf(l).read(a, now)
	a.by = l
	return a.reserved(now)
}

// reserved returns a with far.
func (a account) reserved(now int64) account {
	if a.far = 0; !drains(a.by) {
		a.far = max(0, a.at-now)
	}
	return a
}

// isOver reports whether a is of a Calendar's window that has ended.
func isOver(a account, now int64) bool {
	return a.by.Policy().Calendar != 0 && fixed{a.by}.after(a.at) <= now
}

// compare compares what a and b owe, of one limit at one time.
func (a account) compare(b account) int {
	return cmp.Or(a.owed.Cmp(b.owed), a.prev.Cmp(b.prev), cmp.Compare(a.at, b.at))
}

// nothing returns an account that owes nothing.
func nothing(l *quota.Limit) account { return account{by: l, owed: new(big.Rat), prev: new(big.Rat)} }

const day = int64(24 * time.Hour / time.Microsecond)

func drains(l *quota.Limit) bool { return l.Policy().Algorithm <= quota.LeakyBucket }

// A modelStep is the outcome of one charge.
type modelStep struct {
	id                accountID
	found, met, after account // after is met if nothing is charged
	wait              time.Duration
	fits, repeated    bool
}

// decide returns the outcome of charges at now, without changing anything: of a Take or,
// if reserved, of a Reserve within longest.
func (m *model) decide(
	charges []quota.Charge, reserved bool, longest time.Duration, now int64,
) (steps []modelStep, allowed bool) {
	allowed = true
	mine := make(map[accountID]modelStep)
	once := make(map[onceID]bool)
	for _, c := range charges {
		v := modelStep{id: idOf(&c)}
		v.found = m.read(v.id, c.Limit, now)
		v.after = v.found
		if before, ok := mine[v.id]; ok {
			v.after = before.after
		}
		v.met = as(v.after, c.Limit, now)
		id := onceID{v.id, c.ID}
		v.repeated = c.ID != "" && (m.once[id] > now || once[id])
		v.try(c, reserved, longest, now)
		once[id] = v.fits
		allowed = allowed && (v.fits || c.DryRun)
		mine[v.id] = v
		steps = append(steps, v)
	}
	return steps, allowed
}

// try sets after, wait and fits.
func (v *modelStep) try(c quota.Charge, reserved bool, longest time.Duration, now int64) {
	if v.repeated {
		v.fits = true
		return
	}
	if units(c) > atOnce(c.Limit) {
		v.wait = quota.Forever
		return
	}
	r := ruleOf(c.Limit)
	at := max(now, r.first(v.met, units(c), now))
	if reserved && c.Limit.Policy().Algorithm == quota.LeakyBucket {
		at = max(now, r.whole(v.met))
	}
	v.wait = time.Duration(at-now) * µs
	if at > now && (!reserved || v.wait > longest) || at > now+day && !drains(c.Limit) {
		return
	}
	after := r.charge(v.met, units(c), at)
	if after.owed.Cmp(most(c.Limit)) <= 0 && len(after.log) <= 2000 {
		v.fits, v.after = true, after.reserved(now)
	}
}

// take decides charges, and makes them if taking and all fit.
func (m *model) take(charges []quota.Charge, taking bool, now int64) (ds []quota.Decision) {
	steps, allowed := m.decide(charges, false, 0, now)
	for i, v := range steps {
		c, left := charges[i], v.found
		if taking && allowed && v.fits && !v.repeated {
			left = v.after
			m.keep(c, v, now)
		}
		d := quota.Decision{Allowed: v.fits, Limit: c.Limit.Policy().Quota, At: time.UnixMicro(now)}
		switch {
		case v.repeated && taking && allowed:
			left = v.met
		case v.repeated:
		case v.fits && c.Limit.Policy().Algorithm == quota.LeakyBucket:
			d.Delay = time.Duration(max(now, ruleOf(c.Limit).whole(v.met))-now) * µs
		case !v.fits:
			if d.Never = asked(charges[:i+1]) > atOnce(c.Limit); !d.Never {
				d.RetryAfter = v.wait
			}
		}
		describe(&d, left, c.Limit, now)
		ds = append(ds, d)
	}
	return ds
}

// keep makes a charge that was decided.
func (m *model) keep(c quota.Charge, v modelStep, now int64) {
	m.write(&c, v.after, units(c), 0, now)
	m.remember(c, now)
}

func (m *model) remember(c quota.Charge, now int64) {
	if c.ID == "" {
		return
	}
	until := now + max(1, int64(c.Limit.Policy().Window/µs))
	if c.Limit.Policy().Calendar != 0 {
		until = fixed{c.Limit}.after(now)
	}
	m.once[onceID{idOf(&c), c.ID}] = until
}

func (m *model) reserve(charges []quota.Charge, longest time.Duration, now int64) (wait time.Duration, ok bool) {
	steps, ok := m.decide(charges, true, longest, now)
	for i, v := range steps {
		if !charges[i].DryRun {
			wait = max(wait, v.wait)
		}
		if ok && v.fits && !v.repeated {
			m.keep(charges[i], v, now)
		}
	}
	return wait, ok
}

// settle returns the first charge that is not made in full, if any.
func (m *model) settle(charges []quota.Charge, now int64) (cut *quota.DebtError) {
	for i, c := range charges {
		id, at := idOf(&c), int64(0)
		if c.N == 0 || c.ID != "" && m.once[onceID{id, c.ID}] > now {
			continue
		}
		if !c.At.IsZero() {
			at = c.At.UnixMicro()
		}
		m.remember(c, now)
		met := m.read(id, c.Limit, now)
		after := settled(met, c.Limit, c.N, at, now)
		if most := big.NewRat(c.Limit.MaxDebt(), c.Limit.Unit()); c.N > 0 && after.owed.Cmp(most) > 0 {
			after.owed = most
			if met.owed.Cmp(most) > 0 {
				after.owed = met.owed
			}
			if less := floor(plus(new(big.Rat).Sub(met.owed, after.owed), c.N)); less > 0 && drains(c.Limit) && cut == nil {
				cut = &quota.DebtError{Index: i, Limit: c.Limit.Name(), Units: c.N, Cut: less}
			}
		}
		m.write(&c, after, c.N, at, now)
	}
	return cut
}

// settled returns a, of l, after n units.
func settled(a account, l *quota.Limit, n, at, now int64) account {
	r := ruleOf(l)
	switch _, log := r.(logged); {
	case log && n > 0:
		a = r.charge(a, min(n, floor(minus(most(l), floor(a.owed)))), now)
	case n > 0 && !drains(l):
		far := a.far
		a = limited(r.charge(a, n, a.at), l)
		a.by, a.far = l, far
		return a
	case n > 0:
		a = limited(r.charge(a, n, now), l)
	case n < 0:
		a = r.refund(a, -max(n, -1<<53), at, now)
	}
	a.by = l
	return a.reserved(now)
}

// limited returns a with its debt capped.
func limited(a account, l *quota.Limit) account {
	if a.owed.Cmp(most(l)) > 0 {
		a.owed = most(l)
	}
	return a
}

// reset forgets a key.
func (m *model) reset(key string) {
	for id := range m.accounts {
		if id.key == key {
			delete(m.accounts, id)
		}
	}
	for id := range m.once {
		if id.key == key {
			delete(m.once, id)
		}
	}
}

// units returns how many units c asks for.
func units(c quota.Charge) int64 {
	if c.N == 0 {
		return 1
	}
	return c.N
}

// asked returns how many units charges ask of the account of the last one. Charges with
// the same ID count once.
func asked(charges []quota.Charge) (sum int64) {
	last := charges[len(charges)-1]
	once := make(map[string]int64)
	for _, c := range charges {
		if c.Key != last.Key || c.Limit.Name() != last.Limit.Name() || c.DryRun != last.DryRun {
			continue
		}
		if c.ID != "" {
			sum -= once[c.ID]
			once[c.ID] = units(c)
		}
		sum += units(c)
	}
	return sum
}

// atOnce returns how many units fit if nothing is owed.
func atOnce(l *quota.Limit) int64 {
	if l.Policy().Algorithm == quota.LeakyBucket {
		return l.Policy().Burst + 1
	}
	return l.Policy().Burst
}

// most returns the highest debt under l, in units.
func most(l *quota.Limit) *big.Rat { return big.NewRat(l.Most(), l.Unit()) }

func describe(d *quota.Decision, a account, l *quota.Limit, now int64) {
	r := ruleOf(l)
	d.Remaining = r.free(a, now)
	if whole := r.whole(a); whole > now {
		d.ResetAfter = time.Duration(whole-now) * µs
		d.NextAfter = time.Duration(r.first(a, d.Remaining+1, now)-now) * µs
	}
}

// minus returns x less n units, at least zero.
func minus(x *big.Rat, n int64) *big.Rat {
	left := new(big.Rat).Sub(x, new(big.Rat).SetInt64(n))
	if left.Sign() < 0 {
		return new(big.Rat)
	}
	return left
}

// plus returns x with n more units.
func plus(x *big.Rat, n int64) *big.Rat { return new(big.Rat).Add(x, new(big.Rat).SetInt64(n)) }

// ceil returns the least integer that is not below x.
func ceil(x *big.Rat) int64 {
	q, rest := new(big.Int).QuoRem(x.Num(), x.Denom(), new(big.Int))
	if rest.Sign() > 0 {
		q.Add(q, big.NewInt(1))
	}
	return q.Int64()
}

func floor(x *big.Rat) int64 { return -ceil(new(big.Rat).Neg(x)) }
