package export

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/heedhttp/heed/quota"
	"github.com/heedhttp/heed/serverside"
	"github.com/heedhttp/heed/serverside/rulefile"
)

// A guard is a rule that a gateway can keep: it counts requests by address.
type guard struct {
	rulefile.Listed
	id      string // of letters, digits and "_"
	pattern pattern
	limits  []limit
}

// A limit is a policy of a guard, with all defaults.
type limit struct {
	quota.Policy
	id string // as a guard's, among all limits
}

// String is the limit for people.
func (l limit) String() string {
	if l.Calendar != 0 {
		return fmt.Sprintf("%d in each %v", l.Quota, l.Calendar)
	}
	text := fmt.Sprintf("%d in %s", l.Quota, brief(l.Window))
	if l.Burst != l.Quota {
		text += fmt.Sprintf(", %d at once", l.Burst)
	}
	return text
}

// brief is d without its zeros: 1m, 24h, 1h30m.
func brief(d time.Duration) string {
	s := d.String()
	if strings.HasSuffix(s, "m0s") {
		s = strings.TrimSuffix(s, "0s")
	}
	if strings.HasSuffix(s, "h0m") {
		s = strings.TrimSuffix(s, "0m")
	}
	return s
}

// guards are the rules that gateways can keep. The others are gaps.
func (e *exporter) guards() (all []guard) {
	var ids identifiers
	for i := range e.Rules {
		r := &e.Rules[i]
		if reason := notByAddress(r); reason != "" {
			e.gap(r, "%s: it is left to the application", reason)
			continue
		}
		if newPattern(r.Rule.Pattern).isLong() {
			e.gap(r, "its pattern is too long for a gateway: it is left to the application")
			continue
		}
		g := guard{Listed: *r, id: ids.of(r.Rule.Name), pattern: newPattern(r.Rule.Pattern)}
		for _, p := range r.Rule.Policies {
			if l, ok := e.limit(r, p); ok {
				l.id = g.id
				if len(r.Rule.Policies) > 1 {
					l.id = ids.of(g.id + "_" + brief(l.Window))
				}
				g.limits = append(g.limits, l)
			}
		}
		if len(g.limits) > 0 {
			e.notKept(r)
			all = append(all, g)
		}
	}
	return all
}

// notByAddress says why a rule is not for a gateway; "" if it is.
func notByAddress(r *rulefile.Listed) string {
	has := func(what string) bool {
		return slices.ContainsFunc(r.Functions, func(f string) bool { return strings.HasPrefix(f, what+" ") })
	}
	key := unnamed(r.Key)
	switch {
	case r.Rule.Stage == serverside.Overload:
		return "it guards the server as a whole, after all other rules have admitted"
	case key == "peer":
		return "it counts by peer, and behind a gateway that is the gateway"
	case key != "ip":
		return "it counts by " + quoted(r.Key) + ", which the application knows"
	case r.Rule.DryRun:
		return "it is a dry run"
	case has("if"):
		return "a function says whether it applies"
	case len(r.Rule.Tiers) > 0 || has("tier"):
		return "it depends on the client's tier"
	case has("limits"):
		return "clients have limits of their own"
	case r.Rule.Settle != nil:
		return "it counts by response"
	case len(r.Rule.Policies) == 0:
		return "it limits what is in flight"
	}
	return ""
}

// unnamed is a key without the name spaces it is in: those are for the store.
func unnamed(key string) string {
	for {
		rest, named := strings.CutPrefix(key, "named(")
		if !named {
			return key
		}
		_, key, _ = strings.Cut(rest, ", ")
		key = strings.TrimSuffix(key, ")")
	}
}

// notKept are the gaps of a rule that is kept in part.
func (e *exporter) notKept(r *rulefile.Listed) {
	for _, f := range r.Functions {
		if cost, ok := strings.CutPrefix(f, "cost "); ok {
			e.gap(r, "a request costs %s there, and one here", cost)
		}
	}
	if r.Rule.MaxInFlight > 0 {
		e.gap(r, "how many are in flight at once is left to the application")
	}
	if r.Rule.Penalty != nil {
		e.gap(r, "the penalty is left to the application")
	}
}

// most is the largest number that is exported: below 2^53, for all that reads it.
const most = 1 << 50

