package export

import (
	"cmp"
	"fmt"
	"math/big"
	"slices"
	"strings"
	"time"

	"github.com/heedhttp/heed/quota"
)

// nginx makes directives for the http context of nginx, 1.17.6 or later. Which rules
// apply to a request is decided by maps rather than locations: all do that match, as
// in package serverside, and the locations stay as they are.
func nginx(e *exporter) string {
	n := &nginxFile{exporter: e, client: "$binary_remote_addr"}
	n.realIP()
	n.addresses()
	n.exemptions()
	for _, g := range e.guards() {
		n.guard(g)
	}
	n.retryAfter()
	return hashed(append(e.comment(e.layering("nginx", "Include it in the http block.")...), "",
		"A server or location with limit_req or add_header directives of its own needs those",
		"from here too: nginx inherits all or none. Expressions in map forget $1, $2 …: where",
		"a location passes them on, name them, as in (?<id>.*).")) + n.String()
}

type nginxFile struct {
	*exporter
	strings.Builder
	client  string // the variable that tells clients apart
	source  string // what maps look at
	before  string // what stands before the method in it
	passes  []string
	waiting []nginxWait
}

// A nginxWait is how long requests that match are to wait.
type nginxWait struct {
	pattern pattern
	seconds int64
}

func (n *nginxFile) printf(format string, args ...any) { fmt.Fprintf(n, format, args...) }

// realIP has nginx believe the proxies that the rules believe.
func (n *nginxFile) realIP() {
	if len(n.Proxies.Trusted) == 0 {
		n.printf("\n# Behind another proxy, each client has the proxy's address: name it in\n# trusted_proxies, and set_real_ip_from stands here.\n")
		return
	}
	field := proxyField(n.exporter, "nginx")
	n.printf("\n# Clients are told apart by what these proxies say (ngx_http_realip_module).\n")
	for _, p := range n.Proxies.Trusted {
		n.printf("set_real_ip_from %v;\n", p)
	}
	n.printf("real_ip_header %s;\nreal_ip_recursive on;\n", field)
}

// addresses has clients with IPv6 told apart by their network.
func (n *nginxFile) addresses() {
	bits := n.ipv6Bits()
	if bits > 120 {
		return
	}
	bytes := (bits + 7) / 8
	if bits%8 != 0 {
		n.gapOf("ipv6_bits", 1, 1, "nginx counts by whole bytes of an address: by /%d", 8*bytes)
	}
	n.client = "$heed_client"
	n.printf("\n# A client with IPv6 has a /%d.\n", 8*bytes)
	n.printf("map $binary_remote_addr $heed_client {\n\tdefault $binary_remote_addr;\n")
	n.printf("\t\"~(?s)^(?<heed_network>.{%d}).{%d}$\" $heed_network;\n}\n", bytes, 16-bytes)
}

// exemptions prepares what is never limited.
func (n *nginxFile) exemptions() {
	n.source = "$request_method $host$uri"
	if peers := n.allowed(); len(peers) > 0 {
		n.source, n.before = "$heed_allowed "+n.source, "0 "
		n.passes = append(n.passes, "^1 ")
		address := ""
		if len(n.Proxies.Trusted) > 0 {
			address = "$realip_remote_addr " // the peer's
		}
		n.printf("\ngeo %s$heed_allowed {\n\tdefault 0;\n", address)
		slices.SortFunc(peers, comparePrefixes)
		for _, p := range slices.Compact(peers) {
			n.printf("\t%v 1;\n", p)
		}
		n.printf("}\n")
	}
	for _, p := range n.exempt() {
		n.passes = append(n.passes, match(p, n.before, true))
	}
}

// match is an expression for requests, as source has them.
func match(p pattern, before string, exact bool) string {
	return "^" + before + p.expression("/", exact)
}

// guard limits what a rule limits.
func (n *nginxFile) guard(g guard) {
	key := n.client
	if g.pattern.text != "" || len(n.passes) > 0 {
		key = "$heed_rule_" + g.id
	}
	var limits strings.Builder
	wait := int64(0)
	for _, l := range g.limits {
		text, seconds := n.limit(&g, l, key)
		limits.WriteString(text)
		wait = max(wait, seconds)
	}
	if wait == 0 {
		return
	}
	n.printf("\n# rule %s\n", quoted(g.Rule.Name))
	if key != n.client {
		n.mapTo(key, g.pattern)
	}
	n.WriteString(limits.String())
	n.waiting = append(n.waiting, nginxWait{g.pattern, wait})
}

