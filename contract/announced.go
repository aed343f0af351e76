package contract

import (
	"errors"
	"fmt"
	"strings"
)

// A standing is what one field, or one group of fields, says of one policy.
// What it does not say is -1, but remaining may be negative.
type standing struct {
	field            string // RateLimit, X-RateLimit, …
	name             string // of the policy, if it has one
	limit, remaining int64
	reset            int64 // as sent: seconds, or for X-RateLimit-Reset possibly a Unix time
	next             bool  // reset is t of RateLimit: when one more unit fits
}

// epoch is the least number that is a Unix time and no delay: 2001-09-09.
const epoch = 1_000_000_000

// An announced is everything that a response says about limits.
type announced struct {
	standings []standing
	policies  map[string]bool // the names in RateLimit-Policy; nil if it names none
	any       bool            // there are such fields
	fault     error           // of those that cannot be read
}

// announces reads the fields of e's response: RateLimit and RateLimit-Policy
// of the IETF's drafts, old, new and next, and X-RateLimit.
func announces(e *Exchange) *announced {
	a := &announced{}
	quotas := a.policy(e.ResponseHeader["Ratelimit-Policy"])
	a.rateLimit(e.ResponseHeader["Ratelimit"], quotas)
	a.triple(e, &xRateLimit)
	a.triple(e, &rateLimit)
	return a
}

func (a *announced) faulty(field string, err error) {
	a.fault = errors.Join(a.fault, fmt.Errorf("%s: %w", field, err))
}

// policy reads RateLimit-Policy and returns the quota of each name. In drafts
// up to -07 a policy is an Integer, the quota itself, and has no name.
func (a *announced) policy(lines []string) map[string]int64 {
	if len(lines) == 0 {
		return nil
	}
	a.any = true
	list, err := parseList(lines)
	quotas := make(map[string]int64)
	for _, it := range list {
		if it.value.kind == 'i' {
			continue
		}
		if a.policies == nil {
			a.policies = make(map[string]bool)
		}
		a.policies[it.value.s] = true
		quotas[it.value.s] = it.params["q"].n
		err = errors.Join(err, it.isString(), it.counts("q", true, 0), it.counts("w", false, 1))
	}
	if err != nil {
		a.faulty("RateLimit-Policy", err)
	}
	return quotas
}

// rateLimit reads RateLimit, a List of policies, or in draft-07 a Dictionary.
func (a *announced) rateLimit(lines []string, quotas map[string]int64) {
	if len(lines) == 0 {
		return
	}
	if a.any = true; a.draft07(lines) {
		return
	}
	list, err := parseList(lines)
	for _, it := range list {
		err = errors.Join(err, it.isString(), it.counts("t", false, 0), it.counts("w", false, 0), it.counts("c", false, 0))
		st := standing{field: "RateLimit", name: it.value.s, limit: -1, reset: -1, next: true}
		if q, ok := quotas[st.name]; ok {
			st.limit = q
		}
		// The next draft calls r and t a and w. Of what is there twice, the stricter counts.
		available, renamed := it.params["a"]
		remaining, ok := it.params["r"]
		if ok || !renamed {
			err = errors.Join(err, it.has("r"))
			st.remaining = remaining.n
		}
		if renamed {
			err = errors.Join(err, it.has("a"))
		}
		if renamed && (!ok || available.n < remaining.n) {
			st.remaining = available.n
		}
		st.reset = max(st.reset, it.seconds("t"), it.seconds("w"))
		a.standings = append(a.standings, st)
	}
	if err != nil {
		a.faulty("RateLimit", err)
	}
}

func (a *announced) draft07(lines []string) bool {
	dict, err := parseDictionary(lines)
	if err != nil {
		return false
	}
	read := func(key string) int64 {
		v, ok := dict[key]
		if v.kind != 'i' {
			if ok || key != "reset" {
				a.faulty("RateLimit", fmt.Errorf("%s is no Integer", key))
			}
			return -1
		}
		return v.n
	}
	a.standings = append(a.standings, standing{field: "RateLimit", limit: read("limit"), remaining: read("remaining"), reset: read("reset")})
	return true
}

// A name is a field's, as people write it and as an http.Header does.
type name struct{ shown, canonical string }

// A trio is three fields of which each needs the others.
type trio struct{ limit, remaining, reset name }

var (
	rateLimit = trio{
		name{"RateLimit-Limit", "Ratelimit-Limit"},
		name{"RateLimit-Remaining", "Ratelimit-Remaining"},
		name{"RateLimit-Reset", "Ratelimit-Reset"},
	}
	xRateLimit = trio{
		name{"X-RateLimit-Limit", "X-Ratelimit-Limit"},
		name{"X-RateLimit-Remaining", "X-Ratelimit-Remaining"},
		name{"X-RateLimit-Reset", "X-Ratelimit-Reset"},
	}
)

// triple reads the fields of names.
func (a *announced) triple(e *Exchange, names *trio) {
	there := false
	read := func(n name, list, negative bool) int64 {
		lines := e.ResponseHeader[n.canonical]
		if len(lines) == 0 {
			return -1
		}
		there = true
		value, ok := number(lines, list, negative)
		if !ok {
			a.faulty(n.shown, fmt.Errorf("%q is no number", clip(strings.Join(lines, ", "))))
		}
		return value
	}
	st := standing{field: names.remaining.shown}
	st.limit, st.remaining, st.reset = read(names.limit, true, false), read(names.remaining, false, true), read(names.reset, false, false)
	if a.any = a.any || there; there {
		a.standings = append(a.standings, st)
	}
}

// number reads a field of digits. A limit may be followed by its policies, as
// in draft-03: 10, 10;w=1. A negative one is read where it is judged elsewhere.
func number(lines []string, list, negative bool) (n int64, ok bool) {
	s := lines[0]
	if list {
		s, _, _ = strings.Cut(s, ",")
	} else if len(lines) > 1 {
		return -1, false
	}
	if rest, minus := strings.CutPrefix(s, "-"); minus && negative {
		n, ok = digits(rest)
		return -n, ok
	}
	if n, ok = digits(s); !ok {
		return -1, false
	}
	return n, true
}

func (it item) isString() error {
	if it.value.kind != 's' {
		return errors.New("a policy's name is no String")
	}
	return nil
}

// has reports a missing Integer. Whether it is negative is not asked.
func (it item) has(param string) error {
	if it.params[param].kind != 'i' {
		return fmt.Errorf("%q: %s is no Integer", clip(it.value.s), param)
	}
	return nil
}

// seconds returns a parameter, or -1 without one.
func (it item) seconds(param string) int64 {
	if v, ok := it.params[param]; ok {
		return v.n
	}
	return -1
}

// counts reports a parameter that is no Integer of at least least.
func (it item) counts(param string, required bool, least int64) error {
	if _, ok := it.params[param]; !ok && !required {
		return nil
	}
	if err := it.has(param); err != nil {
		return err
	}
	if n := it.params[param].n; n < least {
		return fmt.Errorf("%q: %s is %d, less than %d", clip(it.value.s), param, n, least)
	}
	return nil
}
