package ratelimit_test

import (
	"net/http"
	"testing"
	"time"
)

// dates expects the same wait for each of values.
func dates(t *testing.T, want string, values ...string) {
	t.Helper()
	for _, value := range values {
		run(t, []row{after(value, want)})
	}
}

func TestHTTPDatesAndRFC3339AreRead(t *testing.T) {
	dates(t, "30s",
		"Fri, 20 Nov 2026 19:30:30 GMT", "Friday, 20-Nov-26 19:30:30 GMT", "Fri Nov 20 19:30:30 2026",
		"2026-11-20T19:30:30Z",
		// any case
		"fri, 20 nov 2026 19:30:30 gmt", "FRI, 20 NOV 2026 19:30:30 GMT", "FRIDAY, 20-nov-26 19:30:30 gmt",
		"fri nov 20 19:30:30 2026", "2026-11-20t19:30:30z",
		// a wrong weekday
		"Sun, 20 Nov 2026 19:30:30 GMT", "Sunday, 20-Nov-26 19:30:30 GMT", "Sun Nov 20 19:30:30 2026",
		// zones
		"Fri, 20 Nov 2026 19:30:30 UTC", "Fri, 20 Nov 2026 19:30:30 UT", "Fri, 20 Nov 2026 19:30:30 Z",
		"Fri, 20 Nov 2026 19:30:30 +0000",
		"Fri, 20 Nov 2026 19:30:30 -0000", "Fri, 20 Nov 2026 20:30:30 +0100",
		"Fri, 20 Nov 2026 14:30:30 -05:00", "Sat, 21 Nov 2026 01:00:30 +0530",
		"Friday, 20-Nov-26 19:30:30 UTC", "Friday, 20-Nov-26 20:30:30 +0100", "2026-11-20T20:30:30+01:00",
		"2026-11-20T14:30:30-0500",
		"2026-11-21T09:30:30+14:00", "2026-11-20T19:30:30-00:00", "2026-11-20T19:30:30 UTC",
		"2026-11-20 19:30:30 UTC", "2026-11-20 19:30:30Z",
		"2026-11-20 20:30:30 +0100",
		// whitespace around the value, and after the comma
		"\t Fri, 20 Nov 2026 19:30:30 GMT \t", "Fri,20 Nov 2026 19:30:30 GMT", "Fri,  20 Nov 2026 19:30:30 GMT",
		"2026-11-20T19:30:30.0Z", "2026-11-20T19:30:30.000000000000000000000Z",
	)
	dates(t, "30.25s", "2026-11-20T19:30:30.25Z", "2026-11-20T14:30:30.250000000-05:00")
	dates(t, "30.001s", "2026-11-20T19:30:30.0000000000000000000001Z", "2026-11-20T19:30:30.0009Z")
	dates(
		t, "1m0s", "2026-11-20T19:31Z", "2026-11-20T20:31+01:00", "2026-11-20T20:31+0100",
		"2026-11-20 19:31 UTC", "Fri, 20 Nov 2026 19:30:60 GMT", "2026-11-20T19:30:60Z",
	)
	dates(t, "316h30m0s", // 4 December, 00:00
		"Fri, 4 Dec 2026 00:00:00 GMT", "Fri, 04 Dec 2026 00:00:00 GMT", "Friday, 4-Dec-26 00:00:00 GMT",
		"Friday, 04-Dec-26 00:00:00 GMT",
		"Fri Dec  4 00:00:00 2026", "Fri Dec 04 00:00:00 2026", "Fri Dec 4 00:00:00 2026")
	dates(
		t, "988h30m0s", "Thu, 31 Dec 2026 23:59:60 GMT", "Thursday, 31-Dec-26 23:59:60 GMT",
		"Thu Dec 31 23:59:60 2026", "2026-12-31T23:59:60Z",
	)
	dates(t, "0s", "Fri, 20 Nov 2026 19:30:00 GMT", "Fri, 20 Nov 2026 19:29:59 GMT",
		"Thu, 01 Jan 1970 00:00:00 GMT", "Sun, 06 Nov 1994 08:49:37 GMT",
		"0001-01-01T00:00:00Z", "Sat, 01 Jan 0000 00:00:00 GMT", "2024-02-29T00:00:00Z", "Tue, 29 Feb 2000 00:00:00 GMT")
}

