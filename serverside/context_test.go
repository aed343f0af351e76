package serverside_test

import (
	"net/http"
	"strconv"
	"sync"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/heedhttp/heed/quota"
	"github.com/heedhttp/heed/serverside"
)

func TestFromContextAgreesWithTheHeader(t *testing.T) {
	h := must(t, serverside.Config{Rules: oneRule(quota.PerDay(1000)), InContext: true, Audit: silent}).Wrap(
		http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			var group sync.WaitGroup
			for range 4 {
				group.Go(func() {
					d, ok := serverside.FromContext(r.Context())
					assert.True(t, ok)
					assert.Equal(t, w.Header().Get("X-RateLimit-Remaining"), strconv.FormatInt(d.Remaining, 10))
					assert.Equal(t, serverside.Decision{Verdict: serverside.Admitted, Rule: "api", Policy: "api", Quota: 1000,
						Remaining: d.Remaining, ResetAt: d.ResetAt}, d)
				})
			}
			group.Wait()
		}))
	var group sync.WaitGroup
	for range 50 {
		group.Go(func() { assert.Equal(t, 200, ask(h, "GET", "/").Code) })
	}
	group.Wait()
}

func TestDecisionIsDegradedWhileTheStoreFails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for mode, want := range map[serverside.FailureMode]serverside.Decision{
			serverside.FailOpen: {Verdict: serverside.Uncounted, Rule: "api", Policy: "api", Degraded: true},
			serverside.FailLocal: {
				Verdict: serverside.Admitted, Rule: "api", Policy: "api", Quota: 10, Remaining: 9, Degraded: true,
			},
		} {
			var got serverside.Decision
			h := must(t, serverside.Config{
				Rules: oneRule(quota.PerDay(10)), InContext: true, Audit: silent, Store: store(down), OnStoreError: mode,
			}).Wrap(
				http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { got, _ = serverside.FromContext(r.Context()) }))
			w := ask(h, "GET", "/")
			got.ResetAt = want.ResetAt
			assert.Equal(t, want, got)
			assert.Equal(t, mode == serverside.FailOpen, len(limitFields(w.Header())) == 0)
		}
	})
}

func TestFromContextFindsNothingWithoutADecision(t *testing.T) {
	for name, cfg := range map[string]serverside.Config{
		"not asked for": {Rules: oneRule(quota.PerDay(10))},
		"no rule":       {Rules: []serverside.Rule{perHour("api", "/v1/", 1)}, InContext: true},
		"exempt":        {Rules: oneRule(quota.PerDay(10)), InContext: true, Exempt: []string{"/health"}},
		"a dry run": {
			Rules: []serverside.Rule{{DryRun: true, Policies: []quota.Policy{quota.PerDay(10)}}}, InContext: true,
		},
	} {
		found := true
		h := must(t, cfg).Wrap(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
			_, found = serverside.FromContext(r.Context())
		}))
		ask(h, "GET", "/health")
		assert.False(t, found, name)
	}
}

func TestOuterHandlerSeesThePatternWithADecisionToo(t *testing.T) {
	mux := http.NewServeMux()
	mux.Handle("GET /things/{id}", new(ok))
	r := request("GET", "/things/7", "192.0.2.1:1")
	require.Equal(t, 200,
		serve(must(t, serverside.Config{Rules: oneRule(quota.PerDay(10)), InContext: true}).Wrap(mux), r).Code)
	assert.Equal(t, "GET /things/{id}", r.Pattern)
}
