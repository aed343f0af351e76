package ratelimit

import (
	"strings"
	"time"
)

// A dimension is one of several quotas that a server tells apart by a word in the field
// names: X-Ratelimit-Reset-Tokens, or X-Ratelimit-Tokens-Reset.
type dimension struct {
	prefix, word string
	last         bool // whether the word comes after the part
}

// The parts of a dimension, each in a field of its own.
const (
	limitPart     = "Limit"
	remainingPart = "Remaining"
	resetPart     = "Reset"
)

// dimensionOf splits the name of a field into its dimension and the part, which is "" if
// the field is no part of a dimension.
func dimensionOf(name string) (d dimension, part string) {
	rest, x := strings.CutPrefix(name, xPrefix)
	if !x {
		rest = name[len(anthropicPrefix):]
		d.prefix = anthropicPrefix
	} else {
		d.prefix = xPrefix
	}
	for _, part := range [...]string{resetPart, remainingPart, limitPart} {
		n := len(rest) - len(part) - len("-")
		switch {
		case n < 1:
		case x && rest[len(part)] == '-' && rest[:len(part)] == part:
			d.word, d.last = rest[len(part)+1:], true
			return d, part
		case rest[n] == '-' && rest[n+1:] == part:
			d.word = rest[:n]
			return d, part
		}
	}
	return d, ""
}

// field returns the lines of one part of d.
func (r *reader) field(d *dimension, part string) []string {
	var space [64]byte
	name := append(space[:0], d.prefix...)
	if d.last {
		name = append(append(append(name, part...), '-'), d.word...)
	} else {
		name = append(append(append(name, d.word...), '-'), part...)
	}
	return r.header[string(name)]
}

// dimension appends the dimension that the field called name belongs to. Every field of a
// dimension leads here, so only one appends it: the reset, or without one the next part.
// Unless all is set, a dimension without a reset is skipped, because no wait follows from
// it.
func (r *reader) dimension(dst []Limit, name string, all bool) []Limit {
	d, part := dimensionOf(name)
	if part == "" || part != resetPart && !(all && r.represents(&d, part)) {
		return dst
	}
	left := leftOf(r.field(&d, remainingPart))
	if left.sentinel {
		return dst
	}
	l := stateless
	l.Remaining = left.least
	l.Reset = r.longest(r.field(&d, resetPart), reset)
	if all {
		l.Quota = max(leftOf(r.field(&d, limitPart)).least, 0)
		l.Name = strings.ToLower(d.word)
		l.Unit, l.Window = unitOf(l.Name), windowOf(l.Name)
	}
	return append(dst, l)
}

// represents reports whether part is the one that appends d, because the parts before it
// are missing.
func (r *reader) represents(d *dimension, part string) bool {
	return r.field(d, resetPart) == nil && (part == remainingPart || r.field(d, remainingPart) == nil)
}

// unitOf returns the unit that a dimension counts; requests are "".
func unitOf(word string) string {
	if word == "requests" || strings.HasSuffix(word, "-requests") && word != "concurrent-requests" ||
		windowOf(word) > 0 {
		return ""
	}
	return word
}

// windowOf returns the window that a dimension is named after, or 0.
func windowOf(word string) time.Duration {
	switch word {
	case "second":
		return time.Second
	case "minute":
		return time.Minute
	case "hour":
		return time.Hour
	case "day":
		return 24 * time.Hour
	}
	return 0
}
