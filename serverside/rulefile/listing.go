package rulefile

import (
	"cmp"
	"fmt"
	"net/netip"

	"github.com/heedhttp/heed/serverside"
)

// A Listing is what a rule file says, for tools that say it in another language:
// what a Config has as functions is in words here.
type Listing struct {
	File    string             // as it was named to List
	Config  serverside.Config  // as Parse returns it
	Proxies serverside.Proxies // whose word on the client's address is taken
	Body    string             // of denials: "problem", or what the file says
	Rules   []Listed           // in the order of the file
	Allow   []Listed           // of each the Rule has a Name and Policies
}

// A Listed is a rule, or an entry of the allow-list.
type Listed struct {
	Rule         serverside.Rule // its Name is never empty
	Key          string          // whose quota requests are charged to, as the file has it
	Functions    []string        // what the file names besides: "cost weight"
	Peers        []netip.Prefix  // of an entry
	Line, Column int             // where it begins in the file
}

// List reads a rule file, as Parse does, and lists what it says.
//
// The error is that of Parse.
func List(name string, data []byte, env Env) (*Listing, error) {
	r, cfg := read(name, data, env)
	if len(r.faults) > 0 {
		return nil, joined(r.faults)
	}
	l := &Listing{File: name, Config: cfg, Proxies: r.proxies, Body: cmp.Or(r.body, "problem")}
	for i := range cfg.Rules {
		l.Rules = append(l.Rules, r.listed(cfg, "Rules", i))
	}
	for i := range cfg.Allow {
		entry := r.listed(cfg, "Allow", i)
		if i < len(r.entries) {
			entry.Peers = r.entries[i].peers
		}
		l.Allow = append(l.Allow, entry)
	}
	return l, nil
}

// listed lists the ith rule or entry, which a ConfigError has under a name.
func (r *reader) listed(cfg serverside.Config, under string, i int) Listed {
	a, s := r.describeApplied(cfg, i, under == "Allow"), r.where(fmt.Sprintf("%s[%d]", under, i))
	return Listed{Rule: a.Rule, Key: a.Key, Functions: a.Functions, Line: s.line, Column: s.column}
}
