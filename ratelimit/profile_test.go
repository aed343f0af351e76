package ratelimit_test

import (
	"encoding/json"
	"io"
	"net/http"
	"os"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/heedhttp/heed/ratelimit"
)

// A profileVector is a row of testdata/wire-vectors-profiles.json.
type profileVector struct {
	vector
	Profile string `json:"profile"`
	Body    string `json:"body"`
}

// wait returns the wait that the Profile finds. The profile called pace is no vendor: it
// stands for Parse of a success.
func (v *profileVector) wait(h http.Header) string {
	if v.Profile == "pace" {
		limits := ratelimit.Parse(h, v.Now)
		if len(limits) == 0 || limits[0].Remaining != 0 {
			return none
		}
		return limits[0].Wait().String()
	}
	a := ratelimit.Vendor(v.Profile).Judge(v.Status, h, []byte(v.Body), v.Now)
	if !a.Known {
		return none
	}
	return a.Wait.String()
}

func TestProfileVectors(t *testing.T) {
	data, err := os.ReadFile("testdata/wire-vectors-profiles.json")
	require.NoError(t, err)
	var vectors []profileVector
	require.NoError(t, json.Unmarshal(data, &vectors))
	for _, v := range vectors {
		want := none
		if v.WantMS != nil {
			want = (time.Duration(*v.WantMS) * time.Millisecond).String()
		}
		assert.Equal(t, want, v.wait(v.header()), "%s: %s", v.Name, v.Why)
	}
	assert.Len(t, vectors, 18)
}

// A profileRow is a response of a vendor and its meaning.
type profileRow struct {
	vendor string
	status int
	want   string // the meaning, and the wait if known
	body   string
	fields []string
}

func (r *profileRow) answer() string {
	p := &ratelimit.Profile{} // a vendor that needs no rule
	if slices.Contains(ratelimit.VendorNames(), r.vendor) {
		p = ratelimit.Vendor(r.vendor)
	}
	a := p.Judge(r.status, header(r.fields...), []byte(r.body), now)
	if !a.Known {
		return a.Meaning.String()
	}
	return a.Meaning.String() + " " + a.Wait.String()
}

