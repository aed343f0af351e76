package heed_test

import (
	"bufio"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/heedhttp/heed"
)

// xnetStreamError has the shape of http2.StreamError in golang.org/x/net.
type xnetStreamError struct {
	StreamID uint32
	Code     xnetErrCode
	Cause    error
}

type xnetErrCode uint32

func (e xnetStreamError) Error() string { return fmt.Sprintf("stream error: %d", e.Code) }

type nonRetriable struct{ error }

func (nonRetriable) NonRetriable() {}

type retryable struct {
	error
	may bool
}

func (e retryable) Retryable() bool { return e.may }

type retryableError struct {
	error
	may bool
}

func (e retryableError) RetryableError() bool { return e.may }

type apiError struct {
	*code
	StreamID uint32
}

type code struct{ Code uint32 }

func (*apiError) Error() string { return "no such thing" }

// The table says which errors of a Base are retried for any method, which only for idempotent
// requests, and which never.
func TestErrorsAreRetriedByWhatTheyProve(t *testing.T) {
	const never, idempotent, always = 0, 1, 2
	opError := func(op string, err error) error { return &net.OpError{Op: op, Net: "tcp", Err: err} }
	for _, c := range []struct {
		err   error
		worth int
	}{
		// net
		{opError("dial", syscall.ECONNREFUSED), always},
		{opError("dial", os.ErrDeadlineExceeded), always},
		{opError("proxyconnect", errors.New("Bad Gateway")), always},
		{&net.DNSError{Err: "server misbehaving", Name: "api.test", IsTemporary: true}, always},
		{&net.DNSError{Err: "i/o timeout", Name: "api.test", IsTimeout: true}, always},
		{&net.DNSError{Err: "no such host", Name: "api.test", IsNotFound: true}, never},
		{opError("dial", &net.AddrError{Err: "missing port in address", Addr: "api.test"}), never},
		{opError("read", syscall.ECONNRESET), idempotent},
		{opError("write", syscall.EPIPE), idempotent},
		{opError("read", os.ErrDeadlineExceeded), idempotent},
		{net.ErrClosed, idempotent},
		{io.EOF, idempotent},
		{io.ErrUnexpectedEOF, idempotent},
		// net/http
		{errors.New("http: server closed idle connection"), idempotent},
		{errors.New("http: putIdleConn: connection is in bad state"), idempotent},
		{errors.New("net/http: HTTP/1.x transport connection broken: EOF"), idempotent},
		{errors.New("net/http: timeout awaiting response headers"), idempotent},
		{errors.New("net/http: cannot rewind body after connection loss"), idempotent},
		{errors.New("net/http: TLS handshake timeout"), always},
		{errors.New(`unsupported protocol scheme "ftp"`), never},
		{errors.New(`net/http: invalid header field name "a b"`), never},
		{errors.New(`net/http: invalid method "a b"`), never},
		{errors.New("http: no Host in request URL"), never},
		{errors.New("net/http: request canceled"), never},
		{errors.New("net/http: request canceled while waiting for connection"), never},
		{errors.New(`net/http: HTTP/1.x transport connection broken: malformed HTTP response "hello"`), never},
		{errors.New(`net/http: HTTP/1.x transport connection broken: malformed MIME header line: x`), never},
		{errors.New("net/http: server response headers exceeded 10485760 bytes; aborted"), never},
		{http.ErrSkipAltProtocol, never},
		// HTTP/2, of net/http and of golang.org/x/net
		{errors.New("http2: client connection lost"), idempotent},
		{errors.New("http2: client connection force closed via ClientConn.Close"), idempotent},
		{errors.New("http2: timeout awaiting response headers"), idempotent},
		{errors.New("http2: client conn not usable"), always},
		{errors.New("http2: Transport received Server's graceful shutdown GOAWAY"), always},
		{
			errors.New(
				"http2: Transport: cannot retry err [http2: Transport received Server's graceful shutdown GOAWAY]" +
					" after Request.Body was written; define Request.GetBody to avoid this error"), always},
		{
			errors.New(
				"http2: Transport: cannot retry err [stream error: stream ID 3; REFUSED_STREAM; received from peer]" +
					" after Request.Body was written; define Request.GetBody to avoid this error"), always},
		{
			errors.New(
				"http2: Transport: cannot retry err [stream error: stream ID 3; PROTOCOL_ERROR; received from peer]" +
					" after Request.Body was written; define Request.GetBody to avoid this error"), idempotent},
		{
			errors.New(
				`http2: server sent GOAWAY and closed the connection; LastStreamID=1, ` +
					`ErrCode=NO_ERROR, debug="http2: client conn not usable"`), idempotent},
		{xnetStreamError{3, 7, nil}, always}, // REFUSED_STREAM
		{&xnetStreamError{3, 7, nil}, always},
		{xnetStreamError{3, 8, nil}, idempotent}, // CANCEL
		{xnetStreamError{3, 11, nil}, idempotent},
		{errors.New("malformed response from server: missing status pseudo header"), never},
		{errors.New("http2: response header list larger than advertised limit"), never},
		// TLS
		{tls.RecordHeaderError{Msg: "first record does not look like a TLS handshake"}, never},
		{&tls.CertificateVerificationError{Err: x509.UnknownAuthorityError{}}, never},
		{x509.HostnameError{Host: "api.test", Certificate: new(x509.Certificate)}, never},
		{x509.CertificateInvalidError{Cert: new(x509.Certificate), Reason: x509.Expired}, never},
		{errors.New("remote error: tls: handshake failure"), idempotent},
		// other packages
		{&retrieveError{&http.Response{StatusCode: 400}}, never},
		{&retrieveError{}, idempotent},
		{(*retrieveError)(nil), idempotent},
		{nonRetriable{io.EOF}, never},
		{retryable{io.EOF, false}, never},
		{retryable{io.EOF, true}, idempotent},
		{retryableError{io.EOF, false}, never},
		{retryableError{io.EOF, true}, idempotent},
		{nonRetriable{&net.DNSError{Err: "i/o timeout", IsTimeout: true}}, never},
		{&apiError{}, idempotent}, // Code is in an embedded nil pointer: reflect cannot read it
		{&heed.OverdueError{Key: "http://api.test"}, never},
		{errors.New("whatever"), idempotent},
	} {
		for how, err := range map[string]error{
			"as it is": c.err, "wrapped": fmt.Errorf("proxy: %w", c.err),
			"joined":          errors.Join(io.ErrClosedPipe, c.err),
			"in a *url.Error": &url.Error{Op: "Get", URL: "http://api.test", Err: c.err},
		} {
			for method, least := range map[string]int{"GET": idempotent, "POST": always} {
				if method == "POST" && how == "joined" {
					least++ // the other cause proves nothing
				}
				req, _ := http.NewRequest(method, "http://api.test/", nil)
				assert.Equal(t, c.worth >= least, heed.Worthwhile(heed.Attempt{Request: req, Err: err}), "%s, %s: %v", method, how,
					c.err)
			}
		}
	}
}

// RFC 9110 section 9.2.2: the head may be all that the server needs to act, even if the body was
// not read.
func TestAPostIsNotRetriedOnceItsHeadWasSent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		heads := 0
		base := &http.Transport{ExpectContinueTimeout: time.Hour,
			DialContext: func(context.Context, string, string) (net.Conn, error) {
				client, server := net.Pipe()
				go func() {
					_, err := http.ReadRequest(bufio.NewReader(server))
					assert.NoError(t, err)
					heads++
					server.Close()
				}()
				return client, nil
			}}
		body := newBody("content")
		req := stream(t.Context(), "POST", body)
		req.Header.Set("Expect", "100-continue")
		_, err := (&heed.Transport{Base: base}).RoundTrip(req)
		require.Error(t, err)
		assert.Equal(t, 1, heads)
	})
}
