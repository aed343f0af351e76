package serverside

import (
	"fmt"
	"time"
)

// An Observation is one decision, for metrics. What its fields are about is bounded by
// the rules that there are: only Key is not.
type Observation struct {
	Verdict Verdict

	// Rule and Pattern are those of the rule whose quota is tightest: of those
	// that deny, if any does. They are those of the entry, where one of the
	// allow-list matches, which has no Pattern.
	Rule, Pattern string

	// Took is how long the decision took, with what it waited for the Store.
	Took time.Duration

	// Left is the part of that quota that is left, from 0 to 1; negative if
	// nothing was counted, or a Penalty denies.
	Left float64

	// Remaining is how many units that is, and Limit how many there are at most at
	// once: 0 where Left is negative.
	Remaining, Limit int64

	key string // the Store's
}

// Key is a hash of the key that was charged, as in Events: "" if there is none. It is
// made when it is asked for, which takes longer than all else here: sample.
func (o Observation) Key() string {
	if o.key == "" {
		return ""
	}
	return hash(o.key)
}

// A Verdict is what was decided about a request.
type Verdict int

const (
	// Admitted is a request that all rules have admitted.
	Admitted Verdict = iota + 1

	// Refused is a request that was denied.
	Refused

	// Uncounted is a request that was admitted because the Store failed.
	Uncounted

	// Trusted is a request that was admitted by an entry of the allow-list.
	Trusted
)

var verdictNames = [...]string{"", "admitted", "refused", "uncounted", "trusted"}

// String is the verdict in lower case.
func (v Verdict) String() string {
	if v < Admitted || int(v) >= len(verdictNames) {
		return fmt.Sprintf("Verdict(%d)", int(v))
	}
	return verdictNames[v]
}

// observe tells of a decision on the request.
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
