package ratelimit

import (
	"slices"
	"strconv"
	"strings"
	"time"
)

// Vendor returns the Profile of a vendor by name, such as "github"; docs/fields.md lists
// the names.
//
//	policy := heed.RetryPolicy{Profiles: []*ratelimit.Profile{
//		ratelimit.Vendor("github").On("github.example.com"), // an installation of your own
//	}}
//
// The Profile is a copy that the caller may change. Vendor panics if the name is unknown.
func Vendor(name string) *Profile {
	for _, p := range vendors() {
		if p.Name == name {
			return &p
		}
	}
	panic("ratelimit: unknown vendor " + strconv.Quote(name))
}

// Vendors returns the Profiles of all vendors with known hosts, sorted by name, for a
// client that calls several:
//
//	policy := heed.RetryPolicy{Profiles: ratelimit.Vendors()}
//
// They are copies that the caller may change.
func Vendors() []*Profile {
	var known []*Profile
	for _, p := range vendors() {
		if len(p.Hosts) > 0 {
			known = append(known, &p)
		}
	}
	return known
}

// VendorNames returns the sorted names that Vendor accepts, including those of vendors
// without known hosts.
func VendorNames() []string {
	var names []string
	for _, p := range vendors() {
		names = append(names, p.Name)
	}
	return names
}

// awsThrottled are AWS codes for an exceeded limit.
var awsThrottled = []string{
	"BandwidthLimitExceeded", "EC2ThrottledException", "PriorRequestNotComplete",
	"ProvisionedThroughputExceededException", "RequestLimitExceeded", "RequestThrottled", "RequestThrottledException",
	"SlowDown", "ThrottledException", "Throttling", "ThrottlingException", "TooManyRequestsException",
	"TransactionInProgressException",
}

// awsErrors are Signs for each place where an AWS protocol has its error code.
func awsErrors(means Meaning, codes ...string) []Sign {
	status := []int{400, 429, 500, 503}
	return []Sign{
		{Means: means, Status: status, Header: "X-Amzn-Errortype", Is: codes},
		{Means: means, Status: status, Body: "__type", Is: codes},
		{Means: means, Status: status, Body: "code", Is: codes},
		{Means: means, Status: status, Body: "<Code>", Is: codes},
	}
}

