package ratelimit_test

import (
	"io"
	"math/big"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/heedhttp/heed/ratelimit"
)

// decimalNumber is what servers may send as a number.
var decimalNumber = regexp.MustCompile(`^[0-9]+(\.[0-9]+)?$`)

// FuzzWait compares Wait with independent knowledge: math/big reads numbers, net/http
// reads dates, and garbage never shortens a wait.
func FuzzWait(f *testing.F) {
	for _, value := range []string{
		"", "0", "1", "1.5", "0.0001", "2147483648", "99999999999999999999", "1,000", "30, 120", "-5", "1e3", ",,", "1;x",
		"Fri, 20 Nov 2026 19:30:30 GMT", "Friday, 20-Nov-26 19:30:30 GMT", "Fri Nov 20 19:30:30 2026",
		"2026-11-20T19:30:30.25+01:00",
		"Fri, 20 Nov 2026 19:30:30 GMT, Fri,7", "1m30s", "1500\u00b5s", "1795203030250",
	} {
		f.Add(value, "", "", "", "", "", int64(1795203000_000_000_000), 429)
		f.Add("", value, value, value, "Fri, 20 Nov 2026 19:30:00 GMT", "7", int64(1795203000_400_000_000), 503)
	}
	f.Fuzz(func(t *testing.T, after, ms, in, x, date, age string, nanos int64, status int) {
		now := time.Unix(0, nanos)
		h := http.Header{
			"Retry-After": {after}, "Retry-After-Ms": {ms}, "X-Retry-In": {in}, "X-Retry-After": {x},
			"Date": {date}, "Age": {age},
		}
		check(t, status, h, now)

		bare := http.Header{"Retry-After": {after}}
		wait, ok := check(t, 429, bare, now)
		checkNumber(t, after, wait, ok)
		checkDate(t, after, now, wait, ok)
		for _, garbage := range []string{"", "x", "-5", "1e9", "NaN", "+7", "\u00a07"} {
			for _, h := range []http.Header{
				{"Retry-After": {after + "," + garbage}},
				{"Retry-After": {garbage + "," + after}},
				{"Retry-After": {garbage, after}},
			} {
				if more, still := check(t, 429, h, now); still != ok || more < wait {
					t.Fatalf("%q: %v, %t, but without garbage %v, %t", h, more, still, wait, ok)
				}
			}
		}
	})
}

// check returns the result of Wait, which must be within its bounds.
func check(t *testing.T, status int, h http.Header, now time.Time) (time.Duration, bool) {
	t.Helper()
	wait, ok := ratelimit.Wait(status, h, now)
	switch {
	case wait < 0, wait > 1<<31*time.Second, wait%time.Millisecond != 0, !ok && wait != 0, ok &&
		100 <= status && status < 300:
		t.Fatalf("%d %q: %v, %t", status, h, wait, ok)
	}
	return wait, ok
}

// checkNumber compares with math/big.
func checkNumber(t *testing.T, s string, wait time.Duration, ok bool) {
	s = strings.Trim(s, " \t")
	if !decimalNumber.MatchString(s) || len(s) > 1000 {
		return
	}
	seconds, _ := new(big.Rat).SetString(s)
	millis := seconds.Mul(seconds, big.NewRat(1000, 1))
	want := new(big.Int).Div(millis.Num(), millis.Denom())
	if !millis.IsInt() {
		want.Add(want, big.NewInt(1))
	}
	if saturated := big.NewInt(1 << 31 * 1000); want.Cmp(saturated) > 0 {
		want = saturated
	}
	if !ok || wait.Milliseconds() != want.Int64() {
		t.Fatalf("%q: got %v, %t, want %v ms", s, wait, ok, want)
	}
}

// checkDate compares with net/http, except for two-digit years, whose century net/http
// gets wrong.
func checkDate(t *testing.T, s string, now time.Time, wait time.Duration, ok bool) {
	date, err := http.ParseTime(s)
	if err != nil || date.Format(http.TimeFormat) != s && date.Format(time.ANSIC) != s {
		return
	}
	want := min(max(date.Sub(now), 0), 1<<31*time.Second)
	if !ok || wait < want || wait-want >= time.Millisecond {
		t.Fatalf("%q at %v: got %v, %t, want %v", s, now, wait, ok, want)
	}
}

// FuzzParse checks the bounds of what Parse returns, and that Wait agrees with it.
func FuzzParse(f *testing.F) {
	for _, s := range []string{
		`"default";r=0;t=17`, `"a";r=1, "b";r=0;t=9;pk=:YQ==:`, `"a";a=0;w=45;c=5`, `"a";r=3;t=17;a=2;w=45`,
		`limit=10, remaining=0, reset=7`, `"a";q=100;w=60;qu="x"`, "100;w=60, 10;w=1",
		"10, 10;w=1, 1000;w=3600",
		"0", "-1", "0.5", "598.0", "1795203030", "1795203030250", "1d2h", "2026-11-20T19:31Z",
		"Fri, 20 Nov 2026 19:30:30 GMT", "0;w=21600", "", "x", ",", ";",
	} {
		f.Add(s, s, s, s, s, "X-RateLimit-Reset-Tokens", s, "", 429)
		f.Add("", s, "100", "0", s, "X-RateLimit-Tokens-Remaining", s, "0", 503)
	}
	f.Fuzz(func(t *testing.T, state, policy, limit, left, reset, name, value, age string, status int) {
		h := http.Header{
			"Ratelimit": {state}, "Ratelimit-Policy": {policy}, "Age": {age},
			"X-Ratelimit-Limit": {limit}, "X-Ratelimit-Remaining": {left}, "X-Ratelimit-Reset": {reset},
		}
		h.Add(name, value)
		limits := ratelimit.Parse(h, now)
		for _, l := range limits {
			checkLimit(t, l)
		}
		if again := ratelimit.Parse(h, now); !slices.Equal(again, limits) {
			t.Fatalf("%q: %v, and then %v", h, limits, again)
		}
		wait, ok := check(t, status, h, now)
		if _, explicit := check(t, 301, h, now); !explicit {
			checkNotEarly(t, limits, wait, ok, status)
		}
	})
}

