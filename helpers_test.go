package heed_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"log"
	"log/slog"
	"net"
	"net/http"
	"os"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func init() {
	slog.SetDefault(slog.New(slog.DiscardHandler)) // a log line for each 429 would hide why a test fails
	log.SetOutput(os.Stderr)                       // SetDefault has sent package log to slog too
}

// roundTripFunc is a RoundTripper made of a function.
type roundTripFunc func(*http.Request) (*http.Response, error)

func (f roundTripFunc) RoundTrip(req *http.Request) (*http.Response, error) { return f(req) }

// A reply is one answer of a script.
type reply struct {
	status int
	header []string // name, value, name, value …
	body   io.ReadCloser
	err    error
	took   time.Duration
	unread bool // answer without reading the body
	proto  int  // 1 if 0
}

// A seen is an attempt as the script received it.
type seen struct {
	at   time.Duration // since the server was made
	req  *http.Request
	body string
}

// A script is a base that gives one reply after the other, then repeats the last one.
type script struct {
	start   time.Time
	replies []reply

	mu   sync.Mutex
	seen []seen
}

func newScript(replies ...reply) *script { return &script{start: time.Now(), replies: replies} }

func (s *script) RoundTrip(req *http.Request) (*http.Response, error) {
	s.mu.Lock()
	r := s.replies[min(len(s.seen), len(s.replies)-1)]
	n := len(s.seen)
	s.seen = append(s.seen, seen{at: time.Since(s.start), req: req})
	s.mu.Unlock()
	if req.Body != nil {
		defer req.Body.Close()
		if !r.unread {
			b, err := io.ReadAll(req.Body)
			if err != nil {
				return nil, err
			}
			s.mu.Lock()
			s.seen[n].body = string(b)
			s.mu.Unlock()
		}
	}
	if r.took > 0 {
		select {
		case <-time.After(r.took):
		case <-req.Context().Done():
			return nil, req.Context().Err()
		}
	}
	if r.err != nil {
		return nil, r.err
	}
	return response(req, r), nil
}

func (s *script) count() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.seen)
}

// times returns when the attempts arrived, since the script was made.
func (s *script) times() (times []time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, seen := range s.seen {
		times = append(times, seen.at)
	}
	return times
}

func (s *script) bodies() (bodies []string) {
	for _, seen := range s.seen {
		bodies = append(bodies, seen.body)
	}
	return bodies
}

func response(req *http.Request, r reply) *http.Response {
	resp := &http.Response{
		StatusCode: r.status, Status: strconv.Itoa(r.status), Proto: "HTTP/1.1", ProtoMajor: max(1, r.proto), ProtoMinor: 1,
		Header: http.Header{}, Body: r.body, ContentLength: -1, Request: req,
	}
	for i := 0; i < len(r.header); i += 2 {
		resp.Header.Add(r.header[i], r.header[i+1])
	}
	if resp.Body == nil {
		resp.Body, resp.ContentLength = http.NoBody, 0
	}
	return resp
}

// throttle is a 429 with Retry-After.
func throttle(seconds string) reply {
	return reply{status: 429, header: []string{"Retry-After", seconds}}
}

var (
	ok          = reply{status: 200}
	unavailable = reply{status: 503}
)

// errBroken does not say what the server did.
var errBroken = errors.New("connection reset by peer")

// A body counts its Reads and Closes.
type body struct {
	r io.Reader

	mu     sync.Mutex
	reads  int
	closes int
	closed time.Time // the first Close
}

func newBody(s string) *body { return &body{r: strings.NewReader(s)} }

func (b *body) Read(p []byte) (int, error) {
	b.mu.Lock()
	b.reads++
	b.mu.Unlock()
	return b.r.Read(p)
}

func (b *body) Close() error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.closes++; b.closes == 1 {
		b.closed = time.Now()
	}
	return nil
}

func (b *body) counts() (reads, closes int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.reads, b.closes
}

// get returns a GET request.
func get(ctx context.Context) *http.Request {
	req, err := http.NewRequestWithContext(ctx, "GET", "http://api.example.com/things?key=s3cret", nil)
	if err != nil {
		panic(err)
	}
	return req
}

// put returns an idempotent request whose body GetBody can return again.
func put(ctx context.Context, content string) *http.Request {
	req, err := http.NewRequestWithContext(ctx, "PUT", "http://api.example.com/things", strings.NewReader(content))
	if err != nil {
		panic(err)
	}
	return req
}

// stream returns a request whose body can be read only once.
func stream(ctx context.Context, method string, b io.ReadCloser) *http.Request {
	req, err := http.NewRequestWithContext(ctx, method, "http://api.example.com/things", nil)
	if err != nil {
		panic(err)
	}
	req.Body, req.ContentLength = b, -1
	return req
}

// pipes is an in-memory network that works inside a synctest bubble.
type pipes struct {
	conns chan net.Conn
	done  chan struct{}
	dials int
	mu    sync.Mutex
}

func newPipes() *pipes { return &pipes{conns: make(chan net.Conn), done: make(chan struct{})} }

func (p *pipes) Accept() (net.Conn, error) {
	select {
	case c := <-p.conns:
		return c, nil
	case <-p.done:
		return nil, net.ErrClosed
	}
}

func (p *pipes) Close() error   { close(p.done); return nil }
func (p *pipes) Addr() net.Addr { return &net.UnixAddr{Name: "pipe"} }

func (p *pipes) Dial(context.Context, string, string) (net.Conn, error) {
	p.mu.Lock()
	p.dials++
	p.mu.Unlock()
	client, server := net.Pipe()
	select {
	case p.conns <- server:
		return client, nil
	case <-p.done:
		return nil, net.ErrClosed
	}
}

func (p *pipes) dialed() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.dials
}

// serve runs h behind a real net/http server and client.
func serve(t testing.TB, h http.HandlerFunc) (*http.Transport, *pipes) {
	t.Helper()
	p := newPipes()
	srv := &http.Server{Handler: h}
	go srv.Serve(p)
	tr := &http.Transport{DialContext: p.Dial, ExpectContinueTimeout: time.Minute}
	t.Cleanup(func() {
		tr.CloseIdleConnections()
		srv.Close()
	})
	return tr, p
}

// roundTrip fails the test if there is no response.
func roundTrip(t testing.TB, rt http.RoundTripper, req *http.Request) *http.Response {
	t.Helper()
	resp, err := rt.RoundTrip(req)
	require.NoError(t, err)
	require.NotNil(t, resp)
	return resp
}

func status(t testing.TB, rt http.RoundTripper, req *http.Request) int {
	t.Helper()
	resp := roundTrip(t, rt, req)
	resp.Body.Close()
	return resp.StatusCode
}

func content(t testing.TB, resp *http.Response) string {
	t.Helper()
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	require.NoError(t, err)
	return string(b)
}

// between fails the test unless low <= d <= high.
func between(t testing.TB, low, d, high time.Duration) {
	t.Helper()
	if d < low || d > high {
		t.Errorf("%v is not within [%v, %v]", d, low, high)
	}
}

func readCloser(s string) io.ReadCloser { return io.NopCloser(bytes.NewBufferString(s)) }
