package serverside

import (
	"iter"
	"net/http"
	"net/netip"
	"slices"
	"strings"
)

// A field is a header field in which proxies write.
type field struct {
	name string
	hops func(line string) iter.Seq[string] // the nearest first, which is the last
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

// whole is a line with one hop.
func whole(line string) iter.Seq[string] {
	return func(yield func(string) bool) { yield(strings.Trim(line, " \t")) }
}

// listed are the elements of a comma-separated list, the last first.
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

// elements are those of a line of Forwarded (RFC 7239, section 4), the last first. They
// are told apart from the left, as quotes and backslashes ask for. A client may have
// written a quote that ends only in what a proxy has appended: then what follows that is
// no separator, and the line is one hop which is no address.
func elements(line string) iter.Seq[string] {
	return func(yield func(string) bool) {
		for _, element := range slices.Backward(splitQuoted(line, ',')) {
			if !yield(strings.Trim(element, " \t")) {
				return
			}
		}
	}
}

// splitQuoted splits s at separators outside of quoted strings (RFC 9110, section 5.6.4).
// If s is malformed, it is one part that is malformed.
func splitQuoted(s string, separator byte) (parts []string) {
	from, quoted, closed := 0, false, false
	for i := 0; i < len(s); i++ {
		switch c := s[i]; {
		case quoted && c == '\\':
			i++
		case c == '"' && quoted:
			quoted, closed = false, true
		case quoted:
		case c == '"' && (i == 0 || s[i-1] != '='): // a quote begins a value
			return []string{malformed}
		case c == '"':
			quoted = true
		case c == separator || c == ';' || c == ',':
			closed = false
			if c == separator {
				parts, from = append(parts, s[from:i]), i+1
			}
		case closed && c != ' ' && c != '\t': // there is nothing else behind a value
			return []string{malformed}
		}
	}
	if quoted {
		return []string{malformed}
	}
	return append(parts, s[from:])
}

// malformed is no address, nor an element with one.
const malformed = "?"

// parseElement reads the one "for" of an element of Forwarded (RFC 7239, section
// 4). Without one, or with a name that is no address (section 6), it is not ok.
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

// isForwarded reports whether anything in r looks as if it had come by way of its peer:
// Via, Forwarded, X-Forwarded-Proto, X-Real-IP, True-Client-IP and the like.
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