// vendors returns the vendors that need a rule, sorted by name; docs/fields.md lists others,
// too. The first that serves a host counts, so Google Maps comes before Google. Vendors
// change their limits and fields without notice: Checked is when a row was last right.
func vendors() []Profile {
	const callLimit = "X-Shopify-Shop-Api-Call-Limit" // only REST responses have it
	throttledQueries := []Sign{
		{
			Means: Limited, Status: []int{200}, Without: callLimit, Body: "errors.*.extensions.code",
			Is: []string{"THROTTLED"},
		},
		{Means: Limited, Status: []int{200}, Without: callLimit, Body: "errors.*.message", Is: []string{"Throttled"}},
	}
	queryCost := func() *Cost {
		return &Cost{
			Requested: "extensions.cost.requestedQueryCost",
			Available: "extensions.cost.throttleStatus.currentlyAvailable",
			Rate:      "extensions.cost.throttleStatus.restoreRate",
			Maximum:   "extensions.cost.throttleStatus.maximumAvailable",
		}
	}
	all := []Profile{
		{
			Name: "airtable", Title: "Airtable", Hosts: []string{"api.airtable.com"},
			Checked: "2026-11", Source: "airtable.com/developers/web/api/rate-limits",
			Sends:     "429 without a time; refuses everything for 30 s",
			Otherwise: 30 * time.Second,
		},
		{
			Name: "akamai", Title: "Akamai APIs", Hosts: []string{"*.luna.akamaiapis.net"},
			Checked: "2026-11", Source: "techdocs.akamai.com", Hearsay: true,
			Sends:  "`X-RateLimit-Next`, a date",
			Quotas: []Quota{{Limit: "X-Ratelimit-Limit", Remaining: "X-Ratelimit-Remaining", Reset: "X-Ratelimit-Next"}},
		},
		{
			Name: "auth0", Title: "Auth0", Hosts: []string{"*.auth0.com"},
			Checked: "2026-11", Source: "auth0.com/docs, rate limit policy: Management API endpoint rate limits",
			Sends: "`X-RateLimit-*`, Unix time; many endpoints have their own limits besides the tenant's",
			Scope: Scope{Endpoints: true, Methods: true, Keep: []string{"/api/*/users/*", "/api/*/organizations/name/*"}},
		},
		{
			Name: "aws", Title: "Amazon Web Services",
			Hosts:   []string{"*.amazonaws.com", "*.api.aws", "*.amazonaws.com.cn", "*.amazonwebservices.com.cn"},
			Checked: "2026-11",
			Source:  "github.com/smithy-lang/smithy-rs; docs.aws.amazon.com and docs.amazonaws.cn, service endpoints",
			Sends: "`X-Amz-Retry-After` in milliseconds, rarely; an error code, often with status 400. " +
				"LimitExceededException limits requests in some services and resources in others: only " +
				"the request itself is retried",
			Signs: append(awsErrors(Limited, awsThrottled...), awsErrors(Retry, "LimitExceededException")...),
		},
		{
			Name: "azure-arm", Title: "Azure Resource Manager", Hosts: []string{"management.azure.com"},
			Checked: "2026-11", Source: "learn.microsoft.com, request limits and throttling",
			Sends: "`Retry-After`; `X-Ms-RateLimit-Remaining-*`, without a time; a 429 with code " +
				"RetryableErrorDueToAnotherOperation is not a limit",
			Signs: []Sign{
				{
					Means: Retry, Status: []int{409, 429}, Body: "error.code",
					Is: []string{"RetryableErrorDueToAnotherOperation"},
				},
			},
		},
		{
			Name: "basecamp", Title: "Basecamp", Hosts: []string{"*.basecampapi.com"},
			Checked: "2026-11", Source: "github.com/basecamp/bc-api/issues/84",
			Sends:  "`X-RateLimit`, a JSON object",
			Quotas: []Quota{{In: "X-Ratelimit", Limit: "limit", Remaining: "remaining", Reset: "until", Window: "period"}},
		},
		{
			Name: "binance", Title: "Binance", Hosts: []string{"*.binance.com", "*.binance.us", "*.binance.vision"},
			Checked: "2026-11", Source: "developers.binance.com, general information on limits",
			Sends: "`Retry-After`; 418 while an address is banned for not obeying a 429, for two minutes to three " +
				"days. It limits by address: a 418 and a 429 hold for all keys",
			Signs: []Sign{{Means: Limited, Status: []int{418, 429}}},
			Exact: true,
		},
		{
			Name: "brevo", Title: "Brevo", Hosts: []string{"api.brevo.com"},
			Checked: "2026-11", Source: "developers.brevo.com", Hearsay: true,
			Sends: "`X-Sib-RateLimit-*`, in seconds",
			Quotas: []Quota{
				{
					Limit: "X-Sib-Ratelimit-Limit", Remaining: "X-Sib-Ratelimit-Remaining",
					Reset: "X-Sib-Ratelimit-Reset",
				},
			},
		},
		{
			Name: "clawhub", Title: "ClawHub", Checked: "2026-11", Source: "its responses", Hearsay: true,
			Sends:  "`Retry-After` in Unix time",
			Delays: []Delay{{Header: "Retry-After", Form: Any}},
		},
		{
			Name: "contentful", Title: "Contentful",
			Hosts:   []string{"api.contentful.com", "cdn.contentful.com", "preview.contentful.com", "graphql.contentful.com"},
			Checked: "2026-11",
			Source:  "contentful.com/developers, API changes: Content Delivery API and GraphQL API response header",
			Sends:   "`X-Contentful-RateLimit-Reset` in seconds, on a 429",
			Quotas: []Quota{{
				Limit:     "X-Contentful-Ratelimit-Second-Limit",
				Remaining: "X-Contentful-Ratelimit-Second-Remaining", Reset: "X-Contentful-Ratelimit-Reset",
				Form: Seconds,
			}},
		},
		{
			Name: "discord", Title: "Discord", Hosts: []string{"discord.com", "discordapp.com"},
			Checked: "2026-11", Source: "docs.discord.com/developers/topics/rate-limits",
			Sends: "`Retry-After`, rounded up; `retry_after` in the body, exact; `X-RateLimit-Reset-After`; " +
				"a shared limit may refuse while the bucket has units left",
			Signs: []Sign{
				{Means: Limited, Status: []int{429}, Header: "X-Ratelimit-Global", All: true},
				{Means: Limited, Status: []int{429}, Header: "X-Ratelimit-Scope", Is: []string{"global"}, All: true},
			},
			Delays: []Delay{{Body: "retry_after", Form: Seconds}},
			Scope: Scope{
				Endpoints: true, Methods: true, Header: "X-Ratelimit-Bucket",
				Keep: []string{
					"/api/*/channels/{}", "/api/*/guilds/{}", "/api/*/webhooks/{}/{}", "/api/channels/{}",
					"/api/guilds/{}", "/api/webhooks/{}/{}",
					"/api/*/channels/{}/messages/*/reactions/*", "/api/*/invites/*", // emojis and codes
				},
			},
		},
		{
			Name: "dockerhub", Title: "Docker Hub", Hosts: []string{"registry-1.docker.io", "hub.docker.com"},
			Checked: "2026-11", Source: "docs.docker.com/docker-hub/usage/pulls",
			Sends: "`RateLimit-Remaining: 0;w=21600`, without a reset: the window is the longest possible " +
				"wait; `X-Retry-After` in Unix time",
			Quotas: []Quota{
				{
					Limit: "Ratelimit-Limit", Remaining: "Ratelimit-Remaining", Reset: "Ratelimit-Remaining",
					Form: Window, Window: "Ratelimit-Limit", WindowForm: Window,
				},
			},
		},
		{
			Name: "github", Title: "GitHub", Hosts: []string{"api.github.com", "uploads.github.com"},
			Checked: "2026-11",
			Source: "docs.github.com, rate limits for the REST API and REST API endpoints for rate limits; " +
				"github.com/octokit/plugin-throttling.js",
			Sends: "`Retry-After`; `X-RateLimit-Reset`, Unix time; 403 or 429, and 200 from GraphQL; " +
				"without a time wait a minute. A 403 with units left is about permissions",
			Signs: []Sign{
				{Means: Limited, Status: []int{403, 429}, Spent: true},
				{Means: Limited, Status: []int{403, 429}, Header: "Retry-After", All: true},
				{
					Means: Limited, Status: []int{403, 429}, Body: "documentation_url",
					Is: []string{"*secondary-rate-limits", "*abuse-rate-limits"}, All: true,
				},
				{
					Means: Limited, Status: []int{403, 429}, Body: "message",
					Is: []string{"*secondary rate limit*", "*abuse detection*"}, All: true,
				},
				{Means: Limited, Status: []int{403}, Body: "message", Is: []string{"API rate limit exceeded*"}},
				{Means: Limited, Status: []int{200}, Spent: true, Body: "errors.*.type", Is: []string{"RATE_LIMITED"}},
				{
					Means: Limited, Status: []int{200}, Header: "Retry-After", Body: "message",
					Is: []string{"*secondary rate limit*"}, All: true,
				},
			},
			Otherwise: time.Minute, Exact: true,
			// the patterns with /api are GitHub Enterprise Server's
			Scope: Scope{Header: "X-Ratelimit-Resource", Groups: []Group{
				{Name: "code_search", Paths: []string{"/search/code", "/api/v3/search/code"}},
				{Name: "search", Paths: []string{"/search/*", "/api/v3/search/*"}},
				{Name: "graphql", Paths: []string{"/graphql", "/api/graphql"}},
				{Name: "code_scanning_upload", Paths: []string{"POST /repos/*/*/code-scanning/sarifs"}},
				{Name: "code_scanning_autofix", Paths: []string{"POST /repos/*/*/code-scanning/alerts/*/autofix"}},
				{Name: "dependency_snapshots", Paths: []string{"POST /repos/*/*/dependency-graph/snapshots"}},
				{Name: "actions_runner_registration", Paths: []string{
					"POST /repos/*/*/actions/runners/registration-token",
					"POST /orgs/*/actions/runners/registration-token",
					"POST /enterprises/*/actions/runners/registration-token",
				}},
				{Name: "audit_log", Paths: []string{"/orgs/*/audit-log", "/enterprises/*/audit-log"}},
				{Name: "integration_manifest", Paths: []string{"POST /app-manifests/*/conversions"}},
				{Name: "scim", Paths: []string{"/scim/*"}},
				{Name: "core", Paths: []string{"/*"}},
			}},
		},
		{
			Name: "gmaps", Title: "Google Maps", Hosts: []string{"maps.googleapis.com"},
			Checked: "2026-11", Source: "developers.google.com/maps, usage limits for web services",
			Sends: "200 with a status of OVER_QUERY_LIMIT, without a time. OVER_DAILY_LIMIT is about keys and billing",
			Signs: []Sign{{Means: Limited, Status: []int{200}, Body: "status", Is: []string{"OVER_QUERY_LIMIT"}}},
		},
		{
			Name: "google", Title: "Google APIs", Hosts: []string{"*.googleapis.com"},
			Checked: "2026-11", Source: "github.com/googleapis/googleapis, google/rpc/error_details.proto",
			Sends: "`retryDelay` of RetryInfo in the body; 403 from older APIs; a quota of 0 never recovers",
			Signs: []Sign{
				{Means: Final, Status: []int{429}, Body: "error.details.*.violations.*.quotaValue", Is: []string{"0"}},
				{
					Means: Limited, Status: []int{403}, Body: "error.errors.*.reason",
					Is: []string{"rateLimitExceeded", "userRateLimitExceeded"},
				},
			},
			Delays: []Delay{{Body: "error.details.*.retryDelay", Form: Duration}},
		},
		{
			Name: "hubspot", Title: "HubSpot", Hosts: []string{"api.hubapi.com"},
			Checked: "2026-11", Source: "developers.hubspot.com", Hearsay: true,
			Sends: "`X-HubSpot-RateLimit-*`; Interval is the window, not the reset; `Retry-After` on 477, " +
				"which means that the account is being moved",
			Signs: []Sign{{Means: Limited, Status: []int{477}}},
			Quotas: []Quota{
				{
					Limit: "X-Hubspot-Ratelimit-Max", Remaining: "X-Hubspot-Ratelimit-Remaining",
					Window: "X-Hubspot-Ratelimit-Interval-Milliseconds", WindowForm: Milliseconds,
				},
				{Name: "daily", Limit: "X-Hubspot-Ratelimit-Daily", Remaining: "X-Hubspot-Ratelimit-Daily-Remaining"},
			},
		},
		{
			Name: "jira", Title: "Jira and Confluence Cloud", Hosts: []string{"*.atlassian.net", "api.atlassian.com"},
			Checked: "2026-11",
			Source: "developer.atlassian.com/cloud/jira/platform/rate-limiting and " +
				"build-an-app-that-respects-rate-limits",
			Sends: "`Retry-After`; `X-RateLimit-Reset`, a date without seconds, and so up to 59 s early; " +
				"503 with `Retry-After`; `RateLimit-Reason`: a quota for all requests, a burst to one " +
				"endpoint, or writes to one issue",
			Signs: []Sign{
				{Means: Limited, Status: []int{429}, Header: "Ratelimit-Reason", Is: []string{"*-quota-*"}, All: true},
				{Means: Limited, Status: []int{503}, Header: "Retry-After"},
			},
			Scope: Scope{Endpoints: true, Methods: true, Keep: []string{
				"PUT /rest/api/*/issue/{}", "POST /rest/api/*/issue/{}", "DELETE /rest/api/*/issue/{}",
				"/rest/api/*/project/*", "/wiki/rest/api/space/*",
				"/ex/jira/{}", "/ex/confluence/{}", // the cloud id, and so the tenant
				"PUT /ex/jira/{}/rest/api/*/issue/{}", "POST /ex/jira/{}/rest/api/*/issue/{}",
				"DELETE /ex/jira/{}/rest/api/*/issue/{}", "/ex/jira/{}/rest/api/*/project/*",
			}},
		},
		{
			Name: "kinto", Title: "Kinto", Checked: "2026-11", Source: "docs.kinto-storage.org", Hearsay: true,
			Sends:  "`Retry-After`; `Backoff` in seconds, also on successes",
			Delays: []Delay{{Header: "Backoff", Form: Seconds}},
		},
		{
			Name: "kubernetes", Title: "Kubernetes", Checked: "2026-11", Source: "github.com/kubernetes/apiserver",
			Sends: "`Retry-After`, 1 to 32; `details.retryAfterSeconds` in the body; " +
				"`X-Kubernetes-PF-*-UID`. A 429 of a disruption budget is about one pod",
			Signs: []Sign{
				{
					Means: Retry, Status: []int{429}, Body: "details.causes.*.reason",
					Is: []string{"DisruptionBudget"},
				},
			},
			Delays: []Delay{{Body: "details.retryAfterSeconds", Form: Seconds, NotZero: true}},
		},
		{
			Name: "lemlist", Title: "lemlist", Hosts: []string{"api.lemlist.com"},
			Checked: "2026-11", Source: "developer.lemlist.com, rate limits",
			Sends: "`Retry-After`; `X-RateLimit-Reset`, a date as JavaScript prints it",
			Quotas: []Quota{
				{
					Limit: "X-Ratelimit-Limit", Remaining: "X-Ratelimit-Remaining", Reset: "X-Ratelimit-Reset",
					Form: JavaScript,
				},
			},
		},
		{
			Name: "linear", Title: "Linear", Hosts: []string{"api.linear.app"},
			Checked: "2026-11", Source: "linear.app/developers/rate-limiting", Hearsay: true,
			Sends: "400 with code RATELIMITED; `X-RateLimit-{Requests,Complexity,Endpoint-Requests}-Reset`, " +
				"Unix time in milliseconds",
			Signs: []Sign{
				{
					Means: Limited, Status: []int{400}, Body: "errors.*.extensions.code",
					Is: []string{"RATELIMITED"},
				},
			},
		},
		{
			Name: "meta", Title: "Meta's Graph API", Hosts: []string{"graph.facebook.com"},
			Checked: "2026-11", Source: "developers.facebook.com/docs/graph-api/overview/rate-limiting",
			Sends: "400 or 403 with a code; `X-Business-Use-Case-Usage`, JSON with the minutes until access " +
				"returns; `X-App-Usage`, the used percentage",
			Signs: []Sign{
				{
					Means: Limited, Status: []int{400, 403, 429}, Body: "error.code",
					Is: []string{"4", "17", "32", "613", "8000*", "8001*"},
				},
			},
			Delays: []Delay{
				{
					Header: "X-Business-Use-Case-Usage", Body: "*.*.estimated_time_to_regain_access",
					Form: Minutes, NotZero: true,
				},
			},
		},
		{
			Name: "monday", Title: "monday.com", Hosts: []string{"api.monday.com"},
			Checked: "2026-11", Source: "support.monday.com, API rate limits",
			Sends: "`Retry-After`; 200 with a code; `retry_in_seconds` in the body",
			Signs: []Sign{{Means: Limited, Status: []int{200, 429}, Body: "errors.*.extensions.code", Is: []string{
				"COMPLEXITY_BUDGET_EXHAUSTED", "DAILY_LIMIT_EXCEEDED", "IP_RATE_LIMIT_EXCEEDED",
				"Rate Limit Exceeded", "maxConcurrencyExceeded",
			}}},
			Delays: []Delay{{Body: "errors.*.extensions.retry_in_seconds", Form: Seconds, NotZero: true}},
		},
		{
			Name: "notion", Title: "Notion", Hosts: []string{"api.notion.com"},
			Checked: "2026-11", Source: "developers.notion.com",
			Sends: "`Retry-After`; 529 when overloaded",
			Signs: []Sign{{Means: Limited, Status: []int{429, 529}}},
		},
		{
			Name: "npm", Title: "npm's download counts", Hosts: []string{"api.npmjs.org"},
			Checked: "2026-11", Source: "its responses",
			Sends:  "`Retry-After: 0` always, which means nothing",
			Delays: []Delay{{Header: "Retry-After", Form: Seconds, NotZero: true}},
		},
		{
			Name: "okta", Title: "Okta", Hosts: []string{"*.okta.com", "*.oktapreview.com"},
			Checked: "2026-11", Source: "developer.okta.com/docs/reference/rate-limits and rl-best-practices",
			Sends: "`X-Rate-Limit-*`, Unix time",
			// login names; authorization servers
			Scope: Scope{
				Endpoints: true, Methods: true, Keep: []string{"/api/*/users/*", "/oauth2/v1", "/oauth2/*/v1"},
			},
		},
		{
			Name: "prisjakt", Title: "Prisjakt", Checked: "2026-11", Source: "developer.prisjakt.nu", Hearsay: true,
			Sends: "`X-Rate-Limit-Reset` in milliseconds",
			Quotas: []Quota{
				{
					Limit: "X-Rate-Limit-Limit", Remaining: "X-Rate-Limit-Remaining",
					Reset: "X-Rate-Limit-Reset", Form: Milliseconds,
				},
			},
		},
		{
			Name: "salesforce", Title: "Salesforce", Hosts: []string{"*.salesforce.com"},
			Checked: "2026-11", Source: "developer.salesforce.com, REST API",
			Sends: "403 with code REQUEST_LIMIT_EXCEEDED; `Sforce-Limit-Info`, used/limit, without a time: " +
				"the limit covers any 24 hours",
			Signs:  []Sign{{Means: Limited, Status: []int{403}, Body: "*.errorCode", Is: []string{"REQUEST_LIMIT_EXCEEDED"}}},
			Quotas: []Quota{{In: "Sforce-Limit-Info", Name: "api-usage", Used: "api-usage"}},
		},
		{
			Name: "sentry", Title: "Sentry", Hosts: []string{"*.sentry.io", "sentry.io"},
			Checked: "2026-11", Source: "docs.sentry.io/api/ratelimits; github.com/getsentry/sentry-rust",
			Sends: "`Retry-After` with a fraction; `X-Sentry-Rate-Limit-*`, Unix time, for each endpoint; " +
				"`X-Sentry-Rate-Limits`, limits by the content of an envelope, all at one URL",
			Signs: []Sign{{Means: Limited, Status: []int{429}, Header: "X-Sentry-Rate-Limits", Own: true}},
			Quotas: []Quota{
				{
					Limit: "X-Sentry-Rate-Limit-Limit", Remaining: "X-Sentry-Rate-Limit-Remaining",
					Reset: "X-Sentry-Rate-Limit-Reset",
				},
			},
			Scope: Scope{Endpoints: true, Methods: true},
		},
		{
			Name: "shopify", Title: "Shopify", Hosts: []string{"*.myshopify.com"},
			Checked: "2026-11", Source: "shopify.dev",
			Sends: "REST: `Retry-After: 2.0`; `X-Shopify-Shop-Api-Call-Limit`, used/limit. GraphQL at the " +
				"same hosts: as below",
			Signs:  throttledQueries,
			Quotas: []Quota{{Used: callLimit}},
			Cost:   queryCost(),
		},
		{
			Name: "shopify-graphql", Title: "Shopify's GraphQL API", Checked: "2026-11", Source: "shopify.dev",
			Sends: "200 with code THROTTLED and the cost of the query, which gives the wait; a query above " +
				"the maximum is never admitted",
			Signs: slices.Clone(throttledQueries),
			Cost:  queryCost(),
		},
		{
			Name: "slack", Title: "Slack",
			Hosts:   []string{"slack.com", "*.slack.com", "slack-gov.com", "*.slack-gov.com"},
			Checked: "2026-11", Source: "docs.slack.dev, rate limits; github.com/slack-go/slack",
			Sends: "`Retry-After`, for one method of one workspace; a 200 with it and an error of " +
				"`ratelimited` is a refusal, too",
			Signs: []Sign{
				{
					Means: Limited, Status: []int{200}, Header: "Retry-After", Body: "error",
					Is: []string{"ratelimited", "rate_limited"},
				},
			},
			Scope: Scope{Endpoints: true, Keep: []string{"/services/{}/{}/*"}}, // a webhook without its secret
		},
		{
			Name: "stripe", Title: "Stripe", Hosts: []string{"api.stripe.com", "files.stripe.com"},
			Checked: "2026-11", Source: "github.com/stripe/stripe-go; docs.stripe.com/file-upload",
			Sends: "`Stripe-Should-Retry`, which overrides the status; `Stripe-Rate-Limited-Reason`; no time",
			Signs: []Sign{
				{Means: Final, Header: "Stripe-Should-Retry", Is: []string{"false"}},
				{Means: Limited, Status: []int{429}},
				{Means: Retry, Header: "Stripe-Should-Retry", Is: []string{"true"}},
			},
		},
		{
			Name: "telegram", Title: "Telegram bots", Hosts: []string{"api.telegram.org"},
			Checked: "2026-11", Source: "core.telegram.org/bots/api#responseparameters",
			Sends:  "`parameters.retry_after` in the body, in seconds",
			Delays: []Delay{{Body: "parameters.retry_after", Form: Seconds}},
		},
		{
			Name: "trello", Title: "Trello", Hosts: []string{"api.trello.com"},
			Checked: "2026-11",
			Source: "developer.atlassian.com/cloud/trello/guides/rest-api/rate-limits; " +
				"community.developer.atlassian.com/t/30353",
			Sends: "`X-Rate-Limit-Api-{Token,Key}-*`, without a reset: the interval is the longest possible wait",
			Quotas: []Quota{
				{
					Name: "token", Limit: "X-Rate-Limit-Api-Token-Max",
					Remaining: "X-Rate-Limit-Api-Token-Remaining", Reset: "X-Rate-Limit-Api-Token-Interval-Ms",
					Form: Milliseconds, Window: "X-Rate-Limit-Api-Token-Interval-Ms", WindowForm: Milliseconds,
				},
				{
					Name: "key", Limit: "X-Rate-Limit-Api-Key-Max", Remaining: "X-Rate-Limit-Api-Key-Remaining",
					Reset: "X-Rate-Limit-Api-Key-Interval-Ms", Form: Milliseconds,
					Window: "X-Rate-Limit-Api-Key-Interval-Ms", WindowForm: Milliseconds,
				},
			},
		},
		{
			Name: "x", Title: "X", Hosts: []string{"api.x.com", "api.twitter.com"},
			Checked: "2026-11", Source: "docs.x.com/fundamentals/rate-limits",
			Sends: "`X-Rate-Limit-Reset`, Unix time; code 88; formerly 420",
			Signs: []Sign{
				{Means: Limited, Status: []int{420, 429}},
				{Means: Limited, Body: "errors.*.code", Is: []string{"88"}},
			},
			Scope: Scope{Endpoints: true, Methods: true, Keep: []string{"/*/users/by/username/*"}},
		},
		{
			Name: "zendesk", Title: "Zendesk", Hosts: []string{"*.zendesk.com"},
			Checked: "2026-11", Source: "developer.zendesk.com, rate limits",
			Sends: "`Retry-After`; `RateLimit-Reset` in seconds; `Zendesk-RateLimit-<endpoint>: total=100; " +
				"remaining=0; resets=41`",
			Quotas: []Quota{{In: "Zendesk-Ratelimit-*", Limit: "total", Remaining: "remaining", Reset: "resets"}},
		},
	}
	all = append(all, llmVendors()...)
	slices.SortFunc(all, func(a, b Profile) int { return strings.Compare(a.Name, b.Name) })
	return all
}
