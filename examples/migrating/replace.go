package main

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"net/http"
	"strconv"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/heedhttp/heed"
	"github.com/heedhttp/heed/retryable"
)

func newHTTPClient(logger hclog.Logger) *http.Client {
	return &http.Client{Transport: &heed.Transport{
		Base: signer{http.DefaultTransport},
		Retry: heed.RetryPolicy{
			MaxAttempts:    4, // RetryMax: 3
			Backoff:        heed.EqualJitter(heed.Exponential(2*time.Second, 30*time.Second)),
			AttemptTimeout: 10 * time.Second,
		},
		Trace: retryable.LogTrace(logger),
	}}
}

// A signer signs each attempt, and says which one it is.
type signer struct{ base http.RoundTripper }

func (s signer) RoundTrip(req *http.Request) (*http.Response, error) {
	req = req.Clone(req.Context()) // the original is the caller's
	req.Header.Set("X-Retry-Count", strconv.Itoa(heed.ResendCount(req.Context())))
	req.Header.Set("X-Signature", signature(req))
	return s.base.RoundTrip(req)
}

// signature is a stand-in for that of an API.
func signature(req *http.Request) string {
	mac := hmac.New(sha256.New, []byte("key"))
	mac.Write([]byte(req.Method + req.URL.Path + strconv.FormatInt(time.Now().UnixNano(), 10)))
	return hex.EncodeToString(mac.Sum(nil))
}
