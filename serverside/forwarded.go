package serverside

import (
	"iter"
	"net/http"
	"net/netip"
	"slices"
	"strings"
)

// A field is a header field to which proxies write the client's address.
type field struct {
	name string
	hops func(line string) iter.Seq[string] // from the nearest proxy outwards
	addr func(hop string) (netip.Addr, bool)
}

func fieldOf(name string) field {
	switch name {
	case "X-Forwarded-For":
		return field{name, listed, parseHop}
	case "Forwarded":
		return field{name, elements, parseElement}
	default:
		return field{name, whole, parseHop}
	}
}

// whole yields a line as one hop.
func whole(line string) iter.Seq[string] {
	return func(yield func(string) bool) { yield(strings.Trim(line, " \t")) }
}

// listed yields the elements of a comma-separated list, the last first.
func listed(line string) iter.Seq[string] {
	return func(yield func(string) bool) {
		for comma := 0; comma >= 0; line = line[:max(comma, 0)] {
			comma = strings.LastIndexByte(line, ',')
			if !yield(strings.Trim(line[comma+1:], " \t")) {
				return
			}
		}
	}
}

// elements yields the elements of a Forwarded line (RFC 7239, section 4), the last first. It
// has to parse from the left because of quotes. If a client sends an opening quote that is
// closed only in what a proxy appends, the whole line is one malformed hop.
func elements(line string) iter.Seq[string] {
	return func(yield func(string) bool) {
		for _, element := range slices.Backward(splitQuoted(line, ',')) {
			if !yield(strings.Trim(element, " \t")) {
				return
			}
		}
	}
}

// splitQuoted splits s at separators outside quoted strings (RFC 9110, section 5.6.4). If s is
// malformed, it returns the one part malformed.
func splitQuoted(s string, separator byte) (parts []string) {
	from, quoted, closed := 0, false, false
	for i := 0; i < len(s); i++ {
		switch c := s[i]; {
		case quoted && c == '\\':
			i++
		case c == '"' && quoted:
			quoted, closed = false, true
		case quoted:
		case c == '"' && (i == 0 || s[i-1] != '='): // a quote can only begin a value
			return []string{malformed}
		case c == '"':
			quoted = true
		case c == separator || c == ';' || c == ',':
			closed = false
			if c == separator {
				parts, from = append(parts, s[from:i]), i+1
			}
		case closed && c != ' ' && c != '\t': // nothing else can follow a value
			return []string{malformed}
		}
	}
	if quoted {
		return []string{malformed}
	}
	return append(parts, s[from:])
}

// malformed is neither an address nor an element with one.
const malformed = "?"

// parseElement returns the address in the one "for" of an element of Forwarded (RFC 7239,
// section 4). It is not ok if "for" is absent, repeated, or a name without an address (section
// 6).
func parseElement(s string) (addr netip.Addr, ok bool) {
	for _, pair := range splitQuoted(s, ';') {
		name, value, _ := strings.Cut(strings.Trim(pair, " \t"), "=")
		if !strings.EqualFold(name, "for") {
			continue
		}
		if ok {
			return addr, false // which of the two?
		}
		if last := len(value) - 1; last > 0 && value[0] == '"' && value[last] == '"' {
			value = value[1:last]
		}
		if addr, ok = parseHop(value); !ok {
			return addr, false
		}
	}
	return addr, ok
}

// isForwarded reports whether r has a field that proxies add: Via, Forwarded,
// X-Forwarded-Proto, X-Real-IP, True-Client-IP and the like.
func isForwarded(r *http.Request) bool {
	for name := range r.Header {
		switch {
		case name == "Via", name == "Forwarded", name == "X-Real-Ip", name == "X-Envoy-External-Address",
			strings.Contains(name, "Forwarded-"),
			strings.HasSuffix(name, "Client-Ip"), strings.HasSuffix(name, "Connecting-Ip"):
			return true
		}
	}
	return false
}
