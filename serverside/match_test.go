package serverside_test

import (
	"net/http"
	"net/http/httptest"
	"net/url"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/heedhttp/heed/quota"
	"github.com/heedhttp/heed/serverside"
)

// limited reports whether a rule with this pattern applies to r.
func limited(t testing.TB, pattern string, r *http.Request) bool {
	t.Helper()
	l := must(t, serverside.Config{
		Rules: []serverside.Rule{{Name: "api", Pattern: pattern, Policies: []quota.Policy{quota.PerHour(5)}}},
	})
	return len(limitFields(serve(l.Wrap(new(ok)), r).Header())) > 0
}

func TestPatterns(t *testing.T) {
	for _, c := range []struct {
		pattern, method, target string
		want                    bool
	}{
		{"", "GET", "/anything", true},
		{"/", "GET", "/anything", true},
		{"/", "CONNECT", "example.com:443", true},
		{"/v1/", "GET", "/v1/users", true},
		{"/v1/", "GET", "/v1/", true},
		{"/v1/", "GET", "/v1", true},
		{"/v1/", "GET", "/v10/users", false},
		{"/api/auth", "GET", "/api/authors", false},
		{"/health", "GET", "/healthz", false},
		{"GET /v1/", "HEAD", "/v1/users", true},
		{"GET /v1/", "POST", "/v1/users", false},
		{"POST /v1/{path...}", "POST", "/v1/a/b", true},
		{"/v1/{userID}/posts", "GET", "/v1/7/posts", true},
		{"/v1/{userID}/posts", "GET", "/v1/7/likes", false},
		{"/v1/{$}", "GET", "/v1/", true},
		{"/v1/{$}", "GET", "/v1/a", false},
		{"example.com/v1/", "GET", "http://example.com/v1/", true},
		{"example.com/v1/", "GET", "http://example.com:8080/v1/", true},
		{"Example.COM/v1/", "GET", "http://eXAMPLE.com./v1/", true},
		{"example.com/v1/", "GET", "http://example.com.:8080/v1/", true},
		{"[::1]/v1/", "GET", "http://[::1]/v1/", true},
		{"[::1]/v1/", "GET", "http://[::1]:80/v1/", true},
		{"::1/v1/", "GET", "http://[::1]:80/v1/", true},
		{"example.com/v1/", "GET", "http://example.org/v1/", false},
		{"/caf%C3%A9", "GET", "/caf%c3%89", true},
		{"/a%2Fb", "GET", "/A%2fB", true},
		{"/%ZZ/a", "GET", "/%25zz/a", true}, // http.ServeMux reads an invalid escape literally
		{"/a...}", "GET", "/a...}", true},
		{"/a...}", "GET", "/b", false},
		{"/v1/{id}", "GET", "/v1/%2F", true},
		{"/v1/{id}", "GET", "/v1/", false},
		{"/v1/{id}", "GET", "/v1/7/", true},
		{"/v1/{id}/{$}", "GET", "/v1/7", true},
		{"/v1/{id}/{rest...}", "GET", "/v1/7", true},
		{"/v1/{id}/{rest...}", "GET", "/v1/", false},
		{"GET\t example.com/", "GET", "http://example.com/", true},
		{" /", "GET", "/", true},
	} {
		r := httptest.NewRequest(c.method, c.target, nil)
		assert.Equal(t, c.want, limited(t, c.pattern, r), "%s %s %s", c.pattern, c.method, c.target)
	}
}

func TestPatternCannotBeEvaded(t *testing.T) {
	for _, target := range []string{ // some router accepts each of them for /api/auth/login
		"/api/auth/login", "/api/auth/login/", "/api//auth/login", "//api/auth/login", "/api/auth//login",
		"/API/auth/Login", "/api/./auth/login", "/api/x/../auth/login", "/api/auth/login/.", "/api/auth/login/x/..",
		"/api/auth/login?x=/other", "/%61pi/auth/login", "/api%2Fauth%2flogin", "/api/%61uth/login//",
		"/api/%2e/auth/login", "/other/%2e%2e/api/auth/login", "/api/auth/login%2F", "/API%2F%2FAUTH/login",
		"http://other.example/api/auth/login",
	} {
		r := httptest.NewRequest("POST", target, nil)
		assert.True(t, limited(t, "POST /api/auth/login", r), target)
	}
}

func TestSpellingsOfAPathShareOneQuota(t *testing.T) {
	rules := []serverside.Rule{{Pattern: "/login", Policies: []quota.Policy{quota.PerHour(3)}}}
	h := must(t, serverside.Config{Rules: rules}).Wrap(new(ok))
	assert.Equal(t, 200, ask(h, "GET", "/login").Code)
	assert.Equal(t, 200, ask(h, "GET", "/login/").Code)
	assert.Equal(t, 200, ask(h, "GET", "//LOGIN").Code)
	assert.Equal(t, 429, ask(h, "GET", "/%6Cogin").Code)
	assert.Equal(t, 429, ask(h, "GET", "/login?x=1").Code)
}

