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

// Frames of HTTP/2, as far as a server needs them that does what net/http's
// does not: to refuse streams (RFC 9113 sections 6 and 8.7).
const (
	frameData, frameHeaders, frameReset, frameSettings, framePing, frameGoAway = 0, 1, 3, 4, 6, 7

	endStream, ack, endHeaders = 1, 1, 4
)

type frame struct {
	kind, flags byte
	stream      uint32
	payload     []byte
}

// An h2 is one connection of a server whose answer to each request is a frame
// or more. Frames are written one at a time, the first of them before any other.
type h2 struct {
	conn   net.Conn
	answer func(c *h2, stream uint32)
	turn   chan struct{} // holds a value while nobody writes
}

func (c *h2) write(f frame) {
	b := []byte{byte(len(f.payload) >> 16), byte(len(f.payload) >> 8), byte(len(f.payload)), f.kind, f.flags}
	b = binary.BigEndian.AppendUint32(b, f.stream)
	<-c.turn
	c.begin(append(b, f.payload...))
}

// begin writes b while it is nobody's turn, and ends that.
func (c *h2) begin(b []byte) {
	c.conn.Write(b)
	c.turn <- struct{}{}
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
	go c.begin([]byte{0, 0, 0, frameSettings, 0, 0, 0, 0, 0})
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

// ok answers 200: ":status: 200" is the 8th entry of the static table (RFC 7541
// appendix A).
func (c *h2) ok(stream uint32) {
	c.write(frame{kind: frameHeaders, flags: endHeaders | endStream, stream: stream, payload: []byte{0x88}})
}

// serveH2 returns a client whose connections are served with answer, over HTTP/2
// without TLS, and the count of requests that were seen.
func serveH2(t *testing.T, answer func(c *h2, stream uint32, request int)) (*http.Transport, *int) {
	p, seen := newPipes(), new(int)
	go func() {
		for {
			conn, err := p.Accept()
			if err != nil {
				return
			}
			c := &h2{conn: conn, turn: make(chan struct{}, 1), answer: func(c *h2, stream uint32) {
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

// net/http repeats a refused stream itself as often as six times, if it can; the
// error surfaces when it cannot, which is when heed's turn comes.
func TestAStreamThatWasRefusedIsSentAgainWhateverItsMethod(t *testing.T) {
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
				assert.Equal(t, 200, status(t, &heed.Transport{Base: base, Budget: heed.Unlimited, Retry: heed.RetryPolicy{MaxAttempts: 10}}, req))
				assert.Equal(t, 10, *seen)
			})
		})
	}
}

func TestAStreamThatWasCutOffIsSentAgainOnlyIfIdempotent(t *testing.T) {
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

func TestAConnectionThatGoesAwayIsReplaced(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		base, seen := serveH2(t, func(c *h2, stream uint32, n int) {
			if n == 1 { // a shutdown that has processed nothing
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

// A response whose body never ends is not read before it is replaced: on HTTP/2
// closing it costs a stream, not the connection.
func TestNothingIsDrainedOnHTTP2(t *testing.T) {
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
