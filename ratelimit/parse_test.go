package ratelimit_test

import (
	"fmt"
	"math/rand/v2"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/heedhttp/heed/internal/testenv"
	"github.com/heedhttp/heed/ratelimit"
)

// parsed returns the result of Parse, a Limit a line, without what is unknown.
func parsed(fields ...string) string {
	var lines []string
	for _, l := range ratelimit.Parse(header(fields...), now) {
		lines = append(lines, describe(l))
	}
	return strings.Join(lines, "\n")
}

func describe(l ratelimit.Limit) string {
	parts := []string{}
	add := func(known bool, format string, a ...any) {
		if known {
			parts = append(parts, fmt.Sprintf(format, a...))
		}
	}
	add(l.Name != "", "%q", l.Name)
	add(l.Remaining >= 0, "%d", l.Remaining)
	add(l.Quota != 0, "of %d", l.Quota)
	add(l.Unit != "", "%s", l.Unit)
	add(l.Window != 0, "per %v", l.Window)
	add(l.Next >= 0, "next %v", l.Next)
	add(l.Reset >= 0, "reset %v", l.Reset)
	add(l.Partition != "", "for %s", l.Partition)
	return strings.Join(parts, " ")
}

// A proxy and the service behind it may each write fields of their own.
func TestTheTighterOfTwoFamiliesComesFirst(t *testing.T) {
	draft := func(remaining, reset string) []string {
		return []string{"RateLimit-Limit: 10", "RateLimit-Remaining: " + remaining, "RateLimit-Reset: " + reset}
	}
	x := func(remaining, reset string) []string {
		return []string{"X-RateLimit-Limit: 100", "X-RateLimit-Remaining: " + remaining, "X-RateLimit-Reset: " + reset}
	}
	assert.Equal(t, "3 of 10 reset 5s", parsed(draft("3", "5")...))
	assert.Equal(t, "90 of 100 reset 30s", parsed(x("90", "1795203030")...))
	assert.Equal(
		t, "3 of 10 reset 5s\n90 of 100 reset 30s",
		parsed(append(draft("3", "5"), x("90", "1795203030")...)...),
	)
	assert.Equal(t, "1 of 100 reset 30s\n3 of 10 reset 5s", parsed(append(draft("3", "5"), x("1", "1795203030")...)...))
	run(t, []row{
		{"5s", append(draft("0", "5"), x("90", "1795203030")...)},
		{"30s", append(draft("3", "5"), x("0", "1795203030")...)},
		{"30s", append(draft("0", "5"), x("0", "1795203030")...)},
		{"40s", append(draft("0", "40"), x("0", "1795203030")...)},
	})
}

