package ratelimit

// llmVendors returns the vendors of language models. Their clients send again what others would not: a question is
// a POST that costs money, but usually has no other effect. A vendor whose own client does not do so by default has
// no Repeats.
func llmVendors() []Profile {
	var (
		vetoed   = Sign{Means: Final, Header: "X-Should-Retry", Is: []string{"false"}}
		asked    = Sign{Means: Retry, Header: "X-Should-Retry", Is: []string{"true"}}
		refused  = Sign{Means: Limited, Status: []int{429}}
		overload = Sign{Means: Limited, Status: []int{429, 529}}
		perDay   = func(path, text string, until Delay) Sign {
			return Sign{Means: Final, Status: []int{429}, Body: path, Is: []string{text}, Until: until}
		}
		told      = Delay{Header: "Retry-After", Form: Seconds}
		vetoedFor = Sign{Means: Final, Status: []int{429}, Header: "X-Should-Retry", Is: []string{"false"}, Until: told}
		unless    = []string{
			"background", "container", "conversation", "mcp_servers", "store", "webhook", "webhook_url", "webhooks",
		}
		compute = []string{"chat/completions", "completions", "embeddings", "responses"}
		answer  = []string{"max_completion_tokens", "max_tokens", "max_output_tokens"}
	)
	// under returns patterns for POST requests to these paths below a base.
	under := func(base string, paths ...string) (patterns []string) {
		for _, path := range paths {
			patterns = append(patterns, "POST "+base+path)
		}
		return patterns
	}
	const (
		openAIClient    = "github.com/openai/openai-go/v3@v3.98.0/internal/requestconfig/requestconfig.go:286,390-420"
		anthropicClient = "github.com/anthropics/anthropic-sdk-go@v1.84.0/internal/requestconfig/requestconfig.go:175,251-273"
		awsClient       = "github.com/aws/aws-sdk-go-v2@v1.48.0/aws/retry/standard.go:28,64-69,102"
	)
	deployments := under("/openai/deployments/*/", "chat/completions", "completions", "embeddings")
	azureModels := append(under("/openai/v1/", compute...), "POST /openai/responses")
	return []Profile{
		{
			Name: "amazon-bedrock", Title: "Amazon Bedrock",
			Hosts:   []string{"bedrock-runtime.*.amazonaws.com", "bedrock-runtime-fips.*.amazonaws.com"},
			Checked: "2026-11", Source: "docs.aws.amazon.com/bedrock, quotas; github.com/aws/aws-sdk-go-v2",
			Sends: "429 with ThrottlingException, without a time; its message tells whether tokens of a minute or " +
				"of a day are used up",
			Signs: append([]Sign{perDay("message", "*per day*", Delay{})}, awsErrors(Limited, awsThrottled...)...),
			Scope: Scope{Groups: []Group{{Name: "model", Paths: []string{"POST /model/{}"}}}},
			Repeats: []Repeat{{
				Paths:  under("/model/*/", "converse", "converse-stream", "invoke", "invoke-with-response-stream"),
				Status: []int{500, 502, 503, 504}, Errors: true, Source: awsClient,
			}},
		},
		{
			Name: "anthropic", Title: "Anthropic", Hosts: []string{"api.anthropic.com"},
			Checked: "2026-11", Source: "github.com/anthropics/anthropic-sdk-go; " + anthropicEventSource,
			Sends: "`Retry-After`; " +
				"`Anthropic-RateLimit-{Requests,Tokens,Input-Tokens,Output-Tokens}-Reset`, a date; 529 " +
				"when overloaded",
			Signs:  []Sign{vetoed, overload, asked},
			Events: anthropicEvents(),
			Scope: Scope{Groups: []Group{
				{Name: "count_tokens", Paths: []string{"POST /v1/messages/count_tokens"}, Member: "model"},
				{Name: "model", Paths: []string{"POST /v1/messages"}, Member: "model"},
			}},
			Repeats: []Repeat{{
				Paths:  []string{"POST /v1/messages", "POST /v1/messages/count_tokens", "POST /v1/complete"},
				Status: []int{408, 409}, From: 500, Errors: true, Unless: unless, Source: anthropicClient,
			}},
		},
		{
			Name: "azure-openai", Title: "Azure OpenAI, AI Foundry",
			Hosts:   []string{"*.openai.azure.com", "*.cognitiveservices.azure.com", "*.services.ai.azure.com"},
			Checked: "2026-11",
			Source: "learn.microsoft.com, Azure OpenAI; endpoints for Azure AI Foundry Models; " +
				"events as of OpenAI and Anthropic; github.com/earendil-works/pi/issues/1935",
			Sends:     "`Retry-After-Ms`; OpenAI's fields in plain seconds, −1 without a limit",
			Signs:     []Sign{vetoedFor, vetoed, refused, asked},
			MaxTokens: answer,
			Events:    append(openAIEvents(), anthropicEvents()...),
			Scope: Scope{Groups: []Group{
				{Name: "deployment", Paths: []string{"/openai/deployments/{}"}},
				{Name: "deployment", Paths: append([]string{
					"POST /models/chat/completions", "POST /models/embeddings", "POST /anthropic/v1/messages",
				}, azureModels...), Member: "model"},
			}},
			Repeats: []Repeat{{
				Paths: append(deployments, azureModels...), Status: []int{408, 409}, From: 500, Errors: true,
				Unless: unless, Source: openAIClient,
			}},
		},
		{
			Name: "cohere", Title: "Cohere", Hosts: []string{"api.cohere.com", "api.cohere.ai"},
			Checked: "2026-11", Source: "docs.cohere.com/docs/rate-limits; npm cohere-ai",
			Sends: "429 without a time; a trial key's message tells whether calls of a minute or of a month are used up",
			Signs: []Sign{perDay("message", "*calls / month*", Delay{}), refused},
			Scope: Scope{Endpoints: true},
			Repeats: []Repeat{{
				Paths:  append(under("/v1/", "chat", "embed", "rerank", "classify"), under("/v2/", "chat", "embed", "rerank")...),
				Status: []int{408}, From: 500, Source: "cohere-ai@8.1.0/core/fetcher/requestWithRetries.js:15,56",
			}},
		},
		{
			Name: "deepseek", Title: "DeepSeek", Hosts: []string{"api.deepseek.com"},
			Checked: "2026-11", Source: "api-docs.deepseek.com, rate limit and error codes", Hearsay: true,
			Sends: "429 without a time, 503 when overloaded; no fields. A 402 is about money",
			Signs: []Sign{refused},
		},
		{
			Name: "gemini", Title: "Gemini, Vertex AI",
			Hosts: []string{
				"generativelanguage.googleapis.com", "aiplatform.googleapis.com", "*-aiplatform.googleapis.com",
			},
			Checked: "2026-11",
			Source: "ai.google.dev/gemini-api/docs/rate-limits; github.com/googleapis/googleapis, " +
				"google/rpc/error_details.proto",
			Sends: "`retryDelay` of RetryInfo in the body; a quota of a day is named by `quotaId`, with a retryDelay of " +
				"seconds, and comes back at midnight in California; a quota of 0 never recovers",
			Signs: []Sign{
				{Means: Final, Status: []int{429}, Body: "error.details.*.violations.*.quotaValue", Is: []string{"0"}},
				perDay("error.details.*.violations.*.quotaId", "*PerDay*", Delay{Form: Pacific}),
				refused,
			},
			Delays: []Delay{{Body: "error.details.*.retryDelay", Form: Duration}},
			Scope: Scope{Groups: []Group{{Name: "model", Paths: []string{
				"/*/models/{}:*", "/*/projects/*/locations/{}/publishers/*/models/{}:*",
			}}}},
		},
		{
			Name: "groq", Title: "Groq", Hosts: []string{"api.groq.com"},
			Checked: "2026-11", Source: "console.groq.com/docs/rate-limits; npm groq-sdk",
			Sends: "`Retry-After`; `X-RateLimit-Reset-Requests`, of a day, and `X-RateLimit-Reset-Tokens`, of a minute, " +
				"as durations; the message names the quota that is used up",
			Signs:     []Sign{perDay("error.message", "* per day *", told), vetoedFor, vetoed, refused, asked},
			MaxTokens: answer,
			Scope:     Scope{Groups: []Group{{Name: "model", Paths: under("/openai/v1/", compute...), Member: "model"}}},
			Repeats: []Repeat{{
				Paths: under("/openai/v1/", compute...), Status: []int{408, 409}, From: 500, Errors: true, Unless: unless,
				Source: "groq-sdk@1.6.0/client.js:329-339",
			}},
		},
		{
			Name: "mistral", Title: "Mistral", Hosts: []string{"api.mistral.ai", "codestral.mistral.ai"},
			Checked: "2026-11", Source: "docs.mistral.ai, rate limits; npm @mistralai/mistralai", Hearsay: true,
			Sends: "429; `RateLimit`-like fields on some plans. Its own client repeats nothing by default",
			Signs: []Sign{refused},
			Scope: Scope{Groups: []Group{{
				Name: "model", Paths: under("/v1/", "chat/completions", "fim/completions", "embeddings"), Member: "model",
			}}},
		},
		{
			Name: "openai", Title: "OpenAI",
			Hosts:   []string{"api.openai.com", "eu.api.openai.com", "us.api.openai.com"},
			Checked: "2026-11", Source: "github.com/openai/openai-python; " + openAIEventSource,
			Sends: "`Retry-After-Ms`, `Retry-After`; `X-RateLimit-Reset-{Requests,Tokens}`, the duration " +
				"until all units are back; `X-Should-Retry`. A 429 with insufficient_quota is about money; " +
				"`resets_in_seconds` tells when a subscription's usage comes back",
			Signs: []Sign{
				{
					Means: Final, Status: []int{429}, Body: "error.type", Is: []string{"usage_limit_reached"},
					Until: Delay{Body: "error.resets_in_seconds", Form: Seconds}, All: true,
				},
				{Means: Final, Status: []int{429}, Body: "error.code", Is: []string{
					"insufficient_quota", "billing_hard_limit_reached", "terminal_quota_exhausted",
				}},
				{Means: Final, Status: []int{429}, Body: "error.type", Is: []string{
					"insufficient_quota", "terminal_quota_exhausted",
				}},
				perDay("error.message", "* per day *", told),
				vetoedFor, vetoed, refused, asked,
			},
			MaxTokens: answer,
			Events:    openAIEvents(),
			Scope:     Scope{Groups: []Group{{Name: "model", Paths: under("/v1/", compute...), Member: "model"}}},
			Repeats: []Repeat{{
				Paths: under("/v1/", compute...), Status: []int{408, 409}, From: 500, Errors: true, Unless: unless,
				Source: openAIClient,
			}},
		},
		{
			Name: "openrouter", Title: "OpenRouter", Hosts: []string{"openrouter.ai"},
			Checked: "2026-11", Source: "openrouter.ai/docs/api-reference/limits; npm @openrouter/sdk",
			Sends: "`X-RateLimit-Reset`, Unix time in milliseconds, also in `error.metadata.headers`; free models have a " +
				"quota of a day. A 402 is about money",
			Signs: []Sign{
				{
					Means: Final, Status: []int{429}, Body: "error.message", Is: []string{"*free-models-per-day*"},
					Until: Delay{Body: "error.metadata.headers.X-RateLimit-Reset", Form: Any},
				},
				refused,
			},
			Delays: []Delay{{Body: "error.metadata.headers.X-RateLimit-Reset", Form: Any}},
			Scope: Scope{Groups: []Group{{
				Name: "model", Paths: under("/api/v1/", "chat/completions", "completions", "responses"), Member: "model",
			}}},
			Repeats: []Repeat{{
				Paths: []string{"POST /api/v1/chat/completions"}, From: 500, Errors: true, Unless: unless,
				Source: "@openrouter/sdk@1.3.19/esm/funcs/chatSend.js:45-59",
			}},
		},
		{
			Name: "xai", Title: "xAI", Hosts: []string{"api.x.ai"},
			Checked: "2026-11", Source: "docs.x.ai, rate limits", Hearsay: true,
			Sends: "429 without a time",
			Signs: []Sign{refused},
			Scope: Scope{Groups: []Group{{Name: "model", Paths: under("/v1/", compute...), Member: "model"}}},
		},
	}
}
