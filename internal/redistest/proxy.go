package redistest

import (
	"bytes"
	"net"
	"sync"
	"testing"
	"time"
)

// A Proxy is a TCP proxy in front of a server. A test can slow down, break and refuse connections. What
// is set applies to all connections, open ones included.
//
// It is safe for concurrent use.
type Proxy struct {
	server   string
	listener net.Listener
	running  sync.WaitGroup

	mu      sync.Mutex // guards what follows
	delay   time.Duration
	swallow bool
	refuse  bool
	cut     int // how many more bytes of replies to deliver; negative for all
	dropped int // bytes
	open    map[*proxied]struct{}
	closed  bool
}

// A proxied is a pair of connections: a client's, and the one to the server for it.
type proxied struct {
	client, server net.Conn
	ended          chan struct{} // closed when both are closed
	dead           bool          // guarded by mu of the Proxy: bytes of it were dropped
}

// A chunk is bytes that arrived together, or the end of a connection.
type chunk struct {
	data []byte // nil at the end
	due  time.Time
}

// NewProxy starts a Proxy without a delay. It ends with the test.
func NewProxy(t testing.TB, server string) *Proxy {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatalf("redistest: %v", err)
	}
	p := &Proxy{server: server, listener: l, cut: -1, open: make(map[*proxied]struct{})}
	p.running.Go(p.accept)
	t.Cleanup(p.end)
	return p
}

// Addr returns the address that clients connect to.
func (p *Proxy) Addr() string { return p.listener.Addr().String() }

// SetDelay delivers bytes d after they came, in each direction and in order: a round trip takes 2d more.
// It does not limit how many bytes are on the way. Accepting a connection is not delayed.
func (p *Proxy) SetDelay(d time.Duration) { p.set(func() { p.delay = d }) }

// Swallow drops all bytes, and the ends of connections. Connections stay open, and new ones are
// accepted. A connection that has lost something delivers nothing any more, even after Swallow(false),
// as when a firewall has forgotten it.
func (p *Proxy) Swallow(on bool) { p.set(func() { p.swallow = on }) }

// Dropped returns how many bytes were dropped.
func (p *Proxy) Dropped() (n int) {
	p.set(func() { n = p.dropped })
	return n
}

// Refuse resets new connections as soon as they are accepted.
func (p *Proxy) Refuse(on bool) { p.set(func() { p.refuse = on }) }

// Cut delivers n more bytes of replies, handshakes included. Then it resets the connection that would
// deliver the next byte, and from then on delivers everything again. With Cut(0) the next reply is lost,
// although its command was executed.
func (p *Proxy) Cut(n int) { p.set(func() { p.cut = n }) }

// Reset resets all open connections.
func (p *Proxy) Reset() {
	p.set(func() {
		for c := range p.open {
			p.closeLocked(c, reset)
		}
	})
}

func (p *Proxy) set(what func()) {
	p.mu.Lock()
	defer p.mu.Unlock()
	what()
}

func (p *Proxy) end() {
	p.set(func() { p.closed = true })
	p.listener.Close()
	p.Reset()
	p.running.Wait()
}

func (p *Proxy) accept() {
	for {
		client, err := p.listener.Accept()
		if err != nil {
			return
		}
		p.running.Go(func() { p.connect(client) })
	}
}

// connect connects client to the server, or resets it.
func (p *Proxy) connect(client net.Conn) {
	server, err := net.DialTimeout("tcp", p.server, replyTimeout)
	if err != nil {
		reset(client)
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	c := &proxied{client: client, server: server, ended: make(chan struct{})}
	if p.refuse || p.closed {
		p.closeLocked(c, reset)
		return
	}
	p.open[c] = struct{}{}
	p.running.Go(func() { p.deliverAll(c, client, server) })
	p.running.Go(func() { p.deliverAll(c, server, client) })
}

// deliverAll delivers to one end of c what comes from the other.
func (p *Proxy) deliverAll(c *proxied, from, to net.Conn) {
	chunks := make(chan chunk, 10_000)
	p.running.Go(func() {
		defer close(chunks)
		buffer := make([]byte, 1<<16)
		for {
			n, err := from.Read(buffer)
			if n > 0 {
				chunks <- p.arrived(bytes.Clone(buffer[:n]))
			}
			if err != nil {
				chunks <- p.arrived(nil)
				return
			}
		}
	})
	for chunk := range chunks {
		select {
		case <-time.After(time.Until(chunk.due)):
			p.deliver(c, chunk.data, to)
		case <-c.ended:
		}
	}
}

func (p *Proxy) arrived(data []byte) chunk {
	p.mu.Lock()
	defer p.mu.Unlock()
	return chunk{data, time.Now().Add(p.delay)}
}

// deliver writes data to one end of c, or closes both.
func (p *Proxy) deliver(c *proxied, data []byte, to net.Conn) {
	p.mu.Lock()
	cut := false
	c.dead = c.dead || p.swallow
	if c.dead {
		p.dropped += len(data)
		p.mu.Unlock()
		return
	}
	if to == c.client && p.cut >= 0 {
		cut = len(data) > p.cut
		data = data[:min(len(data), p.cut)]
		p.cut -= len(data)
	}
	if cut {
		p.cut = -1
	}
	p.mu.Unlock()
	// Without mu: an end that does not read must not block the other connections.
	_, err := to.Write(data)
	switch {
	case cut:
		p.set(func() { p.closeLocked(c, reset) })
	case err != nil || data == nil:
		p.set(func() { p.closeLocked(c, func(conn net.Conn) { conn.Close() }) })
	}
}

// closeLocked closes both ends of c.
func (p *Proxy) closeLocked(c *proxied, end func(net.Conn)) {
	select {
	case <-c.ended:
		return
	default:
	}
	close(c.ended)
	end(c.client)
	end(c.server)
	delete(p.open, c)
}

func reset(conn net.Conn) {
	conn.(*net.TCPConn).SetLinger(0)
	conn.Close()
}
