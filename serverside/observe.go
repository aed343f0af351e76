package serverside

import (
	"fmt"
	"time"
)

// An Observation is one decision, for metrics: Config.Observe gets it. All fields except Key
// have a bounded number of values, so they can be labels.
type Observation struct {
	Verdict Verdict

	// Rule and Pattern identify the rule whose quota is the tightest, or of several that deny,
	// the tightest of those. If no quota denies the request, but for example MaxInFlight or a blocked
	// key, they identify the rule that does. For a request that an Allow entry matches, Rule is the
	// entry's name.
	Rule, Pattern string

	// Took is the time that the decision took, including the wait for the Store.
	Took time.Duration

	// Left is the fraction of the quota that is left, from 0 to 1. It is negative if nothing
	// was counted or a Penalty denies.
	Left float64

	// Remaining is the number of units left, and Limit the most there can be at once. Both are
	// 0 if Left is negative.
	Remaining, Limit int64

	key string // as in the Store
}

// Key returns a hash of the key that was charged, as in Event, or "" if there is none.
// Computing it takes longer than the rest of an Observation, so sample.
func (o Observation) Key() string {
	if o.key == "" {
		return ""
	}
	return hash(o.key)
}

// A Verdict says what was decided about a request.
type Verdict int

const (
	// Admitted means that all rules admitted the request.
	Admitted Verdict = iota + 1

	// Refused means that the request was denied.
	Refused

	// Uncounted means that the request was admitted because the Store failed.
	Uncounted

	// Trusted means that an entry of Config.Allow admitted the request.
	Trusted
)

var verdictNames = [...]string{"", "admitted", "refused", "uncounted", "trusted"}

// String returns the verdict in lower case.
func (v Verdict) String() string {
	if v < Admitted || int(v) >= len(verdictNames) {
		return fmt.Sprintf("Verdict(%d)", int(v))
	}
	return verdictNames[v]
}

// observe reports a decision on the request.
func (c *check) observe(all matched, v Verdict) {
	if c.Observe == nil {
		return
	}
	o := Observation{Verdict: v, Took: time.Since(c.began), Left: -1}
	switch {
	case len(all.charges) > 0:
		x := &all.charges[0]
		o.Rule, o.Pattern, o.key = x.policy.rule.name, x.policy.rule.pattern, x.key
		if v != Uncounted && x.decision.Limit > 0 && !x.policy.isPenalty() {
			o.Left, o.Remaining, o.Limit = x.left(), x.decision.Remaining, x.policy.atOnce
		}
	case len(all.matches) > 0:
		m := &all.matches[0]
		o.Rule, o.Pattern, o.key = m.rule.name, m.rule.pattern, m.key
	}
	c.Observe(o)
}

// observeRefusal reports a denial by r that no quota decided. Other rules may have charges: it is not
// about them.
func (c *check) observeRefusal(r *rule, key string) {
	if c.Observe != nil {
		c.Observe(Observation{
			Verdict: Refused, Rule: r.name, Pattern: r.pattern, Took: time.Since(c.began), Left: -1, key: key,
		})
	}
}
