package rulefile

import (
	"cmp"
	"fmt"
	"net/http"
	"net/netip"
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/heedhttp/heed/serverside"
)

var token = regexp.MustCompile("^[!#$%&'*+.^_`|~0-9A-Za-z-]+$")

// isToken reports whether text may be the name of a header field, a method or a function.
func isToken(text string) bool { return token.MatchString(text) }

func parseFieldName(text string) (string, error) {
	if !isToken(text) {
		return "", fmt.Errorf("is %s: must be the name of a header field", quote(text))
	}
	return text, nil
}

func asItIs(text string) (string, error) { return text, nil }

// prefixes reads networks.
func (w *walk) prefixes(v value) []netip.Prefix { return slices.Concat(list(w, v, parsePrefixes)...) }

// parsePrefixes reads an address, a network or "loopback".
func parsePrefixes(text string) ([]netip.Prefix, error) {
	if text == "loopback" {
		return serverside.Loopback(), nil
	}
	if addr, err := netip.ParseAddr(text); err == nil && addr.Zone() == "" {
		return []netip.Prefix{netip.PrefixFrom(addr, addr.BitLen())}, nil
	}
	p, err := netip.ParsePrefix(text)
	if err != nil {
		return nil, fmt.Errorf("is %s: must be an address or a network such as 10.0.0.0/8, 2001:db8::/32 or loopback",
			quote(text))
	}
	if p != p.Masked() {
		return nil, fmt.Errorf("is %s, which has bits after its prefix: write %v", quote(text), p.Masked())
	}
	return []netip.Prefix{p}, nil
}

func (w *walk) ipv6Bits(v value) int {
	bits := w.integer(v)
	if bits < 1 || bits > 128 {
		w.fault(v, "is %d: must be 1 to 128", bits)
	}
	return int(bits)
}

func readStyle(w *walk, v value, l *Listing) {
	l.Config.Style = 0
	for _, style := range list(w, v, oneOf(styles)) {
		l.Config.Style |= style
	}
}

// A body is a Config.Deny.
type body = func(http.ResponseWriter, *http.Request, serverside.Denial)

// readBody reads the name of a body, and the URI after it for bodies that need one.
func readBody(w *walk, v value, l *Listing) {
	text := w.text(v)
	name, uri, _ := strings.Cut(text, " ")
	l.Body, l.ProblemType = cmp.Or(name, l.Body), strings.TrimSpace(uri)
	problem, ok := problems[name]
	switch u, err := url.Parse(l.ProblemType); {
	case text == "":
	case !ok:
		l.Config.Deny = function(w, v, "body", bodies, w.env.Bodies, nil)
	case err != nil || !u.IsAbs():
		w.fault(v, "is %s without a URI: write %s https://api.example.com/problems/rate-limited", name, name)
	default:
		l.Config.Deny = problem(l.ProblemType)
	}
}

func readRules(w *walk, v value, l *Listing) {
	objects(w, v, ruleFields, func(item value, r *rule) {
		l.Config.Rules = append(l.Config.Rules, r.Rule)
		r.Name = ruleName(r.Rule)
		if r.Stage == serverside.Overload {
			r.key.text = cmp.Or(r.key.text, "everybody")
		}
		l.Rules = append(l.Rules, Listed{
			Rule: r.Rule, Key: r.key.text, Functions: w.noted(), Line: item.Line, Column: item.Column,
		})
	})
}

// ruleName returns the name of a rule in Stores and logs.
func ruleName(r serverside.Rule) string { return cmp.Or(r.Name, r.Pattern, "default") }

// readMethod adds method to the pattern.
func readMethod(w *walk, v value, r *rule) {
	text := w.text(v)
	switch {
	case text == "":
	case !isToken(text) || strings.ToUpper(text) != text:
		w.fault(v, "is %s: must be a method such as POST", quote(text))
	case strings.ContainsAny(r.Pattern, " \t"):
		w.fault(v, "must not be set: the pattern %s has a method already", quote(r.Pattern))
	default:
		r.Pattern = text + " " + cmp.Or(r.Pattern, "/")
	}
}

