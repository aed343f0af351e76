package testserver

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"slices"
	"sync"
	"time"
)

// A transport sends every request to one Server, whatever its host. It knows which response bodies
// are not closed.
type transport struct {
	*http.Transport

	mu   sync.Mutex // guards the fields below
	open map[*body]string
	n    int // how many there have been
}

func newTransport(dial, dialHTTPS func(context.Context) (net.Conn, error)) *transport {
	t := &transport{open: make(map[*body]string)}
	t.Transport = &http.Transport{
		DialContext:           func(ctx context.Context, _, _ string) (net.Conn, error) { return dial(ctx) },
		DialTLSContext:        func(ctx context.Context, _, _ string) (net.Conn, error) { return dialHTTPS(ctx) },
		MaxIdleConnsPerHost:   1000, // pools of workers keep their connections
		ExpectContinueTimeout: time.Second,
	}
	return t
}

func (t *transport) RoundTrip(req *http.Request) (*http.Response, error) {
	resp, err := t.Transport.RoundTrip(req)
	if err != nil || resp.StatusCode == http.StatusSwitchingProtocols {
		return resp, err
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.n++
	b := &body{ReadCloser: resp.Body, of: t, n: t.n}
	t.open[b] = fmt.Sprintf("%s %s: %s", req.Method, req.URL.EscapedPath(), resp.Status)
	resp.Body = b
	return resp, nil
}

// A body is a response body that its transport tracks until it is closed.
type body struct {
	io.ReadCloser
	of *transport
	n  int
}

func (b *body) Close() error {
	b.of.mu.Lock()
	delete(b.of.open, b)
	b.of.mu.Unlock()
	return b.ReadCloser.Close()
}

// unclosed returns the bodies that were not closed, oldest first.
func (t *transport) unclosed() (bodies []*body, names []string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for b := range t.open {
		bodies = append(bodies, b)
	}
	slices.SortFunc(bodies, func(a, b *body) int { return a.n - b.n })
	for _, b := range bodies {
		names = append(names, t.open[b])
	}
	return bodies, names
}

// closeAll closes all bodies and idle connections. The goroutines of net/http then end.
func (t *transport) closeAll() {
	bodies, _ := t.unclosed()
	for _, b := range bodies {
		_ = b.Close()
	}
	t.CloseIdleConnections()
}
