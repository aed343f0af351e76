package heed_test

import (
	"bytes"
	"encoding/binary"
	"io"
	"net"
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/heedhttp/heed"
)

// HTTP/2 frames for a server that refuses streams, which net/http's server does not (RFC 9113
// sections 6 and 8.7).
const (
	frameData, frameHeaders, frameReset, frameSettings, framePing, frameGoAway = 0, 1, 3, 4, 6, 7

	endStream, ack, endHeaders = 1, 1, 4
)

type frame struct {
	kind, flags byte
	stream      uint32
	payload     []byte
}

// An h2 is one connection of a server that answers each request with frames. Frames are written one
// at a time.
type h2 struct {
	conn   net.Conn
	answer func(c *h2, stream uint32)
	idle   chan struct{} // holds a value while no frame is being written
}

func (c *h2) write(f frame) {
	b := []byte{byte(len(f.payload) >> 16), byte(len(f.payload) >> 8), byte(len(f.payload)), f.kind, f.flags}
	b = binary.BigEndian.AppendUint32(b, f.stream)
	<-c.idle
	c.writeFirst(append(b, f.payload...))
}

// writeFirst writes b, while idle is empty, then fills idle.
func (c *h2) writeFirst(b []byte) {
	c.conn.Write(b)
	c.idle <- struct{}{}
}

func (c *h2) read() (frame, error) {
	var head [9]byte
	if _, err := io.ReadFull(c.conn, head[:]); err != nil {
		return frame{}, err
	}
	f := frame{kind: head[3], flags: head[4], stream: binary.BigEndian.Uint32(head[5:])}
	f.payload = make([]byte, int(head[0])<<16|int(head[1])<<8|int(head[2]))
	_, err := io.ReadFull(c.conn, f.payload)
	return f, err
}

func (c *h2) serve() {
	defer c.conn.Close()
	io.ReadFull(c.conn, make([]byte, len("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n")))
	go c.writeFirst([]byte{0, 0, 0, frameSettings, 0, 0, 0, 0, 0})
	for {
		f, err := c.read()
		switch {
		case err != nil:
			return
		case f.kind == frameSettings && f.flags&ack == 0:
			go c.write(frame{kind: frameSettings, flags: ack})
		case f.kind == framePing && f.flags&ack == 0:
			go c.write(frame{kind: framePing, flags: ack, payload: f.payload})
		case f.kind == frameHeaders:
			go c.answer(c, f.stream)
		}
	}
}

func (c *h2) reset(stream, code uint32) {
	c.write(frame{kind: frameReset, stream: stream, payload: binary.BigEndian.AppendUint32(nil, code)})
}

// ok answers 200: ":status: 200" is entry 8 of the static table (RFC 7541 appendix A).
func (c *h2) ok(stream uint32) {
	c.write(frame{kind: frameHeaders, flags: endHeaders | endStream, stream: stream, payload: []byte{0x88}})
}

// serveH2 returns a client over HTTP/2 without TLS, whose requests are handled by answer, and the
// count of requests.
func serveH2(t *testing.T, answer func(c *h2, stream uint32, request int)) (*http.Transport, *int) {
	p, seen := newPipes(), new(int)
	go func() {
		for {
			conn, err := p.Accept()
			if err != nil {
				return
			}
			c := &h2{conn: conn, idle: make(chan struct{}, 1), answer: func(c *h2, stream uint32) {
				*seen++
				answer(c, stream, *seen)
			}}
			t.Cleanup(func() { conn.Close() })
			go c.serve()
		}
	}()
	tr := &http.Transport{DialContext: p.Dial, Protocols: new(http.Protocols), ExpectContinueTimeout: time.Minute}
	tr.Protocols.SetUnencryptedHTTP2(true)
	t.Cleanup(func() { p.Close() })
	return tr, seen
}

const refused, cancel = 7, 8

// net/http itself repeats a refused stream up to six times, if it can. heed sees the error only if
// it cannot.
func TestARefusedStreamIsRetriedWhateverItsMethod(t *testing.T) {
	for name, body := range map[string]func() *body{
		"no body":       func() *body { return nil },
		"unread stream": func() *body { return newBody("content") },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				base, seen := serveH2(t, func(c *h2, stream uint32, n int) {
					if n < 10 {
						c.reset(stream, refused)
						return
					}
					c.ok(stream)
				})
				req := get(t.Context())
				req.Method = "POST"
				if b := body(); b != nil {
					req.Body = b
					req.Header.Set("Expect", "100-continue")
				}
				assert.Equal(t, 200,
					status(t, &heed.Transport{Base: base, Budget: heed.Unlimited, Retry: heed.RetryPolicy{MaxAttempts: 10}}, req))
				assert.Equal(t, 10, *seen)
			})
		})
	}
}

func TestACutOffStreamIsRetriedOnlyIfIdempotent(t *testing.T) {
	for method, want := range map[string]int{"GET": 2, "POST": 1} {
		synctest.Test(t, func(t *testing.T) {
			base, seen := serveH2(t, func(c *h2, stream uint32, n int) {
				if n == 1 {
					c.reset(stream, cancel)
					return
				}
				c.ok(stream)
			})
			req := get(t.Context())
			req.Method = method
			resp, err := (&heed.Transport{Base: base}).RoundTrip(req)
			assert.Equal(t, want == 2, err == nil)
			if err == nil {
				resp.Body.Close()
			}
			assert.Equal(t, want, *seen)
		})
	}
}

func TestAConnectionAfterGoAwayIsReplaced(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		base, seen := serveH2(t, func(c *h2, stream uint32, n int) {
			if n == 1 { // a shutdown that processed nothing
				c.write(frame{kind: frameGoAway, payload: bytes.Repeat([]byte{0}, 8)})
				c.conn.Close()
				return
			}
			c.ok(stream)
		})
		assert.Equal(t, 200, status(t, &heed.Transport{Base: base}, put(t.Context(), "content")))
		assert.Equal(t, 2, *seen)
	})
}

// Closing a body that never ends costs a stream on HTTP/2, not the connection.
func TestHTTP2BodiesAreNotDrained(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		conns := map[*h2]bool{}
		base, _ := serveH2(t, func(c *h2, stream uint32, n int) {
			conns[c] = true
			if n == 1 { // ":status: 503" as a literal
				c.write(frame{kind: frameHeaders, flags: endHeaders, stream: stream, payload: []byte{0x48, 3, '5', '0', '3'}})
				c.write(frame{kind: frameData, stream: stream, payload: []byte("busy")})
				return
			}
			c.ok(stream)
		})
		start := time.Now()
		tr := &heed.Transport{Base: base, Retry: heed.RetryPolicy{Backoff: constant(0)}}
		assert.Equal(t, 200, status(t, tr, get(t.Context())))
		assert.Zero(t, time.Since(start))
		assert.Len(t, conns, 1)
	})
}
