package scope

import (
	"cmp"
	"net/http"
	"strings"

	"github.com/heedhttp/heed/internal/hostkey"
	"github.com/heedhttp/heed/ratelimit"
)

// AppendRoute appends the route of a request to b. A limit that one response reports is assumed to
// hold for all requests of the same route. If the host's Profile has Scopes, the route is the
// request's scope, and known is true. Otherwise it is the method and the first two segments of the
// path, with * for each identifier; then several routes may share a limit.
func (t *Table) AppendRoute(b []byte, req *http.Request, host hostkey.Name,
	profiles []*ratelimit.Profile) (route []byte, known bool) {
	if p := t.Profile(host, profiles); p != nil {
		if name := p.Scope.Of(req); name != "" {
			return append(b, name...), true
		}
	}
	b = append(b, cmp.Or(req.Method, http.MethodGet)...)
	b = append(b, ' ')
	rest := strings.TrimPrefix(req.URL.Path, "/")
	for counted := 0; counted < 2; {
		segment, after, more := strings.Cut(rest, "/")
		if counted > 0 || !isPrefix(segment) {
			counted++
		}
		b = append(b, '/')
		if isIdentifier(segment) {
			segment = "*"
		}
		b = append(b, segment[:min(len(segment), longestSegment)]...)
		if rest = after; !more {
			break
		}
	}
	return b, false
}

const longestSegment = 64

// isPrefix reports whether a segment says nothing about the request's subject: api, rest, or a
// version.
func isPrefix(segment string) bool {
	if segment == "api" || segment == "rest" {
		return true
	}
	version, _ := strings.CutPrefix(segment, "v")
	return version != "" && len(version) <= 4 && strings.Trim(version, "0123456789.") == ""
}

// isIdentifier reports whether a segment is an identifier: a number, or long with a digit.
func isIdentifier(segment string) bool {
	digits := 0
	for i := range len(segment) {
		if '0' <= segment[i] && segment[i] <= '9' {
			digits++
		}
	}
	return digits > 0 && (digits == len(segment) || len(segment) >= 16)
}

// LimitOf returns the name that a response gives to the request's limit, or "". It is in the field
// that the Profile's Scope names, or else in fields that several vendors use.
func (t *Table) LimitOf(req *http.Request, host hostkey.Name, h http.Header, profiles []*ratelimit.Profile) string {
	if p := t.Profile(host, profiles); p != nil && p.Scope.Header != "" {
		if len(h.Values(p.Scope.Header)) == 0 {
			return ""
		}
		t.Learn(req, host, h, profiles)
		return t.Of(req, host, profiles)
	}
	for _, name := range [...]string{"X-Ratelimit-Resource", "X-Ratelimit-Bucket"} {
		if values := h[name]; len(values) > 0 && isName(values[0]) {
			return strings.Clone(values[0]) // keeps the header's memory from being retained
		}
	}
	return ""
}
