package ratelimit_test

import (
	"fmt"
	"strings"
	"testing"
)

// A resetRow is the reset of a used-up quota, and the wait that follows.
type resetRow struct{ value, want string }

// resets are values of a reset at 2026-11-20T19:30:00Z.
var resets = []resetRow{
	{"0", "0s"}, {"1", "1s"}, {"007", "7s"}, {" 7\t", "7s"}, {"0.25", "250ms"}, {"0.0001", "1ms"},
	{"64.57", "1m4.57s"}, {"3600;w=5", "1h0m0s"}, {"30 ; x", "30s"},
	{"999999999", "277777h46m39s"}, {"999999999.5", "277777h46m39.5s"}, {"1000000000", "0s"},
	{"1795203000", "0s"}, {"1795202999", "0s"}, {"1795203001", "1s"},
	{"1795203012.5", "12.5s"}, {"1795203012.0001", "12.001s"}, {"1795203012000", "12s"},
	{"1795203012345", "12.345s"}, {"1795203012345000", "12.345s"},
	{"1795203012345001", "12.346s"}, {"1795203012345000000", "12.345s"}, {"1795203012345000001", "12.346s"},
	{"00001795203012", "12s"},
	{"99999999999", longest}, {"100000000000", "0s"}, {"99999999999999", longest}, {"100000000000000", "0s"},
	{"99999999999999999999", longest},
	{"1s", "1s"}, {"20ms", "20ms"}, {"6m0s", "6m0s"}, {"1h2m3.5s", "1h2m3.5s"}, {"1d2h", "26h0m0s"},
	{"1500us", "2ms"}, {"1500\u00b5s", "2ms"}, {"1ns", "1ms"}, {"30s;x", "30s"},
	{"Fri, 20 Nov 2026 19:30:12 GMT", "12s"}, {"Friday, 20-Nov-26 19:30:12 GMT", "12s"},
	{"Fri Nov 20 19:30:12 2026", "12s"}, {"Fri, 20 Nov 2026 19:29:12 GMT", "0s"},
	{"Fri, 20 Nov 2026 20:30:12 +0100", "12s"}, {"Fri, 20 Nov 2026 19:30:12 UTC", "12s"},
	{"Fri, 20 Nov 2026 19:30:60 GMT", "1m0s"},
	{"2026-11-20T19:30:12Z", "12s"}, {"2026-11-20T19:30:12.25Z", "12.25s"},
	{"2026-11-20T20:30:12+01:00", "12s"}, {"2026-11-20T19:31Z", "1m0s"}, {"2026-11-20 19:30:12 UTC", "12s"},
	{"2026-11-20T19:29:59Z", "0s"},

	{"", none}, {" ", none}, {"soon", none}, {"-1", none}, {"-0", none}, {"+5", none}, {"1e3", none},
	{"0x10", none}, {"1_000", none}, {"NaN", none}, {"Inf", none}, {".5", none}, {"5.", none},
	{"1.2.3", none}, {"١٢", none}, {"100000000000000000000", none}, {"5 s", none}, {"1w", none}, {"PT5S", none},
	{"-5s", none}, {";5", none}, {"null", none},
	{"2026-11-20T19:30:12", none}, {"2026-11-20", none}, {"19:30:12", none},
	{"Fri, 20 Nov 2026 19:30:12 PST", none}, {"Fri, 31 Nov 2026 19:30:12 GMT", none},
	{"Fri, 20 Nov 2026 24:00:00 GMT", none},
	{"Tue Feb 16 2021 09:02:42 GMT+0100 (Central European Standard Time)", none},
	{"2026-02-29T00:00:00Z", none},
}

