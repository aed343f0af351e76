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

	"github.com/heedhttp/heed/internal/remote"
	"github.com/heedhttp/heed/quota"
)

// Limits returns the limits of single keys, such as accounts with a contract of their own.
// LimitTable is one in memory; redisstore.Limits reads them from Redis.
//
// Limits is asked for every request, so it must answer from memory, or from a cache with a
// short deadline. It must be safe for concurrent use. If it has a method Validate() error, New
// calls it.
type Limits interface {
	// Limits returns the policies of key: what the rule's Key returned, or Config.Key if the
	// rule has none. It is not asked about "". Policies with a Quota of zero are ignored. One with
	// a Quota of quota.Blocked blocks the key: its requests get a 403. If no policies are returned,
	// the rule's own apply. An error is reported to Audit; policies returned with it, such as the
	// last known ones, still apply.
	//
	// An error that wraps quota.ErrUnknownLimits says that the key may even be blocked. Then
	// Rule.OnStoreError applies, as if the Store had failed: with FailClosed the request gets a 503, with
	// FailOpen the rule does not count it, and with FailLocal the rule's own policies apply.
	Limits(ctx context.Context, key string) ([]quota.Policy, error)
}

// KeyLimits are the limits of one key in a LimitTable. Zero means no limit.
type KeyLimits struct {
	PerSecond int64 `json:"per_second"`
	PerMinute int64 `json:"per_minute"`
	PerHour   int64 `json:"per_hour"`
	PerDay    int64 `json:"per_day"`

	// Blocked makes the rule refuse all requests of the key, with a 403.
	Blocked bool `json:"blocked"`
}

// Policies returns k as Limits returns it.
func (k KeyLimits) Policies() []quota.Policy {
	if k.Blocked {
		return []quota.Policy{{Quota: quota.Blocked}}
	}
	return k.windows()
}

func (k KeyLimits) windows() []quota.Policy {
	return []quota.Policy{
		quota.PerSecond(k.PerSecond), quota.PerMinute(k.PerMinute), quota.PerHour(k.PerHour), quota.PerDay(k.PerDay),
	}
}

// A LimitTable is Limits in memory, by key:
//
//	Limits: serverside.LimitTable{"key-1": {PerMinute: 600}, "key-2": {PerMinute: 60, PerDay: 5000}}
//
// For Header, Cookie and FormValue, list the results of HashKey. Do not change a table that a
// Limiter uses: make another one, and Reconfigure.
type LimitTable map[string]KeyLimits

// Limits implements Limits.
func (t LimitTable) Limits(_ context.Context, key string) ([]quota.Policy, error) {
	k, ok := t[key]
	if !ok {
		return nil, nil
	}
	return k.Policies(), nil
}

// Validate returns an error for each negative limit. It gives the key's index in sorted order
// instead of the key, which may be a secret.
func (t LimitTable) Validate() error {
	var faults []error
	for i, key := range slices.Sorted(maps.Keys(t)) {
		for _, p := range t[key].windows() {
			if p.Quota < 0 {
				faults = append(faults, fmt.Errorf("serverside: limits: key %d: %s is %d: must not be negative",
					i, windowName(p), p.Quota))
			}
		}
	}
	return errors.Join(faults...)
}

// ReadLimits reads a LimitTable from a JSON object with an object of limits for each key.
// Missing limits and null are zero; negative ones and other members are an error:
//
//	{"key-1": {"per_minute": 120, "per_day": 5000}, "key-2": {"per_second": null}, "key-3": {"blocked": true}}
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

// LoadLimits reads a LimitTable from a file, as ReadLimits does.
func LoadLimits(name string) (LimitTable, error) {
	f, err := os.Open(name)
	if err != nil {
		return nil, fmt.Errorf("serverside: limits: %w", err)
	}
	defer f.Close()
	return ReadLimits(f)
}

// A limits holds the policies of a rule that vary with the request.
type limits struct {
	tier  func(*http.Request) string
	tiers []*policySet // the lowest first; may be empty
	named map[string]*policySet
	byKey Limits // may be nil

	known sync.Map     // *policy by the quota.Policy that byKey returned
	count atomic.Int64 // entries in known
}

