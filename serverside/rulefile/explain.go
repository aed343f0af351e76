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

// An Explanation is what a rule file does to a request.
type Explanation struct {
	// Exempt is whether the request matches exempt: no rule limits it.
	Exempt bool

	// Rules are those that apply to the request, in the order in which they are asked. If
	// there are none, it is not limited. An entry of the allow-list is alone.
	Rules []Applied
}

// An Applied is a rule, or an entry of the allow-list, that applies to a request.
type Applied struct {
	Listed
	Allowed bool      // it is such an entry
	Value   string    // what its key is of this request, as the Store gets it
	Charges []Charged // none for a rule that only limits what is in flight
}

// A Charged is what a policy is charged with a request.
type Charged struct {
	Policy   quota.Policy // as it is counted, with all defaults
	Cost     int64
	Decision quota.Decision // of a store that nobody else has used
}

// Explain says what the rule file called name does to a request. It finds out by a
// trial: a Limiter with the file's rules and an empty store of its own serves it, and
// nothing is charged anywhere else. The functions of env are called.
//
// The error is that of Parse.
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

// numbered is cfg with rules and entries named by their index, so that the name of a
// charge has it: "3/1m", or "-1/1m" of the first entry. Each charges something before the
// handler runs. So does a last rule, which is for all requests that are not exempt.
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

// try returns what a Limiter of cfg charges for req.
func try(cfg serverside.Config, req *http.Request) ([]tried, error) {
	var t transcript
	cfg.Store, cfg.Gate, cfg.Audit, cfg.Observe, cfg.Deny = &t, nil, func(serverside.Event) {}, nil, nil
	cfg.StoreTimeout = time.Minute // t is only as slow as this machine
	l, err := serverside.New(cfg)
	if err != nil {
		return nil, err
	}
	l.Wrap(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {})).ServeHTTP(httptest.NewRecorder(), req)
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.all, nil
}

// A transcript is a store that keeps what it is asked, and admits everything, so that it
// is asked everything.
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

// applied puts charges with the rules and entries of a listing.
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
