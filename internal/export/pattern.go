package export

import (
	"cmp"
	"fmt"
	"net/url"
	"slices"
	"strings"
)

// A pattern is a pattern of http.ServeMux in its parts. The zero pattern matches
// every request.
type pattern struct {
	text         string
	method, host string    // if empty, any
	segments     []segment // of the path
}

type kind int

const (
	literal  kind = iota
	wildcard      // {name}: one segment
	rest          // {name...}, or the slash at the end: any number of them
	ending        // {$}: none
)

type segment struct {
	kind kind
	name string // of a literal, without escapes; of a wildcard, between the brackets
}

// newPattern reads what serverside.New has accepted.
func newPattern(text string) (p pattern) {
	slash := strings.IndexByte(text, '/')
	if slash < 0 {
		return p
	}
	p.text, p.host = text, text[:slash]
	if space := strings.IndexAny(p.host, " \t"); space >= 0 {
		p.method, p.host = p.host[:space], strings.TrimLeft(p.host[space:], " \t")
	}
	p.host = strings.TrimSuffix(strings.Trim(strings.ToLower(p.host), "[]"), ".")
	for part := range strings.SplitSeq(text[slash+1:], "/") {
		p.segments = append(p.segments, newSegment(part))
	}
	return p
}

func newSegment(part string) segment {
	name := strings.Trim(part, "{}")
	switch {
	case part == "":
		return segment{rest, ""}
	case part[0] != '{':
		if decoded, err := url.PathUnescape(part); err == nil {
			part = decoded
		}
		return segment{literal, part}
	case part == "{$}":
		return segment{ending, ""}
	case strings.HasSuffix(name, "..."):
		return segment{rest, strings.TrimSuffix(name, "...")}
	default:
		return segment{wildcard, name}
	}
}

// expression is a regular expression (PCRE) for a method, a space, a host and a
// decoded path. As in package serverside, case and a slash at the end make no
// difference, unless the path is to be exact. A separator is what stands between
// segments.
func (p pattern) expression(separator string, exact bool) string {
	if p.text == "" {
		return ""
	}
	method, host := cmp.Or(p.methods(), "[^ ]+"), "[^/]*"
	if p.host != "" {
		host = `\[?` + escaped(p.host) + `\]?\.?`
	}
	path := p.path(separator, exact)
	if !exact {
		path = "(?i)" + path
	}
	return method + " " + host + path
}

// path is the expression for the path.
func (p pattern) path(separator string, exact bool) string {
	var b strings.Builder
	for _, s := range p.segments {
		switch s.kind {
		case literal:
			b.WriteString(separator + escaped(s.name))
		case wildcard:
			b.WriteString(separator + "[^/]+")
		case rest:
			return b.String() + ofRest(b.Len() == 0 || exact, separator)
		}
	}
	switch last := p.segments[len(p.segments)-1]; {
	case !exact:
		b.WriteString("/*$")
	case last.kind == ending:
		b.WriteString(separator + "$")
	default:
		b.WriteString("$")
	}
	return b.String()
}

func ofRest(slash bool, separator string) string {
	if slash {
		return separator
	}
	return "(/|$)"
}

// escaped is text in a regular expression, of nothing but ASCII letters, digits, "_"
// and "-", and escapes that are letters and digits too.
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

// isLong reports whether p would be more than the parsers of gateways take.
func (p pattern) isLong() bool { return len(escaped(p.text)) > 1500 }

// isPlain reports whether p's path is ASCII, and needs no escapes.
func (p pattern) isPlain() bool {
	return !slices.ContainsFunc(p.segments, func(s segment) bool {
		return s.kind == literal && (&url.URL{Path: s.name}).EscapedPath() != s.name
	})
}

// methods is an expression for the methods that p matches; "" means all.
func (p pattern) methods() string {
	if p.method == "GET" {
		return "(GET|HEAD)"
	}
	return escaped(p.method)
}

// as is p for a method alone, if it is for all.
func (p pattern) as(method string) pattern {
	p.method = cmp.Or(p.method, strings.ToUpper(method))
	return p
}

// covers reports whether p matches all that q does.
func (p pattern) covers(q pattern) bool {
	switch {
	case p.text == "":
		return true
	case q.text == "", p.host != "" && p.host != q.host:
		return false
	case p.method != "" && p.method != q.method && !(p.method == "GET" && q.method == "HEAD"):
		return false
	}
	for i, s := range p.segments {
		if s.kind == rest {
			return true
		}
		if i >= len(q.segments) || !s.covers(q.segments[i]) {
			return false
		}
	}
	return len(p.segments) == len(q.segments)
}

// overlaps reports whether there are requests that both p and q match.
func (p pattern) overlaps(q pattern) bool {
	if p.text == "" || q.text == "" {
		return true
	}
	if p.host != "" && q.host != "" && p.host != q.host {
		return false
	}
	head := p.method == "GET" && q.method == "HEAD" || p.method == "HEAD" && q.method == "GET"
	if p.method != "" && q.method != "" && p.method != q.method && !head {
		return false
	}
	for i := range max(len(p.segments), len(q.segments)) {
		switch a, b := p.segment(i), q.segment(i); {
		case a.kind == rest || b.kind == rest:
			return true
		case !a.overlaps(b):
			return false
		}
	}
	return true
}

// segment is the i-th of p's path, behind which it ends.
func (p pattern) segment(i int) segment {
	if i < len(p.segments) {
		return p.segments[i]
	}
	return segment{kind: ending}
}

func (s segment) overlaps(t segment) bool {
	switch {
	case s.kind == ending || t.kind == ending:
		return s.kind == t.kind
	case s.kind == wildcard || t.kind == wildcard:
		return true
	default:
		return strings.EqualFold(s.name, t.name)
	}
}

func (s segment) covers(t segment) bool {
	switch {
	case t.kind == rest || t.kind == ending && s.kind != ending:
		return false
	case s.kind == wildcard:
		return true
	default:
		return s.kind == t.kind && strings.EqualFold(s.name, t.name)
	}
}
