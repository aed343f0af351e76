package rulefile

import (
	"cmp"
	"fmt"
	"net/http"
	"net/netip"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/heedhttp/heed/quota"
	"github.com/heedhttp/heed/serverside"
)

// A Listing is what a rule file says, for tools that say it in another language:
// what a Config has as functions is in words here.
type Listing struct {
	File        string             // as it was named to List
	Config      serverside.Config  // as Parse returns it
	Proxies     serverside.Proxies // that may say who the client is
	Body        string             // of denials: "problem", or the name that the file says
	ProblemType string             // the URI that the file says after "timed-problem" or "coded-problem"
	Rules       []Listed           // in the order of the file
	Allow       []Listed           // of each the Rule has a Name and Policies

	// Warnings are mistakes that are no errors: keys of an allowance, or of a table of
	// limits, that no request can have. They are in the order of the file.
	Warnings []*Fault

	own []*Fault // those of Warnings that serverside does not see
}

// A Listed is a rule, or an entry of the allow-list.
type Listed struct {
	Rule         serverside.Rule // its Name is never empty
	Key          string          // who is charged, as the file has it
	Functions    []string        // what the file names besides: "cost weight"
	Peers        []netip.Prefix  // of an entry
	Line, Column int             // where it begins in the file

	trusts []string // what an entry trusts: "match staff"
}

// List reads a rule file, as Parse does, and lists what it says.
//
// The error is that of Parse.
func List(name string, data []byte, env Env) (*Listing, error) {
	root, fault := decode(name, data)
	if fault != nil {
		fault.File = name
		return nil, fault
	}
	w := &walk{env: env, places: make(map[string]*yaml.Node), key: key{of: env.Config.Key, text: "the program's"}}
	w.File, w.Body, w.Config = name, "problem", env.Config
	w.Config.Rules = nil
	for _, a := range env.Config.Allow { // which hold if the file has none
		w.Allow = append(w.Allow, Listed{Rule: serverside.Rule{Name: a.Name, Policies: a.Policies}, Line: 1, Column: 1})
	}
	object(w, w.at(root, ""), fileFields, &w.Listing)
	w.useDefaultKey()
	w.Config.Description = w.description()
	w.own = slices.Clone(w.Warnings)
	w.check()
	if err := join(w.faults); err != nil {
		return nil, err
	}
	inOrder(w.Warnings)
	return &w.Listing, nil
}

// useDefaultKey is for rules and entries that have no key of their own, once the file
// has said what it is.
func (w *walk) useDefaultKey() {
	if w.key.of == nil {
		w.key = w.ip()
		w.Config.Key = w.key.of
	}
	for _, all := range [][]Listed{w.Rules, w.Allow} {
		for i := range all {
			all[i].Key = cmp.Or(all[i].Key, w.key.text)
		}
	}
}

// check asks serverside what is wrong with the Config, and reports it at its place in the
// file, in the words of the file.
func (w *walk) check() {
	c := w.Config
	c.Store = unpinged(c.Store)
	c.Audit = func(e serverside.Event) {
		i := slices.IndexFunc(w.Rules, func(r Listed) bool { return r.Rule.Name == e.Rule })
		if e.Kind == serverside.ConfigWarning && i >= 0 {
			path := fmt.Sprintf("rules[%d].limits", i)
			w.warn(value{w.place(path), path}, "%s", inFile(e.Err.Error()))
		}
	}
	_, err := serverside.New(c)
	known := make(map[serverside.ConfigError]bool) // of a Login, all is checked twice
	for _, fault := range unjoin[*serverside.ConfigError](err) {
		if path := inFile(fault.Field); !w.isBroken(path) && !known[*fault] {
			w.faultAt(w.place(path), path, "%s", inFile(fault.Reason))
		}
		known[*fault] = true
	}
}

// unpinged is a Store that a Limiter does not ping: it is only checked, and serves nobody.
func unpinged(s quota.Store) quota.Store {
	settler, ok := s.(quota.Settler)
	switch {
	case s == nil:
		return nil
	case ok:
		return struct {
			quota.Store
			quota.Settler
		}{s, settler}
	}
	return struct{ quota.Store }{s}
}

// description says what the functions of the Config are, in words that are the same
// whenever they mean the same, for Limiter.Hash.
func (w *walk) description() string {
	lines := []string{
		"ip: " + describeProxies(w.Proxies), "key: " + w.key.text, strings.TrimSpace("body: " + w.Body + " " + w.ProblemType),
	}
	for _, r := range w.Rules {
		lines = append(lines, fmt.Sprintf("rule %q: %q by %q", r.Rule.Name, r.Functions, r.Key))
	}
	slices.Sort(lines[3:])
	for _, r := range w.Allow { // not sorted: of several that match, the first counts
		lines = append(lines, fmt.Sprintf("allow %q: %q by %q", r.Rule.Name, r.trusts, r.Key))
	}
	return strings.Join(lines, "\n")
}

func describeProxies(p serverside.Proxies) string {
	var fields []string
	for _, f := range p.Fields {
		fields = append(fields, http.CanonicalHeaderKey(f))
	}
	if len(fields) == 0 {
		fields = []string{"X-Forwarded-For"}
	}
	if len(p.Trusted) == 0 {
		fields = nil // nobody's are read
	}
	return fmt.Sprintf("%v trusted to write %q, /%d of IPv6", sorted(p.Trusted), fields, cmp.Or(p.IPv6Bits, 64))
}

func sorted(prefixes []netip.Prefix) []netip.Prefix {
	return slices.Compact(slices.SortedFunc(slices.Values(prefixes), netip.Prefix.Compare))
}
