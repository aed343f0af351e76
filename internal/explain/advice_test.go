package explain

import (
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/heedhttp/heed"
	"github.com/heedhttp/heed/ratelimit"
)

// A client needs exactly the advised policy.
func TestAdvisedPolicyObeysTheResponse(t *testing.T) {
	for _, c := range []struct {
		status  int
		header  http.Header
		advised []string
		policy  heed.RetryPolicy // the same as a value
		without int              // requests of a client without a policy
	}{
		{429, http.Header{"Retry-After": {"60"}}, nil, heed.RetryPolicy{}, 2},
		{429, http.Header{"Retry-After": {"120"}}, []string{"MaxWait: 2 * time.Minute"},
			heed.RetryPolicy{MaxWait: 2 * time.Minute}, 1},
		{503, http.Header{"Retry-After": {"295"}}, []string{"MaxWait: 5 * time.Minute", "MaxElapsed: 10 * time.Minute"},
			heed.RetryPolicy{MaxWait: 5 * time.Minute, MaxElapsed: 10 * time.Minute}, 1},
		{429, http.Header{"Retry-After": {"3600"}}, []string{"MaxWait: time.Hour", "MaxElapsed: 2 * time.Hour"},
			heed.RetryPolicy{MaxWait: time.Hour, MaxElapsed: 2 * time.Hour}, 1},
		{403, http.Header{"X-Ratelimit-Remaining": {"0"}, "Retry-After": {"7"}}, nil, heed.RetryPolicy{}, 2},
		{403, http.Header{"X-Ratelimit-Remaining": {"0"}, "Retry-After": {"90"}},
			[]string{"MaxWait: 2 * time.Minute"}, heed.RetryPolicy{MaxWait: 2 * time.Minute}, 1},
	} {
		wait, _ := ratelimit.Wait(c.status, c.header, time.Now())
		fields, _ := policyFor(c.status, c.header, wait)
		assert.Equal(t, c.advised, fields)
		assert.Equal(t, 2, requests(t, c.status, c.header, c.policy), "%v", c.header)
		assert.Equal(t, c.without, requests(t, c.status, c.header, heed.RetryPolicy{}), "%v", c.header)
	}
}

// requests returns how many requests a client sends to GitHub if the first gets this response.
func requests(t *testing.T, status int, header http.Header, policy heed.RetryPolicy) (sent int) {
	synctest.Test(t, func(t *testing.T) {
		base := roundTripper(func(r *http.Request) (*http.Response, error) {
			sent++
			resp := &http.Response{StatusCode: 200, Header: http.Header{}, Body: http.NoBody, Request: r}
			if sent == 1 {
				resp.StatusCode, resp.Header = status, header.Clone()
			}
			return resp, nil
		})
		client := &http.Client{Transport: &heed.Transport{Base: base, Retry: policy}}
		resp, err := client.Get("https://api.github.com/")
		require.NoError(t, err)
		require.NoError(t, resp.Body.Close())
	})
	return sent
}

type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }
