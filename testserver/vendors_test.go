package testserver_test

import (
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/heedhttp/heed/contract"
	"github.com/heedhttp/heed/ratelimit"
	"github.com/heedhttp/heed/testserver"
)

// limit returns a VendorLimit.
func limit(name string, quota int, window time.Duration, routes ...string) testserver.VendorLimit {
	return testserver.VendorLimit{Name: name, Quota: quota, Window: window, Routes: routes}
}

// call sends the request of a line such as "POST https://example.com/path". The response's body is
// closed.
func call(t testing.TB, srv *testserver.Server, line, credential, body string) (resp *http.Response, text string) {
	t.Helper()
	method, url, _ := strings.Cut(line, " ")
	req, err := http.NewRequest(method, strings.Replace(url, "https:", "http:", 1), strings.NewReader(body))
	require.NoError(t, err)
	if credential != "" {
		req.Header.Set("Authorization", "Bearer "+credential)
	}
	resp, err = srv.Transport().RoundTrip(req)
	require.NoError(t, err)
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	require.NoError(t, err)
	return resp, string(b)
}

// fields returns a response's rate-limit fields by their short names.
func fields(resp *http.Response) map[string]string {
	found := map[string]string{}
	for name, values := range resp.Header {
		if strings.HasPrefix(name, "X-Rate") || strings.HasPrefix(name, "Retry-After") {
			found[strings.TrimPrefix(strings.TrimPrefix(name, "X-Ratelimit-"), "X-Rate-Limit-")] = values[0]
		}
	}
	return found
}

