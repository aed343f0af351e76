package serverside

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"slices"
)

// Hash is a fingerprint of the limits that l enforces: the same in all processes
// with the same rules, so that those with others can be found. What functions do is
// part of it as far as Config.Description tells; what Limits knows is not, nor is an
// order of Rules that makes no difference. It is "" for the zero Limiter.
func (l *Limiter) Hash() string {
	if p := l.plan.Load(); p != nil {
		return p.hash
	}
	return ""
}

// hashOf is the fingerprint of p, whose rules are sorted.
func hashOf(p *plan) string {
	sum := sha256.New()
	for _, r := range p.rules {
		fmt.Fprintf(sum, "rule %q %q %d %d %v %v %d\n", r.name, r.pattern, r.stage, r.status, r.dryRun, r.mode, r.inFlight)
		r.describeTo(sum)
	}
	for _, r := range p.allow {
		fmt.Fprintf(sum, "allow %q\n", r.name)
		r.describeTo(sum)
	}
	if p.ClosedStatus != 0 {
		fmt.Fprintf(sum, "closed %d\n", p.ClosedStatus)
	}
	fmt.Fprintf(sum, "exempt %q\n%s", slices.Sorted(slices.Values(p.Exempt)), p.Description)
	return hex.EncodeToString(sum.Sum(nil)[:8])
}

// describeTo writes r's policies.
func (r *rule) describeTo(w io.Writer) {
	if p := r.penalty; p != nil {
		fmt.Fprintf(w, "penalty %d %v %v %v %v\n", p.After, p.Within, p.First, p.Max, p.Forget)
	}
	for _, s := range r.shares() {
		for _, p := range s.policies {
			policy := p.limit.Policy()
			fmt.Fprintf(w, "%q %q %d %v %d %v %v %v\n", s.tier, policy.Name, policy.Quota, policy.Window, policy.Burst,
				policy.Algorithm, policy.Calendar, policy.Location)
		}
	}
}
