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

// A matcher is one pattern of http.ServeMux. It matches whatever a router may
// take for a path that the pattern matches: a path written in another way must
// not be a way around the limit.
//
// It is not a http.ServeMux of one pattern because that makes a redirect, which
// takes memory, of much that is to match, and remembers wildcards.
type matcher struct {
	pattern  string   // as it was written
	method   string   // if empty, all
	unsafe   bool     // all methods but those that are safe
	host     string   // folded; if empty, all
	segments []string // folded, or one of these:
}

const (
	anyName = "{}"    // {name}
	anyPath = "{...}" // {name...}, or the slash at the end
	noName  = "%2F"   // {$}, which http.ServeMux does not tell from a slash that is escaped
)

// newMatcher compiles pattern. What http.ServeMux panics about is an error.
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
		return nil, fmt.Errorf("%q can never match: its path is not a clean one", pattern)
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

// foldWildcard folds a segment of a pattern. A wildcard stands for itself.
func foldWildcard(segment string) string {
	switch {
	case segment == "":
		return anyPath
	case segment[0] != '{':
		return foldSegment(segment)
	case segment == "{$}":
		return noName
	case strings.HasSuffix(segment, "...}"):
		return anyPath
	default:
		return anyName
	}
}

// foldSegment makes equal what differs in case or escapes only. Dots that were
// escaped stay so: they are names here, not steps.
func foldSegment(escaped string) string {
	escaped, _, _ = strings.Cut(escaped, ";") // parameters, which some servers leave out of the path
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

// foldPath cleans and folds a path. Nearly all are clean and folded.
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

// cleanPath is p without dots and doubled slashes, with the slash at its end.
func cleanPath(p string) string {
	clean := path.Clean("/" + p)
	if clean != "/" && strings.HasSuffix(p, "/") {
		clean += "/"
	}
	return clean
}

// isPlain reports whether p is clean and folded, and so is what it escapes.
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

// A target is a request as matchers see it.
type target struct {
	request *http.Request
	path    string // folded; empty until it is needed
	decoded string // the same of what URL.Path says, if URL.RawPath says something else
}

// aim folds the ways to read the request's path: by its escaped form, as
// http.ServeMux does, and by its decoded form, as handlers do that look at
// URL.Path.
func (t *target) aim() {
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

// matches reports whether m's pattern matches t. What a router has matched by it
// before is not looked at again.
func (m *matcher) matches(t *target) bool {
	r := t.request
	if r.Pattern == m.pattern {
		return true
	}
	if !m.matchesMethod(r.Method) || m.host != "" && m.host != foldHost(hostname(r.Host)) {
		return false
	}
	t.aim()
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

// matchesPath reports whether a path that is folded matches, with or without a
// slash at its end.
func (m *matcher) matchesPath(path string) bool {
	path = strings.TrimSuffix(path, "/")
	for i, segment := range m.segments {
		if segment == anyPath {
			return true
		}
		if path == "" {
			return segment == noName && i == len(m.segments)-1
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

// hostname is host without its port.
func hostname(host string) string {
	if !strings.Contains(host, ":") {
		return host
	}
	if name, _, err := net.SplitHostPort(host); err == nil {
		return name
	}
	return host
}

// compare orders matchers by how much they say: the one that has more segments
// first; of two with as many, the one with more names among them; then the one
// with a host, and with a method. One that is nil is last.
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

// depth is how many segments must be there.
func (m *matcher) depth() int {
	if m.segments[len(m.segments)-1] == anyPath {
		return len(m.segments) - 1
	}
	return len(m.segments)
}

// names is how many segments are not wildcards.
func (m *matcher) names() (n int) {
	for _, s := range m.segments {
		n += boolInt(s != anyName && s != anyPath)
	}
	return n
}

// covers reports whether m matches all that n does.
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
		if isAny := s == anyName && n.segments[i] != noName; !isAny && s != n.segments[i] {
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