// The requests come a quarter of a second after a full second.
func TestAVendorReportsLimitsInItsOwnFields(t *testing.T) {
	const unix = 946684800 // when a bubble begins
	for name, test := range map[string]struct {
		vendor   *testserver.Vendor
		line     string
		body     string
		admitted []map[string]string // fields of the admitted responses
		refused  map[string]string
		status   int
		says     string
	}{
		"GitHub": {
			vendor: testserver.GitHub(t, limit("search", 2, time.Minute)), line: "GET https://api.github.com/search/issues",
			admitted: []map[string]string{
				{"Limit": "2", "Remaining": "1", "Used": "1", "Reset": "946684861", "Resource": "search"},
				{"Limit": "2", "Remaining": "0", "Used": "2", "Reset": "946684861", "Resource": "search"},
			},
			refused: map[string]string{"Limit": "2", "Remaining": "0", "Used": "2", "Reset": "946684861", "Resource": "search"},
			status:  403, says: "API rate limit exceeded",
		},
		"GitHub's GraphQL": {
			vendor: testserver.GitHub(t, limit("graphql", 1, time.Hour)), line: "POST https://api.github.com/graphql",
			admitted: []map[string]string{{"Limit": "1", "Remaining": "0", "Used": "1", "Reset": "946688401",
				"Resource": "graphql"}},
			refused: map[string]string{"Limit": "1", "Remaining": "0", "Used": "1", "Reset": "946688401",
				"Resource": "graphql"},
			status: 200, says: "RATE_LIMITED",
		},
		"GitHub's secondary limit": {
			vendor: testserver.GitHub(t, limit("secondary", 5, time.Minute)), line: "POST https://api.github.com/user/repos",
			admitted: []map[string]string{{"Limit": "5000", "Remaining": "4999", "Used": "1", "Reset": "946688401",
				"Resource": "core"}},
			refused: map[string]string{"Limit": "5000", "Remaining": "4999", "Used": "1", "Reset": "946688401",
				"Resource": "core", "Retry-After": "61"},
			status: 403, says: "secondary rate limit",
		},
		"Slack": {
			vendor: testserver.Slack(t, limit("users.list", 1, time.Minute)), line: "GET https://slack.com/api/users.list",
			admitted: []map[string]string{{}}, refused: map[string]string{"Retry-After": "61"}, status: 429,
			says: `"ratelimited"`,
		},
		"Discord": {
			vendor: testserver.Discord(t, limit("abcd", 1, 1500*time.Millisecond, "/api/v10/channels/{id}/pins/")),
			line:   "PUT https://discord.com/api/v10/channels/7/pins/8",
			admitted: []map[string]string{{"Limit": "1", "Remaining": "0", "Reset": "946684801.750", "Reset-After": "1.500",
				"Bucket": "abcd"}},
			refused: map[string]string{"Limit": "1", "Remaining": "0", "Reset": "946684801.750", "Reset-After": "1.500",
				"Bucket": "abcd", "Scope": "user", "Retry-After": "2"},
			status: 429, says: `"retry_after":1.5`,
		},
		"Discord's global limit": {
			vendor: testserver.Discord(t, limit("", 9, 1250*time.Millisecond), limit("global", 1, time.Second)),
			line:   "GET https://discord.com/api/v10/gateway",
			admitted: []map[string]string{{"Limit": "9", "Remaining": "8", "Reset": "946684801.500", "Reset-After": "1.250",
				"Bucket": "48739eb5a4403defbfa1472d8ed76bff"}},
			refused: map[string]string{"Global": "true", "Scope": "global", "Retry-After": "1"}, status: 429,
			says: `"global":true`,
		},
		"Okta": {
			vendor:   testserver.Okta(t, limit("GET /api/v1/users/*", 1, time.Minute)),
			line:     "GET https://acme.okta.com/api/v1/users/00u1",
			admitted: []map[string]string{{"Limit": "1", "Remaining": "0", "Reset": "946684861"}},
			refused:  map[string]string{"Limit": "1", "Remaining": "0", "Reset": "946684861"}, status: 429, says: "E0000047",
		},
		"OpenAI's requests": {
			vendor: testserver.OpenAI(t, limit("requests", 2, time.Minute)), line: "POST https://api.openai.com/v1/responses",
			body: `{"max_tokens":500}`,
			admitted: []map[string]string{
				{"Limit-Requests": "2", "Remaining-Requests": "1", "Reset-Requests": "30s", "Limit-Tokens": "30000",
					"Remaining-Tokens": "29500", "Reset-Tokens": "1s"},
				{"Limit-Requests": "2", "Remaining-Requests": "0", "Reset-Requests": "1m0s", "Limit-Tokens": "30000",
					"Remaining-Tokens": "29000", "Reset-Tokens": "2s"},
			},
			refused: map[string]string{"Limit-Requests": "2", "Remaining-Requests": "0", "Reset-Requests": "1m0s",
				"Limit-Tokens": "30000", "Remaining-Tokens": "29000", "Reset-Tokens": "2s",
				"Retry-After-Ms": "30000", "Retry-After": "30"},
			status: 429, says: "rate_limit_exceeded",
		},
		"OpenAI's tokens": {
			vendor: testserver.OpenAI(t, limit("tokens", 1000, time.Minute)), line: "POST https://api.openai.com/v1/responses",
			body: strings.Repeat("x", 2402),
			admitted: []map[string]string{
				{"Limit-Requests": "500", "Remaining-Requests": "499", "Reset-Requests": "120ms", "Limit-Tokens": "1000",
					"Remaining-Tokens": "399", "Reset-Tokens": "36.06s"},
			},
			refused: map[string]string{"Limit-Requests": "500", "Remaining-Requests": "499", "Reset-Requests": "120ms",
				"Limit-Tokens": "1000", "Remaining-Tokens": "399", "Reset-Tokens": "36.06s",
				"Retry-After-Ms": "12120", "Retry-After": "13"},
			status: 429, says: "tokens",
		},
		"more tokens than OpenAI's limit ever has": {
			vendor: testserver.OpenAI(t), line: "POST https://api.openai.com/v1/responses", body: `{"max_tokens":30001}`,
			refused: map[string]string{"Limit-Requests": "500", "Remaining-Requests": "500", "Reset-Requests": "0s",
				"Limit-Tokens": "30000", "Remaining-Tokens": "30000", "Reset-Tokens": "0s"},
			status: 429, says: "tokens",
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				require.EqualValues(t, unix, time.Now().Unix())
				time.Sleep(250 * time.Millisecond)
				srv := testserver.NewLimited(t, test.vendor.Wrap)
				for i, want := range test.admitted {
					resp, text := call(t, srv, test.line, "a", test.body)
					assert.Equal(t, "200 ok\n", strings.TrimSuffix(resp.Status, " OK")+" "+text)
					assert.Equal(t, want, fields(resp), i)
				}
				resp, text := call(t, srv, test.line, "a", test.body)
				assert.Equal(t, test.status, resp.StatusCode)
				assert.Equal(t, "application/json", resp.Header.Get("Content-Type"))
				assert.Equal(t, test.refused, fields(resp))
				assert.Contains(t, text, test.says)
			})
		})
	}
}