func TestResponsesOfVendors(t *testing.T) {
	for _, r := range []profileRow{
		{"airtable", 429, "limited 30s", `{"errors":[{"error":"RATE_LIMIT_REACHED"}]}`, nil},
		{"airtable", 429, "limited 7s", "", []string{"Retry-After: 7"}},
		{"airtable", 503, "unsaid", "", nil},
		{
			"akamai", 429, "limited 12s", "",
			[]string{"X-RateLimit-Remaining: 0", "X-RateLimit-Next: 2026-11-20T19:30:12.000Z"},
		},
		{"akamai", 429, "limited", "", []string{"X-RateLimit-Remaining: 3", "X-RateLimit-Next: 2026-11-20T19:30:12.000Z"}},
		{"akamai", 429, "limited 5s", "", []string{"X-RateLimit-Next: 2026-11-20T19:30:12Z", "Retry-After: 5"}},

		{"anthropic", 529, "limited", `{"type":"error","error":{"type":"overloaded_error"}}`, nil},
		{"anthropic", 529, "limited 7s", "", []string{"Retry-After: 7"}},
		{"anthropic", 529, "final", "", []string{"Retry-After: 7", "X-Should-Retry: false"}},
		{"anthropic", 500, "retry", "", []string{"X-Should-Retry: true"}},
		{"anthropic", 500, "unsaid", "", nil},
		{
			"anthropic", 429, "limited 1m0s", "",
			[]string{
				"Anthropic-RateLimit-Requests-Remaining: 0",
				"Anthropic-RateLimit-Requests-Reset: 2026-11-20T19:31:00Z", "X-Should-Retry: true",
			},
		},

		{"attio", 429, "limited 12s", "", []string{"Retry-After: 2026-11-20T19:30:12Z"}},
		{"auth0", 429, "limited 12s", "", []string{"X-RateLimit-Remaining: 0", "X-RateLimit-Reset: 1795203012"}},

		{
			"aws", 400, "limited",
			`{"__type":"com.amazonaws.dynamodb.v20120810#ProvisionedThroughputExceededException"}`, nil,
		},
		{"aws", 400, "limited", `{"code":"Throttling"}`, nil},
		{"aws", 400, "limited", "", []string{"X-Amzn-ErrorType: ThrottlingException:http://internal.amazon.com/coral/"}},
		{"aws", 400, "limited 500ms", "", []string{"X-Amzn-ErrorType: RequestLimitExceeded", "X-Amz-Retry-After: 500"}},
		{"aws", 400, "unsaid", `{"__type":"ValidationException"}`, nil},
		{"aws", 400, "unsaid", `{"__type":"Throttling2"}`, nil},
		{"aws", 400, "unsaid", `{"message":"Throttling"}`, nil},
		{"aws", 404, "unsaid", `{"__type":"ThrottlingException"}`, nil},
		{"aws", 503, "limited", `<?xml version="1.0"?><Error><Code>SlowDown</Code><Message>x</Message></Error>`, nil},
		{
			"aws", 503, "limited",
			`<Response><Errors><Error><Code> RequestLimitExceeded </Code></Error></Errors></Response>`, nil,
		},
		{"aws", 503, "unsaid", `<Error><Code>InternalError</Code></Error>`, nil},
		{"aws", 503, "unsaid", `<Error><Code>SlowDown`, nil},
		{"aws", 500, "limited 500ms", `{"__type":"ThrottledException"}`, []string{"X-Amz-Retry-After: 500"}},
		{"aws", 429, "limited", "", nil},
		{"aws", 400, "retry", `{"__type":"com.amazonaws.kinesis.v20131202#LimitExceededException"}`, nil},
		{"aws", 409, "unsaid", `<ErrorResponse><Error><Code>LimitExceededException</Code></Error></ErrorResponse>`, nil},
		{"aws", 400, "retry 500ms", `{"code":"LimitExceededException"}`, []string{"X-Amz-Retry-After: 500"}},
		{
			"contentful", 429, "limited 1s", "",
			[]string{"X-Contentful-RateLimit-Second-Remaining: 0", "X-Contentful-RateLimit-Reset: 1"},
		},
		{
			"contentful", 429, "limited 2s", "",
			[]string{"X-Contentful-RateLimit-Second-Limit: 7", "X-Contentful-RateLimit-Reset: 2"},
		},
		{
			"contentful", 429, "limited", "",
			[]string{"X-Contentful-RateLimit-Second-Remaining: 3", "X-Contentful-RateLimit-Reset: 2"},
		},
		{"aws", 200, "unsaid", `{"__type":"ThrottlingException"}`, nil},

		{"azure", 503, "unsaid 2.5s", "", []string{"X-Ms-Retry-After-Ms: 2500"}},
		{"azure-arm", 429, "limited 17s", `{"error":{"code":"TooManyRequests"}}`, []string{"Retry-After: 17"}},
		{
			"azure-arm", 429, "retry 17s", `{"error":{"code":"RetryableErrorDueToAnotherOperation"}}`,
			[]string{"Retry-After: 17"},
		},
		{"azure-arm", 409, "retry", `{"error":{"code":"RetryableErrorDueToAnotherOperation"}}`, nil},
		{"azure-arm", 409, "unsaid", `{"error":{"code":"Conflict"}}`, nil},
		{
			"azure-devops", 429, "limited 12s", "",
			[]string{"X-RateLimit-Remaining: 0", "X-RateLimit-Reset: 1795203012", "X-RateLimit-Delay: 1.5"},
		},
		{"azure-devops", 200, "unsaid", "", []string{"Retry-After: 5"}},
		{"azure-openai", 429, "limited", "", []string{"X-RateLimit-Remaining-Tokens: -1", "X-RateLimit-Reset-Tokens: 0"}},
		{
			"azure-openai", 429, "limited 59s", "",
			[]string{"X-RateLimit-Remaining-Tokens: 0", "X-RateLimit-Reset-Tokens: 59"},
		},

		{
			"basecamp", 429, "limited 3s", "",
			[]string{
				`X-RateLimit: {"name":"API","period":10,"limit":50,"remaining":0,"until":"2026-11-20T19:30:03Z"}`,
			},
		},
		{
			"basecamp", 429, "limited", "",
			[]string{
				`X-RateLimit: {"name":"API","period":10,"limit":50,"remaining":4,"until":"2026-11-20T19:30:03Z"}`,
			},
		},
		{"basecamp", 429, "limited", "", []string{`X-RateLimit: {"remaining":0,"until":"soon"}`}},
		{"basecamp", 429, "limited", "", []string{`X-RateLimit: {"remaining":0`}},
		{
			"basecamp", 429, "limited 5s", "",
			[]string{`X-RateLimit: {"remaining":0,"until":"2026-11-20T19:30:03Z"}`, "Retry-After: 5"},
		},
		{"binance", 418, "limited 2m0s", "", []string{"Retry-After: 120"}},
		{"binance", 403, "unsaid", "", nil},
		{"bitbucket", 429, "limited", "", []string{"X-RateLimit-Limit: 1000"}},

		{
			"brevo", 429, "limited 12s", "",
			[]string{
				"X-Sib-RateLimit-Limit: 1000", "X-Sib-RateLimit-Remaining: 0", "X-Sib-RateLimit-Reset: 12",
			},
		},
		{"brevo", 429, "limited", "", []string{"X-Sib-RateLimit-Remaining: 1", "X-Sib-RateLimit-Reset: 12"}},
		{"brevo", 429, "limited 12s", "", []string{"X-Sib-RateLimit-Reset: 12"}},

		{"clawhub", 429, "limited 12s", "", []string{"Retry-After: 1795203012"}},
		{"clawhub", 429, "limited 12s", "", []string{"Retry-After: 12"}},
		{"clawhub", 429, "limited 0s", "", []string{"Retry-After: 1795202000"}},
		{
			"cloudflare", 429, "limited 30s", "",
			[]string{`Ratelimit: "default";r=0;t=30`, `Ratelimit-Policy: "default";q=1200;w=300`},
		},
		{"digitalocean", 429, "limited 12s", "", []string{"ratelimit-remaining: 0", "ratelimit-reset: 1795203012"}},

		{
			"discord", 429, "limited 1m4.57s", `{"retry_after":64.57}`,
			[]string{"Retry-After: 65", "X-RateLimit-Remaining: 0", "X-RateLimit-Reset-After: 64.57"},
		},
		{"discord", 429, "limited 1m4.57s", `{"retry_after":64.57,"global":true}`, nil},
		{
			"discord", 429, "limited 1m4.57s", `{"retry_after":64.57}`,
			[]string{"X-RateLimit-Remaining: 0", "X-RateLimit-Reset-After: 1"},
		},
		{"discord", 429, "limited 1m5s", `{"retry_after":6.57}`, []string{"Retry-After: 65"}},
		{"discord", 429, "limited 1m5s", `{"retry_after":-1}`, []string{"Retry-After: 65"}},
		{"discord", 429, "limited 1m5s", `{"retry_after":1e3}`, []string{"Retry-After: 65"}},
		{"discord", 429, "limited 1m5s", `{"retry_after":null}`, []string{"Retry-After: 65"}},
		{"discord", 429, "limited 1m5s", `{"retry_after":{"retry_after":1}}`, []string{"Retry-After: 65"}},
		{"discord", 429, "limited 1m5s", `<html>`, []string{"Retry-After: 65"}},
		{"discord", 429, "limited " + longest, `{"retry_after":99999999999999999999}`, nil},
		{"discord", 403, "unsaid", `{"message":"Missing Access"}`, nil},
		{"discord", 302, "unsaid", `{"retry_after":5}`, nil},
		{"discord", 302, "unsaid 3s", `{"retry_after":5}`, []string{"Retry-After: 3"}},
		{"discord", 200, "unsaid", `{"retry_after":5}`, []string{"Retry-After: 3"}},

		{
			"dockerhub", 429, "limited 6h0m0s", "",
			[]string{"ratelimit-limit: 100;w=21600", "ratelimit-remaining: 0;w=21600"},
		},
		{"dockerhub", 429, "limited", "", []string{"ratelimit-limit: 100;w=21600", "ratelimit-remaining: 20;w=21600"}},
		{"dockerhub", 429, "limited", "", []string{"ratelimit-limit: 100", "ratelimit-remaining: 0"}},
		{"dockerhub", 429, "limited 30s", "", []string{"X-Retry-After: 1795203030"}},
		{"dockerhub", 429, "limited 7s", "", []string{"ratelimit-remaining: 0;w=21600", "Retry-After: 7"}},
		{
			"envoy", 429, "limited 1s", "",
			[]string{"X-Envoy-RateLimited: true", "X-RateLimit-Remaining: 0", "X-RateLimit-Reset: 1"},
		},

		{"github", 403, "limited 10m0s", "", []string{"X-RateLimit-Remaining: 0", "X-RateLimit-Reset: 1795203600"}},
		{"github", 429, "limited 10m0s", "", []string{"X-RateLimit-Remaining: 0", "X-RateLimit-Reset: 1795203600"}},
		{
			"github", 403, "limited 2m0s", "",
			[]string{"X-RateLimit-Remaining: 0", "X-RateLimit-Reset: 1795203600", "Retry-After: 120"},
		},
		{"github", 403, "limited 2m0s", "", []string{"X-RateLimit-Remaining: 9", "Retry-After: 120"}},
		{
			"github", 403, "limited 1m0s",
			`{"message":"You have exceeded a secondary rate limit. Please wait."}`,
			[]string{"X-RateLimit-Remaining: 9", "X-RateLimit-Reset: 1795203600", "Retry-After: "},
		},
		{
			"github", 403, "limited 1m0s",
			`{"documentation_url":"https://docs.github.com/rest/overview/` +
				`rate-limits-for-the-rest-api#about-secondary-rate-limits"}`,
			nil,
		},
		{"github", 403, "limited 1m0s", `{"message":"API rate limit exceeded for 203.0.113.9."}`, nil},
		{"github", 429, "limited 1m0s", "", nil},
		{
			"github", 403, "unsaid",
			`{"message":"Must have admin rights","documentation_url":"https://docs.github.com/rest"}`,
			[]string{"X-RateLimit-Remaining: 9", "X-RateLimit-Reset: 1795203600"},
		},
		{"github", 403, "unsaid", "", nil},
		{"github", 404, "unsaid", `{"message":"Not Found"}`, nil},
		{
			"github", 200, "limited 10m0s", `{"errors":[{"type":"OTHER"},{"type":"RATE_LIMITED"}]}`,
			[]string{"X-RateLimit-Remaining: 0", "X-RateLimit-Reset: 1795203600"},
		},
		{
			"github", 200, "unsaid", `{"errors":[{"type":"RATE_LIMITED"}]}`,
			[]string{"X-RateLimit-Remaining: 5", "X-RateLimit-Reset: 1795203600"},
		},
		{
			"github", 200, "unsaid", `{"data":{"errors":[{"type":"RATE_LIMITED"}]}}`,
			[]string{"X-RateLimit-Remaining: 0", "X-RateLimit-Reset: 1795203600"},
		},
		{"github", 200, "unsaid", `{"errors":{"type":"RATE_LIMITED"}}`, []string{"X-RateLimit-Remaining: 0"}},
		{
			"github", 200, "limited 3s", `{"message":"You have exceeded a secondary rate limit"}`,
			[]string{"Retry-After: 3"},
		},
		{"gitlab", 429, "limited 30s", "Retry later", []string{"RateLimit-Remaining: 0", "RateLimit-Reset: 1795203030"}},

		{
			"google", 429, "limited 34.075s",
			`{"error":{"details":[{"@type":"x"},` +
				`{"@type":"type.googleapis.com/google.rpc.RetryInfo","retryDelay":"34.074824224s"}]}}`,
			nil,
		},
		{"google", 503, "unsaid 5s", `{"error":{"details":[{"retryDelay":"5s"}]}}`, nil},
		{"google", 429, "limited 39h0m0s", `{"error":{"details":[{"retryDelay":"140400s"}]}}`, nil},
		{"google", 429, "limited", `{"error":{"details":[{"retryDelay":"-5s"}]}}`, nil},
		{"google", 429, "limited", `{"error":{"details":[{"retryDelay":5}]}}`, nil},
		{"google", 429, "limited 40s", `{"error":{"details":[{"retryDelay":"34s"}]}}`, []string{"Retry-After: 40"}},
		{"gmaps", 200, "limited", `{"error_message":"x","results":[],"status":"OVER_QUERY_LIMIT"}`, nil},
		{"gmaps", 200, "unsaid", `{"results":[],"status":"OK"}`, nil},
		{"gmaps", 200, "unsaid", `{"status":"OVER_DAILY_LIMIT"}`, nil},
		{"google", 200, "unsaid", `{"status":"OVER_QUERY_LIMIT"}`, nil},
		{"google", 429, "limited 34.5s", `{"error":{"details":[{"retryDelay":"34.5s"}]}}`, []string{"Retry-After: 35"}},
		{"google", 429, "final", `{"error":{"details":[{"violations":[{"quotaValue":"0"}]},{"retryDelay":"34s"}]}}`, nil},
		{"google", 403, "limited", `{"error":{"errors":[{"reason":"userRateLimitExceeded"}]}}`, nil},
		{"google", 403, "unsaid", `{"error":{"errors":[{"reason":"forbidden"}]}}`, nil},
		{"graph", 429, "limited 10s", "", []string{"Retry-After: 10"}},

		{"hubspot", 477, "limited 20s", "", []string{"Retry-After: 20"}},
		{
			"hubspot", 429, "limited", `{"policyName":"TEN_SECONDLY_ROLLING"}`,
			[]string{"X-HubSpot-RateLimit-Remaining: 0", "X-HubSpot-RateLimit-Interval-Milliseconds: 10000"},
		},
		{"jira", 503, "limited 5s", "", []string{"Retry-After: 5"}},
		{"jira", 503, "unsaid", "", nil},
		{"jira", 429, "limited 5s", "", []string{"Retry-After: 5", "RateLimit-Reason: jira-burst-based"}},
		{"jira", 429, "limited 1m0s", "", []string{"X-RateLimit-Remaining: 0", "X-RateLimit-Reset: 2026-11-20T19:31Z"}},
		{"kinto", 503, "unsaid 30s", "", []string{"Backoff: 30"}},
		{"kinto", 503, "unsaid 1m0s", "", []string{"Backoff: 30", "Retry-After: 60"}},
		{"kinto", 200, "unsaid", "", []string{"Backoff: 30"}},
		{
			"kong", 429, "limited 33s", "",
			[]string{"X-RateLimit-Remaining-Minute: 0", "RateLimit-Remaining: 0", "RateLimit-Reset: 33"},
		},
		{"kubernetes", 429, "limited 7s", `{"kind":"Status","details":{"retryAfterSeconds":7}}`, nil},
		{
			"kubernetes", 429, "retry 10s",
			`{"kind":"Status","details":{"causes":[{"reason":"DisruptionBudget","message":"m"}],"retryAfterSeconds":10}}`,
			[]string{"Retry-After: 10"},
		},
		{
			"kubernetes", 429, "retry",
			`{"kind":"Status","details":{"causes":[{"reason":"DisruptionBudget","message":"m"}]}}`, nil,
		},
		{"kubernetes", 500, "unsaid 2s", `{"kind":"Status","details":{"retryAfterSeconds":2}}`, nil},
		{
			"kubernetes", 429, "limited 1s", `{"kind":"Status","details":{"retryAfterSeconds":0}}`,
			[]string{"Retry-After: 1"},
		},
		{
			"lemlist", 429, "limited 12s", "",
			[]string{
				"X-RateLimit-Remaining: 0",
				"X-RateLimit-Reset: Fri Nov 20 2026 20:30:12 GMT+0100 (Central European Standard Time)",
			},
		},
		{
			"lemlist", 429, "limited 12s", "",
			[]string{"X-RateLimit-Remaining: 0", "X-RateLimit-Reset: Fri Nov 20 2026 19:30:12 GMT"},
		},
		{
			"lemlist", 429, "limited", "",
			[]string{"X-RateLimit-Remaining: 0", "X-RateLimit-Reset: Fri Nov 20 2026 20:30:12"},
		},
		{
			"lemlist", 429, "limited", "",
			[]string{"X-RateLimit-Remaining: 0", "X-RateLimit-Reset: Fri Nov 31 2026 20:30:12 GMT+0100"},
		},
		{
			"lemlist", 429, "limited", "",
			[]string{"X-RateLimit-Remaining: 0", "X-RateLimit-Reset: Fri Nov 20 2026 20:30:12 GMT+0100x"},
		},
		{
			"lemlist", 429, "limited 2s", "",
			[]string{
				"X-RateLimit-Remaining: 0", "X-RateLimit-Reset: Fri Nov 20 2026 20:30:12 GMT+0100",
				"Retry-After: 2",
			},
		},

		{
			"linear", 400, "limited 30s", `{"errors":[{"extensions":{"code":"RATELIMITED"}}]}`,
			[]string{
				"X-RateLimit-Requests-Remaining: 12", "X-RateLimit-Requests-Reset: 1795203090000",
				"X-RateLimit-Complexity-Remaining: 0", "X-RateLimit-Complexity-Reset: 1795203030000",
			},
		},
		{
			"linear", 400, "limited 1m30s", `{"errors":[{"extensions":{"code":"RATELIMITED"}}]}`,
			[]string{"X-RateLimit-Requests-Reset: 1795203090000"},
		},
		{"linear", 400, "limited", `{"errors":[{"extensions":{"code":"RATELIMITED"}}]}`, nil},
		{
			"linear", 400, "unsaid", `{"errors":[{"extensions":{"code":"INPUT_ERROR"}}]}`,
			[]string{"X-RateLimit-Requests-Reset: 1795203090000"},
		},
		{"mailerlite", 429, "limited 15s", "", []string{"X-RateLimit-Retry-After: 15"}},
		{
			"meta", 400, "limited",
			`{"error":{"message":"(#17) User request limit reached","type":"OAuthException","code":17}}`, nil,
		},
		{"meta", 403, "limited", `{"error":{"code":4}}`, nil},
		{"meta", 400, "limited", `{"error":{"code":80014}}`, nil},
		{
			"meta", 400, "limited 19m0s", `{"error":{"code":80004}}`,
			[]string{
				`X-Business-Use-Case-Usage: {"1234":[{"type":"ads_management","call_count":100,` +
					`"estimated_time_to_regain_access":19},` +
					`{"estimated_time_to_regain_access":0}],"5":[{"estimated_time_to_regain_access":3}]}`,
			},
		},
		{
			"meta", 400, "limited", `{"error":{"code":32}}`,
			[]string{
				`X-Business-Use-Case-Usage: {"1234":[{"estimated_time_to_regain_access":0}]}`,
				`X-App-Usage: {"call_count":100}`,
			},
		},
		{"meta", 400, "limited", `{"error":{"code":613}}`, []string{`X-Business-Use-Case-Usage: {"1234":[{"estimated`}},
		{"meta", 400, "unsaid", `{"error":{"code":190}}`, nil},
		{"meta", 400, "unsaid", `{"error":{"code":100}}`, nil},
		{
			"monday", 200, "limited 15s",
			`{"errors":[{"message":"x","extensions":{"code":"COMPLEXITY_BUDGET_EXHAUSTED","retry_in_seconds":15}}]}`,
			nil,
		},
		{
			"monday", 429, "limited 5s",
			`{"errors":[{"extensions":{"code":"IP_RATE_LIMIT_EXCEEDED","retry_in_seconds":5}}]}`, nil,
		},
		{"monday", 200, "unsaid", `{"data":{"boards":[]}}`, nil},
		{"netlify", 429, "limited 12s", "", []string{"Retry-After: 2026-11-20 19:30:12 UTC"}},
		{"nginx", 503, "unsaid", "<html>", []string{"Server: nginx"}},
		{"notion", 529, "limited 7s", `{"code":"rate_limited"}`, []string{"Retry-After: 7"}},
		{"npm", 429, "limited", "", []string{"Retry-After: 0"}},
		{"npm", 429, "limited 7s", "", []string{"Retry-After: 7"}},
		{"okta", 429, "limited 12s", "", []string{"X-Rate-Limit-Remaining: 0", "X-Rate-Limit-Reset: 1795203012"}},

		{
			"openai", 429, "limited 750ms", "",
			[]string{
				"Retry-After-Ms: 750", "Retry-After: 1", "X-RateLimit-Remaining-Tokens: 0",
				"X-RateLimit-Reset-Tokens: 6m0s",
			},
		},
		{
			"openai", 429, "final", `{"error":{"type":"insufficient_quota","code":"insufficient_quota"}}`,
			[]string{"Retry-After: 1"},
		},
		{"openai", 429, "final", `{"error":{"type":"insufficient_quota","code":null}}`, nil},
		{"openai", 429, "limited", `{"error":{"code":"rate_limit_exceeded"}}`, []string{"X-Should-Retry: true"}},
		{"openai", 503, "retry", "", []string{"X-Should-Retry: true"}},
		{"openai", 503, "final", "", []string{"X-Should-Retry: false", "Retry-After: 1"}},
		{"openai", 503, "unsaid", "", []string{"X-Should-Retry: TRUE"}},
		{"openai", 200, "unsaid", "", []string{"X-Should-Retry: true"}},

		{"prisjakt", 429, "limited 10m0s", "", []string{"X-Rate-Limit-Remaining: 0", "X-Rate-Limit-Reset: 600000"}},
		{"prisjakt", 429, "limited", "", []string{"X-Rate-Limit-Remaining: 5", "X-Rate-Limit-Reset: 600000"}},
		{
			"prisjakt", 429, "limited 7s", "",
			[]string{"X-Rate-Limit-Remaining: 5", "X-RateLimit-Remaining: 0", "X-RateLimit-Reset: 7"},
		},
		{"pubg", 429, "limited 5s", "", []string{"X-RateLimit-Remaining: 0", "X-RateLimit-Reset: 1795203005000000000"}},
		{
			"rapidapi", 429, "limited 601h0m3s", "",
			[]string{"X-RateLimit-Requests-Remaining: 0", "X-RateLimit-Requests-Reset: 2163603"},
		},
		{"reddit", 429, "limited 3m2s", "", []string{"X-Ratelimit-Remaining: 0.0", "X-Ratelimit-Reset: 182"}},
		{
			"salesforce", 403, "limited", `[{"errorCode":"REQUEST_LIMIT_EXCEEDED"}]`,
			[]string{"Sforce-Limit-Info: api-usage=5000/5000"},
		},
		{"salesforce", 403, "unsaid", `[{"errorCode":"INSUFFICIENT_ACCESS"}]`, nil},
		{"salesforce", 403, "unsaid", `{"errorCode":"REQUEST_LIMIT_EXCEEDED"}`, nil},
		{"salesforce", 503, "unsaid 9s", "", []string{"Retry-After: 9"}},
		{"sendgrid", 429, "limited 1m0s", "", []string{"X-RateLimit-Remaining: 0", "X-RateLimit-Reset: 1795203060"}},
		{"sentry", 429, "limited 493ms", "", []string{"Retry-After: 0.493"}},
		{
			"sentry", 429, "limited 50s", "",
			[]string{"Retry-After: 50", "X-Sentry-Rate-Limits: 50:transaction:organization"},
		},
		{
			"sentry", 429, "limited 12s", "",
			[]string{"X-Sentry-Rate-Limit-Remaining: 0", "X-Sentry-Rate-Limit-Reset: 1795203012"},
		},
		{"shopify", 200, "limited 14.92s", throttledCost("752", "1000", "6", "50"), nil},
		{"shopify", 200, "limited", `{"errors":[{"message":"Throttled"}]}`, nil},
		{"shopify", 200, "final", throttledCost("1000.01", "1000", "0", "50"), nil},
		{"shopify", 200, "unsaid", `{"products":[]}`, []string{"X-Shopify-Shop-Api-Call-Limit: 39/40"}},
		{"shopify", 429, "limited 2s", "", []string{"Retry-After: 2.0", "X-Shopify-Shop-Api-Call-Limit: 40/40"}},
		{"shopify", 429, "limited", "", []string{"X-Shopify-Shop-Api-Call-Limit: 40/40"}},
		{
			"shopify-graphql", 200, "unsaid",
			`{"data":{},"extensions":{"cost":{"requestedQueryCost":752,` +
				`"throttleStatus":{"maximumAvailable":1000,"currentlyAvailable":6,"restoreRate":50}}}}`,
			nil,
		},
		{"shopify-graphql", 200, "limited 0s", throttledCost("10", "1000", "666", "50"), nil},
		{"shopify-graphql", 200, "limited 14.92s", throttledCost("752", "1000", "6", "50"), nil},
		{"shopify-graphql", 200, "limited 334ms", throttledCost("2", "1000", "1.0", "3"), nil}, // rounded up
		{"shopify-graphql", 200, "limited 20s", throttledCost("1000", "1000", "0", "50"), nil},
		{"shopify-graphql", 200, "final", throttledCost("1000.01", "1000", "0", "50"), nil},
		{"shopify-graphql", 200, "limited", throttledCost("10", "1000", "0", "0"), nil},
		{"shopify-graphql", 200, "limited", throttledCost("10", "1000", "0", "-5"), nil},
		{"shopify-graphql", 200, "limited", throttledCost("null", "1000", "0", "50"), nil},
		{"shopify-graphql", 200, "limited", throttledCost("1e2", "1000", "0", "50"), nil},
		{
			"shopify-graphql", 200, "limited " + longest,
			throttledCost("99999999999999999999999", "99999999999999999999999", "0", "0.001"), nil,
		},
		{"shopify-graphql", 200, "limited", `{"errors":[{"extensions":{"code":"THROTTLED"}}]}`, nil},
		{"shopify-graphql", 500, "unsaid", `{"errors":[{"extensions":{"code":"THROTTLED"}}]}`, nil},
		{"slack", 429, "limited 30s", `{"ok":false,"error":"ratelimited"}`, []string{"Retry-After: 30"}},
		{"slack", 200, "limited 30s", `{"ok":false,"error":"ratelimited"}`, []string{"Retry-After: 30"}},
		{"slack", 200, "limited 5s", `{"ok":false,"error":"rate_limited"}`, []string{"Retry-After: 5"}},
		{"slack", 200, "unsaid", `{"ok":false,"error":"channel_not_found"}`, []string{"Retry-After: 30"}},
		{"slack", 200, "unsaid", `{"ok":true}`, nil},
		{"spotify", 429, "limited 7s", "", []string{"Retry-After: 7"}},
		{"stripe", 429, "limited", "", []string{"Stripe-Rate-Limited-Reason: global-rate"}},
		{"stripe", 429, "final", "", []string{"Stripe-Should-Retry: false"}},
		{"stripe", 409, "retry", "", []string{"Stripe-Should-Retry: true"}},
		{"stripe", 409, "unsaid", "", nil},
		{
			"teamdynamix", 429, "limited 12s", "",
			[]string{"X-RateLimit-Remaining: 0", "X-RateLimit-Reset: Fri, 20 Nov 2026 19:30:12 GMT"},
		},
		{
			"telegram", 429, "limited 35s",
			`{"ok":false,"description":"Too Many Requests: retry after 5","parameters":{"retry_after":35}}`,
			nil,
		},
		{"telegram", 429, "limited", `{"ok":false,"description":"Too Many Requests: retry after 35"}`, nil},
		{"telegram", 429, "limited", `{"parameters":{"retry_after":"soon"}}`, nil},
		{"telegram", 429, "limited", `{"parameters":[{"retry_after":35}]}`, nil},
		{"telegram", 429, "limited", `{"parameters":{"retry_after":35}`, nil},
		{"telegram", 200, "unsaid", `{"parameters":{"retry_after":35}}`, nil},
		{"traefik", 429, "limited 734ms", "", []string{"Retry-After: 1", "X-Retry-In: 734ms"}},
		{
			"trello", 429, "limited 10s", `{"error":"API_TOKEN_LIMIT_EXCEEDED"}`,
			[]string{
				"X-Rate-Limit-Api-Token-Interval-Ms: 10000", "X-Rate-Limit-Api-Token-Max: 100",
				"X-Rate-Limit-Api-Token-Remaining: 0", "X-Rate-Limit-Api-Key-Interval-Ms: 10000",
				"X-Rate-Limit-Api-Key-Remaining: 12",
			},
		},
		{"twilio", 429, "limited", `{"code":20429}`, nil},
		{
			"x", 429, "limited 15s", `{"errors":[{"code":88}]}`,
			[]string{"X-Rate-Limit-Remaining: 0", "X-Rate-Limit-Reset: 1795203015"},
		},
		{"x", 420, "limited 15s", "", []string{"Retry-After: 15"}},
		{"x", 403, "limited", `{"errors":[{"code":88}]}`, nil},
		{"x", 403, "unsaid", `{"errors":[{"code":64}]}`, nil},
		{
			"zendesk", 429, "limited 41s", "",
			[]string{"Zendesk-RateLimit-Tickets-Index: total=100; remaining=0; resets=41"},
		},
		{
			"zendesk", 429, "limited 41s", "",
			[]string{
				"Zendesk-RateLimit-Tickets-Index: total=100;remaining=0;resets=41",
				"Zendesk-RateLimit-Search-Index: total=100; remaining=9; resets=900",
			},
		},
		{"zendesk", 429, "limited", "", []string{"Zendesk-RateLimit-Tickets-Index: total=100; remaining=7; resets=41"}},
		{"zendesk", 429, "limited", "", []string{"Zendesk-RateLimit-Tickets-Index: remaining"}},
		{"zendesk", 429, "limited 12s", "", []string{"RateLimit-Remaining: 0", "RateLimit-Reset: 12"}},
		{
			"zendesk", 429, "limited 50s", "",
			[]string{
				"Zendesk-RateLimit-Tickets-Index: total=100; remaining=0; resets=41", "RateLimit-Remaining: 0",
				"RateLimit-Reset: 50",
			},
		},
		{"zoom", 429, "limited 12s", "", []string{"Retry-After: 2026-11-20T19:30:12Z"}},
	} {
		assert.Equal(t, r.want, r.answer(), "%+v", r)
	}
}

