package ratelimit_test

import (
	"net/http"
	"testing"
	"time"

	"github.com/heedhttp/heed/ratelimit"
	"github.com/stretchr/testify/assert"
)

func TestSourcesAreTheDecidingFields(t *testing.T) {
	now := time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC)
	for _, test := range []struct {
		name   string
		status int
		header http.Header
		want   []string
	}{
		{"nothing is asked", 429, http.Header{"Server": {"x"}}, nil},
		{"a success", 200, http.Header{"Retry-After": {"3"}}, nil},
		{"one field", 429, http.Header{"Retry-After": {"3"}, "X-Request-Id": {"7"}}, []string{"Retry-After"}},
		{"a date is measured by Date, which asks for nothing", 503, http.Header{
			"Retry-After": {"Fri, 20 Nov 2026 12:00:05 GMT"}, "Date": {"Fri, 20 Nov 2026 12:00:00 GMT"},
		}, []string{"Retry-After"}},
		{"the finer one", 429, http.Header{"Retry-After": {"2"}, "Retry-After-Ms": {"1500"}}, []string{"Retry-After-Ms"}},
		{"the longer one", 429, http.Header{"Retry-After": {"9"}, "Retry-After-Ms": {"1500"}}, []string{"Retry-After"}},
		{
			"both say it", 429, http.Header{"Retry-After": {"2"}, "Retry-After-Ms": {"2000"}},
			[]string{"Retry-After", "Retry-After-Ms"},
		},
		{"precedence", 429, http.Header{"Retry-After": {"1"}, "Ratelimit": {`"a";r=0;t=60`}}, []string{"Retry-After"}},
		{"a quota", 429, http.Header{"Ratelimit": {`"a";r=0;t=60`}}, []string{"Ratelimit"}},
		{"a quota in two fields", 503, http.Header{"X-Ratelimit-Remaining": {"0"}, "X-Ratelimit-Reset": {"30"}},
			[]string{"X-Ratelimit-Remaining", "X-Ratelimit-Reset"}},
	} {
		assert.Equal(t, test.want, ratelimit.Sources(test.status, test.header, now), test.name)
	}
}

func TestSourcesAcceptAZeroNow(t *testing.T) {
	in := time.Now().Add(time.Hour).UTC().Format(http.TimeFormat)
	assert.Equal(t, []string{"Retry-After"}, ratelimit.Sources(429, http.Header{"Retry-After": {in}}, time.Time{}))
}
