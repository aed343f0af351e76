package ratelimit_test

import (
	"fmt"
	"maps"
	"math"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/dunglas/httpsfv"

	"github.com/heedhttp/heed/ratelimit"
)

// lines returns h as it would be sent, in order.
func lines(h http.Header) string {
	var b strings.Builder
	for _, name := range slices.Sorted(maps.Keys(h)) {
		for _, value := range h[name] {
			fmt.Fprintf(&b, "%s: %s\n", name, value)
		}
	}
	return b.String()
}

// set returns what Set writes.
func set(style ratelimit.Style, limits ...ratelimit.Limit) string {
	h := http.Header{}
	ratelimit.Set(h, style, limits...)
	return lines(h)
}

func expect(t *testing.T, got string, want ...string) {
	t.Helper()
	if all := strings.Join(append(want, ""), "\n"); got != all {
		t.Errorf("got\n%s\nwant\n%s", got, all)
	}
}

// limit's At+Reset is 19:30:35.3.
const resetUnix = "1795203036"

func TestEachStyleWritesItsFieldsAndNoOthers(t *testing.T) {
	draft11 := []string{`Ratelimit: "default";r=42;t=17`, `Ratelimit-Policy: "default";q=100;w=60`}
	unix := []string{"X-Ratelimit-Limit: 100", "X-Ratelimit-Remaining: 42", "X-Ratelimit-Reset: " + resetUnix}
	delta := []string{"X-Ratelimit-Limit: 100", "X-Ratelimit-Remaining: 42", "X-Ratelimit-Reset: 35"}
	draft07 := []string{"Ratelimit: limit=100, remaining=42, reset=35", "Ratelimit-Policy: 100;w=60"}
	draft06 := []string{"Ratelimit-Limit: 100", "Ratelimit-Remaining: 42", "Ratelimit-Reset: 35"}

	for _, c := range []struct {
		style ratelimit.Style
		want  [][]string
	}{
		{ratelimit.Draft11, [][]string{draft11}},
		{ratelimit.XRateLimit, [][]string{unix}},
		{ratelimit.XRateLimitDelta, [][]string{delta}},
		{ratelimit.Draft07, [][]string{draft07}},
		{ratelimit.Draft06, [][]string{draft06}},
		{ratelimit.None, nil},
		{0, [][]string{draft11, unix}},
		{ratelimit.Draft11 | ratelimit.XRateLimit, [][]string{draft11, unix}},
		{ratelimit.Draft06 | ratelimit.XRateLimit, [][]string{draft06, unix}},
		{ratelimit.XRateLimit | ratelimit.XRateLimitDelta, [][]string{unix}},
		{ratelimit.Draft11 | ratelimit.Draft07 | ratelimit.Draft06, [][]string{draft11}},
		{ratelimit.None | ratelimit.Draft11 | ratelimit.XRateLimit, nil},
	} {
		expect(t, set(c.style, limit("default")), slices.Concat(c.want...)...)
	}
	expect(t, set(ratelimit.Draft07|ratelimit.Draft06, limit("default")),
		draft07[0], draft06[0], draft07[1], draft06[1], draft06[2])
}

func TestSetWithoutLimitsWritesNothing(t *testing.T) {
	expect(t, set(ratelimit.Draft11|ratelimit.XRateLimit|ratelimit.Draft07))
}

func TestTheZeroLimitIsWrittenAsZeros(t *testing.T) {
	expect(t, set(0, ratelimit.Limit{}),
		`Ratelimit: "default";r=0`, `Ratelimit-Policy: "default";q=0`,
		"X-Ratelimit-Limit: 0", "X-Ratelimit-Remaining: 0", "X-Ratelimit-Reset: 0")
}

func TestTheZeroTemplateWritesNothing(t *testing.T) {
	h := http.Header{}
	ratelimit.Template{}.Set(h, limit("default"))
	expect(t, lines(h))
}

func TestListsHaveAllLimitsOtherFieldsTheTightest(t *testing.T) {
	day := ratelimit.Limit{
		Name: "day", Quota: 5000, Window: 24 * time.Hour, Remaining: 4000, Next: time.Second, Reset: time.Hour,
		At: now,
	}
	expect(t, set(ratelimit.Draft11|ratelimit.XRateLimit, limit("minute"), day),
		`Ratelimit: "minute";r=42;t=17, "day";r=4000;t=1`,
		`Ratelimit-Policy: "minute";q=100;w=60, "day";q=5000;w=86400`,
		"X-Ratelimit-Limit: 100", "X-Ratelimit-Remaining: 42", "X-Ratelimit-Reset: "+resetUnix)
	expect(t, set(ratelimit.Draft07, day, limit("minute")),
		"Ratelimit: limit=5000, remaining=4000, reset=3600",
		"Ratelimit-Policy: 5000;w=86400, 100;w=60")
}

