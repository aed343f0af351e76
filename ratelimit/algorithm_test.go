package ratelimit_test

import (
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/heedhttp/heed/ratelimit"
)

func TestAlgorithmIsAPolicyParameter(t *testing.T) {
	sliding, other := limit("a"), limit("b")
	sliding.Algorithm, other.Quota = ratelimit.SlidingWindow, 10
	expect(t, set(ratelimit.Draft11, sliding, other),
		`Ratelimit: "a";r=42;t=17, "b";r=42;t=17`,
		`Ratelimit-Policy: "a";q=100;w=60;heed-algorithm=sliding-window, "b";q=10;w=60`)
	expect(t, set(ratelimit.Draft07, sliding, other),
		"Ratelimit: limit=100, remaining=42, reset=35", "Ratelimit-Policy: 100;w=60;heed-algorithm=sliding-window, 10;w=60")
	sliding.Window = time.Second / 2
	expect(
		t, set(ratelimit.Draft11, sliding), `Ratelimit: "a";r=42;t=17`,
		`Ratelimit-Policy: "a";q=100;heed-algorithm=sliding-window`,
	)
}

func TestAlgorithmIsParsed(t *testing.T) {
	for policy, want := range map[string]string{
		`"a";q=9;w=60;heed-algorithm=token-bucket`:                         ratelimit.TokenBucket,
		`"a";q=9;w=60;heed-algorithm=leaky-bucket`:                         ratelimit.LeakyBucket,
		`"a";q=9;w=60;heed-algorithm=fixed-window`:                         ratelimit.FixedWindow,
		`"a";q=9;w=60;heed-algorithm=sliding-window`:                       ratelimit.SlidingWindow,
		`"a";q=9;heed-algorithm=sliding-log;w=60`:                          ratelimit.SlidingLog,
		`"a";q=9;w=60;heed-algorithm=token-bucket;heed-algorithm=concrete`: "",
		`"a";q=9;w=60;heed-algorithm="sliding-log"`:                        "",
		`"a";q=9;w=60;heed-algorithm=1`:                                    "",
		`"a";q=9;w=60;heed-algorithm`:                                      "",
		`"a";q=9;w=60;acme-algorithm=sliding-log`:                          "",
		`"a";q=9;w=60`:                       "",
		`9;w=60;heed-algorithm=fixed-window`: ratelimit.FixedWindow,
	} {
		limits := ratelimit.Parse(http.Header{"Ratelimit-Policy": {policy}}, now)
		require.Len(t, limits, 1, policy)
		assert.Equal(t, want, limits[0].Algorithm, policy)
		assert.EqualValues(t, 9, limits[0].Quota, policy)
	}
}

func TestUnknownAlgorithmsAreNotWritten(t *testing.T) {
	l := limit("a")
	l.Algorithm = "concrete;x=1"
	expect(t, set(ratelimit.Draft11, l), `Ratelimit: "a";r=42;t=17`, `Ratelimit-Policy: "a";q=100;w=60`)
}

// As Set writes it by default, with X-RateLimit as the second dialect.
func TestAlgorithmSurvivesMergingDialects(t *testing.T) {
	for _, style := range []ratelimit.Style{
		0, ratelimit.Draft11, ratelimit.Draft07, ratelimit.Draft07 | ratelimit.XRateLimit,
	} {
		h, sliding := http.Header{}, limit("a")
		sliding.Algorithm = ratelimit.SlidingLog
		ratelimit.Set(h, style, sliding)
		limits := ratelimit.Parse(h, now)
		require.Len(t, limits, 1, "%v", h)
		assert.Equal(t, ratelimit.SlidingLog, limits[0].Algorithm, "%v", h)
	}
}
