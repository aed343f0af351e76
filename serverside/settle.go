package serverside

import (
	"errors"
	"net/http"
	"slices"
	"strings"

	"github.com/heedhttp/heed/quota"
)

// A Response is the response that a handler wrote for an admitted request, or the denial by a later
// stage. Functions for Rule.Settle, Penalty and Login get it.
//
// Only a response written through the ResponseWriter that the Limiter passed to the handler is
// seen. It is not seen if the handler wrote nothing and left the 200 to net/http, if a
// framework's middleware wrote to another writer, or if the client disconnected before a status
// below 400 was written. Then nothing is settled, counted as a strike or pardoned, and Audit
// gets ResponseUnseen. So a handler that relies on the implied 200 has to write it.
type Response struct {
	Request *http.Request
	Status  int         // 500 if the handler panicked before writing one
	Header  http.Header // as the handler left it
	Cost    int64       // what the request was charged
}

// Unauthorized reports whether r is 401 or 403, a failed login.
func Unauthorized(r Response) bool {
	return r.Status == http.StatusUnauthorized || r.Status == http.StatusForbidden
}

// Succeeded reports whether r is 2xx. A redirect is neither a success nor a failure.
func Succeeded(r Response) bool { return r.Status/100 == 2 }

// ChargeIf returns a Rule.Settle that charges a request only if match returns true for its response.
// This charges only failed logins:
//
//	Settle: serverside.ChargeIf(serverside.Unauthorized)
func ChargeIf(match func(Response) bool) func(Response) int64 {
	return RefundIf(func(r Response) bool { return !match(r) })
}

// RefundIf returns a Rule.Settle that refunds a request if match returns true for its response. This
// makes cached responses free:
//
//	Settle: serverside.RefundIf(serverside.FromCache)
func RefundIf(match func(Response) bool) func(Response) int64 {
	return func(r Response) int64 {
		if match(r) {
			return 0
		}
		return r.Cost
	}
}

// FromCache reports whether r came from a cache, according to Cache-Status (RFC 9211), X-Cache,
// or an Age (RFC 9111, section 5.1) of more than 0.
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

// serve passes the request to h, and settles its charges by the response.
func (c *check) serve(h http.Handler, all matched) {
	if !slices.ContainsFunc(all.matches, func(m match) bool { return m.rule.needsResponse() }) {
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

// A settlement corrects a request's charges by its response.
type settlement struct {
	*compiled
	w        http.ResponseWriter
	r        *http.Request
	progress *progress
	matches  []match
	charges  []charged
	gone     bool // the client disconnected before a success was written
}

// settlement returns the settlement of all.
func (c *check) settlement(all matched) *settlement {
	return &settlement{
		compiled: c.compiled, w: c.w, r: c.r, progress: c.progress,
		matches: slices.Clone(all.matches), charges: slices.Clone(all.charges),
	}
}

// response returns the Response as m's rule sees it.
func (s *settlement) response(m match, status int) Response {
	return Response{Request: s.r, Status: status, Header: s.w.Header(), Cost: m.cost}
}

// answered counts strikes, before the header is written. A denial by a later stage is none. A success
// written after the client has disconnected is not seen: it may come from a framework whose handler
// wrote nothing.
func (s *settlement) answered(status int) {
	if status < http.StatusBadRequest && s.r.Context().Err() != nil {
		s.gone = true
		return
	}
	if s.progress.denied.Load() {
		return
	}
	for _, m := range s.matches {
		if p := m.rule.penalty; p != nil && p.Strike != nil && p.Strike(s.response(m, status)) {
			s.strike(m)
		}
	}
}

// settle corrects the request's charges and pardons its keys.
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

// difference returns charges of n more units, or fewer, for each policy of m that was charged.
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

// pardon returns charges that clear all that m's key owes to its rule.
func (s *settlement) pardon(m match) (charges []quota.Charge) {
	for _, x := range s.charges {
		if x.policy.rule == m.rule && !x.policy.isPenalty() {
			charges = append(charges, m.charge(x.policy.limit, -maxOwed))
		}
	}
	for _, limit := range m.rule.penalty.limits() {
		charges = append(charges, m.charge(limit, -maxOwed))
	}
	return append(charges, m.rule.login.knownCharges(m)...)
}

func (m match) charge(limit *quota.Limit, n int64) quota.Charge {
	return quota.Charge{Key: m.key, Limit: limit, N: n, DryRun: m.rule.dryRun}
}

// correct settles charges before the response ends, so that a client that has the response
// finds its charges corrected. If that fails, the charges stay, to the client's disadvantage.
func (s *settlement) correct(m match, charges ...quota.Charge) {
	if len(charges) == 0 {
		return
	}
	err := s.store.settle(s.r.Context(), m, charges)
	if cut, ok := errors.AsType[*quota.DebtError](err); ok {
		e := s.about(DebtCut, m.rule, m.key)
		e.Err = cut
		s.compiled.Audit(e)
	} else if err != nil {
		s.auditFailure(m.rule, m.key, err)
	}
}