// limit is p as gateways are to keep it.
func (e *exporter) limit(r *rulefile.Listed, p quota.Policy) (limit, bool) {
	compiled, err := p.Compile()
	if err != nil { // which List would have told
		e.gap(r, "%v", err)
		return limit{}, false
	}
	p = compiled.Policy()
	switch {
	case p.Calendar != 0:
		e.gap(r, "%d in each %v of the calendar are left to the application", p.Quota, p.Calendar)
		return limit{}, false
	case max(p.Quota, p.Burst) > most/e.Times:
		e.gap(r, "%d times %d is too large", e.Times, max(p.Quota, p.Burst))
		return limit{}, false
	}
	p.Quota *= e.Times
	p.Burst *= e.Times
	return limit{Policy: p}, true
}

// allowed are the addresses of the allow-list. Other entries, and the limits of
// all, are gaps.
func (e *exporter) allowed() (peers []netip.Prefix) {
	for i := range e.Allow {
		a := &e.Allow[i]
		of := "allowance " + quoted(a.Rule.Name)
		if len(a.Peers) == 0 {
			e.gapOf(of, a.Line, a.Column, "only the application knows who that is: the others' limits hold here")
			continue
		}
		e.gapOf(of, a.Line, a.Column, "its own limit is left to the application: here there is none")
		peers = append(peers, a.Peers...)
	}
	return peers
}

// exempt are the patterns that are never limited.
func (e *exporter) exempt() (patterns []pattern) {
	for _, text := range e.Config.Exempt {
		p := newPattern(text)
		if p.isLong() {
			e.gapOf("exempt", 1, 1, "a pattern is too long for a gateway: there it is limited")
			continue
		}
		patterns = append(patterns, p)
	}
	return patterns
}

// ipv6Bits is how much of an IPv6 address tells clients apart.
func (e *exporter) ipv6Bits() int { return cmp.Or(e.Proxies.IPv6Bits, 64) }

// proxyField is the field in which a gateway reads who the client is. It reads only
// one. Names of fields need no quotes but for a few characters: such are left out.
func proxyField(e *exporter, gateway string) string {
	fields := e.Proxies.Fields
	if len(fields) == 0 {
		return "X-Forwarded-For"
	}
	i := slices.IndexFunc(fields, func(f string) bool {
		return !strings.EqualFold(f, "Forwarded") && strings.Trim(strings.ToLower(f), "abcdefghijklmnopqrstuvwxyz0123456789-_") == ""
	})
	field := "X-Forwarded-For"
	if i >= 0 {
		field = fields[i]
	}
	if len(fields) > 1 || field != fields[0] {
		e.gapOf("proxy_fields", 1, 1, "%s reads one field, and not Forwarded: it is %s here", gateway, field)
	}
	return field
}

// layering says how the guard of a gateway and the rules of the application go
// together.
func (e *exporter) layering(of, use string) []string {
	lines := append([]string{"A guard against floods, for " + of + ", made of " + e.source() + " by heed rules export."},
		strings.Split(use, "\n")...)
	lines = append(lines, "",
		"It is coarse: it counts each address, in this gateway alone, and tells clients no",
		"more than when to come back. The application keeps the rules; those by tenant, user",
		"or key are its alone.")
	if e.Times > 1 {
		return append(lines, fmt.Sprintf("The numbers are %d times those of the rules.", e.Times))
	}
	return append(lines,
		"The numbers are those of the rules. Where the application limits the same addresses,",
		"export with -times 5, so that in ordinary use it decides, and not the guard.")
}

// longestID is how much of a name is in an identifier: with a number and what stands
// before it, a variable's name must fit into nginx' hash of them.
const longestID = 32

// identifiers are names made of names: each is given once.
type identifiers map[string]bool

// of is an identifier that is like name, or like the one before with a number.
func (ids *identifiers) of(name string) string {
	plain := strings.Map(func(c rune) rune {
		switch {
		case 'a' <= c && c <= 'z', '0' <= c && c <= '9':
			return c
		case 'A' <= c && c <= 'Z':
			return c + 'a' - 'A'
		default:
			return '_'
		}
	}, name[:min(len(name), longestID)])
	if *ids == nil {
		*ids = make(identifiers)
	}
	id := plain
	for n := 2; (*ids)[id]; n++ {
		id = fmt.Sprintf("%s_%d", plain, n)
	}
	(*ids)[id] = true
	return id
}

func comparePrefixes(a, b netip.Prefix) int { return cmp.Compare(a.String(), b.String()) }
