package ratelimit_test

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/heedhttp/heed/ratelimit"
)

func TestTheScopeOfARequest(t *testing.T) {
	for request, want := range map[string]string{
		"github GET /repos/o/r/issues/12":                        "core",
		"github GET /":                                           "core",
		"github GET /search/code":                                "code_search",
		"github GET /search/issues":                              "search",
		"github POST /graphql":                                   "graphql",
		"slack POST /api/chat.postMessage":                       "/api/chat.postMessage",
		"slack GET /api/users.list":                              "/api/users.list",
		"x GET /2/users/12345/tweets":                            "GET /*/users/*/tweets",
		"x POST /2/tweets":                                       "POST /*/tweets",
		"okta GET /api/v1/users/00ub0oNGTSWTBKOLGLNR":            "GET /api/*/users/*",
		"okta GET /api/v1/users/isaac.brock@example.com":         "GET /api/*/users/*",
		"jira GET /rest/api/3/issue/PROJ-12":                     "GET /rest/api/*/issue/*",
		"jira PUT /rest/api/3/issue/PROJ-12":                     "PUT /rest/api/*/issue/PROJ-12",
		"discord POST /api/v10/channels/1234/messages":           "POST /api/*/channels/1234/messages",
		"discord DELETE /api/v10/channels/1234/messages/5678":    "DELETE /api/*/channels/1234/messages/*",
		"discord GET /api/v10/users/5678":                        "GET /api/*/users/*",
		"stripe GET /v1/charges":                                 "",
		"okta GET /" + strings.Repeat("a/", 1000):                "GET /" + strings.Repeat("a/", 125) + "a",
		"okta GET /" + strings.Repeat("x", 33) + "/a/" + "b.c-d": "GET /*/a/b.c-d",
	} {
		vendor, rest, _ := strings.Cut(request, " ")
		method, path, _ := strings.Cut(rest, " ")
		got := ratelimit.Vendor(vendor).Scope.Of(httptest.NewRequest(method, path, nil))
		assert.Equal(t, want, got, request)
	}
	assert.Empty(t, (&ratelimit.Scope{Endpoints: true}).Of(&http.Request{}))
}

// GitHub's secondary limits are of all requests; its primary ones of a resource.
func TestALimitOfAllRequestsIsSaidToBe(t *testing.T) {
	github := ratelimit.Vendor("github")
	secondary := github.Judge(403, http.Header{"Retry-After": {"60"}, "X-Ratelimit-Remaining": {"12"}}, nil, time.Now())
	assert.Equal(t, ratelimit.Answer{Meaning: ratelimit.Limited, Wait: time.Minute, Known: true, All: true}, secondary)
	primary := github.Judge(403, http.Header{"X-Ratelimit-Remaining": {"0"}, "X-Ratelimit-Reset": {"60"}}, nil, time.Now())
	assert.Equal(t, ratelimit.Answer{Meaning: ratelimit.Limited, Wait: time.Minute, Known: true}, primary)
}
