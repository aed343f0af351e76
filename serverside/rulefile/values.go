package rulefile

import (
	"fmt"
	"net/http"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/heedhttp/heed/quota"
	"github.com/heedhttp/heed/serverside"
)

func (r *reader) duration(s spot) time.Duration {
	text, ok := r.text(s)
	if !ok {
		return 0
	}
	d, err := parseWindow(text)
	if err != nil {
		r.fault(s, "%v", err)
	}
	return d
}

// texts_ returns the scalars of a list, or of one scalar.
func (r *reader) list(s spot) (texts []string) {
	for _, item := range r.items(s) {
		text, _ := r.text(item)
		texts = append(texts, text)
	}
	return texts
}

// names returns names of header fields.
func (r *reader) names(s spot) (names []string) {
	for _, item := range r.items(s) {
		name, ok := r.text(item)
		if ok && !fieldName.MatchString(name) {
			r.fault(item, "%s is no name of a header field", quote(name))
		}
		names = append(names, name)
	}
	return names
}

// prefixes returns networks.
func (r *reader) prefixes(s spot) (all []netip.Prefix) {
	for _, item := range r.items(s) {
		text, ok := r.text(item)
		if !ok {
			continue
		}
		prefixes, err := parsePrefixes(text)
		if err != nil {
			r.fault(item, "%v", err)
		}
		all = append(all, prefixes...)
	}
	return all
}

// parsePrefixes reads an address, a network or a name for several.
func parsePrefixes(text string) ([]netip.Prefix, error) {
	if text == "loopback" {
		return serverside.Loopback(), nil
	}
	if addr, err := netip.ParseAddr(text); err == nil && addr.Zone() == "" {
		return []netip.Prefix{netip.PrefixFrom(addr, addr.BitLen())}, nil
	}
	p, err := netip.ParsePrefix(text)
	if err != nil {
		return nil, fmt.Errorf("%s is neither an address nor a network: write as in 10.0.0.0/8, 2001:db8::/32 or loopback", quote(text))
	}
	if p != p.Masked() {
		return nil, fmt.Errorf("%s has bits beyond its length: write %v", quote(text), p.Masked())
	}
	return []netip.Prefix{p}, nil
}

func readIPv6Bits(r *reader, s spot, c *settings) {
	bits := r.integer(s)
	if bits < 1 || bits > 128 {
		r.fault(s, "is %d: must be 1 to 128", bits)
	}
	c.proxies.IPv6Bits = int(bits)
}

func readStyle(r *reader, s spot, c *settings) {
	c.Style = 0
	for _, item := range r.items(s) {
		c.Style |= choice(r, item, styleNames, styles)
	}
}

func readBody(r *reader, s spot, c *settings) {
	r.body = s.text
	if f, ok := r.env.Bodies[s.text]; ok {
		c.Deny = f
		return
	}
	if r.env.Lenient && fieldName.MatchString(s.text) && !slices.Contains(bodyNames, s.text) {
		return
	}
	c.Deny = choice(r, s, bodyNames, bodies)
}

func readMethod(r *reader, s spot, u *rule) {
	text, ok := r.text(s)
	if ok && (!fieldName.MatchString(text) || strings.ToUpper(text) != text) {
		r.fault(s, "%s is no method: write as in POST", quote(text))
		return
	}
	u.method = text
}

func readIf(r *reader, s spot, u *rule) {
	if s.text == "repeated" {
		u.If = serverside.Repeated
		u.say("if", s.text)
		return
	}
	var name string
	u.If, name = function(r, s, r.env.Matches, "function of requests", "repeated")
	u.say("if", name)
}

func readTiers(r *reader, s spot, u *rule) {
	if !r.wants(s, list) {
		return
	}
	for _, item := range r.items(s) {
		var t serverside.Tier
		readObject(r, item, tierFields, &t)
		u.Tiers = append(u.Tiers, t)
	}
}

func readTier(r *reader, s spot, u *rule) {
	var name string
	if u.Tier, name = function(r, s, r.env.Tiers, "function of tiers"); u.Tier == nil {
		u.Tier = func(*http.Request) string { return "" } // it is wrong, or unknown
	}
	u.say("tier", name)
}

// response reads a kind of responses.
func (r *reader) response(s spot) (is func(serverside.Response) bool, name string) {
	if i := slices.Index(responseNames, s.text); i >= 0 {
		return responses[i], s.text
	}
	if is, name = function(r, s, r.env.Responses, "kind of responses", responseNames...); is == nil {
		is = func(serverside.Response) bool { return false } // it is wrong, or unknown
	}
	return is, name
}

func readSettle(r *reader, s spot, u *rule, way string, settle func(func(serverside.Response) bool) func(serverside.Response) int64) {
	is, name := r.response(s)
	if u.Settle != nil {
		r.fault(s, "would never hold beside charge_if")
	}
	u.Settle = settle(is)
	u.say(way, name)
}

func readPenalty(r *reader, s spot, u *rule) {
	var p penalty
	readObject(r, s, penaltyFields, &p)
	u.Penalty = &p.Penalty
	u.say("strike", p.strike)
	u.say("pardon", p.pardon)
}

// readCost reads a number or the name of a function.
func readCost(r *reader, s spot, u *rule) {
	text, ok := r.text(s)
	if !ok {
		return
	}
	n, err := parseInteger(text)
	switch {
	case err != nil:
		u.Cost, text = function(r, s, r.env.Costs, "function of costs")
		u.say("cost", text)
	case n < 1:
		r.fault(s, "is %d: must be at least 1: what is not to be charged is not to be matched", n)
	case n > 1:
		u.Cost = func(*http.Request) int64 { return n }
		u.say("cost", strconv.FormatInt(n, 10))
	}
}

func readMatch(r *reader, s spot, e *entry) {
	e.Match, e.match = function(r, s, r.env.Matches, "function of requests")
	if e.Match == nil {
		e.Match = func(*http.Request) bool { return false } // it is wrong, or unknown
	}
}

func readLocation(r *reader, s spot, p *quota.Policy) {
	text, ok := r.text(s)
	if !ok {
		return
	}
	var err error
	if p.Location, err = parseLocation(text); err != nil {
		r.fault(s, "%v", err)
	}
}

// policies reads policies, each in its short form or its long one.
func (r *reader) policies(s spot) (policies []quota.Policy) {
	for _, item := range r.items(s) {
		var p quota.Policy
		if item.kind == scalar {
			p = r.shortPolicy(item)
		} else {
			readObject(r, item, policyFields, &p)
		}
		policies = append(policies, p)
	}
	return policies
}

func (r *reader) shortPolicy(s spot) quota.Policy {
	text, ok := r.text(s)
	if !ok {
		return quota.Policy{}
	}
	p, err := parsePolicy(text)
	if err != nil {
		r.fault(s, "%v", err)
	}
	return p
}
