package contract

import (
	"net/url"
	"path"
	"slices"
	"strings"
)

// declaredSafe are hosts and paths of POST requests that the vendor's own client repeats by default after a 408, 409
// or 5xx and after a lost answer, and thereby declares safe to repeat: questions to language models. The sources are
//
//   - openai-go v3.98.0, internal/requestconfig/requestconfig.go:390, also for Azure
//   - anthropic-sdk-go v1.84.0, internal/requestconfig/requestconfig.go:251
//   - aws-sdk-go-v2 v1.48.0, aws/retry/standard.go:64
//   - groq-sdk 1.6.0, client.js:329
//   - cohere-ai 8.1.0, core/fetcher/requestWithRetries.js:56
//   - @openrouter/sdk 1.3.19, esm/funcs/chatSend.js:45
var declaredSafe = []string{
	"api.openai.com/v1/chat/completions", "api.openai.com/v1/completions", "api.openai.com/v1/embeddings",
	"api.openai.com/v1/responses",
	"api.anthropic.com/v1/messages", "api.anthropic.com/v1/messages/count_tokens",
	"*.azure.com/openai/deployments/*/chat/completions", "*.azure.com/openai/deployments/*/completions",
	"*.azure.com/openai/deployments/*/embeddings", "*.azure.com/openai/v1/chat/completions",
	"*.azure.com/openai/v1/responses", "*.azure.com/openai/v1/embeddings", "*.azure.com/openai/responses",
	"bedrock-runtime.*.amazonaws.com/model/*/*",
	"api.groq.com/openai/v1/chat/completions", "api.groq.com/openai/v1/responses",
	"api.groq.com/openai/v1/embeddings",
	"api.cohere.com/v[12]/chat", "api.cohere.com/v[12]/embed", "api.cohere.com/v[12]/rerank",
	"openrouter.ai/api/v1/chat/completions",
}

// declaredSafe reports whether e's vendor declares that such a request is safe to repeat.
func (e *Exchange) declaredSafe() bool {
	u, err := url.Parse(e.URL)
	if err != nil || e.Method != "POST" {
		return false
	}
	target := strings.ToLower(u.Hostname()) + u.Path
	return slices.ContainsFunc(declaredSafe, func(pattern string) bool {
		ok, _ := path.Match(pattern, target)
		return ok
	})
}
