package heed_test

import (
	"context"
	"io"
	"math/rand/v2"
	"net/http"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/heedhttp/heed"
	"github.com/heedhttp/heed/ratelimit"
)

const completions = "https://api.openai.com/v1/chat/completions"

// ask is a question to a language model.
func ask(ctx context.Context, url string) *http.Request {
	req, err := http.NewRequestWithContext(ctx, "POST", url, strings.NewReader(`{"model":"gpt-5","messages":[]}`))
	if err != nil {
		panic(err)
	}
	return req
}

func TestVendorsAreKnownWithoutSetUp(t *testing.T) {
	daily := `{"error":{"details":[{"violations":[{"quotaId":"GenerateRequestsPerDayPerProjectPerModel-FreeTier"}]},` +
		`{"retryDelay":"36s"}]}}`
	for name, c := range map[string]struct {
		url  string
		tr   heed.RetryPolicy
		with reply
		sent int
	}{
		"overloaded":   {"https://api.anthropic.com/v1/messages", heed.RetryPolicy{}, jsonReply(529, `{}`), 2},
		"turned off":   {"https://api.anthropic.com/v1/messages", heed.RetryPolicy{Profiles: heed.NoProfiles}, jsonReply(529, `{}`), 1},
		"no board":     {"https://api.anthropic.com/v1/messages", heed.RetryPolicy{}, jsonReply(529, `{}`), 2},
		"another host": {"https://anthropic.example/v1/messages", heed.RetryPolicy{}, jsonReply(529, `{}`), 1},
		"out of money": {completions, heed.RetryPolicy{}, jsonReply(429, `{"error":{"code":"insufficient_quota"}}`), 1},
		"a quota of a day": {"https://generativelanguage.googleapis.com/v1beta/models/m:generateContent", heed.RetryPolicy{},
			jsonReply(429, daily), 1},
		"one's own": {"https://api.openai.com/v1/files", heed.RetryPolicy{Profiles: []*ratelimit.Profile{{
			Hosts: []string{"api.openai.com"}, Signs: []ratelimit.Sign{{Means: ratelimit.Retry, Status: []int{503}}}}}},
			jsonReply(503, `{}`), 2},
		"one's own and no others": {"https://api.anthropic.com/v1/messages", heed.RetryPolicy{
			Profiles: append([]*ratelimit.Profile{{Hosts: []string{"a.example"}}}, heed.NoProfiles...)}, jsonReply(529, `{}`), 1},
	} {
		synctest.Test(t, func(t *testing.T) {
			s := newScript(c.with, ok)
			tr := &heed.Transport{Base: s, Retry: c.tr}
			if name == "no board" {
				tr.Board = heed.NoBoard
			}
			status(t, tr, ask(t.Context(), c.url))
			assert.Equal(t, c.sent, s.count(), name)
		})
	}
}

// Others of the same scope wait for a quota that is used up, RetryAfter and the trace tell until when.
func TestAQuotaThatIsUsedUpIsFinal(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newScript(jsonReply(429, `{"error":{"type":"usage_limit_reached","resets_in_seconds":600}}`), ok)
		var traced time.Duration
		tr := &heed.Transport{Base: s, Trace: &heed.Trace{Decided: func(_ heed.Attempt, v heed.Verdict, wait time.Duration) {
			assert.Equal(t, heed.Final, v)
			traced = wait
		}}}
		resp := roundTrip(t, tr, ask(t.Context(), completions))
		wait, known := heed.RetryAfter(resp, time.Time{})
		assert.Equal(t, 10*time.Minute, wait)
		assert.True(t, known)
		assert.Equal(t, 10*time.Minute, traced)
		body, err := io.ReadAll(resp.Body)
		require.NoError(t, err)
		assert.Contains(t, string(body), "usage_limit_reached")
		_, err = tr.RoundTrip(ask(t.Context(), completions)) //nolint:bodyclose // there is none
		var overdue *heed.OverdueError
		require.ErrorAs(t, err, &overdue)
		assert.InDelta(t, 10*time.Minute, overdue.Wait, float64(10*time.Second))
		assert.Equal(t, 1, s.count())
	})
}

// The caller may wait for a quota of a day that comes back continuously.
func TestAQuotaThatIsBackSoonIsWaitedFor(t *testing.T) {
	const daily = `{"error":{"message":"Rate limit reached on tokens per day (TPD): Limit 100000, Used 99823."}}`
	for wait, sent := range map[string]int{"9": 2, "90": 1} {
		synctest.Test(t, func(t *testing.T) {
			s := newScript(jsonReply(429, daily, "Retry-After", wait), ok)
			status(t, &heed.Transport{Base: s}, ask(t.Context(), completions))
			assert.Equal(t, sent, s.count(), wait)
		})
	}
}

func TestARefusalThatForbidsARetryHoldsOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newScript(jsonReply(429, `{}`, "Retry-After", "30", "X-Should-Retry", "false"), ok)
		tr := &heed.Transport{Base: s}
		assert.Equal(t, 429, status(t, tr, ask(t.Context(), completions)))
		assert.Equal(t, 200, status(t, tr, ask(t.Context(), completions)))
		assert.GreaterOrEqual(t, s.times()[1], 30*time.Second)
	})
}

func TestAnAccountWithoutMoneyHoldsNobodyUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var replies []reply
		for range 50 {
			replies = append(replies, jsonReply(429, `{"error":{"code":"insufficient_quota"}}`))
		}
		s := newScript(replies...)
		tr := &heed.Transport{Base: s}
		for range 50 {
			assert.Equal(t, 429, status(t, tr, ask(t.Context(), completions)))
		}
		assert.Zero(t, s.times()[49], "each asks at once: somebody may have paid")
	})
}

func TestAVendorsClientSaysWhatIsRepeated(t *testing.T) {
	for name, c := range map[string]struct {
		reply  reply
		path   string
		fields []string
		sent   int
	}{
		"server error":   {jsonReply(500, `{}`), "/v1/chat/completions", nil, 4},
		"conflict":       {jsonReply(409, `{}`), "/v1/chat/completions", nil, 4},
		"not a question": {jsonReply(500, `{}`), "/v1/files", nil, 1},
		"reset":          {reply{err: syscall.ECONNRESET}, "/v1/chat/completions", nil, 4},
		"vetoed":         {jsonReply(500, `{}`, "X-Should-Retry", "false"), "/v1/chat/completions", nil, 1},
		"timed out":      {reply{err: &timedOut{}}, "/v1/chat/completions", nil, 2}, // it was probably paid for
		"an SDK counts":  {jsonReply(500, `{}`), "/v1/chat/completions", []string{"X-Stainless-Retry-Count", "1"}, 1},
		"AWS' counts":    {jsonReply(500, `{}`), "/v1/chat/completions", []string{"Amz-Sdk-Request", "attempt=1; max=3"}, 1},
		"AWS' once":      {jsonReply(500, `{}`), "/v1/chat/completions", []string{"Amz-Sdk-Request", "attempt=1; max=1"}, 4},
		"an SDK may not": {jsonReply(500, `{}`), "/v1/chat/completions", []string{"X-Stainless-Retry-Count", "0"}, 4},
		"nonsense":       {jsonReply(500, `{}`), "/v1/chat/completions", []string{"X-Stainless-Retry-Count", "-1"}, 4},
		"overloaded":     {jsonReply(529, `{}`), "/v1/chat/completions", []string{"X-Stainless-Retry-Count", "1"}, 1},
		"refused":        {jsonReply(429, `{}`), "/v1/chat/completions", []string{"X-Stainless-Retry-Count", "1"}, 1},
		"hinted":         {jsonReply(429, `{}`, "Retry-After", "2"), "/v1/chat/completions", []string{"X-Stainless-Retry-Count", "1"}, 2},
		"not sent":       {reply{err: errRefused}, "/v1/chat/completions", []string{"X-Stainless-Retry-Count", "1"}, 2},
	} {
		synctest.Test(t, func(t *testing.T) {
			s := newScript(c.reply, c.reply, c.reply, c.reply, ok)
			if name == "not sent" {
				s = newScript(c.reply, ok)
			}
			req := ask(t.Context(), "https://api.openai.com"+c.path)
			for i := 0; i < len(c.fields); i += 2 {
				req.Header.Set(c.fields[i], c.fields[i+1])
			}
			resp, err := (&heed.Transport{Base: s}).RoundTrip(req)
			if err == nil {
				resp.Body.Close()
			}
			assert.Equal(t, c.sent, s.count(), name)
		})
	}
}

// An sdk sends a request up to 1+retries times, as Stainless' clients do.
type sdk struct {
	http.RoundTripper
	retries int
}

func (c sdk) call(ctx context.Context, url string) (good bool) {
	for n := range c.retries + 1 {
		req := ask(ctx, url)
		req.Header.Set("X-Stainless-Retry-Count", strconv.Itoa(n))
		resp, err := c.RoundTrip(req)
		if err == nil {
			resp.Body.Close()
			if resp.StatusCode < 400 {
				return true
			}
			if resp.StatusCode < 500 && resp.StatusCode != 408 && resp.StatusCode != 409 && resp.StatusCode != 429 {
				return false
			}
		}
		time.Sleep(min(500*time.Millisecond<<n, 8*time.Second))
	}
	return false
}

// failing fails a share of all requests, by chance, in all ways that SDKs repeat.
type failing struct {
	share float64
	rng   *rand.Rand
	sent  int
}

