package rulefile

import (
	"cmp"
	"errors"
	"fmt"
	"net/http"
	"net/netip"
	"path"
	"slices"
	"strings"

	"github.com/heedhttp/heed/serverside"
)

// An Env is what a rule file is read in: what it may name, and what it adds to. The
// zero Env has nothing.
type Env struct {
	// Config is what holds where the file says nothing: the Store and Audit, which
	// a file cannot say, and whatever else. Its Rules are not used.
	Config serverside.Config

	// The functions and tables that the file may name.
	Keys      map[string]serverside.Key
	Costs     map[string]func(*http.Request) int64
	Tiers     map[string]func(*http.Request) string
	Limits    map[string]serverside.Limits
	Matches   map[string]func(*http.Request) bool // for if, and an allow-list's match
	Responses map[string]func(serverside.Response) bool
	Bodies    map[string]func(http.ResponseWriter, *http.Request, serverside.Denial)

	// Lenient takes any name for that of a function, one that knows nothing: for
	// tools that look at a file without the program that it is for.
	Lenient bool
}

// Parse reads a rule file: JSON if name ends in ".json", and otherwise YAML. The
// error joins a *Fault for each thing that is wrong, whether the file, the Config
// or a policy is at fault: what Parse returns, serverside.New accepts.
//
// data may come from anybody: it is bounded to 1 MiB, and so is what it can make.
func Parse(name string, data []byte, env Env) (serverside.Config, error) {
	r, c := read(name, data, env)
	if len(r.faults) > 0 {
		return serverside.Config{}, joined(r.faults)
	}
	return c, nil
}

// read is Parse, before it is known whether there are faults.
func read(name string, data []byte, env Env) (*reader, serverside.Config) {
	r := &reader{file: name, env: env, places: make(map[string]spot)}
	root, fault := r.decode(data)
	if fault != nil {
		r.fault(spot{&node{line: fault.line, column: fault.column}, "", ""}, "%s", fault.reason)
		return r, serverside.Config{}
	}
	c := settings{Config: env.Config}
	c.Rules = nil
	readObject(r, spot{root, "", ""}, fileFields, &c)
	r.readIP(&c)
	if c.Key == nil {
		c.Key, r.keyText = r.ip, "ip"
	}
	c.Description = r.describe(&c)
	r.check(c.Config)
	return r, c.Config
}

func (r *reader) decode(data []byte) (*node, *syntaxError) {
	switch {
	case len(data) > mostBytes:
		return nil, &syntaxError{1, 1, fmt.Sprintf("has %d bytes: there may be %d", len(data), mostBytes)}
	case strings.EqualFold(path.Ext(r.file), ".json"):
		return readJSON(data)
	default:
		return readYAML(data)
	}
}

// readIP makes what ip means, once that is known.
func (r *reader) readIP(c *settings) {
	if r.ip == nil {
		r.ip, r.ipText = c.proxies.ClientIP(), proxiesText(c.proxies)
		r.proxies = c.proxies
	}
}

func (r *reader) readKey(s spot, c *settings) {
	k := r.key(s)
	c.Key, r.keyText = k.of, k.text
}

func (r *reader) readRules(s spot, c *settings) {
	if !r.wants(s, list) {
		return
	}
	for _, item := range r.items(s) {
		u := new(rule)
		readObject(r, item, ruleFields, u)
		r.addMethod(item, u)
		r.rules = append(r.rules, u)
		c.Rules = append(c.Rules, u.Rule)
	}
}

// addMethod puts a method that was written by itself where it belongs.
func (r *reader) addMethod(s spot, u *rule) {
	if u.method == "" {
		return
	}
	if strings.ContainsAny(u.Pattern, " \t") {
		r.fault(spot{s.get("method"), within(s.field, "method"), ""}, "the pattern %s has a method already", quote(u.Pattern))
		return
	}
	u.Pattern = u.method + " " + cmp.Or(u.Pattern, "/")
}

func (r *reader) readAllow(s spot, c *settings) {
	if !r.wants(s, list) {
		return
	}
	c.Allow = nil
	for _, item := range r.items(s) {
		e := new(entry)
		readObject(r, item, allowFields, e)
		r.addMatch(item, e)
		r.entries = append(r.entries, e)
		c.Allow = append(c.Allow, e.Allow)
	}
}

