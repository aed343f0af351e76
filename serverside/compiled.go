package serverside

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"maps"
	"net/http"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/heedhttp/heed/quota"
	"github.com/heedhttp/heed/ratelimit"
)

// A compiled is a Config, checked and prepared. Only its atomic fields change.
type compiled struct {
	Config
	rules     []*rule // in the order in which they are checked
	cheap     []*rule // of rules, those that need only the header
	expensive []*rule // of rules, the others
	exempt    []*matcher
	allow     []*rule
	store     *counter
	gates     *gates
	hash      string

	audited    bool               // Config.Audit was set
	fieldCount int                // policies in the fields if all rules apply; negative if that varies
	template   ratelimit.Template // for all rules
	lists      ratelimit.Style    // the part of Style that lists all policies
	expose     string             // Access-Control-Expose-Headers

	hot     *hotKeys
	failing atomic.Bool  // the Store failed when it was last asked
	ignored atomic.Bool  // ForwardingIgnored was reported
	unseen  atomic.Bool  // ResponseUnseen was reported
	dispute atomic.Int64 // Unix time of the last ForwardingDisputed
}

// A rule is a compiled Rule.
type rule struct {
	policySet     // for rules with the same policies for every request
	name, pattern string
	field         string // such as Rules[2], for faults
	stage         Stage
	order         int                      // index in compiled.rules
	matcher       *matcher                 // nil matches everything
	applies       func(*http.Request) bool // Rule.If; may be nil
	key           Key                      // may be nil
	cost          func(*http.Request) int64
	status        int
	dryRun        bool
	mode          FailureMode // never zero
	inFlight      int64
	settle        func(Response) int64
	penalty       *penalty // may be nil
	readsBody     bool     // its key is read from the body
	login         *login   // nil unless it is one of the two rules of a Login
	limits        *limits  // nil unless policies depend on the request
	entry         *Allow   // nil unless it was made from an Allow
}

// needsResponse reports whether r looks at the response.
func (r *rule) needsResponse() bool {
	return r.settle != nil || r.penalty != nil && (r.penalty.Strike != nil || r.penalty.Pardon != nil)
}

// isExpensive reports whether charging r takes more than the request's header, or may end in a
// refusal because of the request's body.
func (r *rule) isExpensive() bool {
	return r.limits != nil && r.limits.byKey != nil || r.readsBody || r.login != nil
}

// A policySet is policies that apply together: a rule's, or a tier's.
type policySet struct {
	tier     string // the tier's name, or ""
	policies []*policy
	template ratelimit.Template // for these policies
	blocked  bool               // by Limits: then there are no policies
}

// A policy is a compiled quota.Policy.
type policy struct {
	rule   *rule
	set    *policySet // nil for a policy of Limits
	limit  *quota.Limit
	atOnce int64           // units that fit when nothing is owed
	fields ratelimit.Limit // the parts that never change
	shown  shown           // when the fields show it
}

// shown says when the fields of a response show a policy.
type shown int

const (
	always      shown = iota
	whenDenying       // its numbers are not the client's own
	never             // its numbers mean nothing to a client
)

// describe returns p's item in the fields. Remaining is never more than the quota, even if a
// burst allows more.
func (p *policy) describe(d *quota.Decision) ratelimit.Limit {
	f, remaining, next := &p.fields, d.Remaining, d.NextAfter
	if remaining >= f.Quota {
		remaining, next = f.Quota, 0
	}
	return ratelimit.Limit{
		Name: f.Name, Quota: f.Quota, Window: f.Window, Algorithm: f.Algorithm,
		Remaining: remaining, Next: next, Reset: d.ResetAfter, At: d.At,
	}
}

// isPenalty reports whether p is the bucket of a Penalty.
func (p *policy) isPenalty() bool { return p.shown == never }

// isShown reports whether the fields show p after the decision d.
func (p *policy) isShown(d *quota.Decision) bool {
	return p.shown == always || p.shown == whenDenying && !d.Allowed
}

// sort puts rules in the order in which they are checked.
func (c *compiled) sort() {
	slices.SortStableFunc(c.rules, func(a, b *rule) int {
		return cmp.Or(cmp.Compare(a.stage, b.stage), a.matcher.compare(b.matcher))
	})
	for i, r := range c.rules {
		r.order = i
		if r.isExpensive() {
			c.expensive = append(c.expensive, r)
		} else {
			c.cheap = append(c.cheap, r)
		}
	}
}

// between returns those of the sorted rules whose stage is at least from and less than until.
func between(rules []*rule, from, until Stage) []*rule {
	first, end := 0, len(rules)
	for first < end && rules[first].stage < from {
		first++
	}
	for end > first && rules[end-1].stage >= until {
		end--
	}
	return rules[first:end]
}

