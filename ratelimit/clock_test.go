package ratelimit_test

import (
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/heedhttp/heed/ratelimit"
)

func TestDatesAreMeasuredByTheServersClock(t *testing.T) {
	const target = "Retry-After: Fri, 20 Nov 2026 20:30:30 GMT" // in 1h0m30s by now
	run(t, []row{
		{"1h0m30s", []string{target}},
		{"30s", []string{target, "Date: Fri, 20 Nov 2026 20:30:00 GMT"}},
		{"30s", []string{target, "Date: Friday, 20-Nov-26 20:30:00 GMT"}},
		{"30s", []string{target, "Date: Fri Nov 20 20:30:00 2026"}},
		{"30s", []string{target, "Date:  Fri, 20 Nov 2026 20:30:00 GMT\t"}},
		{"0s", []string{target, "Date: Fri, 20 Nov 2026 20:30:31 GMT"}},
		{"0s", []string{target, "Date: Fri, 31 Dec 9999 23:59:59 GMT"}},

		// without exactly one valid Date, by now
		{"1h0m30s", []string{target, "Date: "}},
		{"1h0m30s", []string{target, "Date: 1795206600"}},
		{"1h0m30s", []string{target, "Date: Fri, 20 Nov 2026 20:30:00 PST"}},
		{"1h0m30s", []string{target, "Date: Fri, 20 Nov 2026 20:30:00 GMT, Fri, 20 Nov 2026 20:30:00 GMT"}},
		{"1h0m30s", []string{target, "Date: Fri, 20 Nov 2026 20:30:00 GMT", "Date: Fri, 20 Nov 2026 20:30:10 GMT"}},
		{"1h0m30s", []string{target, "Date: Fri, 20 Nov 2026 20:30:00 GMT", "Date: Fri, 20 Nov 2026 20:30:00 GMT"}},
		{"30s", []string{target, "Date: yesterday", "Date: Fri, 20 Nov 2026 20:30:00 GMT"}},

		// Date + Age
		{"30s", []string{target, "Date: Fri, 20 Nov 2026 20:29:00 GMT", "Age: 60"}},
		{"30s", []string{target, "Date: Fri, 20 Nov 2026 20:29:00 GMT", "Age:  060 "}},
		{"30s", []string{target, "Date: Fri, 20 Nov 2026 20:29:00 GMT", "Age: 60, 90"}},
		{"30s", []string{target, "Date: Fri, 20 Nov 2026 20:29:00 GMT", "Age: 60", "Age: 90"}},
		{"30s", []string{target, "Date: Fri, 20 Nov 2026 20:30:00 GMT", "Age: 0"}},
		{"1h0m30s", []string{target, "Age: 60"}}, // Age without Date means nothing
		{"0s", []string{target, "Date: Fri, 20 Nov 2026 20:30:00 GMT", "Age: 31"}},
		{"0s", []string{target, "Date: Fri, 20 Nov 2026 20:30:00 GMT", "Age: 9223372036854775807"}},
		{"0s", []string{target, "Date: Fri, 20 Nov 2026 20:30:00 GMT", "Age: 99999999999999999999999999999"}},
		{"30s", []string{target, "Date: Fri, 20 Nov 2026 20:30:00 GMT", "Age: -60"}},
		{"30s", []string{target, "Date: Fri, 20 Nov 2026 20:30:00 GMT", "Age: +60"}},
		{"30s", []string{target, "Date: Fri, 20 Nov 2026 20:30:00 GMT", "Age: 1.5"}},
		{"30s", []string{target, "Date: Fri, 20 Nov 2026 20:30:00 GMT", "Age: 1e1"}},
		{"30s", []string{target, "Date: Fri, 20 Nov 2026 20:30:00 GMT", "Age: old"}},
		{"30s", []string{target, "Date: Fri, 20 Nov 2026 20:30:00 GMT", "Age: "}},

		// seconds count from the receipt, whatever the server's clock
		{"30s", []string{"Retry-After: 30", "Date: Thu, 01 Jan 1970 00:00:00 GMT", "Age: 20"}},
	})
}

func TestWithoutAServerClockDatesAreMeasuredByNow(t *testing.T) {
	const unset = "Date: Thu, 01 Jan 1970 00:00:07 GMT"
	run(t, []row{
		{"30s", []string{"Retry-After: Fri, 20 Nov 2026 19:30:30 GMT", unset}},
		{"0s", []string{"Retry-After: Fri, 20 Nov 2026 19:30:00 GMT", unset}},
		{"24h0m0s", []string{"Retry-After: Sat, 21 Nov 2026 19:30:00 GMT", unset}},
		{"498691h29m54s", []string{"Retry-After: Sat, 21 Nov 2026 19:30:01 GMT", unset}}, // a second more
		{"498667h29m52s", []string{"Retry-After: Fri, 20 Nov 2026 19:29:59 GMT", unset}}, // already past by now
		{"23s", []string{"Retry-After: Thu, 01 Jan 1970 00:00:30 GMT", unset}},           // both by the server's clock
		// not more than a day
		{
			"24h0m0s",
			[]string{"Retry-After: Fri, 20 Nov 2026 20:30:00 GMT", "Date: Thu, 19 Nov 2026 20:30:00 GMT"},
		},
		{"1h0m0s", []string{"Retry-After: Fri, 20 Nov 2026 20:30:00 GMT", "Date: Thu, 19 Nov 2026 20:29:59 GMT"}},
		{"30s", []string{"X-Retry-After: 1795203030", unset}},
	})
}

func TestWaitsAreRoundedUpToAMillisecond(t *testing.T) {
	h := header("Retry-After: Fri, 20 Nov 2026 19:30:10 GMT")
	for elapsed, want := range map[time.Duration]string{
		0:                           "10s",
		1:                           "10s",
		time.Millisecond:            "9.999s",
		time.Millisecond + 1:        "9.999s",
		400 * time.Millisecond:      "9.6s",
		10*time.Second - 1:          "1ms",
		10 * time.Second:            "0s",
		10*time.Second + 1:          "0s",
		-500 * time.Microsecond:     "10.001s",
		-24 * 365 * 290 * time.Hour: longest,
		24 * 365 * 290 * time.Hour:  "0s",
	} {
		if got := answer(429, h, now.Add(elapsed)); got != want {
			t.Errorf("%v later: got %s, want %s", elapsed, got, want)
		}
	}
}

func TestTheZoneOfNowDoesNotMatter(t *testing.T) {
	east := now.In(time.FixedZone("east", 14*3600))
	for _, value := range []string{
		"Fri, 20 Nov 2026 19:30:30 GMT", "Friday, 20-Nov-26 19:30:30 GMT", "Fri Nov 20 19:30:30 2026",
	} {
		if got := answer(429, header("Retry-After: "+value), east); got != "30s" {
			t.Errorf("%s: got %s", value, got)
		}
	}
}

func TestAZeroNowIsThePresent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		present := time.Now()
		for _, value := range []string{"7", present.Add(7 * time.Second).UTC().Format(http.TimeFormat)} {
			wait, ok := ratelimit.Wait(429, http.Header{"Retry-After": {value}}, time.Time{})
			assert.True(t, ok)
			assert.Equal(t, 7*time.Second, wait, value)
		}
		year := present.Add(30 * 365 * 24 * time.Hour).UTC().Format("Monday, 02-Jan-06 15:04:05 GMT")
		wait, ok := ratelimit.Wait(429, http.Header{"Retry-After": {year}}, time.Time{})
		assert.True(t, ok)
		assert.Equal(t, 30*365*24*time.Hour, wait, "a two-digit year less than fifty years ahead")
	})
}
