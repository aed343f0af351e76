package docs_test

import (
	"bufio"
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os/signal"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/heedhttp/heed"
	"github.com/heedhttp/heed/pace"
	"github.com/heedhttp/heed/quota"
	"github.com/heedhttp/heed/testserver"
)

// The recipes of cookbook.md, and tests that they work.

// An explainer tells the server why a request comes again.
type explainer struct{ base http.RoundTripper }

func (e explainer) RoundTrip(req *http.Request) (*http.Response, error) {
	if heed.ResendCount(req.Context()) == 0 {
		return e.base.RoundTrip(req)
	}
	out := req.Clone(req.Context())
	for _, before := range heed.FromContext(req.Context()).Entries {
		out.Header.Add("X-Failed-Before", fmt.Sprintf("%d, then waited %v", before.Status, before.Next))
	}
	return e.base.RoundTrip(out)
}

func TestBaseSeesTheFailureBeforeARetry(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		srv := testserver.New(t, testserver.Step{Status: 503}, testserver.Step{Status: 429, RetryAfter: 7 * time.Second})
		ctx, url := t.Context(), srv.URL
		req, err := http.NewRequestWithContext(heed.WithLedger(ctx), "GET", url, nil)
		require.NoError(t, err)
		transport := &heed.Transport{Base: explainer{srv.Transport()}, Retry: heed.RetryPolicy{
			Backoff: func(heed.Attempt) time.Duration { return time.Second },
		}}
		resp, err := transport.RoundTrip(req)
		require.NoError(t, err)
		resp.Body.Close()
		log := srv.Log()
		require.Len(t, log, 3)
		assert.Empty(t, log[0].Header["X-Failed-Before"])
		assert.Equal(t, []string{"503, then waited 1s"}, log[1].Header["X-Failed-Before"])
		assert.Equal(t, []string{"503, then waited 1s", "429, then waited 7s"}, log[2].Header["X-Failed-Before"])
		assert.Empty(t, req.Header["X-Failed-Before"])
	})
}

// A refusal is what a proxy answered instead of connecting.
type refusal struct {
	status string
	header http.Header
}

func (r *refusal) Error() string { return "the proxy answered " + r.status }

// proxied turns a refusal with a Retry-After into a 429, which says that nothing was done.
type proxied struct{ base *http.Transport }

func (p proxied) RoundTrip(req *http.Request) (*http.Response, error) {
	resp, err := p.base.RoundTrip(req)
	var r *refusal
	if !errors.As(err, &r) || r.header.Get("Retry-After") == "" {
		return resp, err
	}
	return &http.Response{
		Status: "429 Too Many Requests", StatusCode: 429, Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1,
		Header: r.header, Body: http.NoBody, Request: req,
	}, nil
}

func throughProxy(proxy *url.URL) *heed.Transport {
	base := http.DefaultTransport.(*http.Transport).Clone()
	base.Proxy = http.ProxyURL(proxy)
	base.OnProxyConnectResponse = func(_ context.Context, _ *url.URL, _ *http.Request, resp *http.Response) error {
		if resp.StatusCode != 429 && resp.StatusCode < 500 {
			return nil // connected, or a refusal that another attempt would get too
		}
		return &net.OpError{Op: "proxyconnect", Net: "tcp", Err: &refusal{resp.Status, resp.Header}}
	}
	transport := &heed.Transport{Base: proxied{base}}
	return transport
}

func TestAProxysRetryAfterIsObeyed(t *testing.T) {
	for _, method := range []string{"GET", "POST"} {
		for _, c := range []struct {
			status     int
			retryAfter string
			attempts   int
			wait       time.Duration
			want       string // the outcome after the second attempt
		}{
			{429, "1", 2, time.Second, "429 Too Many Requests"},
			{503, "1", 2, time.Second, "429 Too Many Requests"},
			{503, "", 2, 0, "proxyconnect tcp: the proxy answered 503 Service Unavailable"},
			{403, "1", map[string]int{"GET": 2, "POST": 1}[method], 0, "Forbidden"},
		} {
			t.Run(fmt.Sprint(method, c.status, c.retryAfter), func(t *testing.T) {
				t.Parallel()
				var mu sync.Mutex
				var connects []time.Time
				proxy := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
					mu.Lock()
					connects = append(connects, time.Now())
					mu.Unlock()
					assert.Equal(t, "CONNECT", req.Method)
					if c.retryAfter != "" {
						w.Header().Set("Retry-After", c.retryAfter)
					}
					w.WriteHeader(c.status)
				}))
				defer proxy.Close()
				address, err := url.Parse(proxy.URL)
				require.NoError(t, err)
				transport := throughProxy(address)
				transport.Retry = heed.RetryPolicy{MaxAttempts: 2, MaxOutage: -1}
				req, err := http.NewRequestWithContext(t.Context(), method, "https://api.example.com/", nil)
				require.NoError(t, err)
				resp, err := transport.RoundTrip(req)
				if err != nil {
					assert.ErrorContains(t, err, c.want)
				} else {
					resp.Body.Close()
					assert.Equal(t, c.want, resp.Status)
				}
				require.Len(t, connects, c.attempts)
				assert.GreaterOrEqual(t, connects[len(connects)-1].Sub(connects[0]), c.wait)
			})
		}
	}
}

