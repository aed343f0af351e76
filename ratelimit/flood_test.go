package ratelimit_test

import (
	"fmt"
	"net/http"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/heedhttp/heed/ratelimit"
)

// floods are headers of some mebibytes: net/http takes ten.
func floods() map[string]http.Header {
	const size = 3 << 20
	dimensions, fields, lines := http.Header{}, http.Header{"Retry-After": {"1"}}, http.Header{}
	for i := range size / 60 {
		dimensions[fmt.Sprintf("X-Ratelimit-Reset-A%d", i)] = []string{"1"}
		dimensions[fmt.Sprintf("X-Ratelimit-Remaining-A%d", i)] = []string{"0"}
	}
	for i := range 20_000 {
		fields[fmt.Sprintf("X-F%d", i)] = []string{"1"}
		lines["Ratelimit"] = append(lines["Ratelimit"], `"a";r=0;t=5`)
	}
	of := func(name, text string) http.Header {
		return http.Header{name: {strings.Repeat(text+",", size/(len(text)+1)) + text}}
	}
	return map[string]http.Header{
		"states": of("Ratelimit", `"a";r=0`), "policies": of("Ratelimit-Policy", `"a";q=1`), "a string": {"Ratelimit": {`"` + strings.Repeat("a", size)}},
		"parameters": {"Ratelimit": {`"a";r=0` + strings.Repeat(";x=1", size/4)}}, "07": of("Ratelimit", "limit=1"),
		"weekdays": of("Retry-After", "Sun"), "durations": of("X-Retry-In", "1ns"), "blanks": {"Retry-After": {strings.Repeat(" ", size)}},
		"digits": {"X-Ratelimit-Remaining": {strings.Repeat("0", size)}}, "dimensions": dimensions, "fields": fields, "lines": lines,
	}
}

// What is read of a header does not grow with it. The memory that it takes shows that on
// any machine, however busy.
func TestAHeaderThatIsAFloodTakesLittle(t *testing.T) {
	now := time.Unix(1_800_000_000, 0)
	for name, h := range floods() {
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

func TestOfAFloodTheBeginningIsUnderstood(t *testing.T) {
	now := time.Unix(1_800_000_000, 0)
	all := floods()
	for name, want := range map[string]time.Duration{"fields": time.Second, "lines": 5 * time.Second, "dimensions": time.Second} {
		wait, ok := ratelimit.Wait(429, all[name], now)
		assert.True(t, ok, name)
		assert.Equal(t, want, wait, name)
	}
	assert.Len(t, ratelimit.Parse(all["states"], now), 1024)
	assert.Len(t, ratelimit.Parse(all["policies"], now), 64)
	assert.Equal(t, []string{"Retry-After"}, ratelimit.Sources(429, all["fields"], now))
	assert.Empty(t, ratelimit.Sources(429, all["dimensions"], now), "too many to be told apart")
}

func BenchmarkFlood(b *testing.B) {
	now := time.Unix(1_800_000_000, 0)
	for name, h := range floods() {
		b.Run(name, func(b *testing.B) {
			for b.Loop() {
				ratelimit.Parse(h, now)
				ratelimit.Wait(429, h, now)
				ratelimit.Sources(429, h, now)
			}
		})
	}
}