func TestParseReadsEveryDialect(t *testing.T) {
	for _, c := range []struct {
		what   string
		fields []string
		want   string
	}{
		{
			"draft-11", []string{`RateLimit: "default";r=42;t=17`, `RateLimit-Policy: "default";q=100;w=60`},
			`"default" 42 of 100 per 1m0s next 17s`,
		},
		{"draft-11 without policies", []string{`RateLimit: "default";r=42;t=17`}, `"default" 42 next 17s`},
		{"draft-11 without t", []string{`RateLimit: "a";r=42`, `RateLimit-Policy: "a";q=100`}, `"a" 42 of 100`},
		{
			"draft-11, all left", []string{`RateLimit: "a";r=100`, `RateLimit-Policy: "a";q=100`},
			`"a" 100 of 100 next 0s reset 0s`,
		},
		{
			"draft-11, all left, with t", []string{`RateLimit: "a";r=100;t=5`, `RateLimit-Policy: "a";q=100`},
			`"a" 100 of 100 next 5s reset 0s`,
		},
		{
			"draft-11, policies only",
			[]string{`RateLimit-Policy: "a";q=100;w=60, "b";q=5;qu="concurrent-requests"`},
			"\"a\" of 100 per 1m0s\n\"b\" of 5 concurrent-requests",
		},
		{"draft-11, the default unit", []string{`RateLimit-Policy: "a";q=1;qu="requests"`}, `"a" of 1`},
		{
			"draft-11, bytes",
			[]string{`RateLimit: "b";r=0;t=2`, `RateLimit-Policy: "b";q=65535;qu="content-bytes";w=10`},
			`"b" 0 of 65535 content-bytes per 10s next 2s`,
		},
		{"draft-11, two", []string{
			`RateLimit: "day";r=90;t=9, "min";r=1;t=4`,
			`RateLimit-Policy: "min";q=10;w=60, "day";q=100;w=86400`,
		},
			"\"min\" 1 of 10 per 1m0s next 4s\n\"day\" 90 of 100 per 24h0m0s next 9s"},
		{"draft-11, on two lines", []string{
			`RateLimit: "day";r=90`, `RateLimit: "min";r=0;t=4`, `RateLimit-Policy: "min";q=10`,
			`RateLimit-Policy: "day";q=100`,
		},
			"\"min\" 0 of 10 next 4s\n\"day\" 90 of 100"},
		{
			"draft-11, partitions",
			[]string{`RateLimit: "a";r=1;pk=:Ym9i:, "a";r=2;pk=:YW5u:`, `RateLimit-Policy: "a";q=9;pk=:YW5u:`},
			"\"a\" 2 of 9 for ann\n\"a\" 1 for bob",
		},
		{
			"draft-11, partitions of one policy",
			[]string{`RateLimit: "a";r=1;pk=:Ym9i:, "a";r=2;pk=:YW5u:`, `RateLimit-Policy: "a";q=9`},
			"\"a\" 1 of 9 for bob\n\"a\" 2 of 9 for ann",
		},
		{
			"draft-11, a policy of another name", []string{`RateLimit: "a";r=1`, `RateLimit-Policy: "b";q=9`},
			"\"a\" 1\n\"b\" of 9",
		},
		{"draft-11, quotes", []string{`RateLimit: "a\"\\b";r=1`}, `"a\"\\b" 1`},
		{"draft-11, policies malformed", []string{`RateLimit: "a";r=1`, `RateLimit-Policy: "a";q=9;w=-1`}, `"a" 1`},
		{"draft-11, a policy without q", []string{`RateLimit-Policy: "a";w=9`}, ``},
		{"draft-11, a policy without a name", []string{`RateLimit-Policy: a;q=9`}, ``},
		{"draft-11, a unit that is not a String", []string{`RateLimit-Policy: "a";q=9;qu=requests`}, ``},
		{
			"draft-11, the last of equal parameters",
			[]string{`RateLimit: "a";r=x;r=1;t=1;t=2`, `RateLimit-Policy: "a";q=1;q=2`}, `"a" 1 of 2 next 2s`,
		},
		{
			"draft-11, comments",
			[]string{`RateLimit: "a";r=1;x=?1;acme-y="z"`, `RateLimit-Policy: "a";q=2;c="per ip";d=(1)`},
			`"a" 1`,
		},
		{
			"draft-11, long", []string{`RateLimit: "a";r=999999999999999;t=999999999999999`},
			`"a" 999999999999999 next ` + longest,
		},

		{
			"draft-07", []string{`RateLimit: limit=100, remaining=42, reset=35`, `RateLimit-Policy: 100;w=60`},
			`42 of 100 per 1m0s reset 35s`,
		},
		{"draft-07 without remaining", []string{`RateLimit: limit=100, reset=35`}, `of 100 reset 35s`},
		{"draft-07 without limit", []string{`RateLimit: remaining=1, reset=35`}, ``},
		{
			"draft-07, parameters",
			[]string{`RateLimit: limit=100;a=1, remaining=42;b, reset=35;c="x", more=(1 2)`},
			`42 of 100 reset 35s`,
		},
		{
			"draft-07, more policies",
			[]string{
				`RateLimit: limit=100, remaining=42, reset=35`,
				`RateLimit-Policy: 10;w=1, 100;w=60;comment="fixed"`,
			},
			"42 of 100 per 1m0s reset 35s\nof 10 per 1s",
		},
		{"draft-07, all left", []string{`RateLimit: limit=9, remaining=9, reset=0`}, `9 of 9 next 0s reset 0s`},
		{"draft-07, negative", []string{`RateLimit: limit=9, remaining=-1, reset=0`}, ``},

		{"draft-06", []string{
			`RateLimit-Limit: 100`, `RateLimit-Remaining: 42`, `RateLimit-Reset: 35`,
			`RateLimit-Policy: 100;w=60, 1000;w=3600`,
		},
			"42 of 100 per 1m0s reset 35s\nof 1000 per 1h0m0s"},
		{
			"draft-03",
			[]string{
				`RateLimit-Limit: 10, 10;w=1, 1000;w=3600`, `RateLimit-Remaining: 3`, `RateLimit-Reset: 1`,
			},
			"3 of 10 per 1s reset 1s\nof 1000 per 1h0m0s",
		},
		{"draft-03, a limit only", []string{`RateLimit-Limit: 10`}, `of 10`},
		{
			"Envoy",
			[]string{
				`X-RateLimit-Limit: 10, 10;w=1;name="per-ip", 1000;w=3600`, `X-RateLimit-Remaining: 0`,
				`X-RateLimit-Reset: 1`,
			},
			"0 of 10 per 1s reset 1s\nof 1000 per 1h0m0s",
		},
		{
			"Docker Hub", []string{`ratelimit-limit: 100;w=21600`, `ratelimit-remaining: 20;w=21600`},
			`20 of 100 per 6h0m0s`,
		},
		{
			"GitLab",
			[]string{
				"RateLimit-Limit: 60", "RateLimit-Observed: 67", "RateLimit-Remaining: 0",
				"RateLimit-Reset: 1795203030", "RateLimit-ResetTime: x", "RateLimit-Name: y",
			},
			`0 of 60 reset 30s`,
		},

		{
			"GitHub",
			[]string{
				"X-RateLimit-Limit: 5000", "X-RateLimit-Remaining: 4999", "X-RateLimit-Used: 1",
				"X-RateLimit-Reset: 1795203600", "X-RateLimit-Resource: core",
			},
			`4999 of 5000 reset 10m0s`,
		},
		{
			"GitHub, by its own clock",
			[]string{
				"X-RateLimit-Remaining: 1", "X-RateLimit-Reset: 1795206660",
				"Date: Fri, 20 Nov 2026 20:30:00 GMT",
			},
			`1 reset 1m0s`,
		},
		{
			"Reddit",
			[]string{"X-Ratelimit-Used: 2.0", "X-Ratelimit-Remaining: 598.0", "X-Ratelimit-Reset: 182"},
			`598 reset 3m2s`,
		},
		{
			"X",
			[]string{"x-rate-limit-limit: 900", "x-rate-limit-remaining: 7", "x-rate-limit-reset: 1795203900"},
			`7 of 900 reset 15m0s`,
		},
		{
			"Discord",
			[]string{
				"X-RateLimit-Limit: 5", "X-RateLimit-Remaining: 0", "X-RateLimit-Reset: 1470173023.123",
				"X-RateLimit-Reset-After: 64.57", "X-RateLimit-Bucket: abcd",
			},
			`0 of 5 reset 1m4.57s`,
		},
		{
			"no number after",
			[]string{"X-RateLimit-Remaining: 0", "X-RateLimit-Reset: 30", "X-RateLimit-Reset-After: soon"},
			`0 reset 30s`,
		},
		{"PUBG", []string{"X-RateLimit-Remaining: 1", "X-RateLimit-Reset: 1795203005000000000"}, `1 reset 5s`},
		{"Jira", []string{"X-RateLimit-Remaining: 1", "X-RateLimit-Reset: 2026-11-20T19:31Z"}, `1 reset 1m0s`},
		{"OpenAI", []string{
			"x-ratelimit-limit-requests: 60", "x-ratelimit-remaining-requests: 59",
			"x-ratelimit-reset-requests: 1s",
			"x-ratelimit-limit-tokens: 150000", "x-ratelimit-remaining-tokens: 0", "x-ratelimit-reset-tokens: 6m0s"},
			"\"tokens\" 0 of 150000 tokens reset 6m0s\n\"requests\" 59 of 60 reset 1s"},
		{
			"Azure OpenAI",
			[]string{
				"x-ratelimit-limit-tokens: -1", "x-ratelimit-remaining-tokens: -1",
				"x-ratelimit-reset-tokens: 0",
			},
			``,
		},
		{"Anthropic", []string{
			"anthropic-ratelimit-input-tokens-limit: 50", "anthropic-ratelimit-input-tokens-remaining: 5",
			"anthropic-ratelimit-input-tokens-reset: 2026-11-20T19:31:00Z",
		},
			`"input-tokens" 5 of 50 input-tokens reset 1m0s`},
		{"Linear", []string{
			"X-RateLimit-Requests-Remaining: 12", "X-RateLimit-Requests-Reset: 1795203090000",
			"X-RateLimit-Complexity-Remaining: 0",
			"X-RateLimit-Complexity-Reset: 1795203030000", "X-RateLimit-Endpoint-Requests-Limit: 5",
			"X-RateLimit-Endpoint-Name: x"},
			"\"complexity\" 0 complexity reset 30s\n\"requests\" 12 reset 1m30s\n\"endpoint-requests\" of 5"},
		{"Kong", []string{
			"X-RateLimit-Limit-Second: 5", "X-RateLimit-Remaining-Second: 4", "X-RateLimit-Limit-Hour: 10000",
			"X-RateLimit-Remaining-Hour: 0",
			"RateLimit-Limit: 5", "RateLimit-Remaining: 4", "RateLimit-Reset: 1"},
			"\"hour\" 0 of 10000 per 1h0m0s\n4 of 5 reset 1s\n\"second\" 4 of 5 per 1s"},

		{"two dialects that agree", []string{
			`RateLimit: "a";r=4;t=1`, `RateLimit-Policy: "a";q=5;w=60`, "X-RateLimit-Limit: 5",
			"X-RateLimit-Remaining: 4", "X-RateLimit-Reset: 1795203012",
		},
			`"a" 4 of 5 per 1m0s next 1s reset 12s`},
		{"three that agree", []string{
			`RateLimit: limit=5, remaining=4, reset=12`, "RateLimit-Policy: 5;w=60", "RateLimit-Limit: 5",
			"RateLimit-Remaining: 4", "RateLimit-Reset: 12",
			"X-RateLimit-Limit: 5", "X-RateLimit-Remaining: 4",
			"X-RateLimit-Reset: 1795203013"}, `4 of 5 per 1m0s reset 13s`},
		{"two that do not", []string{
			`RateLimit: "a";r=4;t=1`, `RateLimit-Policy: "a";q=5;w=60`, "X-RateLimit-Limit: 5",
			"X-RateLimit-Remaining: 3", "X-RateLimit-Reset: 12",
		},
			"3 of 5 reset 12s\n\"a\" 4 of 5 per 1m0s next 1s"},
		{"two resets", []string{
			"X-RateLimit-Limit: 5", "X-RateLimit-Remaining: 0", "X-RateLimit-Reset: 10", "RateLimit-Limit: 5",
			"RateLimit-Remaining: 0", "RateLimit-Reset: 30",
		},
			"0 of 5 reset 30s\n0 of 5 reset 10s"},
		{
			"a policy known by its quota",
			[]string{
				`RateLimit-Policy: "a";q=5;w=60, "b";q=7;w=1`, "X-RateLimit-Limit: 5",
				"X-RateLimit-Remaining: 3",
			},
			"\"a\" 3 of 5 per 1m0s\n\"b\" of 7 per 1s",
		},

		{"nothing", []string{"Content-Type: x", "Server: y", "Age: 0", "X-Request-Id: 1", "Accept-Ranges: bytes"}, ``},
		{"no numbers", []string{"X-RateLimit-Limit: many", "X-RateLimit-Remaining: some", "X-RateLimit-Reset: soon"}, ``},
		{
			"other fields",
			[]string{
				"X-RateLimit-Used: 1", "X-RateLimit-Bucket: 1", "RateLimit-Name: 1", "X-RateLimit: 1",
				"X-Rate-Limit: 700", "X-RateLimit-: 1", "Anthropic-RateLimit-: 1", "X-RateLimit-Retry-After: 1",
			},
			``,
		},
		{
			"another vendor's",
			[]string{"x-sib-ratelimit-limit: 1", "x-sib-ratelimit-remaining: 0", "x-sib-ratelimit-reset: 12"},
			``,
		},
		{
			"from a cache",
			[]string{`RateLimit: "a";r=0;t=1`, "X-RateLimit-Remaining: 0", "X-RateLimit-Reset: 5", "Age: 1"},
			``,
		},
		{
			"the least of two lines",
			[]string{"X-RateLimit-Remaining: 7", "X-RateLimit-Remaining: x", "X-RateLimit-Remaining: 5"}, `5`,
		},
	} {
		assert.Equal(t, c.want, parsed(c.fields...), c.what)
	}
}

