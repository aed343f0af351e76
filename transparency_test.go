package heed_test

import (
	"context"
	"net"
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/heedhttp/heed"
)

func TestTheResponsesRequestIsWhatBaseSent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for name, tr := range map[string]*heed.Transport{
			"plain": {}, "retried": {}, "traced": {Trace: &heed.Trace{}},
			"with a timeout": {Retry: heed.RetryPolicy{AttemptTimeout: time.Second}},
			"marked":         {Retry: heed.RetryPolicy{TellServer: true}},
		} {
			s := newScript(ok)
			if name == "retried" {
				s = newScript(unavailable, ok)
			}
			var signed *http.Request
			tr.Base = roundTripFunc(func(req *http.Request) (*http.Response, error) {
				signed = req.Clone(req.Context())
				signed.Header.Set("Authorization", "Bearer secret")
				resp, err := s.RoundTrip(signed)
				if err == nil {
					resp.Request = signed
				}
				return resp, err
			})
			req := get(t.Context())
			resp := roundTrip(t, tr, req)
			assert.Same(t, signed, resp.Request, name)

			tr.Base = roundTripFunc(func(req *http.Request) (*http.Response, error) {
				resp, err := s.RoundTrip(req)
				resp.Request = req
				return resp, err
			})
			assert.Same(t, req, roundTrip(t, tr, req).Request, "%s: the caller does not see heed's copy", name)
		}
	})
}

// A cache's refusal was the answer to another request.
func TestACachedRefusalHoldsBackNoRequest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, field := range [][]string{{"X-From-Cache", "1"}, {"Age", "7"}, {"Cache-Status", "Near; hit"},
			{"X-Cache", "HIT"}} {
			for _, code := range []int{403, 429} {
				start := time.Now()
				s := newScript(reply{status: code, header: append(field, "Retry-After", "60")}, ok)
				tr := &heed.Transport{Base: s, Retry: heed.RetryPolicy{MaxAttempts: 1}}
				assert.Equal(t, code, status(t, tr, get(t.Context())), field)
				assert.Equal(t, 200, status(t, tr, get(t.Context())))
				assert.Zero(t, time.Since(start))
			}
			s := newScript(reply{status: 403, header: append(field, "Retry-After", "60")}, ok)
			assert.Equal(t, 403, status(t, &heed.Transport{Base: s}, get(t.Context())),
				"the server did not refuse this request")
		}
	})
}

// RFC 9111 section 5.2.1.7.
func TestThe504OfOnlyIfCachedIsFinal(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		req := get(t.Context())
		req.Header.Set("Cache-Control", "max-stale=60, Only-If-Cached")
		s := newScript(reply{status: 504}, ok)
		assert.Equal(t, 504, status(t, &heed.Transport{Base: s}, req))
		assert.Equal(t, 200, status(t, &heed.Transport{Base: newScript(reply{status: 504}, ok)}, get(t.Context())))
	})
}

// CancelRequest cancelled requests before Request.Cancel existed.
func TestCancelRequestPreventsARetry(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dials := 0
		base := &http.Transport{DialContext: func(context.Context, string, string) (net.Conn, error) {
			dials++
			client, server := net.Pipe()
			go func() {
				buf := make([]byte, 4096)
				for {
					if _, err := server.Read(buf); err != nil {
						return
					}
				}
			}()
			return client, nil
		}}
		req := get(t.Context())
		time.AfterFunc(time.Second, func() {
			//lint:ignore SA1019 this test is about it
			base.CancelRequest(req)
		})
		_, err := (&heed.Transport{Base: base}).RoundTrip(req)
		require.ErrorContains(t, err, "request canceled")
		assert.Equal(t, 1, dials)
	})
}
