package redisstore_test

import (
	"github.com/heedhttp/heed/quota"
)

// valueOf is the value of a field that holds b.
func valueOf(b quota.Bucket) string {
	level, unit, prev := digits(b.Level), digits(b.Unit), digits(b.Prev)
	value := digits(int64(8+len(level))<<52|b.Time) + level
	if b.Prev == 0 && b.Log == "" {
		return value + unit
	}
	return value + "\x00" + string(rune(len(prev))) + prev + b.Log
}

// digits is n in as few bytes as hold it.
func digits(n int64) (s string) {
	for ; n > 0; n >>= 8 {
		s = string([]byte{byte(n)}) + s
	}
	return s
}
