package serverside

import (
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
type matcher struct{ mux *http.ServeMux }

// newMatcher compiles pattern. What http.ServeMux panics about is an error.
func newMatcher(pattern string) (m *matcher, err error) {
	defer func() {
		if p := recover(); p != nil {
			m, err = nil, fmt.Errorf("%v", p)
		}
	}()
	http.NewServeMux().Handle(pattern, http.NotFoundHandler()) // as it stands, for its message
	folded, ok := foldPattern(pattern)
	if !ok {
		return nil, fmt.Errorf("%q can never match: its path is not a clean one", pattern)
	}
	m = &matcher{mux: http.NewServeMux()}
	m.mux.Handle(folded, http.NotFoundHandler())
	return m, nil
}

// foldPattern folds the host and the path of a pattern that is valid, and
// reports whether the path is clean.
func foldPattern(pattern string) (string, bool) {
	slash := strings.IndexByte(pattern, '/')
	front, rest := pattern[:slash], pattern[slash:]
	method, host, found := strings.Cut(strings.ReplaceAll(front, "\t", " "), " ")
	if !found {
		method, host = "", front
	}
	folded := method + " " + foldHost(strings.TrimLeft(host, " ")) + foldPath(rest)
	return strings.TrimLeft(folded, " "), rest == cleanPath(rest)
}

func foldHost(host string) string {
	return strings.TrimSuffix(strings.Trim(strings.ToLower(host), "[]"), ".")
}

// foldPath makes equal what differs in case or escapes only. Wildcards stay as
// they are, and so do dots that were escaped: they are names here, not steps.
func foldPath(escaped string) string {
	segments := strings.Split(escaped, "/")
	for i, segment := range segments {
		name, err := url.PathUnescape(segment)
		if err != nil || name == "." || name == ".." || strings.HasPrefix(segment, "{") {
			continue
		}
		segments[i] = url.PathEscape(strings.ToLower(name))
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

// A target is a request as matchers see it. The zero target has no aim.
type target struct {
	request http.Request // what http.ServeMux is asked with
	url     url.URL
	paths   []string // escaped; each is a way to read the request's path
}

// aim makes t the target for r, if it is not.
func (t *target) aim(r *http.Request) {
	if len(t.paths) > 0 {
		return
	}
	t.request.Method = r.Method
	t.request.Host = foldHost(hostname(r.Host))
	t.request.URL = &t.url
	t.paths = appendPaths(t.paths, r.URL)
}

// reset forgets the request.
func (t *target) reset() {
	if len(t.paths) > 0 {
		clear(t.paths)
		*t = target{paths: t.paths[:0]}
	}
}

// appendPaths appends the ways to read the path of u: by its escaped form, as
// http.ServeMux does, and by its decoded form, as handlers do that look at
// URL.Path; each with and without a slash at the end.
func appendPaths(paths []string, u *url.URL) []string {
	paths = appendPath(paths, u.EscapedPath())
	if u.RawPath != "" {
		paths = appendPath(paths, (&url.URL{Path: u.Path}).EscapedPath())
	}
	return paths
}

func appendPath(paths []string, escaped string) []string {
	p := escaped
	if !isPlain(p) {
		p = foldPath(cleanPath(p))
	}
	paths = append(paths, p)
	if trimmed := strings.TrimRight(p, "/"); trimmed != "" && trimmed != p {
		paths = append(paths, trimmed)
	}
	return paths
}

// isPlain reports whether p is clean and folded, as nearly all paths are.
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

// matches reports whether m's pattern matches any reading of the path.
func (t *target) matches(m *matcher) bool {
	for _, p := range t.paths {
		name, err := url.PathUnescape(p)
		if err != nil {
			name = p
		}
		t.url.Path, t.url.RawPath = name, p
		if _, pattern := m.mux.Handler(&t.request); pattern != "" {
			return true
		}
	}
	return false
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
