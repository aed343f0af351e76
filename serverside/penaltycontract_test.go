package serverside_test

import (
	"net/http"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/heedhttp/heed/contract"
	"github.com/heedhttp/heed/serverside"
	"github.com/heedhttp/heed/testserver"
)

func TestPenaltyDenialKeepsTheContract(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		limiter := must(t, serverside.Config{Audit: silent, Rules: logins()})
		srv := testserver.NewLimited(t, func(http.Handler) http.Handler {
			return limiter.Wrap(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(401) }))
		})
		for _, want := range []int{401, 401, 401, 401, 401, 429} {
			r, err := http.NewRequestWithContext(t.Context(), "POST", srv.URL+"/login", strings.NewReader("user=ann"))
			require.NoError(t, err)
			r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
			resp, err := srv.Transport().RoundTrip(r)
			require.NoError(t, err)
			require.NoError(t, resp.Body.Close())
			require.Equal(t, want, resp.StatusCode)
		}
		assert.NoError(t, contract.Check(srv.Log(), contract.Server()...))
	})
}