// addMatch makes a Match of what the entry says instead.
func (r *reader) addMatch(s spot, e *entry) {
	if s.kind != object {
		return
	}
	ways := 0
	if s.get("peers") != nil {
		ways, e.Match = ways+1, serverside.Peers(e.peers...)
	}
	if s.get("keys") != nil {
		ways, e.Match = ways+1, r.keyIs(s, e)
	}
	if s.get("match") != nil {
		ways++
	}
	if ways != 1 {
		r.fault(s, "must have one of peers, keys and match: it has %d", ways)
	}
}

func (r *reader) keyIs(s spot, e *entry) func(*http.Request) bool {
	if e.Key == nil {
		if s.get("key") == nil {
			r.fault(spot{s.get("keys"), within(s.field, "keys"), ""}, "are keys of what? key is missing")
		}
		return func(*http.Request) bool { return false }
	}
	return serverside.KeyIs(e.Key, e.keys...)
}

// check has serverside look at c, and puts its faults where they are in the file.
func (r *reader) check(c serverside.Config) {
	c.Audit = func(serverside.Event) {}
	_, err := serverside.New(c)
	for _, fault := range configFaults(err) {
		s := r.where(fault.Field)
		if !r.isFaulty(s.field) && !r.followsFromStage(fault.Field) {
			name := unnamed(fault.Field, s)
			if s.field == "" {
				s.field, name = fault.Field, ""
			}
			r.fault(s, "%s%s", name, fault.Reason)
		}
	}
}

// followsFromStage reports whether a rule's Status or Key may be at fault only because
// its stage is: after_auth for after-auth, say.
func (r *reader) followsFromStage(field string) bool {
	i := strings.LastIndexByte(field, '.')
	if i < 0 || field[i:] != ".Status" && field[i:] != ".Key" {
		return false
	}
	stage, ok := r.places[field[:i]+".Stage"]
	return ok && r.isFaulty(stage.field)
}

// unnamed is what of a Config's field the file has no place for, such as the burst
// of a policy in its short form.
func unnamed(field string, s spot) string {
	rest := strings.TrimPrefix(strings.TrimPrefix(field, s.goes), ".")
	if rest == "" {
		return ""
	}
	return strings.ToLower(rest) + " "
}

// isFaulty reports whether there is a fault at a field, in it or around it: of that,
// more need not be said.
func (r *reader) isFaulty(field string) bool {
	return slices.ContainsFunc(r.faults, func(f *Fault) bool { return isIn(f.Field, field) || isIn(field, f.Field) })
}

// isIn reports whether a field is another, or in it.
func isIn(field, other string) bool {
	rest, ok := strings.CutPrefix(field, other)
	return ok && (rest == "" || other == "" || rest[0] == '.' || rest[0] == '[')
}

// configFaults are all faults that err joins.
func configFaults(err error) (faults []*serverside.ConfigError) {
	if joined, ok := err.(interface{ Unwrap() []error }); ok {
		for _, err := range joined.Unwrap() {
			faults = append(faults, configFaults(err)...)
		}
		return faults
	}
	if fault, ok := errors.AsType[*serverside.ConfigError](err); ok {
		return []*serverside.ConfigError{fault}
	}
	return nil
}

// describe says what the functions of a Config are, in words that are the same
// whenever they mean the same: for Limiter.Hash.
func (r *reader) describe(c *settings) string {
	lines := []string{"ip: " + r.ipText, "key: " + cmp.Or(r.keyText, "the program's")}
	for _, u := range r.rules {
		lines = append(lines, fmt.Sprintf("rule %q: %q", ruleName(u.Rule), u.words))
	}
	slices.Sort(lines[2:])
	for _, e := range r.entries {
		keys := slices.Sorted(slices.Values(e.keys))
		lines = append(lines, fmt.Sprintf("allow %q: key %q peers %v keys %q match %q", e.Name, e.of.text, sorted(e.peers), keys, e.match))
	}
	return strings.Join(lines, "\n")
}

// ruleName is the name by which a Store and the log know a rule.
func ruleName(u serverside.Rule) string { return cmp.Or(u.Name, u.Pattern, "default") }

func proxiesText(p serverside.Proxies) string {
	fields := make([]string, len(p.Fields))
	for i, f := range p.Fields {
		fields[i] = http.CanonicalHeaderKey(f)
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
	return slices.Compact(slices.SortedFunc(slices.Values(prefixes), func(a, b netip.Prefix) int { return cmp.Compare(a.String(), b.String()) }))
}
