package ratelimit_test

import (
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/heedhttp/heed/ratelimit"
)

const created = "event: response.created\n" +
	`data: {"type":"response.created","sequence_number":0,"response":{"status":"in_progress","error":null}}` + "\n\n" +
	"event: response.in_progress\n" +
	`data: {"type":"response.in_progress","sequence_number":1,"response":{"status":"in_progress","error":null}}` + "\n\n"

func TestFirstEventsOfVendors(t *testing.T) {
	for _, c := range []struct{ vendor, want, stream string }{
		// anthropic-sdk-go v1.84.0, error_type_test.go:19 and shared/shared.go:121
		{"anthropic", "limited", "event: error\ndata: {\"type\":\"error\",\"error\":{\"type\":\"overloaded_error\",\"message\":\"Overloaded\"}}\n\n"},
		{"anthropic", "limited", "event: ping\ndata: {}\n\nevent:error\ndata:{\"error\":\ndata:{\"type\":\"rate_limit_error\"}}\n\n"},
		{"anthropic", "retry", "event: error\ndata: {\"type\":\"error\",\"error\":{\"type\":\"api_error\"}}\n\n"},
		{"anthropic", "retry", "event: error\ndata: {\"type\":\"error\",\"error\":{\"type\":\"timeout_error\"}}\n\n"},
		{"anthropic", "unsaid", "event: error\ndata: {\"type\":\"error\",\"error\":{\"type\":\"invalid_request_error\"}}\n\n"},
		{"anthropic", "unsaid", "event: other\ndata: {\"type\":\"error\",\"error\":{\"type\":\"overloaded_error\"}}\n\n"},
		{"anthropic", "unsaid", "event: error\n\ndata: {\"type\":\"error\",\"error\":{\"type\":\"overloaded_error\"}}\n\n"},
		// openai-go v3.98.0, packages/ssestream/ssestream.go:257 and shared/shared.go:1421: chat completions
		{"openai", "limited", `data: {"error":{"message":"Rate limit reached","type":"tokens","param":null,"code":"rate_limit_exceeded"}}` + "\n\n"},
		{"openai", "retry", `data: {"error":{"message":"The server had an error","type":"server_error","param":null,"code":null}}` + "\n\n"},
		{"openai", "final", `data: {"error":{"message":"You exceeded","type":"insufficient_quota","code":"insufficient_quota"}}` + "\n\n"},
		{"openai", "unsaid", `data: {"error":{"message":"No","type":"invalid_request_error","code":null}}` + "\n\n"},
		{"openai", "unsaid", `data: {"choices":[{"delta":{"content":"{\"error\":{\"code\":\"rate_limit_exceeded\"}}"}}]}` + "\n\n"},
		{"openai", "unsaid", "data: [DONE]\n\n"},
		// responses/response.go:8937 and 8967: responses
		{"openai", "limited", "event: error\ndata: {\"type\":\"error\",\"code\":\"rate_limit_exceeded\",\"message\":\"\",\"param\":null,\"sequence_number\":0}\n\n"},
		{"openai", "limited", created + `data: {"type":"error","sequence_number":2,"error":{"type":"service_unavailable_error","code":"server_is_overloaded"}}` + "\n\n"},
		{"openai", "retry", created + "event: response.failed\n" + `data: {"type":"response.failed","response":{"status":"failed","error":{"code":"server_error"}}}` + "\n\n"},
		{"azure-openai", "limited", created + "event: response.failed\n" + `data: {"type":"response.failed","response":{"status":"failed","error":{"code":"rate_limit_exceeded"}}}` + "\n\n"},
		{"openai", "unsaid", created + `data: {"type":"response.output_item.added"}` + "\n\n" + `data: {"error":{"code":"rate_limit_exceeded"}}` + "\n\n"},
	} {
		h := http.Header{"Content-Type": {"text/event-stream"}}
		p := ratelimit.Vendor(c.vendor)
		assert.True(t, p.HasEvents(200, h))
		for _, end := range []string{"\n", "\r", "\r\n"} {
			stream := strings.ReplaceAll(c.stream, "\n", end)
			decided := false
			for n := range len(stream) + 1 {
				answer := p.Judge(200, h, []byte(stream[:n]), now)
				now := p.Decides([]byte(stream[:n]))
				assert.True(t, now || !decided, "once decided it stays so")
				if decided = now; decided {
					assert.Equal(t, c.want, answer.Meaning.String(), stream[:n])
				} else {
					assert.Equal(t, ratelimit.Answer{}, answer, stream[:n])
				}
			}
			assert.True(t, decided, stream)
		}
	}
}

func TestOnlySomeResponsesHaveEvents(t *testing.T) {
	p := ratelimit.Vendor("openai")
	for _, c := range []struct {
		p      *ratelimit.Profile
		status int
		h      http.Header
		want   bool
	}{
		{p, 200, header("Content-Type: text/event-stream"), true},
		{p, 200, header("Content-Type: Text/Event-Stream ; charset=utf-8"), true},
		{p, 201, header("Content-Type: text/event-stream"), false},
		{p, 429, header("Content-Type: text/event-stream"), false},
		{p, 200, header("Content-Type: text/event-streaming"), false},
		{p, 200, header("Content-Type: text/event-stream", "Content-Encoding: gzip"), false},
		{p, 200, nil, false},
		{ratelimit.Vendor("github"), 200, header("Content-Type: text/event-stream"), false},
	} {
		assert.Equal(t, c.want, c.p.HasEvents(c.status, c.h), "%+v", c)
		assert.Zero(t, testing.AllocsPerRun(10, func() { c.p.HasEvents(c.status, c.h) }))
	}
}

// A wait that the refused event, or the response's header, announces is a hint.
func TestARefusedStreamHasAWait(t *testing.T) {
	p := ratelimit.Vendor("openai")
	p.Delays = []ratelimit.Delay{{Body: "error.wait", Form: ratelimit.Seconds}}
	body := []byte(created + `data: {"error":{"code":"slow_down","wait":7}}` + "\n\n")
	h := header("Content-Type: text/event-stream", "X-RateLimit-Remaining-Tokens: 0", "X-RateLimit-Reset-Tokens: 11.5s")
	assert.Equal(t, "7s", p.Judge(200, h, body, now).Wait.String())
	p.Delays = nil
	assert.Equal(t, "11.5s", p.Judge(200, h, body, now).Wait.String())
	assert.False(t, p.Judge(200, h, []byte(created), now).Known)
}
