package serverside

import (
	"net/http"
	"net/netip"
	"strings"

	"github.com/heedhttp/heed/quota"
)

// An Allow is an entry of the allow-list: requests that are trusted more than
// others. They are charged to it and to no rule, whatever their Stage, and Audit
// is told of each. Nobody is trusted without a limit: a trusted client that
// fails, or whose key was stolen, sends more than any other.
type Allow struct {
	// Name tells the entry from others and from rules, as Rule.Name does. It is
	// required.
	Name string

	// Match reports whether a request is trusted; it is required. Peers and KeyIs
	// are such functions. It must not believe what anybody can send.
	Match func(*http.Request) bool

	// Policies are the limits, at least one.
	Policies []quota.Policy

	// Key is as in Rule.
	Key Key
}

// Peers reports whether a request comes straight from an address in one of prefixes. A
// request in which anything looks forwarded (Via, X-Forwarded-For, X-Real-IP and the like)
// has come by way of the peer, and is not trusted.
//
// A proxy that adds no such field, as nginx' proxy_pass and HAProxy do unless they are told
// to, cannot be seen: where one runs at an address in prefixes, all its clients are
// trusted. Name Loopback only where no proxy runs on the same host.
func Peers(prefixes ...netip.Prefix) func(*http.Request) bool {
	trusted := trustOf(prefixes)
	return func(r *http.Request) bool {
		addr, ok := parseHop(r.RemoteAddr)
		return ok && trusted.trust(addr) && !isForwarded(r)
	}
}

// Loopback are the addresses of this machine, for Peers.
func Loopback() []netip.Prefix {
	return []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8"), netip.MustParsePrefix("::1/128")}
}

// entry compiles from to a rule that stands in place of all others.
func (c *compiler) entry(from *Allow, mode FailureMode, field string) *rule {
	if from.Name == "" {
		c.fault(field+".Name", "must not be empty: the audit trail is by name")
	}
	if from.Match == nil {
		c.fault(field+".Match", "must not be nil")
	}
	if len(from.Policies) == 0 {
		c.fault(field+".Policies", "there must be at least one: nobody is trusted without a limit")
	}
	named := Rule{Name: from.Name, Policies: from.Policies, Key: from.Key}
	if len(from.Policies) == 0 {
		named.MaxInFlight = 1 // so that there is one fault
	}
	r := c.rule(named, mode, field)
	copied := *from
	r.entry = &copied
	return r
}

// allowed returns the entry that req is charged to, or nil.
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
		c.fault(field, "%q would match nothing: write the path in lower case, without escapes", pattern)
	}
	return m
}

// path is the pattern from its first slash on.
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

// matchesPlainly reports whether m's pattern matches r in the spelling that is
// not changed by folding: in any other, a handler might see another path.
func (m *matcher) matchesPlainly(r *http.Request) bool {
	if r.URL.RawPath != "" || !isPlain(r.URL.Path) {
		return false
	}
	return m.matches(&target{request: r})
}
