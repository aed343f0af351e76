package contract

import (
	"cmp"
	"fmt"
	"strings"
)

const draft = "draft-ietf-httpapi-ratelimit-headers-11"

// Server returns the clauses for servers. Use all of them, or pick single ones:
//
//	err := contract.Check(srv.Log(), contract.Server()...)
func Server() []Clause {
	return []Clause{
		{
			ID: "server/retry-after", Level: Must, Ref: "RFC 9110 section 10.2.3; RFC 6585 section 4",
			Text: "A 429 has exactly one Retry-After, of at least one second or with a future date, unless it says that " +
				"the request will never be admitted.",
			Check: retryAfterGiven,
		},
		{
			ID: "server/obeyed", Level: Must, Ref: "heed: counting is exact",
			Text: "A request that returns when a 429 told it to is admitted, unless another request of the same key was " +
				"admitted in between.",
			Check: obeyed,
		},
		{
			ID: "server/fields", Level: Should, Ref: draft + " section 3; heed: ratelimit.Set",
			Text:  "Every response of a limited resource has rate-limit fields, not only refusals.",
			Check: hasFields,
		},
		{
			ID: "server/fields-valid", Level: Must, Ref: draft + " sections 3 and 4; RFC 9651",
			Text:  "Rate-limit fields are well-formed.",
			Check: each(announcing, fieldFault),
		},
		{
			ID: "server/remaining", Level: Must, Ref: draft + " section 4.1.1",
			Text:  "The remaining quota is never negative, and never more than the limit.",
			Check: each(announcing, remainingFault),
		},
		{
			ID: "server/fields-agree", Level: Must, Ref: draft + " sections 4 and 6; heed: one decision, one set of numbers",
			Text:  "All rate-limit fields of a response, old and new, agree.",
			Check: each(announcing, disagreement),
		},
		{
			ID: "server/denial-agrees", Level: Must, Ref: draft + " sections 5 and 6; RFC 9457 section 3.1.2",
			Text: "Retry-After is not shorter than the time that an exhausted quota announces, and the body agrees with " +
				"the header.",
			Check: each(denies, denialFault),
		},
		{
			ID: "server/used-up", Level: Must, Ref: draft + " section 4.1.1; heed: one decision, one set of numbers",
			Text:  "A 429 to a request that costs one unit announces a policy with nothing left.",
			Check: usedUp,
		},
		{
			ID: "server/problem", Level: Must, Ref: "RFC 9457 section 3",
			Text:  "A body sent as application/problem+json is a problem document with the response's own status.",
			Check: each(explains, problemFault),
		},
		{
			ID: "server/explained", Level: Should, Ref: "RFC 6585 section 4; RFC 9457",
			Text:  "A 429 has a problem document that explains it.",
			Check: each(denies, unexplained),
		},
		{
			ID: "server/no-store", Level: Should, Ref: "RFC 6585 section 4; RFC 9111 section 5.2.2.5",
			Text:  "A 429 has Cache-Control: no-store.",
			Check: each(denies, cacheable),
		},
	}
}

func denies(e *Exchange) bool     { return e.Status == 429 }
func announcing(e *Exchange) bool { return announces(e).any }
func explains(e *Exchange) bool   { return e.isProblem() && !e.hasNoBody() && !e.truncated() }

// each makes a Check for what one response shows: applies selects the exchanges, and fault says
// what is wrong with one.
func each(applies func(*Exchange) bool, fault func(*Exchange) error) func([]Exchange) ([]Breach, bool) {
	return func(log []Exchange) ([]Breach, bool) {
		var f collector
		for i := range log {
			if !applies(&log[i]) {
				continue
			}
			f.judged++
			if err := fault(&log[i]); err != nil {
				f.breach("a response that keeps the clause", strings.ReplaceAll(err.Error(), "\n", "; "), i)
			}
		}
		return f.result()
	}
}

func retryAfterGiven(log []Exchange) ([]Breach, bool) {
	var f collector
	for i := range log {
		e := &log[i]
		values := e.ResponseHeader.Values("Retry-After")
		if !denies(e) || len(values) == 0 && neverAdmitted(e) {
			continue
		}
		f.judged++
		if h, ok := retryAfter(i, e); !ok || h.wait <= 0 {
			f.breach("one Retry-After of at least 1, or a future date",
				fmt.Sprintf("%d: %q", len(values), clip(strings.Join(values, ", "))), i)
		}
	}
	return f.result()
}