func TestListsAreAppendedOtherFieldsReplaced(t *testing.T) {
	h := http.Header{}
	ratelimit.Set(h, 0, limit("outer"))
	ratelimit.Set(
		h, 0,
		ratelimit.Limit{Name: "inner", Quota: 5, Window: time.Second, Remaining: 4, Next: 1, Reset: 1, At: now},
	)
	expect(t, lines(h),
		`Ratelimit: "outer";r=42;t=17`,
		`Ratelimit: "inner";r=4;t=1`,
		`Ratelimit-Policy: "outer";q=100;w=60`,
		`Ratelimit-Policy: "inner";q=5;w=1`,
		"X-Ratelimit-Limit: 5", "X-Ratelimit-Remaining: 4", "X-Ratelimit-Reset: 1795203001")
}

func TestAppendingToAFieldLeavesTheOthersAlone(t *testing.T) {
	h := http.Header{}
	ratelimit.Set(h, 0, limit("default"))
	before := h.Clone()
	for name := range h {
		h.Add(name, "more")
	}
	for name := range before {
		before[name] = append(before[name], "more")
	}
	expect(t, lines(h), strings.Split(strings.TrimSpace(lines(before)), "\n")...)
}

func TestChangingAFieldInPlaceLeavesTheOthersAlone(t *testing.T) {
	for _, style := range []ratelimit.Style{
		ratelimit.Draft11 | ratelimit.XRateLimit, ratelimit.Draft07 | ratelimit.Draft06 | ratelimit.XRateLimit,
	} {
		h := http.Header{}
		ratelimit.Set(h, style, limit("default"))
		want := h.Clone()
		for name := range h {
			h[name][0] = "changed"
			for other := range h {
				if other != name && h.Get(other) != want.Get(other) {
					t.Errorf("changing %s made %s %q", name, other, h.Get(other))
				}
			}
			h[name][0] = want.Get(name)
		}
	}
}

func TestTemplateSetWritesWhatSetWrites(t *testing.T) {
	minute, hour := limit("minute"), limit("hour")
	hour.Quota, hour.Window = 1000, time.Hour
	template := ratelimit.Prepare(0, minute, hour)
	hour.Remaining = 1
	h := http.Header{}
	template.Set(h, hour, minute)
	expect(t, lines(h),
		`Ratelimit: "hour";r=1;t=17, "minute";r=42;t=17`,
		`Ratelimit-Policy: "minute";q=100;w=60, "hour";q=1000;w=3600`,
		"X-Ratelimit-Limit: 1000", "X-Ratelimit-Remaining: 1", "X-Ratelimit-Reset: "+resetUnix)
}

// Only RateLimit-Policy keeps the order of Prepare.
func TestTemplateLimitsMayComeInAnyOrder(t *testing.T) {
	a, b, c := limit("a"), limit(`"b"`), limit("c")
	a.Quota, b.Quota, c.Quota = 7, 80, 900
	a.Remaining, b.Remaining, c.Remaining = 6, 50, 400
	for _, style := range []ratelimit.Style{0, ratelimit.Draft07 | ratelimit.Draft06, ratelimit.XRateLimitDelta} {
		template := ratelimit.Prepare(style, a, b, c)
		for _, limits := range [][]ratelimit.Limit{{a, b, c}, {b, a, c}, {c, b, a}, {c, a, b}, {b, c}, {a}} {
			got, want := http.Header{}, http.Header{}
			template.Set(got, limits...)
			ratelimit.Set(want, style, limits...)
			delete(got, "Ratelimit-Policy")
			delete(want, "Ratelimit-Policy")
			if lines(got) != lines(want) {
				t.Errorf("got\n%s\nwant\n%s", lines(got), lines(want))
			}
		}
	}
}

func TestNextIsRoundedUpAndOmittedWhenZero(t *testing.T) {
	for next, want := range map[time.Duration]string{
		-1: "", 0: "", 1: ";t=1", time.Millisecond: ";t=1", time.Second: ";t=1", time.Second + 1: ";t=2",
		17 * time.Second: ";t=17",
		math.MaxInt64:    ";t=9223372037", math.MinInt64: "",
	} {
		h := http.Header{}
		ratelimit.Set(h, ratelimit.Draft11, ratelimit.Limit{Next: next})
		if got := h.Get("RateLimit"); got != `"default";r=0`+want {
			t.Errorf("%v: %s", next, got)
		}
	}
}

