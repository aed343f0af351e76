package contract

import (
	"errors"
	"fmt"
	"strings"
)

// A limitState is what one field, or one group of fields, says about one policy. Numbers that it
// does not say are -1; remaining may also be negative itself.
type limitState struct {
	field            string // RateLimit, X-RateLimit, …
	name             string // of the policy, if it has one
	limit, remaining int64
	reset            int64 // as sent: seconds, or for X-RateLimit-Reset possibly a Unix time
	nextUnit         bool  // reset is t of RateLimit: when the next unit is available
}

// String names the field, and its policy if the field has names.
func (st limitState) String() string {
	if !st.nextUnit {
		return st.field
	}
	return fmt.Sprintf("%s %q", st.field, clip(st.name))
}

// numbers lists what st says.
func (st limitState) numbers() string {
	var said []string
	for _, n := range []struct {
		value  int64
		format string
	}{{st.remaining, "%d remaining"}, {st.limit, "limit %d"}, {st.reset, "reset %d"}} {
		if n.value >= 0 {
			said = append(said, fmt.Sprintf(n.format, n.value))
		}
	}
	return strings.Join(said, ", ")
}

// epoch is the smallest number that is read as a Unix time rather than a delay: 2001-09-09.
const epoch = 1_000_000_000

// An announcement is everything that a response says about limits.
type announcement struct {
	limits   []limitState
	policies map[string]bool // the names in RateLimit-Policy; nil if it names none
	any      bool            // there are rate-limit fields
	fault    error           // malformed fields
}

// announces reads the rate-limit fields of e's response: RateLimit and RateLimit-Policy in all
// drafts of the IETF, and X-RateLimit.
func announces(e *Exchange) *announcement {
	a := &announcement{}
	quotas := a.policy(e.ResponseHeader["Ratelimit-Policy"])
	a.rateLimit(e.ResponseHeader["Ratelimit"], quotas)
	a.readTriple(e, &xRateLimit)
	a.readTriple(e, &rateLimit)
	return a
}

func (a *announcement) addFault(field string, err error) {
	a.fault = errors.Join(a.fault, fmt.Errorf("%s: %w", field, err))
}

// policy reads RateLimit-Policy and returns each policy's quota. In drafts up to -07 a policy is an
// Integer, the quota itself, and has no name.
func (a *announcement) policy(lines []string) map[string]int64 {
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
		err = errors.Join(err, it.isString(), it.checkInteger("q", true, 0), it.checkInteger("w", false, 1))
	}
	if err != nil {
		a.addFault("RateLimit-Policy", err)
	}
	return quotas
}

// rateLimit reads RateLimit: a List of policies, or in draft-07 a Dictionary.
func (a *announcement) rateLimit(lines []string, quotas map[string]int64) {
	if len(lines) == 0 {
		return
	}
	if a.any = true; a.draft07(lines) {
		return
	}
	list, err := parseList(lines)
	for _, it := range list {
		err = errors.Join(err, it.isString(), it.checkInteger("t", false, 0), it.checkInteger("w", false, 0),
			it.checkInteger("c", false, 0))
		st := limitState{field: "RateLimit", name: it.value.s, limit: -1, reset: -1, nextUnit: true}
		if q, ok := quotas[st.name]; ok {
			st.limit = q
		}
		// The next draft renames r and t to a and w. If both are there, the stricter one counts.
		available, renamed := it.params["a"]
		remaining, ok := it.params["r"]
		if ok || !renamed {
			err = errors.Join(err, it.checkPresent("r"))
			st.remaining = remaining.n
		}
		if renamed {
			err = errors.Join(err, it.checkPresent("a"))
		}
		if renamed && (!ok || available.n < remaining.n) {
			st.remaining = available.n
		}
		st.reset = max(st.reset, it.seconds("t"), it.seconds("w"))
		a.limits = append(a.limits, st)
	}
	if err != nil {
		a.addFault("RateLimit", err)
	}
}

func (a *announcement) draft07(lines []string) bool {
	dict, err := parseDictionary(lines)
	if err != nil {
		return false
	}
	read := func(key string) int64 {
		v, ok := dict[key]
		if v.kind != 'i' {
			if ok || key != "reset" {
				a.addFault("RateLimit", fmt.Errorf("%s is not an Integer", key))
			}
			return -1
		}
		return v.n
	}
	a.limits = append(a.limits,
		limitState{field: "RateLimit", limit: read("limit"), remaining: read("remaining"), reset: read("reset")})
	return true
}

// A fieldName is a field's name as people write it, and in the form of http.Header.
type fieldName struct{ shown, canonical string }

// A fieldTriple is three fields that belong together.
type fieldTriple struct{ limit, remaining, reset fieldName }

var (
	rateLimit = fieldTriple{
		fieldName{"RateLimit-Limit", "Ratelimit-Limit"},
		fieldName{"RateLimit-Remaining", "Ratelimit-Remaining"},
		fieldName{"RateLimit-Reset", "Ratelimit-Reset"},
	}
	xRateLimit = fieldTriple{
		fieldName{"X-RateLimit-Limit", "X-Ratelimit-Limit"},
		fieldName{"X-RateLimit-Remaining", "X-Ratelimit-Remaining"},
		fieldName{"X-RateLimit-Reset", "X-Ratelimit-Reset"},
	}
)

// readTriple reads the three fields.
func (a *announcement) readTriple(e *Exchange, names *fieldTriple) {
	there := false
	read := func(n fieldName, list, negative bool) int64 {
		lines := e.ResponseHeader[n.canonical]
		if len(lines) == 0 {
			return -1
		}
		there = true
		value, ok := number(lines, list, negative)
		if !ok {
			a.addFault(n.shown, fmt.Errorf("%q is not a number", clip(strings.Join(lines, ", "))))
		}
		return value
	}
	st := limitState{field: names.remaining.shown}
	st.limit, st.remaining, st.reset = read(names.limit, true, false), read(names.remaining, false, true),
		read(names.reset, false, false)
	if a.any = a.any || there; there {
		a.limits = append(a.limits, st)
	}
}

// number reads a field of digits. A limit may be followed by its policies, as in draft-03: 10,
// 10;w=1. negative says whether the number may be negative.
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
		return errors.New("a policy's name is not a String")
	}
	return nil
}

// checkPresent returns an error if the parameter is not an Integer. It may be negative.
func (it item) checkPresent(param string) error {
	if it.params[param].kind != 'i' {
		return fmt.Errorf("%q: %s is not an Integer", clip(it.value.s), param)
	}
	return nil
}

// seconds returns a parameter, or -1 if it is missing.
func (it item) seconds(param string) int64 {
	if v, ok := it.params[param]; ok {
		return v.n
	}
	return -1
}

// checkInteger returns an error if the parameter is not an Integer or less than least.
func (it item) checkInteger(param string, required bool, least int64) error {
	if _, ok := it.params[param]; !ok && !required {
		return nil
	}
	if err := it.checkPresent(param); err != nil {
		return err
	}
	if n := it.params[param].n; n < least {
		return fmt.Errorf("%q: %s is %d, less than %d", clip(it.value.s), param, n, least)
	}
	return nil
}
