package serverside

import (
	"cmp"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync/atomic"
	"time"

	"github.com/heedhttp/heed/quota"
	"github.com/heedhttp/heed/ratelimit"
)

// A plan is a Config, checked and compiled. It is immutable.
type plan struct {
	Config
	rules  []rule
	memory *quota.Memory // what counts, if it is in this process
	remote *remote       // what counts, if not

	most     int                // policies of all rules
	enforced int                // of them are no dry run
	template ratelimit.Template // of these

	forwarding atomic.Bool // ForwardingIgnored was told
}

// A rule is a compiled Rule.
type rule struct {
	name, pattern string
	matcher       *matcher // nil matches everything
	key           KeyFunc  // may be nil
	cost          func(*http.Request) int64
	dryRun        bool
	mode          FailureMode // never ForceOpen
	policies      []*policy
	template      ratelimit.Template // of policies
}

// A policy is a compiled quota.Policy.
type policy struct {
	rule   *rule
	limit  *quota.Limit
	atOnce int64           // units that fit where nothing is owed
	fields ratelimit.Limit // what of it never changes
}

// describe makes l what d says of p. A burst beyond the quota is not told: what
// remains is never more than the limit.
func (p *policy) describe(l *ratelimit.Limit, d *quota.Decision) {
	*l = p.fields
	l.Remaining, l.Next, l.Reset, l.At = d.Remaining, d.NextAfter, d.ResetAfter, d.At
	if l.Remaining >= l.Quota {
		l.Remaining, l.Next = l.Quota, 0
	}
}

// A compiler collects what is wrong.
type compiler struct{ faults []error }

func (c *compiler) fault(field, format string, args ...any) {
	c.faults = append(c.faults, &ConfigError{field, fmt.Sprintf(format, args...)})
}

// compile checks cfg and makes a plan of it. local counts where there is no Store.
func compile(cfg Config, local *quota.Memory) (*plan, error) {
	var c compiler
	c.settings(cfg)
	p := &plan{Config: cfg, rules: make([]rule, len(cfg.Rules))}
	for i, from := range cfg.Rules {
		c.rule(&p.rules[i], from, fmt.Sprintf("Rules[%d]", i))
		p.rules[i].mode = from.modeOr(cfg.OnStoreError)
	}
	c.distinct(p.rules)
	if err := errors.Join(c.faults...); err != nil {
		return nil, err
	}
	nameOnWire(p.rules)
	p.prepare()
	p.countWith(cfg.Store, local)
	return p, nil
}

// prepare renders what of the fields never changes.
func (p *plan) prepare() {
	var all []ratelimit.Limit
	for i := range p.rules {
		r := &p.rules[i]
		var limits []ratelimit.Limit
		for _, policy := range r.policies {
			limits = append(limits, policy.fields)
		}
		p.most += len(limits)
		r.template = ratelimit.Prepare(p.Style, limits...)
		if !r.dryRun {
			all = append(all, limits...)
		}
	}
	p.enforced, p.template = len(all), ratelimit.Prepare(p.Style, all...)
}

// countWith sets what counts.
func (p *plan) countWith(store quota.Store, local *quota.Memory) {
	memory, ok := store.(*quota.Memory)
	switch {
	case store == nil || ok && memory == nil:
		p.memory = local
	case ok:
		p.memory = memory
	default:
		p.remote = newRemote(store, cmp.Or(p.StoreTimeout, 75*time.Millisecond))
	}
}

func (c *compiler) settings(cfg Config) {
	const styles = 2*ratelimit.None - 1
	if len(cfg.Rules) == 0 {
		c.fault("Rules", "there must be at least one")
	}
	if cfg.StoreTimeout < 0 {
		c.fault("StoreTimeout", "is %v: must not be negative", cfg.StoreTimeout)
	}
	if !cfg.OnStoreError.valid() {
		c.fault("OnStoreError", "there is no %v", cfg.OnStoreError)
	}
	if cfg.Style&^styles != 0 {
		c.fault("Style", "there is no style %#x", int(cfg.Style&^styles))
	}
}

// rule compiles from into to.
func (c *compiler) rule(to *rule, from Rule, field string) {
	*to = rule{
		name:    cmp.Or(from.Name, from.Pattern, "default"),
		pattern: from.Pattern,
		key:     from.Key,
		cost:    from.Cost,
		dryRun:  from.DryRun,
	}
	if !printable(to.name) {
		c.fault(field+".Name", "%q must be printable ASCII", to.name)
		to.name = field
	}
	if !from.OnStoreError.valid() {
		c.fault(field+".OnStoreError", "there is no %v", from.OnStoreError)
	}
	if from.Pattern != "" {
		var err error
		if to.matcher, err = newMatcher(from.Pattern); err != nil {
			c.fault(field+".Pattern", "%v", err)
		}
	}
	if len(from.Policies) == 0 {
		c.fault(field+".Policies", "there must be at least one")
	}
	for i, p := range from.Policies {
		c.policy(to, p, fmt.Sprintf("%s.Policies[%d]", field, i))
	}
}

// policy compiles from as a policy of r.
func (c *compiler) policy(r *rule, from quota.Policy, field string) {
	name := from.Name
	from.Name = r.name + "/" + cmp.Or(from.Name, windowName(from.Window))
	limit, err := from.Compile()
	if err != nil {
		c.policyFaults(err, field)
		return
	}
	compiled := limit.Policy()
	r.policies = append(r.policies, &policy{
		rule: r, limit: limit, atOnce: limit.AtOnce(),
		fields: ratelimit.Limit{Name: name, Quota: compiled.Quota, Window: compiled.Window},
	})
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

// distinct checks that no two policies would be counted together.
func (c *compiler) distinct(rules []rule) {
	rule := make(map[string]int)
	policy := make(map[string]bool)
	for i, r := range rules {
		if first, ok := rule[r.name]; ok {
			c.fault(fmt.Sprintf("Rules[%d].Name", i), "%q is the name of Rules[%d] too", r.name, first)
			continue
		}
		rule[r.name] = i
		for _, p := range r.policies {
			if name := p.limit.Name(); policy[name] {
				c.fault(fmt.Sprintf("Rules[%d].Policies", i), "there are two policies called %q: give one another Name", name)
			}
			policy[p.limit.Name()] = true
		}
	}
}

// nameOnWire names each policy by itself, or by its rule where it has no name
// and is alone; and by both where that is not enough to tell it from others.
func nameOnWire(rules []rule) {
	count := make(map[string]int)
	for _, r := range rules {
		for _, p := range r.policies {
			if p.fields.Name == "" && len(r.policies) == 1 {
				p.fields.Name = r.name
			}
			count[p.fields.Name]++
			count[p.limit.Name()]++
		}
	}
	for _, r := range rules {
		for _, p := range r.policies {
			if p.fields.Name == "" || count[p.fields.Name] > 1 {
				p.fields.Name = p.limit.Name()
			}
		}
	}
}

// windowName writes d without its zeros: 1m, 24h, 1h30m.
func windowName(d time.Duration) string {
	s := d.String()
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