func TestTheTightestIsFirst(t *testing.T) {
	assert.Equal(t, strings.Join([]string{
		`"e" 0 next 20s`, `"d" 0 next 10s`, `"f" 0`, `"c" 1 of 100`, `"b" 50 of 100 next 1s`, `"a" 5 of 10`,
		`"g" 1`, `"h" of 3`,
	}, "\n"), parsed(
		`RateLimit: "a";r=5, "b";r=50;t=1, "c";r=1, "d";r=0;t=10, "e";r=0;t=20, "f";r=0, "g";r=1`,
		`RateLimit-Policy: "a";q=10, "b";q=100, "c";q=100, "h";q=3`,
	))
}

func TestTheOrderIsAlwaysTheSame(t *testing.T) {
	fields := []string{}
	for i := range 30 {
		fields = append(
			fields, fmt.Sprintf("X-RateLimit-Remaining-D%d: %d", i, i%3),
			fmt.Sprintf("X-RateLimit-Reset-D%d: %d", i, i%5),
		)
	}
	first := parsed(fields...)
	for range 20 {
		require.Equal(t, first, parsed(fields...))
	}
}

func TestLimitWait(t *testing.T) {
	for _, c := range []struct {
		l    ratelimit.Limit
		want time.Duration
	}{
		{ratelimit.Limit{Remaining: 0, Next: 5, Reset: 7}, 5},
		{ratelimit.Limit{Remaining: 0, Next: -1, Reset: 7}, 7},
		{ratelimit.Limit{Remaining: 0, Next: -1, Reset: -1}, 0},
		{ratelimit.Limit{Remaining: 1, Next: 5, Reset: 7}, 0},
		{ratelimit.Limit{Remaining: -1, Next: 5, Reset: 7}, 0},
	} {
		assert.Equal(t, c.want, c.l.Wait(), "%+v", c.l)
	}
}

