package serverside

import (
	"net/http"
	"time"

	"github.com/heedhttp/heed/quota"
)

// A Penalty blocks a key that misbehaves too often, for longer each time. This one blocks a
// client for a minute after 100 denials within an hour, then for two, four and so on:
//
//	Penalty: &serverside.Penalty{After: 100, Within: time.Hour, First: time.Minute}
//
// Its counts are in the Store, so it applies in all processes and ends by itself.
//
// Give it only to rules whose key belongs to one client. A shared key gets everybody blocked
// for one client's misbehaviour. If the key is the name of an account, anyone can get that account
// blocked, so keep Max short.
type Penalty struct {
	// Strike reports whether a response counts towards a penalty. It is not asked about denials by
	// the Limiter, such as the 403 for a key that Limits block. If nil, denials by the rule's
	// Policies count. Denials by the penalty itself never do, so asking again does not prolong
	// it.
	Strike func(Response) bool

	// Pardon reports whether a response clears the key's strikes, penalties and charges in this
	// rule. If nil, none does.
	Pardon func(Response) bool

	// After is the number of strikes that starts a penalty, at least 1. Within, more than 0, is
	// the time in which that many strikes expire, one by one. While there are After strikes,
	// each further one starts a penalty.
	After  int64
	Within time.Duration

	// First is the length of the first penalty. Each penalty is twice as long as the one
	// before, up to Max. If First is zero, there is no penalty and only OnViolations is called.
	// If Max is zero, it is an hour, or First if that is longer.
	First, Max time.Duration

	// Forget is the time after which one penalty is forgotten, so that the next one is not
	// longer than the last. If zero, a day, or twice Max if that is longer.
	Forget time.Duration

	// OnViolations, if not nil, is called at strike number After and at each further one,
	// before the response header is written. It can ask for a CAPTCHA, for example.
	OnViolations func(w http.ResponseWriter, r *http.Request)
}

// A penalty is a compiled Penalty. Every request of a key takes a unit from the token bucket
// debt, in which a unit comes back per microsecond. A penalty of n microseconds overdraws the
// bucket by n, so that it denies requests for that time.
type penalty struct {
	Penalty
	debt    *policy
	strikes *quota.Limit // After units
	counted *quota.Limit // penalties that are not forgotten
}

const (
	maxPenalties = 32      // more are not counted: the penalty has reached Max
	debtBurst    = 1000    // requests within one microsecond that debt admits
	maxOwed      = 1 << 52 // more than any key can owe: a refund of this clears it
)

// penalty compiles from for r.
func (c *compiler) penalty(r *rule, from *Penalty, field string) {
	if from == nil {
		return
	}
	p := &penalty{Penalty: *from}
	p.Max = max(p.Max, p.First)
	if from.Max == 0 {
		p.Max = max(p.Max, time.Hour)
	}
	if from.Forget == 0 {
		p.Forget = max(24*time.Hour, 2*p.Max)
	}
	for _, check := range []struct {
		wrong         bool
		field, reason string
	}{
		{from.After < 1, "After", "must be at least 1"},
		{from.Within <= 0, "Within", "must be more than 0"},
		{from.First < 0, "First", "must not be negative"},
		{from.Max != 0 && from.Max < from.First, "Max", "must not be less than First"},
		{from.Forget < 0, "Forget", "must not be negative"},
		{from.First == 0 && from.OnViolations == nil, "First", "must be more than 0, unless OnViolations is set"},
	} {
		if check.wrong {
			c.fault(field+"."+check.field, "%s", check.reason)
			return
		}
	}
	if before := len(c.faults); p.compile(c, r, field) > before {
		return
	}
	names := r.limitNames()
	for _, l := range p.limits() {
		if names[l.Name()] {
			c.fault(r.field+".Policies", sameName, l.Name())
		}
	}
	r.penalty = p
}

// compile compiles the limits that p counts by, and returns the number of faults so far.
func (p *penalty) compile(c *compiler, r *rule, field string) int {
	limit := func(name, at string, policy quota.Policy) *quota.Limit {
		policy.Name = r.name + "/" + name
		l, err := policy.Compile()
		if err != nil {
			c.policyFaults(err, field+at)
		}
		return l
	}
	p.strikes = limit("strikes", "", quota.Policy{MaxDebt: quota.Forever, Quota: p.After, Window: p.Within})
	p.counted = limit("penalties", ".Forget", quota.Policy{MaxDebt: quota.Forever, Quota: 1, Window: p.Forget, Burst: maxPenalties})
	debt := limit("penalty", ".First", quota.Policy{MaxDebt: quota.Forever, Quota: 1e6, Window: time.Second, Burst: debtBurst})
	p.debt = &policy{rule: r, limit: debt, atOnce: debtBurst, shown: never}
	p.debt.fields.Name = r.name + "/penalty"
	return len(c.faults)
}

// limits returns the limits that p counts by.
func (p *penalty) limits() []*quota.Limit {
	if p == nil {
		return nil
	}
	return []*quota.Limit{p.debt.limit, p.strikes, p.counted}
}

// duration returns the length of the nth penalty.
func (p *penalty) duration(n int64) time.Duration {
	d := p.First
	for range n - 1 {
		if d *= 2; d >= p.Max {
			return p.Max
		}
	}
	return d
}

// perStrike returns the time after which one strike expires.
func (p *penalty) perStrike() time.Duration { return max(1, p.Within/time.Duration(p.After)) }

// strikeDenied counts denials by a rule's policies as strikes, before they are written. Denials
// by the penalty itself do not count.
func (c *check) strikeDenied(all matched, denying []charged) {
	for _, m := range all.matches {
		if p := m.rule.penalty; p == nil || p.Strike != nil {
			continue
		}
		denied, penalized := false, false
		for _, x := range denying {
			if x.policy.rule == m.rule {
				denied, penalized = true, penalized || x.policy.isPenalty()
			}
		}
		if denied && !penalized {
			c.settlement(all).strike(m)
		}
	}
}

// strike counts a strike, and starts a penalty if there are too many.
func (s *settlement) strike(m match) {
	p := m.rule.penalty
	d, ok := s.takeOne(m, p.strikes)
	if !ok || d.Allowed && d.Remaining > 0 {
		return
	}
	if p.First > 0 {
		s.penalize(m)
	}
	if p.OnViolations != nil && !m.rule.dryRun {
		p.OnViolations(s.w, s.r)
	}
}

// penalize blocks m's key by overdrawing its bucket of debt, from which every request of the
// key takes a unit. No strike expires until the penalty ends.
func (s *settlement) penalize(m match) {
	p := m.rule.penalty
	d, ok := s.takeOne(m, p.counted)
	if !ok {
		return
	}
	duration := p.duration(maxPenalties - d.Remaining)
	s.correct(m,
		m.charge(p.debt.limit, -maxOwed), m.charge(p.debt.limit, duration.Microseconds()+debtBurst-1),
		m.charge(p.strikes, ceil(duration, p.perStrike())),
	)
	if m.rule.dryRun {
		return
	}
	penalized := s.about(Penalized, m.rule, m.key)
	penalized.Wait = duration
	s.Audit(penalized)
}

// takeOne takes a unit of limit for m.
func (s *settlement) takeOne(m match, limit *quota.Limit) (d quota.Decision, ok bool) {
	d, err := s.store.takeOne(s.r.Context(), m, m.charge(limit, 1))
	if err != nil {
		s.auditFailure(m.rule, m.key, err)
	}
	return d, err == nil
}