func TestEscapedDotsMatchAsTheRouterReadsThem(t *testing.T) {
	// http.ServeMux matches this below /v1/, a file server serves /admin.
	for _, pattern := range []string{"/v1/", "/admin"} {
		assert.True(t, limited(t, pattern, httptest.NewRequest("GET", "/v1/%2e%2e/admin", nil)), pattern)
	}
}

func TestPathsThatHTTPNeverSendsMatchToo(t *testing.T) {
	for _, path := range []string{"", "*", "v1", "%zz"} {
		r := &http.Request{Method: "GET", URL: &url.URL{Path: path}, Header: http.Header{}}
		assert.True(t, limited(t, "/", r), path)
	}
}

func TestRulesMatchWhateverServeMuxServes(t *testing.T) {
	for _, pattern := range []string{
		"/v1/", "/v1/{id}", "/v1/{id}/x", "GET /v1/a", "/v1/{rest...}", "/{$}", "example.com/v1/",
	} {
		mux := http.NewServeMux()
		served := false
		mux.HandleFunc(pattern, func(http.ResponseWriter, *http.Request) { served = true })
		for _, target := range []string{
			"/", "/v1", "/v1/", "/v1/a", "/v1/a/x", "/v1/%2f", "/v1/a%2fx", "/v1/%2e%2e/x", "/v1/a/x/y",
		} {
			served = false
			serve(mux, httptest.NewRequest("GET", target, nil))
			if served {
				assert.True(t, limited(t, pattern, httptest.NewRequest("GET", target, nil)), "%s %s", pattern, target)
			}
		}
	}
}

func TestPatternMatchedByTheRouterCounts(t *testing.T) {
	rules := []serverside.Rule{
		{Name: "routed", Pattern: "POST /v1/{path...}", Policies: []quota.Policy{quota.PerHour(9)}},
		{Name: "path", Pattern: "/v1/", Policies: []quota.Policy{quota.PerHour(9)}},
		{Name: "stripped", Pattern: "/things/", Policies: []quota.Policy{quota.PerHour(9)}},
		{Name: "other", Pattern: "GET /v1/{path...}", Policies: []quota.Policy{quota.PerHour(9)}},
	}
	names := func(w *httptest.ResponseRecorder) (names []string) {
		for _, rule := range rules {
			if strings.Contains(w.Header().Get("RateLimit"), `"`+rule.Name+`"`) {
				names = append(names, rule.Name)
			}
		}
		return names
	}
	behind, before := must(t, serverside.Config{Rules: rules}), must(t, serverside.Config{Rules: rules})
	mux := http.NewServeMux()
	mux.Handle("POST /v1/{path...}", http.StripPrefix("/v1", behind.Wrap(new(ok))))
	mux.Handle("PUT /v1/{path...}", behind.Wrap(new(ok)))
	assert.Equal(t, []string{"routed", "stripped"}, names(ask(mux, "POST", "/v1/things/7")))
	assert.Equal(t, []string{"path"}, names(ask(mux, "PUT", "/v1/things/7")), "by another pattern")
	assert.Equal(t, []string{"routed", "path"}, names(ask(before.Wrap(new(ok)), "POST", "/v1/things/7")))
}

func TestUnmatchedRequestIsNotTouched(t *testing.T) {
	rules := []serverside.Rule{{Pattern: "/v1/", Policies: []quota.Policy{quota.PerHour(1)}}}
	never := store(down)
	h := must(t, serverside.Config{Rules: rules, Store: never, OnStoreError: serverside.FailClosed}).Wrap(new(ok))
	w := ask(h, "GET", "/health")
	assert.Equal(t, 200, w.Code)
	assert.Empty(t, limitFields(w.Header()))
}

func TestFieldsShowOnlyMatchingRules(t *testing.T) {
	rules := []serverside.Rule{
		{Name: "all", Policies: []quota.Policy{quota.PerHour(100)}},
		{Name: "a", Pattern: "/a", Policies: []quota.Policy{quota.PerHour(10)}},
		{Name: "b", Pattern: "/b", Policies: []quota.Policy{quota.PerHour(20)}},
		{Name: "get", Pattern: "GET /", Policies: []quota.Policy{quota.PerHour(30)}},
	}
	h := must(t, serverside.Config{Rules: rules}).Wrap(new(ok))
	policies := func(method, target string) string {
		return ask(h, method, target).Header().Get("RateLimit-Policy")
	}
	assert.Equal(t, `"all";q=100;w=3600;heed-algorithm=token-bucket`, policies("POST", "/"))
	assert.Equal(t, `"all";q=100;w=3600;heed-algorithm=token-bucket, "a";q=10;w=3600;heed-algorithm=token-bucket`,
		sorted(policies("POST", "/a")))
	assert.Equal(t, `"all";q=100;w=3600;heed-algorithm=token-bucket, "b";q=20;w=3600;heed-algorithm=token-bucket, `+
		`"get";q=30;w=3600;heed-algorithm=token-bucket`, sorted(policies("GET", "/b")))
}

