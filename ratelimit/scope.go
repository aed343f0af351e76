package ratelimit

import (
	"cmp"
	"net/http"
	"strconv"
	"strings"
)

// A Scope says which requests of one credential share a limit. In the zero Scope all of
// them do.
//
//	ratelimit.Scope{Endpoints: true, Methods: true} // each method of each endpoint has its own limit
//
// A Scope is data; do not change it while it is in use.
type Scope struct {
	// Groups are the limits that the vendor names. A request belongs to the first Group
	// that matches its path.
	Groups []Group

	// Endpoints gives each endpoint its own scope, for requests outside of Groups. An
	// endpoint is a path with * for each identifier: a segment that has a digit or an at
	// sign, or more than 32 bytes. If false, these requests share one scope.
	Endpoints bool

	// Methods gives each method of an endpoint its own scope.
	Methods bool

	// Keep are patterns for paths where that rule about identifiers is wrong. A pattern
	// matches a whole path or its beginning, and may start with a method and a space. In
	// it * matches any segment and makes it an identifier, {} matches any segment and
	// keeps it, and any other segment matches itself and is kept. If several patterns
	// match, a segment that one of them keeps is kept. A kept segment of more than 32
	// bytes may be a secret and is replaced by a hash.
	Keep []string

	// Header is a response field that names the limit, such as X-Ratelimit-Resource.
	// Routes whose responses name the same limit share it.
	Header string
}

// A Group is a named limit and the path patterns that it covers, written as in
// Scope.Keep.
type Group struct {
	Name  string
	Paths []string
}

// Of returns the name of the request's scope: at most 256 bytes, and "" for the one that
// all requests share. It may be called concurrently.
func (s *Scope) Of(req *http.Request) string {
	if req.URL == nil || len(s.Groups) == 0 && !s.Endpoints {
		return ""
	}
	method, path := cmp.Or(req.Method, http.MethodGet), strings.TrimPrefix(req.URL.Path, "/")
	for i := range s.Groups {
		for _, pattern := range s.Groups[i].Paths {
			if _, _, ok := match(pattern, method, path); ok {
				return s.Groups[i].Name
			}
		}
	}
	if !s.Endpoints {
		return ""
	}
	return s.endpoint(method, path)
}

const (
	longestScope   = 256
	longestSegment = 32 // longer ones are identifiers
)

// endpoint returns the endpoint of a path, with the method if Methods is set.
func (s *Scope) endpoint(method, path string) string {
	var kept, identifiers segments
	for _, pattern := range s.Keep {
		if keeps, hides, ok := match(pattern, method, path); ok {
			kept, identifiers = kept|keeps, identifiers|hides
		}
	}
	var space [2 * longestScope]byte
	b := space[:0]
	if s.Methods {
		b = append(append(b, method[:min(len(method), longestScope)]...), ' ')
	}
	for i, more := 0, true; more && len(b) < longestScope; i++ {
		var segment string
		segment, path, more = strings.Cut(path, "/")
		b = append(b, '/')
		switch {
		case kept.has(i) && len(segment) > longestSegment:
			b = strconv.AppendUint(append(b, '#'), hash(segment), 16)
		case kept.has(i):
			b = append(b, segment...)
		case identifiers.has(i) || isIdentifier(segment):
			b = append(b, '*')
		default:
			b = append(b, segment...)
		}
	}
	return string(b[:min(len(b), longestScope)])
}

func isIdentifier(segment string) bool {
	return len(segment) > longestSegment || strings.ContainsAny(segment, "0123456789@")
}

// hash is FNV-1a, which is the same in every process.
func hash(s string) uint64 {
	h := uint64(14695981039346656037)
	for i := range len(s) {
		h = (h ^ uint64(s[i])) * 1099511628211
	}
	return h
}

// A segments has a bit for each of the first 64 segments of a path.
type segments uint64

func (s segments) has(i int) bool { return s>>i&1 == 1 }

// match reports whether path, which has no leading slash, matches pattern, and which
// segments the pattern keeps and which it makes identifiers.
func match(pattern, method, path string) (keeps, hides segments, ok bool) {
	if of, rest, found := strings.Cut(pattern, " "); found {
		if of != method {
			return 0, 0, false
		}
		pattern = rest
	}
	pattern = strings.TrimPrefix(pattern, "/")
	for i, more, left := 0, true, true; more; i++ {
		var want, got string
		if !left {
			return 0, 0, false
		}
		want, pattern, more = strings.Cut(pattern, "/")
		got, path, left = strings.Cut(path, "/")
		switch want {
		case "*":
			hides |= 1 << i
		case "{}":
			keeps |= 1 << i
		case got:
			keeps |= 1 << i
		default:
			return 0, 0, false
		}
	}
	return keeps, hides, true
}