func checkLimit(t *testing.T, l ratelimit.Limit) {
	const most = 999_999_999_999_999
	for _, d := range []time.Duration{l.Next, l.Reset} {
		if d < -1 || d > 1<<31*time.Second || d%time.Millisecond != 0 && d != -1 {
			t.Fatalf("%+v: %v", l, d)
		}
	}
	if l.Remaining < -1 || l.Remaining > most || l.Quota < 0 || l.Quota > most || l.Window < 0 ||
		l.Window > 1<<31*time.Second || l.Wait() < 0 || l.At != now {
		t.Fatalf("%+v", l)
	}
}

// checkNotEarly reports a wait that ends before a used-up quota has units again.
func checkNotEarly(t *testing.T, limits []ratelimit.Limit, wait time.Duration, ok bool, status int) {
	if 100 <= status && status < 400 {
		return
	}
	for _, l := range limits {
		if !ok && l.Wait() > 0 || wait < l.Wait() {
			t.Fatalf("%v, %t, but %+v", wait, ok, l)
		}
	}
}

// FuzzJudge checks every vendor's Profile for what must never happen, and that Read
// agrees with Judge about the same body.
func FuzzJudge(f *testing.F) {
	for _, body := range []string{
		"", "{}", "[]", `{"error":{"code":80004}}`, `{"status":"OVER_QUERY_LIMIT"}`,
		`{"errors":[{"message":"Throttled","extensions":{"code":"COMPLEXITY_BUDGET_EXHAUSTED","retry_in_seconds":5}}]}`,
		`{"retry_after":1.5}`, `{"parameters":{"retry_after":35}}`,
		`{"error":{"details":[{"retryDelay":"34.07s"}]}}`, `[{"errorCode":"REQUEST_LIMIT_EXCEEDED"}]`,
		throttledCost("752", "1000", "666", "50"), throttledCost("1", "1", "0", "0.0000000001"),
		`<Error><Code>SlowDown</Code></Error>`, `{"errors":[{"type":"RATE_LIMITED","code":88}]}`, `{"a":`,
		"<Code>",
	} {
		f.Add(body, "0", "7", "Zendesk-RateLimit-X", "total=1; remaining=0; resets=41", 200)
		f.Add(body, "0", "7", "X-Business-Use-Case-Usage", `{"1":[{"estimated_time_to_regain_access":19}]}`, 400)
		f.Add(body, "0", "7", "X-Sentry-Rate-Limits", "60:transaction:key", 429)
		f.Add(body, "1;w=5", "1795203030", "X-RateLimit", `{"remaining":0,"until":"2026-11-20T19:30:03Z"}`, 429)
	}
	f.Fuzz(func(t *testing.T, body, left, reset, name, value string, status int) {
		h := http.Header{
			"X-Ratelimit-Remaining": {left}, "X-Ratelimit-Reset": {reset}, "Ratelimit-Remaining": {left},
			"Content-Type": {"application/json"},
		}
		h.Add(name, value)
		all := ratelimit.AllVendors()
		judged := make([]ratelimit.Answer, len(all))
		for i, p := range all {
			a := p.Judge(status, h, []byte(body), now)
			switch {
			case a.Wait < 0, a.Wait > 1<<31*time.Second, a.Wait%time.Millisecond != 0, !a.Known && a.Wait != 0,
				a.Meaning == ratelimit.Final && a.Known,
				a.Meaning == ratelimit.Unsaid && a.Known && 100 <= status && status < 300:
				t.Fatalf("%s: %d %q %q: %+v", p.Name, status, h, body, a)
			}
			for _, l := range p.Parse(h, now) {
				checkLimit(t, l)
			}
			judged[i] = a
		}
		synctest.Test(t, func(t *testing.T) { // because Read waits for a body for a second
			for i := range all {
				checkRead(t, &all[i], status, h, body, judged[i])
			}
		})
	})
}

// checkRead checks that Read agrees with Judge when it needs the body, and that the
// caller still gets all of it.
func checkRead(t *testing.T, p *ratelimit.Profile, status int, h http.Header, body string, judged ratelimit.Answer) {
	resp := &http.Response{
		StatusCode: status, Header: h, Body: io.NopCloser(strings.NewReader(body)), ContentLength: -1,
	}
	read := p.Read(resp, now)
	if _, encoded := h["Content-Encoding"]; read != judged && len(h["Content-Type"]) == 1 && !encoded {
		t.Fatalf("%s: %d %q %q: read %+v, judged %+v", p.Name, status, h, body, read, judged)
	}
	if again, err := io.ReadAll(resp.Body); err != nil || string(again) != body {
		t.Fatalf("%s: %q became %q, %v", p.Name, body, again, err)
	}
}
