package scope_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/heedhttp/heed/internal/hostkey"
	"github.com/heedhttp/heed/internal/scope"
	"github.com/heedhttp/heed/ratelimit"
)

// request returns the request of a line such as "GET https://example.com/path", and its host.
func request(t testing.TB, line string) (*http.Request, hostkey.Name) {
	t.Helper()
	method, url, _ := strings.Cut(line, " ")
	req, err := http.NewRequest(method, url, nil)
	require.NoError(t, err)
	return req, hostkey.NameOf(hostkey.Of(req.URL.Scheme, req.URL.Host))
}

func of(t testing.TB, table *scope.Table, line string, profiles ...*ratelimit.Profile) string {
	t.Helper()
	req, host := request(t, line)
	return table.Of(req, host, profiles)
}

func learn(t testing.TB, table *scope.Table, line, field, value string, profiles ...*ratelimit.Profile) {
	t.Helper()
	req, host := request(t, line)
	table.Learn(req, host, http.Header{field: {value}}, profiles)
}

func TestTheCallersProfileGoesBeforeTheBuiltInOne(t *testing.T) {
	var table scope.Table
	own := &ratelimit.Profile{Name: "own", Hosts: []string{"api.github.com"}, Scope: ratelimit.Scope{Endpoints: true}}
	for range 2 { // the second time from the cache
		assert.Equal(t, "search", of(t, &table, "GET https://api.github.com/search/issues"))
		assert.Equal(t, "search", of(t, &table, "GET https://api.github.com:8443/search/issues"))
		assert.Equal(t, "/search/issues", of(t, &table, "GET https://api.github.com/search/issues", own))
		assert.Equal(t, "search", of(t, &table, "GET https://api.github.com/search/issues", ratelimit.Vendor("slack")))
		assert.Equal(t, "/api/users.list", of(t, &table, "GET https://acme.slack.com/api/users.list", own))
		assert.Empty(t, of(t, &table, "GET https://api.stripe.com/v1/charges"))
		assert.Empty(t, of(t, &table, "GET https://example.com/search/issues"))
	}
	_, host := request(t, "GET https://example.com/")
	assert.Nil(t, table.Profile(host, nil))
	assert.Empty(t, table.Of(&http.Request{}, host, []*ratelimit.Profile{own.On()}))
}

func TestRoutesWithTheSameNamedLimitShareIt(t *testing.T) {
	var table scope.Table
	const at, bucket = "https://discord.com/api/v10", "X-Ratelimit-Bucket"
	assert.Equal(t, "PUT /api/*/channels/1/pins/*", of(t, &table, "PUT "+at+"/channels/1/pins/2"))
	learn(t, &table, "PUT "+at+"/channels/1/pins/2", bucket, "abcd1234")
	learn(t, &table, "DELETE "+at+"/channels/7/pins/8", bucket, "abcd1234")
	for _, line := range []string{"PUT " + at + "/channels/1/pins/2", "PUT " + at + "/channels/1/pins/3",
		"DELETE " + at + "/channels/1/pins/2"} {
		assert.Equal(t, "abcd1234 1", of(t, &table, line), "each channel has its own limit: %s", line)
	}
	assert.Equal(t, "abcd1234 5", of(t, &table, "DELETE "+at+"/channels/5/pins/2"),
		"learnt from one channel, known for all")
	assert.Equal(t, "GET /api/*/channels/1/pins", of(t, &table, "GET "+at+"/channels/1/pins"), "another route")
	assert.Equal(t, "PUT /api/*/channels/1/pins/*", of(t, &table, "PUT https://canary.example/api/v10/channels/1/pins/2",
		ratelimit.Vendor("discord").On()), "another host")

	learn(t, &table, "PUT "+at+"/channels/1/pins/2", bucket, "ef")
	assert.Equal(t, "ef 1", of(t, &table, "PUT "+at+"/channels/1/pins/2"), "the last one counts")

	learn(t, &table, "GET "+at+"/users/@me/guilds", bucket, "0123")
	assert.Equal(t, "0123", of(t, &table, "GET "+at+"/users/@me/guilds"), "the route has no channel")
}

func TestANamedResourceGoesBeforeThePath(t *testing.T) {
	var table scope.Table
	const runner = "POST https://api.github.com/repos/o/r/actions/runners/new-token"
	assert.Equal(t, "core", of(t, &table, runner))
	learn(t, &table, runner, "X-Ratelimit-Resource", "actions_runner_registration")
	assert.Equal(t, "actions_runner_registration", of(t, &table, runner))
	assert.Equal(t, "core", of(t, &table, "GET https://api.github.com/repos/o/r/actions/runners"))
	learn(t, &table, runner, "X-Ratelimit-Resource", "core")
	assert.Equal(t, "core", of(t, &table, runner))
}

