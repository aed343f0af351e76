package ratelimit_test

import (
	"net/http"
	"testing"
	"time"

	"github.com/heedhttp/heed/ratelimit"
)

// plain is a header without anything about limits.
func plain() http.Header {
	return http.Header{
		"Date":           {"Fri, 20 Nov 2026 19:30:00 GMT"},
		"Content-Type":   {"application/json"},
		"Content-Length": {"42"},
		"Server":         {"nginx"},
		"Vary":           {"Accept-Encoding"},
		"Cache-Control":  {"no-store"},
		"Etag":           {`"abc"`},
		"X-Request-Id":   {"4711"},
		"Connection":     {"keep-alive"},
	}
}

func BenchmarkWait(b *testing.B) {
	now := time.Date(2026, 11, 20, 19, 30, 0, 0, time.UTC)
	for _, c := range []struct{ name, field, value string }{
		{"seconds", "Retry-After", "1"},
		{"none", "X-Other", "1"},
		{"milliseconds", "Retry-After-Ms", "1500"},
		{"date", "Retry-After", "Fri, 20 Nov 2026 19:30:30 GMT"},
		{"rfc3339", "Retry-After", "2026-11-20T19:30:30.5Z"},
		{"malformed", "Retry-After", "soon"},
	} {
		small, large := http.Header{c.field: {c.value}}, plain()
		large[c.field] = []string{c.value}
		for name, h := range map[string]http.Header{"few": small, "many": large} {
			b.Run(c.name+"/"+name, func(b *testing.B) {
				b.ReportAllocs()
				for b.Loop() {
					ratelimit.Wait(429, h, now)
				}
			})
		}
	}
}

// pair is what a server of draft-11 sends.
func pair(h http.Header) http.Header {
	h["Ratelimit"] = []string{`"default";r=0;t=17`}
	h["Ratelimit-Policy"] = []string{`"default";q=100;w=60`}
	return h
}

func BenchmarkQuotas(b *testing.B) {
	now := time.Date(2026, 11, 20, 19, 30, 0, 0, time.UTC)
	for _, c := range []struct {
		name string
		h    http.Header
	}{
		{"nothing", plain()},
		{"draft11/only", pair(http.Header{})},
		{"draft11/among9", pair(plain())},
	} {
		b.Run("Wait/"+c.name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				ratelimit.Wait(429, c.h, now)
			}
		})
		b.Run("Parse/"+c.name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				ratelimit.Parse(c.h, now)
			}
		})
	}
}

func BenchmarkTemplate(b *testing.B) {
	one := []ratelimit.Limit{limit("default")}
	three := []ratelimit.Limit{limit("second"), limit("minute"), limit("day")}
	for _, c := range []struct {
		name   string
		style  ratelimit.Style
		limits []ratelimit.Limit
	}{
		{"Draft11", ratelimit.Draft11, one},
		{"Draft11+XRateLimit", ratelimit.Draft11 | ratelimit.XRateLimit, one},
		{"Draft11+XRateLimit/three", ratelimit.Draft11 | ratelimit.XRateLimit, three},
		{"None", ratelimit.None, one}, // the cost of the deletes
	} {
		b.Run(c.name, func(b *testing.B) {
			h, t := plain(), ratelimit.Prepare(c.style, c.limits...)
			b.ReportAllocs()
			for b.Loop() {
				delete(h, "Ratelimit")
				delete(h, "Ratelimit-Policy")
				t.Set(h, c.limits...)
			}
		})
	}
}

func BenchmarkSet(b *testing.B) {
	h := plain()
	b.ReportAllocs()
	for b.Loop() {
		delete(h, "Ratelimit")
		delete(h, "Ratelimit-Policy")
		ratelimit.Set(h, ratelimit.Draft11|ratelimit.XRateLimit, limit("default"))
	}
}

// limit is a bucket of 100 a minute with 42 left.
func limit(name string) ratelimit.Limit {
	return ratelimit.Limit{
		Name: name, Quota: 100, Window: time.Minute, Remaining: 42,
		Next: 16100 * time.Millisecond, Reset: 34800 * time.Millisecond,
		At: time.Date(2026, 11, 20, 19, 30, 0, 500_000_000, time.UTC),
	}
}
