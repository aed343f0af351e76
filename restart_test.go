package heed_test

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httptrace"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/heedhttp/heed"
	"github.com/heedhttp/heed/internal/testenv"
)

// A restartable is a server on a real port that can stop and start again there. It counts how often
// each call was executed.
type restartable struct {
	addr  string
	http2 bool
	srv   *http.Server

	mu       sync.Mutex     // guards executed
	executed map[string]int // by the call's id
}

func newRestartable(t *testing.T, http2 bool) *restartable {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	s := &restartable{addr: l.Addr().String(), http2: http2, executed: map[string]int{}}
	l.Close()
	return s
}

func (s *restartable) start(t *testing.T) {
	var l net.Listener
	var err error
	for range 100 { // something else may have the port for a moment
		if l, err = net.Listen("tcp", s.addr); err == nil {
			break
		}
		time.Sleep(10 * time.Millisecond)
	}
	require.NoError(t, err)
	s.srv = &http.Server{Handler: s}
	if s.http2 {
		s.srv.Protocols = new(http.Protocols)
		s.srv.Protocols.SetUnencryptedHTTP2(true)
	}
	go s.srv.Serve(l)
}

// stop resets the connections of HTTP/1.1. Those of HTTP/2 get a GOAWAY, and end their streams.
func (s *restartable) stop(t *testing.T) {
	if s.http2 {
		require.NoError(t, s.srv.Shutdown(context.Background()))
		return
	}
	s.srv.Close()
}

func (s *restartable) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	s.executed[r.Header.Get("Call-Id")]++
	s.mu.Unlock()
	io.Copy(io.Discard, r.Body)
	time.Sleep(20 * time.Millisecond)
	w.Write([]byte("fine"))
}

func (s *restartable) executions(id string) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.executed[id]
}

// base returns a new transport of net/http for the server.
func (s *restartable) base() *http.Transport {
	tr := &http.Transport{Protocols: new(http.Protocols)}
	tr.Protocols.SetHTTP1(!s.http2)
	tr.Protocols.SetUnencryptedHTTP2(s.http2)
	return tr
}

// A sentCall is one call of the load and its result.
type sentCall struct {
	id, method string
	connected  atomic.Bool // an attempt had a connection, so it may have reached the server
	err        error
}

func (s *restartable) call(client *http.Client, id, method string) *sentCall {
	c := &sentCall{id: id, method: method}
	ctx := httptrace.WithClientTrace(context.Background(), &httptrace.ClientTrace{
		GotConn: func(httptrace.GotConnInfo) { c.connected.Store(true) },
	})
	var body io.Reader
	if method == "POST" {
		body = strings.NewReader(id)
	}
	req, err := http.NewRequestWithContext(ctx, method, "http://"+s.addr+"/", body)
	if err != nil {
		panic(err)
	}
	req.Header.Set("Call-Id", id)
	resp, err := client.Do(req)
	if c.err = err; err != nil {
		return c
	}
	defer resp.Body.Close()
	if resp.StatusCode != 200 {
		c.err = fmt.Errorf("status %d", resp.StatusCode)
	} else {
		_, c.err = io.ReadAll(resp.Body)
	}
	return c
}

// load sends a call every 50 ms, every fourth a POST, whatever becomes of the earlier ones.
func (s *restartable) load(name string, rt http.RoundTripper, lasts time.Duration) (all []*sentCall) {
	client := &http.Client{Transport: rt}
	var calls sync.WaitGroup
	var mu sync.Mutex
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for n, begin := 0, time.Now(); time.Since(begin) < lasts; n++ {
		method := "GET"
		if n%4 == 3 {
			method = "POST"
		}
		calls.Go(func() {
			c := s.call(client, fmt.Sprintf("%s %d", name, n), method)
			mu.Lock()
			defer mu.Unlock()
			all = append(all, c)
		})
		<-tick.C
	}
	calls.Wait()
	return all
}

func lost(calls []*sentCall, method string) (n int) {
	for _, c := range calls {
		if c.method == method && c.err != nil {
			n++
		}
	}
	return n
}

