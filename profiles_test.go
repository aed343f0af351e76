package heed_test

import (
	"context"
	"errors"
	"io"
	"net/http"
	"strings"
	"testing"
	"testing/iotest"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/heedhttp/heed"
	"github.com/heedhttp/heed/ratelimit"
)

// vendor is the policy of a client that talks to one vendor only.
func vendor(name string) heed.RetryPolicy {
	return heed.RetryPolicy{Profiles: []*ratelimit.Profile{ratelimit.Vendor(name).On()}, Backoff: constant(time.Second)}
}

// jsonReply is a reply with a JSON body.
func jsonReply(status int, body string, header ...string) reply {
	return reply{status: status, header: append(header, "Content-Type", "application/json"), body: readCloser(body)}
}

func post(ctx context.Context) *http.Request {
	req, _ := http.NewRequestWithContext(ctx, "POST", "http://example.com/", strings.NewReader("{}"))
	return req
}

func TestExhaustedQuotasAreWaitedFor(t *testing.T) {
	for _, c := range []struct {
		want   time.Duration
		header []string
	}{
		{7 * time.Second, []string{"RateLimit", `"default";r=0;t=7`}},
		{7 * time.Second, []string{"RateLimit", "limit=10, remaining=0, reset=7"}},
		{7 * time.Second, []string{"RateLimit-Remaining", "0", "RateLimit-Reset", "7"}},
		{7 * time.Second, []string{"X-RateLimit-Remaining", "0", "X-RateLimit-Reset", "2000-01-01T00:00:07Z"}},
		{7 * time.Second, []string{"X-RateLimit-Remaining-Tokens", "0", "X-RateLimit-Reset-Tokens", "7s"}},
		// Retry-After wins, though it is shorter
		{2 * time.Second, []string{"RateLimit", `"default";r=0;t=7`, "Retry-After", "2"}},
		{time.Second, []string{"RateLimit", `"default";r=0;t=7`, "Retry-After", "0"}}, // only the backoff is left
		{time.Second, []string{"RateLimit", `"default";r=5;t=7`}},
		{time.Second, []string{"RateLimit", `"default";r=0;t=7`, "Age", "1"}},
	} {
		synctest.Test(t, func(t *testing.T) {
			s := newScript(reply{status: 429, header: c.header}, ok)
			tr := &heed.Transport{Base: s, Retry: heed.RetryPolicy{Backoff: constant(time.Second)}}
			assert.Equal(t, 200, status(t, tr, post(t.Context())))
			between(t, c.want, s.times()[1], c.want*13/10)
		})
	}
}

func TestAnExhaustedQuotaHoldsBackOtherRequests(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newScript(reply{status: 429, header: []string{"RateLimit", `"default";r=0;t=10`}}, ok)
		tr := &heed.Transport{Base: s, Retry: heed.RetryPolicy{MaxAttempts: 1}}
		assert.Equal(t, 429, status(t, tr, get(t.Context())))
		assert.Equal(t, 200, status(t, tr, get(t.Context())))
		assert.GreaterOrEqual(t, s.times()[1], 10*time.Second)
	})
}

func TestAProfileSaysWhatAResponseMeans(t *testing.T) {
	for _, c := range []struct {
		vendor string
		reply  reply
		want   time.Duration // the wait; 0 if there is no retry
	}{
		{"github", jsonReply(200, `{"errors":[{"type":"RATE_LIMITED"}]}`, "X-RateLimit-Remaining", "0", "X-RateLimit-Reset",
			"7"), 7 * time.Second},
		{"github", jsonReply(200, `{"data":{}}`, "X-RateLimit-Remaining", "0", "X-RateLimit-Reset", "7"), 0},
		{"github", jsonReply(403, `{"message":"You have exceeded a secondary rate limit."}`, "X-RateLimit-Remaining", "7"),
			time.Minute},
		{"github", jsonReply(403, `{"message":"Resource not accessible by integration"}`, "X-RateLimit-Remaining", "7",
			"X-RateLimit-Reset", "7"), 0},
		{"shopify-graphql",
			jsonReply(200, `{"errors":[{"extensions":{"code":"THROTTLED"}}],"extensions":{"cost":{"requestedQueryCost":400,
			"throttleStatus":{"maximumAvailable":1000.0,"currentlyAvailable":100,"restoreRate":50.0}}}}`), 6 * time.Second},
		{"shopify-graphql",
			jsonReply(200, `{"errors":[{"extensions":{"code":"THROTTLED"}}],"extensions":{"cost":{"requestedQueryCost":1400,
			"throttleStatus":{"maximumAvailable":1000.0,"currentlyAvailable":100,"restoreRate":50.0}}}}`), 0},
		{"telegram", jsonReply(429, `{"parameters":{"retry_after":35}}`), 35 * time.Second},
		{"linear", jsonReply(400, `{"errors":[{"extensions":{"code":"RATELIMITED"}}]}`, "X-RateLimit-Requests-Remaining",
			"0", "X-RateLimit-Requests-Reset", "9"), 9 * time.Second},
		{"linear", jsonReply(400, `{"errors":[{"extensions":{"code":"INPUT_ERROR"}}]}`, "X-RateLimit-Requests-Remaining",
			"0", "X-RateLimit-Requests-Reset", "9"), 0},
		{"aws", jsonReply(400, `{"__type":"ThrottlingException"}`), time.Second},
		{"aws", jsonReply(400, `{"__type":"ValidationException"}`), 0},
		{"openai", jsonReply(429, `{"error":{"code":"insufficient_quota"}}`, "Retry-After", "5"), 0},
		{"openai", jsonReply(500, `{}`, "X-Should-Retry", "true"), time.Second}, // also for a POST
		{"notion", jsonReply(529, `{}`), time.Second},
		{"stripe", jsonReply(409, `{}`, "Stripe-Should-Retry", "true"), time.Second},
		{"npm", jsonReply(429, ``, "Retry-After", "0"), time.Second},
	} {
		synctest.Test(t, func(t *testing.T) {
			s := newScript(c.reply, ok)
			resp := roundTrip(t, &heed.Transport{Base: s, Retry: vendor(c.vendor)}, post(t.Context()))
			if c.want == 0 {
				assert.Equal(t, 1, s.count(), c.vendor)
				assert.Equal(t, c.reply.status, resp.StatusCode)
			} else if assert.Equal(t, 2, s.count(), c.vendor) {
				between(t, c.want, s.times()[1], c.want*13/10)
			}
			resp.Body.Close()
		})
	}
}

