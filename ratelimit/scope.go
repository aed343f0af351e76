package ratelimit

import (
	"cmp"
	"net/http"
	"strconv"
	"strings"
)

// A Scope says which requests of one credential share a vendor's limits. The zero Scope
// says that all of them do. It is data, and must not change while it is in use.
type Scope struct {
	// Groups are the limits that the vendor gives a name. The first that has the request's
	// path is its scope.
	Groups []Group

	// Endpoints says that every other request counts as one to its endpoint: its path, in
	// which * stands for each identifier. An identifier is a segment with a digit or an at
	// sign, or one of more than 32 bytes. If false, they all share one scope.
	Endpoints bool

	// Methods says that each method of an endpoint has limits of its own.
	Methods bool

	// Keep are patterns of paths in which that does not say what an identifier is. In a
	// pattern, a segment of * is any segment, and an identifier; one of {} is any, and is
	// kept, because it tells limits apart; others are themselves, and are kept. A pattern is of the whole
	// path or of its beginning; a method and a space may precede it. Where several are of a
	// path, what one of them keeps is kept. What is kept and longer than 32 bytes may be a
	// secret, and is told apart by a hash.
	Keep []string

	// Header is a field of responses that names the limit that was charged, such as
	// X-Ratelimit-Resource: routes whose responses name the same one share it.
	Header string
}

// A Group is a limit with a name, and the patterns of the paths that are charged to it, as in
// Scope.Keep, where it does not matter what a pattern keeps.
type Group struct {
	Name  string
	Paths []string
}

// Of returns the name of the scope of a request, of at most 256 bytes: "" if it is that of
// all requests. It may be called concurrently.
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
	longestSegment = 32 // of those that are no identifiers
)

// endpoint returns the endpoint of a path, with its method if that counts.
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

// hash is FNV-1a, which every process computes alike.
func hash(s string) uint64 {
	h := uint64(14695981039346656037)
	for i := range len(s) {
		h = (h ^ uint64(s[i])) * 1099511628211
	}
	return h
}

// A segments has a bit for each of the first 64 of a path.
type segments uint64

func (s segments) has(i int) bool { return s>>i&1 == 1 }

// match reports whether a path, which has no slash before it, is one of pattern or begins
// with one, and which of its segments the pattern keeps and which it says are identifiers.
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
