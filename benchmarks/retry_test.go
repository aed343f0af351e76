package benchmarks_test

import (
	"bytes"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/heedhttp/heed/testserver"
)

// These benchmarks measure a retry without a pause. The base allocates nothing, so only the
// library is measured: a request with three retries, less one without any, is the cost of three.

const (
	retries   = 3
	bodyBytes = 16 << 10
)

// An outage is a base that answers 503 so many times, and then 200. It is for one goroutine.
type outage struct {
	every int // which answer is a 200
	n     int
	body  reader
	bytes []byte
	down  http.Response
	up    http.Response
}

func newOutage(retries, bodyBytes int) *outage {
	o := &outage{every: retries + 1, bytes: make([]byte, bodyBytes)}
	o.down = http.Response{StatusCode: 503, ProtoMajor: 1, ProtoMinor: 1, Header: http.Header{},
		ContentLength: int64(bodyBytes)}
	o.up = http.Response{StatusCode: 200, ProtoMajor: 1, ProtoMinor: 1, Header: http.Header{}}
	return o
}

func (o *outage) RoundTrip(req *http.Request) (*http.Response, error) {
	o.n++
	resp := &o.down
	if o.n%o.every == 0 {
		resp = &o.up
	}
	resp.Body, resp.Request = http.NoBody, req
	if resp.ContentLength > 0 {
		o.body.all.Reset(o.bytes)
		resp.Body = &o.body
	}
	return resp, nil
}

// A reader is a body that allocates nothing. Like one from the network, it has no WriteTo.
type reader struct{ all bytes.Reader }

func (r *reader) Read(p []byte) (int, error) { return r.all.Read(p) }
func (r *reader) Close() error               { return nil }

func BenchmarkRetryNone(b *testing.B)   { retrying(b, 0, 0) }
func BenchmarkRetryNoBody(b *testing.B) { retrying(b, retries, 0) }
func BenchmarkRetryBody(b *testing.B)   { retrying(b, retries, bodyBytes) }

func retrying(b *testing.B, retries, bodyBytes int) {
	each(b, append([]rival{insistent}, rivals...), func(b *testing.B, r rival) {
		rt, req := r.over(newOutage(retries, bodyBytes)), request(b, "GET", url, nil)
		for b.Loop() {
			if resp, err := rt.RoundTrip(req); err != nil || resp.StatusCode != 200 {
				b.Fatal(resp, err)
			}
		}
	})
}

func TestARetryAllocatesLittle(t *testing.T) {
	req := request(t, "GET", url, nil)
	allocs := func(retries, bodyBytes int) float64 {
		rt := insistent.over(newOutage(retries, bodyBytes))
		return testing.AllocsPerRun(1000, func() { rt.RoundTrip(req) })
	}
	none := allocs(0, 0)
	assert.LessOrEqual(t, (allocs(retries, 0)-none)/retries, 1.5, "without a body")
	assert.LessOrEqual(t, (allocs(retries, 1)-none)/retries, 6.0, "with a byte, which a goroutine reads")
	assert.LessOrEqual(t, (allocs(retries, bodyBytes)-none)/retries, 5.5, "with 16 KiB")
}

// BenchmarkRetrySocket measures a request with three retries over a loopback connection, and how
// many connections each retry opens.
func BenchmarkRetrySocket(b *testing.B) {
	socket := func(b *testing.B, over func(http.RoundTripper) doer) {
		srv := newUnreliable(b)
		client := over(srv.transport)
		srv.do(b, client)
		srv.conns.Store(0)
		n := 0
		for b.Loop() {
			srv.do(b, client)
			n++
		}
		b.ReportMetric(float64(srv.conns.Load())/float64(n*retries), "conns/retry")
	}
	each(b, append([]rival{insistent}, rivals...), func(b *testing.B, r rival) {
		socket(b, func(base http.RoundTripper) doer { return tripper{r.over(base)} })
	})
	b.Run("heimdall", func(b *testing.B) {
		b.ReportAllocs()
		socket(b, heimdallOver)
	})
}

func TestARetryUsesTheConnectionAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) { // heed gives up on a slow body
		var steps []testserver.Step
		for range 100 {
			down := testserver.Step{Status: 503, Body: strings.Repeat("x", bodyBytes), Times: retries}
			steps = append(steps, down, testserver.Step{Status: 200})
		}
		srv := testserver.New(t, steps...)
		client := tripper{insistent.over(srv.Transport())}
		for range 100 {
			fetch(t, client, srv.URL)
		}
		peers := make(map[string]bool)
		for _, e := range srv.Log() {
			peers[e.Remote] = true
		}
		require.Len(t, srv.Log(), 100*(retries+1))
		assert.Len(t, peers, 1)
	})
}

// An unreliable server answers 503 with a body of 16 KiB three times, and then 200. It counts its
// connections.
type unreliable struct {
	url       string
	transport *http.Transport
	conns     atomic.Int64
}

func newUnreliable(tb testing.TB) *unreliable {
	u := new(unreliable)
	var n atomic.Int64
	content := make([]byte, bodyBytes)
	srv := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		if n.Add(1)%(retries+1) != 0 {
			w.WriteHeader(503)
			w.Write(content)
		}
	}))
	srv.Config.ConnState = func(_ net.Conn, state http.ConnState) {
		if state == http.StateNew {
			u.conns.Add(1)
		}
	}
	srv.Start()
	u.url, u.transport = srv.URL, &http.Transport{}
	tb.Cleanup(func() {
		u.transport.CloseIdleConnections()
		srv.CloseClientConnections()
		srv.Close()
	})
	return u
}

func (u *unreliable) do(tb testing.TB, client doer) { fetch(tb, client, u.url) }

// fetch reads a response, which must be a 200.
func fetch(tb testing.TB, client doer, url string) {
	resp, err := client.Do(request(tb, "GET", url, nil))
	require.NoError(tb, err)
	io.Copy(io.Discard, resp.Body)
	resp.Body.Close()
	require.Equal(tb, 200, resp.StatusCode)
}

func median[T uint64 | int](all []T) T {
	slices.Sort(all)
	return all[len(all)/2]
}
