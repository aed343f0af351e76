package ratelimit

// appendName appends name, or "default", as a String of RFC 9651, section
// 3.3.3, which holds printable ASCII only.
func appendName(b []byte, name string) []byte {
	if name == "" {
		name = "default"
	}
	b = append(b, '"')
	for {
		n := countPlain(name)
		b = append(b, name[:n]...)
		if n == len(name) {
			return append(b, '"')
		}
		b = appendEscaped(b, name[n])
		name = name[n+1:]
	}
}

// countPlain returns how many bytes s begins with that a String holds as they
// are.
func countPlain(s string) int {
	for i := range len(s) {
		if c := s[i]; c < ' ' || c > '~' || c == '"' || c == '\\' {
			return i
		}
	}
	return len(s)
}

// appendEscaped appends any other byte.
func appendEscaped(b []byte, c byte) []byte {
	if c == '"' || c == '\\' {
		return append(b, '\\', c)
	}
	const hex = "0123456789ABCDEF"
	return append(b, '%', hex[c>>4], hex[c&15])
}