// A signer signs each attempt anew.
type signer struct {
	base   http.RoundTripper
	secret []byte
}

func (s *signer) RoundTrip(req *http.Request) (*http.Response, error) {
	out := req.Clone(req.Context()) // the caller's request must not change
	out.Header.Set("X-Resend-Count", strconv.Itoa(heed.ResendCount(req.Context())))
	out.Header.Set("X-Time", strconv.FormatInt(time.Now().Unix(), 10))
	mac := hmac.New(sha256.New, s.secret)
	mac.Write([]byte(out.Method + " " + out.URL.RequestURI() + " " + out.Header.Get("X-Time")))
	out.Header.Set("X-Signature", hex.EncodeToString(mac.Sum(nil)))
	return s.base.RoundTrip(out)
}

func TestEachAttemptIsSignedAnew(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		srv := testserver.New(t, testserver.Step{Status: 429, RetryAfter: time.Second, Times: 2})
		secret := []byte("secret")
		base := srv.Transport()
		client := &http.Client{Transport: &heed.Transport{Base: &signer{base, secret}}}
		resp, err := client.Get(srv.URL)
		require.NoError(t, err)
		resp.Body.Close()
		signatures := map[string]bool{}
		for i, e := range srv.Log() {
			assert.Equal(t, strconv.Itoa(i), e.Header.Get("X-Resend-Count"))
			signatures[e.Header.Get("X-Signature")] = true
		}
		assert.Len(t, signatures, 3)
	})
}

func freeIfConditional() *pace.Advertised {
	return &pace.Advertised{
		Cost: func(req *http.Request, unit string) int64 {
			if req.Header.Get("If-None-Match") != "" {
				return 0 // GitHub does not count a 304
			}
			return pace.Cost(req, unit)
		},
	}
}

func TestAConditionalRequestIsNotHeldBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		spent := http.Header{
			"Etag": {`"v1"`}, "X-Ratelimit-Limit": {"60"}, "X-Ratelimit-Remaining": {"0"}, "X-Ratelimit-Reset": {"600"},
		}
		srv := testserver.New(t, testserver.Step{Header: spent}, testserver.Step{Status: 304, Header: spent})
		transport := &heed.Transport{Base: srv.Transport(), Pacer: freeIfConditional()}
		status, err := get(t.Context(), t, transport, srv.URL)
		require.NoError(t, err)
		require.Equal(t, 200, status)
		_, err = get(t.Context(), t, transport, srv.URL)
		require.ErrorAs(t, err, new(*heed.OverdueError), "any other request waits for ten minutes")

		req, err := http.NewRequestWithContext(t.Context(), "GET", srv.URL, nil)
		require.NoError(t, err)
		req.Header.Set("If-None-Match", `"v1"`)
		start := time.Now()
		resp, err := (&http.Client{Transport: transport}).Do(req)
		require.NoError(t, err)
		resp.Body.Close()
		assert.Equal(t, 304, resp.StatusCode)
		assert.Zero(t, time.Since(start))
	})
}

func tokenPacer(store quota.Reserver) (pacer heed.Pacer, tokens *pace.Shared) {
	requests := &pace.Shared{
		Store:    store,
		Policies: []quota.Policy{{Name: "requests", Quota: 500, Window: time.Minute, Burst: 1}},
	}
	tokens = &pace.Shared{
		Store:    store,
		Policies: []quota.Policy{{Name: "tokens", Quota: 200_000, Window: time.Minute, Burst: 20_000}},
		Unit:     "tokens",
	}
	return pace.Each(requests, tokens), tokens
}

// complete sends a prompt that may use most tokens, and corrects that by what the stream's last
// event says.
func complete(ctx context.Context, client *http.Client, tokens *pace.Shared, url, prompt string, most int64) error {
	ctx = pace.WithCost(ctx, "tokens", most)
	req, err := http.NewRequestWithContext(ctx, "POST", url, strings.NewReader(prompt))
	if err != nil {
		return err
	}
	resp, err := client.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	lines := bufio.NewScanner(resp.Body)
	for lines.Scan() {
		data, _ := strings.CutPrefix(lines.Text(), "data: ")
		var event struct {
			Usage struct {
				TotalTokens int64 `json:"total_tokens"`
			}
		}
		if json.Unmarshal([]byte(data), &event) == nil && event.Usage.TotalTokens > 0 {
			tokens.Correct(req, event.Usage.TotalTokens-most)
		}
	}
	return lines.Err()
}