func TestEveryFamilyHasAReset(t *testing.T) {
	for _, r := range resets {
		for _, prefix := range []string{"RateLimit-", "X-RateLimit-", "X-Rate-Limit-"} {
			run(t, []row{{r.want, []string{prefix + "Remaining: 0", prefix + "Reset: " + r.value}}})
		}
		run(t, []row{
			{r.want, []string{"X-RateLimit-Remaining-Tokens: 0", "X-RateLimit-Reset-Tokens: " + r.value}},
			{r.want, []string{"X-RateLimit-Tokens-Remaining: 0", "X-RateLimit-Tokens-Reset: " + r.value}},
			{r.want, []string{"Anthropic-RateLimit-Tokens-Remaining: 0", "Anthropic-RateLimit-Tokens-Reset: " + r.value}},
		})
	}
}

func TestResetsAreMeasuredByTheServersClock(t *testing.T) {
	for _, value := range []string{
		"1795206612", "1795206612000", "Fri, 20 Nov 2026 20:30:12 GMT", "2026-11-20T20:30:12Z",
	} {
		run(t, []row{
			{
				"12s",
				[]string{
					"X-RateLimit-Remaining: 0", "X-RateLimit-Reset: " + value,
					"Date: Fri, 20 Nov 2026 20:30:00 GMT",
				},
			},
			{"1h0m12s", []string{"X-RateLimit-Remaining: 0", "X-RateLimit-Reset: " + value}},
			{"1h0m12s", []string{"X-RateLimit-Remaining: 0", "X-RateLimit-Reset: " + value, "Date: now"}},
			{
				"1h0m12s",
				[]string{
					"X-RateLimit-Remaining: 0", "X-RateLimit-Reset: " + value,
					"Date: Thu, 01 Jan 1970 00:00:00 GMT",
				},
			},
		})
	}
	run(
		t,
		[]row{
			{
				"12s",
				[]string{
					"X-RateLimit-Remaining: 0", "X-RateLimit-Reset: 12", "Date: Fri, 20 Nov 2026 20:30:00 GMT",
				},
			},
		},
	)
}

func TestRemainingIsParsed(t *testing.T) {
	const free, unknown = "free", "unknown"
	for value, means := range map[string]string{
		"0": "", "00": "", "0.0": "", "0.5": "", "0.999": "", " 0 ": "", "0;w=60": "", "0 ; w=60": "",
		"0, 5": "", "0,": "",
		"1": free, "1.0": free, "598.0": free, "01": free, "4999": free, "5;w=0": free, "5, 0": free,
		"99999999999999999999999": free,
		"":                        unknown, " ": unknown, "none": unknown, "-1": unknown, "-0": unknown,
		"+0": unknown, "0x0": unknown,
		"0e0": unknown, ".0": unknown, "0.": unknown, "NaN": unknown,
		";0": unknown, ",0": unknown, "0/5": unknown, "null": unknown, "false": unknown, "٠": unknown,
	} {
		for status, refused := range map[int]bool{
			429: true, 420: true, 430: true, 403: false, 503: false, 400: false, 500: false, 529: false,
			600: false,
		} {
			want := none
			if means == "" || means == unknown && refused {
				want = "30s"
			}
			for _, prefix := range []string{"RateLimit-", "X-RateLimit-", "X-Rate-Limit-"} {
				h := header(prefix+"Remaining: "+value, prefix+"Reset: 30")
				if got := answer(status, h, now); got != want {
					t.Errorf("%d %q: got %s, want %s", status, h, got, want)
				}
			}
		}
	}
}

func TestResetAfterTakesPrecedence(t *testing.T) {
	for _, prefix := range []string{"RateLimit-", "X-RateLimit-", "X-Rate-Limit-"} {
		p := func(s string) string { return prefix + s }
		run(t, []row{
			{"1.5s", []string{p("Remaining: 0"), p("Reset-After: 1.5")}},
			{"1.5s", []string{p("Remaining: 0"), p("Reset-After: 1.5"), p("Reset: 900")}},
			{"0s", []string{p("Remaining: 0"), p("Reset-After: 0"), p("Reset: 900")}},
			{"1m30s", []string{p("Remaining: 0"), p("Reset-After: 1m30s")}},
			{longest, []string{p("Remaining: 0"), p("Reset-After: 9999999999999999999999")}},
			{"498667h30m12s", []string{p("Remaining: 0"), p("Reset-After: 1795203012")}}, // never a Unix time
			{"15m0s", []string{p("Remaining: 0"), p("Reset-After: x"), p("Reset: 900")}},
			{none, []string{p("Remaining: 3"), p("Reset-After: 1.5")}},
			{"1.5s", []string{p("Reset-After: 1.5")}},
		})
	}
}

