package rulefile

import (
	"context"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/heedhttp/heed/quota"
	"github.com/heedhttp/heed/serverside"
)

// An Explanation says which rules of a file apply to a request. Explain returns it.
type Explanation struct {
	// Exempt reports that the request matches exempt, so that no rule limits it.
	Exempt bool

	// Rules are the rules that apply, in the order in which they are checked. If there are
	// none, the request is not limited. If an entry of allow applies, it is the only one.
	Rules []Applied
}

// An Applied is a rule, or an entry of allow, that applies to a request.
type Applied struct {
	Listed
	Allowed bool      // it is an entry of allow
	Value   string    // the request's key, as the Store gets it
	Charges []Charged // empty for a rule that has only max_in_flight
}

// A Charged is the charge of a request to one policy.
type Charged struct {
	Policy   quota.Policy // with all defaults filled in
	Cost     int64
	Decision quota.Decision // of an empty store
}

// Explain reports what a rule file does to a request. It serves the request once, with a Limiter
// that has the file's rules and an empty store, so nothing is charged elsewhere. It calls the
// functions of env.
//
// The error is Parse's.
func Explain(name string, data []byte, env Env, req *http.Request) (*Explanation, error) {
	l, err := List(name, data, env)
	if err != nil {
		return nil, err
	}
	charges, err := try(numbered(l.Config), req)
	if err != nil {
		return nil, err
	}
	return &Explanation{Exempt: len(charges) == 0, Rules: l.applied(charges)}, nil
}

// numbered names rules by their index and allow entries by negative numbers, so that names of
// charges contain them: "3/1m", or "-1/1m" for the first entry. Every rule gets a policy to
// charge, and a rule for all requests is added, so that only exempt requests charge nothing.
func numbered(cfg serverside.Config) serverside.Config {
	standIn := []quota.Policy{quota.PerSecond(1)}
	cfg.Rules, cfg.Allow = slices.Clone(cfg.Rules), slices.Clone(cfg.Allow)
	for i := range cfg.Rules {
		r := &cfg.Rules[i]
		if onlyInFlight(*r) {
			r.Policies = standIn
		}
		r.Name, r.MaxInFlight, r.Penalty, r.Settle, r.Login = strconv.Itoa(i), 0, nil, nil, nil
	}
	for i := range cfg.Allow {
		cfg.Allow[i].Name = strconv.Itoa(-1 - i)
	}
	last := serverside.Rule{Name: strconv.Itoa(len(cfg.Rules)), Stage: serverside.Overload, Policies: standIn}
	cfg.Rules = append(cfg.Rules, last)
	return cfg
}

func onlyInFlight(r serverside.Rule) bool { return len(r.Policies) == 0 && len(r.Tiers) == 0 }

// try returns what a Limiter for cfg charges for req.
func try(cfg serverside.Config, req *http.Request) ([]tried, error) {
	var t transcript
	cfg.Store, cfg.Gate, cfg.Audit, cfg.Observe, cfg.Deny = &t, nil, func(serverside.Event) {}, nil, nil
	cfg.StoreTimeout = time.Minute // only a very busy machine makes t late
	l, err := serverside.New(cfg)
	if err != nil {
		return nil, err
	}
	l.Wrap(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {})).ServeHTTP(httptest.NewRecorder(), req)
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.all, nil
}

// A transcript is a store that records its charges and admits everything, so that every rule is
// checked.
type transcript struct {
	memory quota.Memory
	mu     sync.Mutex
	all    []tried
}

type tried struct {
	quota.Charge
	decision quota.Decision
}

// Take implements quota.Store.
func (t *transcript) Take(
	ctx context.Context, dst []quota.Decision, charges ...quota.Charge,
) ([]quota.Decision, error) {
	decisions, err := t.memory.Take(ctx, dst, charges...)
	if err != nil {
		return decisions, err
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	for i, c := range charges {
		d := &decisions[len(dst)+i]
		t.all = append(t.all, tried{c, *d})
		d.Allowed, d.Never, d.RetryAfter = true, false, 0
	}
	return decisions, nil
}

// applied groups charges by the rules and allow entries of a listing.
func (l *Listing) applied(charges []tried) (all []Applied) {
	last := ""
	for _, c := range charges {
		number, policy, _ := strings.Cut(c.Limit.Name(), "/")
		i, _ := strconv.Atoi(number)
		switch {
		case i == len(l.Rules) || number == last:
		case i < 0:
			all = append(all, Applied{Listed: l.Allow[-1-i], Allowed: true, Value: c.Key})
		default:
			all = append(all, Applied{Listed: l.Rules[i], Value: c.Key})
		}
		last = number
		if i == len(l.Rules) || i >= 0 && onlyInFlight(l.Rules[i].Rule) {
			continue // the policy is only a stand-in
		}
		a, p := &all[len(all)-1], c.Limit.Policy()
		p.Name = a.Rule.Name + "/" + policy
		a.Charges = append(a.Charges, Charged{p, c.Units(), c.decision})
	}
	return all
}
