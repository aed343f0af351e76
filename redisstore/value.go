package redisstore

import "github.com/heedhttp/heed/quota"

const (
	// farAhead is how far, in µs, a time may be ahead of Redis'; no later one is believed.
	farAhead = 24 * 60 * 60 * 1_000_000

	// exact is the largest integer that a number of Redis' Lua holds exactly, like
	// all below it.
	exact = 1<<53 - 1

	// dryRun ends the name of a field for dry runs: no Name has a tab.
	dryRun = "\tdry"

	entrySize = 9     // of a SlidingLog
	mostLog   = 65535 // units in one
)

// decode returns what the value of a field says, which cell.lua describes, and
// whether it is one.
func decode(value string) (b quota.Bucket, ok bool) {
	if len(value) < 8 || value[0] < 128 {
		return b, false
	}
	after := 7 + int(value[0]>>4&7)
	if len(value) <= after {
		return b, false
	}
	b.Time = int64(value[0]&15)<<48 | number(value[1:7])
	b.Level = number(value[7:after])
	if value[after] == 0 {
		b.Unit = 1
		ok = decodeMore(&b, value[after+1:])
	} else if ok = len(value) <= after+7; ok {
		b.Unit = number(value[after:])
	}
	return b, ok && max(b.Level, b.Unit, b.Prev) <= exact
}

// decodeMore reads what only windows and logs have.
func decodeMore(b *quota.Bucket, rest string) bool {
	if rest == "" || rest[0] > 7 || len(rest) < 1+int(rest[0]) {
		return false
	}
	width := int(rest[0])
	b.Prev, b.Log = number(rest[1:1+width]), rest[1+width:]
	if len(b.Log)%entrySize != 0 {
		return false
	}
	return b.Log == "" || b.Level <= mostLog && number(b.Log[len(b.Log)-entrySize:len(b.Log)-2]) == b.Time
}

// encode is the value of a field that holds b; none if b is zero.
func encode(b quota.Bucket) string {
	if b == (quota.Bucket{}) {
		return ""
	}
	level := widthOf(b.Level)
	value := appendNumber(nil, int64(8+level)<<52|b.Time, 7)
	value = appendNumber(value, b.Level, level)
	if b.Prev == 0 && b.Log == "" {
		return string(appendNumber(value, b.Unit, widthOf(b.Unit)))
	}
	prev := widthOf(b.Prev)
	value = appendNumber(append(value, 0, byte(prev)), b.Prev, prev)
	return string(append(value, b.Log...))
}

// number is what the bytes of s are, eight at most.
func number(s string) (n int64) {
	for i := range len(s) {
		n = n<<8 | int64(s[i])
	}
	return n
}

// appendNumber appends n in so many bytes.
func appendNumber(dst []byte, n int64, width int) []byte {
	for shift := 8 * (width - 1); shift >= 0; shift -= 8 {
		dst = append(dst, byte(n>>shift))
	}
	return dst
}

// appendText appends how long s is, in two bytes, and s.
func appendText(dst []byte, s string) []byte {
	return append(appendNumber(dst, int64(len(s)), 2), s...)
}

// widthOf is how many bytes hold n.
func widthOf(n int64) (width int) {
	for ; n > 0; n >>= 8 {
		width++
	}
	return width
}
