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

// A compiler collects the faults of a Config.
type compiler struct{ faults []error }

func (c *compiler) fault(field, format string, args ...any) {
	c.faults = append(c.faults, &ConfigError{field, fmt.Sprintf(format, args...)})
}

// compile checks cfg and prepares it for l.
func compile(cfg Config, l *Limiter) (*compiled, error) {
	if cfg.Memory == nil {
		cfg.Memory = &l.memory
	}
	var c compiler
	p := &compiled{Config: cfg, hot: &l.hot, audited: cfg.Audit != nil}
	if p.Audit == nil {
		p.Audit = logWarnings()
	}
	c.settings(cfg)
	for i, from := range cfg.Rules {
		field := fmt.Sprintf("Rules[%d]", i)
		if from.Login != nil {
			p.rules = append(p.rules, c.loginRules(from, &cfg, field)...)
		} else {
			p.rules = append(p.rules, c.rule(from, cfg.OnStoreError, field))
		}
	}
	for i := range cfg.Allow {
		p.allow = append(p.allow, c.entry(&cfg.Allow[i], cfg.OnStoreError, fmt.Sprintf("Allow[%d]", i)))
	}
	for i, pattern := range cfg.Exempt {
		p.exempt = append(p.exempt, c.exemption(pattern, fmt.Sprintf("Exempt[%d]", i)))
	}
	all := slices.Concat(p.rules, p.allow)
	c.distinct(all)
	c.checkClaims(p)
	if err := errors.Join(c.faults...); err != nil {
		return nil, err
	}
	nameOnWire(all)
	for _, r := range all {
		r.readsBody = p.readsBody(r)
	}
	p.sort()
	p.hash = hashOf(p)
	p.prepare()
	p.store = newCounter(&cfg)
	p.gates = newGates(&cfg, p.store)
	return p, nil
}

func (c *compiler) settings(cfg Config) {
	const styles = 2*ratelimit.None - 1
	overload := func(r Rule) bool { return r.Stage == Overload }
	switch {
	case len(cfg.Rules) == 0:
		c.fault("Rules", "must not be empty")
	case !slices.ContainsFunc(cfg.Rules, func(r Rule) bool { return !overload(r) }):
		c.fault("Rules", "has only Overload rules, so one client could use everything: add a rule for each client")
	}
	if _, ok := cfg.Store.(quota.Settler); cfg.Store != nil && !ok && slices.ContainsFunc(cfg.Rules, settles) {
		c.fault("Store", "must be a quota.Settler for rules with Settle, Penalty or Login")
	}
	if f, ok := cfg.Key.(KeyFunc); ok && f == nil {
		c.fault("Key", "must not be a nil KeyFunc")
	}
	if cfg.StoreTimeout < 0 {
		c.fault("StoreTimeout", "is %v: must not be negative", cfg.StoreTimeout)
	}
	if !cfg.OnStoreError.valid() {
		c.fault("OnStoreError", "is %v: must be FailOpen, FailClosed or FailLocal", cfg.OnStoreError)
	}
	if s := cfg.ClosedStatus; s != 0 && s != http.StatusServiceUnavailable && s != http.StatusTooManyRequests {
		c.fault("ClosedStatus", "is %d: must be 503 or 429", s)
	}
	if cfg.Style&^styles != 0 {
		c.fault("Style", "has unknown bits %#x", int(cfg.Style&^styles))
	}
}

// settles reports whether r corrects charges.
func settles(r Rule) bool { return r.Settle != nil || r.Penalty != nil || r.Login != nil }