// The Profile's Scope names a field and nothing else.
func TestAScopeCanBeLearntFromResponsesAlone(t *testing.T) {
	var table scope.Table
	own := &ratelimit.Profile{Hosts: []string{"example.com"}, Scope: ratelimit.Scope{Header: "x-my-limit"}}
	assert.Empty(t, of(t, &table, "GET https://example.com/a/1", own))
	req, host := request(t, "GET https://example.com/a/1")
	for i, want := range []bool{true, false} {
		assert.Equal(t, want, table.Learn(req, host, http.Header{"X-My-Limit": {"small"}}, []*ratelimit.Profile{own}), i)
	}
	assert.Equal(t, "small", of(t, &table, "GET https://example.com/a/2", own))
	assert.Empty(t, of(t, &table, "GET https://example.com/b", own))
}

func TestAnInvalidNameIsNotLearnt(t *testing.T) {
	var table scope.Table
	const line = "GET https://discord.com/api/v10/gateway"
	for _, name := range []string{"", "two words", "a\x00b", "ü", strings.Repeat("x", 65)} {
		learn(t, &table, line, "X-Ratelimit-Bucket", name)
		assert.Equal(t, "GET /api/*/gateway", of(t, &table, line), name)
	}
	learn(t, &table, line, "X-Other", "abc")
	assert.Equal(t, "GET /api/*/gateway", of(t, &table, line))
	learn(t, &table, "GET https://example.com/a", "X-Ratelimit-Bucket", "abc")
	assert.Empty(t, of(t, &table, "GET https://example.com/a"))
}

func TestATokenInAPathIsHidden(t *testing.T) {
	var table scope.Table
	token := strings.Repeat("s3cret-", 10)
	line := "POST https://discord.com/api/v10/webhooks/12/" + token
	before := of(t, &table, line)
	assert.Regexp(t, `^POST /api/\*/webhooks/12/#[0-9a-f]{1,16}$`, before)
	assert.NotEqual(t, before, of(t, &table, line+"x"))
	assert.Equal(t, "/services/T00/B00/*",
		of(t, &table, "POST https://hooks.slack.com/services/T00/B00/abcdefghijKLMNOPQRSTuvwx"))
	assert.Equal(t, "/api/conversations.requestSharedInv",
		of(t, &table, "POST https://slack.com/api/conversations.requestSharedInv"))
	learn(t, &table, line, "X-Ratelimit-Bucket", "abcd")
	after := of(t, &table, line)
	assert.Regexp(t, `^abcd 12 #[0-9a-f]{1,16}$`, after)
	assert.NotEqual(t, after, of(t, &table, line+"x"))
}

func TestATableIsSafeForConcurrentUse(t *testing.T) {
	var table scope.Table
	var all sync.WaitGroup
	for i := range 8 {
		all.Go(func() {
			line := fmt.Sprintf("GET https://discord.com/api/v10/channels/%d/pins", i)
			for n := range 200 {
				learn(t, &table, line, "X-Ratelimit-Bucket", fmt.Sprint("b", n))
				assert.Regexp(t, fmt.Sprintf(`^b\d+ %d$`, i), of(t, &table, line))
			}
		})
	}
	all.Wait()
}

func TestARouteIsTheMethodAndTwoSegments(t *testing.T) {
	for line, want := range map[string]string{
		"GET /": "GET /", "GET /a": "GET /a", "POST /a/b": "POST /a/b", "GET /a/b/c": "GET /a/b", "GET /a/b/": "GET /a/b",
		"GET /" + strings.Repeat("x", 100): "GET /" + strings.Repeat("x", 63),
	} {
		method, path, _ := strings.Cut(line, " ")
		assert.Equal(t, want, scope.Route(httptest.NewRequest(method, path, nil)))
	}
}

// Every request to a host without a Profile takes this path.
func TestAHostWithoutNamedLimitsCostsNoAllocation(t *testing.T) {
	var table scope.Table
	req, host := request(t, "GET https://example.com/a")
	h := http.Header{"X-Ratelimit-Bucket": {"a"}}
	assert.Zero(t, testing.AllocsPerRun(100, func() {
		table.Learn(req, host, h, nil)
		table.Of(req, host, nil)
	}))
}

func BenchmarkLearnNothing(b *testing.B) {
	var table scope.Table
	req, host := request(b, "GET https://example.com/a")
	h := http.Header{"X-Ratelimit-Bucket": {"a"}}
	for b.Loop() {
		table.Learn(req, host, h, nil)
	}
}
