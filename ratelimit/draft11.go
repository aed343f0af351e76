package ratelimit

import (
	"encoding/base64"
	"time"
)

// appendPolicies11 appends RateLimit-Policy of draft-11, section 3, a List:
// "default";q=100;w=60, with what is heed's own after it.
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

// state11 renders RateLimit of draft-11, section 4, a List: "default";r=42;t=17.
func (x *text) state11(b []byte, f *frame, limits []Limit) []byte {
	b = appendHead(b, x.item, limits[0].Name)
	b = x.remaining.integer(b, limits[0].Remaining)
	b = appendPartition(appendNext(b, limits[0].Next), limits[0].Partition)
	for i := 1; i < len(limits); i++ {
		l := &limits[i]
		b = appendHead(append(b, ", "...), f.item(i, l.Name), l.Name)
		b = appendPartition(appendNext(appendInteger(b, l.Remaining), l.Next), l.Partition)
	}
	x.state.to = len(b)
	return b
}

// appendHead appends how the member of the policy called name begins. If it was
// not prepared, item is nil.
func appendHead(b []byte, item *item, name string) []byte {
	if item != nil {
		return append(b, item.head...)
	}
	return append(appendName(b, name), ";r="...)
}

// appendNext appends t, unless the quota is whole.
func appendNext(b []byte, next time.Duration) []byte {
	if next <= 0 {
		return b
	}
	return appendInteger(append(b, ";t="...), ceilSeconds(next))
}

// appendPartition appends pk, a Byte Sequence, unless nobody's was named.
func appendPartition(b []byte, key string) []byte {
	if key == "" {
		return b
	}
	b = base64.StdEncoding.AppendEncode(append(b, ";pk=:"...), []byte(key))
	return append(b, ':')
}

// separate appends what stands before member i of a list.
func separate(b []byte, i int) []byte {
	if i == 0 {
		return b
	}
	return append(b, ", "...)
}