// A bucket that needs 1 s at second 1000.9 is full at 1001.9.
func TestResetIsNeverTooEarly(t *testing.T) {
	for _, c := range []struct {
		at    time.Time
		reset time.Duration
		unix  string
		delta string
	}{
		{time.UnixMilli(1_000_900), time.Second, "1002", "1"},
		{time.UnixMilli(1_000_000), time.Second, "1001", "1"},
		{time.UnixMilli(1_000_000), 0, "1000", "0"},
		{time.UnixMilli(1_000_000), 1, "1001", "1"},
		{time.UnixMilli(1_000_000), -time.Hour, "1000", "0"},
		{time.Unix(1_000, 999_999_999), 1, "1001", "1"},
		{time.Unix(-5, 0), time.Second, "0", "1"},
		{time.Unix(0, 0), math.MaxInt64, "9223372037", "9223372037"},
		{time.Unix(1e15, 0), time.Second, "999999999999999", "1"},
	} {
		for style, want := range map[ratelimit.Style]string{
			ratelimit.XRateLimit: c.unix, ratelimit.XRateLimitDelta: c.delta,
		} {
			h := http.Header{}
			ratelimit.Set(h, style, ratelimit.Limit{At: c.at, Reset: c.reset})
			if got := h.Get("X-RateLimit-Reset"); got != want {
				t.Errorf("%v + %v in style %d: got %s, want %s", c.at, c.reset, style, got, want)
			}
		}
	}
}

func TestOnlyWindowsOfWholeSecondsAreWritten(t *testing.T) {
	for window, want := range map[time.Duration]string{
		0: "", -time.Second: "", time.Millisecond: "", 999 * time.Millisecond: "", time.Second: ";w=1",
		1500 * time.Millisecond: "",
		time.Minute:             ";w=60", time.Minute + 1: "", 30 * 24 * time.Hour: ";w=2592000", math.MaxInt64: "",
	} {
		h := http.Header{}
		ratelimit.Set(h, ratelimit.Draft11, ratelimit.Limit{Quota: 3, Window: window})
		if got := h.Get("RateLimit-Policy"); got != `"default";q=3`+want {
			t.Errorf("%v: %s", window, got)
		}
	}
}

func TestDraft07OmitsForbiddenPolicies(t *testing.T) {
	short := ratelimit.Limit{Quota: 100, Window: time.Millisecond}
	expect(t, set(ratelimit.Draft07, short), "Ratelimit: limit=100, remaining=0, reset=0")
	expect(t, set(ratelimit.Draft07, short, limit("a"), limit("b"), ratelimit.Limit{Quota: 7, Window: time.Second}),
		"Ratelimit: limit=100, remaining=0, reset=0", "Ratelimit-Policy: 100;w=60, 7;w=1")
}

func TestNumbersStayInTheRangeOfStructuredFields(t *testing.T) {
	expect(t, set(0, ratelimit.Limit{Quota: math.MaxInt64, Remaining: 1e15}),
		`Ratelimit: "default";r=999999999999999`, `Ratelimit-Policy: "default";q=999999999999999`,
		"X-Ratelimit-Limit: 999999999999999", "X-Ratelimit-Remaining: 999999999999999", "X-Ratelimit-Reset: 0")
	expect(t, set(0, ratelimit.Limit{Quota: -1, Remaining: math.MinInt64}),
		`Ratelimit: "default";r=0`, `Ratelimit-Policy: "default";q=0`,
		"X-Ratelimit-Limit: 0", "X-Ratelimit-Remaining: 0", "X-Ratelimit-Reset: 0")
}

