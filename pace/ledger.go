package pace

import (
	"net/http"
	"slices"
	"time"

	"github.com/heedhttp/heed/ratelimit"
)

const (
	mostPolicies = 16          // of one key that are remembered
	lookAgain    = time.Minute // how often one request may go in vain
)

// A ledger is what a server tells of all policies of a key.
type ledger struct {
	policies []told
	flights  []flight  // in the order of sending
	number   int64     // of the last one
	sentAt   time.Time // when it began
}

// A flight is a request under way.
type flight struct {
	req    *http.Request
	number int64
	at     time.Time // when it was sent
	costs  costs
}

// A costs is what a request costs of each unit. Nil is one request.
type costs []cost

type cost struct {
	unit string
	n    int64
}

func (c costs) of(unit string) int64 {
	if c == nil && unit == "" {
		return 1
	}
	for _, one := range c {
		if one.unit == unit {
			return max(0, one.n)
		}
	}
	return 0
}

// wait is how long a request has to wait. Where a period is over, one request
// goes to see what the new one has, and the others wait for its answer.
func (l *ledger) wait(c costs, now time.Time) (d time.Duration) {
	for i := range l.policies {
		p := &l.policies[i]
		d = max(d, p.wait(c.of(p.unit), now))
		if p.over(now) && len(l.flights) > 0 {
			d = max(d, l.sentAt.Add(askAgain).Sub(now))
		}
	}
	return d
}

// early reports whether a request may go although its turn has not come.
func (l *ledger) early(c costs, now time.Time) bool {
	for i := range l.policies {
		p := &l.policies[i]
		n := c.of(p.unit)
		if p.over(now) && len(l.flights) > 0 || p.wait(n, now) > 0 && !p.early(n, now) {
			return false
		}
	}
	return true
}

// ahead is about how long a request has to wait that has n such before it.
func (l *ledger) ahead(n int, c costs, now time.Time) time.Duration {
	d := l.wait(c, now)
	if n == 0 {
		return d
	}
	for i := range l.policies {
		p := &l.policies[i]
		d = max(d, p.ahead(int64(n+1)*c.of(p.unit), now))
	}
	return d
}

// looks reports whether a request may go although it would have to wait so long,
// to see whether that is still meant: one a minute, if nothing is left. A
// server that was wrong once must not be lost for a day.
func (l *ledger) looks(c costs, wait time.Duration, now time.Time) bool {
	return wait > lookAgain && now.Sub(l.sentAt) >= lookAgain &&
		slices.ContainsFunc(l.policies, func(p told) bool { return p.spentUp(c.of(p.unit)) })
}

// spend counts that req is sent.
func (l *ledger) spend(req *http.Request, c costs, now time.Time) {
	l.number++
	l.sentAt = now
	l.flights = append(l.flights, flight{req, l.number, now, c})
	for i := range l.policies {
		p := &l.policies[i]
		p.spend(c.of(p.unit), now)
	}
}

// land counts that req was answered, or will never be.
func (l *ledger) land(req *http.Request) (flight, bool) {
	for i, f := range l.flights {
		if f.req == req {
			l.flights = slices.Delete(l.flights, i, i+1)
			return f, true
		}
	}
	return flight{}, false
}

// giveBack counts that f was not sent.
func (l *ledger) giveBack(f flight) {
	for i := range l.policies {
		p := &l.policies[i]
		n := f.costs.of(p.unit)
		p.left += n
		p.count(-n, f.at)
	}
}

// learn takes over what f's answer tells, if anything. What was over when f was
// sent and is not told again is forgotten: perhaps only refusals tell it.
func (l *ledger) learn(limits []ratelimit.Limit, f flight, charged bool, now time.Time) {
	if !charged {
		for i := range l.policies {
			p := &l.policies[i]
			p.count(-f.costs.of(p.unit), f.at)
		}
	}
	for i := range limits {
		if limit := &limits[i]; useful(limit) {
			a := answer{Limit: limit, number: f.number, at: f.at, later: l.after(f, limit.Unit)}
			if charged {
				a.charged = f.costs.of(limit.Unit)
			}
			p := l.policy(limit, now)
			known := p.own != nil
			if p.learn(a, now); !known {
				l.recount(p, a)
			}
		}
	}
	l.policies = slices.DeleteFunc(l.policies, func(p told) bool {
		return !p.until.After(f.at) && p.heard < f.number
	})
}

// recount counts what was spent of p, of which a is the first answer.
func (l *ledger) recount(p *told, a answer) {
	p.count(a.charged, a.at)
	for _, f := range l.flights {
		p.count(f.costs.of(p.unit), f.at)
	}
}

// after is how many units those take that were sent after f.
func (l *ledger) after(f flight, unit string) (n int64) {
	for _, g := range slices.Backward(l.flights) {
		if g.number < f.number {
			break
		}
		n += g.costs.of(unit)
	}
	return n
}

// policy returns what is known of limit's policy.
func (l *ledger) policy(limit *ratelimit.Limit, now time.Time) *told {
	for i := range l.policies {
		if p := &l.policies[i]; p.is(limit) {
			return p
		}
	}
	if len(l.policies) == mostPolicies {
		l.policies = slices.Delete(l.policies, 0, 1)
	}
	p := told{name: limit.Name, unit: limit.Unit, partition: limit.Partition, spentAt: now}
	l.policies = append(l.policies, p)
	return &l.policies[len(l.policies)-1]
}