func TestALimitInABodyHoldsBackOtherRequests(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newScript(jsonReply(200, `{"errors":[{"type":"RATE_LIMITED"}]}`, "X-RateLimit-Remaining", "0",
			"X-RateLimit-Reset", "30"), ok)
		policy := vendor("github")
		policy.MaxAttempts = 1
		tr := &heed.Transport{Base: s, Retry: policy}
		assert.Equal(t, `{"errors":[{"type":"RATE_LIMITED"}]}`, content(t, roundTrip(t, tr, get(t.Context()))))
		assert.Equal(t, 200, status(t, tr, get(t.Context())))
		assert.GreaterOrEqual(t, s.times()[1], 30*time.Second)
	})
}

func TestTheCallerGetsTheWholeBodyAProfileRead(t *testing.T) {
	long := `{"errors":[],"data":"` + strings.Repeat("x", 1<<20) + `"}`
	for _, body := range []string{"", "{}", "no JSON", long[:64<<10], long[:64<<10+1], long} {
		for _, code := range []int{200, 400, 404, 500} {
			synctest.Test(t, func(t *testing.T) {
				policy := vendor("shopify-graphql")
				policy.MaxAttempts = 1
				b := newBody(body)
				s := newScript(reply{status: code, header: []string{"Content-Type", "application/json; charset=utf-8"}, body: b})
				resp := roundTrip(t, &heed.Transport{Base: s, Retry: policy}, get(t.Context()))
				got, err := io.ReadAll(piecemeal(resp.Body, 64<<10))
				require.NoError(t, err)
				assert.Equal(t, body, string(got), "%d", code)
				require.NoError(t, resp.Body.Close())
				_, err = resp.Body.Read(make([]byte, 1))
				assert.Error(t, err)
				_, closes := b.counts()
				assert.Equal(t, 1, closes)
			})
		}
	}
}

// piecemeal reads single bytes at the beginning of r and around border, and whole blocks elsewhere.
func piecemeal(r io.Reader, border int64) io.Reader {
	const part = 256
	single := func() io.Reader { return iotest.OneByteReader(io.LimitReader(r, part)) }
	return io.MultiReader(single(), io.LimitReader(r, border-part-part/2), single(), r)
}

func TestABrokenBodyIsBrokenForTheCallerToo(t *testing.T) {
	broken := errors.New("broken")
	body := io.NopCloser(io.MultiReader(strings.NewReader("{"), iotest.ErrReader(broken)))
	policy := vendor("telegram")
	policy.MaxAttempts = 1
	tr := &heed.Transport{
		Base: newScript(reply{status: 429, header: []string{"Content-Type", "application/json"}, body: body}), Retry: policy}
	got, err := io.ReadAll(roundTrip(t, tr, get(t.Context())).Body)
	assert.Equal(t, "{", string(got))
	assert.ErrorIs(t, err, broken)
}

