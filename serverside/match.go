package serverside

import (
	"cmp"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"path"
	"strings"
)

// A matcher is one pattern of http.ServeMux. It matches any spelling of a path that some router
// might accept for the pattern, so that no spelling evades the limit.
//
// A ServeMux with one pattern would not do: it allocates a redirect for many of these
// spellings, and records wildcards in the request.
type matcher struct {
	pattern  string   // as written in the Config
	method   string   // empty matches all
	unsafe   bool     // matches every method that is not safe, instead of method
	host     string   // folded; empty matches all
	segments []string // folded, or one of the wildcards below
}

const (
	anyName = "{}"    // {name}
	anyPath = "{...}" // {name...}, or a slash at the end
	pathEnd = "%2F"   // {$}; http.ServeMux treats it like an escaped slash
)

// newMatcher compiles pattern. It returns an error where http.ServeMux panics.
func newMatcher(pattern string) (m *matcher, err error) {
	defer func() {
		if p := recover(); p != nil {
			m, err = nil, fmt.Errorf("%v", p)
		}
	}()
	http.NewServeMux().Handle(pattern, http.NotFoundHandler())
	slash := strings.IndexByte(pattern, '/')
	front, path := pattern[:slash], pattern[slash:]
	if path != cleanPath(path) {
		return nil, fmt.Errorf("%q can never match: write %q", pattern, front+cleanPath(path))
	}
	m = &matcher{pattern: pattern, host: front}
	if space := strings.IndexAny(front, " \t"); space >= 0 {
		m.method, m.host = front[:space], strings.TrimLeft(front[space:], " \t")
	}
	m.host = foldHost(m.host)
	for segment := range strings.SplitSeq(path[1:], "/") {
		m.segments = append(m.segments, foldWildcard(segment))
	}
	return m, nil
}

// foldWildcard folds a segment of a pattern, and translates wildcards.
func foldWildcard(segment string) string {
	switch {
	case segment == "":
		return anyPath
	case segment[0] != '{':
		return foldSegment(segment)
	case segment == "{$}":
		return pathEnd
	case strings.HasSuffix(segment, "...}"):
		return anyPath
	default:
		return anyName
	}
}

// foldSegment maps segments that differ only in case or escapes to one spelling. Escaped dots
// stay escaped: they are names, not steps.
func foldSegment(escaped string) string {
	escaped, _, _ = strings.Cut(escaped, ";") // path parameters, which some servers ignore
	name, err := url.PathUnescape(escaped)
	if err != nil {
		name = escaped
	}
	if name == "." || name == ".." {
		return strings.ReplaceAll(name, ".", "%2E")
	}
	return url.PathEscape(strings.ToLower(name))
}

func foldHost(host string) string {
	return strings.TrimSuffix(strings.Trim(strings.ToLower(host), "[]"), ".")
}

// foldPath cleans and folds a path. Most need neither.
func foldPath(escaped string) string {
	if isPlain(escaped) {
		return escaped
	}
	segments := strings.Split(cleanPath(escaped), "/")
	for i, segment := range segments {
		segments[i] = foldSegment(segment)
	}
	return strings.Join(segments, "/")
}

// cleanPath returns p without dots and doubled slashes, but with its final slash.
func cleanPath(p string) string {
	clean := path.Clean("/" + p)
	if clean != "/" && strings.HasSuffix(p, "/") {
		clean += "/"
	}
	return clean
}

// isPlain reports whether p is already clean and folded.
func isPlain(p string) bool {
	if p == "" || p[0] != '/' {
		return false
	}
	for i := 0; i < len(p); i++ {
		switch c := p[i]; {
		case 'a' <= c && c <= 'z', '0' <= c && c <= '9', c == '-', c == '_':
		case c == '/' && (i+1 == len(p) || p[i+1] != '/'):
		case c == '.' && p[i-1] != '/' && p[i-1] != '.':
		default:
			return false
		}
	}
	return true
}

// A target is a request in the form that matchers compare.
type target struct {
	request *http.Request
	path    string // folded; empty until it is needed
	decoded string // URL.Path folded, if URL.RawPath is set
}