// maxCompiled bounds the policies of Limits that are kept compiled. Keys with equal limits
// share them.
const maxCompiled = 4096

// dynamicLimits compiles the policies of r that vary with the request.
func (c *compiler) dynamicLimits(r *rule, from Rule, field string) {
	if len(from.Tiers) == 0 && from.Tier == nil && from.Limits == nil {
		return
	}
	l := &limits{tier: from.Tier, named: make(map[string]*policySet), byKey: from.Limits}
	r.limits = l
	switch {
	case len(from.Tiers) > 0 && from.Tier == nil:
		c.fault(field+".Tier", "is required with Tiers")
	case len(from.Tiers) == 0 && from.Tier != nil:
		c.fault(field+".Tiers", "must not be empty")
	case len(from.Tiers) > 0 && len(from.Policies) > 0:
		c.fault(field+".Policies", "has no effect beside Tiers: leave it out")
	case len(from.Tiers) == 0 && len(from.Policies) == 0:
		c.fault(field+".Policies", "must not be empty: keys that Limits does not know need a limit")
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
		c.fault(field+".Name", "%q is already the name of another tier", from.Name)
	}
	if len(from.Policies) == 0 {
		c.fault(field+".Policies", "must not be empty")
	}
	c.policySet(r, s, from.Policies, field)
	r.limits.tiers, r.limits.named[from.Name] = append(r.limits.tiers, s), s
}

// of returns the policies that apply to c's request by m's rule. An error means that nobody knows
// whether its key has others.
func (l *limits) of(c *check, m match) (*policySet, error) {
	s, unknown := l.ofKey(c, m)
	switch {
	case s != nil:
	case len(l.tiers) == 0:
		s = &m.rule.policySet
	default:
		s = cmp.Or(l.named[l.tier(c.r)], l.tiers[0])
	}
	return s, unknown
}

var blockedSet = &policySet{blocked: true}

// ofKey returns the policies that Limits has for m's key, or nil. An error means that Limits does not
// know.
func (l *limits) ofKey(c *check, m match) (_ *policySet, unknown error) {
	if l.byKey == nil {
		return nil, nil
	}
	key := c.fallback
	if m.rule.key != nil {
		key = m.rule.key.Of(c.r)
	}
	if key == "" {
		return nil, nil
	}
	// A client that disconnects must not be the reason why its limits are unknown.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(c.r.Context()), c.store.caller.Timeout)
	defer cancel()
	policies, err := l.byKey.Limits(ctx, key)
	if err != nil {
		c.auditLimits(m, err)
		if errors.Is(err, quota.ErrUnknownLimits) {
			return nil, &StoreError{err, remote.IsLate(err)}
		}
	}
	if len(policies) == 0 {
		return nil, nil
	}
	if slices.ContainsFunc(policies, func(p quota.Policy) bool { return p.Quota == quota.Blocked }) {
		return blockedSet, nil
	}
	s := new(policySet)
	for i, from := range policies {
		if from.Quota == 0 {
			continue
		}
		policy, err := l.compiled(m.rule, from)
		if err == nil && s.has(policy.limit.Name()) { // two policies with the same window count apart
			from.Name = fmt.Sprintf("%s/%d", cmp.Or(from.Name, windowName(from)), i+1)
			policy, err = l.compiled(m.rule, from)
		}
		if err != nil {
			c.auditLimits(m, err)
			return nil, nil
		}
		s.policies = append(s.policies, policy)
	}
	return s, nil
}

// has reports whether s has a policy with this name in the Store.
func (s *policySet) has(name string) bool {
	return slices.ContainsFunc(s.policies, func(p *policy) bool { return p.limit.Name() == name })
}

// compiled returns from compiled. It compiles each policy once.
func (l *limits) compiled(r *rule, from quota.Policy) (*policy, error) {
	if known, ok := l.known.Load(from); ok {
		return known.(*policy), nil
	}
	policy, err := newPolicy(r, from)
	if err != nil {
		return nil, err
	}
	policy.fields.Name = policy.limit.Name()
	if l.count.Add(1) > maxCompiled {
		l.known.Clear()
		l.count.Store(0)
	}
	l.known.Store(from, policy)
	return policy, nil
}
