package export

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/heedhttp/heed/quota"
	"github.com/heedhttp/heed/serverside/rulefile"
)

// nginx writes directives for the http block of nginx, 1.17.6 or later. Maps instead of locations
// select the rules for a request, so that all matching rules apply, as in package serverside, and
// existing locations stay as they are.
func nginx(e *exporter) string {
	n := &nginxFile{exporter: e, client: "$binary_remote_addr"}
	n.realIP()
	n.networks()
	n.allow()
	n.exempt()
	n.rules()
	lines := append(e.purpose("nginx", "Include it in the http block."), "",
		"A server or location that has limit_req or add_header directives of its own needs those",
		"below too: nginx inherits all of them or none. A map that matches an expression changes",
		"$1, $2 and so on: a location that uses them should name its groups, as in (?<id>.*).")
	return e.comment(lines...) + n.String()
}

type nginxFile struct {
	*exporter
	strings.Builder
	client string // the variable that tells clients apart; empty for a request that is not counted
}

func (n *nginxFile) printf(format string, args ...any) { fmt.Fprintf(n, format, args...) }

// request is the value that maps match with expressions of patterns.
const request = "$request_method $host$uri"

// realIP makes nginx trust the proxies that the rules trust.
func (n *nginxFile) realIP() {
	if len(n.Proxies.Trusted) == 0 {
		n.printf("\n# Behind another proxy, all clients have the proxy's address: name it in trusted_proxies\n" +
			"# of the rules, and set_real_ip_from stands here.\n")
		return
	}
	n.printf("\n# The proxies that are believed (ngx_http_realip_module).\n")
	for _, p := range n.Proxies.Trusted {
		n.printf("set_real_ip_from %v;\n", p)
	}
	n.printf("real_ip_header %q;\nreal_ip_recursive on;\n", n.proxyField())
}

// networks makes all IPv6 addresses of a network one client.
func (n *nginxFile) networks() {
	bits := n.ipv6Bits()
	bytes := (bits + 7) / 8
	if bits%8 != 0 {
		n.settingGap("ipv6_bits", "nginx counts by whole bytes of an address: here by /%d", 8*bytes)
	}
	if bytes == 16 {
		return
	}
	n.printf("\n# A client with IPv6 is a /%d.\n", 8*bytes)
	n.printf("map $binary_remote_addr $heed_network {\n\tdefault $binary_remote_addr;\n")
	n.printf("\t\"~(?s)^(?<heed_prefix>.{%d}).{%d}$\" $heed_prefix;\n}\n", bytes, 16-bytes)
	n.client = "$heed_network"
}

// allow exempts the addresses in allow from counting.
func (n *nginxFile) allow() {
	peers := n.allowed()
	if len(peers) == 0 {
		return
	}
	peer := ""
	if len(n.Proxies.Trusted) > 0 {
		peer = "$realip_remote_addr " // the connection's address, whatever a proxy sends
	}
	n.printf("\n# These addresses are not limited.\ngeo %s$heed_allowed {\n\tdefault 0;\n", peer)
	for _, p := range peers {
		n.printf("\t%v 1;\n", p)
	}
	n.printf("}\nmap $heed_allowed $heed_not_allowed {\n\t0 %s;\n\t1 \"\";\n}\n", n.client)
	n.client = "$heed_not_allowed"
}

// exempt exempts requests that no rule limits from counting.
func (n *nginxFile) exempt() {
	if len(n.Config.Exempt) == 0 {
		return
	}
	n.printf("\n# These requests are not limited.\nmap %q $heed_client {\n", request)
	for _, text := range n.Config.Exempt {
		n.printf("\t\"~^%s\" \"\";\n", newPattern(text).expression(true))
	}
	n.printf("\tdefault %s;\n}\n", n.client)
	n.client = "$heed_client"
}

// rules writes the limits, and Retry-After for denied requests.
func (n *nginxFile) rules() {
	rules := n.gatewayRules(n.keeps)
	if len(rules) == 0 {
		return
	}
	zones := identifiers{}
	for _, g := range rules {
		n.rule(g, zones)
	}
	n.printf("\nlimit_req_status 429;\nmap \"$limit_req_status %s\" $heed_retry_after {\n\tdefault \"\";\n", request)
	// nginx takes the first expression that matches: the one with the longest wait.
	slices.SortStableFunc(rules, func(a, b gatewayRule) int { return cmp.Compare(retryAfter(b), retryAfter(a)) })
	for _, g := range rules {
		n.printf("\t\"~^REJECTED %s\" %d;\n", g.pattern.expression(false), retryAfter(g))
	}
	n.printf("}\nadd_header Retry-After $heed_retry_after always;\n")
}

// rule writes the limits of a rule.
func (n *nginxFile) rule(g gatewayRule, zones identifiers) {
	n.printf("\n# rule %s\n", quoted(g.Rule.Name))
	key := n.client
	if !g.pattern.isAny() {
		key = "$heed_rule_" + g.id
		n.printf("map %q %s {\n\tdefault \"\";\n\t\"~^%s\" %s;\n}\n", request, key, g.pattern.expression(false), n.client)
	}
	for _, l := range g.limits {
		zone := g.id
		if len(g.limits) > 1 {
			zone += "_" + brief(l.Window)
		}
		zone = zones.add(zone)
		rate, _ := nginxRate(l)
		burst, option := l.Burst-1, " nodelay" // nginx admits one request more than its burst
		if l.Algorithm == quota.LeakyBucket {
			burst, option = l.Burst, ""
		}
		n.printf("# %v\nlimit_req_zone %s zone=%s:10m rate=%s;\nlimit_req zone=%s", l, key, zone, rate, zone)
		if burst > 0 {
			n.printf(" burst=%d%s", burst, option)
		}
		n.printf(";\n")
	}
}

// nginx counts in 64 bits: it overflows when a client has more than these.
const (
	mostPerMinute = 60_000_000
	mostBurst     = 1_000_000_000
)

// keeps reports whether nginx can apply a limit of a rule. It adds gaps for differences.
func (n *nginxFile) keeps(r *rulefile.Listed, l limit) bool {
	if l.in(time.Minute) > mostPerMinute || l.Burst > mostBurst {
		n.ruleGap(r, "%v is more than nginx can count: it is left to the application", l)
		return false
	}
	if _, thousandths := nginxRate(l); float64(thousandths) != l.in(1000*time.Second) {
		n.ruleGap(r, "nginx rounds rates: %v is %d in 1000s here", l, thousandths)
	}
	if l.Algorithm != quota.TokenBucket && l.Algorithm != quota.LeakyBucket {
		n.ruleGap(r, "nginx counts in a bucket, and not in a %v: it admits up to twice %d in %s",
			l.Algorithm, l.Quota, brief(l.Window))
	}
	return true
}

// nginxRate returns a limit's rate in nginx' syntax, in whole requests a second or a minute, rounded
// up. It also returns the rate that nginx uses, in whole thousandths of a request a second.
func nginxRate(l limit) (text string, thousandths int64) {
	perMinute := int64(math.Ceil(l.in(time.Minute)))
	text = fmt.Sprintf("%dr/m", perMinute)
	if perMinute%60 == 0 {
		text = fmt.Sprintf("%dr/s", perMinute/60)
	}
	return text, perMinute * 1000 / 60
}

// retryAfter returns the wait for the slowest limit of a rule, in seconds.
func retryAfter(g gatewayRule) (seconds int64) {
	for _, l := range g.limits {
		_, thousandths := nginxRate(l)
		seconds = max(seconds, (1000+thousandths-1)/thousandths)
	}
	return seconds
}