func TestInvalidDatesAreIgnored(t *testing.T) {
	dates(t, none,
		// no zone, or an unknown name
		"Fri, 20 Nov 2026 19:30:30", "Friday, 20-Nov-26 19:30:30", "2026-11-20T19:30:30", "2026-11-20 19:30:30",
		"2026-11-20T19:31",
		"Fri, 20 Nov 2026 19:30:30 PST", "Fri, 20 Nov 2026 19:30:30 EST", "Fri, 20 Nov 2026 19:30:30 CET",
		"Fri, 20 Nov 2026 19:30:30 A",
		"Friday, 20-Nov-26 19:30:30 BST", "2026-11-20T19:30:30 CET", "Fri, 20 Nov 2026 19:30:30 GMT+1",
		"Fri, 20 Nov 2026 19:30:30 UTC+0000",
		"Fri, 20 Nov 2026 19:30:30 +01", "Fri, 20 Nov 2026 19:30:30 +1", "Fri, 20 Nov 2026 19:30:30 +2400",
		"Fri, 20 Nov 2026 19:30:30 +0060",
		"Fri, 20 Nov 2026 19:30:30 +", "Fri, 20 Nov 2026 19:30:30 ", "2026-11-20T19:30:30+25:00",
		"Fri, 20 Nov 2026 19:30:30GMT",
		"Fri Nov 20 19:30:30 2026 GMT", "Fri Nov 20 19:30:30 GMT 2026",
		// days that do not exist
		"Sun, 29 Feb 2027 00:00:00 GMT", "Mon, 29 Feb 2100 00:00:00 GMT", "Monday, 29-Feb-27 00:00:00 GMT",
		"Mon Feb 29 00:00:00 2027", "2027-02-29T00:00:00Z",
		"Tue, 30 Feb 2028 00:00:00 GMT", "Tue, 31 Apr 2027 00:00:00 GMT", "Tue, 31 Nov 2026 00:00:00 GMT",
		"Tue, 00 Dec 2026 00:00:00 GMT",
		"Tue, 32 Dec 2026 00:00:00 GMT", "2026-13-01T00:00:00Z", "2026-00-01T00:00:00Z", "2026-12-00T00:00:00Z",
		"0000-00-00 00:00:00 UTC",
		// times that do not exist
		"Fri, 20 Nov 2026 24:00:00 GMT", "Fri, 20 Nov 2026 19:60:00 GMT", "Fri, 20 Nov 2026 19:30:61 GMT",
		"2026-11-20T24:00:00Z", "2026-11-20T19:60Z",
		// too many or too few parts, of the wrong length, or in the wrong place
		"20 Nov 2026 19:30:30 GMT", "Fri, 20 Nov 26 19:30:30 GMT", "Fri, 20-Nov-2026 19:30:30 GMT",
		"Fri, 20-Nov-26 19:30:30 GMT", "Friday, 20 Nov 2026 19:30:30 GMT",
		"Friday, 20-Nov-2026 19:30:30 GMT", "Friday Nov 20 19:30:30 2026", "Fri 20 Nov 2026 19:30:30 GMT",
		"Fri, Nov 20 2026 19:30:30 GMT", "Fri, 020 Nov 2026 19:30:30 GMT",
		"Fri, 20 November 2026 19:30:30 GMT", "Fri, 20 Nov 2026 9:30:30 GMT", "Fri, 20 Nov 2026 19:30 GMT",
		"Fri, 20 Nov 2026 19:30:30.5 GMT", "Fri, 20 Nov 12026 19:30:30 GMT",
		"Fri, 20 Nov 2026 19:30:30 GMT;", "Fri, 20 Nov 2026 19:30:30 GMT GMT", "Fri, 20  Nov 2026 19:30:30 GMT",
		"Fri,\n20 Nov 2026 19:30:30 GMT", "Foo, 20 Nov 2026 19:30:30 GMT",
		"Fri, 20 Nov 2026", "Fri,", "Fri", "F", "Fri, 20 Nov\u00a02026 19:30:30 GMT",
		"Fri, 20 Foo 2026 19:30:30 GMT", "Fri, -1 Nov 2026 19:30:30 GMT", "Fri, +2 Nov 2026 19:30:30 GMT",
		"\u017fun, 20 Nov 2026 19:30:30 GMT", "Thur\u017fday, 20-Nov-26 19:30:30 GMT", "Fri, 20 Nov 2026 19.30.30 GMT",
		"2026-11-20", "2026-11-20Z", "2026-11-20T19Z", "2026-11-20T19:30:30.Z", "2026-11-20T19:30:30,5Z",
		"2026-1-20T19:30:30Z", "2026-11-20T9:30:30Z", "20261120T193030Z",
		"+2026-11-20T19:30:30Z", "12026-11-20T19:30:30Z", "2026-11-20X19:30:30Z", "2026-11-20T19:30:30ZZ",
		"2026-11-20T19:30:30  UTC", "2026-W47-5T19:30:30Z", "2026/11/20 19:30:30 UTC",
		"20/11/2026", "11/20/2026 19:30:30 GMT", "tomorrow", "Fri Nov 20 19:30:30 26", "Fri Nov   4 19:30:30 2026",
	)
}

