package serverside

import (
	"net/http"
	"time"

	"github.com/heedhttp/heed/quota"
)

// A Penalty keeps a key out for a while, for longer each time, when it does too
// often what it should not: guess passwords, or send on after a denial. What it
// knows is kept in the Store, so it holds for all processes, and expires there.
//
// It must be of somebody: with a key that is shared, one client's penalty is
// everybody's; with the account that a login is for, anybody can have the account
// kept out, so keep Max short there.
type Penalty struct {
	// Strike reports whether a response is one of those that lead to a penalty.
	// If nil, denials by the rule's Policies are. What the penalty itself denies
	// never is: to ask again does not make it longer.
	Strike func(Response) bool

	// Pardon reports whether a response forgives its key all strikes and
	// penalties, and what it owes to the rule. If nil, none does.
	Pardon func(Response) bool

	// After is how many strikes lead to a penalty, at least 1, and Within is the
	// time in which that many are forgotten, one by one, more than 0. As long as
	// there are so many, each further strike is a penalty.
	After  int64
	Within time.Duration

	// First is how long the first penalty lasts; each is twice as long as the one
	// before, up to Max. If First is zero there is none, only OnViolations. If Max
	// is zero, an hour, or First if that is longer.
	First, Max time.Duration

	// Forget is after how long one penalty is forgotten, so that the next is only
	// as long as the last. If zero, a day, or twice Max if that is longer.
	Forget time.Duration

	// OnViolations, if not nil, is called at the After'th strike and each further
	// one, before the response's header is written: to ask for a CAPTCHA, say.
	OnViolations func(w http.ResponseWriter, r *http.Request)
}

// A penalty is a compiled Penalty. A penalty that lasts is a bucket in debt.
type penalty struct {
	Penalty
	debt    *policy      // whose units are microseconds
	strikes *quota.Limit // of which there are as many as may be
	counted *quota.Limit // penalties that are not forgotten
}

const (
	mostPenalties = 32      // beyond which they are not counted, for the last are Max
	slack         = 1000    // requests in one microsecond
	everything    = 1 << 52 // more than can be owed
)

// penalty compiles from as that of r.
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
		{from.First == 0 && from.OnViolations == nil, "First", "must be more than 0, or OnViolations be set"},
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
			c.fault(r.field+".Policies", "there are two policies called %q: give one another Name", l.Name())
		}
	}
	r.penalty = p
}

// compile makes the limits that p counts by, and returns how many faults c has then.
func (p *penalty) compile(c *compiler, r *rule, field string) int {
	limit := func(name, at string, policy quota.Policy) *quota.Limit {
		policy.Name = r.name + "/" + name
		l, err := policy.Compile()
		if err != nil {
			c.policyFaults(err, field+at)
		}
		return l
	}
	p.strikes = limit("strikes", "", quota.Policy{Quota: p.After, Window: p.Within})
	p.counted = limit("penalties", ".Forget", quota.Policy{Quota: 1, Window: p.Forget, Burst: mostPenalties})
	debt := limit("penalty", ".First", quota.Policy{Quota: 1e6, Window: time.Second, Burst: slack})
	p.debt = &policy{rule: r, limit: debt, atOnce: slack, shown: never}
	p.debt.fields.Name = r.name + "/penalty"
	return len(c.faults)
}

// limits are those that p counts by.
func (p *penalty) limits() []*quota.Limit {
	if p == nil {
		return nil
	}
	return []*quota.Limit{p.debt.limit, p.strikes, p.counted}
}

// lasts is how long the nth penalty lasts.
func (p *penalty) lasts(n int64) time.Duration {
	d := p.First
	for range n - 1 {
		if d *= 2; d >= p.Max {
			return p.Max
		}
	}
	return d
}

// perStrike is after how long a strike is forgotten.
func (p *penalty) perStrike() time.Duration { return max(1, p.Within/time.Duration(p.After)) }

// strikeDenied counts denials that are strikes, before they are written: those by a rule's
// policies, but not by its penalty.
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

// strike counts one, and does what it leads to.
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

// penalize keeps m's key out: the bucket that every request of it takes a unit from
// goes into debt. Its strikes stay as many as they are until the penalty ends.
func (s *settlement) penalize(m match) {
	p := m.rule.penalty
	d, ok := s.takeOne(m, p.counted)
	if !ok {
		return
	}
	lasts := p.lasts(mostPenalties - d.Remaining)
	s.correct(m,
		m.charge(p.debt.limit, -everything), m.charge(p.debt.limit, lasts.Microseconds()+slack-1),
		m.charge(p.strikes, ceil(lasts, p.perStrike())),
	)
	if m.rule.dryRun {
		return
	}
	penalized := s.about(Penalized, m.rule, m.key)
	penalized.Wait = lasts
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
