package docs_test

import (
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/heedhttp/heed"
	"github.com/heedhttp/heed/contract"
	"github.com/heedhttp/heed/quota"
	"github.com/heedhttp/heed/serverside"
	"github.com/heedhttp/heed/testserver"
)

// The tests that contract.md shows.

func TestMyClient(t *testing.T) {
	synctest.Test(t, func(t *testing.T) { // in which the minute takes no time
		srv := testserver.New(t, testserver.Step{Status: 429, RetryAfter: time.Minute})
		client := &http.Client{Transport: &heed.Transport{Base: srv.Transport()}} // or your own
		resp, err := client.Get("https://api.example.com/orders")
		require.NoError(t, err)
		require.NoError(t, resp.Body.Close())
		srv.Check(t)
	})
}

func TestMyServer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		limiter, err := serverside.New(serverside.Config{ // or your own middleware
			Rules: []serverside.Rule{{Policies: []quota.Policy{quota.PerMinute(2)}}},
		})
		require.NoError(t, err)
		srv := testserver.NewLimited(t, limiter.Wrap)
		client := &http.Client{Transport: &heed.Transport{Base: srv.Transport()}}
		for range 5 { // three more than the limit
			resp, err := client.Get(srv.URL)
			require.NoError(t, err)
			require.NoError(t, resp.Body.Close())
		}
		srv.Check(t) // the server, and the client too
	})
}

func TestMyClientBehindNginx(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		srv := testserver.New(t, testserver.Step{Status: 503})
		transport := forNginx() // takes a 503 for a limit, and so repeats a POST
		transport.Base = srv.Transport()
		client := &http.Client{Transport: transport}
		resp, err := client.Post("https://api.internal.example/orders", "application/json", strings.NewReader(`{}`))
		require.NoError(t, err)
		require.NoError(t, resp.Body.Close())
		srv.Check(t, contract.Except("client/idempotent"))

		err = contract.Check(srv.Log(), contract.Select(contract.Client(), contract.MustOnly, contract.IETFOnly)...)
		require.ErrorContains(t, err, "client/idempotent")
	})
}
