// Package llm_test compares what is lost by SDKs of language models alone, and with heed in their client. Its
// figures are in docs/llm.md:
//
//	go test ./llm -update
package llm_test

import (
	"context"
	"flag"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"os"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/anthropics/anthropic-sdk-go"
	anthropicoption "github.com/anthropics/anthropic-sdk-go/option"
	"github.com/openai/openai-go/v3"
	openaioption "github.com/openai/openai-go/v3/option"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/heedhttp/heed"
)

var update = flag.Bool("update", false, "write the table in docs/llm.md")

// failing answers a share of all requests with what SDKs repeat, by chance.
type failing struct {
	share  float64
	rng    *rand.Rand
	answer string
	sent   int
}

func (f *failing) RoundTrip(req *http.Request) (*http.Response, error) {
	_, _ = io.Copy(io.Discard, req.Body)
	req.Body.Close()
	f.sent++
	time.Sleep(300 * time.Millisecond)
	status, body := 200, f.answer
	statuses := []int{500, 502, 503, 504, 408, 409, 529}
	if n := f.rng.IntN(len(statuses) + 1); f.rng.Float64() < f.share {
		if n == len(statuses) {
			return nil, syscall.ECONNRESET
		}
		status, body = statuses[n], `{"error":{"type":"server_error","message":"busy"}}`
	}
	return &http.Response{
		StatusCode: status, ProtoMajor: 1, ProtoMinor: 1, Header: http.Header{"Content-Type": {"application/json"}},
		Body: io.NopCloser(strings.NewReader(body)), ContentLength: int64(len(body)), Request: req,
	}, nil
}

// An sdk makes a function that asks a question through transport. Of its own retries it makes the usual number if
// retries is true, and none otherwise.
type sdk struct {
	name, answer string
	asking       func(transport http.RoundTripper, retries bool) func(context.Context) error
}

var sdks = []sdk{
	{"openai-go", `{"id":"x","object":"chat.completion","choices":[{"message":{"role":"assistant","content":"hi"}}]}`,
		func(transport http.RoundTripper, retries bool) func(context.Context) error {
			options := []openaioption.RequestOption{
				openaioption.WithAPIKey("secret"), openaioption.WithHTTPClient(&http.Client{Transport: transport}),
			}
			if !retries {
				options = append(options, openaioption.WithMaxRetries(0))
			}
			client := openai.NewClient(options...)
			return func(ctx context.Context) error {
				_, err := client.Chat.Completions.New(ctx, openai.ChatCompletionNewParams{
					Model: "gpt-5", Messages: []openai.ChatCompletionMessageParamUnion{openai.UserMessage("hi")},
				})
				return err
			}
		}},
	{"anthropic-sdk-go", `{"type":"message","role":"assistant","content":[{"type":"text","text":"hi"}]}`,
		func(transport http.RoundTripper, retries bool) func(context.Context) error {
			options := []anthropicoption.RequestOption{
				anthropicoption.WithAPIKey("secret"), anthropicoption.WithHTTPClient(&http.Client{Transport: transport}),
			}
			if !retries {
				options = append(options, anthropicoption.WithMaxRetries(0))
			}
			client := anthropic.NewClient(options...)
			return func(ctx context.Context) error {
				_, err := client.Messages.New(ctx, anthropic.MessageNewParams{
					Model: "claude-sonnet-4-5", MaxTokens: 10,
					Messages: []anthropic.MessageParam{anthropic.NewUserMessage(anthropic.NewTextBlock("hi"))},
				})
				return err
			}
		}},
}

const calls = 500

// run returns how many of calls were lost, and how many requests were sent.
func run(t *testing.T, s sdk, share float64, retries, withHeed bool) (lost, sent int) {
	synctest.Test(t, func(t *testing.T) {
		f := &failing{share: share, rng: rand.New(rand.NewPCG(1, 2)), answer: s.answer}
		var transport http.RoundTripper = f
		if withHeed {
			transport = &heed.Transport{Base: f}
		}
		ask := s.asking(transport, retries)
		for range calls {
			if ask(t.Context()) != nil {
				lost++
			}
		}
		sent = f.sent
	})
	return lost, sent
}

func TestNoCallIsLostThatTheSDKAloneWouldSave(t *testing.T) {
	var rows strings.Builder
	for _, s := range sdks {
		for _, share := range []float64{0.02, 0.1, 0.3, 1} {
			alone, aloneSent := run(t, s, share, true, false)
			off, offSent := run(t, s, share, false, true)
			on, onSent := run(t, s, share, true, true)
			assert.LessOrEqual(t, off, alone, "%s, %g, retries off", s.name, share)
			assert.LessOrEqual(t, on, alone, "%s, %g, retries on", s.name, share)
			if share == 1 { // the first calls may be repeated by both
				assert.LessOrEqual(t, onSent, aloneSent+5, "%s: requests in an outage", s.name)
				assert.LessOrEqual(t, offSent, calls*2, "%s: requests in an outage", s.name)
			}
			fmt.Fprintf(&rows, "| %s | %g %% | %d; %.2f | %d; %.2f | %d; %.2f |\n", s.name, share*100,
				alone, perCall(aloneSent), off, perCall(offSent), on, perCall(onSent))
		}
	}
	if *update {
		const page, begins, ends = "../../../docs/llm.md", "|---|---|---|---|---|\n", "\n<!-- The end of the table."
		text, err := os.ReadFile(page)
		require.NoError(t, err)
		head, rest, found := strings.Cut(string(text), begins)
		_, tail, ended := strings.Cut(rest, ends)
		require.True(t, found && ended)
		require.NoError(t, os.WriteFile(page, []byte(head+begins+rows.String()+ends+tail), 0o644))
	}
	t.Logf("\n%s", rows.String())
}

func perCall(sent int) float64 { return float64(sent) / calls }