// Fifty workers find out what a limit admits at once, and when it admits more.
func TestAVendorRefusesExactlyWhatExceedsALimit(t *testing.T) {
	const seven = 7
	for _, test := range []struct {
		profile string
		name    string // of the limit
		make    func(testing.TB, ...testserver.VendorLimit) *testserver.Vendor
		line    string
		routes  []string
		window  time.Duration
	}{
		{"github", "core", testserver.GitHub, "GET https://api.github.com/user", nil, time.Hour},
		{"github", "code_search", testserver.GitHub, "GET https://api.github.com/search/code", nil, time.Minute},
		{"github", "graphql", testserver.GitHub, "POST https://api.github.com/graphql", nil, time.Hour},
		{"github", "secondary", testserver.GitHub, "GET https://api.github.com/user", nil, time.Minute},
		{"slack", "users.list", testserver.Slack, "GET https://slack.com/api/users.list", nil, time.Minute},
		{"discord", "abcd", testserver.Discord, "GET https://discord.com/api/v10/channels/7/pins",
			[]string{"GET /api/v10/channels/{id}/pins"}, 5 * time.Second},
		{"discord", "global", testserver.Discord, "GET https://discord.com/api/v10/channels/7/pins", nil, time.Second},
		{"okta", "GET /api/v1/users", testserver.Okta, "GET https://acme.okta.com/api/v1/users", nil, time.Minute},
		{"openai", "requests", testserver.OpenAI, "GET https://api.openai.com/v1/models", nil, 7 * time.Second},
	} {
		run := func(t *testing.T, phase time.Duration) {
			synctest.Test(t, func(t *testing.T) {
				limits := []testserver.VendorLimit{limit(test.name, seven, test.window, test.routes...)}
				if test.name == "global" {
					limits = append(limits, limit("", 1000, time.Minute))
				}
				vendor := test.make(t, limits...)
				srv := testserver.NewLimited(t, vendor.Wrap)
				time.Sleep(phase)
				var wait time.Duration
				var mu sync.Mutex
				storm := func() {
					var all sync.WaitGroup
					for range 50 {
						all.Go(func() {
							resp, text := call(t, srv, test.line, "a", "")
							answer := ratelimit.Vendor(test.profile).Judge(resp.StatusCode, resp.Header, []byte(text), time.Now())
							if resp.StatusCode == 200 && answer.Meaning != ratelimit.Limited {
								return
							}
							assert.Equal(t, ratelimit.Limited, answer.Meaning)
							assert.Equal(t, test.name == "secondary" || test.name == "global", answer.All)
							mu.Lock()
							defer mu.Unlock()
							wait = answer.Wait
						})
					}
					all.Wait()
				}
				storm()
				assert.Equal(t, testserver.VendorCount{Admitted: seven, Refused: 43}, vendor.Counts()[test.name])
				time.Sleep(wait - time.Nanosecond)
				if phase == 0 { // otherwise the fields are rounded up
					storm()
					assert.Equal(t, testserver.VendorCount{Admitted: seven, Refused: 93}, vendor.Counts()[test.name], "too early")
				}
				before := vendor.Counts()[test.name]
				time.Sleep(time.Nanosecond)
				storm()
				more := seven
				if test.profile == "openai" {
					more = 1 // units come back one by one
				}
				assert.Equal(t, testserver.VendorCount{Admitted: seven + more, Refused: before.Refused + 50 - more},
					vendor.Counts()[test.name], "in time")
			})
		}
		t.Run(test.profile+" "+test.name, func(t *testing.T) { run(t, 0) })
		t.Run(test.profile+" "+test.name+", between two seconds", func(t *testing.T) { run(t, 123456*time.Microsecond) })
	}
}

