package redisstore

import (
	"strconv"
	"strings"

	"github.com/heedhttp/heed/quota"
)

const (
	// exact is the largest integer up to which a Lua number holds every integer exactly.
	exact = 1<<53 - 1

	// dryRun is the suffix of a field for dry runs. No Name contains a tab.
	dryRun = "\tdry"

	entrySize = 9     // bytes of an entry of a SlidingLog
	maxLog    = 65535 // units in one log
)

// decode reads the value of a field, in the format of state.lua. ok is false if it is invalid.
func decode(value string) (b quota.Bucket, ok bool) {
	numbers := value
	if parts := strings.SplitN(value, " ", 5); len(parts) == 5 {
		b.Log = parts[4]
		numbers = value[:len(value)-len(b.Log)-1]
	}
	for i, digits := range strings.Split(numbers, " ") {
		n, err := strconv.ParseUint(digits, 10, 64)
		if err != nil || i > 3 || n > exact {
			return quota.Bucket{}, false
		}
		*[]*int64{&b.Time, &b.Level, &b.Unit, &b.Prev}[i] = int64(n)
	}
	if b.Unit == 0 || len(b.Log)%entrySize != 0 {
		return quota.Bucket{}, false
	}
	if b.Log != "" && (b.Level > maxLog || bigEndian(b.Log[len(b.Log)-entrySize:][:7]) != b.Time) {
		return quota.Bucket{}, false
	}
	return b, true
}

// bigEndian returns the number in the bytes of s, the most significant byte first.
func bigEndian(s string) (n int64) {
	for i := range len(s) {
		n = n<<8 | int64(s[i])
	}
	return n
}
