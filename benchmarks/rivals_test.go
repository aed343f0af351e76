package benchmarks_test

import (
	"io"
	"net/http"
	"testing"
	"time"

	"github.com/PuerkitoBio/rehttp"
	"github.com/failsafe-go/failsafe-go/failsafehttp"
	"github.com/gojek/heimdall/v7"
	"github.com/gojek/heimdall/v7/httpclient"
	"github.com/hashicorp/go-retryablehttp"

	"github.com/heedhttp/heed"
	"github.com/heedhttp/heed/internal/lab"
)

// A rival is a library that retries, with its default settings, but four attempts and no pause.
type rival struct {
	name string
	over func(base http.RoundTripper) http.RoundTripper
}

// make is a lab.Maker. Rivals draw their own jitter.
func (r rival) make(base http.RoundTripper, _ *lab.Random) http.RoundTripper { return r.over(base) }

// bare uses no library.
var bare = rival{"bare", func(base http.RoundTripper) http.RoundTripper { return base }}

// ours is heed with its default settings: cool-downs and the budget are on.
var ours = rival{"heed", func(base http.RoundTripper) http.RoundTripper { return &heed.Transport{Base: base} }}

// insistent is heed without a pause and without a budget, like its rivals.
var insistent = rival{"heed", func(base http.RoundTripper) http.RoundTripper {
	return &heed.Transport{
		Base:   base,
		Budget: heed.Unlimited,
		Retry:  heed.RetryPolicy{Backoff: func(heed.Attempt) time.Duration { return 0 }},
	}
}}

var rivals = []rival{
	{"rehttp", overRehttp(rehttp.ConstDelay(0))},
	{"retryablehttp", overRetryablehttp(0, 0)},
	{"failsafe", overFailsafe(0, 0)},
}

func overRehttp(delay rehttp.DelayFn) func(http.RoundTripper) http.RoundTripper {
	retry := rehttp.RetryAll(rehttp.RetryMaxRetries(3), rehttp.RetryStatusInterval(500, 600))
	return func(base http.RoundTripper) http.RoundTripper { return rehttp.NewTransport(base, retry, delay) }
}

func overRetryablehttp(least, most time.Duration) func(http.RoundTripper) http.RoundTripper {
	return func(base http.RoundTripper) http.RoundTripper {
		c := retryablehttp.NewClient()
		c.Logger = nil
		c.HTTPClient = &http.Client{Transport: base}
		c.RetryMax, c.RetryWaitMin, c.RetryWaitMax = 3, least, most
		return &retryablehttp.RoundTripper{Client: c}
	}
}

func overFailsafe(least, most time.Duration) func(http.RoundTripper) http.RoundTripper {
	return func(base http.RoundTripper) http.RoundTripper {
		policy := failsafehttp.NewRetryPolicyBuilder().WithMaxRetries(3)
		if most > 0 {
			policy = policy.WithBackoff(least, most)
		}
		return failsafehttp.NewRoundTripper(base, policy.Build())
	}
}

// heimdallOver uses heimdall, which is a client and not a RoundTripper.
func heimdallOver(base http.RoundTripper) doer {
	return httpclient.NewClient(
		httpclient.WithHTTPClient(&http.Client{Transport: base}),
		httpclient.WithRetryCount(3),
		httpclient.WithRetrier(heimdall.NewNoRetrier()),
	)
}

// A doer sends requests, as an http.Client does.
type doer interface {
	Do(*http.Request) (*http.Response, error)
}

// A tripper is a RoundTripper as a doer.
type tripper struct{ http.RoundTripper }

func (t tripper) Do(req *http.Request) (*http.Response, error) { return t.RoundTrip(req) }

// each runs bench once for each library.
func each(b *testing.B, all []rival, bench func(b *testing.B, r rival)) {
	for _, r := range all {
		b.Run(r.name, func(b *testing.B) {
			b.ReportAllocs()
			bench(b, r)
		})
	}
}

// An answer is a base without a network. It reads the body of the request and answers 200, with a
// new response each time, as net/http does.
type answer struct{}

func (answer) RoundTrip(req *http.Request) (*http.Response, error) {
	if req.Body != nil {
		if _, err := io.Copy(io.Discard, req.Body); err != nil {
			return nil, err
		}
		req.Body.Close()
	}
	return &http.Response{
		StatusCode: http.StatusOK, ProtoMajor: 1, ProtoMinor: 1,
		Header: okHeader, Body: http.NoBody, Request: req,
	}, nil
}

var okHeader = http.Header{}

func request(tb testing.TB, method, url string, body io.Reader) *http.Request {
	tb.Helper()
	req, err := http.NewRequest(method, url, body)
	if err != nil {
		tb.Fatal(err)
	}
	return req
}

const url = "https://api.example.com/v1/things"
