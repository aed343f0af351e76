package ratelimit

import (
	"encoding/base64"
	"strconv"
	"time"
)

// appendPolicies11 appends RateLimit-Policy of draft-11, section 3, a List:
// "default";q=100;w=60, followed by heed-algorithm.
func appendPolicies11(b []byte, policies []Limit) []byte {
	for i := range policies {
		p := &policies[i]
		b = appendName(separate(b, i), p.Name)
		b = appendInteger(append(b, ";q="...), p.Quota)
		if p.Unit != "" {
			b = appendName(append(b, ";qu="...), p.Unit)
		}
		if w, ok := wholeSeconds(p.Window); ok {
			b = appendInteger(append(b, ";w="...), w)
		}
		b = appendAlgorithm(b, p.Algorithm)
	}
	return b
}

// appendStates11 appends RateLimit of draft-11, section 4, a List: "default";r=42;t=17.
func appendStates11(b []byte, limits []Limit) []byte {
	for i := range limits {
		l := &limits[i]
		b = appendName(separate(b, i), l.Name)
		b = appendInteger(append(b, ";r="...), l.Remaining)
		if l.Next > 0 {
			b = appendInteger(append(b, ";t="...), ceilSeconds(l.Next))
		}
		if l.Partition != "" { // a Byte Sequence
			b = base64.StdEncoding.AppendEncode(append(b, ";pk=:"...), []byte(l.Partition))
			b = append(b, ':')
		}
	}
	return b
}

// separate appends the comma before every member of a list but the first.
func separate(b []byte, i int) []byte {
	if i == 0 {
		return b
	}
	return append(b, ", "...)
}

// appendName appends name, or "default", as a String of RFC 9651, section 3.3.3. Bytes
// that a String cannot hold are percent-encoded.
func appendName(b []byte, name string) []byte {
	if name == "" {
		name = "default"
	}
	const hex = "0123456789ABCDEF"
	b = append(b, '"')
	for i := range len(name) {
		switch c := name[i]; {
		case c == '"' || c == '\\':
			b = append(b, '\\', c)
		case c < ' ' || c > '~':
			b = append(b, '%', hex[c>>4], hex[c&15])
		default:
			b = append(b, c)
		}
	}
	return append(b, '"')
}

// appendInteger appends n as a non-negative Integer of RFC 9651, clamped to the range
// that one has.
func appendInteger(b []byte, n int64) []byte {
	return strconv.AppendInt(b, min(max(n, 0), maxInteger), 10)
}

// maxInteger is the largest Integer of RFC 9651.
const maxInteger = 999_999_999_999_999

// wholeSeconds returns d in seconds. ok is false if d is under a second, or has a
// fraction of one.
func wholeSeconds(d time.Duration) (seconds int64, ok bool) {
	return int64(d / time.Second), d >= time.Second && d%time.Second == 0
}

// ceilSeconds rounds d up to a whole second.
func ceilSeconds(d time.Duration) int64 {
	seconds := int64(d / time.Second)
	if d%time.Second > 0 {
		seconds++
	}
	return seconds
}
