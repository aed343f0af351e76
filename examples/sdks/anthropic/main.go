// Command anthropic asks a model with anthropics/anthropic-sdk-go. Anthropic, played by package standin, is
// overloaded at the first attempt. heed waits and sends it again:
//
//	cd examples/sdks && go run ./anthropic
package main

import (
	"context"
	"fmt"
	"log"
	"net/http"

	"github.com/anthropics/anthropic-sdk-go"
	"github.com/anthropics/anthropic-sdk-go/option"

	"github.com/heedhttp/heed"
	"github.com/heedhttp/heed/examples/sdks/internal/standin"
)

// newClient returns a client of anthropic-sdk-go that respects Anthropic's limits. If base is nil, it calls the
// real Anthropic.
func newClient(base http.RoundTripper, key string) anthropic.Client {
	return anthropic.NewClient(
		option.WithAPIKey(key),
		option.WithMaxRetries(0), // heed makes them
		option.WithHTTPClient(&http.Client{Transport: &heed.Transport{Base: base}}),
	)
}

// ask returns a question to a model.
func ask(question string) anthropic.MessageNewParams {
	return anthropic.MessageNewParams{
		Model:     "claude-sonnet-4-5",
		MaxTokens: 1024,
		Messages:  []anthropic.MessageParam{anthropic.NewUserMessage(anthropic.NewTextBlock(question))},
	}
}

func main() {
	api := standin.Refusing(529, `{"type":"error","error":{"type":"overloaded_error","message":"Overloaded"}}`, answer)
	client := newClient(api, "secret")
	message, err := client.Messages.New(context.Background(), ask("May I?"))
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(message.Content[0].Text)
}

const answer = `{"type": "message", "role": "assistant", "content": [{"type": "text", "text": "You may."}]}`
