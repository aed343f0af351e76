package heed_test

import (
	"context"
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/heedhttp/heed"
)

func getWith(t *testing.T, fields ...string) *http.Request {
	req := get(t.Context())
	for i := 0; i < len(fields); i += 2 {
		req.Header.Set(fields[i], fields[i+1])
	}
	return req
}

// Requests of one customer share a cool-down; requests of others do not wait.
func TestCoolDownsAreKeyedByCredential(t *testing.T) {
	const auth = "Authorization"
	for name, c := range map[string]struct {
		first, second []string
		shared        bool
	}{
		"bearer":          {[]string{auth, "Bearer a"}, []string{auth, "Bearer b"}, false},
		"the same bearer": {[]string{auth, "Bearer a"}, []string{auth, "bearer a"}, true},
		"basic":           {[]string{auth, "Basic YTpi"}, []string{auth, "Basic Yjph"}, false},
		"token":           {[]string{auth, "token a"}, []string{auth, "token b"}, false},
		"a key alone": {[]string{auth, "lin_api_0123456789abcdef01"},
			[]string{auth, "lin_api_0123456789abcdef02"}, false},
		"X-Api-Key":      {[]string{"X-Api-Key", "a"}, []string{"X-Api-Key", "b"}, false},
		"Private-Token":  {[]string{"Private-Token", "a"}, []string{"Private-Token", "b"}, false},
		"X-Goog-Api-Key": {[]string{"X-Goog-Api-Key", "a"}, []string{"X-Goog-Api-Key", "b"}, false},
		"one and none":   {[]string{"X-Api-Key", "a"}, nil, false},
		"none and one":   {nil, []string{auth, "Bearer a"}, false},
		"none":           {nil, nil, true},
		"a key that changes, signed": {[]string{auth,
			"AWS4-HMAC-SHA256 Credential=AKID/20260101/us-east-1/s3/aws4_request, SignedHeaders=host, Signature=aa"},
			[]string{auth,
				"AWS4-HMAC-SHA256 Credential=AKID/20260102/us-east-1/s3/aws4_request, SignedHeaders=host, Signature=bb"}, true},
		"two accounts that sign": {[]string{auth,
			"AWS4-HMAC-SHA256 Credential=AKID/20260101/us-east-1/s3/aws4_request, Signature=aa"},
			[]string{auth, "AWS4-HMAC-SHA256 Credential=BKID/20260101/us-east-1/s3/aws4_request, Signature=aa"}, false},
		"digest": {[]string{auth, `Digest username="ann", nonce="1", response="x"`},
			[]string{auth, `Digest username="ann", nonce="2", response="y"`}, true},
		"digest of two": {[]string{auth, `Digest username="ann", nonce="1"`},
			[]string{auth, `Digest username="bob", nonce="1"`}, false},
		"OAuth 1.0": {[]string{auth, `OAuth oauth_nonce="1", oauth_token="t", oauth_signature="x"`},
			[]string{auth, `OAuth oauth_nonce="2", oauth_token="t", oauth_signature="y"`}, true},
		"OAuth 1.0 of two": {[]string{auth, `OAuth oauth_nonce="1", oauth_token="t"`},
			[]string{auth, `OAuth oauth_nonce="1", oauth_token="u"`}, false},
		"Hawk": {[]string{auth, `Hawk id="a", ts="1", mac="x"`},
			[]string{auth, `Hawk id="a", ts="2", mac="y"`}, true},
		"SharedKey": {[]string{auth, "SharedKey account:c2ln"}, []string{auth, "SharedKey account:b3Ro"},
			true},
		"SharedKey of two":       {[]string{auth, "SharedKey account:c2ln"}, []string{auth, "SharedKey other:c2ln"}, false},
		"an unknown scheme":      {[]string{auth, "Sign-It 123"}, []string{auth, "Sign-It 456"}, true},
		"a scheme alone":         {[]string{auth, "Negotiate"}, []string{auth, "NTLM"}, true},
		"signed, and no account": {[]string{auth, "Digest response=\"x\""}, []string{auth, "Digest response=\"y\""}, true},
		"a cookie":               {[]string{"Cookie", "s=1"}, []string{"Cookie", "s=2"}, true},
		"a key beside an unknown": {[]string{auth, "Sign-It 1", "X-Api-Key", "a"},
			[]string{auth, "Sign-It 2", "X-Api-Key", "a"}, true},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				tr := &heed.Transport{Base: newScript(throttle("30"), ok), Retry: heed.RetryPolicy{MaxAttempts: 1}}
				assert.Equal(t, 429, status(t, tr, getWith(t, c.first...)))
				start := time.Now()
				assert.Equal(t, 200, status(t, tr, getWith(t, c.second...)))
				assert.Equal(t, c.shared, time.Since(start) >= 30*time.Second)
			})
		})
	}
}

// The limit may be the host's, or only the context may know the customer.
func TestACustomKeyDecidesWhichRequestsWait(t *testing.T) {
	type customer struct{}
	byContext := func(req *http.Request) string {
		name, _ := req.Context().Value(customer{}).(string)
		return heed.ByHost(req) + " " + name
	}
	for name, c := range map[string]struct {
		key    func(*http.Request) string
		shared bool
	}{"of the host": {heed.ByHost, true}, "of the context": {byContext, false}} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				of := func(name string) *http.Request {
					req := getWith(t, "Authorization", "Bearer "+name)
					return req.WithContext(context.WithValue(req.Context(), customer{}, name))
				}
				tr := &heed.Transport{Base: newScript(throttle("30"), ok), Key: c.key, Retry: heed.RetryPolicy{MaxAttempts: 1}}
				assert.Equal(t, 429, status(t, tr, of("a")))
				start := time.Now()
				assert.Equal(t, 200, status(t, tr, of("b")))
				assert.Equal(t, c.shared, time.Since(start) >= 30*time.Second)
			})
		})
	}
}

// One customer has a cool-down of a day.
func TestOneCustomersCoolDownDelaysNoOther(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tr := &heed.Transport{Base: newScript(throttle("86400"), ok)}
		assert.Equal(t, 429, status(t, tr, getWith(t, "Authorization", "Bearer evil")))
		for range 100 {
			start := time.Now()
			assert.Equal(t, 200, status(t, tr, getWith(t, "Authorization", "Bearer good")))
			assert.Zero(t, time.Since(start))
		}
		_, err := tr.RoundTrip(getWith(t, "Authorization", "Bearer evil"))
		assert.ErrorAs(t, err, new(*heed.OverdueError))
		assert.NotContains(t, err.Error(), "evil")
	})
}