// readLogin makes the rule a login. The value is the account, or an object with the account.
func readLogin(w *walk, v value, r *rule) {
	r.Rule = serverside.Logins("", "", w.ip().of) // this key avoids a second fault for a wrong account
	if v.Kind == yaml.ScalarNode {
		readAccount(w, v, r)
	} else {
		object(w, v, loginFields, r)
	}
	if r.key.of == nil && !w.isBroken(v.path) {
		w.fault(v, "must have an account, as in form:user")
	}
	w.note(v, r.key.text)
}

func readAccount(w *walk, v value, r *rule) { r.key = w.keyOf(v); r.Key = r.key.of }

func readKey(w *walk, v value, r *rule) {
	if r.Login != nil {
		w.fault(v, "must not be set with login: the account is the key")
		return
	}
	r.key = w.keyOf(v)
	r.Key = r.key.of
}

func readStage(w *walk, v value, r *rule) {
	text := w.text(v)
	stage, err := oneOf(stages)(text)
	if text != "" && err != nil {
		w.fault(v, "%v", err)
		stage = serverside.Overload // accepts any status and key, so there is one fault
	}
	r.Stage = stage
}

func readTiers(w *walk, v value, r *rule) {
	objects(w, v, tierFields, func(_ value, t *serverside.Tier) { r.Tiers = append(r.Tiers, *t) })
}

// readCost reads a number or the name of a function.
func readCost(w *walk, v value, r *rule) {
	text := w.text(v)
	n, err := parseInteger(text)
	switch {
	case text == "":
	case err != nil:
		r.Cost = function(w, v, "cost function", nil, w.env.Costs, nil)
	case n < 1:
		w.fault(v, "is %d: must be at least 1; list free requests in exempt", n)
	case n > 1:
		r.Cost = func(*http.Request) int64 { return n }
		w.note(v, strconv.FormatInt(n, 10))
	}
}

// response reads the name of a kind of response.
func (w *walk) response(v value) func(serverside.Response) bool {
	no := func(serverside.Response) bool { return false }
	return function(w, v, "kind of response", responses, w.env.Responses, no)
}

// settle reads the responses that a rule charges or refunds.
func (w *walk) settle(
	v value, r *rule, settle func(func(serverside.Response) bool) func(serverside.Response) int64,
) {
	if r.Settle != nil {
		w.fault(v, "must not be set with charge_if")
	}
	r.Settle = settle(w.response(v))
}

func readPenalty(w *walk, v value, r *rule) {
	r.Penalty = new(serverside.Penalty)
	object(w, v, penaltyFields, r.Penalty)
}

func readAllow(w *walk, v value, l *Listing) {
	l.Config.Allow, l.Allow = nil, nil
	objects(w, v, allowFields, func(item value, a *allowance) {
		trusts := w.noted()
		if item.Kind == yaml.MappingNode && len(trusts) != 1 {
			w.fault(item, "must have exactly one of peers, keys and match, but has %d", len(trusts))
		}
		l.Config.Allow = append(l.Config.Allow, a.Allow)
		l.Allow = append(l.Allow, Listed{
			Rule: serverside.Rule{Name: a.Name, Policies: a.Policies}, Key: a.key.text,
			Peers: a.peers, trusts: trusts, Line: item.Line, Column: item.Column,
		})
	})
}

func readPeers(w *walk, v value, a *allowance) {
	a.peers = w.prefixes(v)
	a.Match = serverside.Peers(a.peers...)
	w.note(v, fmt.Sprint(sorted(a.peers)))
}

func readKeys(w *walk, v value, a *allowance) {
	keys := list(w, v, asItIs)
	w.note(v, fmt.Sprintf("%q", slices.Sorted(slices.Values(keys))))
	if a.Key == nil {
		w.fault(v, "must be set with key, which says what the keys are")
		a.key = w.ip()
	}
	for i, item := range w.items(v) {
		if !a.key.makes(keys[i]) {
			w.warn(item, "matches no request by %s: for a header, cookie or form, write the hash that "+
				"heed rules key prints", a.key.text)
		}
	}
	a.Match = serverside.KeyIs(a.key.of, keys...)
}

func readMatch(w *walk, v value, a *allowance) {
	no := func(*http.Request) bool { return false }
	a.Match = function(w, v, "match function", nil, w.env.Matches, no)
}
