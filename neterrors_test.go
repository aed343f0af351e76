package heed_test

import (
	"bytes"
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"path/filepath"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/heedhttp/heed"
)

// A peer handles a connection, which is closed when it returns.
type peer func(net.Conn)

// listen returns the address of a socket whose connections p handles.
func (p peer) listen(t *testing.T) (addr string) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	t.Cleanup(func() { l.Close() })
	go func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				defer conn.Close()
				p(conn)
			}()
		}
	}()
	return l.Addr().String()
}

// nobody returns an address at which nothing listens. Its port is in use until the end of t, so that nobody
// else begins to listen there.
func nobody(t *testing.T) (addr string) {
	socket, err := syscall.Socket(syscall.AF_INET, syscall.SOCK_STREAM, 0)
	require.NoError(t, err)
	t.Cleanup(func() { syscall.Close(socket) })
	require.NoError(t, syscall.Bind(socket, &syscall.SockaddrInet4{Addr: [4]byte{127, 0, 0, 1}}))
	name, err := syscall.Getsockname(socket)
	require.NoError(t, err)
	return fmt.Sprint("127.0.0.1:", name.(*syscall.SockaddrInet4).Port)
}

func silent(conn net.Conn) { io.Copy(io.Discard, conn) }

// closes reads a request, or what begins a handshake, and closes the connection.
func closes(conn net.Conn) { conn.Read(make([]byte, 4096)) }

func resets(conn net.Conn) {
	closes(conn)
	conn.(*net.TCPConn).SetLinger(0)
}

// says returns a peer that answers with these texts, one after the other.
func says(texts ...string) peer {
	return func(conn net.Conn) {
		for _, text := range texts {
			conn.Read(make([]byte, 4096))
			io.WriteString(conn, text)
		}
	}
}

// goesAway answers a stream of HTTP/2 with a GOAWAY that excludes it.
func goesAway(conn net.Conn) {
	c := &h2{conn: conn, idle: make(chan struct{}, 1)}
	c.answer = func(c *h2, stream uint32) { c.write(frame{kind: frameGoAway, payload: make([]byte, 8)}) }
	c.serve()
}

// lookUps returns a transport whose look-ups all get a response code of DNS (RFC 1035 section 4.1.1).
func lookUps(t *testing.T, code byte) *http.Transport {
	server, err := net.ListenPacket("udp", "127.0.0.1:0")
	require.NoError(t, err)
	t.Cleanup(func() { server.Close() })
	go func() {
		for b := make([]byte, 1500); ; {
			n, from, err := server.ReadFrom(b)
			if err != nil {
				return
			}
			b[2], b[3] = b[2]|0x80, 0x80|code
			server.WriteTo(b[:n], from)
		}
	}()
	resolver := &net.Resolver{PreferGo: true, Dial: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "udp", server.LocalAddr().String())
	}}
	return &http.Transport{DialContext: (&net.Dialer{Resolver: resolver}).DialContext}
}

func through(t *testing.T, proxy string) *http.Transport {
	u, err := url.Parse(proxy)
	require.NoError(t, err)
	return &http.Transport{Proxy: http.ProxyURL(u)}
}