func TestAtIsWhenTheResponseWasReceived(t *testing.T) {
	h := header("X-RateLimit-Remaining: 1", "X-RateLimit-Reset: 1795206660", "Date: Fri, 20 Nov 2026 20:30:00 GMT")
	assert.Equal(t, now, ratelimit.Parse(h, now)[0].At)
	synctest.Test(t, func(t *testing.T) {
		assert.Equal(t, time.Now(), ratelimit.Parse(h, time.Time{})[0].At)
	})
}

// algorithms are the known ones, and none.
var algorithms = []string{
	"", ratelimit.TokenBucket, ratelimit.LeakyBucket, ratelimit.FixedWindow, ratelimit.SlidingWindow,
	ratelimit.SlidingLog,
}

// In every style that has all of it, apart from rounding to whole seconds.
func TestParseReadsWhatSetWrote(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	for range 2000 {
		l := ratelimit.Limit{
			Name: []string{"", "default", "a\"b\\c", "per-ip"}[random.IntN(4)], Quota: 2 + random.Int64N(1000),
			Window:    time.Duration(1+random.IntN(4000)) * time.Second,
			Partition: []string{"", "bob", "\x00\xff"}[random.IntN(3)], Unit: []string{"", "content-bytes"}[random.IntN(2)],
			Next: time.Duration(1 + random.Int64N(1e12)), At: now, Algorithm: algorithms[random.IntN(len(algorithms))],
		}
		l.Remaining = random.Int64N(l.Quota)
		l.Reset = l.Next + time.Duration(random.Int64N(1e12))
		for style, whole := range map[ratelimit.Style]bool{
			ratelimit.Draft11 | ratelimit.XRateLimit: true, ratelimit.Draft11 | ratelimit.XRateLimitDelta: true,
			ratelimit.Draft11: true,
			ratelimit.Draft07: false, ratelimit.Draft07 | ratelimit.Draft06 | ratelimit.XRateLimit: false,
		} {
			h := http.Header{}
			ratelimit.Set(h, style, l)
			limits := ratelimit.Parse(h, now)
			require.Len(t, limits, 1, "%v", h)
			got, want := limits[0], l
			want.Next, want.Reset = ceilSecond(l.Next), ceilSecond(l.Reset)
			if want.Name == "" {
				want.Name = "default"
			}
			if style == ratelimit.Draft11 {
				want.Reset = -1
			}
			if !whole { // earlier drafts have no such names
				want.Name, want.Unit, want.Partition, want.Next = "", "", "", -1
			}
			require.Equal(t, want, got, "%v", h)
		}
	}
}