func TestOnlyUsedUpQuotasCount(t *testing.T) {
	run(t, []row{
		// the IETF's
		{"5s", []string{`RateLimit: "a";r=0;t=5`}},
		{"5s", []string{`RateLimit:   "a"; r=0;  t=5 , "b";r=7;t=900`}},
		{"9s", []string{`RateLimit: "a";r=0;t=5`, `RateLimit: "b";r=0;t=9`}},
		{"5s", []string{`RateLimit: "a";r=0;t=5`, `RateLimit: "b";r=0`}},
		{"5s", []string{`RateLimit: "";r=0;t=5`}},
		{"0s", []string{`RateLimit: "a";r=0;t=0`}},
		{"7s", []string{`RateLimit: "a";r=5;r=0;t=1;t=7`}},
		{"7s", []string{`RateLimit: "a";r=x;r=0;t="";t=7`}},
		{"7s", []string{`RateLimit: "a;\"b\\";r=0;t=7;b=?0;d=1.5;e=tok/en;f=@1;g=%"%c3%a9";h`}},
		{longest, []string{`RateLimit: "a";r=0;t=2147483648`}},
		{longest, []string{`RateLimit: "a";r=0;t=2147483649`}},
		{none, []string{`RateLimit: "a";r=1;t=5`}},
		{none, []string{`RateLimit: "a";r=0`}},
		{none, []string{`RateLimit: a;r=0;t=5`}},
		{none, []string{`RateLimit: 1;r=0;t=5`}},
		{none, []string{`RateLimit: ("a");r=0;t=5`}},
		{none, []string{`RateLimit: "a";r=0;t=5,`}},
		{none, []string{`RateLimit: ,"a";r=0;t=5`}},
		{none, []string{`RateLimit: "a" ;r=0;t=5`}},
		{none, []string{`RateLimit: "a";r=0;t=5 x`}},
		{none, []string{`RateLimit: "a";r=0;t=5.0`}},
		{none, []string{`RateLimit: "a";r=0.0;t=5`}},
		{none, []string{`RateLimit: "a";r=-0.5;t=5`}},
		{none, []string{`RateLimit: "a";r=?0;t=5`}},
		{none, []string{`RateLimit: "a";r;t=5`}},
		{none, []string{`RateLimit: "a";r=0;t`}},
		{none, []string{`RateLimit: "a";r=0;t=`}},
		{none, []string{`RateLimit: "a";r=0;t=+5`}},
		{none, []string{`RateLimit: "a";r=0;t=5;pk="x"`}},
		{none, []string{`RateLimit: "a";r=0;t=5;pk=:*:`}},
		{none, []string{`RateLimit: "é";r=0;t=5`}},
		{none, []string{`RateLimit: "a";r=0;t=5`, `RateLimit: x`}},
		{none, []string{`RateLimit: "a";r=0;t=5`, `RateLimit: `}},
		{none, []string{`RateLimit: `}},
		{none, []string{`RateLimit: "a"`}},
		{none, []string{`RateLimit-Policy: "a";q=0;w=5`}},

		// draft-07's
		{"7s", []string{"RateLimit: limit=10, remaining=0, reset=7"}},
		{"7s", []string{"RateLimit: reset=7,limit=10,remaining=0"}},
		{"7s", []string{"RateLimit: limit=10", "RateLimit: remaining=0", "RateLimit: reset=7"}},
		{"7s", []string{"RateLimit: limit=10, reset=7"}}, // the remainder is unknown
		{"7s", []string{"RateLimit: limit=10;x, remaining=0;y=1, reset=7;z, more, most=(1 2)"}},
		{"7s", []string{"RateLimit: limit=10, remaining=5, remaining=0, reset=7"}},
		{none, []string{"RateLimit: limit=10, remaining=1, reset=7"}},
		{none, []string{"RateLimit: limit=10, remaining=0"}},
		{none, []string{"RateLimit: remaining=0, reset=7"}}, // limit is required
		{none, []string{"RateLimit: limit=10, remaining=0, reset=-7"}},
		{none, []string{"RateLimit: limit=10, remaining=0, reset=7.5"}},
		{none, []string{`RateLimit: limit=10, remaining=0, reset="7"`}},
		{none, []string{"RateLimit: limit=10, remaining=0, reset=7,"}},
		{none, []string{"RateLimit: Limit=10, Remaining=0, Reset=7"}},
		{none, []string{"RateLimit: limit=10; remaining=0; reset=7"}},
		{none, []string{"RateLimit: limit = 10, remaining = 0, reset = 7"}},
		{none, []string{"RateLimit: limit, remaining, reset"}},

		// several families
		{"9s", []string{`RateLimit: "a";r=0;t=5`, "X-RateLimit-Remaining: 0", "X-RateLimit-Reset: 9"}},
		{"5s", []string{`RateLimit: "a";r=0;t=5`, "X-RateLimit-Remaining: 1", "X-RateLimit-Reset: 9"}},
		{"5s", []string{`RateLimit: "a";r=0;t=5`, "X-RateLimit-Reset: 9"}},
		{"9s", []string{`RateLimit: "a";r=1;t=5`, "X-RateLimit-Reset: 9"}},
		{"9s", []string{`RateLimit: "a";r=0;t=x`, "X-RateLimit-Remaining: 0", "X-RateLimit-Reset: 9"}},
		{none, []string{`RateLimit: "a";r=0`, "X-RateLimit-Reset: 9"}},
		{none, []string{"RateLimit-Remaining: 0", "X-RateLimit-Reset: 9"}},
		{"9s", []string{"RateLimit-Remaining: 0", "X-RateLimit-Remaining: 0", "X-RateLimit-Reset: 9"}},
		{"12s", []string{"RateLimit-Reset: 9", "X-RateLimit-Reset: 7", "X-Rate-Limit-Reset: 12"}},
		{"7s", []string{"RateLimit-Remaining: 2", "RateLimit-Reset: 9", "X-RateLimit-Reset: 7"}},
		{
			"9s",
			[]string{
				"X-RateLimit-Remaining: 0", "X-RateLimit-Reset: 7", "X-RateLimit-Remaining-Day: 0",
				"X-RateLimit-Reset-Day: 9",
			},
		},
		{
			"7s",
			[]string{
				"X-RateLimit-Remaining: 0", "X-RateLimit-Reset: 7", "X-RateLimit-Remaining-Day: 3",
				"X-RateLimit-Reset-Day: 9",
			},
		},

		// several lines
		{
			"9s",
			[]string{
				"X-RateLimit-Remaining: 0", "X-RateLimit-Reset: 7", "X-RateLimit-Reset: 9",
				"X-RateLimit-Reset: x",
			},
		},
		{"7s", []string{"X-RateLimit-Remaining: 5", "X-RateLimit-Remaining: 0", "X-RateLimit-Reset: 7"}},
		{"7s", []string{"X-RateLimit-Remaining: x", "X-RateLimit-Remaining: 0", "X-RateLimit-Reset: 7"}},
		{none, []string{"X-RateLimit-Remaining: x", "X-RateLimit-Remaining: 2", "X-RateLimit-Reset: 7"}},
		{"9s", []string{"X-RateLimit-Remaining: 0", "X-RateLimit-Reset: 7, 9"}},

		// dimensions
		{
			"7s",
			[]string{
				"X-RateLimit-Remaining-Requests: 0", "X-RateLimit-Reset-Requests: 7s",
				"X-RateLimit-Remaining-Tokens: 9", "X-RateLimit-Reset-Tokens: 6m",
			},
		},
		{
			"6m0s",
			[]string{
				"X-RateLimit-Remaining-Requests: 0", "X-RateLimit-Reset-Requests: 7s",
				"X-RateLimit-Remaining-Tokens: 0", "X-RateLimit-Reset-Tokens: 6m",
			},
		},
		{"7s", []string{"X-RateLimit-Reset-Images: 7"}},
		{"7s", []string{"X-RateLimit-Images-Reset: 7"}},
		{"7s", []string{"X-RateLimit-Per-Day-And-User-Reset: 7", "X-RateLimit-Per-Day-And-User-Remaining: 0"}},
		{
			"7s",
			[]string{
				"Anthropic-RateLimit-Output-Tokens-Reset: 7", "Anthropic-RateLimit-Output-Tokens-Remaining: 0",
				"Anthropic-RateLimit-Requests-Remaining: 1", "Anthropic-RateLimit-Requests-Reset: 9",
			},
		},
		{none, []string{"Anthropic-RateLimit-Reset-Tokens: 7", "Anthropic-RateLimit-Remaining-Tokens: 0"}},
		{none, []string{"X-RateLimit-Remaining-Tokens: 0"}},
		{none, []string{"X-RateLimit-Remaining-Tokens: -1", "X-RateLimit-Reset-Tokens: 7"}},
		{none, []string{"X-RateLimit-Tokens-Remaining: -1", "X-RateLimit-Tokens-Reset: 7"}},
		{none, []string{"Anthropic-RateLimit-Tokens-Remaining: -1", "Anthropic-RateLimit-Tokens-Reset: 7"}},
		{"7s", []string{"X-RateLimit-Remaining-Tokens: many", "X-RateLimit-Reset-Tokens: 7"}},
		// whose remainder is unknown
		{
			"7s",
			[]string{
				"X-RateLimit-Remaining-Tokens: 0", "X-RateLimit-Reset-Tokens: 7",
				"X-RateLimit-Tokens-Reset: 900",
			},
		},
		{none, []string{"X-RateLimit-Tokens-Remaining: 0", "X-RateLimit-Reset-Tokens: x"}},
		{none, []string{"X-Foo-RateLimit-Remaining: 0", "X-Foo-RateLimit-Reset: 7"}},
		{none, []string{"X-Sib-RateLimit-Remaining: 0", "X-Sib-RateLimit-Reset: 7"}},
		{none, []string{"RateLimit-Remaining-Tokens: 0", "RateLimit-Reset-Tokens: 7"}},
		{none, []string{"X-RateLimit-Reset-: 7", "X-RateLimit--Reset: 7", "X-RateLimit-: 7"}},

		// without a time
		{none, []string{"X-RateLimit-Remaining: 0"}},
		{none, []string{"X-RateLimit-Limit: 0", "X-RateLimit-Used: 5"}},
		{none, []string{"X-RateLimit-Limit-Minute: 60", "X-RateLimit-Remaining-Minute: 0"}},
		{none, []string{"RateLimit-ResetTime: Fri, 20 Nov 2026 19:30:12 GMT"}},

		// from a cache
		{none, []string{`RateLimit: "a";r=0;t=5`, "Age: 1"}},
		{none, []string{"X-RateLimit-Remaining: 0", "X-RateLimit-Reset: 7", "Age: 99999999999999999999"}},
		{none, []string{"X-RateLimit-Remaining-Tokens: 0", "X-RateLimit-Reset-Tokens: 7", "Age: 5, 0"}},
		{"7s", []string{"X-RateLimit-Remaining: 0", "X-RateLimit-Reset: 7", "Age: 0"}},
		{"7s", []string{"X-RateLimit-Remaining: 0", "X-RateLimit-Reset: 7", "Age: -1"}},
		{"7s", []string{"X-RateLimit-Remaining: 0", "X-RateLimit-Reset: 7", "Age: old"}},
		{"7s", []string{"X-RateLimit-Remaining: 0", "X-RateLimit-Reset: 7", "Age: 0, 5"}},
		{"3s", []string{"X-RateLimit-Remaining: 0", "X-RateLimit-Reset: 7", "Age: 5", "Retry-After: 3"}},
	})
}

