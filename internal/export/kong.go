package export

import (
	"cmp"
	"fmt"
	"net"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/heedhttp/heed/quota"
	"github.com/heedhttp/heed/serverside"
)

// kong makes declarative configuration for the rate-limiting plugin of Kong, 3.0 or
// later. Of the plugins that are for a request, Kong asks only the most specific: so a
// route has the numbers of all rules that hold there.
func kong(e *exporter) string {
	k := &kongFile{exporter: e}
	k.notSaid()
	guards := k.kept(e.guards())
	var file struct {
		Version  string        `yaml:"_format_version"`
		Plugins  []kongPlugin  `yaml:",omitempty"`
		Services []kongService `yaml:",omitempty"`
	}
	file.Version = "3.0"
	everywhere := slices.DeleteFunc(slices.Clone(guards), func(g guard) bool { return g.pattern.text != "" })
	if len(everywhere) > 0 {
		file.Plugins = []kongPlugin{k.plugin(everywhere)}
	}
	if routes := k.routes(guards); len(routes) > 0 {
		file.Services = []kongService{{"application", "http://127.0.0.1:8080", routes}}
	}
	return hashed(e.comment(append(e.layering("Kong", "Put the address of the application in place of url: deck gateway sync FILE."), k.settings()...)...)) + marshaled(file)
}

type kongFile struct{ *exporter }

// A kongService is an application, with what of it is limited by itself.
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
	Config kongLimits
}

// A kongLimits is how many requests an address may send in windows of the clock.
type kongLimits struct {
	Second        int64  `yaml:",omitempty"`
	Minute        int64  `yaml:",omitempty"`
	Hour          int64  `yaml:",omitempty"`
	Day           int64  `yaml:",omitempty"`
	LimitBy       string `yaml:"limit_by"`
	Policy        string
	RedisHost     string `yaml:"redis_host,omitempty"`
	RedisPort     int    `yaml:"redis_port,omitempty"`
	FaultTolerant bool   `yaml:"fault_tolerant"`
}

// of is the limit of a window, or nil if Kong has none.
func (l *kongLimits) of(window time.Duration) *int64 {
	switch window {
	case time.Second:
		return &l.Second
	case time.Minute:
		return &l.Minute
	case time.Hour:
		return &l.Hour
	case 24 * time.Hour:
		return &l.Day
	default:
		return nil
	}
}

// inOrder leaves out the limits of windows that those of longer ones are below: Kong
// takes them for a mistake.
func (l *kongLimits) inOrder() {
	least := int64(most)
	for _, n := range []*int64{&l.Day, &l.Hour, &l.Minute, &l.Second} {
		if *n > least {
			*n = 0
		} else if *n > 0 {
			least = *n
		}
	}
}

// notSaid are the gaps of what is beside the rules.
func (k *kongFile) notSaid() {
	if bits := k.ipv6Bits(); bits < 128 {
		k.gapOf("ipv6_bits", 1, 1, "Kong counts by whole addresses of IPv6, and not by /%d", bits)
	}
	for i := range k.Allow {
		a := &k.Allow[i]
		k.gapOf("allowance "+quoted(a.Rule.Name), a.Line, a.Column, "Kong has no other limits for addresses: the others' hold here")
	}
	if len(k.Config.Exempt) > 0 {
		k.gapOf("exempt", 1, 1, "Kong limits these requests as all others")
	}
}

// kept are the guards with what limits Kong can keep of them.
func (k *kongFile) kept(guards []guard) (all []guard) {
	for _, g := range guards {
		g.limits = slices.DeleteFunc(slices.Clone(g.limits), func(l limit) bool { return !k.keeps(&g, l) })
		switch {
		case len(g.limits) == 0:
		case !g.pattern.isPlain():
			k.gap(&g.Listed, "Kong does not decode the path: the rule is left out")
		default:
			all = append(all, g)
		}
	}
	return all
}

