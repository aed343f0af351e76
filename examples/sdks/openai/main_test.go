package main

import (
	"context"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/openai/openai-go/v3/responses"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/heedhttp/heed/examples/sdks/internal/apitest"
	"github.com/heedhttp/heed/testserver"
)

func Example() {
	main()
	// Output: You may.
}

const (
	busy  = `{"error": {"message": "Rate limit reached", "type": "requests", "code": "rate_limit_exceeded"}}`
	broke = `{"error": {"message": "You exceeded your current quota",
		"type": "insufficient_quota", "code": "insufficient_quota"}}`
)

func TestAQuestionIsRetriedWhenOpenAISaysSo(t *testing.T) {
	for _, c := range []struct {
		wait   time.Duration
		fields []string
	}{
		{1500 * time.Millisecond, []string{"Retry-After-Ms", "1500"}},
		{1500 * time.Millisecond, []string{"Retry-After-Ms", "1500", "Retry-After", "2"}},
		{20 * time.Second, []string{"Retry-After", "20"}},
		{6500 * time.Millisecond, []string{
			"X-RateLimit-Limit-Requests", "60", "X-RateLimit-Remaining-Requests", "0", "X-RateLimit-Reset-Requests", "6.5s",
			"X-RateLimit-Limit-Tokens", "150000", "X-RateLimit-Remaining-Tokens", "149984", "X-RateLimit-Reset-Tokens", "6m0s",
		}},
		{48 * time.Second, []string{
			"X-RateLimit-Limit-Requests", "60", "X-RateLimit-Remaining-Requests", "0", "X-RateLimit-Reset-Requests", "1s",
			"X-RateLimit-Limit-Tokens", "150000", "X-RateLimit-Remaining-Tokens", "0", "X-RateLimit-Reset-Tokens", "0m48s",
		}},
		{2 * time.Second, []string{"Retry-After-Ms", "2000", "X-Should-Retry", "true"}},
	} {
		synctest.Test(t, func(t *testing.T) {
			srv := apitest.Start(t, apitest.JSON(429, busy, c.fields...), apitest.JSON(200, answer))
			client := newClient(srv.Transport(), "secret")
			resp, err := client.New(context.Background(), ask(strings.Repeat("x", 1<<20)))
			require.NoError(t, err)
			assert.Equal(t, "You may.", resp.OutputText())
			assert.Greater(t, srv.Log()[1].BodyLength, int64(1<<20))
			apitest.Waited(t, srv, c.wait)
		})
	}
}

func TestAFinalErrorIsNotRetried(t *testing.T) {
	for _, c := range []struct {
		step testserver.Step
		code string
	}{
		{apitest.JSON(429, busy, "X-Should-Retry", "false", "Retry-After", "1"), "rate_limit_exceeded"},
		{apitest.JSON(429, broke, "Retry-After", "1"), "insufficient_quota"},
		{apitest.JSON(429, broke), "insufficient_quota"},
	} {
		synctest.Test(t, func(t *testing.T) {
			srv := apitest.Start(t, c.step)
			client := newClient(srv.Transport(), "secret")
			_, err := client.New(context.Background(), ask("May I?"))
			var refused *responses.Error
			require.ErrorAs(t, err, &refused)
			assert.Equal(t, c.code, refused.Code)
			apitest.Waited(t, srv)
		})
	}
}

func TestAServerErrorIsRetriedIfOpenAISaysSo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		refusal := apitest.JSON(503, busy, "X-Should-Retry", "true", "Retry-After", "3")
		srv := apitest.Start(t, refusal, apitest.JSON(200, answer))
		client := newClient(srv.Transport(), "secret")
		_, err := client.New(context.Background(), ask("May I?"))
		require.NoError(t, err)
		apitest.Waited(t, srv, 3*time.Second)
	})
}

func TestOpenAIsOwnRetriesAreOff(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		srv := apitest.Start(t)
		srv.Route("/", testserver.Step{Status: 429, RetryAfter: 10 * time.Second, Times: -1})
		client := newClient(srv.Transport(), "secret")
		_, err := client.New(context.Background(), ask("May I?"))
		var refused *responses.Error
		require.ErrorAs(t, err, &refused)
		apitest.Waited(t, srv, 10*time.Second, 10*time.Second, 10*time.Second) // heed's four attempts
	})
}

func TestAnAnswerIsStreamedAfterAWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const event = "event: response.output_text.delta\n" +
			`data: {"type":"response.output_text.delta","delta":"word "}` + "\n\n"
		events := strings.Repeat(event, 1000)
		stream := testserver.Step{Header: map[string][]string{"Content-Type": {"text/event-stream"}}, Body: events}
		srv := apitest.Start(t, apitest.JSON(429, busy, "Retry-After", "2"), stream)
		client := newClient(srv.Transport(), "secret")
		answer := client.NewStreaming(context.Background(), ask("May I?"))
		defer answer.Close()
		words := 0
		for answer.Next() {
			words += strings.Count(answer.Current().Delta, "word ")
		}
		require.NoError(t, answer.Err())
		assert.Equal(t, 1000, words)
		apitest.Waited(t, srv, 2*time.Second)
	})
}