// hasFields treats a resource as limited if any of its responses says so.
func hasFields(log []Exchange) ([]Breach, bool) {
	limited := make(map[callKey]bool)
	for i := range log {
		if e := &log[i]; denies(e) || announcing(e) {
			limited[callKeyOf(e)] = true
		}
	}
	var f collector
	for i := range log {
		e := &log[i]
		if e.Status < 200 || e.Status == 503 || !limited[callKeyOf(e)] {
			continue // with a 503 the limiter itself may have failed
		}
		f.judged++
		if !announcing(e) {
			f.breach("RateLimit or X-RateLimit fields", "none", i)
		}
	}
	return f.result()
}

func fieldFault(e *Exchange) error { return announces(e).fault }

func remainingFault(e *Exchange) error {
	for _, st := range announces(e).limits {
		switch {
		case st.remaining < -1 || st.remaining == -1 && wasSent(e, st):
			return fmt.Errorf("%v: %d remaining", st, st.remaining)
		case st.limit >= 0 && st.remaining > st.limit:
			return fmt.Errorf("%v: %d remaining of %d", st, st.remaining, st.limit)
		}
	}
	return nil
}

// wasSent reports whether the -1 in st was sent; otherwise it stands for a missing field.
func wasSent(e *Exchange, st limitState) bool {
	return st.nextUnit || e.ResponseHeader.Get(st.field) != ""
}

// disagreement compares the fields of one response. A field without a policy's name must agree with
// one that has a name.
func disagreement(e *Exchange) error {
	a := announces(e)
	var named []limitState
	for _, st := range a.limits {
		if st.nextUnit {
			named = append(named, st)
		}
		if st.nextUnit && a.policies != nil && !a.policies[st.name] {
			return fmt.Errorf("RateLimit of %q, which RateLimit-Policy does not name", clip(st.name))
		}
	}
	for _, st := range a.limits {
		if !st.nextUnit && len(named) > 0 && !matches(e, st, named) {
			return fmt.Errorf("%v: %s, where RateLimit is %q", st, st.numbers(),
				clip(strings.Join(e.ResponseHeader.Values("RateLimit"), ", ")))
		}
	}
	return nil
}

func matches(e *Exchange, st limitState, named []limitState) bool {
	for _, n := range named {
		limits := st.limit < 0 || n.limit < 0 || st.limit == n.limit
		remains := st.remaining < 0 || st.remaining == n.remaining
		if limits && remains && !resetsBefore(e, st, n) {
			return true
		}
	}
	return false
}

// resetsBefore reports whether st says that the whole quota is back before n says that one unit is.
// It allows a second for clocks that differ.
func resetsBefore(e *Exchange, st, n limitState) bool {
	if st.reset < 0 || n.reset < 0 {
		return false
	}
	if st.reset < epoch {
		return st.reset < n.reset
	}
	return st.reset < e.Arrived.Unix()+n.reset-1
}

func denialFault(e *Exchange) error {
	h, ok := retryAfter(0, e)
	seconds := h.wait.Seconds()
	a := announces(e)
	for _, st := range a.limits {
		if ok && st.nextUnit && st.remaining == 0 && float64(st.reset) > seconds+margin(h) {
			return fmt.Errorf("Retry-After of %v s, but %q is exhausted for %d s", seconds, clip(st.name), st.reset)
		}
	}
	waits := bodyWaits(e)
	for _, m := range retryMembers {
		if wait, says := waits[m.name]; says && ok && !h.date && !roundsUpTo(wait, seconds) {
			return fmt.Errorf("Retry-After of %v s, but %s of %v s", seconds, m.name, wait)
		}
	}
	for _, name := range violated(e) {
		if a.policies != nil && !a.policies[name] {
			return fmt.Errorf("violated-policies with %q, which RateLimit-Policy does not name", clip(name))
		}
	}
	return nil
}

// margin is the resolution of dates: a second.
func margin(h hint) float64 {
	if h.date {
		return 1
	}
	return 0
}

func unexplained(e *Exchange) error {
	if e.isProblem() || e.Method == "HEAD" {
		return nil
	}
	return fmt.Errorf("Content-Type %q", clip(cmp.Or(e.ResponseHeader.Get("Content-Type"), "(none)")))
}

func cacheable(e *Exchange) error {
	for directive := range strings.SplitSeq(strings.Join(e.ResponseHeader.Values("Cache-Control"), ","), ",") {
		if strings.EqualFold(strings.TrimSpace(directive), "no-store") {
			return nil
		}
	}
	return fmt.Errorf("Cache-Control %q", clip(e.ResponseHeader.Get("Cache-Control")))
}