func TestAVendorsLimitStopsOnlyItsRequests(t *testing.T) {
	once := []testserver.VendorLimit{limit("", 1, time.Minute)}
	for name, test := range map[string]struct {
		vendor      *testserver.Vendor
		first       string
		shares, not []string // requests of the same credential
		others      bool     // other credentials share it
	}{
		"a resource of GitHub": {
			vendor: testserver.GitHub(t, limit("search", 1, time.Minute)), first: "GET https://api.github.com/search/issues",
			shares: []string{"GET https://api.github.com/search/repositories"},
			not: []string{"GET https://api.github.com/search/code", "GET https://api.github.com/user",
				"POST https://api.github.com/graphql"},
		},
		"GitHub's secondary limit": {
			vendor: testserver.GitHub(t, limit("secondary", 1, time.Minute)), first: "GET https://api.github.com/search/issues",
			shares: []string{"GET https://api.github.com/user", "POST https://api.github.com/graphql",
				"GET https://api.github.com/search/code"},
		},
		"a method of Slack": {
			vendor: testserver.Slack(t, once...), first: "GET https://slack.com/api/users.list",
			shares: []string{"POST https://slack.com/api/users.list"}, not: []string{"GET https://slack.com/api/users.info"},
		},
		"a bucket of Discord": {
			vendor: testserver.Discord(t, limit("abcd", 1, time.Minute, "PUT /channels/{c}/pins/{m}",
				"DELETE /channels/{c}/pins/{m}")), first: "PUT https://discord.com/channels/7/pins/8",
			shares: []string{"DELETE https://discord.com/channels/7/pins/9"},
			not:    []string{"PUT https://discord.com/channels/8/pins/8", "GET https://discord.com/channels/7/pins"},
		},
		"a route of Discord": {
			vendor: testserver.Discord(t, once...), first: "GET https://discord.com/api/v10/guilds/7/members/1",
			shares: []string{"GET https://discord.com/api/v10/guilds/7/members/2"},
			not: []string{"GET https://discord.com/api/v10/guilds/8/members/1",
				"PUT https://discord.com/api/v10/guilds/7/members/1",
				"POST https://discord.com/api/v10/webhooks/1/a", "POST https://discord.com/api/v10/webhooks/1/b"},
		},
		"Discord's global limit": {
			vendor: testserver.Discord(t, limit("global", 1, time.Minute)), first: "GET https://discord.com/channels/7/pins",
			shares: []string{"GET https://discord.com/guilds/7", "GET https://discord.com/users/7"},
		},
		"an endpoint of Okta": {
			vendor: testserver.Okta(t, once...), first: "GET https://acme.okta.com/api/v1/users/1", others: true,
			shares: []string{"GET https://acme.okta.com/api/v1/users/2"},
			not: []string{"GET https://acme.okta.com/api/v1/users", "DELETE https://acme.okta.com/api/v1/users/1",
				"GET https://other.okta.com/api/v1/users/1"},
		},
		"OpenAI": {
			vendor: testserver.OpenAI(t, limit("requests", 1, time.Minute)), first: "POST https://api.openai.com/v1/responses",
			shares: []string{"GET https://api.openai.com/v1/models"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				srv := testserver.NewLimited(t, test.vendor.Wrap)
				admitted := func(line, credential string) bool {
					resp, text := call(t, srv, line, credential, "")
					return resp.StatusCode == 200 && text == "ok\n"
				}
				assert.True(t, admitted(test.first, "a"))
				for _, line := range test.shares {
					assert.False(t, admitted(line, "a"), line)
				}
				for _, line := range test.not {
					assert.True(t, admitted(line, "a"), line)
				}
				assert.Equal(t, !test.others, admitted(test.first, "b"))
				assert.Equal(t, !test.others, admitted(test.first, ""))
				assert.False(t, admitted(test.first, "a"))
			})
		})
	}
}

func TestAHandlerBehindOpenAIReadsTheWholeBody(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		srv := testserver.NewLimited(t, func(http.Handler) http.Handler {
			return testserver.OpenAI(t).Wrap(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				_, _ = io.Copy(w, r.Body)
			}))
		})
		body := `{"max_tokens":10,"input":"` + strings.Repeat("x", 10_000) + `"}`
		_, text := call(t, srv, "POST https://api.openai.com/v1/responses", "a", body)
		assert.Equal(t, body, text)
		assert.NoError(t, contract.Check(srv.Log(), contract.Client()...))
	})
}

func TestAnInvalidLimitFailsTheTest(t *testing.T) {
	for want, make := range map[string]func(t testing.TB){
		`GitHub has no limit named "x", only ["code_search" "core" "graphql" "search" "secondary"]`: func(t testing.TB) {
			testserver.GitHub(t, limit("x", 1, 1))
		},
		`OpenAI has no limit named ""`:            func(t testing.TB) { testserver.OpenAI(t, limit("", 1, 1)) },
		`Slack: Quota of limit "x" is 0, must be`: func(t testing.TB) { testserver.Slack(t, limit("x", 0, 1)) },
		`Okta: Window of limit "x" is -1s, must be`: func(t testing.TB) {
			testserver.Okta(t,
				limit("x", 1, -time.Second))
		},
		`Slack: limit "x" must have no Routes`: func(t testing.TB) {
			testserver.Slack(t,
				limit("x", 1, 1, "/"))
		},
		`Discord: limit "global" must have no Routes`: func(t testing.TB) {
			testserver.Discord(t,
				limit("global", 1, 1, "/"))
		},
		`Discord: Routes of limit "x": parsing "GET /{": at `: func(t testing.TB) {
			testserver.Discord(t,
				limit("x", 1, 1, "GET /{"))
		},
	} {
		t.Run(want, func(t *testing.T) {
			defer func() { assert.Contains(t, recover(), want) }()
			make(&fakeTB{})
		})
	}
}
