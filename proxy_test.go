package heed_test

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/heedhttp/heed"
)

// throughProxy returns a Base that reaches an HTTPS server through a proxy, which answers the first
// CONNECTs with status.
func throughProxy(t *testing.T, status int, refusals int64) (
	base *http.Transport, origin string, connects, served *atomic.Int64,
) {
	connects, served = new(atomic.Int64), new(atomic.Int64)
	server := httptest.NewTLSServer(http.HandlerFunc(func(_ http.ResponseWriter, req *http.Request) {
		io.Copy(io.Discard, req.Body)
		served.Add(1)
	}))
	t.Cleanup(server.Close)
	proxy := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		if connects.Add(1) <= refusals {
			w.Header().Set("Retry-After", "1")
			w.WriteHeader(status)
			return
		}
		out, err := net.Dial("tcp", server.Listener.Addr().String())
		if !assert.NoError(t, err) {
			return
		}
		defer out.Close()
		in, _, err := http.NewResponseController(w).Hijack()
		if !assert.NoError(t, err) {
			return
		}
		defer in.Close()
		io.WriteString(in, "HTTP/1.1 200 OK\r\n\r\n")
		go io.Copy(out, in)
		io.Copy(in, out)
	}))
	t.Cleanup(proxy.Close)
	base = server.Client().Transport.(*http.Transport).Clone()
	address, err := url.Parse(proxy.URL)
	require.NoError(t, err)
	base.Proxy = http.ProxyURL(address)
	t.Cleanup(base.CloseIdleConnections)
	return base, server.URL, connects, served
}

func send(t *testing.T, rt http.RoundTripper, method, url string) (*http.Response, error) {
	req, err := http.NewRequestWithContext(t.Context(), method, url, strings.NewReader("order"))
	require.NoError(t, err)
	resp, err := rt.RoundTrip(req)
	if err == nil {
		resp.Body.Close()
	}
	return resp, err
}

func TestARefusedConnectSentNothing(t *testing.T) {
	for _, method := range []string{"GET", "POST"} {
		for _, status := range []int{429, 502, 503} {
			base, url, connects, served := throughProxy(t, status, 2)
			resp, err := send(t, &heed.Transport{Base: base}, method, url)
			require.NoError(t, err, "%s after %d", method, status)
			assert.Equal(t, 200, resp.StatusCode)
			assert.EqualValues(t, 3, connects.Load())
			assert.EqualValues(t, 1, served.Load())
		}
		base, url, connects, _ := throughProxy(t, 503, 9)
		_, err := send(t, &heed.Transport{Base: base, Retry: heed.RetryPolicy{MaxAttempts: 1}}, method, url)
		assert.EqualError(t, err, "proxyconnect tcp: Service Unavailable")
		assert.True(t, heed.FailedDial(err))
		assert.EqualValues(t, 1, connects.Load())
	}
}

func TestATextLikeThatOfARefusedConnectIsNoProof(t *testing.T) {
	text := errors.New("Service Unavailable")
	undialable := &http.Transport{DialContext: func(context.Context, string, string) (net.Conn, error) { return nil, text }}
	own := roundTripFunc(func(*http.Request) (*http.Response, error) { return nil, text })
	registered := &http.Transport{Proxy: http.ProxyFromEnvironment}
	registered.RegisterProtocol("http", own)
	for name, c := range map[string]struct {
		base   http.RoundTripper
		scheme string
	}{
		"of another RoundTripper":  {own, "https"},
		"of a Transport inside":    {struct{ *http.Transport }{registered}, "http"},
		"of one without a proxy":   {undialable, "https"},
		"of a request over no TLS": {registered, "http"},
	} {
		_, err := send(t, &heed.Transport{Base: c.base}, "POST", c.scheme+"://api.example.com/")
		assert.Same(t, text, err, name)
	}
	typed := &net.AddrError{Err: "Service Unavailable"}
	base, address, _, _ := throughProxy(t, 503, 9)
	base.OnProxyConnectResponse = func(context.Context, *url.URL, *http.Request, *http.Response) error { return typed }
	_, err := send(t, &heed.Transport{Base: base}, "POST", address)
	assert.Same(t, typed, err, "the caller's own error")

	ctx, cancel := context.WithCancelCause(t.Context())
	base.OnProxyConnectResponse = func(context.Context, *url.URL, *http.Request, *http.Response) error {
		cancel(text)
		<-ctx.Done()
		return text
	}
	req, err := http.NewRequestWithContext(ctx, "POST", address, nil)
	require.NoError(t, err)
	_, err = (&heed.Transport{Base: base}).RoundTrip(req)
	assert.Same(t, text, err, "the caller's own cause")

	for status, text := range map[int]string{403: "Forbidden", 407: "Proxy Authentication Required", 418: "I'm a teapot"} {
		base, url, connects, _ := throughProxy(t, status, 9)
		_, err := send(t, &heed.Transport{Base: base}, "POST", url)
		assert.EqualError(t, err, text, "another attempt would get it too")
		assert.EqualValues(t, 1, connects.Load())
	}
}
