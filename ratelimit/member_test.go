package ratelimit_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/heedhttp/heed/ratelimit"
)

// chat is a request with a JSON body.
func chat(url, body string) *http.Request {
	req, err := http.NewRequest("POST", url, strings.NewReader(body))
	if err != nil {
		panic(err)
	}
	return req
}

var byModel = ratelimit.Scope{Groups: []ratelimit.Group{{Name: "model", Paths: []string{"POST /v1/chat"}, Member: "model"}}}

func TestAMemberOfTheBodyNamesTheLimit(t *testing.T) {
	long := strings.Repeat(`{"role": "user", "content": "say \"model\": \\", "n": [1, {"model": "no"}]},`, 5000)
	for body, want := range map[string]string{
		`{"model":"gpt-5"}`:                               "model gpt-5",
		"\n{ \"model\" : \"gpt\\u002d5\" , \"n\":1}":      "model gpt-5",
		`{"messages":[` + long + `1],"model":"gpt-5"}`:    "model gpt-5",
		`{"a":-1.5e3,"b":null,"c":{},"model":"m/1:free"}`: "model m/1:free",
		`{"a":"\\","b":"\"","model":"m"}`:                 "model m",
		`{"model":"` + strings.Repeat("m", 64) + `"}`:     "model " + strings.Repeat("m", 64),
		`{"model":"` + strings.Repeat("m", 300) + `"}`:    "",
		`{"model":5}`:              "",
		`{"model":["m"]}`:          "",
		`{"model":"m`:              "",
		`{"n":1}`:                  "",
		`{"n":1`:                   "",
		`["model","m"]`:            "",
		`{"a"`:                     "",
		`{"a":{"b":"`:              "",
		`{"a":"\`:                  "",
		`{"a":tru`:                 "",
		`{"a" "model":"m"}`:        "",
		strings.Repeat("{", 1<<20): "",
		`{"a":"` + strings.Repeat("x", 1<<20) + `","model":"m"}`: "", // too far
	} {
		req := chat("https://api.example/v1/chat", body)
		assert.Equal(t, want, byModel.Of(req), "%.60s", body)
		assert.Equal(t, want == "", byModel.Lacks(req), "%.60s", body)
		sent, err := io.ReadAll(req.Body)
		require.NoError(t, err)
		assert.Equal(t, body, string(sent), "the body is left alone")
	}
	assert.Regexp(t, `^model #[0-9a-f]+$`, byModel.Of(chat("https://api.example/v1/chat", `{"model":"two words"}`)))
	assert.Regexp(t, `^model #[0-9a-f]+$`, byModel.Of(chat("https://api.example/v1/chat", `{"model":"`+strings.Repeat("m", 65)+`"}`)))
}

func TestABodyThatCannotBeCopiedNamesNoLimit(t *testing.T) {
	for name, change := range map[string]func(*http.Request){
		"no GetBody": func(r *http.Request) { r.GetBody = nil },
		"error":      func(r *http.Request) { r.GetBody = func() (io.ReadCloser, error) { return nil, errors.New("no") } },
		"compressed": func(r *http.Request) { r.Header.Set("Content-Encoding", "zstd") },
		"other path": func(r *http.Request) { r.URL.Path = "/v1/chat/1" },
		"method":     func(r *http.Request) { r.Method = "PUT" },
		"read error": func(r *http.Request) {
			r.GetBody = func() (io.ReadCloser, error) { return io.NopCloser(iotest.ErrReader(errors.New("no"))), nil }
		},
	} {
		req := chat("https://api.example/v1/chat", `{"model":"m"}`)
		change(req)
		assert.Empty(t, byModel.Of(req), name)
	}
}

func TestLimitsOfModelsAndDeployments(t *testing.T) {
	for _, c := range []struct{ vendor, request, want string }{
		{"azure-openai", "POST /openai/deployments/gpt-5-eu/chat/completions", "deployment gpt-5-eu"},
		{"azure-openai", "POST /openai/deployments/gpt-5-eu/embeddings", "deployment gpt-5-eu"},
		{"azure-openai", "POST /openai/v1/responses", "deployment m"},
		{"azure-openai", "GET /openai/files", ""},
		{"gemini", "POST /v1beta/models/gemini-2.5-pro:generateContent", "model gemini-2.5-pro"},
		{"gemini", "POST /v1beta/models/gemini-2.5-pro:streamGenerateContent", "model gemini-2.5-pro"},
		{"gemini", "GET /v1beta/models/gemini-2.5-pro", ""},
		{"gemini", "POST /v1/projects/p/locations/us-central1/publishers/google/models/g:predict", "model us-central1 g"},
		{"amazon-bedrock", "POST /model/anthropic.claude-v1:0/converse", "model anthropic.claude-v1:0"},
		{"amazon-bedrock", "POST /model/us.anthropic%2Fclaude/converse", "model us.anthropic/claude"},
		{"openai", "POST /v1/responses", "model m"},
		{"openai", "POST /v1/files", ""},
		{"anthropic", "POST /v1/messages", "model m"},
		{"anthropic", "POST /v1/messages/count_tokens", "count_tokens m"},
		{"anthropic", "POST /v1/messages/batches", ""},
	} {
		method, path, _ := strings.Cut(c.request, " ")
		req := chat("https://api.example"+path, `{"model":"m"}`)
		req.Method = method
		scope := ratelimit.Vendor(c.vendor).Scope
		assert.Equal(t, c.want, scope.Of(req), c.request)
	}
}

func TestAnAccountOfAWSIsInNoName(t *testing.T) {
	scope := ratelimit.Vendor("amazon-bedrock").Scope
	name := func(model string) string {
		return scope.Of(chat("https://api.example/model/arn%3Aaws%3Abedrock%3Aus%3A123456789012%3Aprofile%2F"+model+"/converse", `{}`))
	}
	assert.NotContains(t, name("claude"), "123456789012")
	assert.NotEqual(t, name("claude"), name("nova"))
}

// What an LLM vendor's own client repeats by default may be repeated, and nothing else.
func TestRepeatable(t *testing.T) {
	for _, c := range []struct {
		vendor, request, body string
		yes, no               []int
	}{
		{"openai", "POST /v1/chat/completions", `{"model":"m"}`, []int{0, 408, 409, 500, 503, 599}, []int{400, 404, 429, 499}},
		{"openai", "POST /v1/responses", `{"background":false,"store":null}`, []int{500}, nil},
		{"openai", "POST /v1/responses", `{"background":true}`, nil, []int{0, 409, 500}},
		{"openai", "POST /v1/responses", `{"store":true}`, nil, []int{0, 500}},
		{"openai", "POST /v1/responses", `{"st\u006fre":true}`, nil, []int{500}},
		{"openai", "POST /v1/responses", `{"conversation":"conv_1"}`, nil, []int{500}},
		{"anthropic", "POST /v1/messages", `{"mcp_servers":[{}]}`, nil, []int{500}},
		{"amazon-bedrock", "POST /model/arn%3Aaws%3Abedrock%2Fclaude/converse", `{}`, []int{503}, nil},
		{"openai", "POST /v1/responses", `{"webhook":"https://a.example"}`, nil, []int{500}},
		{"openai", "POST /v1/responses", `{"store":false`, nil, []int{500}},
		{"openai", "POST /v1/responses/r1/cancel", `{}`, nil, []int{500}},
		{"openai", "POST /v1/files", `{}`, nil, []int{0, 500}},
		{"openai", "POST /v1/batches", `{}`, nil, []int{0, 500}},
		{"openai", "POST /v1/fine_tuning/jobs", `{}`, nil, []int{500}},
		{"openai", "DELETE /v1/chat/completions", `{}`, nil, []int{500}},
		{"anthropic", "POST /v1/messages", `{"model":"m"}`, []int{0, 408, 409, 500, 529}, []int{400, 404}},
		{"anthropic", "POST /v1/messages/batches", `{}`, nil, []int{0, 500}},
		{"azure-openai", "POST /openai/deployments/d/chat/completions", `{}`, []int{0, 408, 500}, nil},
		{"azure-openai", "POST /openai/v1/responses", `{}`, []int{0, 408, 500}, nil},
		{"azure-openai", "POST /openai/deployments/d/images/generations", `{}`, nil, []int{500}},
		{"amazon-bedrock", "POST /model/m/converse", `{}`, []int{0, 500, 502, 503, 504}, []int{408, 409, 529}},
		{"amazon-bedrock", "POST /model/m/invoke-with-response-stream", `{}`, []int{503}, nil},
		{"amazon-bedrock", "POST /async-invoke", `{}`, nil, []int{503}},
		{"groq", "POST /openai/v1/chat/completions", `{}`, []int{0, 409, 500}, nil},
		{"cohere", "POST /v2/chat", `{}`, []int{408, 500}, []int{0, 409}},
		{"openrouter", "POST /api/v1/chat/completions", `{}`, []int{0, 500}, []int{408, 409}},
		{"gemini", "POST /v1beta/models/g:generateContent", `{}`, nil, []int{0, 500, 503}},
		{"mistral", "POST /v1/chat/completions", `{}`, nil, []int{0, 500, 503}},
		{"github", "POST /repos/a/b/issues", `{}`, nil, []int{0, 500}},
	} {
		method, path, _ := strings.Cut(c.request, " ")
		p := ratelimit.Vendor(c.vendor)
		for want, all := range map[bool][]int{true: c.yes, false: c.no} {
			for _, status := range all {
				req := chat("https://api.example"+path, c.body)
				req.Method = method
				assert.Equal(t, want, p.Repeatable(req, status), "%v %d", c, status)
			}
		}
	}
	req := chat("https://api.example/v1/responses", `{}`)
	req.GetBody = nil
	assert.False(t, ratelimit.Vendor("openai").Repeatable(req, 500), "nobody knows what the body says")
	for _, p := range ratelimit.AllVendors() {
		for _, r := range p.Repeats {
			assert.Regexp(t, `\S+@v?[\d.]+/\S+:\d+`, r.Source, p.Name)
		}
	}
}

func FuzzMembers(f *testing.F) {
	for _, seed := range []string{`{"model":"m"}`, `{"a":[1,"\"]"],"model":"x"}`, `{"a":"\\\"","b":{"model":1}}`, `{"model":"a\nb"}`} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		for _, reader := range []func(io.Reader) io.Reader{
			func(r io.Reader) io.Reader { return r }, iotest.OneByteReader, iotest.DataErrReader,
		} {
			req := chat("https://api.example/v1/chat", "{}")
			req.GetBody = func() (io.ReadCloser, error) { return io.NopCloser(reader(bytes.NewReader(body))), nil }
			got := byModel.Of(req)
			var object map[string]json.RawMessage
			if json.Unmarshal(body, &object) != nil || bytes.Count(body, []byte("model")) != 1 || len(body) > 1000 {
				continue // what is not JSON is not sent; a name may be written twice, or with escapes
			}
			var model string
			if json.Unmarshal(object["model"], &model) != nil || len(object["model"]) > 250 {
				continue
			}
			if (model == "") != (got == "") {
				t.Errorf("%q: %q, but the model is %q", body, got, model)
			}
		}
	})
}