// throttledCost is a refusal by Shopify.
func throttledCost(requested, maximum, available, rate string) string {
	return `{"errors":[{"extensions":{"code":"THROTTLED"}}],"extensions":{"cost":{"requestedQueryCost":` + requested +
		`,"throttleStatus":{"maximumAvailable":` + maximum +
		`,"currentlyAvailable":` + available + `,"restoreRate":` + rate + `}}}}`
}

func TestAProfileParsesItsVendorsQuotas(t *testing.T) {
	for _, c := range []struct {
		vendor, want string
		fields       []string
	}{
		{"shopify", "8 of 40", []string{"X-Shopify-Shop-Api-Call-Limit: 32/40"}},
		{
			"salesforce", `"api-usage" 4982 of 5000`,
			[]string{"Sforce-Limit-Info: api-usage=18/5000; per-app-api-usage=17/250(appName=sample)"},
		},
		{"hubspot", "\"daily\" 1 of 250000\n9 of 10 per 10s", []string{
			"X-HubSpot-RateLimit-Max: 10", "X-HubSpot-RateLimit-Remaining: 9",
			"X-HubSpot-RateLimit-Interval-Milliseconds: 10000",
			"X-HubSpot-RateLimit-Daily: 250000", "X-HubSpot-RateLimit-Daily-Remaining: 1"}},
		{
			"dockerhub", "20 of 100 per 6h0m0s reset 6h0m0s",
			[]string{"ratelimit-limit: 100;w=21600", "ratelimit-remaining: 20;w=21600"},
		},
		{
			"basecamp", "4 of 50 per 10s reset 3s",
			[]string{`X-RateLimit: {"period":10,"limit":50,"remaining":4,"until":"2026-11-20T19:30:03Z"}`},
		},
		{
			"zendesk", "\"tickets-index\" 9 of 100 reset 41s\n7 of 10 reset 3s",
			[]string{
				"Zendesk-RateLimit-Tickets-Index: total=100; remaining=9; resets=41", "RateLimit-Limit: 10",
				"RateLimit-Remaining: 7", "RateLimit-Reset: 3",
			},
		},
		{
			"prisjakt", "5 of 10000 reset 10m0s",
			[]string{"X-Rate-Limit-Limit: 10000", "X-Rate-Limit-Remaining: 5", "X-Rate-Limit-Reset: 600000"},
		},
		{
			"github", "4999 of 5000 reset 10m0s",
			[]string{"X-RateLimit-Limit: 5000", "X-RateLimit-Remaining: 4999", "X-RateLimit-Reset: 1795203600"},
		},
		{"github", "", nil},
		{"zendesk", "", []string{"Server: x"}},
		{"shopify", "", []string{"X-Shopify-Shop-Api-Call-Limit: 32/40", "Age: 5"}},
	} {
		var got []string
		for _, l := range ratelimit.Vendor(c.vendor).Parse(header(c.fields...), now) {
			got = append(got, describe(l))
		}
		assert.Equal(t, c.want, strings.Join(got, "\n"), c.vendor)
	}
}

