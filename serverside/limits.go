package serverside

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"os"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/heedhttp/heed/quota"
)

// Limits knows limits that single keys have of their own, such as those of an
// account in a database.
//
// It is asked for every request, so it answers from memory, or from a cache with
// a short deadline. It must be safe for concurrent use. If it has a method
// Validate() error, New calls it.
type Limits interface {
	// Limits returns the policies of key, which is what the rule's Key
	// returned. Those with a Quota of zero are not enforced. If there are none at
	// all, key has no limits of its own, and those of the rule hold. An error is
	// told to Audit; policies beside it, which may be the last that were known, hold
	// all the same.
	Limits(ctx context.Context, key string) ([]quota.Policy, error)
}

// KeyLimits are the limits of one key in a LimitTable. A window of which the
// limit is zero is not enforced.
type KeyLimits struct {
	PerSecond int64 `json:"per_second"`
	PerMinute int64 `json:"per_minute"`
	PerHour   int64 `json:"per_hour"`
	PerDay    int64 `json:"per_day"`
}

// Policies are the limits as Limits returns them.
func (k KeyLimits) Policies() []quota.Policy {
	return []quota.Policy{
		quota.PerSecond(k.PerSecond), quota.PerMinute(k.PerMinute), quota.PerHour(k.PerHour), quota.PerDay(k.PerDay),
	}
}

// A LimitTable is Limits in memory. It must not be changed while a Limiter uses
// it: make another one, and Reconfigure.
type LimitTable map[string]KeyLimits

// Limits implements Limits.
func (t LimitTable) Limits(_ context.Context, key string) ([]quota.Policy, error) {
	k, ok := t[key]
	if !ok {
		return nil, nil
	}
	return k.Policies(), nil
}

// Validate returns an error for each key that has a negative limit. It does not
// name the key, which may be a secret, but its place in the sorted list of keys.
func (t LimitTable) Validate() error {
	var faults []error
	for i, key := range slices.Sorted(maps.Keys(t)) {
		for _, p := range t[key].Policies() {
			if p.Quota < 0 {
				faults = append(faults, fmt.Errorf("serverside: limits: key %d: %s is %d: must not be negative",
					i, windowName(p), p.Quota))
			}
		}
	}
	return errors.Join(faults...)
}

// ReadLimits reads a LimitTable from JSON, an object with an object of limits for
// each key, where null and what is missing are zero:
//
//	{"key-1": {"per_minute": 120, "per_day": 5000}, "key-2": {"per_second": null}}
func ReadLimits(r io.Reader) (LimitTable, error) {
	var t LimitTable
	d := json.NewDecoder(r)
	d.DisallowUnknownFields()
	if err := d.Decode(&t); err != nil {
		return nil, fmt.Errorf("serverside: limits: %w", err)
	}
	if _, err := d.Token(); err != io.EOF {
		return nil, errors.New("serverside: limits: there is more after the object")
	}
	return t, t.Validate()
}

// LoadLimits is ReadLimits of the file called name.
func LoadLimits(name string) (LimitTable, error) {
	f, err := os.Open(name)
	if err != nil {
		return nil, fmt.Errorf("serverside: limits: %w", err)
	}
	defer f.Close()
	return ReadLimits(f)
}

// limits are what a rule's policies depend on.
type limits struct {
	tier  func(*http.Request) string
	tiers []*policySet // the lowest first; may be empty
	named map[string]*policySet
	byKey Limits // may be nil

	known sync.Map     // quota.Policy of byKey to its *policy
	count atomic.Int64 // of known
}

// mostKnown bounds how many policies of Limits are kept compiled. Keys that have
// the same limits share one.
const mostKnown = 4096

// varying compiles what r's policies depend on.
func (c *compiler) varying(r *rule, from Rule, field string) {
	if len(from.Tiers) == 0 && from.Tier == nil && from.Limits == nil {
		return
	}
	l := &limits{tier: from.Tier, named: make(map[string]*policySet), byKey: from.Limits}
	r.limits = l
	switch {
	case len(from.Tiers) > 0 && from.Tier == nil:
		c.fault(field+".Tier", "must say which of Tiers holds")
	case len(from.Tiers) == 0 && from.Tier != nil:
		c.fault(field+".Tiers", "there must be at least one")
	case len(from.Tiers) > 0 && len(from.Policies) > 0:
		c.fault(field+".Policies", "would never hold beside Tiers")
	case len(from.Tiers) == 0 && len(from.Policies) == 0:
		c.fault(field+".Policies", "there must be at least one, for keys that Limits does not know")
	}
	for i, tier := range from.Tiers {
		c.tier(r, tier, fmt.Sprintf("%s.Tiers[%d]", field, i))
	}
	if valid, ok := from.Limits.(interface{ Validate() error }); ok {
		if err := valid.Validate(); err != nil {
			c.fault(field+".Limits", "%v", err)
		}
	}
}

func (c *compiler) tier(r *rule, from Tier, field string) {
	s := &policySet{tier: from.Name}
	if r.limits.named[from.Name] != nil {
		c.fault(field+".Name", "%q is the name of another tier too", from.Name)
	}
	if len(from.Policies) == 0 {
		c.fault(field+".Policies", "there must be at least one")
	}
	c.policySet(r, s, from.Policies, field)
	r.limits.tiers, r.limits.named[from.Name] = append(r.limits.tiers, s), s
}

// of returns what holds for the request of c by m.
func (l *limits) of(c *check, m match) *policySet {
	if s := l.ofKey(c, m); s != nil {
		return s
	}
	if len(l.tiers) == 0 {
		return &m.rule.policySet
	}
	if s := l.named[l.tier(c.r)]; s != nil {
		return s
	}
	return l.tiers[0]
}

// ofKey returns what Limits says of m's key, or nil.
func (l *limits) ofKey(c *check, m match) *policySet {
	if l.byKey == nil {
		return nil
	}
	key := c.fallback
	if m.rule.key != nil {
		key = m.rule.key.Of(c.r)
	}
	if key == "" {
		return nil
	}
	ctx, cancel := context.WithTimeout(c.r.Context(), c.store.caller.Timeout)
	defer cancel()
	policies, err := l.byKey.Limits(ctx, key)
	if err != nil {
		c.auditLimits(m, err)
	}
	if len(policies) == 0 {
		return nil
	}
	s := new(policySet)
	for i, from := range policies {
		if from.Quota == 0 {
			continue
		}
		policy, err := l.compiled(m.rule, from)
		if err == nil && s.has(policy.limit.Name()) { // two of one window are counted apart
			from.Name = fmt.Sprintf("%s/%d", cmp.Or(from.Name, windowName(from)), i+1)
			policy, err = l.compiled(m.rule, from)
		}
		if err != nil {
			c.auditLimits(m, err)
			return nil
		}
		s.policies = append(s.policies, policy)
	}
	return s
}

// has reports whether s has a policy that the Store knows by a name.
func (s *policySet) has(name string) bool {
	return slices.ContainsFunc(s.policies, func(p *policy) bool { return p.limit.Name() == name })
}

// compiled is from, compiled once.
func (l *limits) compiled(r *rule, from quota.Policy) (*policy, error) {
	if known, ok := l.known.Load(from); ok {
		return known.(*policy), nil
	}
	policy, err := newPolicy(r, from)
	if err != nil {
		return nil, err
	}
	policy.fields.Name = policy.limit.Name()
	if l.count.Add(1) > mostKnown {
		l.known.Clear()
		l.count.Store(0)
	}
	l.known.Store(from, policy)
	return policy, nil
}
