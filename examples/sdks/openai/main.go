// Command openai asks a model with openai/openai-go. OpenAI, which package standin plays,
// refuses the first attempt and says in milliseconds when to come back; heed does:
//
//	cd examples/sdks && go run ./openai
package main

import (
	"context"
	"fmt"
	"log"
	"net/http"

	"github.com/openai/openai-go/v3/option"
	"github.com/openai/openai-go/v3/packages/param"
	"github.com/openai/openai-go/v3/responses"

	"github.com/heedhttp/heed"
	"github.com/heedhttp/heed/examples/sdks/internal/standin"
	"github.com/heedhttp/heed/ratelimit"
)

// newClient returns a client of openai-go that keeps to OpenAI's limits. If base is nil,
// it reaches the real one. openai.NewClient takes the same options; this is the part of
// it that is quick to compile.
func newClient(base http.RoundTripper, key string) responses.ResponseService {
	return responses.NewResponseService(
		option.WithEnvironmentProduction(),
		option.WithAPIKey(key),
		option.WithMaxRetries(0), // or openai-go repeats what heed gave up, twice by default
		option.WithHTTPClient(&http.Client{Transport: &heed.Transport{
			Base:  base,
			Retry: heed.RetryPolicy{Profiles: []*ratelimit.Profile{ratelimit.Vendor("openai")}},
		}}),
	)
}

// ask is a question to a model.
func ask(question string) responses.ResponseNewParams {
	return responses.ResponseNewParams{
		Model: "gpt-5",
		Input: responses.ResponseNewParamsInputUnion{OfString: param.NewOpt(question)},
	}
}

func main() {
	client := newClient(standin.Refusing(429, `{"error": {"code": "rate_limit_exceeded"}}`, answer, "Retry-After-Ms", "1200"), "secret")
	resp, err := client.New(context.Background(), ask("May I?"))
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(resp.OutputText())
}

const answer = `{"output": [{"type": "message", "content": [{"type": "output_text", "text": "You may."}]}]}`