func TestAProfileServesItsHosts(t *testing.T) {
	p := ratelimit.Profile{Hosts: []string{"api.example.com", "*.example.org"}}
	for host, want := range map[string]bool{
		"api.example.com": true, "API.Example.COM": true, "api.example.com:443": true, "www.example.com": false,
		"example.com": false, "xapi.example.com": false, "": false,
		"a.example.org": true, "a.b.Example.org:80": true, "example.org": false, ".example.org": false,
		"a.example.org.evil.com": false, "[::1]:80": false, "[::1]": false,
	} {
		assert.Equal(t, want, p.Serves(host), host)
		assert.True(t, p.On().Serves(host), host)
		assert.False(t, p.On("other").Serves(host), host)
	}
	assert.True(t, p.On("[::1]").Serves("[::1]:80"))
	assert.Equal(t, []string{"api.example.com", "*.example.org"}, p.Hosts, "On returns a copy")
}

func TestVendorsAreNamed(t *testing.T) {
	names := ratelimit.VendorNames()
	assert.Len(t, names, len(ratelimit.AllVendors()))
	assert.Contains(t, names, "kinto", "its Profile has no hosts")
	assert.NotContains(t, names, "nginx", "it needs no rule")
	for _, name := range names {
		assert.Equal(t, name, ratelimit.Vendor(name).Name)
	}
}

