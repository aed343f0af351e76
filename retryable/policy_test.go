package retryable_test

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"io"
	"math"
	"net/http"
	"net/url"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hashicorp/go-retryablehttp"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/heedhttp/heed"
	"github.com/heedhttp/heed/retryable"
	"github.com/heedhttp/heed/testserver"
)

func get(t testing.TB, ctx context.Context) *http.Request {
	t.Helper()
	req, err := http.NewRequestWithContext(ctx, "GET", "http://user:s3cret@api.example.com/things", nil)
	require.NoError(t, err)
	return req
}

func TestIfSaysWhatTheirPoliciesSay(t *testing.T) {
	cancelled, cancel := context.WithCancel(t.Context())
	cancel()
	for name, c := range map[string]struct {
		ctx    context.Context
		status int
		err    error
		want   bool
	}{
		"200":                 {status: 200},
		"404":                 {status: 404},
		"429":                 {status: 429, want: true},
		"500":                 {status: 500, want: true},
		"501":                 {status: 501},
		"a status of theirs":  {status: 999, want: true},
		"a broken connection": {err: io.ErrUnexpectedEOF, want: true},
		"a certificate":       {err: &tls.CertificateVerificationError{Err: x509.UnknownAuthorityError{}}},
		"a scheme":            {err: errors.New(`unsupported protocol scheme "ftp"`)},
		"a header":            {err: errors.New(`net/http: invalid header field name "\x1b"`)},
		"wrapped already":     {err: &url.Error{Op: "Get", Err: errors.New("unsupported protocol scheme")}},
		"too many redirects":  {err: errors.New("stopped after 10 redirects")},
		"cancelled":           {ctx: cancelled, status: 503},
		"neither":             {}, // which makes the policies panic
	} {
		t.Run(name, func(t *testing.T) {
			if c.ctx == nil {
				c.ctx = t.Context()
			}
			req := get(t, c.ctx)
			a := heed.Attempt{Number: 1, Request: req, Response: answer(req, c.status), Err: c.err}
			assert.Equal(t, c.want, retryable.If(retryablehttp.DefaultRetryPolicy)(a), "DefaultRetryPolicy")
			assert.Equal(t, c.want, retryable.If(retryablehttp.ErrorPropagatedRetryPolicy)(a), "ErrorPropagatedRetryPolicy")
		})
	}
}

func TestIfGivesThePolicyWhatItIsUsedTo(t *testing.T) {
	type key struct{}
	req := get(t, context.WithValue(t.Context(), key{}, "the request's"))
	asked := 0
	check := retryable.If(func(ctx context.Context, resp *http.Response, err error) (bool, error) {
		asked++
		assert.Equal(t, "the request's", ctx.Value(key{}))
		assert.Nil(t, resp)
		var at *url.Error
		require.ErrorAs(t, err, &at)
		assert.Same(t, io.EOF, at.Err)
		assert.NotContains(t, err.Error(), "s3cret")
		return true, nil
	})
	assert.True(t, check(heed.Attempt{Request: req, Err: io.EOF}))
	assert.Equal(t, 1, asked)
}

func TestIfAcceptsAnAttemptWithoutARequest(t *testing.T) {
	check := retryable.If(retryablehttp.DefaultRetryPolicy)
	assert.True(t, check(heed.Attempt{Err: io.EOF}))
	assert.True(t, check(heed.Attempt{Err: io.EOF, Request: &http.Request{}}))
	assert.False(t, check(heed.Attempt{}))
}

func TestIfDropsTheErrorOfACheckRetry(t *testing.T) {
	for _, again := range []bool{true, false} {
		synctest.Test(t, func(t *testing.T) {
			srv := testserver.New(t, testserver.Step{Status: 503, Body: "busy", Times: -1})
			c := &http.Client{Transport: &heed.Transport{Budget: heed.Unlimited, Base: srv.Transport(), Retry: heed.RetryPolicy{
				If: retryable.If(func(context.Context, *http.Response, error) (bool, error) {
					return again, errors.New("unexpected status")
				}),
			}}}
			resp, err := c.Get(srv.URL)
			status, body := content(t, resp, err)
			assert.Equal(t, 503, status)
			assert.Equal(t, "busy", body)
			assert.Len(t, srv.Log(), map[bool]int{true: 4, false: 1}[again])
		})
	}
}

func TestNilsLeaveTheDecisionToHeed(t *testing.T) {
	assert.Nil(t, retryable.If(nil))
	assert.Nil(t, retryable.Backoff(nil, time.Second, time.Minute))
}

func TestBackoffIsTheirsWithoutRetryAfter(t *testing.T) {
	const least, most = time.Second, 30 * time.Second
	b := retryable.Backoff(retryablehttp.DefaultBackoff, least, most)
	for _, c := range []struct {
		after int // which attempt
		want  time.Duration
	}{
		{1, 1 * time.Second},
		{2, 2 * time.Second},
		{3, 4 * time.Second},
		{5, 16 * time.Second},
		{6, most},
		{64, most},
		{65, most},
		{math.MaxInt, most},
	} {
		assert.Equal(t, c.want, b(heed.Attempt{Number: c.after, Err: io.EOF}), "after attempt %d", c.after)
		for _, value := range []string{
			"5", "0", "-5", "soon",
			"9223372037", "18446744074", "99999999999999999999",
			"Fri, 31 Dec 1999 23:59:59 GMT", "Fri, 31 Dec 9999 23:59:59 GMT",
		} {
			resp := answer(nil, 429)
			resp.Header.Set("Retry-After", value)
			assert.Equal(t, c.want, b(heed.Attempt{Number: c.after, Response: resp}), "%s after attempt %d", value, c.after)
		}
	}
}