// RFC 9110, section 5.6.7.
func TestTwoDigitYearsAreAtMost50YearsAhead(t *testing.T) {
	moment := func(s string) time.Time {
		m, err := time.Parse(time.RFC3339, s)
		if err != nil {
			t.Fatal(err)
		}
		return m
	}
	for _, c := range []struct {
		now, value string
		want       string
	}{
		{"2026-11-20T19:30:00Z", "Friday, 20-Nov-76 19:30:00 GMT", "438312h0m0s"}, // 50 years
		{"2026-11-20T19:30:00Z", "Friday, 20-Nov-76 19:30:01 GMT", "0s"},          // a second more: 1976
		{"2026-11-20T19:30:00Z", "Friday, 20-Nov-76 20:30:00 +0100", "438312h0m0s"},
		{"2026-11-20T19:30:00Z", "Friday, 20-Nov-76 20:30:01 +0100", "0s"},
		{"2026-11-20T19:30:00Z", "Friday, 31-Dec-75 23:59:59 GMT", "430516h29m59s"},
		{"2026-11-20T19:30:00Z", "Friday, 01-Jan-77 00:00:00 GMT", "0s"},
		{"2026-11-20T19:30:00Z", "Friday, 01-Jan-00 00:00:00 GMT", "0s"},
		{"2026-11-20T19:30:00Z", "Friday, 31-Dec-99 23:59:59 GMT", "0s"},
		{"2099-12-31T23:59:59Z", "Friday, 01-Jan-00 00:00:09 GMT", "10s"}, // into the next century
		{"2060-01-01T00:00:00Z", "Friday, 01-Jan-10 00:00:00 GMT", "438288h0m0s"},
		{"2060-01-01T00:00:00Z", "Friday, 01-Jan-10 00:00:01 GMT", "0s"},
		{"1999-12-31T23:59:30Z", "Saturday, 01-Jan-00 00:00:00 GMT", "30s"},
		{"2050-01-01T00:00:00Z", "Friday, 31-Dec-99 23:59:59 -0001", "0s"},        // 00:00:59 in 2100: too far
		{"2027-01-01T00:00:00Z", "Tuesday, 29-Feb-28 00:00:00 GMT", "10176h0m0s"}, // a leap year
		{"2027-01-01T00:00:00Z", "Tuesday, 29-Feb-00 00:00:00 GMT", "0s"},         // 2000 was one
		{"2060-01-01T00:00:00Z", "Monday, 29-Feb-00 00:00:00 GMT", none},          // 2100 is not
	} {
		if got := answer(429, header("Retry-After: "+c.value), moment(c.now)); got != c.want {
			t.Errorf("%s at %s: got %s, want %s", c.value, c.now, got, c.want)
		}
	}
}

func TestFarDatesAreCapped(t *testing.T) {
	limit := now.Add(1 << 31 * time.Second)
	for _, c := range []struct {
		at   time.Time
		want string
	}{
		{limit.Add(-time.Second), "596523h14m7s"},
		{limit, longest},
		{limit.Add(time.Second), longest},
		{time.Date(9999, 12, 31, 23, 59, 59, 0, time.UTC), longest},
	} {
		if got := answer(429, header("Retry-After: "+c.at.Format(http.TimeFormat)), now); got != c.want {
			t.Errorf("%s: got %s, want %s", c.at, got, c.want)
		}
	}
}

func TestAnyHTTPDateThatGoWritesIsReadBack(t *testing.T) {
	for _, layout := range []string{
		http.TimeFormat, time.ANSIC, "Monday, 02-Jan-06 15:04:05 GMT", time.RFC3339, time.RFC3339Nano,
		time.RFC1123Z,
	} {
		for day := range 800 {
			at := now.AddDate(0, 0, day).Add(time.Duration(day*977) * time.Second)
			if got, want := answer(429, header("Retry-After: "+at.Format(layout)), now), at.Sub(now).String(); got != want {
				t.Fatalf("%s: got %s, want %s", at.Format(layout), got, want)
			}
		}
	}
}
