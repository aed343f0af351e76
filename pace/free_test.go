package pace_test

import (
	"net/http"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/heedhttp/heed"
	"github.com/heedhttp/heed/pace"
)

func TestOnlyARequestThatTakesNothingIsNeverHeldBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cost := map[string]int64{"": 1, "tokens": 1}
		pacer := &pace.Advertised{Cost: func(_ *http.Request, unit string) int64 { return cost[unit] }}
		req, err := http.NewRequestWithContext(t.Context(), "GET", "http://api.example.com/v1", nil)
		require.NoError(t, err)
		spent := http.Header{}
		for _, unit := range []string{"Requests", "Tokens"} {
			spent.Set("X-Ratelimit-Limit-"+unit, "60")
			spent.Set("X-Ratelimit-Remaining-"+unit, "0")
			spent.Set("X-Ratelimit-Reset-"+unit, "600s")
		}
		observe := func() {
			pacer.Observe(heed.Attempt{Number: 1, Request: req, Response: &http.Response{StatusCode: 200, Header: spent}})
		}
		require.NoError(t, pacer.WaitAtMost(req, 0))
		observe()
		for _, c := range []struct {
			requests, tokens int64
			free             bool
		}{{1, 1, false}, {0, 1, false}, {1, 0, false}, {0, 0, true}, {-1, -1, true}} {
			cost[""], cost["tokens"] = c.requests, c.tokens
			err := pacer.WaitAtMost(req, 0)
			if !c.free {
				assert.ErrorAs(t, err, new(*heed.OverdueError), "%+v", c)
				continue
			}
			assert.NoError(t, err, "%+v", c)
			observe()
		}
	})
}
