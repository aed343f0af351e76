package quota

import "math/bits"

// A divisor divides by a number that is known long before, by a multiplication:
// several times faster than the processor divides. The zero divisor is none.
//
// It is Granlund and Montgomery, Division by Invariant Integers using Multiplication,
// 1994, section 4: with s = ⌊log₂ d⌋ and m = ⌈2^(63+s)/d⌉, ⌊n/d⌋ is ⌊n·m/2^(63+s)⌋
// for every n below 2^62, since n·(m·d - 2^(63+s)) < n·2^(s+1) ≤ 2^(63+s).
type divisor struct {
	m     uint64
	shift uint8 // s
}

// by returns a divisor by d, which is positive.
func by(d int64) divisor {
	s := bits.Len64(uint64(d)) - 1
	high, low := uint64(1)<<63>>(64-s), uint64(1)<<63<<s
	m, rest := bits.Div64(high, low, uint64(d))
	if rest > 0 {
		m++
	}
	return divisor{m: m, shift: uint8(s)}
}

// floor returns ⌊n/d⌋. n is in [0, 2^62).
func (d divisor) floor(n int64) int64 {
	high, _ := bits.Mul64(uint64(n)<<1, d.m)
	return int64(high >> (d.shift & 63))
}