func TestARestartLosesNoCall(t *testing.T) {
	testenv.NeedLong(t)
	for _, http2 := range []bool{false, true} {
		for _, gone := range []time.Duration{time.Second, 3 * time.Second} {
			t.Run(fmt.Sprintf("HTTP2 %v, %v", http2, gone), func(t *testing.T) {
				before := runtime.NumGoroutine()
				s := newRestartable(t, http2)
				s.start(t)
				bases := [2]*http.Transport{s.base(), s.base()}
				var calls, plain []*sentCall
				var loads sync.WaitGroup
				lasts := time.Second + gone + 5*time.Second
				loads.Go(func() { calls = s.load("heed", &heed.Transport{Base: bases[0]}, lasts) })
				loads.Go(func() { plain = s.load("plain", bases[1], lasts) })
				time.Sleep(time.Second)
				s.stop(t)
				time.Sleep(gone)
				s.start(t)
				loads.Wait()

				for _, c := range calls {
					executed := s.executions(c.id)
					switch {
					case c.method == "GET":
						assert.NoError(t, c.err, c.id)
						assert.Positive(t, executed, c.id)
					case c.err == nil:
						assert.Equal(t, 1, executed, c.id)
					default: // the server may have executed it
						assert.True(t, c.connected.Load(), "%s was never sent: %v", c.id, c.err)
						assert.LessOrEqual(t, executed, 1, c.id)
						t.Logf("%s had a connection: %v", c.id, c.err)
					}
				}
				t.Logf("of %d calls %d GET and %d POST are lost; of %d plain ones %d and %d", len(calls),
					lost(calls, "GET"), lost(calls, "POST"), len(plain), lost(plain, "GET"), lost(plain, "POST"))
				assert.Positive(t, lost(plain, "GET"), "of a plain client")
				assert.Positive(t, lost(plain, "POST"), "of a plain client")

				for _, b := range bases {
					b.CloseIdleConnections()
				}
				s.srv.Close()
				goroutinesEnd(t, before)
			})
		}
	}
}

// goroutinesEnd requires that no more goroutines are left than there were before.
func goroutinesEnd(t *testing.T, before int) {
	t.Helper()
	for range 1000 {
		if runtime.NumGoroutine() <= before {
			return
		}
		time.Sleep(10 * time.Millisecond)
	}
	all := make([]byte, 1<<20)
	t.Errorf("%d goroutines, before %d:\n%s", runtime.NumGoroutine(), before, all[:runtime.Stack(all, true)])
}

func TestAServerThatStartsAfterItsClientLosesNoCall(t *testing.T) {
	testenv.NeedLong(t)
	for _, method := range []string{"GET", "POST"} {
		t.Run(method, func(t *testing.T) {
			before := runtime.NumGoroutine()
			s := newRestartable(t, false)
			base := s.base()
			done := make(chan *sentCall)
			go func() { done <- s.call(&http.Client{Transport: &heed.Transport{Base: base}}, "first", method) }()
			assert.Error(t, s.call(&http.Client{Transport: base}, "plain", method).err)
			time.Sleep(2300 * time.Millisecond)
			s.start(t)
			assert.NoError(t, (<-done).err)
			assert.Equal(t, 1, s.executions("first"))
			base.CloseIdleConnections()
			s.srv.Close()
			goroutinesEnd(t, before)
		})
	}
}

// A name that is known but cannot be looked up for a while; and one that is not known at all for a while,
// though it was a moment ago, as that of a service without instances.
func TestAFailedLookUpLosesNoCall(t *testing.T) {
	testenv.NeedLong(t)
	for name, c := range map[string]struct {
		err   net.DNSError
		known bool // the name was looked up before
	}{
		"the resolver fails":        {err: net.DNSError{Err: "server misbehaving", IsTemporary: true}},
		"it fails later":            {err: net.DNSError{Err: "server misbehaving", IsTemporary: true}, known: true},
		"it is silent":              {err: net.DNSError{Err: "i/o timeout", IsTimeout: true}},
		"there is no name any more": {err: net.DNSError{Err: "no such host", IsNotFound: true}, known: true},
	} {
		t.Run(name, func(t *testing.T) {
			srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { w.Write([]byte("fine")) }))
			defer srv.Close()
			var fails atomic.Bool
			base := &http.Transport{DisableKeepAlives: true}
			base.DialContext = func(ctx context.Context, network, addr string) (net.Conn, error) {
				if fails.Load() {
					e := c.err
					e.Name, _, _ = net.SplitHostPort(addr)
					return nil, &net.OpError{Op: "dial", Net: network, Err: &e}
				}
				return new(net.Dialer).DialContext(ctx, network, srv.Listener.Addr().String())
			}
			client := &http.Client{Transport: &heed.Transport{Base: base}}
			send := func(client *http.Client, method string) error {
				req, err := http.NewRequest(method, "http://api.test/", strings.NewReader("content"))
				require.NoError(t, err)
				resp, err := client.Do(req)
				if err == nil {
					resp.Body.Close()
				}
				return err
			}
			if c.known {
				require.NoError(t, send(client, "PUT"))
			}
			fails.Store(true)
			assert.Error(t, send(&http.Client{Transport: base}, "PUT"))
			var calls sync.WaitGroup
			for n := range 20 {
				calls.Go(func() { assert.NoError(t, send(client, []string{"PUT", "POST"}[n%2])) })
				time.Sleep(100 * time.Millisecond)
			}
			fails.Store(false)
			calls.Wait()
		})
	}
}