// The header alone is obeyed, and the caller gets the body when it comes.
func TestALateBodyIsNotWaitedFor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		late, w := io.Pipe()
		go func() {
			time.Sleep(time.Minute)
			io.WriteString(w, `{"retry_after":`)
			time.Sleep(time.Minute)
			io.WriteString(w, `2}`)
			w.Close()
		}()
		policy := vendor("discord")
		policy.MaxAttempts = 1
		s := newScript(reply{status: 429, header: []string{"Content-Type", "application/json", "Retry-After", "3"},
			body: late}, ok)
		tr := &heed.Transport{Base: s, Retry: policy}
		start := time.Now()
		resp := roundTrip(t, tr, get(t.Context()))
		assert.Equal(t, time.Second, time.Since(start))
		assert.Equal(t, `{"retry_after":2}`, content(t, resp))
		assert.Equal(t, 2*time.Minute, time.Since(start))
	})
}

func TestALateBodyOfARetriedResponseIsGivenUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		late, w := io.Pipe()
		defer w.Close()
		s := newScript(reply{status: 429, header: []string{"Content-Type", "application/json", "Retry-After", "3"},
			body: late}, ok)
		assert.Equal(t, 200, status(t, &heed.Transport{Base: s, Retry: vendor("discord")}, get(t.Context())))
		between(t, 3*time.Second, s.times()[1], 4*time.Second)
	})
}

// The body may never end.
func TestABodyIsReadOnlyIfAProfileNeedsIt(t *testing.T) {
	for _, c := range []struct {
		vendor string
		status int
		header []string
	}{
		{"shopify-graphql", 200, []string{"Content-Type", "text/event-stream"}},
		{"shopify-graphql", 200, []string{"Content-Type", "application/json", "Content-Encoding", "br"}},
		{"shopify-graphql", 201, []string{"Content-Type", "application/json"}},
		{"github", 200, []string{"Content-Type", "application/json", "X-RateLimit-Remaining", "1"}},
		{"slack", 429, []string{"Content-Type", "application/json"}},
		{"telegram", 200, []string{"Content-Type", "application/json"}},
	} {
		b := newBody("{}")
		policy := vendor(c.vendor)
		policy.MaxAttempts = 1
		resp := roundTrip(t, &heed.Transport{Base: newScript(reply{status: c.status, header: c.header, body: b}),
			Retry: policy}, get(t.Context()))
		reads, _ := b.counts()
		assert.Zero(t, reads, "%+v", c)
		assert.Equal(t, b, resp.Body, "%+v", c)
	}
}

func TestAProfileAppliesOnlyToItsHosts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for url, want := range map[string]int{
			"https://slack.com/": 1, "https://api.telegram.org/": 2, "https://api.telegram.org:8443/": 2,
			"https://API.Telegram.org/": 2, "https://telegram.org/": 1,
		} {
			body := `{"parameters":{"retry_after":3}}`
			s := newScript(jsonReply(403, body), ok)
			p := ratelimit.Vendor("telegram")
			p.Signs = []ratelimit.Sign{{Means: ratelimit.Limited, Status: []int{403}}}
			tr := &heed.Transport{Base: s,
				Retry: heed.RetryPolicy{Profiles: []*ratelimit.Profile{nil, ratelimit.Vendor("slack"), p}}}
			req, err := http.NewRequestWithContext(t.Context(), "GET", url, nil)
			require.NoError(t, err)
			status(t, tr, req)
			assert.Equal(t, want, s.count(), url)
		}
	})
}

func TestRetryPolicyHintOverridesAProfile(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		policy := vendor("telegram")
		policy.Hint = func(*http.Response, time.Time) (time.Duration, bool) { return 5 * time.Second, true }
		s := newScript(jsonReply(429, `{"parameters":{"retry_after":35}}`), ok)
		status(t, &heed.Transport{Base: s, Retry: policy}, get(t.Context()))
		between(t, 5*time.Second, s.times()[1], 7*time.Second)
	})
}

func TestAProfilesHintCanBeAPolicysHint(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newScript(jsonReply(429, `{"parameters":{"retry_after":35}}`), ok)
		status(t, &heed.Transport{Base: s, Retry: heed.RetryPolicy{Hint: ratelimit.Vendor("telegram").Hint}},
			get(t.Context()))
		between(t, 35*time.Second, s.times()[1], 46*time.Second)
	})
}

func TestProfilesAddNoAllocationsToASuccess(t *testing.T) {
	base := &answer{200}
	req := get(context.Background())
	allocations := func(p heed.RetryPolicy) float64 {
		tr := &heed.Transport{Base: base, Retry: p}
		return testing.AllocsPerRun(100, func() { tr.RoundTrip(req) })
	}
	bare := allocations(heed.RetryPolicy{})
	assert.Equal(t, bare, allocations(heed.RetryPolicy{Profiles: ratelimit.Vendors()}))
	for _, name := range []string{"github", "shopify-graphql", "aws", "zendesk", "prisjakt"} {
		assert.Equal(t, bare, allocations(vendor(name)), name)
	}
}
