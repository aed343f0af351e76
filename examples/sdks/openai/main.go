// Command openai asks a model with openai/openai-go. OpenAI, played by package standin, refuses the
// first attempt and says in milliseconds how long to wait. heed waits and sends it again:
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
)

// newClient returns a client of openai-go that respects OpenAI's limits. If base is nil, it calls
// the real OpenAI. openai.NewClient takes the same options, but takes longer to compile.
func newClient(base http.RoundTripper, key string) responses.ResponseService {
	return responses.NewResponseService(
		option.WithEnvironmentProduction(),
		option.WithAPIKey(key),
		option.WithMaxRetries(0), // heed makes them
		option.WithHTTPClient(&http.Client{Transport: &heed.Transport{Base: base}}),
	)
}

// ask returns a question to a model.
func ask(question string) responses.ResponseNewParams {
	return responses.ResponseNewParams{
		Model: "gpt-5",
		Input: responses.ResponseNewParamsInputUnion{OfString: param.NewOpt(question)},
	}
}

func main() {
	api := standin.Refusing(429, `{"error": {"code": "rate_limit_exceeded"}}`, answer, "Retry-After-Ms", "1200")
	client := newClient(api, "secret")
	resp, err := client.New(context.Background(), ask("May I?"))
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(resp.OutputText())
}

const answer = `{"output": [{"type": "message", "content": [{"type": "output_text", "text": "You may."}]}]}`
