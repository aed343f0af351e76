package serverside

import (
	"context"
	"time"
)

// A Decision is what was decided about the request that a handler serves.
type Decision struct {
	// Verdict is Admitted, Trusted or Uncounted.
	Verdict Verdict

	// Rule is the name of the rule with the tightest policy, and Policy the name of
	// that, as in the RateLimit field.
	Rule, Policy string

	// Quota is what Policy allows, and Remaining what is left of it. They are zero if
	// the request is Uncounted: nobody knows.
	Quota, Remaining int64

	// ResetAt is when the quota is whole again.
	ResetAt time.Time

	// Degraded is that the Store failed: the request is Uncounted, or was counted
	// in this process alone.
	Degraded bool
}

type decisionKey struct{}

// FromContext returns the Decision on the request whose context ctx is, if
// Config.InContext is set and a rule applied. It is that of the last stage which
// decided. It does not change.
func FromContext(ctx context.Context) (Decision, bool) {
	d, ok := ctx.Value(decisionKey{}).(*Decision)
	if !ok {
		return Decision{}, false
	}
	return *d, true
}

// decision is what was decided about e's request, or nil if no rule is told of.
func (e *escort) decision() *Decision {
	if len(e.trial.policies) == 0 || e.trial.policies[0].hidden || e.trial.charges[0].DryRun {
		return nil
	}
	p, d := e.trial.policies[0], &e.trial.decisions[0]
	told := Decision{
		Verdict: verdictOf(e.outcome, e.entry), Rule: p.rule.name, Policy: p.fields.Name,
		Degraded: e.local || e.outcome == uncounted,
	}
	if e.outcome == admitted {
		told.Quota, told.Remaining, told.ResetAt = p.fields.Quota, d.Remaining, d.At.Add(d.ResetAfter)
	}
	return &told
}

// pass has the rest of e see the decision in the request's context.
func (e *escort) pass() {
	if d := e.decision(); d != nil && e.InContext {
		e.r = e.r.WithContext(context.WithValue(e.r.Context(), decisionKey{}, d))
	}
}
