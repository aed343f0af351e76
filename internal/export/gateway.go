package export

import (
	"cmp"
	"fmt"
	"net/netip"
	"regexp"
	"slices"
	"strings"

	"github.com/heedhttp/heed/serverside"
	"github.com/heedhttp/heed/serverside/rulefile"
)

// Code that nginx and Kong share.

// A gatewayRule is a rule that a gateway can apply: it counts requests by address.
type gatewayRule struct {
	*rulefile.Listed
	id      string // its name in letters, digits and "_", which no other rule has
	pattern pattern
	limits  []limit // multiplied by Options.Times
}

// gatewayRules returns the rules that a gateway can apply, with the limits that keeps accepts. The
// others become gaps: keeps adds those of limits that it rejects.
func (e *exporter) gatewayRules(keeps func(*rulefile.Listed, limit) bool) (rules []gatewayRule) {
	ids := identifiers{}
	for i := range e.Rules {
		r := &e.Rules[i]
		if reason := applicationOnly(r); reason != "" {
			e.ruleGap(r, "%s: it is left to the application", reason)
			continue
		}
		g := gatewayRule{Listed: r, id: ids.add(r.Rule.Name), pattern: newPattern(r.Rule.Pattern)}
		for _, p := range r.Rule.Policies {
			l := newLimit(p)
			if l.Calendar != 0 {
				e.ruleGap(r, "%v of the calendar: it is left to the application", l)
				continue
			}
			l.Quota *= e.Times
			l.Burst *= e.Times
			if keeps(r, l) {
				g.limits = append(g.limits, l)
			}
		}
		if len(g.limits) > 0 {
			e.partGaps(r)
			rules = append(rules, g)
		}
	}
	return rules
}

// applicationOnly returns why a gateway cannot apply a rule, or "".
func applicationOnly(r *rulefile.Listed) string {
	names := func(setting string) bool {
		return slices.ContainsFunc(r.Functions, func(f string) bool { return strings.HasPrefix(f, setting+" ") })
	}
	key := unnamed(r.Key)
	switch {
	case r.Rule.Stage == serverside.Overload:
		return "it limits the server as a whole, after all other rules"
	case key == "peer":
		return "it counts by peer, and behind a gateway that is the gateway"
	case key != "ip":
		return "it counts by " + quoted(r.Key) + ", which only the application knows"
	case r.Rule.DryRun:
		return "it is a dry run"
	case names("if"):
		return "a function decides whether it applies"
	case len(r.Rule.Tiers) > 0 || names("tier"):
		return "it depends on the client's tier"
	case names("limits"):
		return "clients have limits of their own"
	case r.Rule.Settle != nil:
		return "it counts by response"
	case len(r.Rule.Policies) == 0:
		return "it limits only what is in flight"
	}
	return ""
}

// unnamed returns a key without named(…), which only matters to the store: ip for named(login, ip).
func unnamed(key string) string {
	for strings.HasPrefix(key, "named(") {
		_, key, _ = strings.Cut(key, ", ")
		key = strings.TrimSuffix(key, ")")
	}
	return key
}

// partGaps adds the gaps of a rule that a gateway applies in part.
func (e *exporter) partGaps(r *rulefile.Listed) {
	for _, f := range r.Functions {
		if cost, ok := strings.CutPrefix(f, "cost "); ok {
			e.ruleGap(r, "a request costs %s in the application, and 1 here", cost)
		}
	}
	if r.Rule.MaxInFlight > 0 {
		e.ruleGap(r, "max_in_flight is left to the application")
	}
	if r.Rule.Penalty != nil {
		e.ruleGap(r, "the penalty is left to the application")
	}
}

// allowed returns the addresses in allow. Entries without addresses, and the limits of all entries,
// are gaps.
func (e *exporter) allowed() (peers []netip.Prefix) {
	for i := range e.Allow {
		a := &e.Allow[i]
		if len(a.Peers) == 0 {
			e.allowGap(a, "only the application knows its clients: here they have the limits of all others")
			continue
		}
		e.allowGap(a, "its own limit is left to the application: here it has none")
		peers = append(peers, a.Peers...)
	}
	return peers
}

// ipv6Bits returns the length of the IPv6 prefix that counts as one client.
func (e *exporter) ipv6Bits() int { return cmp.Or(e.Proxies.IPv6Bits, 64) }

// proxyField returns the field in which a gateway finds the client's address. It reads only
// one, and not Forwarded.
func (e *exporter) proxyField() string {
	fields := e.Proxies.Fields
	if len(fields) == 0 {
		return "X-Forwarded-For"
	}
	field := "X-Forwarded-For"
	if i := slices.IndexFunc(fields, func(f string) bool { return !strings.EqualFold(f, "Forwarded") }); i >= 0 {
		field = fields[i]
	}
	if len(fields) > 1 || field != fields[0] {
		e.settingGap("proxy_fields", "a gateway reads one field, and not Forwarded: here it is %s", field)
	}
	return field
}

// purpose returns the first lines of the comment of a gateway's configuration.
func (e *exporter) purpose(gateway, use string) []string {
	lines := []string{
		"Protection from floods for " + gateway + ", made from " + e.source() + " by heed rules export.",
		use,
		"",
		"It limits addresses, each gateway by itself, and tells clients no more than when to",
		"come back. All other limits stay with the application.",
	}
	if e.Times > 1 {
		return append(lines, fmt.Sprintf("The limits are %d times those of the rules.", e.Times))
	}
	return append(lines,
		"The limits are those of the rules. Where the application limits addresses too, export",
		"with -times 5, so that it is usually the application that answers.")
}

// identifiers are unique names made from other names.
type identifiers map[string]bool

// maxID is the length of the longest identifier: "$heed_rule_", an identifier and a number have to fit
// into nginx' hash of variables.
const maxID = 32

var notInID = regexp.MustCompile(`[^A-Za-z0-9]`)

// add returns an identifier for a name: the name with everything but ASCII letters and digits replaced
// by "_", and a number if that is in use.
func (ids identifiers) add(name string) string {
	base := strings.ToLower(notInID.ReplaceAllString(name[:min(len(name), maxID)], "_"))
	id := base
	for n := 2; ids[id]; n++ {
		id = fmt.Sprintf("%s_%d", base, n)
	}
	ids[id] = true
	return id
}
