package serverside

import (
	"net/http"
	"slices"
	"strings"

	"github.com/heedhttp/heed/quota"
)

// A Response is what a request was answered: what the handler wrote through the
// http.ResponseWriter that the Limiter gave it.
//
// If the handler wrote nothing, to have net/http write 200, if it bypassed that writer, as
// frameworks do whose middleware has a writer of its own, or if its client had gone before
// anything below 400 was written, nobody knows how the request ended. Then nothing is
// settled, no strike is counted, and nothing is pardoned. ResponseUnseen tells of it. So a
// handler that relies on the implied 200 has to write it.
type Response struct {
	Request *http.Request
	Status  int         // 500 if the handler panicked before it wrote one
	Header  http.Header // as the handler left it
	Cost    int64       // what the request was charged
}

// Unauthorized reports whether r is 401 or 403: a login that failed.
func Unauthorized(r Response) bool {
	return r.Status == http.StatusUnauthorized || r.Status == http.StatusForbidden
}

// Succeeded reports whether r is 2xx. What redirects says neither.
func Succeeded(r Response) bool { return r.Status/100 == 2 }

// ChargeIf is a Rule.Settle that charges only what is.
func ChargeIf(is func(Response) bool) func(Response) int64 {
	return RefundIf(func(r Response) bool { return !is(r) })
}

// RefundIf is a Rule.Settle that charges nothing for what is: responses from a
// cache, with FromCache.
func RefundIf(is func(Response) bool) func(Response) int64 {
	return func(r Response) int64 {
		if is(r) {
			return 0
		}
		return r.Cost
	}
}

// FromCache reports whether r says that it comes from a cache: by Cache-Status
// (RFC 9211), X-Cache, or an Age (RFC 9111, section 5.1) of more than 0.
func FromCache(r Response) bool {
	for _, line := range r.Header["Cache-Status"] {
		last := line[strings.LastIndexByte(line, ',')+1:]
		for param := range strings.SplitSeq(last, ";") {
			if strings.TrimSpace(param) == "hit" {
				return true
			}
		}
	}
	if strings.HasPrefix(strings.ToUpper(r.Header.Get("X-Cache")), "HIT") {
		return true
	}
	return strings.Trim(r.Header.Get("Age"), "0") != ""
}

// serve has h serve the request, and corrects its charges by what it is answered.
func (c *check) serve(h http.Handler, all matched) {
	if !slices.ContainsFunc(all.matches, func(m match) bool { return m.rule.follows() }) {
		h.ServeHTTP(c.w, c.r)
		return
	}
	s := c.settlement(all)
	w, seen := watch(c.w, s.answered)
	panicked := true
	defer func() {
		if panicked {
			seen.see(http.StatusInternalServerError)
		}
		s.settle(seen.status)
	}()
	h.ServeHTTP(w, c.r)
	panicked = false
}

// A settlement corrects what a request was charged by what it is answered.
type settlement struct {
	*compiled
	w       http.ResponseWriter
	r       *http.Request
	matches []match
	charges []charged
	gone    bool // the client had gone before a success was written
}

// settlement is for what is to be corrected of all.
func (c *check) settlement(all matched) *settlement {
	return &settlement{
		compiled: c.compiled, w: c.w, r: c.r,
		matches: slices.Clone(all.matches), charges: slices.Clone(all.charges),
	}
}

// response is what the request was answered, as m sees it.
func (s *settlement) response(m match, status int) Response {
	return Response{Request: s.r, Status: status, Header: s.w.Header(), Cost: m.cost}
}

// answered counts strikes, before the header is written. What is written to a client that
// has gone is not seen, but for a failure: it may be what a framework writes for a handler
// that has written nothing.
func (s *settlement) answered(status int) {
	if status < http.StatusBadRequest && s.r.Context().Err() != nil {
		s.gone = true
		return
	}
	for _, m := range s.matches {
		if p := m.rule.penalty; p != nil && p.Strike != nil && p.Strike(s.response(m, status)) {
			s.strike(m)
		}
	}
}

// settle corrects what the request was charged by what it has cost, and pardons.
func (s *settlement) settle(status int) {
	if status == 0 || s.gone {
		s.auditUnseen()
		return
	}
	for _, m := range s.matches {
		var charges []quota.Charge
		if m.rule.settle != nil {
			charges = s.difference(m, max(0, m.rule.settle(s.response(m, status)))-m.cost)
		}
		if p := m.rule.penalty; p != nil && p.Pardon != nil && p.Pardon(s.response(m, status)) {
			charges = s.pardon(m)
		}
		s.correct(m, charges...)
	}
}

// difference are n units more, or less, for each policy of m that was charged.
func (s *settlement) difference(m match, n int64) (charges []quota.Charge) {
	for _, x := range s.charges {
		if n != 0 && x.policy.rule == m.rule && !x.policy.isPenalty() && x.decision.Allowed {
			c := x.charge()
			c.N, c.At = n, x.decision.At
			charges = append(charges, c)
		}
	}
	return charges
}

// pardon is all that m's key may owe to its rule.
func (s *settlement) pardon(m match) (charges []quota.Charge) {
	for _, x := range s.charges {
		if x.policy.rule == m.rule && !x.policy.isPenalty() {
			charges = append(charges, m.charge(x.policy.limit, -everything))
		}
	}
	for _, limit := range m.rule.penalty.limits() {
		charges = append(charges, m.charge(limit, -everything))
	}
	return append(charges, m.rule.login.knowing(m)...)
}

func (m match) charge(limit *quota.Limit, n int64) quota.Charge {
	return quota.Charge{Key: m.key, Limit: limit, N: n, DryRun: m.rule.dryRun}
}

// correct settles charges. The response waits for it, so that whoever has it finds
// its charges corrected. If that fails they stay as they are, which is to the
// client's disadvantage at most.
func (s *settlement) correct(m match, charges ...quota.Charge) {
	if len(charges) == 0 {
		return
	}
	if err := s.store.settle(s.r.Context(), m, charges); err != nil {
		s.auditFailure(m.rule, m.key, err)
	}
}
