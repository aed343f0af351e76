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
	// Exempt is that it is not limited, whatever the rules.
	Exempt bool

	// Rules are those that apply to it, in the order in which they are asked, but
	// first those that only limit what is in flight. If there are none, it is not
	// limited. An entry of the allow-list is alone.
	Rules []Applied
}

// An Applied is a rule that applies to a request.
type Applied struct {
	Rule      serverside.Rule // as in the file; of an entry of the allow-list, its Name and Policies
	Allowed   bool            // it is such an entry
	Key       string          // whose quota it is charged to, as the file has it
	Value     string          // what that is of this request, as the Store gets it
	Functions []string        // what the file names besides: "cost weight"
	Charges   []Charged
}

// A Charged is what a policy is charged with a request.
type Charged struct {
	Policy   quota.Policy // as it is counted, with all defaults
	Cost     int64
	Decision quota.Decision // of a store that nobody else has used
}

// Explain says what the rule file called name does to a request. It finds out by
// trying: a Limiter with the file's rules and an empty store of its own serves it, and
// nothing is charged anywhere else. The functions of env are called.
//
// The error is that of Parse.
func Explain(name string, data []byte, env Env, req *http.Request) (*Explanation, error) {
	r, cfg := read(name, data, env)
	if len(r.faults) > 0 {
		return nil, joined(r.faults)
	}
	var t transcript
	cfg.Store, cfg.Gate, cfg.Audit, cfg.Observe, cfg.Deny = &t, &t, func(serverside.Event) {}, nil, nil
	cfg.StoreTimeout = time.Minute // t is only as slow as this machine
	l, err := serverside.New(cfg)
	if err != nil {
		return nil, err
	}
	l.Wrap(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {})).ServeHTTP(httptest.NewRecorder(), req)
	e := &Explanation{Rules: r.applied(cfg, &t)}
	e.Exempt = len(e.Rules) == 0 && isExempt(cfg, req)
	return e, nil
}

// isExempt reports whether req is let past a rule that is for all requests.
func isExempt(cfg serverside.Config, req *http.Request) bool {
	var t transcript
	cfg.Rules, cfg.Store = []serverside.Rule{{Policies: []quota.Policy{quota.PerSecond(1)}}}, &t
	l, err := serverside.New(cfg)
	if err != nil {
		return false
	}
	l.Wrap(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {})).ServeHTTP(httptest.NewRecorder(), req)
	return len(t.charges) == 0
}

// A transcript is a store that writes down what it is asked.
type transcript struct {
	quota.Memory
	mu        sync.Mutex
	charges   []quota.Charge
	decisions []quota.Decision
	places    []string // keys of what is in flight
}

func (t *transcript) Take(ctx context.Context, dst []quota.Decision, charges ...quota.Charge) ([]quota.Decision, error) {
	decisions, err := t.Memory.Take(ctx, dst, charges...)
	t.mu.Lock()
	defer t.mu.Unlock()
	t.charges, t.decisions = append(t.charges, charges...), append(t.decisions, decisions[len(dst):]...)
	return decisions, err
}

func (t *transcript) Acquire(ctx context.Context, key string, limit, n int64) (*quota.Hold, quota.Decision, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.places = append(t.places, key)
	return t.Memory.Acquire(ctx, key, limit, n)
}

// applied puts what was written down by rules.
func (r *reader) applied(cfg serverside.Config, t *transcript) (all []Applied) {
	find := func(i int, entry bool) *Applied {
		a := r.describeApplied(cfg, i, entry)
		for j := range all {
			if all[j].Allowed == entry && all[j].Rule.Name == a.Rule.Name {
				return &all[j]
			}
		}
		all = append(all, a)
		return &all[len(all)-1]
	}
	r.charged(cfg, t, find)
	for _, place := range t.places {
		size, rest, _ := strings.Cut(place, ":")
		n, _ := strconv.Atoi(size)
		for i := range cfg.Rules {
			if n <= len(rest) && ruleName(cfg.Rules[i]) == rest[:n] {
				find(i, false).Value = rest[n:]
			}
		}
	}
	slices.SortStableFunc(all, func(a, b Applied) int { return min(len(a.Charges), 1) - min(len(b.Charges), 1) })
	return all
}

// charged puts charges with their rules, which find finds.
func (r *reader) charged(cfg serverside.Config, t *transcript, find func(i int, entry bool) *Applied) {
	for j, c := range t.charges {
		i, entry, ok := r.ruleOf(cfg, c.Limit.Name())
		if !ok {
			continue
		}
		a := find(i, entry)
		a.Value = c.Key
		if a.Rule.Penalty == nil || !ofPenalty(strings.TrimPrefix(c.Limit.Name(), a.Rule.Name+"/")) {
			a.Charges = append(a.Charges, Charged{c.Limit.Policy(), c.Units(), t.decisions[j]})
		}
	}
}

// ofPenalty reports whether a policy is one of those that a penalty is counted by.
func ofPenalty(name string) bool {
	return name == "penalty" || name == "strikes" || name == "penalties"
}

// ruleOf finds the rule, or the entry of the allow-list, of a policy's name: the
// longest that the name begins with.
func (r *reader) ruleOf(cfg serverside.Config, name string) (index int, entry, ok bool) {
	longest := -1
	look := func(i int, of string, isEntry bool) {
		if strings.HasPrefix(name, of+"/") && len(of) > longest {
			longest, index, entry, ok = len(of), i, isEntry, true
		}
	}
	for i := range cfg.Rules {
		look(i, ruleName(cfg.Rules[i]), false)
	}
	for i := range cfg.Allow {
		look(i, cfg.Allow[i].Name, true)
	}
	return index, entry, ok
}

// describeApplied says of the ith rule or entry what is the same for all requests.
func (r *reader) describeApplied(cfg serverside.Config, i int, entry bool) Applied {
	a := Applied{Allowed: entry, Key: r.keyText}
	if entry {
		a.Rule = serverside.Rule{Name: cfg.Allow[i].Name, Policies: cfg.Allow[i].Policies}
		if i < len(r.entries) && r.entries[i].of.text != "" {
			a.Key = r.entries[i].of.text
		}
		return a
	}
	a.Rule = cfg.Rules[i]
	a.Rule.Name = ruleName(a.Rule)
	if a.Rule.Stage == serverside.Overload {
		a.Key = "everybody"
	}
	for _, word := range r.rules[i].words {
		if key, ok := strings.CutPrefix(word, "key "); ok {
			a.Key = key
		} else {
			a.Functions = append(a.Functions, word)
		}
	}
	return a
}
