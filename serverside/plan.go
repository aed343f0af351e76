package serverside

import (
	"cmp"
	"maps"
	"net/http"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/heedhttp/heed/quota"
	"github.com/heedhttp/heed/ratelimit"
)

// A plan is a Config, checked and compiled. It is immutable.
type plan struct {
	Config
	rules  []*rule // in the order in which they are asked
	early  int     // how many are BeforeAuth
	exempt []*matcher
	allow  []*rule
	memory *quota.Memory // what counts, if it is in this process
	remote *remote       // what counts, if not
	gates  *gates
	hash   string

	audited  bool               // somebody listens to more than warnings
	plain    bool               // there is nothing but rules to look after
	sole     *policy            // all there is to charge; nil if there is more to do
	enforced int                // of them are told of; negative if that varies
	template ratelimit.Template // of these
	lists    ratelimit.Style    // what of Style tells of all policies
	expose   string             // Access-Control-Expose-Headers

	heat       *heat
	failing    atomic.Bool // the Store failed when it was last asked
	forwarding atomic.Bool // ForwardingIgnored was told
}

// A rule is a compiled Rule.
type rule struct {
	share
	name, pattern string
	field         string // where it stands in Config
	stage         Stage
	order         int                      // among those that are asked
	matcher       *matcher                 // nil matches everything
	applies       func(*http.Request) bool // nil to all that match
	key           KeyFunc                  // may be nil
	cost          func(*http.Request) int64
	status        int
	dryRun        bool
	mode          FailureMode // never ForceOpen
	inFlight      int64
	settle        func(Response) int64
	penalty       *penalty // may be nil
	more          bool     // it does more than charge
	vary          *variety // where policies depend on the request
	entry         *Allow   // it was made of, if any
}

// A share is policies that hold together.
type share struct {
	tier     string // its name, if it is one's
	policies []*policy
	template ratelimit.Template // of policies
}

// A policy is a compiled quota.Policy.
type policy struct {
	rule   *rule
	share  *share
	limit  *quota.Limit
	atOnce int64           // units that fit where nothing is owed
	fields ratelimit.Limit // what of it never changes
	hidden bool            // it is told of only when it denies
}

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

// prepare renders what of the fields never changes.
func (p *plan) prepare() {
	p.Style = cmp.Or(p.Style, ratelimit.Draft11|ratelimit.XRateLimit)
	p.lists = p.Style & (ratelimit.Draft11 | ratelimit.Draft07)
	if p.Style&ratelimit.None != 0 {
		p.lists = 0
	}
	var all []ratelimit.Limit
	for _, r := range slices.Concat(p.rules, p.allow) {
		for _, s := range r.shares() {
			s.template = ratelimit.Prepare(p.Style, s.limits()...)
		}
	}
	for _, r := range p.rules {
		switch {
		case r.vary != nil:
			p.enforced = -1
		case !r.dryRun && p.enforced >= 0:
			all = append(all, r.limits()...)
			p.enforced = len(all)
		}
	}
	p.template = ratelimit.Prepare(p.Style, all...)
	if p.ExposeFields {
		p.expose = strings.Join(p.written(), ", ")
	}
	p.plain = p.isPlain()
}

// isPlain reports whether a request needs no more than a decision on all rules.
func (p *plan) isPlain() bool {
	return len(p.exempt) == 0 && len(p.allow) == 0 && !p.ExposeFields && !p.InContext && p.Observe == nil &&
		!slices.ContainsFunc(p.rules, func(r *rule) bool { return r.more })
}

// written are the names of the fields that responses have, and denials.
func (p *plan) written() []string {
	h := make(http.Header)
	ratelimit.Set(h, p.Style, ratelimit.Limit{Quota: 1, Window: time.Second, Next: 1, Reset: 1})
	names := append(slices.Sorted(maps.Keys(h)), "Retry-After")
	if p.RetryAfterMS {
		names = append(names, "Retry-After-Ms")
	}
	return names
}

// limits is what the fields tell of s that never changes.
func (s *share) limits() (limits []ratelimit.Limit) {
	for _, p := range s.policies {
		limits = append(limits, p.fields)
	}
	return limits
}

// shares are all policies that may hold for a request.
func (r *rule) shares() []*share {
	if r.vary == nil {
		return []*share{&r.share}
	}
	return append(slices.Clone(r.vary.tiers), &r.share)
}

// solePolicy returns the policy that is all there is to charge, if a decision on it
// is all there is to do, or nil.
func (p *plan) solePolicy() *policy {
	if !p.plain || p.memory == nil || len(p.rules) != 1 {
		return nil
	}
	if r := p.rules[0]; r.vary == nil && !r.dryRun && len(r.policies) == 1 {
		return r.policies[0]
	}
	return nil
}

// countWith sets what counts.
func (p *plan) countWith(store quota.Store, local *quota.Memory) {
	memory, ok := store.(*quota.Memory)
	timeout := cmp.Or(p.StoreTimeout, 75*time.Millisecond)
	switch {
	case store == nil || ok && memory == nil:
		p.memory = local
	case ok:
		p.memory = memory
	default:
		p.remote = newRemote(store, timeout)
	}
	p.gates = newGates(p, local, timeout)
	p.sole = p.solePolicy()
}
