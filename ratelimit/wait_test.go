package ratelimit_test

import (
	"net/http"
	"slices"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/heedhttp/heed/internal/testenv"
	"github.com/heedhttp/heed/ratelimit"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// now is the receipt of every response in this package's tests.
var now = time.Date(2026, 11, 20, 19, 30, 0, 0, time.UTC)

// A row is a response of a refused request and the wait that it asks for.
type row struct {
	want   string   // a time.Duration as it prints, or none
	fields []string // lines such as "Retry-After: 1"
}

// after is a row with only a Retry-After.
func after(value, want string) row { return row{want, []string{"Retry-After: " + value}} }

// longest is the longest wait, 2³¹ s.
const longest = "596523h14m8s"

func run(t *testing.T, rows []row) {
	t.Helper()
	for _, r := range rows {
		if got := answer(429, header(r.fields...), now); got != r.want {
			t.Errorf("%q: got %s, want %s", r.fields, got, r.want)
		}
	}
}

func header(fields ...string) http.Header {
	h := http.Header{}
	for _, field := range fields {
		name, value, _ := strings.Cut(field, ": ")
		h.Add(name, value)
	}
	return h
}

func TestRetryAfterIsADecimalNumberOfSeconds(t *testing.T) {
	run(t, []row{
		after("0", "0s"),
		after("00", "0s"),
		after("0.0", "0s"),
		after("0.000000000000000000000000", "0s"),
		after("1.5", "1.5s"),
		after("0.001", "1ms"),
		after("0.0001", "1ms"), // rounded up
		after("0.0000000000000000000000001", "1ms"),
		after("1.0000000001", "1.001s"),
		after("1.0010000000", "1.001s"),
		after("1.9999", "2s"),
		after("0000000000000000000000000000001", "1s"),
		after("\t 7 \t", "7s"),
		after("2147483647.9999", longest),
		after("2147483648.0", longest),
		after("2147483648.0001", longest),
		after("4294967296", longest), // 2³²
		after("9223372037", longest), // overflows a time.Duration
		after("18446744073709551615", longest),
		after("18446744073709551617", longest), // 1, if it wrapped
		after(strings.Repeat("9", 4096), longest),
		after("0."+strings.Repeat("9", 4096), "1s"),
		after(strings.Repeat("0", 4096)+"3", "3s"),
	})
}

func TestOtherRetryAftersAreIgnored(t *testing.T) {
	for _, value := range []string{
		"", " ", "-1", "-0", "+1", "1.", ".5", ".", "1..5", "1.5.", "1e3", "1E3", "1e-3", "0x10", "0b1", "0o7",
		"1_000", "1'000", "1 000", "NaN", "nan", "Inf", "+Inf", "Infinity", "null", "undefined", "true", "?1",
		"5s", "5 s", "5 seconds", "1m", "1500ms", "\"120\"", "'120'", "120;", "120; comment", "(120)", "=120",
		"120\u00a0", "\u00a0120", "120\u2003", "１２０", "१२०", "1²", "120\x00", "120\v", "120\r", "12\t0",
		strings.Repeat("9", 4096) + "x", strings.Repeat("-", 4096),
	} {
		run(t, []row{after(value, none)})
	}
}

func TestTheLongestOfSeveralValuesCounts(t *testing.T) {
	run(t, []row{
		after("1,", "1s"),
		after(",1", "1s"),
		after(",,1,,", "1s"),
		after("1 , 3\t,2", "3s"),
		after("1;x=2, 3", "3s"),
		after("1.5, 1,5", "5s"),
		after("99999999999999999999, 1", longest),
		after("1, -99999999999999999999", "1s"),
		after("NaN, 1e9, 2, Inf", "2s"),
		after(strings.Repeat(",", 4096), none),
		after(strings.Repeat(",", 4096)+"9", "9s"),
		after(strings.Repeat("7,", 2048), "7s"),
		after("60, Fri, 20 Nov 2026 19:30:30 GMT", "1m0s"),
		after("10, Fri, 20 Nov 2026 19:30:30 GMT", "30s"),
		after("10\t,\tFri,\t20 Nov 2026 19:30:30 GMT", "30s"),
		after("Fri, 20 Nov 2026 19:30:30 GMT, 60", "1m0s"),
		after("Fri, 20 Nov 2026 19:30:30 GMT, 10", "30s"),
		after("Fri, 20 Nov 2026 19:30:30 GMT,Friday, 20-Nov-26 19:30:40 GMT,Fri Nov 20 19:30:20 2026", "40s"),
		after("2026-11-20T19:30:05Z,2026-11-20T19:30:04Z", "5s"),
		after("Fri, 20 Nov 2026 19:30:30 EST, 5", "5s"),
		after("Fri, 5", "5s"), // a day alone is garbage, not part of what follows
		after("5, Fri", "5s"),
		after("Fri,Fri,Fri, 20 Nov 2026 19:30:30 GMT", "30s"),
		after("Fri, 20 Nov 2026, 19:30:30 GMT", none),
		{"30s", []string{"Retry-After: 5", "Retry-After: Fri, 20 Nov 2026 19:30:30 GMT"}},
		{"5s", []string{"Retry-After: 5", "Retry-After: Fri, 31 Dec 1999 23:59:59 GMT"}},
		{"0s", []string{"Retry-After: ", "Retry-After: soon", "Retry-After: 0"}},
		{"7s", []string{"Retry-After: 1, 7", "Retry-After: 6,x"}},
		{none, []string{"Retry-After: Fri", "Retry-After: 20 Nov 2026 19:30:30 GMT"}}, // separate lines
	})
}

func TestMillisecondFieldsRefineRetryAfter(t *testing.T) {
	run(t, []row{
		{"1.5s", []string{"Retry-After-Ms: 1500"}},
		{"2ms", []string{"Retry-After-Ms: 1.5"}},
		{"1ms", []string{"Retry-After-Ms: 0.001"}},
		{"7ms", []string{"Retry-After-Ms:  007 "}},
		{"0s", []string{"Retry-After-Ms: 0"}},
		{longest, []string{"Retry-After-Ms: 2147483648000"}},
		{longest, []string{"Retry-After-Ms: 2147483648001"}},
		{longest, []string{"X-Amz-Retry-After: " + strings.Repeat("9", 400)}},
		{"596523h14m7.999s", []string{"Retry-After-Ms: 2147483647999"}},
		{none, []string{"Retry-After-Ms: -5"}},
		{none, []string{"Retry-After-Ms: 1500ms"}},
		{none, []string{"Retry-After-Ms: 1e3"}},
		{none, []string{"Retry-After-Ms: Fri, 20 Nov 2026 19:30:30 GMT"}},
		{"300ms", []string{"Retry-After-Ms: 100, 300", "Retry-After-Ms: 200"}},
		{"3s", []string{"Retry-After-Ms: 1000", "X-Ms-Retry-After-Ms: 3000", "X-Amz-Retry-After: 2000"}},
		{"1ms", []string{"Retry-After: 1", "Retry-After-Ms: 1"}},
		{"1s", []string{"Retry-After: 1", "Retry-After-Ms: 0"}}, // a whole second less
		{"0s", []string{"Retry-After: 0.5", "Retry-After-Ms: 0"}},
		{"1s", []string{"Retry-After: 0", "Retry-After-Ms: 1000"}},
		{"1ms", []string{"Retry-After: 0", "Retry-After-Ms: 1"}},
		{"2s", []string{"Retry-After: 2", "Retry-After-Ms: 1000"}},
		{"1.001s", []string{"Retry-After: 2", "Retry-After-Ms: 1001"}},
		{"2.001s", []string{"Retry-After: 2", "Retry-After-Ms: 2001"}},
		{"1.5s", []string{"Retry-After: 2", "Retry-After-Ms: 20", "X-Ms-Retry-After-Ms: 1500"}},
		{"29.5s", []string{"Retry-After: Fri, 20 Nov 2026 19:30:30 GMT", "Retry-After-Ms: 29500"}},
		{"500ms", []string{"Retry-After: soon", "X-Amz-Retry-After: 500"}},
		{longest, []string{"Retry-After: 99999999999", "Retry-After-Ms: 5"}},
		{"734ms", []string{"Retry-After: 1", "X-Retry-In: 734ms"}},
		{"1m0s", []string{"Retry-After: 60", "X-Retry-In: 30s"}},
	})
}

func TestRetryInIsADuration(t *testing.T) {
	for value, want := range map[string]string{
		"0s": "0s", "1ns": "1ms", "1us": "1ms", "1500\u00b5s": "2ms", "1500\u03bcs": "2ms", "1ms": "1ms",
		"1.5s": "1.5s", "1m30s": "1m30s",
		"1h0m0.5s": "1h0m0.5s", "1d": "24h0m0s", "1d12h": "36h0m0s", "1s1s": "2s", "0.5ms0.5ms": "1ms",
		"0.1d": "2h24m0s", "0.1234567d": "2h57m46.659s",
		"1.000000001s": "1.001s", "24855d3h14m8s": longest, "24855d3h14m7.999s": "596523h14m7.999s", "24856d": longest,
		"2147483648000000001ns": longest, "99999999999999999999999999d": longest,
		"99999999999d99999999999d99999999999d99999999999d": longest,
		"": none, "5": none, "0": none, "s": none, "-5s": none, "+5s": none, "5S": none, "5 s": none,
		"1m 30s": none, ".5s": none, "5.s": none,
		"1.2.3s": none, "5sec": none, "5min": none, "1w": none, "1y": none, "5ss": none, "5s,": "5s",
		"1s, 3s": "3s", "1e3s": none, "Infs": none,
		"PT5S": none, "2026-11-20T19:30:30Z": none,
	} {
		run(t, []row{{want, []string{"X-Retry-In: " + value}}})
	}
}

func TestFieldsOfLastResort(t *testing.T) {
	for value, want := range map[string]string{
		"0": "0s", "15": "15s", "15.5": "15.5s", "15;w=60": "15s", "15 ; x": "15s",
		"999999999": "277777h46m39s", "999999999.9": "277777h46m39.9s",
		"0000000000000000000000030": "30s",
		"1000000000":                "0s",      // 2001
		"1795203030":                "30s",     // seconds
		"1795203030.25":             "30.25s",  //
		"1795203030.2501":           "30.251s", //
		"99999999999":               longest,   // year 5138
		"100000000000":              "0s",      // milliseconds: 1973
		"1795203030250":             "30.25s",  //
		"1795203030250.1":           "30.251s", //
		"99999999999999":            longest, "100000000000000": "0s", "99999999999999999": longest,
		"100000000000000000":            "0s",
		"1795203030250001":              "30.251s", // microseconds
		"1795203030250000000":           "30.25s",  // nanoseconds
		"1795203030250000000.5":         "30.251s", //
		"9999999999999999999":           longest,   // beyond int64
		"99999999999999999999":          longest,   // the last
		"100000000000000000000":         none,      // 10²⁰
		strings.Repeat("9", 80):         none,      //
		"1m30s":                         "1m30s",   // duration
		"30s;x":                         "30s",     //
		"Fri, 20 Nov 2026 19:30:30 GMT": "30s", "2026-11-20T19:31Z": "1m0s", "2026-11-20 19:30:30 UTC; x": "30s",
		"": none, ";5": none, "-1": none, "+5": none, "1e3": none, "NaN": none, "soon": none, "5, 7": "7s",
	} {
		run(t, []row{
			{want, []string{"X-Retry-After: " + value}},
			{want, []string{"X-RateLimit-Retry-After: " + value}},
		})
	}
	run(t, []row{
		{"7s", []string{"X-Retry-After: 5", "X-RateLimit-Retry-After: 7"}},
		{"5s", []string{"X-Retry-After: 5", "X-RateLimit-Retry-After: x"}},
		{"0s", []string{"Retry-After: 0", "X-Retry-After: 5"}}, // zero is an answer
		{"1s", []string{"Retry-After-Ms: 1000", "X-Retry-After: 5"}},
		{"1s", []string{"X-Retry-In: 1s", "X-RateLimit-Retry-After: 5"}},
		{"5s", []string{"Retry-After: soon", "X-Retry-After: 5"}}, // malformed is absent
		{"30s", []string{"X-Retry-After: 1795206630", "Date: Fri, 20 Nov 2026 20:30:00 GMT"}},
	})
}

func TestStatusDecidesWhetherFieldsAreRead(t *testing.T) {
	h := header("Retry-After: 5")
	for status, want := range map[int]string{
		100: none, 101: none, 103: none, 199: none, 200: none, 202: none, 204: none, 299: none,
		300: "5s", 301: "5s", 304: "5s", 399: "5s", 400: "5s", 429: "5s", 499: "5s", 503: "5s", 529: "5s", 599: "5s",
		600: "5s", 999: "5s", 99: "5s", 0: "5s", -1: "5s", // RFC 9110, section 15: invalid statuses are like 5xx
	} {
		if got := answer(status, h, now); got != want {
			t.Errorf("%d: got %s, want %s", status, got, want)
		}
	}
}

func TestAHeaderWithoutHintsAsksForNothing(t *testing.T) {
	for _, h := range []http.Header{nil, {}, plain(), {"Retry-After": nil}, {"Retry-After": {}}} {
		if got := answer(429, h, now); got != none {
			t.Errorf("%v: got %s", h, got)
		}
	}
}

func TestWaitDoesNotAllocate(t *testing.T) {
	for _, field := range []string{
		"Retry-After: 1", "X-Other: 1", "Retry-After-Ms: 1500", "X-Retry-In: 1m30s", "X-Retry-After: 1795203030.25",
		"Retry-After: Fri, 20 Nov 2026 19:30:30 GMT", "Retry-After: Friday, 20-Nov-26 19:30:30 GMT",
		"Retry-After: Fri Nov 20 19:30:30 2026",
		"Retry-After: 2026-11-20T19:30:30.25Z", "Retry-After: soon", "Retry-After: " + strings.Repeat(",", 4096),
		"Retry-After: " + strings.Repeat("Fri,", 1024), "Retry-After: " + strings.Repeat("9", 4096),
	} {
		h := header(field, "Date: Fri, 20 Nov 2026 19:30:00 GMT", "Age: 1")
		if n := testing.AllocsPerRun(10, func() { ratelimit.Wait(429, h, now) }); n != 0 {
			t.Errorf("%.40s: %v allocations", field, n)
		}
	}
}

// endsInTime returns a function that fails t unless it is called within a minute of
// processor time. Reading in linear time takes a second, in quadratic time minutes.
func endsInTime(t *testing.T) func() {
	began := cpuTime()
	return func() {
		t.Helper()
		assert.Less(t, cpuTime()-began, time.Minute, "took over a minute: quadratic time?")
	}
}

// A list of a mebibyte has up to a million members. Without -long the test uses an
// eighth.
func TestAMebibyteIsReadInLinearTime(t *testing.T) {
	const date = "Fri, 20 Nov 2026 19:30:30 GMT"
	defer endsInTime(t)()
	most := 1 << 17
	if testenv.Long() {
		most = 1 << 20
	}
	for name, size := range map[string]int{
		"Retry-After": most, "Retry-After-Ms": 1 << 17, "X-Retry-In": 1 << 17, "X-Retry-After": 1 << 17,
	} {
		fill := func(s string) string { return strings.Repeat(s, size/len(s)) }
		for value, want := range map[string]string{
			fill(","): none, fill(",;"): none, fill("a"): none, fill("Fri,"): none, fill("Fri, "): none,
			fill(" ,") + "x": none, "Fri, " + fill("x"): none,
			fill("9"):        map[string]string{"X-Retry-In": none, "X-Retry-After": none}[name],
			fill("0") + ".":  none,
			fill(" ") + "x":  none,
			fill("1s") + "x": none,
		} {
			if want == "" {
				want = longest
			}
			if got := answer(429, http.Header{name: {value}}, now); got != want {
				t.Errorf("%s: %.8s…: got %s, want %s", name, value, got, want)
			}
		}
	}
	// Many dates, and many lines of Date.
	h := http.Header{"Retry-After": {strings.Repeat(date+",", 1<<15)}, "Date": slices.Repeat([]string{date}, 1<<15)}
	if got := answer(429, h, now); got != "30s" {
		t.Errorf("many dates: got %s", got)
	}
}

func TestNineDigitsAreUnixTimeInASynctestBubble(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		in := strconv.FormatInt(time.Now().Add(7*time.Second).Unix(), 10)
		require.Len(t, in, 9)
		wait, ok := ratelimit.Wait(
			429, http.Header{"X-Ratelimit-Remaining": {"0"}, "X-Ratelimit-Reset": {in}}, time.Time{},
		)
		assert.True(t, ok)
		assert.Equal(t, 7*time.Second, wait)
	})
}
