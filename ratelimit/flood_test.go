package ratelimit_test

import (
	"fmt"
	"net/http"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/heedhttp/heed/internal/testenv"
	"github.com/heedhttp/heed/ratelimit"
)

const floodSize = 3 << 20

// floods are headers of about size bytes: net/http accepts ten mebibytes.
func floods(size int) map[string]http.Header {
	dimensions, fields, lines, quotas := http.Header{}, http.Header{"Retry-After": {"1"}}, http.Header{}, http.Header{}
	for i := range size / 60 {
		dimensions[fmt.Sprintf("X-Ratelimit-Reset-A%d", i)] = []string{"1"}
		dimensions[fmt.Sprintf("X-Ratelimit-Remaining-A%d", i)] = []string{"0"}
		quotas[fmt.Sprintf("Zendesk-Ratelimit-A%d", i)] = []string{"total=1; remaining=0; resets=1"}
		quotas.Add("Zendesk-Ratelimit-Lines", "total=1; remaining=0; resets=1")
	}
	for i := range size / 150 {
		fields[fmt.Sprintf("X-F%d", i)] = []string{"1"}
		lines["Ratelimit"] = append(lines["Ratelimit"], `"a";r=0;t=5`)
	}
	of := func(name, text string) http.Header {
		return http.Header{name: {strings.Repeat(text+",", size/(len(text)+1)) + text}}
	}
	return map[string]http.Header{
		"states": of("Ratelimit", `"a";r=0`), "policies": of("Ratelimit-Policy", `"a";q=1`),
		"a string":   {"Ratelimit": {`"` + strings.Repeat("a", size)}},
		"parameters": {"Ratelimit": {`"a";r=0` + strings.Repeat(";x=1", size/4)}}, "07": of("Ratelimit", "limit=1"),
		"weekdays": of("Retry-After", "Sun"), "durations": of("X-Retry-In", "1ns"),
		"blanks": {"Retry-After": {strings.Repeat(" ", size)}},
		"digits": {"X-Ratelimit-Remaining": {strings.Repeat("0", size)}}, "dimensions": dimensions,
		"fields": fields, "lines": lines, "quotas": quotas,
		"dates": {
			"Retry-After": {strings.Repeat("Fri, 20 Nov 2026 19:30:30 GMT,", size/30)},
			"Date":        slices.Repeat([]string{"Fri, 20 Nov 2026 19:30:00 GMT"}, size/30),
		},
		"usage": {
			"X-Business-Use-Case-Usage": {
				`{"1":[` + strings.Repeat(`{"estimated_time_to_regain_access":1},`, size/40) + "{}]}",
			},
		},
		"many delays": {"Retry-After": slices.Repeat([]string{"1"}, size/4)},
	}
}

// What is read does not grow with the header. Allocated bytes show it on any machine,
// however busy.
func TestHugeHeadersTakeLittleMemory(t *testing.T) {
	now := time.Unix(1_800_000_000, 0)
	for name, h := range floods(floodSize) {
		for what, read := range map[string]func(){
			"Parse":   func() { ratelimit.Parse(h, now) },
			"Wait":    func() { ratelimit.Wait(429, h, now) },
			"Sources": func() { ratelimit.Sources(429, h, now) },
		} {
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			read()
			runtime.ReadMemStats(&after)
			assert.Less(t, after.TotalAlloc-before.TotalAlloc, uint64(1<<20), "%s of %s", what, name)
		}
	}
}

func TestTheBeginningOfAHugeHeaderIsRead(t *testing.T) {
	now := time.Unix(1_800_000_000, 0)
	all := floods(floodSize)
	for name, want := range map[string]time.Duration{
		"fields": time.Second, "lines": 5 * time.Second, "dimensions": time.Second,
	} {
		wait, ok := ratelimit.Wait(429, all[name], now)
		assert.True(t, ok, name)
		assert.Equal(t, want, wait, name)
	}
	assert.Len(t, ratelimit.Parse(all["states"], now), 1024)
	assert.Len(t, ratelimit.Parse(all["policies"], now), 64)
	assert.Equal(t, []string{"Retry-After"}, ratelimit.Sources(429, all["fields"], now))
	assert.Empty(t, ratelimit.Sources(429, all["dimensions"], now), "too many to try one by one")
}

// readers are the functions that read untrusted headers, with the Profiles that read most
// of one.
func readers() map[string]func(http.Header) {
	now := time.Unix(1_800_000_000, 0)
	all := map[string]func(http.Header){
		"Parse":     func(h http.Header) { ratelimit.Parse(h, now) },
		"Wait":      func(h http.Header) { ratelimit.Wait(429, h, now) },
		"Sources":   func(h http.Header) { ratelimit.Sources(429, h, now) },
		"FromCache": func(h http.Header) { ratelimit.FromCache(h) },
	}
	for _, name := range []string{"github", "zendesk", "dockerhub", "meta", "jira"} {
		p := ratelimit.Vendor(name)
		all[name+".Parse"] = func(h http.Header) { p.Parse(h, now) }
		all[name+".Judge"] = func(h http.Header) { p.Judge(429, h, nil, now) }
		all[name+".Suspects"] = func(h http.Header) { p.Suspects(200, h) }
		all[name+".Read"] = func(h http.Header) {
			p.Read(&http.Response{StatusCode: 429, Header: h, Body: http.NoBody}, now)
		}
	}
	return all
}

// Quadratic time would take minutes. With -long the test also measures how time grows
// with a header.
func TestHugeHeadersAreReadInLinearTime(t *testing.T) {
	defer endsInTime(t)()
	all := readers()
	if !testenv.Long() {
		for _, h := range floods(floodSize / 4) {
			for _, read := range all {
				read(h)
			}
		}
		return
	}
	small, large := floods(floodSize/8), floods(floodSize)
	for name := range small {
		for what, read := range all {
			before, after := fastest(read, small[name]), fastest(read, large[name])
			assert.Less(
				t, after, 32*before+10*time.Millisecond, "%s of %s takes %v, and %v for eight times as much",
				what, name, before, after,
			)
		}
	}
}

// fastest returns the shortest time of several runs.
func fastest(read func(http.Header), h http.Header) time.Duration {
	least := time.Hour
	for range 5 {
		began := time.Now()
		read(h)
		least = min(least, time.Since(began))
	}
	return least
}

// A vendor's own quotas are capped, too.
func TestTheNumberOfQuotasIsCapped(t *testing.T) {
	now := time.Unix(1_800_000_000, 0)
	all := floods(floodSize)
	assert.Len(t, ratelimit.Parse(all["dimensions"], now), 1024)
	quotas := ratelimit.Vendor("zendesk").Parse(all["quotas"], now)
	assert.GreaterOrEqual(t, len(quotas), 1024)
	assert.LessOrEqual(t, len(quotas), 2*1024)
	assert.Empty(t, ratelimit.Sources(429, all["many delays"], now), "too large to read once per field")
}

func BenchmarkFlood(b *testing.B) {
	for name, h := range floods(floodSize) {
		for what, read := range readers() {
			b.Run(name+"/"+what, func(b *testing.B) {
				for b.Loop() {
					read(h)
				}
			})
		}
	}
}