// foldPaths folds the request's path both ways in which handlers read it: escaped, as
// http.ServeMux does, and decoded, as handlers that use URL.Path do.
func (t *target) foldPaths() {
	switch u := t.request.URL; {
	case t.path != "":
	case u.RawPath != "":
		t.path = foldPath(u.EscapedPath())
		t.decoded = foldPath((&url.URL{Path: u.Path}).EscapedPath())
	case isPlain(u.Path):
		t.path = u.Path
	default:
		t.path = foldPath(u.EscapedPath())
	}
}

// matches reports whether m's pattern matches t. If the router has matched the same pattern, it
// does, whatever the path is now.
func (m *matcher) matches(t *target) bool {
	r := t.request
	if r.Pattern == m.pattern {
		return true
	}
	if !m.matchesMethod(r.Method) || m.host != "" && m.host != foldHost(hostname(r.Host)) {
		return false
	}
	t.foldPaths()
	return m.matchesPath(t.path) || t.decoded != "" && m.matchesPath(t.decoded)
}

func (m *matcher) matchesMethod(method string) bool {
	if m.unsafe {
		return !isSafe(method)
	}
	return m.method == "" || m.method == method || m.method == http.MethodGet && method == http.MethodHead
}

// isSafe reports whether a method is safe (RFC 9110, section 9.2.1).
func isSafe(method string) bool {
	switch method {
	case http.MethodGet, http.MethodHead, http.MethodOptions, http.MethodTrace:
		return true
	}
	return false
}

// matchesPath reports whether a folded path matches, with or without a final slash.
func (m *matcher) matchesPath(path string) bool {
	path = strings.TrimSuffix(path, "/")
	for i, segment := range m.segments {
		if segment == anyPath {
			return true
		}
		if path == "" {
			return segment == pathEnd && i == len(m.segments)-1
		}
		path = path[1:] // the slash
		end := strings.IndexByte(path, '/')
		if end < 0 {
			end = len(path)
		}
		if segment != anyName && segment != path[:end] {
			return false
		}
		path = path[end:]
	}
	return path == ""
}

// hostname returns host without its port.
func hostname(host string) string {
	if !strings.Contains(host, ":") {
		return host
	}
	if name, _, err := net.SplitHostPort(host); err == nil {
		return name
	}
	return host
}

// compare orders matchers from the most to the least specific: by number of segments, then by
// segments that are not wildcards, then by host and method. nil is last.
func (m *matcher) compare(n *matcher) int {
	if m == nil || n == nil {
		return cmp.Compare(boolInt(m == nil), boolInt(n == nil))
	}
	return cmp.Or(
		cmp.Compare(n.depth(), m.depth()), cmp.Compare(n.names(), m.names()),
		cmp.Compare(boolInt(n.host != ""), boolInt(m.host != "")),
		cmp.Compare(boolInt(n.method != ""), boolInt(m.method != "")),
	)
}

// depth returns the least number of segments of a path that matches.
func (m *matcher) depth() int {
	if m.segments[len(m.segments)-1] == anyPath {
		return len(m.segments) - 1
	}
	return len(m.segments)
}

// names returns the number of segments that are not wildcards.
func (m *matcher) names() (n int) {
	for _, s := range m.segments {
		n += boolInt(s != anyName && s != anyPath)
	}
	return n
}

// covers reports whether m matches every request that n matches.
func (m *matcher) covers(n *matcher) bool {
	switch {
	case m == nil:
		return true
	case n == nil, m.host != "" && m.host != n.host, m.method != "" && !m.matchesMethod(n.method):
		return false
	}
	for i, s := range m.segments {
		if s == anyPath {
			return true
		}
		if i >= len(n.segments) || n.segments[i] == anyPath {
			return false
		}
		if isAny := s == anyName && n.segments[i] != pathEnd; !isAny && s != n.segments[i] {
			return false
		}
	}
	return len(m.segments) == len(n.segments)
}

func boolInt(b bool) int {
	if b {
		return 1
	}
	return 0
}