func TestNamesAreEscaped(t *testing.T) {
	for name, want := range map[string]string{
		"": `"default"`, "per user": `"per user"`, `a"b`: `"a\"b"`, `a\`: `"a\\"`, `"`: `"\""`,
		"\r\nSet-Cookie: x": `"%0D%0ASet-Cookie: x"`,
		"café":              `"caf%C3%A9"`, "\x00\x7f\xff": `"%00%7F%FF"`, "100%": `"100%"`, "~ !": `"~ !"`,
		"tab\t": `"tab%09"`,
	} {
		h := http.Header{}
		ratelimit.Set(h, ratelimit.Draft11, ratelimit.Limit{Name: name})
		if got := h.Get("RateLimit"); got != want+";r=0" {
			t.Errorf("%q: %s", name, got)
		}
	}
}

func TestTemplateSetAllocatesTwice(t *testing.T) {
	template, l, h := ratelimit.Prepare(0, limit("default")), limit("default"), http.Header{}
	write := func() {
		delete(h, "Ratelimit")
		delete(h, "Ratelimit-Policy")
		template.Set(h, l)
	}
	if n := testing.AllocsPerRun(100, write); n != 2 {
		t.Errorf("%v allocations, want 2", n)
	}
}

// list parses a field as a structured List.
func list(t *testing.T, h http.Header, name string) httpsfv.List {
	t.Helper()
	l, err := httpsfv.UnmarshalList(h.Values(name))
	if err != nil {
		t.Fatalf("%s: %q: %v", name, h.Values(name), err)
	}
	return l
}

// integer returns a structured Integer, if there is one.
func integer(t *testing.T, v any, ok bool) (int64, bool) {
	t.Helper()
	n, is := v.(int64)
	if ok && (!is || n < 0 || n > 999_999_999_999_999) {
		t.Fatalf("%v (%T) is not a non-negative Integer", v, v)
	}
	return n, ok
}

func FuzzSet(f *testing.F) {
	f.Add(
		"default", int64(100), int64(time.Minute), int64(42), int64(16100*time.Millisecond), int64(time.Hour),
		int64(1795203000_500_000_000), ratelimit.SlidingLog,
	)
	f.Add("a\"\\\r\né", int64(-1), int64(1), int64(math.MaxInt64), int64(math.MinInt64), int64(-1), int64(-1), "a;b")
	f.Fuzz(func(t *testing.T, name string, quota, window, remaining, next, reset, at int64, algorithm string) {
		first := ratelimit.Limit{
			Name: name, Quota: quota, Window: time.Duration(window), Remaining: remaining,
			Next: time.Duration(next), Reset: time.Duration(reset), At: time.Unix(0, at),
			Algorithm: algorithm,
		}
		second := limit(name + "2")
		h, h07 := http.Header{}, http.Header{}
		ratelimit.Set(h, ratelimit.Draft11|ratelimit.XRateLimit, first, second)
		ratelimit.Set(h07, ratelimit.Draft07|ratelimit.Draft06, first, second)

		states := list(t, h, "RateLimit")
		for i, policy := range list(t, h, "RateLimit-Policy") {
			p, s := policy.(httpsfv.Item), states[i].(httpsfv.Item)
			if p.Value.(string) == "" || p.Value != s.Value {
				t.Fatalf("names %q and %q", p.Value, s.Value)
			}
			l := []ratelimit.Limit{first, second}[i]
			checkParameter(t, p, "q", l.Quota, true)
			checkParameter(t, p, "w", int64(l.Window/time.Second), l.Window >= time.Second && l.Window%time.Second == 0)
			checkAlgorithm(t, p, l.Algorithm)
			checkParameter(t, s, "r", l.Remaining, true)
			checkParameter(t, s, "t", int64(math.Ceil(l.Next.Seconds())), l.Next > 0)
		}

		for _, policy := range list(t, h07, "RateLimit-Policy") {
			p := policy.(httpsfv.Item)
			integer(t, p.Value, true)
			w, ok := p.Params.Get("w")
			if n, ok := integer(t, w, ok); !ok || n < 1 {
				t.Fatalf("w is %v", w)
			}
		}
		dictionary, err := httpsfv.UnmarshalDictionary(h07.Values("RateLimit"))
		if err != nil {
			t.Fatal(err)
		}
		for _, key := range []string{"limit", "remaining", "reset"} {
			member, ok := dictionary.Get(key)
			if !ok {
				t.Fatalf("no %s in %q", key, h07.Values("RateLimit"))
			}
			integer(t, member.(httpsfv.Item).Value, true)
		}
		for _, name := range []string{
			"X-RateLimit-Limit", "X-RateLimit-Remaining", "X-RateLimit-Reset",
			"RateLimit-Limit", "RateLimit-Remaining", "RateLimit-Reset",
		} {
			item, err := httpsfv.UnmarshalItem(append(h.Values(name), h07.Values(name)...))
			if err != nil {
				t.Fatal(err)
			}
			integer(t, item.Value, true)
		}
	})
}

// checkAlgorithm checks that heed-algorithm is a, or absent.
func checkAlgorithm(t *testing.T, item httpsfv.Item, a string) {
	t.Helper()
	value, ok := item.Params.Get("heed-algorithm")
	if known := a != "" && slices.Contains(algorithms, a); ok != known || ok && value != httpsfv.Token(a) {
		t.Fatalf("heed-algorithm of %q is %v", a, value)
	}
}

// checkParameter checks that a parameter is n, clamped to its range, or absent.
func checkParameter(t *testing.T, item httpsfv.Item, key string, n int64, want bool) {
	t.Helper()
	value, ok := item.Params.Get(key)
	got, ok := integer(t, value, ok)
	if n = min(max(n, 0), 999_999_999_999_999); ok != want || ok && got != n {
		t.Fatalf("%s of %v: got %d, %t, want %d, %t", key, item.Value, got, ok, n, want)
	}
}
