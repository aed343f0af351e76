package ratelimit

import (
	"net/http"
	"slices"
	"strings"
)

// A Repeat says which failed requests the vendor's own client sends again by default, although their method is
// not idempotent. The vendor thereby declares that this is safe.
type Repeat struct {
	Paths  []string // patterns of whole paths, with a method, as in Scope.Keep
	Status []int    // statuses that are repeated
	From   int      // and all from this one on, if it is not 0
	Errors bool     // and requests that got no response
	Unless []string // not if the JSON body has one of these top-level members, unless it is false or null: "store"
	Source string   // the file and lines of the vendor's client
}

// Repeatable reports whether the vendor's own client sends req again after a response with this status, or
// after an error if status is 0. If a Repeat has Unless, it reads a copy of the body from GetBody, at most
// 32 MiB; without GetBody, the answer is no.
func (p *Profile) Repeatable(req *http.Request, status int) bool {
	return slices.ContainsFunc(p.Repeats, func(r Repeat) bool {
		if status == 0 && !r.Errors ||
			status != 0 && !slices.Contains(r.Status, status) && (r.From == 0 || status < r.From) {
			return false
		}
		return r.covers(req) && r.harmless(req)
	})
}

func (r *Repeat) covers(req *http.Request) bool {
	return req.URL != nil && slices.ContainsFunc(r.Paths, func(pattern string) bool {
		return matchesAll(pattern, req.Method, req.URL.EscapedPath())
	})
}

// harmless reports whether the body has none of the members of Unless.
func (r *Repeat) harmless(req *http.Request) bool {
	if len(r.Unless) == 0 {
		return true
	}
	body := bodyOf(req)
	if body == nil {
		return false
	}
	defer body.Close()
	harmless := true
	known := members(body, mostRepeat, func(name, text []byte) bool {
		harmless = !slices.Contains(r.Unless, string(name)) || string(text) == "false" || string(text) == "null"
		harmless = harmless && !slices.Contains(name, '\\') // it may be another spelling of one of them
		return harmless
	})
	return known && harmless
}

// matchesAll reports whether pattern matches the whole path.
func matchesAll(pattern, method, path string) bool {
	path = strings.TrimPrefix(path, "/")
	_, where, found := strings.Cut(pattern, " ")
	if !found {
		where = pattern
	}
	_, _, ok := match(pattern, method, path)
	return ok && strings.Count(strings.TrimPrefix(where, "/"), "/") == strings.Count(path, "/")
}
