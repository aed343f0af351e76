package serverside

import (
	"cmp"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"

	"github.com/heedhttp/heed/quota"
	"github.com/heedhttp/heed/ratelimit"
)

// A compiler collects what is wrong.
type compiler struct{ faults []error }

func (c *compiler) fault(field, format string, args ...any) {
	c.faults = append(c.faults, &ConfigError{field, fmt.Sprintf(format, args...)})
}

// compile checks cfg and makes l's plan of it.
func compile(cfg Config, l *Limiter) (*plan, error) {
	var c compiler
	p := &plan{Config: cfg, heat: &l.heat, audited: cfg.Audit != nil}
	if p.Audit == nil {
		p.Audit = logWarnings()
	}
	c.settings(cfg)
	for i, from := range cfg.Rules {
		p.rules = append(p.rules, c.rule(from, cfg.OnStoreError, fmt.Sprintf("Rules[%d]", i)))
	}
	for i := range cfg.Allow {
		p.allow = append(p.allow, c.entry(&cfg.Allow[i], cfg.OnStoreError, fmt.Sprintf("Allow[%d]", i)))
	}
	for i, pattern := range cfg.Exempt {
		p.exempt = append(p.exempt, c.exemption(pattern, fmt.Sprintf("Exempt[%d]", i)))
	}
	all := slices.Concat(p.rules, p.allow)
	c.distinct(all)
	c.ceilings(p)
	if err := errors.Join(c.faults...); err != nil {
		return nil, err
	}
	nameOnWire(all)
	p.sort()
	p.hash = hashOf(p)
	p.prepare()
	p.countWith(cfg.Store, &l.local)
	return p, nil
}

// sort puts rules in the order in which they are asked.
func (p *plan) sort() {
	slices.SortStableFunc(p.rules, func(a, b *rule) int {
		return cmp.Or(cmp.Compare(a.stage, b.stage), a.matcher.compare(b.matcher))
	})
	for i, r := range p.rules {
		r.order = i
		if r.stage == BeforeAuth {
			p.early = i + 1
		}
	}
}

func (c *compiler) settings(cfg Config) {
	const styles = 2*ratelimit.None - 1
	overload := func(r Rule) bool { return r.Stage == Overload }
	switch {
	case len(cfg.Rules) == 0:
		c.fault("Rules", "there must be at least one")
	case !slices.ContainsFunc(cfg.Rules, func(r Rule) bool { return !overload(r) }):
		c.fault("Rules", "a guard against overload alone lets one client take everything: add a rule for each client")
	}
	if _, ok := cfg.Store.(quota.Settler); cfg.Store != nil && !ok && slices.ContainsFunc(cfg.Rules, settles) {
		c.fault("Store", "cannot correct charges, which Settle and Penalty need: it is no quota.Settler")
	}
	if cfg.StoreTimeout < 0 {
		c.fault("StoreTimeout", "is %v: must not be negative", cfg.StoreTimeout)
	}
	if !cfg.OnStoreError.valid() {
		c.fault("OnStoreError", "there is no %v", cfg.OnStoreError)
	}
	if s := cfg.ClosedStatus; s != 0 && s != http.StatusServiceUnavailable && s != http.StatusTooManyRequests {
		c.fault("ClosedStatus", "is %d: what fails closed is 503, or 429", s)
	}
	if cfg.Style&^styles != 0 {
		c.fault("Style", "there is no style %#x", int(cfg.Style&^styles))
	}
}

// settles reports whether r corrects charges.
func settles(r Rule) bool { return r.Settle != nil || r.Penalty != nil }

// rule compiles from.
func (c *compiler) rule(from Rule, mode FailureMode, field string) *rule {
	r := &rule{
		name: cmp.Or(from.Name, from.Pattern, "default"), pattern: from.Pattern, field: field,
		stage: from.Stage, applies: from.If, key: from.Key, cost: from.Cost, dryRun: from.DryRun,
		status: cmp.Or(from.Status, http.StatusTooManyRequests), mode: from.modeOr(mode), inFlight: from.MaxInFlight,
		settle: from.Settle, more: from.MaxInFlight > 0 || from.Settle != nil || from.Penalty != nil,
	}
	if !printable(r.name) {
		c.fault(field+".Name", "%q must be printable ASCII", r.name)
		r.name = field
	}
	if !from.OnStoreError.valid() {
		c.fault(field+".OnStoreError", "there is no %v", from.OnStoreError)
	}
	r.matcher = c.matcher(from.Pattern, field+".Pattern")
	c.stage(r, field)
	c.limits(r, from, field)
	c.penalty(r, from.Penalty, field+".Penalty")
	return r
}

func (c *compiler) matcher(pattern, field string) *matcher {
	if pattern == "" {
		return nil
	}
	m, err := newMatcher(pattern)
	if err != nil {
		c.fault(field, "%v", err)
	}
	return m
}

// stage checks what depends on the stage.
func (c *compiler) stage(r *rule, field string) {
	if r.stage < BeforeAuth || r.stage >= stages {
		c.fault(field+".Stage", "is %d: there is none", int(r.stage))
	}
	switch {
	case r.status == http.StatusTooManyRequests:
	case r.status != http.StatusServiceUnavailable:
		c.fault(field+".Status", "is %d: a denial is 429, or 503 in the Overload stage", r.status)
	case r.stage != Overload:
		c.fault(field+".Status", "is 503, which is for the Overload stage: who exceeds a quota of its own is told 429")
	}
	if r.stage == Overload && r.key == nil {
		r.key = func(*http.Request) string { return everybody }
	}
}

