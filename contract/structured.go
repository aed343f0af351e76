package contract

import (
	"encoding/base64"
	"errors"
	"fmt"
	"strings"
)

// An item is a member of a structured List, with its parameters.
type item struct {
	value  value
	params map[string]value
}

// A value is a bare item of RFC 9651 section 3.3.
type value struct {
	kind byte // 'i' Integer, 'd' Decimal, 's' String, 't' Token, 'b' Byte Sequence, '?' Boolean
	n    int64
	s    string
}

// A scanner parses RFC 9651 strictly: if parsing fails by section 4.2, the whole field is ignored.
type scanner struct{ rest string }

var errStructured = errors.New("not a structured field")

// parseList parses a List without inner lists from the lines of a field.
func parseList(lines []string) ([]item, error) {
	var list []item
	s := &scanner{strings.Trim(strings.Join(lines, ", "), " ")}
	for {
		v, err := s.bare()
		if err != nil {
			return nil, err
		}
		params, err := s.params()
		if err != nil {
			return nil, err
		}
		list = append(list, item{v, params})
		if more, err := s.comma(); err != nil {
			return nil, err
		} else if !more {
			return list, nil
		}
	}
}

// parseDictionary parses a Dictionary of bare items and ignores their parameters.
func parseDictionary(lines []string) (map[string]value, error) {
	dict := make(map[string]value)
	s := &scanner{strings.Trim(strings.Join(lines, ", "), " ")}
	for {
		key, v, err := s.pair()
		if err != nil {
			return nil, err
		}
		if _, err := s.params(); err != nil {
			return nil, err
		}
		dict[key] = v
		if more, err := s.comma(); err != nil {
			return nil, err
		} else if !more {
			return dict, nil
		}
	}
}

func (s *scanner) take(prefix string) bool {
	rest, ok := strings.CutPrefix(s.rest, prefix)
	s.rest = rest
	return ok
}

// span takes the leading characters that are in set.
func (s *scanner) span(set string) string {
	n := len(s.rest) - len(strings.TrimLeft(s.rest, set))
	taken := s.rest[:n]
	s.rest = s.rest[n:]
	return taken
}

// comma takes the separator of two members. more is false at the end.
func (s *scanner) comma() (more bool, err error) {
	s.span(" \t")
	if s.rest == "" {
		return false, nil
	}
	if !s.take(",") {
		return false, fmt.Errorf("%w: %q instead of a comma", errStructured, clip(s.rest))
	}
	s.span(" \t")
	return true, nil
}

func (s *scanner) params() (map[string]value, error) {
	params := make(map[string]value)
	for s.take(";") {
		s.span(" ")
		key, v, err := s.pair()
		if err != nil {
			return nil, err
		}
		params[key] = v
	}
	return params, nil
}

const (
	lower = "abcdefghijklmnopqrstuvwxyz"
	upper = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"
	digit = "0123456789"
)

// pair takes a key and its value, which defaults to true.
func (s *scanner) pair() (key string, v value, err error) {
	if s.rest == "" || !strings.Contains(lower+"*", s.rest[:1]) {
		return "", value{}, fmt.Errorf("%w: %q instead of a key", errStructured, clip(s.rest))
	}
	key = s.span(lower + digit + "_-.*")
	if !s.take("=") {
		return key, value{kind: '?', n: 1}, nil
	}
	v, err = s.bare()
	return key, v, err
}

func (s *scanner) bare() (value, error) {
	switch first := s.rest[:min(1, len(s.rest))]; {
	case first == "":
		return value{}, fmt.Errorf("%w: a value is missing", errStructured)
	case first == `"`:
		return s.quoted()
	case first == ":":
		return s.bytes()
	case first == "?":
		return s.boolean()
	case strings.Contains("-"+digit, first):
		return s.number()
	case strings.Contains(lower+upper+"*", first):
		return value{kind: 't', s: s.span(lower + upper + digit + "!#$%&'*+-.^_`|~:/")}, nil
	}
	return value{}, fmt.Errorf("%w: %q instead of a value", errStructured, clip(s.rest))
}

func (s *scanner) number() (value, error) {
	all := s.rest
	negative := s.take("-")
	whole := s.span(digit)
	n, ok := digits(whole)
	if !ok || len(whole) > 15 {
		return value{}, fmt.Errorf("%w: %q is not a number", errStructured, clip(all))
	}
	if negative {
		n = -n
	}
	if !s.take(".") {
		return value{kind: 'i', n: n}, nil
	}
	if fraction := s.span(digit); fraction == "" || len(fraction) > 3 || len(whole) > 12 {
		return value{}, fmt.Errorf("%w: %q is not a number", errStructured, clip(all))
	}
	return value{kind: 'd', n: n}, nil
}

func (s *scanner) quoted() (value, error) {
	var b strings.Builder
	for i := 1; i < len(s.rest); i++ {
		c := s.rest[i]
		switch {
		case c == '"':
			s.rest = s.rest[i+1:]
			return value{kind: 's', s: b.String()}, nil
		case c == '\\':
			if i++; i == len(s.rest) || s.rest[i] != '"' && s.rest[i] != '\\' {
				return value{}, fmt.Errorf("%w: a backslash before neither quote nor backslash", errStructured)
			}
			b.WriteByte(s.rest[i])
		case c < ' ' || c > '~':
			return value{}, fmt.Errorf("%w: byte %#x in a string", errStructured, c)
		default:
			b.WriteByte(c)
		}
	}
	return value{}, fmt.Errorf("%w: a string without its end", errStructured)
}

func (s *scanner) bytes() (value, error) {
	encoded, rest, ok := strings.Cut(s.rest[1:], ":")
	decoded, err := base64.StdEncoding.DecodeString(encoded)
	if !ok || err != nil {
		return value{}, fmt.Errorf("%w: %q is not a byte sequence", errStructured, clip(s.rest))
	}
	s.rest = rest
	return value{kind: 'b', s: string(decoded)}, nil
}

func (s *scanner) boolean() (value, error) {
	switch {
	case s.take("?1"):
		return value{kind: '?', n: 1}, nil
	case s.take("?0"):
		return value{kind: '?'}, nil
	}
	return value{}, fmt.Errorf("%w: %q is not a boolean", errStructured, clip(s.rest))
}

// clip shortens s for an error.
func clip(s string) string {
	if len(s) > 40 {
		return s[:40] + "…"
	}
	return s
}