// The errors of net/http on real sockets.
func TestRealErrorsAreToldApart(t *testing.T) {
	const (
		noConnection = "there was no connection"
		unsent       = "nothing was sent"
		perhapsSent  = "perhaps something was sent"
		final        = "a retry is in vain"

		serverFailure, noSuchName = 2, 3 // response codes of DNS

		alert       = "\x15\x03\x03\x00\x02\x02\x28"             // a fatal handshake_failure (RFC 8446 section 6.2)
		noneNeeded  = "\x05\x00"                                 // SOCKS: no credential (RFC 1928 section 3)
		hostRefused = "\x05\x05\x00\x01\x00\x00\x00\x00\x00\x00" // and connection refused (section 6)
	)
	plain, socket := new(http.Transport), filepath.Join(t.TempDir(), "none")
	unix := &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "unix", socket)
	}}
	overHTTP2 := &http.Transport{Protocols: new(http.Protocols)}
	overHTTP2.Protocols.SetUnencryptedHTTP2(true)
	overTLS := &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}}
	untrusted := httptest.NewUnstartedServer(http.NotFoundHandler())
	untrusted.Config.ErrorLog = log.New(io.Discard, "", 0)
	untrusted.StartTLS()
	defer untrusted.Close()

	for _, c := range []struct {
		name string
		base *http.Transport
		url  string
		want string
	}{
		{"refused", plain, "http://" + nobody(t), noConnection},
		{"a slow dial", &http.Transport{DialContext: (&net.Dialer{Timeout: 1}).DialContext}, "http://" + nobody(t), noConnection},
		{"no such socket", unix, "http://api.test", noConnection},
		{"no such port", plain, "http://127.0.0.1:99999", final},
		{"a failed look-up", lookUps(t, serverFailure), "http://api.test", noConnection},
		{"no such name", lookUps(t, noSuchName), "http://api.test", final},

		{"a closed connection", plain, "http://" + peer(closes).listen(t), perhapsSent},
		{"a reset connection", plain, "http://" + peer(resets).listen(t), perhapsSent},
		{"no header in time", &http.Transport{ResponseHeaderTimeout: 1}, "http://" + peer(silent).listen(t), perhapsSent},
		{"no HTTP", plain, "http://" + says("hello\r\n").listen(t), final},
		{"a closed connection of HTTP/2", overHTTP2, "http://" + peer(closes).listen(t), perhapsSent},
		{"GOAWAY", overHTTP2, "http://" + peer(goesAway).listen(t), unsent},

		{"a slow handshake", &http.Transport{TLSHandshakeTimeout: 1}, "https://" + peer(silent).listen(t), unsent},
		{"an untrusted certificate", plain, untrusted.URL, final},
		{"no TLS", overTLS, "https://" + says("HTTP/1.1 400 Bad Request\r\n\r\n").listen(t), final},
		// Nothing was sent, but the error does not say that it comes from the handshake.
		{"a closed handshake", overTLS, "https://" + peer(closes).listen(t), perhapsSent},
		{"a reset handshake", overTLS, "https://" + peer(resets).listen(t), perhapsSent},
		{"an alert", overTLS, "https://" + says(alert).listen(t), perhapsSent},

		{"a proxy refuses connections", through(t, "http://"+nobody(t)), "http://api.test", noConnection},
		{"also a tunnel", through(t, "http://"+nobody(t)), "https://api.test", noConnection},
		{"also SOCKS", through(t, "socks5://"+nobody(t)), "http://api.test", noConnection},
		{"SOCKS cannot connect", through(t, "socks5://"+says(noneNeeded, hostRefused).listen(t)), "http://api.test", noConnection},
		{"SOCKS closes", through(t, "socks5://"+peer(closes).listen(t)), "http://api.test", noConnection},
		// Here the error has only the text of the status.
		{"no tunnel", through(t, "http://"+says("HTTP/1.1 502 Bad Gateway\r\n\r\n").listen(t)), "https://api.test", perhapsSent},
	} {
		t.Run(c.name, func(t *testing.T) {
			defer c.base.CloseIdleConnections()
			req, err := http.NewRequest("POST", c.url, nil)
			require.NoError(t, err)
			if c.want == unsent { // net/http itself sends again what has no body
				req.Body = io.NopCloser(bytes.NewReader([]byte("content")))
			}
			_, err = c.base.RoundTrip(req)
			require.Error(t, err)
			said := perhapsSent
			switch {
			case heed.FinalError(err):
				said = final
			case heed.FailedDial(err):
				said = noConnection
			case heed.NotSent(err):
				said = unsent
			}
			assert.Equal(t, c.want, said, "%T %[1]v", err)
		})
	}
}

// The error of a dial that the caller's context ends is the caller's.
func TestADialThatTheContextEndsIsNotRepeated(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
	defer cancel()
	var dials atomic.Int64
	base := &http.Transport{DialContext: func(ctx context.Context, network, addr string) (net.Conn, error) {
		dials.Add(1)
		<-ctx.Done()
		return new(net.Dialer).DialContext(ctx, network, addr)
	}}
	_, err := (&heed.Transport{Base: base}).RoundTrip(get(ctx))
	assert.ErrorIs(t, err, context.DeadlineExceeded)
	assert.EqualValues(t, 1, dials.Load())
}
