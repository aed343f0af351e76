package ratelimit

import (
	"math/bits"
	"slices"
)

// pairs are the numbers below 100, each in two digits.
const pairs = "00010203040506070809" +
	"10111213141516171819" +
	"20212223242526272829" +
	"30313233343536373839" +
	"40414243444546474849" +
	"50515253545556575859" +
	"60616263646566676869" +
	"70717273747576777879" +
	"80818283848586878889" +
	"90919293949596979899"

// appendInteger appends n, clamped, in decimal. A Set writes several, and most of
// its work is theirs: so digits go where they are to stay, two at a time.
func appendInteger(b []byte, n int64) []byte {
	u := uint64(clamp(n))
	width := decimals(u)
	b = slices.Grow(b, width)[:len(b)+width]
	i := len(b)
	for ; u >= 100; u /= 100 {
		i -= 2
		pair := u % 100 * 2
		b[i+1], b[i] = pairs[pair+1], pairs[pair]
	}
	if u >= 10 {
		b[i-2] = pairs[u*2]
	}
	b[i-1] = pairs[u*2+1]
	return b
}

// clamp returns what is nearest to n of the Integers of RFC 9651 that are not
// negative.
func clamp(n int64) int64 { return min(max(n, 0), maxInteger) }

// maxInteger is the largest Integer of RFC 9651.
const maxInteger = 999_999_999_999_999

// decimals returns how many digits u has, if it is clamped.
func decimals(u uint64) int {
	n := bits.Len64(u) * 1233 >> 12 // a little less than Len64·log10(2)
	if u >= powers[n] {
		n++
	}
	return n
}

// powers are those of 10, but for the first: 0 has a digit too.
var powers = [...]uint64{0, 1e1, 1e2, 1e3, 1e4, 1e5, 1e6, 1e7, 1e8, 1e9, 1e10, 1e11, 1e12, 1e13, 1e14, 1e15}
