package ratelimit

import (
	"cmp"
	"net/http"
	"net/url"
	"slices"
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

// A Group is a named limit, or several with a common name, and the path patterns that it covers,
// written as in Scope.Keep.
//
//	{Name: "deployment", Paths: []string{"/openai/deployments/{}"}} // each deployment has a limit of its own
//	{Name: "model", Paths: []string{"POST /v1/messages"}, Member: "model"} // and so has each model
//
// Each text that {} matches has a limit of its own; {}:* matches a segment with a colon, and stands for the
// text before the last one.
type Group struct {
	Name  string
	Paths []string

	// Member is a top-level member of the request's JSON body. Each of its values, which must be strings, has
	// a limit of its own. The Group then covers only requests for whose whole path there is a pattern, and
	// whose member is found within the first MiB of a copy that GetBody returns.
	Member string
}

// Of returns the name of the request's scope: at most 256 bytes, and "" for the one that
// all requests share. It may be called concurrently.
func (s *Scope) Of(req *http.Request) string {
	if req.URL == nil || len(s.Groups) == 0 && !s.Endpoints {
		return ""
	}
	method, path := cmp.Or(req.Method, http.MethodGet), strings.TrimPrefix(req.URL.Path, "/")
	escaped := strings.TrimPrefix(req.URL.EscapedPath(), "/") // a model's name may have a slash
	for i := range s.Groups {
		if name := s.Groups[i].of(req, method, escaped); name != "" {
			return name
		}
	}
	if !s.Endpoints {
		return ""
	}
	return s.endpoint(method, path)
}

// Lacks reports whether a Group would cover req, if its Member could be found in the body.
func (s *Scope) Lacks(req *http.Request) bool {
	return slices.ContainsFunc(s.Groups, func(g Group) bool {
		return g.Member != "" && req.URL != nil && g.covers(req.Method, req.URL.EscapedPath()) && memberOf(req, g.Member) == ""
	})
}

// of returns the name of the limit that g has for a request, or "" if it does not cover it.
func (g *Group) of(req *http.Request, method, path string) string {
	if g.Member != "" {
		if !g.covers(method, path) {
			return ""
		}
		if value := memberOf(req, g.Member); value != "" {
			return g.Name + " " + short(value)
		}
		return ""
	}
	for _, pattern := range g.Paths {
		if _, _, ok := match(pattern, method, path); !ok {
			continue
		}
		if !strings.Contains(pattern, "{}") {
			return g.Name
		}
		name := g.Name
		_, pattern, _ := strings.Cut(pattern, "/")
		for more := true; more; {
			var want, got string
			want, pattern, more = strings.Cut(pattern, "/")
			got, path, _ = strings.Cut(path, "/")
			if want == "{}:*" {
				got = got[:strings.LastIndexByte(got, ':')]
			}
			if strings.HasPrefix(want, "{}") {
				if text, err := url.PathUnescape(got); err == nil {
					got = text
				}
				name += " " + short(got)
			}
		}
		return name[:min(len(name), longestScope)]
	}
	return ""
}

// covers reports whether g has a pattern for the whole path.
func (g *Group) covers(method, path string) bool {
	return slices.ContainsFunc(g.Paths, func(pattern string) bool { return matchesAll(pattern, method, path) })
}

// short returns text, or a hash of it if it is long, names an account of AWS, or is not made of visible ASCII
// characters, which names of models and deployments are.
func short(text string) string {
	visible := func(r rune) bool { return '!' <= r && r <= '~' }
	if len(text) > 2*longestSegment || strings.HasPrefix(text, "arn:") || strings.ContainsFunc(text, func(r rune) bool { return !visible(r) }) {
		return "#" + strconv.FormatUint(hash(text), 16)
	}
	return text
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
		case "{}:*":
			if !strings.Contains(got, ":") {
				return 0, 0, false
			}
			keeps |= 1 << i
		case got:
			keeps |= 1 << i
		default:
			return 0, 0, false
		}
	}
	return keeps, hides, true
}
