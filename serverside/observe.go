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

func verdictOf(o outcome, entry *rule) Verdict {
	switch {
	case o == denied:
		return Refused
	case o == uncounted:
		return Uncounted
	case entry != nil:
		return Trusted
	default:
		return Admitted
	}
}

// observe tells of a decision on what e is charged.
func (e *escort) observe(v Verdict) {
	if e.Observe == nil {
		return
	}
	o := Observation{Verdict: v, Took: time.Since(e.begun), Left: -1}
	switch {
	case len(e.trial.policies) > 0:
		o.Rule, o.Pattern = e.trial.policies[0].rule.name, e.trial.policies[0].rule.pattern
		o.key = e.trial.charges[0].Key
	case len(e.extras) > 0:
		o.Rule, o.Pattern = e.extras[0].rule.name, e.extras[0].rule.pattern
		o.key = e.extras[0].key
	}
	if v != Uncounted && len(e.trial.decisions) > 0 && e.trial.decisions[0].Limit > 0 && !e.trial.policies[0].hidden {
		o.Left = e.trial.left(0)
		o.Remaining, o.Limit = e.trial.decisions[0].Remaining, e.trial.policies[0].atOnce
	}
	e.Observe(o)
}