func TestLinearBackoffGrowsByTheAttempt(t *testing.T) {
	for _, theirs := range []retryablehttp.Backoff{
		retryablehttp.LinearJitterBackoff, retryablehttp.RateLimitLinearJitterBackoff,
	} {
		b := retryable.Backoff(theirs, 800*time.Millisecond, 1200*time.Millisecond)
		for n := 1; n <= 10; n++ {
			resp := answer(nil, 503)
			resp.Header.Set("Retry-After", "9223372037")
			wait := b(heed.Attempt{Number: n, Response: resp})
			assert.GreaterOrEqual(t, wait, time.Duration(n)*800*time.Millisecond)
			assert.Less(t, wait, time.Duration(n)*1200*time.Millisecond)
		}
	}
}

func TestABackoffThatOverflowsWaitsLongest(t *testing.T) {
	b := retryable.Backoff(func(min, _ time.Duration, n int, _ *http.Response) time.Duration {
		return min * (1 << n)
	}, 3*time.Second, time.Minute)
	assert.Equal(t, 6*time.Second, b(heed.Attempt{Number: 2}))
	assert.Equal(t, time.Minute, b(heed.Attempt{Number: 33}))

	linear := retryable.Backoff(retryablehttp.LinearJitterBackoff, math.MaxInt64/2, math.MaxInt64/2)
	assert.EqualValues(t, math.MaxInt64/2, linear(heed.Attempt{Number: 3}))
}

func TestACustomBackoffSeesTheResponse(t *testing.T) {
	resp := answer(nil, 403)
	resp.Header.Set("Retry-After", "5")
	resp.Header.Set("X-Reset-In", "7")
	body := &tracked{}
	resp.Body = body
	b := retryable.Backoff(func(_, _ time.Duration, _ int, seen *http.Response) time.Duration {
		assert.Equal(t, 403, seen.StatusCode)
		assert.Equal(t, http.Header{"X-Reset-In": {"7"}}, seen.Header)
		seen.Header.Set("X-Reset-In", "8")
		_, err := io.ReadAll(seen.Body) // would panic if it were the response's own
		assert.NoError(t, err)
		return 7 * time.Second
	}, 0, 0)
	assert.Equal(t, 7*time.Second, b(heed.Attempt{Number: 1, Response: resp}))
	assert.Equal(t, http.Header{"Retry-After": {"5"}, "X-Reset-In": {"7"}}, resp.Header, "the response is not touched")
	assert.Same(t, body, resp.Body)
}

func TestAHintIsAFloorForTheirPoliciesToo(t *testing.T) {
	for _, c := range []struct {
		value    string
		low, top time.Duration
		want     []int
	}{
		{"20", 20 * time.Second, 26 * time.Second, []int{429, 200}},
		{"0", 2 * time.Second, 2 * time.Second, []int{429, 200}}, // theirs retries at once
		{"Fri, 31 Dec 1999 23:59:59 GMT", 2 * time.Second, 2 * time.Second, []int{429, 200}},
		{"9223372037", 0, 0, []int{429}}, // theirs retries at once
		{"99999999999999999999", 0, 0, []int{429}},
	} {
		t.Run(c.value, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				srv := testserver.New(t, hinting(429, "Retry-After", c.value))
				rc := client(srv.Transport())
				retryable.Install(rc, &heed.Transport{Budget: heed.Unlimited, Retry: heed.RetryPolicy{
					If:      retryable.If(rc.CheckRetry),
					Backoff: retryable.Backoff(rc.Backoff, 2*time.Second, 30*time.Second),
				}})
				d := took(func() {
					resp, err := rc.Get(srv.URL)
					content(t, resp, err)
				})
				assert.Equal(t, c.want, statuses(srv))
				assert.GreaterOrEqual(t, d, c.low)
				assert.LessOrEqual(t, d, c.top)
				srv.Check(t)
			})
		})
	}
}

func TestWithCheckRetryAsTheIfAPostIsRepeated(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := inTurn(503, 200)
		c := client(b)
		retryable.Install(c, &heed.Transport{
			Budget: heed.Unlimited,
			Retry:  heed.RetryPolicy{If: retryable.If(c.CheckRetry)},
		})
		resp, err := c.Post("http://api.example.com", "text/plain", []byte("pay"))
		status, _ := content(t, resp, err)
		assert.Equal(t, 200, status)
		assert.Equal(t, []arrival{{3, "pay"}, {3, "pay"}}, b.seen)
	})
}

// Errors that go-retryablehttp does not retry, heed does not retry either.
func TestErrorsThatAreFinalToThemAreFinalToHeed(t *testing.T) {
	for _, err := range []error{
		errors.New(`unsupported protocol scheme "ftp"`),
		errors.New(`net/http: invalid header field name "\x1b"`),
		errors.New("tls: certificate is not trusted"),
		&tls.CertificateVerificationError{Err: x509.UnknownAuthorityError{}},
		x509.UnknownAuthorityError{},
		x509.HostnameError{Host: "api.example.com", Certificate: new(x509.Certificate)},
		x509.CertificateInvalidError{Cert: new(x509.Certificate)},
		io.ErrUnexpectedEOF, io.EOF, errors.New("http: server closed idle connection"),
	} {
		theirs, _ := retryablehttp.DefaultRetryPolicy(t.Context(), nil, &url.Error{Op: "Get", Err: err})
		ours := heed.Worthwhile(heed.Attempt{Request: get(t, t.Context()), Err: err})
		assert.True(t, theirs || !ours, "%v", err)
	}
}