func (f *failing) RoundTrip(req *http.Request) (*http.Response, error) {
	io.Copy(io.Discard, req.Body)
	req.Body.Close()
	f.sent++
	time.Sleep(300 * time.Millisecond)
	statuses := []int{500, 502, 503, 504, 408, 409, 529}
	switch n := f.rng.IntN(len(statuses) + 1); {
	case f.rng.Float64() >= f.share:
		return response(req, jsonReply(200, `{}`)), nil
	case n == len(statuses):
		return nil, syscall.ECONNRESET
	default:
		return response(req, jsonReply(statuses[n], `{}`)), nil
	}
}

func TestNoCallIsLostThatAnSDKWouldSave(t *testing.T) {
	const calls = 500
	lost := func(t *testing.T, share float64, client func(base http.RoundTripper) sdk) (lost, sent int) {
		synctest.Test(t, func(t *testing.T) {
			f := &failing{share: share, rng: rand.New(rand.NewPCG(1, 2))}
			c := client(f)
			for range calls {
				if !c.call(t.Context(), completions) {
					lost++
				}
			}
			sent = f.sent
		})
		return lost, sent
	}
	alone := func(base http.RoundTripper) sdk { return sdk{base, 2} }
	above := func(base http.RoundTripper) sdk { return sdk{&heed.Transport{Base: base}, 0} }
	both := func(base http.RoundTripper) sdk { return sdk{&heed.Transport{Base: base}, 2} }
	for _, share := range []float64{0.02, 0.1, 0.3} {
		without, _ := lost(t, share, alone)
		for name, client := range map[string]func(http.RoundTripper) sdk{"its retries off": above, "its retries on": both} {
			with, sent := lost(t, share, client)
			assert.LessOrEqual(t, with, without, "%s at %g", name, share)
			assert.LessOrEqual(t, float64(sent), calls/(1-share)*1.1, "%s at %g", name, share)
		}
	}
	_, without := lost(t, 1, alone)
	_, with := lost(t, 1, both)
	assert.LessOrEqual(t, with, without+3, "only the first call may be repeated by both")
}

// timedOut is a time-out of the transport.
type timedOut struct{}

func (*timedOut) Error() string   { return "timeout awaiting response headers" }
func (*timedOut) Timeout() bool   { return true }
func (*timedOut) Temporary() bool { return true }

func TestAttemptsOfAnSDKAreRememberedForAnHour(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tr := &heed.Transport{}
		attempts := func(count string) int {
			s := newScript(jsonReply(500, `{}`), ok)
			tr.Base = s
			req := ask(t.Context(), completions)
			req.Header.Set("X-Stainless-Retry-Count", count)
			status(t, tr, req)
			return s.count()
		}
		assert.Equal(t, 2, attempts("0"))
		assert.Equal(t, 1, attempts("2"))
		assert.Equal(t, 1, attempts("0"))
		time.Sleep(59 * time.Minute)
		assert.Equal(t, 1, attempts("0"))
		time.Sleep(2 * time.Minute)
		assert.Equal(t, 2, attempts("0"))
	})
}

// One model or deployment at its limit holds back no other.
func TestEachModelHasItsOwnCoolDown(t *testing.T) {
	question := func(ctx context.Context, url, body string) *http.Request {
		req, err := http.NewRequestWithContext(ctx, "POST", url, strings.NewReader(body))
		require.NoError(t, err)
		return req
	}
	const openAI, azure = "https://api.openai.com/v1/responses", "https://a.openai.azure.com/openai/deployments/"
	for name, c := range map[string]struct {
		first, second [2]string // the URL and the body
		free          bool      // the second request does not wait
	}{
		"models":           {[2]string{openAI, `{"model":"a"}`}, [2]string{openAI, `{"model":"b"}`}, true},
		"one model":        {[2]string{openAI, `{"input":"x","model":"a"}`}, [2]string{openAI, `{"model":"a"}`}, false},
		"deployments":      {[2]string{azure + "a/completions", `{}`}, [2]string{azure + "b/completions", `{}`}, true},
		"one deployment":   {[2]string{azure + "a/completions", `{}`}, [2]string{azure + "a/embeddings", `{}`}, false},
		"an unknown model": {[2]string{openAI, `{"input":"x"}`}, [2]string{openAI, `{"model":"b"}`}, false},
	} {
		synctest.Test(t, func(t *testing.T) {
			told := 0
			s := newScript(jsonReply(429, `{}`, "Retry-After", "30"), ok)
			tr := &heed.Transport{Base: s, Retry: heed.RetryPolicy{MaxAttempts: 1}}
			tr.Trace = &heed.Trace{Degraded: func(err error) {
				assert.ErrorContains(t, err, "OpenAI limits each model separately")
				told++
			}}
			assert.Equal(t, 429, status(t, tr, question(t.Context(), c.first[0], c.first[1])), name)
			for range 3 {
				assert.Equal(t, 200, status(t, tr, question(t.Context(), c.second[0], c.second[1])), name)
			}
			assert.Equal(t, c.free, s.times()[1] == 0, name)
			status(t, tr, question(t.Context(), c.first[0], c.first[1]))
			assert.Equal(t, name == "an unknown model", told == 1, name)
		})
	}
}