// keeps reports whether Kong has a window like l's, and what else it has not.
func (k *kongFile) keeps(g *guard, l limit) bool {
	if new(kongLimits).of(l.Window) == nil {
		k.gap(&g.Listed, "%v is left to the application: Kong has windows of a second, a minute, an hour and a day", l)
		return false
	}
	if l.Algorithm != quota.FixedWindow && l.Algorithm != quota.TokenBucket {
		k.gap(&g.Listed, "Kong counts in a window of the clock, and not in a %v", l.Algorithm)
	} else if l.Burst != l.Quota {
		k.gap(&g.Listed, "Kong counts in a window of the clock: %d at once, and not %d", l.Quota, l.Burst)
	}
	return true
}

// plugin limits what some guards do: the least of each window.
func (k *kongFile) plugin(guards []guard) kongPlugin {
	c := kongLimits{LimitBy: "ip", Policy: "local", FaultTolerant: true}
	if k.Redis != "" {
		c.Policy, c.RedisHost = "redis", k.Redis
		if host, port, err := net.SplitHostPort(k.Redis); err == nil {
			c.RedisHost = host
			c.RedisPort, _ = strconv.Atoi(port)
		}
	}
	for _, g := range guards {
		for _, l := range g.limits {
			if n := c.of(l.Window); *n == 0 || l.Quota < *n {
				*n = l.Quota
			}
		}
		if cmp.Or(g.Rule.OnStoreError, k.Config.OnStoreError) == serverside.FailClosed {
			c.FaultTolerant = false
		}
	}
	c.inOrder()
	return kongPlugin{"rate-limiting", c}
}

// routes are for the guards that have a pattern.
func (k *kongFile) routes(guards []guard) (routes []kongRoute) {
	apart := make([]int, len(guards))   // on how many routes the numbers of a guard hold besides
	crossed := make([]int, len(guards)) // with how many others a guard has some requests in common
	for i := range guards {
		g := &guards[i]
		if g.pattern.text == "" {
			continue
		}
		r := kongRoute{Name: g.id, Paths: []string{kongPath(g.pattern)}, Priority: len(g.pattern.segments)}
		if g.pattern.method != "" {
			r.Methods = strings.Split(strings.Trim(g.pattern.methods(), "()"), "|")
		}
		if g.pattern.host != "" {
			r.Hosts = []string{g.pattern.host}
		}
		here := []guard{*g}
		for j := range guards {
			switch o := guards[j].pattern; {
			case i == j:
			case o.covers(g.pattern):
				here = append(here, guards[j])
				apart[j]++
			case o.overlaps(g.pattern) && !g.pattern.covers(o):
				crossed[j]++
			}
		}
		r.Plugins = []kongPlugin{k.plugin(here)}
		routes = append(routes, r)
	}
	for j := range guards {
		if n := apart[j]; n > 0 {
			k.gap(&guards[j].Listed, "its numbers hold on routes of %d other rules too, but Kong counts them apart", n)
		}
		if n := crossed[j]; n > 0 {
			k.gap(&guards[j].Listed, "it has some requests in common with %d of the other rules: Kong limits each of those by one of the rules alone", n)
		}
	}
	return routes
}

// kongPath is p's path as an expression of Kong, which must begin with a slash.
func kongPath(p pattern) string {
	path := strings.TrimPrefix(p.path("/", false), "/")
	if path == "*$" { // the root alone
		return "~/$"
	}
	return "~/(?i)" + path
}

// settings are what Kong has in a file of its own.
func (k *kongFile) settings() []string {
	lines := []string{"", "Kong counts in windows of the clock, so it lets through up to twice the numbers around", "their end."}
	if len(k.Proxies.Trusted) == 0 {
		return append(lines, "Behind another proxy, each client has the proxy's address: name it in", "trusted_proxies, and what kong.conf needs stands here.")
	}
	return append(lines, "In kong.conf:", "  trusted_ips = "+strings.ReplaceAll(strings.Trim(fmt.Sprint(k.Proxies.Trusted), "[]"), " ", ","),
		"  real_ip_header = "+proxyField(k.exporter, "Kong"), "  real_ip_recursive = on")
}