func TestExplicitDelaysTakePrecedenceOverQuotas(t *testing.T) {
	quotas := []string{
		`RateLimit: "a";r=0;t=40`, "X-RateLimit-Remaining: 0", "X-RateLimit-Reset: 900",
		"X-RateLimit-Remaining-Tokens: 0", "X-RateLimit-Reset-Tokens: 6m",
	}
	for field, want := range map[string]string{
		"Retry-After: 20": "20s", "Retry-After: 0": "0s", "Retry-After: 0.5": "500ms", "Retry-After: 3600": "1h0m0s",
		"Retry-After: Fri, 31 Dec 1999 23:59:59 GMT": "0s", "Retry-After: Fri, 20 Nov 2026 19:30:12 GMT": "12s",
		"Retry-After-Ms: 750": "750ms", "X-Ms-Retry-After-Ms: 0": "0s", "X-Amz-Retry-After: 5": "5ms",
		"X-Retry-In: 2s": "2s", "X-Retry-After: 1795203005": "5s", "X-RateLimit-Retry-After: 3": "3s",
		"Retry-After: ": "15m0s", "Retry-After: soon": "15m0s", "Retry-After: -5": "15m0s",
		"Retry-After-Ms: x": "15m0s", "X-Retry-In: 5": "15m0s", "X-Retry-After: x": "15m0s",
	} {
		run(t, []row{{want, append([]string{field}, quotas...)}})
	}
}

