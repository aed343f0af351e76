package ratelimit

import (
	"net/http"
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

	// Keep are patterns of paths with an identifier that tells limits apart. In a pattern, a
	// segment of * is any segment, and one of {} is any, kept as it is. A pattern is of the
	// whole path or of its beginning; a method and a space may precede it.
	Keep []string

	// Header is a field of responses that names the limit that was charged, such as
	// X-Ratelimit-Resource: routes whose responses name the same one share it.
	Header string
}

// A Group is a limit with a name, and the patterns of the paths that are charged to it, as in
// Scope.Keep.
type Group struct {
	Name  string
	Paths []string
}

// Of returns the name of the scope of a request, of at most 256 bytes: "" if it is that of
// all requests.
func (s *Scope) Of(req *http.Request) string {
	if req.URL == nil || len(s.Groups) == 0 && !s.Endpoints {
		return ""
	}
	path := req.URL.Path
	for _, g := range s.Groups {
		for _, pattern := range g.Paths {
			if _, ok := matchPath(pattern, req.Method, path); ok {
				return g.Name
			}
		}
	}
	if !s.Endpoints {
		return ""
	}
	return s.endpoint(req.Method, path)
}

const longestScope = 256

// endpoint returns the endpoint of a path, with its method if that counts.
func (s *Scope) endpoint(method, path string) string {
	kept := 0 // a bit for each segment that is kept; of a longer path, for the first 64
	for _, pattern := range s.Keep {
		if bits, ok := matchPath(pattern, method, path); ok {
			kept |= bits
		}
	}
	var b strings.Builder
	if s.Methods {
		b.WriteString(method)
		b.WriteByte(' ')
	}
	segment, i := "", 0
	for rest, more := strings.TrimPrefix(path, "/"), true; more && b.Len() < longestScope; i++ {
		segment, rest, more = strings.Cut(rest, "/")
		if isIdentifier(segment) && kept>>i&1 == 0 {
			segment = "*"
		}
		b.WriteByte('/')
		b.WriteString(segment)
	}
	return b.String()[:min(b.Len(), longestScope)]
}

func isIdentifier(segment string) bool {
	return len(segment) > 32 || strings.ContainsAny(segment, "0123456789@")
}

// matchPath reports whether a path is one of pattern, or begins with one, and which of its
// segments the pattern keeps.
func matchPath(pattern, method, path string) (kept int, ok bool) {
	if of, rest, found := strings.Cut(pattern, " "); found {
		if of != method {
			return 0, false
		}
		pattern = rest
	}
	pattern, path = strings.TrimPrefix(pattern, "/"), strings.TrimPrefix(path, "/")
	for i, more, left := 0, true, true; more; i++ {
		var want, got string
		if !left {
			return 0, false
		}
		want, pattern, more = strings.Cut(pattern, "/")
		got, path, left = strings.Cut(path, "/")
		switch want {
		case "*":
		case "{}":
			kept |= 1 << i
		default:
			if want != got {
				return 0, false
			}
		}
	}
	return kept, true
}
