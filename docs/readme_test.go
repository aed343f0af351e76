package docs_test

import (
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/heedhttp/heed"
	"github.com/heedhttp/heed/pace"
	"github.com/heedhttp/heed/testserver"
)

// The recipes of the README that are on no other page.

func TestGitHubsPrimaryLimitIsWaitedFor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		client := &http.Client{Transport: &heed.Transport{
			Retry: heed.RetryPolicy{
				MaxWait:    90 * time.Minute, // GitHub counts by the hour
				MaxElapsed: 3 * time.Hour,
			},
			Pacer: &pace.Advertised{}, // slows down before the quota is used up
		}}
		github := testserver.GitHub(t, testserver.VendorLimit{Name: "core", Quota: 10, Window: time.Hour})
		client.Transport.(*heed.Transport).Base = testserver.NewLimited(t, github.Wrap).Transport()
		for range 12 { // two more than the limit
			resp, err := client.Get("https://api.github.com/user")
			require.NoError(t, err)
			resp.Body.Close()
			assert.Equal(t, 200, resp.StatusCode)
		}
	})
}

func TestPacersForServersThatGiveNoHint(t *testing.T) {
	known := &http.Client{Transport: &heed.Transport{Pacer: pace.PerHost(10, 1)}} // 10 a second
	unknown := &http.Client{Transport: &heed.Transport{Pacer: &pace.Adaptive{}}}
	for _, client := range []*http.Client{known, unknown} {
		synctest.Test(t, func(t *testing.T) {
			srv := testserver.New(t)
			client.Transport.(*heed.Transport).Base = srv.Transport()
			start := time.Now()
			for range 11 {
				status, err := get(t.Context(), t, client.Transport, srv.URL)
				require.NoError(t, err)
				require.Equal(t, 200, status)
			}
			assert.Positive(t, time.Since(start))
			assert.LessOrEqual(t, time.Since(start), time.Second)
		})
	}
}
