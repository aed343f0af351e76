// Package scope finds out which of a server's limits a request is charged to, from the vendor's
// Profile and from what responses say.
package scope

import (
	"net/http"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/heedhttp/heed/internal/hostkey"
	"github.com/heedhttp/heed/internal/keyed"
	"github.com/heedhttp/heed/ratelimit"
)

// vendors are the built-in Profiles. They must not be modified.
var vendors = sync.OnceValue(ratelimit.Vendors)

// None, in a list of Profiles, serves every host that those before it do not, and says nothing about it.
var None = &ratelimit.Profile{Name: "none"}

// A Table knows the Profile of each host and, where responses name it, the limit of each route. The
// zero Table is ready to use, and safe for concurrent use. It must not be copied.
type Table struct {
	others [64]atomic.Uint64 // hashes of hosts without a built-in Profile
	hosts  keyed.Table[hostProfile]
	routes keyed.Table[atomic.Pointer[string]] // by host and endpoint: the last named limit
}

// A hostProfile caches the Profile of a host.
type hostProfile struct{ last atomic.Pointer[profileChoice] }

// A profileChoice is the Profile that was found among these.
type profileChoice struct {
	profiles []*ratelimit.Profile
	profile  *ratelimit.Profile
}

// Profile returns the first of profiles for a host, or else the built-in one, or nil if there is none or
// the first is None. It searches once for each host as long as profiles is the same slice. Where no
// vendor is found, it costs a few nanoseconds.
func (t *Table) Profile(host hostkey.Name, profiles []*ratelimit.Profile) *ratelimit.Profile {
	other := &t.others[host.Hash%uint64(len(t.others))]
	if len(profiles) == 0 && other.Load() == host.Hash {
		return nil
	}
	s := t.hosts.Get(host, func(*hostProfile) keyed.State { return keyed.Idle })
	if c := s.last.Load(); c != nil && same(c.profiles, profiles) {
		return c.profile
	}
	_, name, _ := strings.Cut(host.Key, "://")
	p := ratelimit.For(name, profiles)
	switch {
	case p == nil:
		p = ratelimit.For(name, vendors())
	case p == None:
		p = nil
	}
	if p == nil && len(profiles) == 0 {
		other.Store(host.Hash)
	}
	s.last.Store(&profileChoice{profiles, p})
	return p
}

func same(a, b []*ratelimit.Profile) bool {
	return len(a) == len(b) && (len(a) == 0 || &a[0] == &b[0])
}

// Of returns the scope of a request: requests of one credential with the same scope share limits.
// It is "" if all requests of the credential share them, or if the host has no Profile. A limit
// that a response named takes precedence over the path.
func (t *Table) Of(req *http.Request, host hostkey.Name, profiles []*ratelimit.Profile) string {
	p := t.Profile(host, profiles)
	if p == nil || req.URL == nil {
		return ""
	}
	name := p.Scope.Of(req)
	if p.Scope.Header != "" {
		endpoint := endpoints.Of(req)
		if limit := t.namedLimit(host, endpoint); limit != "" {
			return namedScope(limit, name, endpoint, p)
		}
	}
	return name
}

// Learn records the limit that a response names, if the host's Profile says in which field. It
// reports whether Of now returns another scope.
func (t *Table) Learn(req *http.Request, host hostkey.Name, response http.Header,
	profiles []*ratelimit.Profile) (learnt bool) {
	p := t.Profile(host, profiles)
	if p == nil || p.Scope.Header == "" {
		return false
	}
	values := response.Values(p.Scope.Header)
	return len(values) > 0 && isName(values[0]) && req.URL != nil && t.learn(req, host, values[0], p)
}

func (t *Table) learn(req *http.Request, host hostkey.Name, name string, p *ratelimit.Profile) bool {
	route := routeName(host, endpoints.Of(req))
	named := t.routes.Find(route)
	switch {
	case named == nil && name == p.Scope.Of(req):
		return false // the path already says so
	case named == nil:
		named = t.routes.Get(route, func(*atomic.Pointer[string]) keyed.State { return keyed.Spare })
	}
	if last := named.Load(); last != nil && *last == name {
		return false
	}
	name = strings.Clone(name) // keeps the header's memory from being retained
	named.Store(&name)
	return true
}

// namedLimit returns the limit that a response to this endpoint named last, or "".
func (t *Table) namedLimit(host hostkey.Name, endpoint string) string {
	if named := t.routes.Find(routeName(host, endpoint)); named != nil {
		if limit := named.Load(); limit != nil {
			return *limit
		}
	}
	return ""
}

// endpoints returns a request's endpoint for any vendor.
var endpoints = ratelimit.Scope{Endpoints: true, Methods: true}

func routeName(host hostkey.Name, endpoint string) hostkey.Name {
	return hostkey.NameOf(host.Key + " " + endpoint)
}

// namedScope returns the scope of a request whose limit was named. Discord's names leave out the
// channel or guild, each of which has its own limit, so these are added.
func namedScope(limit, scope, endpoint string, p *ratelimit.Profile) string {
	if !p.Scope.Endpoints || len(p.Scope.Keep) == 0 || !strings.Contains(scope, "/") { // scope is the name of a Group
		return limit
	}
	_, scope, _ = strings.Cut(scope, "/")
	_, endpoint, _ = strings.Cut(endpoint, "/")
	for more := true; more; {
		var kept, segment string
		kept, scope, _ = strings.Cut(scope, "/")
		segment, endpoint, more = strings.Cut(endpoint, "/")
		if kept != segment {
			limit += " " + kept
		}
	}
	return limit
}

// longestName is the longest accepted name of a limit. Discord's have 32 bytes.
const longestName = 64

// isName reports whether s can be a limit's name. It must have no spaces, which separate the parts
// of a key.
func isName(s string) bool {
	return s != "" && len(s) <= longestName &&
		strings.IndexFunc(s, func(r rune) bool { return r <= ' ' || r > '~' }) < 0
}

// Route returns the method of req and the Prefix of its path. Servers that do not count all requests
// together often count these separately.
func Route(req *http.Request) string { return req.Method + " " + Prefix(req.URL.Path) }

// Prefix returns the first two segments of a path, at most 64 bytes.
func Prefix(path string) string {
	end, slashes := 0, 0
	for ; end < len(path) && end < 64; end++ {
		if path[end] == '/' && end > 0 {
			if slashes++; slashes == 2 {
				break
			}
		}
	}
	return path[:end]
}
