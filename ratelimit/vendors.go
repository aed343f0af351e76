package ratelimit

import (
	"net/http"
	"time"
)

// Vendor returns the Profile of a vendor by its name, such as "github": docs/fields.md
// lists them. It panics if there is none: names are literals. The Profile is the caller's
// own, to mend where it is out of date.
func Vendor(name string) *Profile {
	for _, p := range vendors() {
		if p.Name == name {
			return &p
		}
	}
	panic("ratelimit: no vendor is called " + name)
}

// Vendors returns the Profiles of all vendors that are known by their hosts, in the
// order of their names. They are the caller's own.
func Vendors() []*Profile {
	var known []*Profile
	for _, p := range vendors() {
		if len(p.Hosts) > 0 {
			known = append(known, &p)
		}
	}
	return known
}

// VendorNames returns the names of all Profiles that Vendor knows, in order: also of
// those that are not known by their hosts.
func VendorNames() []string {
	var names []string
	for _, p := range vendors() {
		names = append(names, p.Name)
	}
	return names
}

// vendors is the table, in the order of names. What each row says was so when it was
// last checked: vendors change their limits, and the fields that tell them, without
// notice.
func vendors() []Profile {
	vetoed := Sign{Means: Final, Header: "X-Should-Retry", Is: []string{"false"}}
	asked := Sign{Means: Retry, Header: "X-Should-Retry", Is: []string{"true"}}
	refused := Sign{Means: Limited, Status: []int{http.StatusTooManyRequests}}
	throttled := []string{ // AWS says that a limit was exceeded
		"BandwidthLimitExceeded", "EC2ThrottledException", "LimitExceededException", "PriorRequestNotComplete",
		"ProvisionedThroughputExceededException", "RequestLimitExceeded", "RequestThrottled", "RequestThrottledException",
		"SlowDown", "ThrottledException", "Throttling", "ThrottlingException", "TooManyRequestsException",
		"TransactionInProgressException",
	}
	return []Profile{
		{
			Name: "akamai", Title: "Akamai APIs", Hosts: []string{"*.luna.akamaiapis.net"}, Checked: "2026-11", Source: "techdocs.akamai.com", Hearsay: true,
			Sends:  "`X-RateLimit-Next`, a date",
			Quotas: []Quota{{Limit: "X-Ratelimit-Limit", Remaining: "X-Ratelimit-Remaining", Reset: "X-Ratelimit-Next"}},
		},
		{
			Name: "anthropic", Title: "Anthropic", Hosts: []string{"api.anthropic.com"}, Checked: "2026-11", Source: "github.com/anthropics/anthropic-sdk-go",
			Sends: "`Retry-After`; `Anthropic-RateLimit-{Requests,Tokens,Input-Tokens,Output-Tokens}-Reset`, a date; 529 when overloaded",
			Signs: []Sign{vetoed, {Means: Limited, Status: []int{429, 529}}, asked},
		},
		{
			Name: "attio", Title: "Attio", Hosts: []string{"api.attio.com"}, Checked: "2026-11", Source: "docs.attio.com, rate limiting", Hearsay: true,
			Sends: "`Retry-After`, a date as in RFC 3339",
		},
		{
			Name: "auth0", Title: "Auth0", Hosts: []string{"*.auth0.com"}, Checked: "2026-11", Source: "auth0.com/docs",
			Sends: "`X-RateLimit-*`, Unix time",
			Scope: Scope{Endpoints: true, Methods: true},
		},
		{
			Name: "aws", Title: "Amazon Web Services", Hosts: []string{"*.amazonaws.com"}, Checked: "2026-11", Source: "github.com/smithy-lang/smithy-rs",
			Sends: "`X-Amz-Retry-After` in milliseconds, seldom; an error code, often with status 400",
			Signs: []Sign{
				{Means: Limited, Status: []int{400, 429, 500, 503}, Header: "X-Amzn-Errortype", Is: throttled},
				{Means: Limited, Status: []int{400, 429, 500, 503}, Body: "__type", Is: throttled},
				{Means: Limited, Status: []int{400, 429, 500, 503}, Body: "code", Is: throttled},
				{Means: Limited, Status: []int{400, 429, 500, 503}, Body: "<Code>", Is: throttled},
			},
		},
		{
			Name: "azure", Title: "Azure SDKs' services, Cosmos DB", Hosts: []string{"*.documents.azure.com", "*.azure-api.net", "*.windows.net"}, Checked: "2026-11", Source: "github.com/Azure/azure-sdk-for-go",
			Sends: "`X-Ms-Retry-After-Ms`, `Retry-After-Ms`, `Retry-After`; 429 and 503",
		},
		{
			Name: "azure-arm", Title: "Azure Resource Manager", Hosts: []string{"management.azure.com"}, Checked: "2026-11", Source: "learn.microsoft.com, request limits and throttling",
			Sends: "`Retry-After`; `X-Ms-RateLimit-Remaining-*`, which have no time; a 429 with code RetryableErrorDueToAnotherOperation is no limit's",
			Signs: []Sign{{Means: Retry, Status: []int{409, 429}, Body: "error.code", Is: []string{"RetryableErrorDueToAnotherOperation"}}},
		},
		{
			Name: "azure-devops", Title: "Azure DevOps", Hosts: []string{"dev.azure.com"}, Checked: "2026-11", Source: "learn.microsoft.com, Azure DevOps rate limits",
			Sends: "`Retry-After`, also on a 200 that was delayed; `X-RateLimit-Reset`, Unix time; `X-RateLimit-Delay`, how long it was",
		},
		{
			Name: "azure-openai", Title: "Azure OpenAI", Hosts: []string{"*.openai.azure.com"}, Checked: "2026-11", Source: "learn.microsoft.com, Azure OpenAI",
			Sends: "`Retry-After-Ms`; the fields of OpenAI in plain seconds, −1 where there is no limit",
			Signs: []Sign{vetoed, refused, asked},
		},
		{
			Name: "basecamp", Title: "Basecamp", Hosts: []string{"*.basecampapi.com"}, Checked: "2026-11", Source: "github.com/basecamp/bc-api/issues/84",
			Sends:  "`X-RateLimit`, a JSON object",
			Quotas: []Quota{{In: "X-Ratelimit", Limit: "limit", Remaining: "remaining", Reset: "until", Window: "period"}},
		},
		{
			Name: "bitbucket", Title: "Bitbucket Cloud", Hosts: []string{"api.bitbucket.org"}, Checked: "2026-11", Source: "support.atlassian.com", Hearsay: true,
			Sends: "nothing that is documented",
		},
		{
			Name: "brevo", Title: "Brevo", Hosts: []string{"api.brevo.com"}, Checked: "2026-11", Source: "developers.brevo.com", Hearsay: true,
			Sends:  "`X-Sib-RateLimit-*`, in seconds",
			Quotas: []Quota{{Limit: "X-Sib-Ratelimit-Limit", Remaining: "X-Sib-Ratelimit-Remaining", Reset: "X-Sib-Ratelimit-Reset"}},
		},
		{
			Name: "clawhub", Title: "ClawHub", Checked: "2026-11", Source: "its responses", Hearsay: true,
			Sends:  "`Retry-After` in Unix time",
			Delays: []Delay{{Header: "Retry-After", Form: Any}},
		},
		{
			Name: "cloudflare", Title: "Cloudflare's API", Hosts: []string{"api.cloudflare.com"}, Checked: "2026-11", Source: "developers.cloudflare.com",
			Sends: "`RateLimit` and `RateLimit-Policy` as since draft-08; `Retry-After`, rounded up",
		},
		{
			Name: "digitalocean", Title: "DigitalOcean", Hosts: []string{"api.digitalocean.com"}, Checked: "2026-11", Source: "docs.digitalocean.com",
			Sends: "`RateLimit-Reset`, Unix time; `Retry-After` for bursts",
		},
		{
			Name: "discord", Title: "Discord", Hosts: []string{"discord.com", "discordapp.com"}, Checked: "2026-11", Source: "github.com/discord/discord-api-docs",
			Sends:  "`Retry-After`, rounded up; `retry_after` in the body, not rounded; `X-RateLimit-Reset-After`; a limit may be shared while the bucket has something left",
			Signs:  []Sign{{Means: Limited, Status: []int{429}, Header: "X-Ratelimit-Global", All: true}},
			Delays: []Delay{{Body: "retry_after", Form: Seconds}},
			Scope: Scope{
				Endpoints: true, Methods: true, Header: "X-Ratelimit-Bucket",
				Keep: []string{"/api/*/channels/{}", "/api/*/guilds/{}", "/api/*/webhooks/{}/{}", "/api/channels/{}", "/api/guilds/{}", "/api/webhooks/{}/{}"},
			},
		},
		{
			Name: "dockerhub", Title: "Docker Hub", Hosts: []string{"registry-1.docker.io", "hub.docker.com"}, Checked: "2026-11", Source: "docs.docker.com/docker-hub/usage/pulls",
			Sends: "`RateLimit-Remaining: 0;w=21600`, without a reset: the window is the longest that it can be; `X-Retry-After` in Unix time",
			Quotas: []Quota{
				{Limit: "Ratelimit-Limit", Remaining: "Ratelimit-Remaining", Reset: "Ratelimit-Remaining", Form: Window, Window: "Ratelimit-Limit", WindowForm: Window},
			},
		},
		{
			Name: "envoy", Title: "Envoy", Checked: "2026-11", Source: "github.com/envoyproxy/ratelimit",
			Sends: "`X-RateLimit-Reset` in seconds; `X-RateLimit-Limit` with policies; `X-Envoy-RateLimited`, which forbids Envoy to retry",
		},
		{
			Name: "github", Title: "GitHub", Hosts: []string{"api.github.com"}, Checked: "2026-11", Source: "docs.github.com, rate limits for the REST API; github.com/octokit/plugin-throttling.js",
			Sends: "`Retry-After`; `X-RateLimit-Reset`, Unix time; 403 or 429, and 200 from GraphQL; else wait a minute. A 403 with something left is about permissions",
			Signs: []Sign{
				{Means: Limited, Status: []int{403, 429}, Spent: true},
				{Means: Limited, Status: []int{403, 429}, Header: "Retry-After", All: true},
				{Means: Limited, Status: []int{403, 429}, Body: "documentation_url", Is: []string{"*secondary-rate-limits", "*abuse-rate-limits"}, All: true},
				{Means: Limited, Status: []int{403, 429}, Body: "message", Is: []string{"*secondary rate limit*", "*abuse detection*"}, All: true},
				{Means: Limited, Status: []int{403}, Body: "message", Is: []string{"API rate limit exceeded*"}},
				{Means: Limited, Status: []int{200}, Spent: true, Body: "errors.*.type", Is: []string{"RATE_LIMITED"}},
				{Means: Limited, Status: []int{200}, Header: "Retry-After", Body: "message", Is: []string{"*secondary rate limit*"}},
			},
			Otherwise: time.Minute,
			Scope: Scope{Header: "X-Ratelimit-Resource", Groups: []Group{
				{Name: "code_search", Paths: []string{"/search/code"}},
				{Name: "search", Paths: []string{"/search/*"}},
				{Name: "graphql", Paths: []string{"/graphql"}},
				{Name: "code_scanning_upload", Paths: []string{"/repos/*/*/code-scanning/sarifs"}},
				{Name: "dependency_snapshots", Paths: []string{"/repos/*/*/dependency-graph/snapshots"}},
				{Name: "integration_manifest", Paths: []string{"/app-manifests/*/conversions"}},
				{Name: "scim", Paths: []string{"/scim/*"}},
				{Name: "core", Paths: []string{"/*"}},
			}},
		},
		{
			Name: "gitlab", Title: "GitLab", Hosts: []string{"gitlab.com"}, Checked: "2026-11", Source: "docs.gitlab.com, user and IP rate limits",
			Sends: "`Retry-After`; `RateLimit-Reset`, Unix time under the name for which the IETF had seconds; the limits of single features are not told",
		},
		{
			Name: "google", Title: "Google APIs", Hosts: []string{"*.googleapis.com"}, Checked: "2026-11", Source: "github.com/googleapis/googleapis, google/rpc/error_details.proto",
			Sends: "RetryInfo's `retryDelay` in the body; 403 from older APIs; a quota of 0, which never recovers",
			Signs: []Sign{
				{Means: Final, Status: []int{429}, Body: "error.details.*.violations.*.quotaValue", Is: []string{"0"}},
				{Means: Limited, Status: []int{403}, Body: "error.errors.*.reason", Is: []string{"rateLimitExceeded", "userRateLimitExceeded"}},
			},
			Delays: []Delay{{Body: "error.details.*.retryDelay", Form: Duration}},
		},
		{
			Name: "graph", Title: "Microsoft Graph", Hosts: []string{"graph.microsoft.com"}, Checked: "2026-11", Source: "learn.microsoft.com, Microsoft Graph throttling",
			Sends: "`Retry-After`, though not of every resource",
		},
		{
			Name: "hubspot", Title: "HubSpot", Hosts: []string{"api.hubapi.com"}, Checked: "2026-11", Source: "developers.hubspot.com", Hearsay: true,
			Sends: "`X-HubSpot-RateLimit-*`, of which Interval is the window, not the reset; `Retry-After` on 477, an account on the move",
			Signs: []Sign{{Means: Limited, Status: []int{477}}},
			Quotas: []Quota{
				{Limit: "X-Hubspot-Ratelimit-Max", Remaining: "X-Hubspot-Ratelimit-Remaining", Window: "X-Hubspot-Ratelimit-Interval-Milliseconds", WindowForm: Milliseconds},
				{Name: "daily", Limit: "X-Hubspot-Ratelimit-Daily", Remaining: "X-Hubspot-Ratelimit-Daily-Remaining"},
			},
		},
		{
			Name: "jira", Title: "Jira and Confluence Cloud", Hosts: []string{"*.atlassian.net", "api.atlassian.com"}, Checked: "2026-11", Source: "developer.atlassian.com, Jira rate limiting",
			Sends: "`Retry-After`; `X-RateLimit-Reset`, a date without seconds, and so up to 59 s off; 503 with `Retry-After`",
			Signs: []Sign{{Means: Limited, Status: []int{503}, Header: "Retry-After"}},
			Scope: Scope{Endpoints: true, Methods: true, Keep: []string{"PUT /rest/api/*/issue/{}", "POST /rest/api/*/issue/{}", "DELETE /rest/api/*/issue/{}"}},
		},
		{
			Name: "kinto", Title: "Kinto", Checked: "2026-11", Source: "docs.kinto-storage.org", Hearsay: true,
			Sends:  "`Retry-After`; `Backoff` in seconds, also on successes, which are not repeated for it",
			Delays: []Delay{{Header: "Backoff", Form: Seconds}},
		},
		{
			Name: "kong", Title: "Kong", Checked: "2026-11", Source: "github.com/Kong/kong",
			Sends: "`X-RateLimit-Remaining-{Second,Minute,Hour,Day,Month,Year}`; `RateLimit-Reset` and `Retry-After` in seconds",
		},
		{
			Name: "kubernetes", Title: "Kubernetes", Checked: "2026-11", Source: "github.com/kubernetes/apiserver",
			Sends:  "`Retry-After`, 1 to 32; `details.retryAfterSeconds` in the body; `X-Kubernetes-PF-*-UID`. A 429 of a disruption budget is about one pod",
			Signs:  []Sign{{Means: Retry, Status: []int{429}, Body: "details.causes.*.reason", Is: []string{"DisruptionBudget"}}},
			Delays: []Delay{{Body: "details.retryAfterSeconds", Form: Seconds, NotZero: true}},
		},
		{
			Name: "lemlist", Title: "lemlist", Hosts: []string{"api.lemlist.com"}, Checked: "2026-11", Source: "developer.lemlist.com, rate limits",
			Sends:  "`Retry-After`; `X-RateLimit-Reset` as JavaScript prints a date",
			Quotas: []Quota{{Limit: "X-Ratelimit-Limit", Remaining: "X-Ratelimit-Remaining", Reset: "X-Ratelimit-Reset", Form: JavaScript}},
		},
		{
			Name: "linear", Title: "Linear", Hosts: []string{"api.linear.app"}, Checked: "2026-11", Source: "linear.app/developers/rate-limiting", Hearsay: true,
			Sends: "400 with code RATELIMITED; `X-RateLimit-{Requests,Complexity,Endpoint-Requests}-Reset`, Unix time in milliseconds",
			Signs: []Sign{{Means: Limited, Status: []int{400}, Body: "errors.*.extensions.code", Is: []string{"RATELIMITED"}}},
		},
		{
			Name: "mailerlite", Title: "MailerLite", Hosts: []string{"connect.mailerlite.com"}, Checked: "2026-11", Source: "developers-classic.mailerlite.com", Hearsay: true,
			Sends: "`X-RateLimit-Retry-After` in seconds",
		},
		{
			Name: "netlify", Title: "Netlify", Hosts: []string{"api.netlify.com"}, Checked: "2026-11", Source: "its responses", Hearsay: true,
			Sends: "`Retry-After: 2024-06-12 09:53:37 UTC`",
		},
		{
			Name: "nginx", Title: "nginx", Checked: "2026-11", Source: "nginx.org, limit_req_status",
			Sends: "503, or 429 where it is configured, without any hint",
		},
		{
			Name: "notion", Title: "Notion", Hosts: []string{"api.notion.com"}, Checked: "2026-11", Source: "developers.notion.com",
			Sends: "`Retry-After`; 529 when overloaded",
			Signs: []Sign{{Means: Limited, Status: []int{429, 529}}},
		},
		{
			Name: "npm", Title: "npm's download counts", Hosts: []string{"api.npmjs.org"}, Checked: "2026-11", Source: "its responses",
			Sends:  "`Retry-After: 0`, always, which tells nothing",
			Delays: []Delay{{Header: "Retry-After", Form: Seconds, NotZero: true}},
		},
		{
			Name: "okta", Title: "Okta", Hosts: []string{"*.okta.com", "*.oktapreview.com"}, Checked: "2026-11", Source: "developer.okta.com",
			Sends: "`X-Rate-Limit-*`, Unix time",
			Scope: Scope{Endpoints: true, Methods: true},
		},
		{
			Name: "openai", Title: "OpenAI", Hosts: []string{"api.openai.com"}, Checked: "2026-11", Source: "github.com/openai/openai-python",
			Sends: "`Retry-After-Ms`, `Retry-After`; `X-RateLimit-Reset-{Requests,Tokens}`, a duration until all is back; `X-Should-Retry`. A 429 of insufficient_quota is about money",
			Signs: []Sign{
				vetoed,
				{Means: Final, Status: []int{429}, Body: "error.code", Is: []string{"insufficient_quota"}},
				{Means: Final, Status: []int{429}, Body: "error.type", Is: []string{"insufficient_quota"}},
				refused,
				asked,
			},
		},
		{
			Name: "prisjakt", Title: "Prisjakt", Checked: "2026-11", Source: "developer.prisjakt.nu", Hearsay: true,
			Sends:  "`X-Rate-Limit-Reset` in milliseconds",
			Quotas: []Quota{{Limit: "X-Rate-Limit-Limit", Remaining: "X-Rate-Limit-Remaining", Reset: "X-Rate-Limit-Reset", Form: Milliseconds}},
		},
		{
			Name: "pubg", Title: "PUBG", Hosts: []string{"api.pubg.com"}, Checked: "2026-11", Source: "github.com/pubg/api-documentation-content/issues/61", Hearsay: true,
			Sends: "`X-RateLimit-Reset`, Unix time in nanoseconds",
		},
		{
			Name: "rapidapi", Title: "RapidAPI", Hosts: []string{"*.rapidapi.com"}, Checked: "2026-11", Source: "its responses", Hearsay: true,
			Sends: "`X-RateLimit-Requests-Reset` in seconds, under the name for which Linear has Unix time",
		},
		{
			Name: "reddit", Title: "Reddit", Hosts: []string{"oauth.reddit.com"}, Checked: "2026-11", Source: "github.com/praw-dev/prawcore",
			Sends: "`X-Ratelimit-Reset` in seconds; `X-Ratelimit-Remaining` with a fraction",
		},
		{
			Name: "salesforce", Title: "Salesforce", Hosts: []string{"*.salesforce.com"}, Checked: "2026-11", Source: "developer.salesforce.com, REST API",
			Sends:  "403 with code REQUEST_LIMIT_EXCEEDED; `Sforce-Limit-Info`, what is used of what; no time: the limit is on any 24 hours",
			Signs:  []Sign{{Means: Limited, Status: []int{403}, Body: "*.errorCode", Is: []string{"REQUEST_LIMIT_EXCEEDED"}}},
			Quotas: []Quota{{In: "Sforce-Limit-Info", Name: "api-usage", Used: "api-usage"}},
		},
		{
			Name: "sendgrid", Title: "SendGrid", Hosts: []string{"api.sendgrid.com"}, Checked: "2026-11", Source: "twilio.com/docs/sendgrid, rate limits",
			Sends: "`X-RateLimit-*`, Unix time; no `Retry-After`",
		},
		{
			Name: "sentry", Title: "Sentry", Hosts: []string{"*.sentry.io", "sentry.io"}, Checked: "2026-11", Source: "docs.sentry.io", Hearsay: true,
			Sends: "`Retry-After` with a fraction; `X-Sentry-Rate-Limit-*`",
		},
		{
			Name: "shopify", Title: "Shopify's REST API", Checked: "2026-11", Source: "shopify.dev",
			Sends:  "`Retry-After: 2.0`; `X-Shopify-Shop-Api-Call-Limit`, what is used of what",
			Quotas: []Quota{{Used: "X-Shopify-Shop-Api-Call-Limit"}},
		},
		{
			Name: "shopify-graphql", Title: "Shopify's GraphQL API", Checked: "2026-11", Source: "shopify.dev",
			Sends: "200 with code THROTTLED and what the query costs, from which the wait follows; a query that costs more than there can be is never let through",
			Signs: []Sign{{Means: Limited, Status: []int{200}, Body: "errors.*.extensions.code", Is: []string{"THROTTLED"}}},
			Cost: &Cost{
				Requested: "extensions.cost.requestedQueryCost",
				Available: "extensions.cost.throttleStatus.currentlyAvailable",
				Rate:      "extensions.cost.throttleStatus.restoreRate",
				Maximum:   "extensions.cost.throttleStatus.maximumAvailable",
			},
		},
		{
			Name: "slack", Title: "Slack", Hosts: []string{"slack.com", "*.slack.com", "slack-gov.com", "*.slack-gov.com"}, Checked: "2026-11", Source: "docs.slack.dev, rate limits; github.com/slack-go/slack",
			Sends: "`Retry-After`, for one method of one workspace; with an error of `ratelimited` beside it a 200 is a refusal, too",
			Signs: []Sign{
				{Means: Limited, Status: []int{200}, Header: "Retry-After", Body: "error", Is: []string{"ratelimited", "rate_limited"}},
			},
			Scope: Scope{Endpoints: true},
		},
		{
			Name: "spotify", Title: "Spotify", Hosts: []string{"api.spotify.com"}, Checked: "2026-11", Source: "developer.spotify.com, rate limits",
			Sends: "`Retry-After`, sometimes of many hours",
		},
		{
			Name: "stripe", Title: "Stripe", Hosts: []string{"api.stripe.com"}, Checked: "2026-11", Source: "github.com/stripe/stripe-go",
			Sends: "`Stripe-Should-Retry`, which goes before the status; `Stripe-Rate-Limited-Reason`; no time",
			Signs: []Sign{
				{Means: Final, Header: "Stripe-Should-Retry", Is: []string{"false"}},
				refused,
				{Means: Retry, Header: "Stripe-Should-Retry", Is: []string{"true"}},
			},
		},
		{
			Name: "teamdynamix", Title: "TeamDynamix", Hosts: []string{"*.teamdynamix.com"}, Checked: "2026-11", Source: "solutions.teamdynamix.com", Hearsay: true,
			Sends: "`X-RateLimit-Reset`, a date",
		},
		{
			Name: "telegram", Title: "Telegram bots", Hosts: []string{"api.telegram.org"}, Checked: "2026-11", Source: "core.telegram.org/bots/api#responseparameters",
			Sends:  "`parameters.retry_after` in the body, in seconds",
			Delays: []Delay{{Body: "parameters.retry_after", Form: Seconds}},
		},
		{
			Name: "traefik", Title: "Traefik", Checked: "2026-11", Source: "github.com/traefik/traefik",
			Sends: "`Retry-After`; `X-Retry-In`, a duration; nothing if no wait would do",
		},
		{
			Name: "twilio", Title: "Twilio", Hosts: []string{"api.twilio.com"}, Checked: "2026-11", Source: "twilio.com/docs/api/errors/20429",
			Sends: "429 with code 20429; no time",
		},
		{
			Name: "x", Title: "X", Hosts: []string{"api.x.com", "api.twitter.com"}, Checked: "2026-11", Source: "docs.x.com/fundamentals/rate-limits",
			Sends: "`X-Rate-Limit-Reset`, Unix time; code 88; formerly 420",
			Signs: []Sign{
				{Means: Limited, Status: []int{420, 429}},
				{Means: Limited, Body: "errors.*.code", Is: []string{"88"}},
			},
			Scope: Scope{Endpoints: true, Methods: true},
		},
		{
			Name: "zendesk", Title: "Zendesk", Hosts: []string{"*.zendesk.com"}, Checked: "2026-11", Source: "developer.zendesk.com, rate limits",
			Sends:  "`Retry-After`; `RateLimit-Reset` in seconds; `Zendesk-RateLimit-<endpoint>: total=100; remaining=0; resets=41`",
			Quotas: []Quota{{In: "Zendesk-Ratelimit-*", Limit: "total", Remaining: "remaining", Reset: "resets"}},
		},
		{
			Name: "zoom", Title: "Zoom", Hosts: []string{"api.zoom.us"}, Checked: "2026-11", Source: "developers.zoom.us, rate limits", Hearsay: true,
			Sends: "`Retry-After`, a date as in RFC 3339",
		},
	}
}