func TestVendorsAreCopies(t *testing.T) {
	p := ratelimit.Vendor("github")
	p.Hosts[0], p.Otherwise, p.Signs[0].Status[0] = "", 0, 0
	assert.Equal(t, "api.github.com", ratelimit.Vendor("github").Hosts[0])
	assert.Equal(t, 403, ratelimit.Vendor("github").Signs[0].Status[0])
	assert.Equal(t, time.Minute, ratelimit.Vendor("github").Otherwise)
	for _, p := range ratelimit.Vendors() {
		p.Name = ""
	}
	for _, p := range ratelimit.Vendors() {
		assert.NotEmpty(t, p.Name)
		assert.NotEmpty(t, p.Hosts)
	}
	assert.PanicsWithValue(t, "ratelimit: unknown vendor \"nobody\"", func() { ratelimit.Vendor("nobody") })
}

func TestSuspectsOnlyStatusesWithASign(t *testing.T) {
	spent := header("X-RateLimit-Remaining: 0", "X-RateLimit-Reset: 7")
	for _, c := range []struct {
		vendor string
		status int
		h      http.Header
		want   bool
	}{
		{"github", 200, spent, true}, {"github", 200, plain(), false}, {"github", 201, spent, false},
		{"github", 200, header("Retry-After: 1"), true},
		{"shopify-graphql", 200, plain(), true}, {"shopify-graphql", 204, plain(), false},
		{"shopify", 200, plain(), true}, {"shopify", 200, header("X-Shopify-Shop-Api-Call-Limit: 1/40"), false},
		{"gmaps", 200, plain(), true}, {"google", 200, plain(), false}, {"monday", 200, plain(), true},
		{"meta", 200, plain(), false}, {"slack", 200, spent, false}, {"aws", 200, plain(), false},
		{"x", 200, plain(), false},
	} {
		p := ratelimit.Vendor(c.vendor)
		assert.Equal(t, c.want, p.Suspects(c.status, c.h), "%+v", c)
		assert.Zero(t, testing.AllocsPerRun(10, func() { p.Suspects(c.status, c.h) }), "%+v", c)
	}
}

