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

// A compiled is a Config, checked and prepared. It is immutable, but for what was told.
type compiled struct {
	Config
	rules  []*rule // in the order in which they are asked
	cheap  []*rule // of them, those that need neither a body nor a look-up of limits
	dear   []*rule // of them, the others
	exempt []*matcher
	allow  []*rule
	store  *counter
	gates  *gates
	hash   string

	audited    bool               // somebody listens to more than warnings
	fieldCount int                // how many policies the fields tell of if all rules apply; negative if that varies
	template   ratelimit.Template // of them
	lists      ratelimit.Style    // what of Style tells of all policies
	expose     string             // Access-Control-Expose-Headers

	hot     *hotKeys
	failing atomic.Bool  // the Store failed when it was last asked
	ignored atomic.Bool  // ForwardingIgnored was told
	unseen  atomic.Bool  // ResponseUnseen was told
	dispute atomic.Int64 // when ForwardingDisputed was told last, in seconds of the Unix epoch
}

// A rule is a compiled Rule.
type rule struct {
	policySet     // where they do not depend on the request
	name, pattern string
	field         string // where it stands in Config
	stage         Stage
	order         int                      // among those that are asked
	matcher       *matcher                 // nil matches everything
	applies       func(*http.Request) bool // nil to all that match
	key           Key                      // may be nil
	cost          func(*http.Request) int64
	status        int
	dryRun        bool
	mode          FailureMode // never zero
	inFlight      int64
	settle        func(Response) int64
	penalty       *penalty // may be nil
	readsBody     bool     // the body is read for its key
	login         *login   // it is one of the two rules of a Login
	limits        *limits  // where policies depend on the request
	entry         *Allow   // it was made of, if any
}

// follows reports whether r is to know what a request is answered.
func (r *rule) follows() bool {
	return r.settle != nil || r.penalty != nil && (r.penalty.Strike != nil || r.penalty.Pardon != nil)
}

// isDear reports whether r takes more than a request's header to know what to charge, or may
// refuse the request for what it says.
func (r *rule) isDear() bool {
	return r.limits != nil && r.limits.byKey != nil || r.readsBody || r.login != nil
}

// A policySet is policies that hold together for a request: a rule's, or a tier's.
type policySet struct {
	tier     string // if it is one's
	policies []*policy
	template ratelimit.Template // of them
}

// A policy is a compiled quota.Policy.
type policy struct {
	rule   *rule
	set    *policySet // nil for limits that a key has of its own
	limit  *quota.Limit
	atOnce int64           // units that fit where nothing is owed
	fields ratelimit.Limit // what of it never changes
	shown  shown           // when the fields tell of it
}

// shown is when the fields of a response tell of a policy.
type shown int

const (
	always      shown = iota
	whenDenying       // its numbers are not the client's own
	never             // it has none that mean anything to a client
)

// describe is what d says of p. A burst beyond the quota is not told: what remains is
// never more than the limit.
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

// isPenalty reports whether p is a Penalty's: in debt while the key is kept out.
func (p *policy) isPenalty() bool { return p.shown == never }

// isShown reports whether the fields of a response tell of p, which decided so.
func (p *policy) isShown(d *quota.Decision) bool {
	return p.shown == always || p.shown == whenDenying && !d.Allowed
}

// sort puts rules in the order in which they are asked.
func (c *compiled) sort() {
	slices.SortStableFunc(c.rules, func(a, b *rule) int {
		return cmp.Or(cmp.Compare(a.stage, b.stage), a.matcher.compare(b.matcher))
	})
	for i, r := range c.rules {
		r.order = i
		if r.isDear() {
			c.dear = append(c.dear, r)
		} else {
			c.cheap = append(c.cheap, r)
		}
	}
}

// between are those of rules, which are sorted, whose stages are from from to until.
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

// prepare renders what of the fields never changes.
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

// templateOf returns the template for the limits that all tells of, n of them, if there is
// one. Those of all rules, and those of one set, are told together again and again.
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

// fieldNames are the names of the fields that responses have, and denials.
func (c *compiled) fieldNames() []string {
	h := make(http.Header)
	ratelimit.Set(h, c.Style, ratelimit.Limit{Quota: 1, Window: time.Second, Next: 1, Reset: 1})
	names := append(slices.Sorted(maps.Keys(h)), "Retry-After")
	if c.RetryAfterMS {
		names = append(names, "Retry-After-Ms")
	}
	return names
}

// fields is what the fields tell of s that never changes.
func (s *policySet) fields() (limits []ratelimit.Limit) {
	for _, p := range s.policies {
		if p.shown == always {
			limits = append(limits, p.fields)
		}
	}
	return limits
}

// sets are all policies that may hold for a request.
func (r *rule) sets() []*policySet {
	if r.limits == nil {
		return []*policySet{&r.policySet}
	}
	return append(slices.Clone(r.limits.tiers), &r.policySet)
}

// Hash is a fingerprint of the limits that l enforces: the same in all processes
// with the same rules, so that those with others can be found. What functions do is
// part of it as far as Config.Description tells; what Limits knows is not, nor is an
// order of Rules that makes no difference. It is "" for the zero Limiter.
func (l *Limiter) Hash() string {
	if c := l.compiled.Load(); c != nil {
		return c.hash
	}
	return ""
}

// hashOf is the fingerprint of c, whose rules are sorted.
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

// writeTo writes r's policies.
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
