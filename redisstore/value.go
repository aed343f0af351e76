package redisstore

import (
	"strconv"
	"strings"

	"github.com/heedhttp/heed/quota"
)

const (
	// exact is the largest integer that a number of Redis' Lua holds exactly, like
	// all below it.
	exact = 1<<53 - 1

	// dryRun ends the name of a field for dry runs: no Name has a tab.
	dryRun = "\tdry"

	entrySize = 9     // of a SlidingLog
	maxLog    = 65535 // units in one
)

// decode returns what the value of a field says, which state.lua describes, and whether it
// is one.
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

// bigEndian is what the bytes of s are, the most significant first.
func bigEndian(s string) (n int64) {
	for i := range len(s) {
		n = n<<8 | int64(s[i])
	}
	return n
}
