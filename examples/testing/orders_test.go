package orders_test

import (
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"github.com/heedhttp/heed"
	orders "github.com/heedhttp/heed/examples/testing"
	"github.com/heedhttp/heed/testserver"
	"github.com/stretchr/testify/require"
)

func TestAnOrderWaitsAsLongAsTheServerAsks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		srv := testserver.New(t, testserver.Step{Status: 429, RetryAfter: time.Minute})
		transport := &heed.Transport{Base: srv.Transport()}
		client := &orders.Client{URL: srv.URL, HTTP: &http.Client{Transport: transport}}
		require.NoError(t, client.Place("7", "a bicycle"))
		srv.Check(t) // not too early, the same body and key each time, and the rest of the contract
	})
}