// limits compiles what from limits.
func (c *compiler) limits(r *rule, from Rule, field string) {
	if from.MaxInFlight < 0 {
		c.fault(field+".MaxInFlight", "is %d: must not be negative", from.MaxInFlight)
	}
	c.vary(r, from, field)
	if len(from.Policies) == 0 && from.MaxInFlight == 0 && r.vary == nil {
		c.fault(field+".Policies", "there must be at least one")
	}
	c.share(r, &r.share, from.Policies, field)
}

// share compiles policies of r into s.
func (c *compiler) share(r *rule, s *share, policies []quota.Policy, field string) {
	names := make(map[string]bool)
	for i, from := range policies {
		p, err := newPolicy(r, from)
		if err != nil {
			c.policyFaults(err, fmt.Sprintf("%s.Policies[%d]", field, i))
			continue
		}
		if names[p.limit.Name()] {
			c.fault(field+".Policies", "there are two policies called %q: give one another Name", p.limit.Name())
		}
		names[p.limit.Name()] = true
		p.share = s
		s.policies = append(s.policies, p)
	}
}

// newPolicy compiles from as a policy of r.
func newPolicy(r *rule, from quota.Policy) (*policy, error) {
	name := from.Name
	from.Name = r.name + "/" + cmp.Or(from.Name, windowName(from))
	limit, err := from.Compile()
	if err != nil {
		return nil, err
	}
	compiled := limit.Policy()
	return &policy{
		rule: r, limit: limit, atOnce: limit.AtOnce(),
		fields: ratelimit.Limit{Name: name, Quota: compiled.Quota, Window: compiled.Window, Algorithm: onWire[compiled.Algorithm]},
	}, nil
}

// onWire is how the fields call each algorithm. They say it of every policy: a client
// cannot see from the other parameters whether what was used comes back bit by bit, or all
// at once.
var onWire = map[quota.Algorithm]string{
	quota.TokenBucket:   ratelimit.TokenBucket,
	quota.FixedWindow:   ratelimit.FixedWindow,
	quota.LeakyBucket:   ratelimit.LeakyBucket,
	quota.SlidingWindow: ratelimit.SlidingWindow,
	quota.SlidingLog:    ratelimit.SlidingLog,
}

// policyFaults says of each fault that Compile joined where it is.
func (c *compiler) policyFaults(err error, field string) {
	if joined, ok := err.(interface{ Unwrap() []error }); ok {
		for _, err := range joined.Unwrap() {
			c.policyFaults(err, field)
		}
		return
	}
	if fault, ok := errors.AsType[*quota.PolicyError](err); ok {
		c.fault(field+"."+fault.Field, "%s", fault.Reason)
		return
	}
	c.fault(field, "%v", err)
}

// distinct checks that no two policies would be counted together, but those of
// one rule's tiers.
func (c *compiler) distinct(rules []*rule) {
	first, policies := make(map[string]string), make(map[string]bool)
	for _, r := range rules {
		if field, ok := first[r.name]; ok {
			c.fault(r.field+".Name", "%q is the name of %s too", r.name, field)
			continue
		}
		first[r.name] = r.field
		for name := range r.limitNames() {
			if policies[name] {
				c.fault(r.field+".Policies", "there are two policies called %q: give one another Name", name)
			}
			policies[name] = true
		}
	}
}

// limitNames are the names by which a Store knows r's policies.
func (r *rule) limitNames() map[string]bool {
	names := make(map[string]bool)
	for _, s := range r.shares() {
		for _, p := range s.policies {
			names[p.limit.Name()] = true
		}
	}
	for _, l := range r.penalty.limits() {
		names[l.Name()] = true
	}
	return names
}

// nameOnWire names each policy by itself, or by its rule where it has no name
// and is alone; and by both where that is not enough to tell it from others.
func nameOnWire(rules []*rule) {
	count := make(map[string]int)
	for _, r := range rules {
		for name := range r.wireNames() {
			count[name]++
		}
	}
	for _, r := range rules {
		for _, s := range r.shares() {
			for _, p := range s.policies {
				if p.fields.Name == "" || count[p.fields.Name] > 1 {
					p.fields.Name = p.limit.Name()
				}
			}
		}
	}
}

// wireNames are all names that r's policies may have in fields.
func (r *rule) wireNames() map[string]bool {
	names := r.limitNames()
	for _, s := range r.shares() {
		for _, p := range s.policies {
			if p.fields.Name == "" && len(s.policies) == 1 {
				p.fields.Name = r.name
			}
			names[p.fields.Name] = true
		}
	}
	return names
}

// windowName writes the window of p without its zeros: 1m, 24h, 1h30m.
func windowName(p quota.Policy) string {
	if p.Calendar != 0 {
		return p.Calendar.String()
	}
	s := p.Window.String()
	if strings.HasSuffix(s, "m0s") {
		s = strings.TrimSuffix(s, "0s")
	}
	if strings.HasSuffix(s, "h0m") {
		s = strings.TrimSuffix(s, "0m")
	}
	return s
}

// printable reports whether s can be a name in a structured field (RFC 9651,
// section 3.3.3).
func printable(s string) bool {
	for i := range len(s) {
		if s[i] < 0x20 || s[i] > 0x7e {
			return false
		}
	}
	return true
}
