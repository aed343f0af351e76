package ratelimit_test

import (
	"net/http"
	"strconv"
	"strings"
	"testing"

	"github.com/heedhttp/heed/ratelimit"
)

// checkDigits compares what is written of n, in front of digits and behind, with
// strconv.
func checkDigits(t *testing.T, name string, n int64) {
	t.Helper()
	h := http.Header{}
	ratelimit.Set(h, ratelimit.Draft11|ratelimit.XRateLimit, ratelimit.Limit{Name: name, Quota: n, Remaining: n, Next: 1})
	want := strconv.FormatInt(min(max(n, 0), 999_999_999_999_999), 10)
	for field, value := range map[string]string{
		"X-RateLimit-Limit": want, "X-RateLimit-Remaining": want, "X-RateLimit-Reset": "0",
		"RateLimit":        `"` + name + `";r=` + want + ";t=1",
		"RateLimit-Policy": `"` + name + `";q=` + want,
	} {
		if got := h.Get(field); got != value {
			t.Fatalf("%s: got %q, want %q", field, got, value)
		}
	}
}

func TestDigitsAreThoseOfStrconv(t *testing.T) {
	for n := range int64(10_100) {
		checkDigits(t, "n", n)
	}
	for power := int64(1); power <= 1e18; power *= 10 {
		for _, n := range []int64{power - 1, power, power + 1, 9 * power, 5*power + 5} {
			checkDigits(t, "n", n)
		}
	}
	for bit := range 63 {
		for _, n := range []int64{1<<bit - 1, 1 << bit, 1<<bit + 1, -1 << bit} {
			checkDigits(t, "n", n)
		}
	}
}

func TestDigitsAreWrittenWhereThereIsNoRoomLeft(t *testing.T) {
	for length := range 300 {
		checkDigits(t, "n"+strings.Repeat("x", length), 123_456_789_012_345)
	}
}

func FuzzDigits(f *testing.F) {
	f.Add(int64(0), uint8(0))
	f.Add(int64(999_999_999), uint8(118))
	f.Add(int64(-1), uint8(255))
	f.Fuzz(func(t *testing.T, n int64, length uint8) {
		checkDigits(t, "n"+strings.Repeat("x", int(length)), n)
	})
}
