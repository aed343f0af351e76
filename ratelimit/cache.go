package ratelimit

import (
	"net/http"
	"strings"
)

// FromCache reports whether h is of a response that says that it comes from a cache: by
// Cache-Status (RFC 9211 section 2.1) with "hit", an Age (RFC 9111 section 5.1) of more
// than 0, or X-Cache or X-From-Cache, which caches without a standard write. What such a
// response tells of limits was told to another request.
func FromCache(h http.Header) bool {
	for _, line := range h["Cache-Status"] {
		for member := range strings.SplitSeq(line, ",") {
			_, params, _ := strings.Cut(member, ";") // behind the name of the cache
			for param := range strings.SplitSeq(params, ";") {
				if strings.TrimSpace(param) == "hit" {
					return true
				}
			}
		}
	}
	from := first(h["X-From-Cache"])
	return strings.Trim(first(h["Age"]), "0 ") != "" || strings.HasPrefix(strings.ToUpper(first(h["X-Cache"])), "HIT") ||
		from != "" && from != "0"
}
