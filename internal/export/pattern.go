package export

import (
	"cmp"
	"fmt"
	"net/url"
	"slices"
	"strings"
)

// A pattern is a pattern of http.ServeMux in its parts.
type pattern struct {
	method, host string // if empty, any
	segments     []segment
	slash        bool   // it ends in {$}: its path has a slash at the end
	beneath      bool   // it ends in a slash or {name...}: it also matches all paths beneath
	rest         string // the name in {name...}
}

// A segment is the part of a path between two slashes.
type segment struct {
	name     string // a wildcard's name, or the unescaped text
	wildcard bool
}

// newPattern parses a pattern that serverside.New has accepted. Like there, "" matches every
// request.
func newPattern(text string) (p pattern) {
	text = cmp.Or(text, "/")
	slash := strings.IndexByte(text, '/')
	p.host = text[:slash]
	if space := strings.IndexAny(p.host, " \t"); space >= 0 {
		p.method, p.host = p.host[:space], strings.TrimLeft(p.host[space:], " \t")
	}
	p.host = strings.TrimSuffix(strings.Trim(strings.ToLower(p.host), "[]"), ".")
	for part := range strings.SplitSeq(text[slash+1:], "/") {
		name := strings.Trim(part, "{}")
		switch {
		case part == "":
			p.beneath = true
			return p
		case part == "{$}":
			p.slash = true
		case strings.HasPrefix(part, "{") && strings.HasSuffix(name, "..."):
			p.beneath, p.rest = true, strings.TrimSuffix(name, "...")
		case strings.HasPrefix(part, "{"):
			p.segments = append(p.segments, segment{name, true})
		default:
			if decoded, err := url.PathUnescape(part); err == nil {
				part = decoded
			}
			p.segments = append(p.segments, segment{part, false})
		}
	}
	return p
}

// isAny reports whether p matches every request.
func (p pattern) isAny() bool {
	return p.method == "" && p.host == "" && len(p.segments) == 0 && p.beneath
}

// methods returns the methods that p matches. As in http.ServeMux, GET matches HEAD too. If
// there are none, p matches all.
func (p pattern) methods() []string {
	switch p.method {
	case "":
		return nil
	case "GET":
		return []string{"GET", "HEAD"}
	default:
		return []string{p.method}
	}
}

// withMethod returns p for one method only, if it matches that.
func (p pattern) withMethod(method string) pattern {
	p.method = cmp.Or(p.method, method)
	return p
}

// expression returns a regular expression (PCRE) for a method, a space, a host, and a decoded
// path. It is empty if p matches every request.
func (p pattern) expression(exact bool) string {
	if p.isAny() {
		return ""
	}
	method, host, option := "[^ ]+", "[^/]*", "(?i)"
	if p.method != "" {
		var methods []string
		for _, m := range p.methods() {
			methods = append(methods, escaped(m))
		}
		method = "(" + strings.Join(methods, "|") + ")"
	}
	if p.host != "" {
		host = `\[?` + escaped(p.host) + `\]?\.?`
	}
	if exact {
		option = ""
	}
	return method + " " + host + option + p.path(exact)
}

// path returns a regular expression for a decoded path. Package serverside compares the paths
// of rules without regard to slashes at their end, but those of exemptions exactly.
func (p pattern) path(exact bool) string {
	path := ""
	for _, s := range p.segments {
		if s.wildcard {
			path += "/[^/]+"
		} else {
			path += "/" + escaped(s.name)
		}
	}
	switch {
	case p.beneath && (exact || path == ""):
		return path + "/"
	case p.beneath:
		return path + "(/|$)"
	case !exact:
		return path + "/*$"
	case p.slash:
		return path + "/$"
	default:
		return path + "$"
	}
}

// escaped returns text for a regular expression. All but ASCII letters, digits, "_" and "-"
// becomes \x and two digits, so that no character has a meaning to the target's own syntax.
func escaped(text string) string {
	var b strings.Builder
	for i := range len(text) {
		switch c := text[i]; {
		case 'a' <= c && c <= 'z', 'A' <= c && c <= 'Z', '0' <= c && c <= '9', c == '_', c == '-':
			b.WriteByte(c)
		default:
			fmt.Fprintf(&b, `\x%02x`, c)
		}
	}
	return b.String()
}

// needsEscapes reports whether a request of p's path may need percent-encoding.
func (p pattern) needsEscapes() bool {
	return slices.ContainsFunc(p.segments, func(s segment) bool {
		return !s.wildcard && (&url.URL{Path: s.name}).EscapedPath() != s.name
	})
}

// covers reports whether p matches all requests that q matches.
func (p pattern) covers(q pattern) bool {
	if p.host != "" && p.host != q.host || len(p.segments) > len(q.segments) {
		return false
	}
	if p.method != "" && (q.method == "" || !slices.Contains(p.methods(), q.method)) {
		return false
	}
	for i, s := range p.segments {
		if t := q.segments[i]; !s.wildcard && (t.wildcard || !strings.EqualFold(s.name, t.name)) {
			return false
		}
	}
	return p.beneath || !q.beneath && len(p.segments) == len(q.segments)
}

// overlaps reports whether there are requests that both p and q match.
func (p pattern) overlaps(q pattern) bool {
	if len(p.segments) > len(q.segments) {
		p, q = q, p
	}
	if p.host != "" && q.host != "" && p.host != q.host {
		return false
	}
	common := func(method string) bool { return slices.Contains(q.methods(), method) }
	if p.method != "" && q.method != "" && !slices.ContainsFunc(p.methods(), common) {
		return false
	}
	for i, s := range p.segments {
		if t := q.segments[i]; !s.wildcard && !t.wildcard && !strings.EqualFold(s.name, t.name) {
			return false
		}
	}
	return p.beneath || len(p.segments) == len(q.segments)
}

// concerns reports whether a rule for p applies to q's entry, such as an OpenAPI path or a Kong route:
// they share requests, and p is not a narrower pattern with its own entry.
func (p pattern) concerns(q pattern) bool {
	return p.overlaps(q) && (p.covers(q) || !q.covers(p))
}
