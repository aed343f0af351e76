package serverside

import (
	"context"
	"time"
)

// A Decision is what was decided about a request, for its handler. FromContext returns it if
// Config.InContext is set.
type Decision struct {
	// Verdict is Admitted, Trusted or Uncounted.
	Verdict Verdict

	// Rule is the name of the rule with the tightest policy, and Policy that policy's name in
	// the RateLimit field.
	Rule, Policy string

	// Quota is the quota of Policy, and Remaining what is left of it. Both are zero if the
	// request is Uncounted.
	Quota, Remaining int64

	// ResetAt is when the whole quota is available again.
	ResetAt time.Time

	// Degraded reports that the Store failed: the request is Uncounted, or was counted in this
	// process only.
	Degraded bool
}

type decisionKey struct{}

// FromContext returns the Decision on the request with this context:
//
//	d, ok := serverside.FromContext(r.Context())
//	if ok && d.Remaining == 0 { … }
//
// It returns false unless Config.InContext is set and a rule applied whose policies the fields
// show. They show none of a rule that has DryRun, is of the Overload stage or has only
// MaxInFlight. If several stages decided, the Decision is the last one's.
func FromContext(ctx context.Context) (Decision, bool) {
	d, ok := ctx.Value(decisionKey{}).(*Decision)
	if !ok {
		return Decision{}, false
	}
	return *d, true
}

// putDecision puts the Decision into the request's context, if the fields show a policy.
func (c *check) putDecision(all matched, verdict Verdict) {
	d := Decision{Verdict: verdict, Degraded: c.failed != nil || c.uncounted}
	switch {
	case len(all.charges) > 0 && all.charges[0].policy.shown == always && !all.charges[0].dryRun():
		x := &all.charges[0]
		d.Rule, d.Policy, d.Quota = x.policy.rule.name, x.policy.fields.Name, x.policy.fields.Quota
		d.Remaining, d.ResetAt = x.decision.Remaining, x.decision.At.Add(x.decision.ResetAfter)
	case verdict == Uncounted && c.lost != nil && c.lost.shown == always && !c.lost.rule.dryRun:
		d.Rule, d.Policy = c.lost.rule.name, c.lost.fields.Name
	default:
		return
	}
	c.r = c.r.WithContext(context.WithValue(c.r.Context(), decisionKey{}, &d))
}
