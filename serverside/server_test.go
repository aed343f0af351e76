package serverside_test

import (
	"bufio"
	"bytes"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/heedhttp/heed/quota"
	"github.com/heedhttp/heed/serverside"
)

// listen serves h over TCP.
func listen(t *testing.T, h http.Handler) *httptest.Server {
	srv := httptest.NewServer(h)
	t.Cleanup(srv.Close)
	return srv
}

func get(t *testing.T, client *http.Client, method, url string, body io.Reader) *http.Response {
	t.Helper()
	req, err := http.NewRequest(method, url, body)
	require.NoError(t, err)
	resp, err := client.Do(req)
	require.NoError(t, err)
	t.Cleanup(func() { resp.Body.Close() })
	return resp
}

func TestOverTCP(t *testing.T) {
	srv := listen(t, limit(t, quota.PerHour(2)).Wrap(new(ok)))
	for _, left := range []string{"1", "0"} {
		resp := get(t, srv.Client(), "GET", srv.URL, nil)
		assert.Equal(t, 200, resp.StatusCode)
		assert.Equal(t, left, resp.Header.Get("X-RateLimit-Remaining"))
	}
	resp := get(t, srv.Client(), "GET", srv.URL, nil)
	assert.Equal(t, 429, resp.StatusCode)
	wait, err := strconv.Atoi(resp.Header.Get("Retry-After"))
	require.NoError(t, err)
	assert.Greater(t, wait, 1000)
	assert.LessOrEqual(t, wait, 1800)
	body, err := io.ReadAll(resp.Body)
	require.NoError(t, err)
	assert.Contains(t, string(body), serverside.ProblemQuota)

	resp = get(t, srv.Client(), "HEAD", srv.URL, nil)
	assert.Equal(t, 429, resp.StatusCode)
	body, err = io.ReadAll(resp.Body)
	require.NoError(t, err)
	assert.Empty(t, body)
}

func TestHandlerGetsTheServersResponseWriter(t *testing.T) {
	var given, got http.ResponseWriter
	inner := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { got = w })
	l := limit(t, quota.PerHour(10))
	for _, h := range []http.Handler{l.Wrap(inner), l.Wrap(l.Wrap(inner))} {
		listen := listen(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			given = w
			h.ServeHTTP(w, r)
		}))
		get(t, listen.Client(), "GET", listen.URL, nil)
		assert.Same(t, given, got)
		assert.Implements(t, (*http.Flusher)(nil), got)
		assert.Implements(t, (*http.Hijacker)(nil), got)
		assert.Implements(t, (*io.ReaderFrom)(nil), got)
	}
}

func TestHandlerMayFlush(t *testing.T) {
	more := make(chan struct{})
	srv := listen(t, limit(t, quota.PerHour(1)).Wrap(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		io.WriteString(w, "early")
		assert.NoError(t, http.NewResponseController(w).Flush())
		<-more
	})))
	resp := get(t, srv.Client(), "GET", srv.URL, nil)
	assert.Equal(t, "0", resp.Header.Get("X-RateLimit-Remaining"))
	early := make([]byte, 5)
	_, err := io.ReadFull(resp.Body, early)
	require.NoError(t, err)
	assert.Equal(t, "early", string(early))
	close(more)
}

func TestHandlerMayHijack(t *testing.T) {
	srv := listen(t, limit(t, quota.PerHour(1)).Wrap(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		conn, _, err := http.NewResponseController(w).Hijack()
		if assert.NoError(t, err) {
			io.WriteString(conn, "HTTP/1.1 204 No Content\r\nX-Raw: yes\r\n\r\n")
			conn.Close()
		}
	})))
	assert.Equal(t, "yes", get(t, srv.Client(), "GET", srv.URL, nil).Header.Get("X-Raw"))
}

func TestCopyToAResponseUsesReadFrom(t *testing.T) {
	w := &readerFrom{ResponseRecorder: httptest.NewRecorder()}
	h := limit(t, quota.PerHour(1)).Wrap(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_, err := io.Copy(w, struct{ io.Reader }{strings.NewReader("content")})
		assert.NoError(t, err)
	}))
	h.ServeHTTP(w, request("GET", "http://example.com/", "192.0.2.1:1"))
	assert.True(t, w.used)
	assert.Equal(t, "content", w.Body.String())
}

type readerFrom struct {
	*httptest.ResponseRecorder
	used bool
}

func (w *readerFrom) ReadFrom(r io.Reader) (int64, error) {
	w.used = true
	return io.Copy(w.ResponseRecorder, r)
}

func TestPanicReachesTheServer(t *testing.T) {
	h := limit(t, quota.PerHour(1)).Wrap(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
		panic(http.ErrAbortHandler)
	}))
	assert.PanicsWithValue(t, http.ErrAbortHandler, func() { ask(h, "GET", "/") })
	assert.Equal(t, 429, ask(h, "GET", "/").Code, "it was charged, and nothing is locked")
}

func TestDeniedUploadIsNotRequested(t *testing.T) {
	srv := listen(t, limit(t, quota.PerHour(1)).Wrap(new(ok))) // for 10 MiB that the server never requests
	get(t, srv.Client(), "GET", srv.URL, nil)

	conn, err := net.Dial("tcp", srv.Listener.Addr().String())
	require.NoError(t, err)
	defer conn.Close()
	io.WriteString(conn, "POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 10485760\r\nExpect: 100-continue\r\n\r\n")
	resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
	require.NoError(t, err)
	defer resp.Body.Close()
	assert.Equal(t, 429, resp.StatusCode)
}

func TestDeniedUploadOverTCPGetsAResponse(t *testing.T) {
	srv := listen(t, limit(t, quota.PerHour(1)).Wrap(new(ok)))
	get(t, srv.Client(), "GET", srv.URL, nil)
	resp := get(t, srv.Client(), "POST", srv.URL, bytes.NewReader(make([]byte, 100_000)))
	assert.Equal(t, 429, resp.StatusCode)
}

func TestDenyMaySendEarlyHints(t *testing.T) {
	l := must(t, serverside.Config{Rules: oneRule(quota.PerHour(1)), Deny: func(
		w http.ResponseWriter, _ *http.Request, _ serverside.Denial,
	) {
		w.WriteHeader(http.StatusEarlyHints)
		io.WriteString(w, "later")
	}})
	srv := listen(t, l.Wrap(new(ok)))
	get(t, srv.Client(), "GET", srv.URL, nil)
	resp := get(t, srv.Client(), "GET", srv.URL, nil)
	assert.Equal(t, 429, resp.StatusCode)
	body, err := io.ReadAll(resp.Body)
	require.NoError(t, err)
	assert.Equal(t, "later", string(body))
}

func TestThousandConcurrentRequestsOverTCPAreCountedExactly(t *testing.T) {
	srv := listen(t, limit(t, quota.PerDay(100)).Wrap(http.HandlerFunc(bare)))
	client := srv.Client()
	client.Transport.(*http.Transport).MaxConnsPerHost = 50
	var group sync.WaitGroup
	var admitted, denied atomic.Int64
	for range 1000 {
		group.Go(func() {
			resp, err := client.Get(srv.URL)
			if !assert.NoError(t, err) {
				return
			}
			resp.Body.Close()
			switch resp.StatusCode {
			case 204:
				admitted.Add(1)
			case 429:
				denied.Add(1)
			}
		})
	}
	group.Wait()
	assert.Equal(t, int64(100), admitted.Load())
	assert.Equal(t, int64(900), denied.Load())
}
