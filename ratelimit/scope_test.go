package ratelimit_test

import (
	"net/http"
	"net/http/httptest"
	"net/url"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/heedhttp/heed/ratelimit"
)

// hashed matches the hash of a segment that may be a secret.
var hashed = regexp.MustCompile("#[0-9a-f]{1,16}")

func TestScopeOf(t *testing.T) {
	for request, want := range map[string]string{
		"github GET /repos/o/r/issues/12":                           "core",
		"github GET /":                                              "core",
		"github GET /search/code":                                   "code_search",
		"github GET /search/issues":                                 "search",
		"github POST /graphql":                                      "graphql",
		"slack POST /api/chat.postMessage":                          "/api/chat.postMessage",
		"slack GET /api/users.list":                                 "/api/users.list",
		"slack POST /services/T012/B345/SeCrEtSeCrEtSeCrEtSeCrEt":   "/services/T012/B345/*",
		"github POST /repos/o/r/actions/runners/registration-token": "actions_runner_registration",
		"github GET /repos/o/r/code-scanning/sarifs":                "core",
		"github POST /repos/o/r/code-scanning/sarifs":               "code_scanning_upload",
		"github POST /repos/o/r/dependency-graph/snapshots":         "dependency_snapshots",
		"github POST /app-manifests/c/conversions":                  "integration_manifest",
		"github GET /orgs/o/audit-log":                              "audit_log",
		"github GET /api/v3/search/code":                            "code_search",
		"github POST /api/graphql":                                  "graphql",
		"github GET /searching/code":                                "core",
		"x GET /2/users/by/username/jack/tweets":                    "GET /*/users/by/username/*/tweets",
		"okta GET /api/v1/users/isaac":                              "GET /api/*/users/*",
		"okta POST /oauth2/default/v1/token":                        "POST /oauth2/*/v1/token",
		"okta POST /oauth2/v1/token":                                "POST /oauth2/v1/token",
		"auth0 GET /api/v2/organizations/name/acme":                 "GET /api/*/organizations/name/*",
		"auth0 GET /api/v2/users/auth0|abc":                         "GET /api/*/users/*",
		"jira GET /rest/api/3/project/ABC/components":               "GET /rest/api/*/project/*/components",
		"jira PUT /ex/jira/11223344-a1b2-c3d4-e5f6-a7b8c9d0e1f2" +
			"/rest/api/3/issue/P-1": "PUT /ex/jira/#a/rest/api/*/issue/P-1",
		"sentry POST /api/12345/envelope/":                             "POST /api/*/envelope/",
		"discord PUT /api/v10/channels/1/messages/2/reactions/x/@me":   "PUT /api/*/channels/1/messages/*/reactions/*/*",
		"discord POST /api/webhooks/77/" + strings.Repeat("t0ken", 10): "POST /api/webhooks/77/#a",
		"x GET /2/users/12345/tweets":                                  "GET /*/users/*/tweets",
		"x POST /2/tweets":                                             "POST /*/tweets",
		"okta GET /api/v1/users/00ub0oNGTSWTBKOLGLNR":                  "GET /api/*/users/*",
		"okta GET /api/v1/users/isaac.brock@example.com":               "GET /api/*/users/*",
		"jira GET /rest/api/3/issue/PROJ-12":                           "GET /rest/api/*/issue/*",
		"jira PUT /rest/api/3/issue/PROJ-12":                           "PUT /rest/api/*/issue/PROJ-12",
		"discord POST /api/v10/channels/1234/messages":                 "POST /api/*/channels/1234/messages",
		"discord DELETE /api/v10/channels/1234/messages/5678":          "DELETE /api/*/channels/1234/messages/*",
		"discord GET /api/v10/users/5678":                              "GET /api/*/users/*",
		"stripe GET /v1/charges":                                       "",
		"okta GET /" + strings.Repeat("a/", 1000):                      "GET /" + strings.Repeat("a/", 125) + "a",
		"okta GET /" + strings.Repeat("x", 33) + "/a/" + "b.c-d":       "GET /*/a/b.c-d",
	} {
		vendor, rest, _ := strings.Cut(request, " ")
		method, path, _ := strings.Cut(rest, " ")
		got := ratelimit.Vendor(vendor).Scope.Of(httptest.NewRequest(method, path, nil))
		assert.Equal(t, want, hashed.ReplaceAllString(got, "#a"), request)
	}
	assert.Empty(t, (&ratelimit.Scope{Endpoints: true}).Of(&http.Request{}))
}

// GitHub's secondary limits cover all requests, its primary ones a resource.
func TestAnswerAllMarksLimitsOfAllRequests(t *testing.T) {
	github := ratelimit.Vendor("github")
	secondary := github.Judge(403, http.Header{"Retry-After": {"60"}, "X-Ratelimit-Remaining": {"12"}}, nil, time.Now())
	assert.Equal(t, ratelimit.Answer{Meaning: ratelimit.Limited, Wait: time.Minute, Known: true, All: true}, secondary)
	graphql := github.Judge(
		200, http.Header{"Retry-After": {"60"}},
		[]byte(`{"message":"You have exceeded a secondary rate limit"}`), time.Now(),
	)
	assert.Equal(t, secondary, graphql)
	primary := github.Judge(
		403, http.Header{"X-Ratelimit-Remaining": {"0"}, "X-Ratelimit-Reset": {"60"}}, nil, time.Now(),
	)
	assert.Equal(t, ratelimit.Answer{Meaning: ratelimit.Limited, Wait: time.Minute, Known: true}, primary)
}