func BenchmarkModel(b *testing.B) {
	message := `{"role": "user", "content": "` + strings.Repeat(`He said \"no\" and went on.\n`, 40) + `"},`
	body := `{"messages":[` + strings.Repeat(message, (256<<10)/len(message)) + `{}],"model":"gpt-5"}`
	req := chat("https://api.example/v1/chat", body)
	b.SetBytes(int64(len(body)))
	b.ReportAllocs()
	for b.Loop() {
		if byModel.Of(req) == "" {
			b.Fatal("no model")
		}
	}
}

func TestMostTokens(t *testing.T) {
	p := &ratelimit.Profile{MaxTokens: []string{"max_completion_tokens", "max_tokens"}}
	for body, want := range map[string]int64{
		`{"max_tokens":90}`:                                 95,
		`{"model":"m", "max_tokens" : 90}`:                  100,
		`{"max_completion_tokens":30,"max_tokens":90}`:      44,
		`{"max_tokens":null,"max_completion_tokens":30}`:    45,
		`{"a":{"max_tokens":90}}`:                           0,
		`{"max_tokens":"90"}`:                               0,
		`{"max_tokens":-1}`:                                 0,
		`{"max_tokens":9.5}`:                                0,
		`{"max_tokens":99999999999999999999}`:               0,
		`["max_tokens",90]`:                                 0,
		`{"messages":["` + strings.Repeat("a", 300) + `"]}`: 0,
		``: 0,
		`{"m":"` + strings.Repeat("a", 2<<20) + `","max_tokens"`: 0,
	} {
		req := chat("https://example.com/", body)
		assert.Equal(t, want, p.MostTokens(req), "%.60s", body)
		assert.Zero(t, new(ratelimit.Profile).MostTokens(req))
	}
	req, err := http.NewRequest("POST", "https://example.com/", io.NopCloser(strings.NewReader(`{"max_tokens":9}`)))
	require.NoError(t, err)
	assert.Zero(t, p.MostTokens(req), "its length is unknown, and it can be read only once")
}
