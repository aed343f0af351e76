package quotatest

import (
	"math/big"
	"slices"
	"time"

	"github.com/heedhttp/heed/quota"
)

// A model counts as quota.Store promises, with exact integers and fractions. It shares no
// arithmetic with package quota except a Limit's tick and unit, which decide when a debt
// is paid, and the highest debt.
type model struct {
	accounts map[accountID]account
	once     map[onceID]int64 // until when an ID is remembered

	// old says which numbers apply until the next charge after a change of policy: those
	// of the last charge or, in a Store whose states do not contain them, those of the
	// reader. A Store may do either.
	old bool
}

type accountID struct {
	key, name string
	dryRun    bool
}

type onceID struct {
	accountID
	id string
}

func newModel(old bool) *model {
	return &model{accounts: make(map[accountID]account), once: make(map[onceID]int64), old: old}
}

// An account is what is owed. Times are in µs since the Unix epoch.
type account struct {
	by   *quota.Limit // of the last charge; nil if there was none
	at   int64        // when owed was owed; the start of a window; the newest entry
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

// read returns a under l as of now.
func (m *model) read(a account, l *quota.Limit, now int64) account {
	if a.by == nil || a.at > now+day {
		a = nothing(l)
	}
	if m.old && drains(a.by) {
		a = ruleOf(a.by).read(a, now)
	}
	return ruleOf(l).read(a, now)
}

// nothing returns an account that owes nothing.
func nothing(l *quota.Limit) account { return account{l, 0, new(big.Rat), new(big.Rat), nil} }

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
		v := modelStep{id: accountID{c.Key, c.Limit.Name(), c.DryRun}}
		v.after = m.accounts[v.id]
		v.found = m.read(v.after, c.Limit, now)
		if before, ok := mine[v.id]; ok {
			v.after = before.after
		}
		v.met = m.read(v.after, c.Limit, now)
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
		v.fits, v.after = true, after
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
	v.after.by = c.Limit
	m.accounts[v.id] = v.after
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
	m.once[onceID{accountID{c.Key, c.Limit.Name(), c.DryRun}, c.ID}] = until
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

func (m *model) settle(charges []quota.Charge, now int64) {
	for _, c := range charges {
		id := accountID{c.Key, c.Limit.Name(), c.DryRun}
		if c.N == 0 || c.ID != "" && m.once[onceID{id, c.ID}] > now {
			continue
		}
		m.remember(c, now)
		met := m.read(m.accounts[id], c.Limit, now)
		if after := settled(met, c, now); !after.same(met) {
			after.by = c.Limit
			m.accounts[id] = after
		}
	}
}

// settled returns a after c.
func settled(a account, c quota.Charge, now int64) account {
	r := ruleOf(c.Limit)
	if _, log := r.(logged); log && c.N > 0 {
		return r.charge(a, min(c.N, floor(minus(most(c.Limit), floor(a.owed)))), now)
	} else if c.N > 0 {
		return limited(r.charge(a, c.N, now), c.Limit)
	}
	at := int64(0)
	if !c.At.IsZero() {
		at = c.At.UnixMicro()
	}
	return r.refund(a, -max(c.N, -1<<53), at, now)
}

// same reports whether a and b owe the same.
func (a account) same(b account) bool {
	return a.owed.Cmp(b.owed) == 0 && a.prev.Cmp(b.prev) == 0 && slices.Equal(a.log, b.log)
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
