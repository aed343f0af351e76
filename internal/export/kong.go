package export

import (
	"fmt"
	"math"
	"net"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/heedhttp/heed/quota"
	"github.com/heedhttp/heed/serverside/rulefile"
)

// kong writes declarative configuration for the rate-limiting plugin of Kong, 3.0 or later:
// one for all requests, and one for each route of a rule with a pattern. Kong applies only the
// plugin of a request's route, so that has the limits of all rules that cover the route.
func kong(e *exporter) string {
	if bits := e.ipv6Bits(); bits < 128 {
		e.settingGap("ipv6_bits", "Kong counts by whole addresses of IPv6, and not by /%d", bits)
	}
	if len(e.Config.Exempt) > 0 {
		e.settingGap("exempt", "Kong limits these requests like all others")
	}
	e.allowGaps("Kong has no limits of their own for addresses: here it has those of all others")

	k := kongFile{e}
	rules := k.rules()
	var file struct {
		Version  string        `yaml:"_format_version"`
		Plugins  []kongPlugin  `yaml:",omitempty"`
		Services []kongService `yaml:",omitempty"`
	}
	file.Version = "3.0"
	everywhere := slices.DeleteFunc(slices.Clone(rules), func(g gatewayRule) bool { return !g.pattern.isAny() })
	if len(everywhere) > 0 {
		file.Plugins = []kongPlugin{k.plugin(everywhere)}
	}
	if routes := k.routes(rules); len(routes) > 0 {
		file.Services = []kongService{{"application", "http://127.0.0.1:8080", routes}}
	}
	lines := e.purpose("Kong", "Replace the url by the application's, and run deck gateway sync FILE.")
	return e.comment(append(lines, k.settings()...)...) + toYAML(file)
}

type kongFile struct{ *exporter }

type kongService struct {
	Name   string
	URL    string
	Routes []kongRoute
}

type kongRoute struct {
	Name     string
	Methods  []string `yaml:",omitempty,flow"`
	Hosts    []string `yaml:",omitempty,flow"`
	Paths    []string
	Priority int `yaml:"regex_priority"`
	Plugins  []kongPlugin
}

type kongPlugin struct {
	Name   string
	Config object
}

// kongWindows are the windows that Kong counts in.
var kongWindows = []struct {
	name   string
	length time.Duration
}{{"second", time.Second}, {"minute", time.Minute}, {"hour", time.Hour}, {"day", 24 * time.Hour}}

// rules returns the rules that Kong can apply.
func (k kongFile) rules() []gatewayRule {
	return slices.DeleteFunc(k.gatewayRules(k.keeps), func(g gatewayRule) bool {
		if g.pattern.needsEscapes() {
			k.ruleGap(g.Listed, "Kong does not decode the path: it is left to the application")
		}
		return g.pattern.needsEscapes()
	})
}

// keeps reports whether Kong can apply a limit of a rule. It adds gaps for differences.
func (k kongFile) keeps(r *rulefile.Listed, l limit) bool {
	for _, w := range kongWindows {
		if w.length != l.Window {
			continue
		}
		if l.Algorithm != quota.FixedWindow && l.Algorithm != quota.TokenBucket {
			k.ruleGap(r, "Kong counts in a window of the clock, and not in a %v", l.Algorithm)
		} else if l.Burst != l.Quota {
			k.ruleGap(r, "Kong counts in a window of the clock: %d at once, and not %d", l.Quota, l.Burst)
		}
		return true
	}
	k.ruleGap(r, "%v is left to the application: Kong has windows of a second, a minute, an hour and a day", l)
	return false
}

// plugin returns the plugin that applies some rules: the lowest limit of each window.
func (k kongFile) plugin(rules []gatewayRule) kongPlugin {
	config := object{"limit_by": "ip", "policy": "local", "fault_tolerant": true}
	if k.Redis != "" {
		config["policy"], config["redis_host"] = "redis", k.Redis
		if host, port, err := net.SplitHostPort(k.Redis); err == nil {
			config["redis_host"] = host
			config["redis_port"], _ = strconv.Atoi(port)
		}
	}
	lowest := make(map[time.Duration]int64)
	for _, g := range rules {
		if k.failsClosed(g.Listed) {
			config["fault_tolerant"] = false
		}
		for _, l := range g.limits {
			if n, ok := lowest[l.Window]; !ok || l.Quota < n {
				lowest[l.Window] = l.Quota
			}
		}
	}
	// Kong rejects a limit that is higher than that of a longer window. It would never be
	// reached, and is left out.
	most := int64(math.MaxInt64)
	for _, w := range slices.Backward(kongWindows) {
		if n, ok := lowest[w.length]; ok && n <= most {
			config[w.name], most = n, n
		}
	}
	return kongPlugin{"rate-limiting", config}
}

// routes returns a route for each rule that has a pattern.
func (k kongFile) routes(rules []gatewayRule) (routes []kongRoute) {
	others := make([]int, len(rules)) // for each rule, the routes of other rules that take some of its requests
	for i, g := range rules {
		if g.pattern.isAny() {
			continue
		}
		var here []gatewayRule
		for j, other := range rules {
			if other.pattern.covers(g.pattern) {
				here = append(here, other)
			}
			if i != j && other.pattern.concerns(g.pattern) {
				others[j]++
			}
		}
		route := kongRoute{
			Name: g.id, Methods: g.pattern.methods(), Paths: []string{kongPath(g.pattern)},
			Priority: len(here), // the narrower a pattern, the more rules cover it
			Plugins:  []kongPlugin{k.plugin(here)},
		}
		if g.pattern.host != "" {
			route.Hosts = []string{g.pattern.host}
		}
		routes = append(routes, route)
	}
	for j, n := range others {
		if n > 0 {
			k.ruleGap(rules[j].Listed, "some of its requests take the routes of other rules (%d): "+
				"Kong counts each route by itself, by the rules that cover it", n)
		}
	}
	return routes
}

// kongPath returns p's path as an expression of Kong, which has to begin with a slash.
func kongPath(p pattern) string { return "~/(?i)" + strings.TrimLeft(p.path(false), "/*") }

// settings returns a comment about Kong and its kong.conf.
func (k kongFile) settings() []string {
	lines := []string{"", "Kong counts in windows of the clock: around the end of one it may admit twice the limit."}
	if len(k.Proxies.Trusted) == 0 {
		return append(lines, "Behind another proxy, all clients have the proxy's address: name it in trusted_proxies of",
			"the rules, and what kong.conf needs stands here.")
	}
	proxies := strings.ReplaceAll(strings.Trim(fmt.Sprint(k.Proxies.Trusted), "[]"), " ", ",")
	return append(lines, "In kong.conf:",
		"  trusted_ips = "+proxies, "  real_ip_header = "+k.proxyField(), "  real_ip_recursive = on")
}
