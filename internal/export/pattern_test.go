package export_test

import (
	"net/http"
	"net/http/httptest"
	"regexp"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/heedhttp/heed/internal/export"
	"github.com/heedhttp/heed/quota"
	"github.com/heedhttp/heed/serverside"
)

var patterns = []string{
	"/", "/{$}", "/v1/", "/v1", "/v1/{id}", "/v1/{id}/", "/v1/{id}/x", "/v1/{path...}", "/v1/{$}", "/a.b",
	"/%C3%A9", "/a%20b/c",
}

var paths = []string{
	"/", "/v1", "/V1/", "/v1/a", "/v1/a/", "/v1/a/x", "/v1/a/x/y", "/v2", "/v1x", "/a.b", "/axb", "/é", "/a b/c",
	"/a b",
}

// Expressions match the paths that serverside does.
func TestExpressionsMatchLikeServerside(t *testing.T) {
	for _, pattern := range patterns {
		// RE2 reads bytes of UTF-8 as characters.
		expression := regexp.MustCompile("(?i)" + export.Expression(pattern))
		if pattern == "/%C3%A9" {
			assert.Equal(t, `^/\xc3\xa9/*$`, export.Expression(pattern))
			continue
		}
		for _, path := range paths {
			assert.Equal(t, limits(t, pattern, path), expression.MatchString(path), "%s %s", pattern, path)
		}
	}
}

// limits reports whether a rule with a pattern limits a path.
func limits(t *testing.T, pattern, path string) bool {
	l, err := serverside.New(serverside.Config{
		Rules: []serverside.Rule{{Pattern: pattern, Policies: []quota.Policy{quota.PerSecond(1)}}},
		Audit: func(serverside.Event) {},
	})
	require.NoError(t, err)
	r, w := httptest.NewRequest("GET", "/", nil), httptest.NewRecorder()
	r.URL.Path = path
	l.Wrap(http.NotFoundHandler()).ServeHTTP(w, r)
	return w.Header().Get("RateLimit") != ""
}

func TestPatternCoversNarrowerPatterns(t *testing.T) {
	for _, c := range []struct {
		outer, inner string
		covers       bool
	}{
		{"", "/v1/",
			true}, {"/v1/", "", false}, {"/", "/v1/x", true}, {"/v1/", "/v1/{id}", true}, {"/v1/", "POST /v1/", true},
		{"POST /v1/", "/v1/",
			false}, {"GET /v1/", "HEAD /v1/x", true}, {"/v1/{id}", "/v1/{other}", true}, {"/v1/{id}", "/v1/x", true},
		{"/v1/x", "/v1/{id}", false}, {"/v1/{id}", "/v1/", false}, {"/v1", "/v1/x", false}, {"/v1/x", "/v1", false},
		{"example.com/", "/",
			false}, {"/", "example.com/", true}, {"/V1", "/v1", true}, {"/v1/{id}", "/v1/{$}", false},
		{"/v1/{$}", "/v1/{$}", true},
	} {
		assert.Equal(t, c.covers, export.Covers(c.outer, c.inner), "%s covers %s", c.outer, c.inner)
	}
}

func TestPatternsOverlapIfARequestMatchesBoth(t *testing.T) {
	for _, c := range []struct {
		a, b     string
		overlaps bool
	}{
		{"", "POST h/x",
			true}, {"GET /v1/", "/v1/orders", true}, {"GET /v1/", "HEAD /v1/x", true}, {"GET /v1/", "POST /v1/", false},
		{"/{x}/b", "/a/{y}",
			true}, {"/{x}/b", "/a/c", false}, {"/a", "/a/b", false}, {"/a/", "/a", true}, {"/a/{$}", "/a", true},
		{"/a/{$}", "/a/{x}",
			false}, {"h/a", "/A", true}, {"h/a", "i/a", false}, {"/{$}", "/a", false}, {"/{rest...}", "/{$}", true},
	} {
		assert.Equal(t, c.overlaps, export.Overlaps(c.a, c.b), "%s and %s", c.a, c.b)
		assert.Equal(t, c.overlaps, export.Overlaps(c.b, c.a), "%s and %s", c.b, c.a)
	}
}
