package serverside

import (
	"net/http"
	"net/netip"
	"strings"

	"github.com/heedhttp/heed/quota"
)

// An Allow gives trusted requests a limit of their own instead of the rules:
//
//	serverside.Allow{
//		Name: "health", Match: serverside.Peers(serverside.Loopback()...),
//		Policies: []quota.Policy{quota.PerSecond(100)},
//	}
//
// Audit gets a Bypassed for each request. Trusted requests need a limit too, because a broken
// client or a stolen key can send without end.
type Allow struct {
	// Name identifies the entry, like Rule.Name. It is required.
	Name string

	// Match reports whether a request is trusted. It is required, and must not rely on anything
	// that any client can send. Peers and KeyIs return such functions.
	Match func(*http.Request) bool

	// Policies are the limits. At least one is required.
	Policies []quota.Policy

	// Key is as in Rule.
	Key Key
}

// Peers returns a function for Allow.Match. It reports whether a request comes directly from an
// address in prefixes. A request with a field that proxies add (Via, X-Forwarded-For, X-Real-IP
// and the like) was forwarded and does not count.
//
// A proxy that adds no such field cannot be recognized; nginx' proxy_pass and HAProxy add none
// by default. If one runs at an address in prefixes, all its clients are trusted. So use
// Loopback only if no proxy runs on this machine.
func Peers(prefixes ...netip.Prefix) func(*http.Request) bool {
	trusted := trustOf(prefixes)
	return func(r *http.Request) bool {
		addr, ok := parseHop(r.RemoteAddr)
		return ok && trusted.trust(addr) && !isForwarded(r)
	}
}

// Loopback returns the loopback networks, for Peers.
func Loopback() []netip.Prefix {
	return []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8"), netip.MustParsePrefix("::1/128")}
}

// entry compiles from to a rule that replaces all others.
func (c *compiler) entry(from *Allow, mode FailureMode, field string) *rule {
	if from.Name == "" {
		c.fault(field+".Name", "must not be empty: logs name the entry by it")
	}
	if from.Match == nil {
		c.fault(field+".Match", "must not be nil")
	}
	if len(from.Policies) == 0 {
		c.fault(field+".Policies", "must not be empty: trusted requests need a limit too")
	}
	named := Rule{Name: from.Name, Policies: from.Policies, Key: from.Key}
	if len(from.Policies) == 0 {
		named.MaxInFlight = 1 // avoids a second fault about Policies
	}
	r := c.rule(named, mode, field)
	copied := *from
	r.entry = &copied
	return r
}

// allowed returns the entry that req matches, or nil.
func (c *compiled) allowed(req *http.Request) *rule {
	for _, r := range c.allow {
		if r.entry.Match(req) {
			return r
		}
	}
	return nil
}

// exemption compiles a pattern of Exempt.
func (c *compiler) exemption(pattern, field string) *matcher {
	if pattern == "" {
		c.fault(field, "must not be empty: it would exempt every request")
		return nil
	}
	m := c.matcher(pattern, field)
	switch {
	case m == nil:
	case len(m.segments) == 1 && m.segments[0] == anyPath:
		c.fault(field, "%q exempts every path", pattern)
	case strings.ToLower(m.path()) != m.path() || strings.Contains(m.path(), "%"):
		c.fault(field, "%q matches nothing: write the path in lower case, without escapes", pattern)
	}
	return m
}

// path returns the pattern from its first slash on.
func (m *matcher) path() string { return m.pattern[strings.IndexByte(m.pattern, '/'):] }

// exempts reports whether req is never limited.
func (c *compiled) exempts(req *http.Request) bool {
	for _, m := range c.exempt {
		if m.matchesPlainly(req) {
			return true
		}
	}
	return false
}

// matchesPlainly reports whether m matches r and r's path is in its plain spelling. Another
// spelling might lead a handler to another path.
func (m *matcher) matchesPlainly(r *http.Request) bool {
	if r.URL.RawPath != "" || !isPlain(r.URL.Path) {
		return false
	}
	return m.matches(&target{request: r})
}