func ceilSecond(d time.Duration) time.Duration {
	return (d + time.Second - 1).Truncate(time.Second)
}

func TestParseDoesNotAllocateForNothing(t *testing.T) {
	for _, h := range []http.Header{
		nil, {}, plain(),
		header(
			"X-RateLimit-Used: 1", "RateLimit-Name: x", "Anthropic-RateLimit-Tokens: 1",
			"X-RateLimit-Reset-: 1",
		),
		header("RateLimit: !!!"),
	} {
		require.Empty(t, ratelimit.Parse(h, now))
		assert.Zero(t, testing.AllocsPerRun(10, func() { ratelimit.Parse(h, now) }), "%v", h)
		assert.Zero(t, testing.AllocsPerRun(10, func() { ratelimit.Wait(429, h, now) }), "%v", h)
	}
	h := pair(plain())
	assert.Zero(t, testing.AllocsPerRun(10, func() { ratelimit.Wait(429, h, now) }))
	assert.Equal(t, 1.0, testing.AllocsPerRun(10, func() { ratelimit.Parse(h, now) }))
}

func TestLongQuotaFieldsAreReadInLinearTime(t *testing.T) {
	defer endsInTime(t)()
	size := 1 << 16
	if testenv.Long() {
		size = 1 << 18
	}
	fill := func(s string) string { return strings.Repeat(s, size/len(s)) }
	list := func(s string) string { return strings.TrimSuffix(fill(s+","), ",") }
	headers := []http.Header{
		{"Ratelimit": {list(`"a";r=0;t=1`)}, "Ratelimit-Policy": {list(`"b";q=1;w=1`)}},
		{"Ratelimit": {`"a"` + fill(";r=0")}, "Ratelimit-Policy": {`"b"` + fill(`;q=1`)}},
		{"Ratelimit": {`"` + fill(`\"`) + `";r=1`}, "Ratelimit-Policy": {`"` + fill(`a`)}},
		{"Ratelimit": {list("limit=1")}, "Ratelimit-Policy": {list("1;w=1")}},
		{"Ratelimit": {"limit=" + fill("(")}, "X-Ratelimit-Limit": {list("1;w=1")}},
		{"Ratelimit": {`"a";r=0;pk=:` + fill("YWFh") + ":"}, "X-Ratelimit-Limit": {fill("9")}},
		{"Ratelimit": {`"a";r=0;x=%"` + fill("%c3%a9") + `"`}, "X-Ratelimit-Remaining": {fill(",")}},
		{"Ratelimit": {`"a";r=0;x=` + fill("a")}, "X-Ratelimit-Remaining": {fill("0")}, "X-Ratelimit-Reset": {fill("1,")}},
		{
			"X-Ratelimit-Reset-" + fill("A"): {"1"}, "X-Ratelimit-" + fill("-") + "Reset": {"1"},
			"Anthropic-Ratelimit-" + fill("Reset-"): {"1"},
		},
	}
	many := http.Header{}
	for i := range 1 << 13 {
		many.Set(fmt.Sprintf("X-RateLimit-Reset-D%d", i), "1")
		many.Set(fmt.Sprintf("X-RateLimit-D%d-Remaining", i), "1")
	}
	for _, h := range append(headers, many) {
		ratelimit.Parse(h, now)
		ratelimit.Wait(429, h, now)
	}
}