func TestStreamedUsageCorrectsWhatWasTaken(t *testing.T) {
	const stream = "data: {\"choices\": []}\n\ndata: {\"usage\": {\"total_tokens\": 1500}}\n\ndata: [DONE]\n\n"
	synctest.Test(t, func(t *testing.T) {
		srv := testserver.New(t, testserver.Step{Body: stream, Times: 10})
		pacer, tokens := tokenPacer(new(quota.Memory))
		client := &http.Client{Transport: &heed.Transport{Base: srv.Transport(), Pacer: pacer}}
		start := time.Now()
		for range 10 { // each may use the whole burst, and uses 1,500 of it
			require.NoError(t, complete(t.Context(), client, tokens, srv.URL, "hello", 20_000))
		}
		assert.InDelta(t, 9*(1500/(200_000.0/60)), time.Since(start).Seconds(), 0.5)
	})
}

// worker does jobs until it is told to stop. The server has not acted on those that it returns in
// again; on those in unknown it may have.
func worker(ctx context.Context, client *http.Client, jobs <-chan string) (again, unknown []string) {
	for url := range jobs {
		req, err := http.NewRequestWithContext(ctx, "POST", url, nil)
		if err != nil {
			unknown = append(unknown, url)
			continue
		}
		resp, err := client.Do(req)
		if err == nil {
			resp.Body.Close()
		}
		switch {
		case err == nil && resp.StatusCode < 300: // done
		case errors.Is(err, heed.ErrNotSent), err == nil && resp.StatusCode == http.StatusTooManyRequests:
			again = append(again, url)
		default:
			unknown = append(unknown, url)
		}
	}
	return again, unknown
}

func TestWorkersThatStopLoseNoJob(t *testing.T) {
	stop, cancel := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer cancel()
	ctx := heed.WithDrain(context.Background(), stop)

	refused := testserver.Step{Status: 429, RetryAfter: time.Hour}
	srv := testserver.NewTCP(t, testserver.Step{}, testserver.Step{Status: 503}, refused)
	client := &http.Client{Transport: &heed.Transport{Retry: heed.RetryPolicy{MaxWait: 2 * time.Hour, MaxElapsed: -1}}}
	jobs := make(chan string, 9)
	for i := range cap(jobs) {
		jobs <- fmt.Sprintf("%s/%d", srv.URL, i)
	}
	close(jobs)
	var mu sync.Mutex
	var again, unknown []string
	var workers sync.WaitGroup
	for range 3 {
		workers.Go(func() {
			a, u := worker(ctx, client, jobs)
			mu.Lock()
			defer mu.Unlock()
			again, unknown = append(again, a...), append(unknown, u...)
		})
	}
	for len(srv.Log()) < 3 {
		time.Sleep(time.Millisecond)
	}
	require.NoError(t, syscall.Kill(syscall.Getpid(), syscall.SIGTERM))
	workers.Wait()
	done := 0
	for _, e := range srv.Log() {
		if e.Status == 200 {
			done++
		}
	}
	assert.Len(t, unknown, 1, "the server answered 503")
	assert.Equal(t, cap(jobs), done+len(again)+len(unknown))
}

func TestOrdersAreSentAgainWhenTheServerIsBusy(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		srv := testserver.New(t, testserver.Step{Status: 429, RetryAfter: time.Minute})
		client := &http.Client{Transport: &heed.Transport{Base: srv.Transport()}} // or your own client
		start := time.Now()
		resp, err := client.Post(srv.URL+"/orders", "application/json", strings.NewReader(`{}`))
		require.NoError(t, err)
		resp.Body.Close()
		assert.Equal(t, 200, resp.StatusCode)
		assert.GreaterOrEqual(t, time.Since(start), time.Minute) // which takes a millisecond
		srv.Check(t)                                             // the client kept to the contract
	})
}

// Retries of one request only: it is urgent, and everything else in the policy stays.
func TestOneRequestHasAPolicyOfItsOwn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		srv := testserver.New(t, testserver.Step{Status: 503})
		ctx := t.Context()
		ctx = heed.WithRetryFunc(ctx, func(p heed.RetryPolicy) heed.RetryPolicy {
			p.MaxAttempts = 1
			return p
		})
		status, err := get(ctx, t, &heed.Transport{Base: srv.Transport()}, srv.URL)
		require.NoError(t, err)
		assert.Equal(t, 503, status)
	})
}