// sorted sorts the members of a list in the order of the rules above.
func sorted(list string) string {
	members := strings.Split(list, ", ")
	var out []string
	for _, name := range []string{"all", "a", "b", "get"} {
		for _, m := range members {
			if strings.HasPrefix(m, `"`+name+`"`) {
				out = append(out, m)
			}
		}
	}
	return strings.Join(out, ", ")
}

func FuzzPatterns(f *testing.F) {
	for _, s := range []string{
		"/v1/", "GET /", "GET\t /{x}/{$}", "h/{x...}", "{", "/{X}/{x}", " /", "a b c", "/%zz", "/a//b", "GET ../",
	} {
		f.Add(s, "/V1/%2e%2e//x", "GET")
	}
	f.Fuzz(func(t *testing.T, pattern, path, method string) {
		limiter, err := serverside.New(serverside.Config{Rules: []serverside.Rule{
			{Name: "r", Pattern: pattern, Policies: []quota.Policy{quota.PerHour(1)}}}})
		mux := http.NewServeMux()
		valid := registers(mux, pattern)
		if err != nil {
			fault, ok := err.(interface{ Unwrap() []error })
			if !ok || fault.Unwrap()[0].(*serverside.ConfigError).Field != "Rules[0].Pattern" {
				t.Fatalf("%q: %v", pattern, err)
			}
			return
		}
		if !valid && pattern != "" {
			t.Fatalf("%q is accepted", pattern)
		}
		u, err := url.ParseRequestURI(path)
		if err != nil {
			return
		}
		r := &http.Request{Method: method, URL: u, Host: "h", Header: http.Header{}, RemoteAddr: "192.0.2.1:1"}
		require.NotPanics(t, func() { serve(limiter.Wrap(new(ok)), r) })
		if pattern == "" {
			return
		}
		// The rule limits whatever http.ServeMux serves by its pattern.
		if _, matched := mux.Handler(r); matched != "" && serve(limiter.Wrap(new(ok)), r).Code != 429 {
			t.Fatalf("%q does not match %q", pattern, path)
		}
	})
}

// A rule matches plain paths like http.ServeMux, except for the final slash.
func FuzzPlainPatterns(f *testing.F) {
	for _, pattern := range []string{
		"/", "/a/", "/a/b", "GET /{x}", "/{x}/b/{$}", "/a/{rest...}", "h/a/{x}/", "g/", "POST /a", "HEAD /",
	} {
		for _, path := range []string{"/", "/a", "/a/", "/a/b", "/a/b/", "/a/b/c", "/b/a"} {
			f.Add(pattern, path, "GET")
			f.Add(pattern, path, "HEAD")
		}
	}
	plainPattern := regexp.MustCompile(`^([A-Z]+ )?[gh]?(/[a-z0-9_-]+|/\{[a-z]+\})*(/|/\{\$\}|/\{[a-z]+\.\.\.\})?$`)
	plainPath := regexp.MustCompile(`^(/[a-z0-9_-]+)*/?$`)
	f.Fuzz(func(t *testing.T, pattern, path, method string) {
		mux := http.NewServeMux()
		if path == "" || !plainPath.MatchString(path) || !plainPattern.MatchString(pattern) || !registers(mux, pattern) {
			return
		}
		limiter, err := serverside.New(serverside.Config{Rules: []serverside.Rule{
			{Name: "r", Pattern: pattern, Policies: []quota.Policy{quota.PerHour(1)}}}})
		require.NoError(t, err)
		served := false
		for _, p := range []string{path, strings.TrimSuffix(path, "/"), strings.TrimSuffix(path, "/") + "/"} {
			_, matched := mux.Handler(&http.Request{Method: method, URL: &url.URL{Path: p}, Host: "h"})
			served = served || matched != ""
		}
		r := &http.Request{
			Method: method, URL: &url.URL{Path: path}, Host: "h", Header: http.Header{}, RemoteAddr: "192.0.2.1:1",
		}
		if got := len(limitFields(serve(limiter.Wrap(new(ok)), r).Header())) > 0; got != served {
			t.Fatalf("%q limits %s %q: %v, and http.ServeMux serves it: %v", pattern, method, path, got, served)
		}
	})
}

func registers(mux *http.ServeMux, pattern string) (valid bool) {
	defer func() { valid = recover() == nil }()
	mux.HandleFunc(pattern, func(http.ResponseWriter, *http.Request) {})
	return true
}