// rule compiles from.
func (c *compiler) rule(from Rule, mode FailureMode, field string) *rule {
	r := &rule{
		name: cmp.Or(from.Name, from.Pattern, "default"), pattern: from.Pattern, field: field,
		stage: from.Stage, applies: from.If, key: from.Key, cost: from.Cost, dryRun: from.DryRun,
		status: cmp.Or(from.Status, http.StatusTooManyRequests), mode: from.modeOr(mode), inFlight: from.MaxInFlight,
		settle: from.Settle,
	}
	if !printable(r.name) {
		c.fault(field+".Name", "is %q: must be printable ASCII", r.name)
		r.name = field
	}
	if !from.OnStoreError.valid() {
		c.fault(field+".OnStoreError", "is %v: must be FailOpen, FailClosed or FailLocal", from.OnStoreError)
	}
	if f, ok := from.Key.(KeyFunc); ok && f == nil {
		c.fault(field+".Key", "must not be a nil KeyFunc")
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

// stage checks r's Stage, and its Status and Key, which depend on it.
func (c *compiler) stage(r *rule, field string) {
	if r.stage < BeforeAuth || r.stage >= stages {
		c.fault(field+".Stage", "is %d: must be BeforeAuth, AfterAuth or Overload", int(r.stage))
	}
	switch {
	case r.status == http.StatusTooManyRequests:
	case r.status != http.StatusServiceUnavailable:
		c.fault(field+".Status", "is %d: must be 429, or 503 in the Overload stage", r.status)
	case r.stage != Overload:
		c.fault(field+".Status", "is 503: only rules of the Overload stage may deny with 503")
	}
	if r.stage == Overload && r.key == nil {
		r.key = allClients
	}
}

// limits compiles from's policies and MaxInFlight.
func (c *compiler) limits(r *rule, from Rule, field string) {
	if from.MaxInFlight < 0 {
		c.fault(field+".MaxInFlight", "is %d: must not be negative", from.MaxInFlight)
	}
	c.dynamicLimits(r, from, field)
	if len(from.Policies) == 0 && from.MaxInFlight == 0 && r.limits == nil {
		c.fault(field+".Policies", "must not be empty")
	}
	c.policySet(r, &r.policySet, from.Policies, field)
}

// sameName is the fault of two policies that would be counted together.
const sameName = "two are called %q: rename one"

// policySet compiles policies of r into s.
func (c *compiler) policySet(r *rule, s *policySet, policies []quota.Policy, field string) {
	names := make(map[string]bool)
	for i, from := range policies {
		p, err := newPolicy(r, from)
		if err != nil {
			c.policyFaults(err, fmt.Sprintf("%s.Policies[%d]", field, i))
			continue
		}
		if names[p.limit.Name()] {
			c.fault(field+".Policies", sameName, p.limit.Name())
		}
		names[p.limit.Name()] = true
		p.set = s
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
	compiled, shown := limit.Policy(), always
	if r.stage == Overload {
		shown = whenDenying
	}
	return &policy{
		rule: r, limit: limit, atOnce: limit.AtOnce(), shown: shown,
		fields: ratelimit.Limit{
			Name: name, Quota: compiled.Quota, Window: compiled.Window, Algorithm: onWire[compiled.Algorithm],
		},
	}, nil
}

// onWire maps algorithms to their names in the fields. The fields always name the algorithm,
// because a client cannot see from the numbers whether a quota refills gradually or at once.
var onWire = map[quota.Algorithm]string{
	quota.TokenBucket:   ratelimit.TokenBucket,
	quota.FixedWindow:   ratelimit.FixedWindow,
	quota.LeakyBucket:   ratelimit.LeakyBucket,
	quota.SlidingWindow: ratelimit.SlidingWindow,
	quota.SlidingLog:    ratelimit.SlidingLog,
}

// policyFaults reports each fault that Compile returned, at its field.
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

// distinct checks that no two policies would be counted together, except those of one rule's
// tiers.
func (c *compiler) distinct(rules []*rule) {
	first, policies := make(map[string]string), make(map[string]bool)
	for _, r := range rules {
		if field, ok := first[r.name]; ok {
			c.fault(r.field+".Name", "%q is already the name of %s", r.name, field)
			continue
		}
		first[r.name] = r.field
		for name := range r.limitNames() {
			if policies[name] {
				c.fault(r.field+".Policies", sameName, name)
			}
			policies[name] = true
		}
	}
}

// limitNames returns the names of r's policies in the Store.
func (r *rule) limitNames() map[string]bool {
	names := make(map[string]bool)
	for _, s := range r.sets() {
		for _, p := range s.policies {
			names[p.limit.Name()] = true
		}
	}
	for _, l := range r.penalty.limits() {
		names[l.Name()] = true
	}
	if r.login != nil && r.login.byNetwork {
		names[r.login.known.Name()] = true
	}
	return names
}

// nameOnWire sets the names of policies in the fields: the policy's own name, or its rule's if
// it has none and is the only one; if that is ambiguous, both.
func nameOnWire(rules []*rule) {
	count := make(map[string]int)
	for _, r := range rules {
		for name := range r.wireNames() {
			count[name]++
		}
	}
	for _, r := range rules {
		for _, s := range r.sets() {
			for _, p := range s.policies {
				if p.fields.Name == "" || count[p.fields.Name] > 1 {
					p.fields.Name = p.limit.Name()
				}
			}
		}
	}
}

// wireNames returns all names that r's policies may have in the fields.
func (r *rule) wireNames() map[string]bool {
	names := r.limitNames()
	for _, s := range r.sets() {
		for _, p := range s.policies {
			if p.fields.Name == "" && len(s.policies) == 1 {
				p.fields.Name = r.name
			}
			names[p.fields.Name] = true
		}
	}
	return names
}

// windowName returns p's window without zero units: 1m, 24h, 1h30m.
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

// printable reports whether s can be a name in a structured field (RFC 9651, section 3.3.3).
func printable(s string) bool {
	for i := range len(s) {
		if s[i] < 0x20 || s[i] > 0x7e {
			return false
		}
	}
	return true
}

// checkClaims checks that every rule whose key clients can make up has another rule beside it
// that they cannot evade.
func (c *compiler) checkClaims(p *compiled) {
	for _, r := range p.rules {
		faulty := r.matcher == nil && r.pattern != ""
		reported := r.login != nil && r.login.byNetwork // the other rule of the Login reports it
		if !p.isClaimed(r) || r.stage != BeforeAuth || faulty || reported {
			continue
		}
		if !slices.ContainsFunc(p.rules, func(by *rule) bool { return p.caps(by, r) }) {
			c.fault(r.field+".Key", "is sent by the client, which can change it with every request: "+
				"add a rule by ClientIP for the same requests, or check the key first and set Stage to AfterAuth")
		}
	}
}

// originOf returns the origin of r's keys.
func (p *compiled) originOf(r *rule) origin {
	switch {
	case r.key != nil:
		return known(r.key).origin
	case p.Key != nil:
		return known(p.Key).origin
	default:
		return address
	}
}

// readsBody reports whether r's keys are read from the body.
func (p *compiled) readsBody(r *rule) bool {
	return r.key != nil && known(r.key).body || p.Key != nil && known(p.Key).body
}

// isClaimed reports whether clients can make up r's keys.
func (p *compiled) isClaimed(r *rule) bool { return p.originOf(r) == claimed }

// caps reports whether rule by limits every request that r limits, by a key that clients cannot
// make up and a charge that they cannot get back.
func (p *compiled) caps(by, r *rule) bool {
	final := by.settle == nil && (by.penalty == nil || by.penalty.Pardon == nil)
	return by.stage == BeforeAuth && !by.dryRun && p.originOf(by) >= address && by.applies == nil && final &&
		len(by.policies) > 0 && by.limits == nil && by.matcher.covers(r.matcher)
}