// mapTo maps requests to their client, or to nothing, which is not counted.
func (n *nginxFile) mapTo(key string, p pattern) {
	n.printf("map %q %s {\n", n.source, key)
	for _, pass := range n.passes {
		n.printf("\t\"~%s\" \"\";\n", pass)
	}
	if p.text == "" {
		n.printf("\tdefault %s;\n}\n", n.client)
		return
	}
	n.printf("\tdefault \"\";\n\t\"~%s\" %s;\n}\n", match(p, n.before, false), n.client)
}

// limit are the directives of one policy, and how long who is denied waits, in
// seconds; 0 if there are none.
func (n *nginxFile) limit(g *guard, l limit, key string) (directives string, wait int64) {
	rate, milli := n.rate(g, l)
	if milli == 0 {
		return "", 0
	}
	burst, delay := fmt.Sprintf(" burst=%d", l.Burst-1), " nodelay" // nginx has one more than its burst
	switch {
	case l.Algorithm == quota.LeakyBucket:
		burst, delay = fmt.Sprintf(" burst=%d", l.Burst), ""
	case l.Algorithm != quota.TokenBucket:
		n.gap(&g.Listed, "nginx counts in a bucket, and not in a %v: it admits up to twice %d in %s", l.Algorithm, l.Quota, brief(l.Window))
	}
	if l.Burst == 1 && delay != "" {
		burst, delay = "", ""
	}
	return fmt.Sprintf("# %v\nlimit_req_zone %s zone=%s:10m rate=%s;\nlimit_req zone=%s%s%s;\n", l, key, l.id, rate, l.id, burst, delay),
		(1000 + milli - 1) / milli
}

// fastest is what nginx counts without an overflow, in requests a second.
const fastest = 1_000_000

// rate is l's as nginx has it, and in thousandths of a request a second, as nginx
// counts; 0 if it is too fast to be counted.
func (n *nginxFile) rate(g *guard, l limit) (text string, milli int64) {
	if perSecond, exact := perTime(l, time.Second); perSecond > fastest {
		n.gap(&g.Listed, "%v is faster than nginx can count", l)
		return "", 0
	} else if exact {
		return fmt.Sprintf("%dr/s", perSecond), 1000 * perSecond
	}
	perMinute, exact := perTime(l, time.Minute)
	milli = 1000 * perMinute / 60
	if inThousand, _ := perTime(l, 1000*time.Second); inThousand > milli {
		n.gap(&g.Listed, "nginx counts whole thousandths of a request a second: %v is %d in 1000s", l, milli)
	} else if !exact {
		n.gap(&g.Listed, "nginx counts whole requests a second or minute: %v is rounded up to %dr/m", l, perMinute)
	}
	return fmt.Sprintf("%dr/m", perMinute), milli
}

// perTime is how many requests l gives back in a time, rounded up.
func perTime(l limit, d time.Duration) (n int64, exact bool) {
	product := new(big.Int).Mul(big.NewInt(l.Quota), big.NewInt(int64(d)))
	whole, part := product.QuoRem(product, big.NewInt(int64(l.Window)), new(big.Int))
	if part.Sign() > 0 {
		whole.Add(whole, big.NewInt(1))
	}
	if !whole.IsInt64() {
		return most, false
	}
	return min(whole.Int64(), most), part.Sign() == 0
}

// retryAfter tells who is denied here when to come back. What the application
// denies is told by the application.
func (n *nginxFile) retryAfter() {
	if len(n.waiting) == 0 {
		return
	}
	slices.SortStableFunc(n.waiting, func(a, b nginxWait) int { return cmp.Compare(b.seconds, a.seconds) })
	n.printf("\nlimit_req_status 429;\nmap \"$limit_req_status $request_method $host$uri\" $heed_retry_after {\n\tdefault \"\";\n")
	seen := make(map[string]bool)
	for _, w := range n.waiting {
		if m := match(w.pattern, "REJECTED ", false); !seen[m] {
			seen[m] = true
			n.printf("\t\"~%s\" %d;\n", m, w.seconds)
		}
	}
	n.printf("}\nadd_header Retry-After $heed_retry_after always;\n")
}
