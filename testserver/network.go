package testserver

import (
	"context"
	"net"
	"sync"
)

// A network has a listener, and dials it.
type network interface {
	net.Listener
	dial(ctx context.Context) (net.Conn, error)
}

// A memory network consists of pipes. It blocks only on channels, so that it works inside a
// synctest bubble.
type memory struct {
	conns chan net.Conn
	down  chan struct{}
	close sync.Once

	mu    sync.Mutex // guards ports
	ports int        // how many were used
}

func newMemory() *memory {
	return &memory{conns: make(chan net.Conn), down: make(chan struct{})}
}

func (m *memory) Accept() (net.Conn, error) {
	select {
	case conn := <-m.conns:
		return conn, nil
	case <-m.down:
		return nil, net.ErrClosed
	}
}

func (m *memory) Close() error {
	m.close.Do(func() { close(m.down) })
	return nil
}

func (m *memory) Addr() net.Addr { return serverAddr }

func (m *memory) dial(ctx context.Context) (net.Conn, error) {
	client, server := net.Pipe()
	addr := m.nextAddr()
	select {
	case m.conns <- pipe{server, serverAddr, addr}:
		return pipe{client, addr, serverAddr}, nil
	case <-m.down:
		return nil, &net.OpError{Op: "dial", Net: "tcp", Addr: serverAddr, Err: net.ErrClosed}
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// The addresses are reserved for documentation (RFC 5737).
var serverAddr = &net.TCPAddr{IP: net.IPv4(192, 0, 2, 80), Port: 80}

func (m *memory) nextAddr() net.Addr {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.ports++
	return &net.TCPAddr{IP: net.IPv4(192, 0, 2, 1), Port: 1024 + m.ports%60_000}
}

// A pipe is one end of a net.Pipe with the addresses of a TCP connection, which limiters read.
type pipe struct {
	net.Conn
	local, remote net.Addr
}

func (p pipe) LocalAddr() net.Addr  { return p.local }
func (p pipe) RemoteAddr() net.Addr { return p.remote }

// A loopback network is a real one.
type loopback struct{ net.Listener }

func (l loopback) dial(ctx context.Context) (net.Conn, error) {
	var d net.Dialer
	return d.DialContext(ctx, "tcp", l.Addr().String())
}
