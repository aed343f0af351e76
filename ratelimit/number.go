package ratelimit

import (
	"math/bits"
	"strings"
	"time"
)

// A decimal is a number as written, with ASCII digits only: no sign, exponent, NaN or
// anything else that strconv accepts. It may have any number of digits and does not
// allocate.
type decimal struct {
	whole    string // without leading zeros; empty if zero
	fraction string // the digits after the point
}

// cutDecimal cuts 1*DIGIT [ "." 1*DIGIT ] off the front of s. ok is false if s does not
// begin with a digit.
func cutDecimal(s string) (d decimal, rest string, ok bool) {
	n := countDigits(s)
	d.whole, rest = s[:n], s[n:]
	for d.whole != "" && d.whole[0] == '0' {
		d.whole = d.whole[1:]
	}
	if strings.HasPrefix(rest, ".") {
		if m := countDigits(rest[1:]); m > 0 {
			d.fraction, rest = rest[1:1+m], rest[1+m:]
		}
	}
	return d, rest, n > 0
}

// countDigits returns the number of ASCII digits at the front of s.
func countDigits(s string) int {
	n := 0
	for n < len(s) && '0' <= s[n] && s[n] <= '9' {
		n++
	}
	return n
}

// times returns d units, rounded up to a nanosecond, at most maxWait. unit is at most a
// day.
func (d decimal) times(unit time.Duration) time.Duration {
	overflow, wait := bits.Mul64(atoi(d.whole, 1<<62), uint64(unit))
	if overflow > 0 || wait > uint64(maxWait) {
		return maxWait
	}
	return min(time.Duration(wait)+fractionOf(d.fraction, unit), maxWait)
}

// floor returns d rounded down, at most the largest Integer of RFC 9651.
func (d decimal) floor() int64 { return int64(atoi(d.whole, maxInteger)) }

// atoi returns the value of digits, at most limit. limit is at most 2⁶³.
func atoi(digits string, limit uint64) uint64 {
	var n uint64
	for i := range len(digits) {
		if n > limit/10 {
			return limit
		}
		n = n*10 + uint64(digits[i]-'0')
	}
	return min(n, limit)
}

// fractionOf returns 0.digits units, rounded up to a nanosecond. unit is at most a day.
func fractionOf(digits string, unit time.Duration) time.Duration {
	if digits == "" {
		return 0
	}
	// 18 digits resolve a day to less than a nanosecond and fit a uint64.
	kept := min(len(digits), 18)
	numerator, denominator := uint64(0), uint64(1)
	for i := range kept {
		numerator = numerator*10 + uint64(digits[i]-'0')
		denominator *= 10
	}
	high, low := bits.Mul64(numerator, uint64(unit))
	part, rest := bits.Div64(high, low, denominator)
	if rest > 0 || strings.Trim(digits[kept:], "0") != "" {
		part++
	}
	return time.Duration(part)
}