// prepare renders the parts of the fields that never change.
func (c *compiled) prepare() {
	c.Style = cmp.Or(c.Style, ratelimit.Draft11|ratelimit.XRateLimit)
	c.lists = c.Style & (ratelimit.Draft11 | ratelimit.Draft07)
	if c.Style&ratelimit.None != 0 {
		c.lists = 0
	}
	var all []ratelimit.Limit
	for _, r := range slices.Concat(c.rules, c.allow) {
		for _, s := range r.sets() {
			s.template = ratelimit.Prepare(c.Style, s.fields()...)
		}
	}
	for _, r := range c.rules {
		switch {
		case r.limits != nil:
			c.fieldCount = -1
		case !r.dryRun && c.fieldCount >= 0:
			all = append(all, r.fields()...)
			c.fieldCount = len(all)
		}
	}
	c.template = ratelimit.Prepare(c.Style, all...)
	if c.ExposeFields {
		c.expose = strings.Join(c.fieldNames(), ", ")
	}
}

// templateOf returns the template for the n limits that all shows, if there is one. There is
// one for all rules together, and one for each policySet.
func (c *compiled) templateOf(all []charged, n int) (_ ratelimit.Template, ok bool) {
	var set *policySet
	same := true
	for i := range all {
		p := all[i].policy
		switch {
		case all[i].dryRun() || !p.isShown(&all[i].decision):
		case p.shown != always || p.set == nil || p.rule.entry != nil && n == c.fieldCount:
			return ratelimit.Template{}, false
		default:
			same = same && (set == nil || p.set == set)
			set = p.set
		}
	}
	if n == c.fieldCount {
		return c.template, true
	}
	return set.template, same && n == len(set.policies)
}

// fieldNames returns the names of all fields that responses and denials may have.
func (c *compiled) fieldNames() []string {
	h := make(http.Header)
	ratelimit.Set(h, c.Style, ratelimit.Limit{Quota: 1, Window: time.Second, Next: 1, Reset: 1})
	names := append(slices.Sorted(maps.Keys(h)), "Retry-After")
	if c.RetryAfterMS {
		names = append(names, "Retry-After-Ms")
	}
	return names
}

// fields returns the parts of s's fields that never change.
func (s *policySet) fields() (limits []ratelimit.Limit) {
	for _, p := range s.policies {
		if p.shown == always {
			limits = append(limits, p.fields)
		}
	}
	return limits
}

// sets returns all policySets that may apply to a request.
func (r *rule) sets() []*policySet {
	if r.limits == nil {
		return []*policySet{&r.policySet}
	}
	return append(slices.Clone(r.limits.tiers), &r.policySet)
}

// Hash returns a fingerprint of the limits that l enforces, or "" for the zero Limiter.
// Processes with the same rules have the same Hash, so you can find those with other rules. It
// covers functions only as far as Config.Description describes them. It does not cover Limits,
// nor the order of Rules where that makes no difference.
func (l *Limiter) Hash() string {
	if c := l.compiled.Load(); c != nil {
		return c.hash
	}
	return ""
}

// hashOf returns the fingerprint of c, whose rules are sorted.
func hashOf(c *compiled) string {
	sum := sha256.New()
	for _, r := range c.rules {
		fmt.Fprintf(sum, "rule %q %q %d %d ", r.name, r.pattern, r.stage, r.status)
		fmt.Fprintf(sum, "%v %v %d\n", r.dryRun, r.mode, r.inFlight)
		r.writeTo(sum)
	}
	for _, r := range c.allow {
		fmt.Fprintf(sum, "allow %q\n", r.name)
		r.writeTo(sum)
	}
	if c.ClosedStatus != 0 {
		fmt.Fprintf(sum, "closed %d\n", c.ClosedStatus)
	}
	fmt.Fprintf(sum, "exempt %q\n%s", slices.Sorted(slices.Values(c.Exempt)), c.Description)
	return hex.EncodeToString(sum.Sum(nil)[:8])
}

// writeTo writes r's policies to w.
func (r *rule) writeTo(w io.Writer) {
	if p := r.penalty; p != nil {
		fmt.Fprintf(w, "penalty %d %v %v %v %v\n", p.After, p.Within, p.First, p.Max, p.Forget)
	}
	for _, s := range r.sets() {
		for _, p := range s.policies {
			policy := p.limit.Policy()
			fmt.Fprintf(w, "%q %q %d %v %d %v %v %v\n", s.tier, policy.Name, policy.Quota, policy.Window, policy.Burst,
				policy.Algorithm, policy.Calendar, policy.Location)
		}
	}
}