func TestRedirectsOnlyHaveExplicitDelays(t *testing.T) {
	for status, want := range map[int]string{
		200: none, 204: none, 301: none, 302: none, 304: none, 307: none, 399: none, 400: "7s", 404: "7s",
		599: "7s", 600: "7s", 999: "7s", 99: "7s", 0: "7s",
	} {
		for _, fields := range [][]string{
			{`RateLimit: "a";r=0;t=7`}, {"X-RateLimit-Remaining: 0", "X-RateLimit-Reset: 7"},
			{"X-RateLimit-Remaining-A: 0", "X-RateLimit-Reset-A: 7"},
		} {
			if got := answer(status, header(fields...), now); got != want {
				t.Errorf("%d %q: got %s, want %s", status, fields, got, want)
			}
		}
	}
	for status, want := range map[int]string{200: none, 301: "3s", 304: "3s", 429: "3s"} {
		if got := answer(status, header("Retry-After: 3", `RateLimit: "a";r=0;t=7`), now); got != want {
			t.Errorf("%d: got %s, want %s", status, got, want)
		}
	}
}

// The order of the fields of a map must not matter, nor how many there are.
func TestManyQuotasAreAllRead(t *testing.T) {
	var fields []string
	for i := range 200 {
		fields = append(
			fields, fmt.Sprintf("X-RateLimit-Remaining-D%d: %d", i, i%2),
			fmt.Sprintf("X-RateLimit-Reset-D%d: %d", i, i),
		)
	}
	run(t, []row{{"3m18s", fields}})
	var items []string
	for i := range 200 {
		items = append(items, fmt.Sprintf(`"p%d";r=%d;t=%d`, i, i%2, i))
	}
	run(t, []row{{"3m18s", []string{"RateLimit: " + strings.Join(items, ",")}}})
}
