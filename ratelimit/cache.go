package ratelimit

import (
	"net/http"
	"strings"
)

// FromCache reports whether h belongs to a response from a cache. The limits in such a
// response were announced to another request. It looks for "hit" in Cache-Status (RFC
// 9211, section 2.1), an Age above 0 (RFC 9111, section 5.1), and the non-standard
// X-Cache and X-From-Cache.
func FromCache(h http.Header) bool {
	for _, line := range h["Cache-Status"] {
		for member := range strings.SplitSeq(line, ",") {
			_, params, _ := strings.Cut(member, ";") // after the name of the cache
			for param := range strings.SplitSeq(params, ";") {
				if strings.TrimSpace(param) == "hit" {
					return true
				}
			}
		}
	}
	from := first(h["X-From-Cache"])
	return strings.Trim(first(h["Age"]), "0 ") != "" ||
		strings.HasPrefix(strings.ToUpper(first(h["X-Cache"])), "HIT") ||
		from != "" && from != "0"
}
