// Package scope tells which of a server's limits a request is charged to: by what the
// Profile of its vendor says, and by what responses have named.
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

// vendors are the built-in Profiles. They are read only.
var vendors = sync.OnceValue(ratelimit.Vendors)

// A Table knows the Profile of each host, and which limit each route was charged to, where
// responses name it. The zero Table is ready to use, by any number of goroutines. It must not
// be copied.
type Table struct {
	plain  [64]atomic.Uint64 // hashes of hosts whose built-in Profile names no field, if there is one
	hosts  keyed.Table[served]
	routes keyed.Table[atomic.Pointer[string]] // of a host and an endpoint: the limit that was named last
}

// served is which Profile serves a host.
type served struct{ last atomic.Pointer[choice] }

// A choice is the Profile that was found when these were asked for.
type choice struct {
	profiles []*ratelimit.Profile
	profile  *ratelimit.Profile
}

// Profile returns the first of profiles that serves a host, or else the built-in one of its
// vendor, or nil. It searches once for a host, as long as profiles are the same slice.
func (t *Table) Profile(host hostkey.Name, profiles []*ratelimit.Profile) *ratelimit.Profile {
	s := t.hosts.Get(host, func(*served) keyed.State { return keyed.Idle })
	if c := s.last.Load(); c != nil && same(c.profiles, profiles) {
		return c.profile
	}
	_, name, _ := strings.Cut(host.Key, "://")
	p := ratelimit.For(name, profiles)
	if p == nil {
		p = ratelimit.For(name, vendors())
	}
	s.last.Store(&choice{profiles, p})
	return p
}

func same(a, b []*ratelimit.Profile) bool {
	return len(a) == len(b) && (len(a) == 0 || &a[0] == &b[0])
}

// Of returns the scope of a request to a host: requests of one credential and the same scope
// share limits. It is "" if all requests of the credential do, or if no Profile serves the
// host. A limit that a response to the same endpoint has named goes before what the path
// says.
func (t *Table) Of(req *http.Request, host hostkey.Name, profiles []*ratelimit.Profile) string {
	p := t.Profile(host, profiles)
	if p == nil || req.URL == nil {
		return ""
	}
	name := p.Scope.Of(req)
	if p.Scope.Header != "" {
		endpoint := endpoints.Of(req)
		if limit := t.named(host, endpoint); limit != "" {
			return charged(limit, name, endpoint, p)
		}
	}
	return name
}

// Learn takes note of the limit that a response names, if its host's Profile says in which
// field, and reports whether Of now returns another scope. Of other hosts it costs a few
// nanoseconds.
func (t *Table) Learn(req *http.Request, host hostkey.Name, response http.Header, profiles []*ratelimit.Profile) (learnt bool) {
	plain := &t.plain[host.Hash%uint64(len(t.plain))]
	if len(profiles) == 0 && plain.Load() == host.Hash {
		return false
	}
	p := t.Profile(host, profiles)
	if p == nil || p.Scope.Header == "" {
		if len(profiles) == 0 {
			plain.Store(host.Hash)
		}
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
		return false // as the path says
	case named == nil:
		named = t.routes.Get(route, func(*atomic.Pointer[string]) keyed.State { return keyed.Spare })
	}
	if last := named.Load(); last != nil && *last == name {
		return false
	}
	name = strings.Clone(name) // of a header's block
	named.Store(&name)
	return true
}

// named returns the limit that a response to an endpoint has named, or "".
func (t *Table) named(host hostkey.Name, endpoint string) string {
	if named := t.routes.Find(routeName(host, endpoint)); named != nil {
		if limit := named.Load(); limit != nil {
			return *limit
		}
	}
	return ""
}

// endpoints tells a request's endpoint, whatever the vendor.
var endpoints = ratelimit.Scope{Endpoints: true, Methods: true}

func routeName(host hostkey.Name, endpoint string) hostkey.Name {
	return hostkey.NameOf(host.Key + " " + endpoint)
}

// charged returns the scope of a request that is charged to a named limit: a name of
// Discord's leaves out the channel or guild, each of which has a limit of its own.
func charged(limit, scope, endpoint string, p *ratelimit.Profile) string {
	if !p.Scope.Endpoints || len(p.Scope.Keep) == 0 || !strings.Contains(scope, "/") { // as the name of a Group
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

// longestName is of a limit, as a response names it; Discord's have 32 bytes.
const longestName = 64

// isName reports whether a limit may be called so: without spaces, which separate the parts
// of a key.
func isName(s string) bool {
	return s != "" && len(s) <= longestName &&
		strings.IndexFunc(s, func(r rune) bool { return r <= ' ' || r > '~' }) < 0
}

// Route is the method of req and the first two segments of its path, at most 64 bytes: what a
// server counts apart if it does not count all requests together.
func Route(req *http.Request) string {
	path := req.URL.Path
	end, slashes := 0, 0
	for ; end < len(path) && end < 64; end++ {
		if path[end] == '/' && end > 0 {
			if slashes++; slashes == 2 {
				break
			}
		}
	}
	return req.Method + " " + path[:end]
}