func TestMeaningsAndFormsHaveNames(t *testing.T) {
	assert.Equal(t, "limited", ratelimit.Limited.String())
	assert.Equal(t, "unknown meaning", ratelimit.Meaning(99).String())
	assert.Equal(t, "seconds", ratelimit.Seconds.String())
	assert.Equal(t, "unknown form", ratelimit.Form(-1).String())
}

func TestALongBodyIsJudgedInLinearTime(t *testing.T) {
	defer endsInTime(t)()
	fill := func(s string) string { return strings.Repeat(s, 1<<16/len(s)) }
	for _, body := range []string{
		fill("["), fill(`{"a":`), "[" + fill(`{"errorCode":"x"},`) + "{}]", `{"retry_after":` + fill("9") + "}",
		fill("<Code>"), fill("<Code></Code>"), fill(" "),
		`{"error":{"details":[` + fill(`{"retryDelay":"1s"},`) + `{}]}}`,
		`{"errors":[` + fill(`{"code":87,"type":"x"},`) + `{}]}`,
		throttledCost(fill("9"), fill("9"), fill("9"), fill("9")),
	} {
		for _, p := range ratelimit.AllVendors() {
			p.Judge(400, nil, []byte(body), now)
		}
	}
	h := http.Header{
		"Zendesk-Ratelimit-X": {fill("a=b;")}, "X-Ratelimit": {"{" + fill(`"a":1,`) + `"b":2}`},
		"Ratelimit-Remaining": {fill("w=;")}, "Sforce-Limit-Info": {fill("api-usage=1/")},
	}
	for _, p := range ratelimit.AllVendors() {
		p.Judge(429, h, nil, now)
		p.Parse(h, now)
	}
}

func TestLongBodiesAreNotRead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) { // because Read waits for a body for a second
		for length, want := range map[int64]bool{
			-1: true, 0: true, 18: true, 64 << 10: true, 64<<10 + 1: false, 1 << 40: false,
		} {
			body := io.NopCloser(strings.NewReader(`{"retry_after":35}`))
			resp := &http.Response{
				StatusCode: 429, Header: header("Content-Type: application/json"), Body: body,
				ContentLength: length,
			}
			_, ok := ratelimit.Vendor("discord").Hint(resp, now)
			assert.Equal(t, want, ok, length)
			assert.Equal(t, !want, resp.Body == body, length)
		}
		_, ok := ratelimit.Vendor("discord").Hint(nil, now)
		assert.False(t, ok)
	})
}