func TestAnswersHaveAllOrOwn(t *testing.T) {
	for _, c := range []struct {
		vendor   string
		fields   []string
		all, own bool
	}{
		{"discord", []string{"X-RateLimit-Global: true"}, true, false},
		{"discord", []string{"X-RateLimit-Scope: global"}, true, false},
		{"discord", []string{"X-RateLimit-Scope: user", "X-RateLimit-Bucket: abc"}, false, false},
		{"jira", []string{"RateLimit-Reason: jira-quota-global-based"}, true, false},
		{"jira", []string{"RateLimit-Reason: jira-quota-tenant-based"}, true, false},
		{"jira", []string{"RateLimit-Reason: jira-burst-based"}, false, false},
		{"jira", []string{"RateLimit-Reason: jira-per-issue-on-write"}, false, false},
		{"jira", nil, false, false},
		{"sentry", []string{"X-Sentry-Rate-Limits: 50:transaction:organization"}, false, true},
		{"sentry", nil, false, false},
		{"slack", []string{"Retry-After: 1"}, false, false},
	} {
		a := ratelimit.Vendor(c.vendor).Judge(429, header(c.fields...), nil, now)
		assert.Equal(t, ratelimit.Limited, a.Meaning, "%+v", c)
		assert.Equal(t, c.all, a.All, "%+v", c)
		assert.Equal(t, c.own, a.Own, "%+v", c)
	}
	p := ratelimit.Profile{Signs: []ratelimit.Sign{{Means: ratelimit.Final, All: true, Own: true}}}
	assert.Equal(t, ratelimit.Answer{Meaning: ratelimit.Final}, p.Judge(500, nil, nil, now), "not a limit")
}

// Scopes are logged and shared, so secrets in a path must not get into them.
func TestScopesHideSecrets(t *testing.T) {
	secret := strings.Repeat("aBcDeFgHiJ", 7)
	for vendor, path := range map[string]string{
		"discord": "/api/webhooks/77/" + secret, "slack": "/services/T1/B1/" + secret[:24], "okta": "/api/v1/x/" + secret,
	} {
		s := ratelimit.Vendor(vendor).Scope
		got := s.Of(httptest.NewRequest("POST", path, nil))
		assert.NotContains(t, got, secret[:24], vendor)
	}
	s := ratelimit.Vendor("discord").Scope
	one, other := httptest.NewRequest("POST", "/api/webhooks/77/"+secret, nil), httptest.NewRequest(
		"POST", "/api/webhooks/77/"+secret+"a", nil,
	)
	assert.Equal(t, s.Of(one), s.Of(one.Clone(t.Context())))
	assert.NotEqual(t, s.Of(one), s.Of(other), "each webhook has its own limits")
}

func TestAnEmptyMethodIsGET(t *testing.T) {
	s := ratelimit.Scope{Endpoints: true, Methods: true, Keep: []string{"GET /a/{}"}}
	get := httptest.NewRequest("GET", "/a/b1", nil)
	none := &http.Request{URL: get.URL}
	assert.Equal(t, "GET /a/b1", s.Of(get))
	assert.Equal(t, "GET /a/b1", s.Of(none))
	assert.Equal(t, "POST /a/*", s.Of(httptest.NewRequest("POST", "/a/b1", nil)))
}

func TestGroupScopesDoNotAllocate(t *testing.T) {
	for request, want := range map[string]float64{
		"github GET /repos/o/r/issues/12": 0, "github GET /search/code": 0, "stripe GET /v1/charges": 0,
		"okta GET /api/v1/users/00ub0oNGTSWTBKOLGLNR": 1, "discord POST /api/v10/channels/1234/messages": 1,
	} {
		vendor, rest, _ := strings.Cut(request, " ")
		method, path, _ := strings.Cut(rest, " ")
		p, req := ratelimit.Vendor(vendor), httptest.NewRequest(method, path, nil)
		assert.Equal(t, want, testing.AllocsPerRun(100, func() { p.Scope.Of(req) }), request)
	}
}

// FuzzScope checks the documented properties of Scope.Of for any request.
func FuzzScope(f *testing.F) {
	f.Add("GET", "/repos/o/r", "/a/*/{}")
	f.Add("", "", "")
	f.Add("POST", "/api/v10/channels/1234/messages/5678", "POST /api/*/channels/{}")
	f.Add("DELETE", strings.Repeat("/a1", 300), strings.Repeat("/{}", 100))
	f.Add("X Y", "//\x00\xff/%2f", " / / ")
	f.Fuzz(func(t *testing.T, method, path, pattern string) {
		req := &http.Request{Method: method, URL: &url.URL{Path: path}}
		own := ratelimit.Scope{
			Endpoints: true, Methods: len(path)%2 == 0, Keep: []string{pattern},
			Groups: []ratelimit.Group{{Name: "g", Paths: []string{"/g/" + pattern}}},
		}
		for _, s := range append(scopes(), own) {
			of := s.Of(req)
			if len(of) > 256 || of != s.Of(req) {
				t.Fatalf("%+v of %q %q: %q", s, method, path, of)
			}
			if of == "" && s.Endpoints {
				t.Fatalf("%+v of %q %q has the scope of all requests", s, method, path)
			}
			for segment := range strings.SplitSeq(of, "/") {
				if s.Endpoints && strings.HasPrefix(of, "/") && len(segment) > 32 {
					t.Fatalf("%+v of %q %q: %q", s, method, path, of)
				}
			}
		}
	})
}

// scopes are those of the vendors.
func scopes() (all []ratelimit.Scope) {
	for _, p := range ratelimit.AllVendors() {
		all = append(all, p.Scope)
	}
	return all
}
