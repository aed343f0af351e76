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

// A Listing is a rule file in a form for tools: it has the Config, and the names of the
// functions that the Config contains. List returns it.
type Listing struct {
	File        string             // the name passed to List
	Config      serverside.Config  // as Parse returns it
	Proxies     serverside.Proxies // the trusted proxies
	Body        string             // the format of denials, "problem" by default
	ProblemType string             // the URI after "timed-problem" or "coded-problem"
	Rules       []Listed           // in the order of the file
	Allow       []Listed           // each with a Rule that has only Name and Policies

	// Warnings are probable mistakes: keys in allow or in a table of limits that no request can
	// have and, if Env is Lenient, names of functions that differ from a built-in one by one
	// character. They are in the order of the file.
	Warnings []*Fault

	own []*Fault // the Warnings that serverside does not report
}

// A Listed is a rule, or an entry of allow.
type Listed struct {
	Rule         serverside.Rule // its Name is never empty
	Key          string          // the key as written in the file
	Functions    []string        // other functions that the rule names, such as "cost weight"
	Peers        []netip.Prefix  // of an entry of allow
	Line, Column int             // position in the file

	trusts []string // what an entry of allow trusts, such as "match staff"
}

// List reads a rule file like Parse, and also returns the names that it uses. The error is
// Parse's.
func List(name string, data []byte, env Env) (*Listing, error) {
	root, fault := decode(name, data)
	if fault != nil {
		fault.File = name
		return nil, fault
	}
	w := &walk{env: env, places: make(map[string]*yaml.Node), key: key{of: env.Config.Key, text: "the program's"}}
	w.File, w.Body, w.Config = name, "problem", env.Config
	w.Config.Rules = nil
	for _, a := range env.Config.Allow { // used if the file has none
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

// useDefaultKey sets the file's key for rules and entries without one.
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

// check reports the faults that serverside finds in the Config, at their positions and in the
// words of the file.
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
	known := make(map[serverside.ConfigError]bool) // both rules of a Login report the same fault
	for _, fault := range unjoin[*serverside.ConfigError](err) {
		if path := inFile(fault.Field); !w.isBroken(path) && !known[*fault] {
			w.faultAt(w.place(path), path, "%s", inFile(fault.Reason))
		}
		known[*fault] = true
	}
}

// unpinged hides the Ping method of a Store that is only checked.
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

// description describes the functions of the Config for Limiter.Hash. Functions that do the
// same have the same description.
func (w *walk) description() string {
	lines := []string{
		"ip: " + describeProxies(w.Proxies), "key: " + w.key.text,
		strings.TrimSpace("body: " + w.Body + " " + w.ProblemType),
	}
	for _, r := range w.Rules {
		lines = append(lines, fmt.Sprintf("rule %q: %q by %q", r.Rule.Name, r.Functions, r.Key))
	}
	slices.Sort(lines[3:])
	for _, r := range w.Allow { // not sorted: the first entry that matches applies
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
		fields = nil // none is read
	}
	return fmt.Sprintf("%v trusted to write %q, /%d of IPv6", sorted(p.Trusted), fields, cmp.Or(p.IPv6Bits, 64))
}

func sorted(prefixes []netip.Prefix) []netip.Prefix {
	return slices.Compact(slices.SortedFunc(slices.Values(prefixes), netip.Prefix.Compare))
}
