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

// A Response is what a request was answered.
type Response struct {
	Request *http.Request
	Status  int         // 200 if the handler wrote none, 500 if it panicked
	Header  http.Header // as the handler left it
	Cost    int64       // what the request was charged
}

// Unauthorized reports whether r is 401 or 403: a login that failed.
func Unauthorized(r Response) bool {
	return r.Status == http.StatusUnauthorized || r.Status == http.StatusForbidden
}

// Succeeded reports whether r is below 400.
func Succeeded(r Response) bool { return r.Status < http.StatusBadRequest }

// ChargeIf is a Rule.Settle that charges only what is: login attempts that failed,
// with Unauthorized.
func ChargeIf(is func(Response) bool) func(Response) int64 {
	return RefundIf(func(r Response) bool { return !is(r) })
}

// RefundIf is a Rule.Settle that charges nothing for what is: responses from a
// cache, with FromCache.
func RefundIf(is func(Response) bool) func(Response) int64 {
	return func(r Response) int64 {
		if is(r) {
			return 0
		}
		return r.Cost
	}
}

// Logins is a rule for attempts to log in to an account: five that fail are
// admitted in a minute. Then the account has to wait for 12 s, and twice as long
// after each further failure, up to an hour; a success forgives it all. While
// attempts are being answered they count as failed, so that no more can be made at
// once either.
//
// account is who the login is for, whether such an account exists or not, such as
// FormValue("user"). It is what clients say, so there must be a rule by ClientIP
// beside it.
func Logins(name, pattern string, account KeyFunc) Rule {
	return Rule{
		Name: name, Pattern: pattern, Key: account, Policies: []quota.Policy{quota.PerMinute(5)},
		Settle: ChargeIf(Unauthorized), OnStoreError: FailLocal,
		Penalty: &Penalty{
			Strike: Unauthorized, Pardon: Succeeded, After: 5, Within: time.Minute, First: 12 * time.Second, Max: time.Hour,
		},
	}
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
	p.debt = &policy{rule: r, limit: debt, atOnce: slack, hidden: true}
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
