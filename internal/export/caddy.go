package export

import (
	"fmt"
	"strings"
	"time"

	"github.com/heedhttp/heed/quota"
)

// caddy makes a snippet of a Caddyfile, for the module mholt/caddy-ratelimit, which
// remembers when each request came.
func caddy(e *exporter) string {
	c := &caddyFile{exporter: e}
	if bits := e.ipv6Bits(); bits < 128 {
		e.gapOf("ipv6_bits", 1, 1, "Caddy counts by whole addresses of IPv6 here, and not by /%d", bits)
	}
	c.passes()
	for _, g := range e.guards() {
		c.guard(g)
	}
	text := "\n(heed) {\n"
	if c.Len() > 0 {
		text += "\trate_limit {\n" + c.String() + "\t}\n"
	}
	lines := append(e.layering("Caddy 2.8 with github.com/mholt/caddy-ratelimit", "Import it where a site begins: import heed."), c.options()...)
	lines = append(lines, "", "What one zone denies, those before it have counted.")
	return strings.ReplaceAll(hashed(e.comment(lines...)), "{$", "{ $") + text + "}\n"
}

type caddyFile struct {
	*exporter
	strings.Builder
	except []string // matchers of requests that are never limited
}

func (c *caddyFile) line(depth int, format string, args ...any) {
	c.WriteString(strings.Repeat("\t", depth) + fmt.Sprintf(format, args...) + "\n")
}

// options are the global options that the snippet needs, for the comment.
func (c *caddyFile) options() []string {
	lines := []string{"", "The global options need:", "  order rate_limit before basic_auth"}
	if len(c.Proxies.Trusted) == 0 {
		return append(lines, "Behind another proxy, each client has the proxy's address: name it in trusted_proxies,", "and the options of servers stand here.")
	}
	return append(lines, "  servers {", "    trusted_proxies static "+strings.Trim(fmt.Sprint(c.Proxies.Trusted), "[]"),
		"    client_ip_headers "+proxyField(c.exporter, "Caddy"), "    trusted_proxies_strict", "  }")
}

// passes prepares what is never limited.
func (c *caddyFile) passes() {
	if peers := c.allowed(); len(peers) > 0 {
		c.except = append(c.except, "not remote_ip "+strings.Trim(fmt.Sprint(peers), "[]"))
	}
	for _, p := range c.exempt() {
		if !p.isPlain() {
			c.gapOf("exempt", 1, 1, "Caddy is not told of paths that need escapes: there it is limited")
			continue
		}
		c.except = append(c.except, "not {\n\t\t\t\t\t"+strings.Join(matchers(p, true), "\n\t\t\t\t\t")+"\n\t\t\t\t}")
	}
}

// matchers are the lines by which Caddy matches a pattern.
func matchers(p pattern, exact bool) (lines []string) {
	if p.text == "" {
		return nil
	}
	if p.method != "" {
		lines = append(lines, "method "+strings.ReplaceAll(strings.Trim(p.methods(), "()"), "|", " "))
	}
	if p.host != "" {
		lines = append(lines, "header_regexp Host `(?i)^\\[?"+escaped(p.host)+"\\]?\\.?(:|$)`")
	}
	fold := "(?i)"
	if exact {
		fold = ""
	}
	return append(lines, "path_regexp `"+fold+"^"+p.path("/", exact)+"`")
}

// guard limits what a rule limits.
func (c *caddyFile) guard(g guard) {
	if !g.pattern.isPlain() {
		c.gap(&g.Listed, "Caddy is not told of paths that need escapes: the rule is left out")
		return
	}
	lines := append(matchers(g.pattern, false), c.except...)
	for _, l := range g.limits {
		n, window := c.windowOf(&g, l)
		if n > mostEvents || window > 24*365*time.Hour {
			c.gap(&g.Listed, "%v is more than Caddy should remember: it is left to the application", l)
			continue
		}
		c.line(2, "# rule %s: %v", strings.ReplaceAll(quoted(g.Rule.Name), "{$", "{ $"), l)
		c.line(2, "zone %s {", l.id)
		if len(lines) > 0 {
			c.line(3, "match {\n\t\t\t\t%s\n\t\t\t}", strings.Join(lines, "\n\t\t\t\t"))
		}
		c.line(3, "key {client_ip}\n\t\t\tevents %d\n\t\t\twindow %v", n, window)
		c.line(2, "}")
	}
}

// mostEvents is how many requests of a client the module is to remember.
const mostEvents = 100_000

// windowOf is l as a number of requests in any window: those of a bucket in the time
// in which it fills.
func (c *caddyFile) windowOf(g *guard, l limit) (n int64, window time.Duration) {
	n = l.Burst
	switch l.Algorithm {
	case quota.TokenBucket:
	case quota.LeakyBucket:
		n++ // the one that does not wait
		c.gap(&g.Listed, "nobody waits in Caddy: up to %d pass at once", n)
	case quota.SlidingLog:
		return l.Quota, l.Window
	default:
		n = l.Quota
		c.gap(&g.Listed, "Caddy remembers each request, and does not count in a %v", l.Algorithm)
	}
	window, part := fillTime(n, l)
	if part {
		c.gap(&g.Listed, "Caddy is told milliseconds: %v is %d in %v", l, n, window)
	}
	return n, window
}
