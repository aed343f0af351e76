package heed_test

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptrace"
	"net/textproto"
	"net/url"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/heedhttp/heed"
)

// The rules that a retrying RoundTripper has to keep, one test each, with the zero Transport where
// possible. Tests of the single files have the details.

func TestTheRequestIsNeverModified(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newScript(throttle("1"), unavailable, ok)
		req := put(t.Context(), "content")
		req.Header.Set("Accept", "*/*")
		before, header, body := *req, req.Header.Clone(), req.Body
		tr := &heed.Transport{Base: s, Retry: heed.RetryPolicy{AttemptTimeout: time.Minute}}
		assert.Equal(t, 200, status(t, tr, req))
		assert.Equal(t, 3, s.count())
		assert.Equal(t, header, req.Header)
		assert.True(t, body == req.Body)
		assert.Equal(t, before.ContentLength, req.ContentLength)
		assert.Equal(t, before.Context(), req.Context())
		assert.Equal(t, before.URL, req.URL)
		assert.Equal(t, before.Trailer, req.Trailer)
	})
}

// atEOF calls f when r has ended.
type atEOF struct {
	io.Reader
	f func()
}

func (l atEOF) Read(p []byte) (int, error) {
	n, err := l.Reader.Read(p)
	if err == io.EOF {
		l.f()
	}
	return n, err
}

func TestTrailersSetWhileReadingTheBodyAreSent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var trailers []string
		first := true
		base := roundTripFunc(func(req *http.Request) (*http.Response, error) {
			io.Copy(io.Discard, req.Body)
			req.Body.Close()
			trailers = append(trailers, req.Trailer.Get("Checksum"))
			if first {
				first = false
				return response(req, throttle("1")), nil
			}
			return response(req, ok), nil
		})
		req := put(t.Context(), "")
		req.Trailer = http.Header{"Checksum": nil}
		sent := 0
		req.GetBody = func() (io.ReadCloser, error) {
			return io.NopCloser(atEOF{strings.NewReader("x"), func() {
				sent++
				req.Trailer.Set("Checksum", fmt.Sprint(sent))
			}}), nil
		}
		req.Body, _ = req.GetBody()
		assert.Equal(t, 200, status(t, &heed.Transport{Base: base}, req))
		assert.Equal(t, []string{"1", "2"}, trailers)
	})
}

// refusingPacer refuses every request.
type refusingPacer struct{ err error }

func (r refusingPacer) Wait(*http.Request) error { return r.err }
func (refusingPacer) Observe(heed.Attempt)       {}

func TestTheRequestBodyIsClosedExactlyOnce(t *testing.T) {
	cancelled := func(t *testing.T) context.Context {
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		return ctx
	}
	cooled := &heed.LocalBoard{}
	none := &heed.LocalBudget{Ratio: -1, MinPerSecond: -1}
	for name, c := range map[string]struct {
		tr      *heed.Transport
		replies []reply
		ctx     func(*testing.T) context.Context
		getBody func(content string) func() (io.ReadCloser, error)
		before  func()
	}{
		"success":         {replies: []reply{ok}},
		"retried, unread": {replies: []reply{{status: 429, unread: true}, ok}},
		"half read":       {replies: []reply{unavailable}},
		"error, unread":   {replies: []reply{{err: errBroken, unread: true}, ok}},
		"error, read":     {replies: []reply{{err: errBroken}}},
		"cancelled before": {replies: []reply{ok}, ctx: cancelled,
			tr: &heed.Transport{Pacer: refusingPacer{context.Canceled}}},
		"refused by the pacer": {replies: []reply{ok}, tr: &heed.Transport{Pacer: refusingPacer{&heed.OverdueError{}}}},
		"refused by a cooldown": {replies: []reply{ok}, tr: &heed.Transport{Board: cooled},
			before: func() { cooled.Post(context.Background(), "http://api.example.com", time.Hour, 0) }},
		"refused by the budget": {replies: []reply{{status: 503, unread: true}}, tr: &heed.Transport{Budget: none}},
		"no retries": {replies: []reply{unavailable},
			tr: &heed.Transport{Retry: heed.RetryPolicy{MaxAttempts: 1}}},
		"kept for replay": {replies: []reply{unavailable, ok},
			tr: &heed.Transport{Retry: heed.RetryPolicy{MaxBodyBuffer: 100}}},
		"too long to keep": {replies: []reply{unavailable, ok},
			tr: &heed.Transport{Retry: heed.RetryPolicy{MaxBodyBuffer: 2}}},
		"GetBody fails": {replies: []reply{unavailable}, getBody: func(string) func() (io.ReadCloser, error) {
			return func() (io.ReadCloser, error) { return nil, errors.New("no more") }
		}},
		"GetBody": {replies: []reply{unavailable, ok}, getBody: func(s string) func() (io.ReadCloser, error) {
			return func() (io.ReadCloser, error) { return readCloser(s), nil }
		}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ctx := t.Context()
				if c.ctx != nil {
					ctx = c.ctx(t)
				}
				if c.before != nil {
					c.before()
				}
				tr := c.tr
				if tr == nil {
					tr = &heed.Transport{}
				}
				tr.Base = newScript(c.replies...)
				b := newBody("content")
				req := stream(ctx, "PUT", b)
				if c.getBody != nil {
					req.GetBody = c.getBody("content")
				}
				resp, err := tr.RoundTrip(req)
				if err == nil {
					resp.Body.Close()
				}
				_, closes := b.counts()
				assert.Equal(t, 1, closes)
			})
		})
	}
}

func TestRetriesUseABodyFromGetBody(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var sent []io.ReadCloser
		base := roundTripFunc(func(req *http.Request) (*http.Response, error) {
			sent = append(sent, req.Body)
			return response(req, throttle("1")), nil
		})
		given, fresh := newBody("content"), []io.ReadCloser{}
		req := stream(t.Context(), "PUT", given)
		req.GetBody = func() (io.ReadCloser, error) {
			fresh = append(fresh, newBody("content"))
			return fresh[len(fresh)-1], nil
		}
		assert.Equal(t, 429, status(t, &heed.Transport{Base: base}, req))
		require.Len(t, sent, 4)
		assert.Same(t, given, sent[0])
		require.Len(t, fresh, 3, "GetBody is called only for retries")
		for i := range fresh {
			assert.Same(t, fresh[i], sent[i+1])
		}
	})
}

func TestNoBodyStaysNoBody(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, none := range []io.ReadCloser{nil, http.NoBody} {
			s := newScript(throttle("1"), ok)
			req := get(t.Context())
			req.Body = none
			assert.Equal(t, 200, status(t, &heed.Transport{Base: s}, req))
			for _, seen := range s.seen {
				assert.Equal(t, none, seen.req.Body)
			}
		}
	})
}

func TestABodyInMemoryIsNotWrapped(t *testing.T) {
	for _, trace := range []*heed.Trace{nil, {}} {
		s := newScript(ok)
		req := put(t.Context(), "content")
		assert.Equal(t, 200, status(t, &heed.Transport{Base: s, Trace: trace}, req))
		assert.Same(t, req, s.seen[0].req, "a request that needs no change is the caller's own")
	}
}

func TestLengthEncodingAndTrailerStayTheSame(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newScript(throttle("1"), unavailable, ok)
		req := put(t.Context(), "content")
		req.TransferEncoding = []string{"identity"}
		req.Trailer = http.Header{"Checksum": {"1"}}
		assert.Equal(t, 200, status(t, &heed.Transport{Base: s}, req))
		for _, seen := range s.seen {
			assert.EqualValues(t, 7, seen.req.ContentLength)
			assert.Equal(t, req.TransferEncoding, seen.req.TransferEncoding)
			assert.Equal(t, req.Trailer, seen.req.Trailer)
			assert.NotNil(t, seen.req.GetBody)
			assert.Equal(t, "content", seen.body)
		}
	})
}

func TestAStreamIsRetriedOnlyIfUnread(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		unread := newScript(reply{status: 429, unread: true}, reply{err: errBroken, unread: true}, ok)
		assert.Equal(t, 200, status(t, &heed.Transport{Base: unread}, stream(t.Context(), "PUT", newBody("content"))))
		assert.Equal(t, []string{"", "", "content"}, unread.bodies())

		half := newScript(reply{status: 429, unread: true}, unavailable, ok)
		assert.Equal(t, 503, status(t, &heed.Transport{Base: half}, stream(t.Context(), "PUT", newBody("content"))))
		assert.Equal(t, 2, half.count())
	})
}

func TestAStaleGetBodyCanBeIgnored(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newScript(throttle("1"), ok)
		req := put(t.Context(), "what the caller wrote")
		req.Body, req.ContentLength = readCloser("what the middleware made of it"), -1
		policy := heed.RetryPolicy{IgnoreGetBody: true, MaxBodyBuffer: 1 << 10}
		assert.Equal(t, 200, status(t, &heed.Transport{Base: s, Retry: policy}, req))
		assert.Equal(t, []string{"what the middleware made of it", "what the middleware made of it"}, s.bodies())
	})
}

func TestThereIsEitherAResponseOrAnError(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		last := newBody("the reason")
		s := newScript(unavailable, unavailable, unavailable, reply{status: 503, body: last})
		resp := roundTrip(t, &heed.Transport{Base: s, Budget: heed.Unlimited}, get(t.Context()))
		assert.Equal(t, 503, resp.StatusCode)
		reads, closes := last.counts()
		assert.Zero(t, reads+closes, "the last response is returned unread")
		assert.Equal(t, "the reason", content(t, resp))

		both := newBody("")
		tr := &heed.Transport{Retry: heed.RetryPolicy{MaxAttempts: 1}}
		tr.Base = roundTripFunc(func(req *http.Request) (*http.Response, error) {
			return response(req, reply{status: 200, body: both}), errBroken
		})
		resp, err := tr.RoundTrip(get(t.Context()))
		assert.Nil(t, resp)
		assert.Equal(t, errBroken, err)
		_, closes = both.counts()
		assert.Equal(t, 1, closes)

		tr.Base = roundTripFunc(func(req *http.Request) (*http.Response, error) { return nil, nil })
		_, err = tr.RoundTrip(get(t.Context()))
		assert.ErrorContains(t, err, "neither")
	})
}

func TestTheResponseIsTheOneBaseMade(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var made *http.Response
		base, _ := serve(t, func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Trailer", "Checksum")
			io.WriteString(w, "content")
			w.Header().Set("Checksum", "42")
		})
		tr := &heed.Transport{Base: roundTripFunc(func(req *http.Request) (resp *http.Response, err error) {
			made, err = base.RoundTrip(req)
			return made, err
		})}
		resp := roundTrip(t, tr, get(t.Context()))
		assert.Same(t, made, resp)
		assert.Equal(t, "content", content(t, resp))
		assert.Equal(t, "42", resp.Trailer.Get("Checksum"))
	})
}

func TestTheResponsesRequestIsNeverHeedsCopy(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newScript(throttle("1"), ok)
		req := put(t.Context(), "content")
		resp := roundTrip(t, &heed.Transport{Base: s, Retry: heed.RetryPolicy{AttemptTimeout: time.Minute}}, req)
		resp.Body.Close()
		assert.Same(t, req, resp.Request)
		assert.NotSame(t, req, s.seen[1].req)
	})
}

func TestTheBodyOfA101StaysAConnection(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		base, _ := serve(t, func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Connection", "Upgrade")
			w.Header().Set("Upgrade", "echo")
			w.WriteHeader(101)
			conn, buf, err := http.NewResponseController(w).Hijack()
			if !assert.NoError(t, err) {
				return
			}
			defer conn.Close()
			line, _ := buf.ReadString('\n')
			io.WriteString(conn, "echo "+line)
		})
		req := get(t.Context())
		req.Header.Set("Connection", "Upgrade")
		req.Header.Set("Upgrade", "echo")
		resp := roundTrip(t, &heed.Transport{Base: base, Retry: heed.RetryPolicy{AttemptTimeout: time.Minute}}, req)
		defer resp.Body.Close()
		conn, isConn := resp.Body.(io.ReadWriteCloser)
		require.True(t, isConn)
		time.Sleep(2 * time.Minute) // longer than AttemptTimeout
		io.WriteString(conn, "hello\n")
		answer, err := io.ReadAll(conn)
		assert.NoError(t, err)
		assert.Equal(t, "echo hello\n", string(answer))
	})
}

func TestAttemptTimeoutDoesNotCutAStreamingBody(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		base, _ := serve(t, func(w http.ResponseWriter, r *http.Request) {
			for range 10 {
				io.WriteString(w, ".")
				http.NewResponseController(w).Flush()
				time.Sleep(time.Second)
			}
		})
		resp := roundTrip(t, &heed.Transport{Base: base, Retry: heed.RetryPolicy{AttemptTimeout: 2 * time.Second}},
			get(t.Context()))
		assert.Equal(t, "..........", content(t, resp))
	})
}

func TestAnAttemptTimeoutIsNotTheCallersDeadline(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		hangs := newScript(reply{took: time.Hour})
		tr := &heed.Transport{Base: hangs, Retry: heed.RetryPolicy{AttemptTimeout: time.Second, MaxAttempts: 2}}
		_, err := tr.RoundTrip(get(t.Context()))
		assert.Equal(t, 2, hangs.count(), "an attempt that timed out is retried")
		var timeout interface{ Timeout() bool }
		require.ErrorAs(t, err, &timeout)
		assert.True(t, timeout.Timeout())
		assert.ErrorContains(t, err, "no response within RetryPolicy.AttemptTimeout (1s)")
		assert.NotErrorIs(t, err, context.DeadlineExceeded, "it was not the caller's deadline")

		hangs = newScript(reply{took: time.Hour})
		tr.Base = hangs
		ctx, cancel := context.WithTimeout(t.Context(), 500*time.Millisecond)
		defer cancel()
		_, err = tr.RoundTrip(get(ctx))
		assert.Equal(t, 1, hangs.count())
		assert.ErrorIs(t, err, context.DeadlineExceeded)
	})
}

func TestAWaitEndsWithTheContextAndCancel(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		start := time.Now()
		ctx, cancel := context.WithCancelCause(t.Context())
		time.AfterFunc(time.Second, func() { cancel(errors.New("no longer needed")) })
		_, err := (&heed.Transport{Base: newScript(throttle("30"))}).RoundTrip(get(ctx))
		assert.ErrorIs(t, err, context.Canceled)
		assert.ErrorContains(t, err, "status 429")
		assert.Equal(t, time.Second, time.Since(start))

		start = time.Now()
		req := get(t.Context())
		stop := make(chan struct{})
		//lint:ignore SA1019 callers that set it expect it to work
		req.Cancel = stop
		time.AfterFunc(time.Second, func() { close(stop) })
		_, err = (&heed.Transport{Base: newScript(throttle("30"))}).RoundTrip(req)
		assert.ErrorIs(t, err, context.Canceled)
		assert.Equal(t, time.Second, time.Since(start))
	})
}

func TestAWaitBeyondTheDeadlineIsNotBegun(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		start := time.Now()
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		defer cancel()
		b := newBody("the reason")
		resp := roundTrip(t,
			&heed.Transport{Base: newScript(reply{status: 429, header: []string{"Retry-After", "11"}, body: b})}, get(ctx))
		assert.Equal(t, 429, resp.StatusCode)
		assert.Zero(t, time.Since(start))
		reads, closes := b.counts()
		assert.Zero(t, reads+closes)
		resp.Body.Close()
	})
}

func TestTheBodyIsDrainedBetweenDecisionAndWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		start := time.Now()
		b := newBody("busy")
		undecided := true
		tr := &heed.Transport{Base: newScript(reply{status: 503, header: []string{"Retry-After", "5"}, body: b}, ok)}
		tr.Retry.If = func(a heed.Attempt) bool {
			reads, closes := b.counts()
			undecided = undecided && (a.Number > 1 || reads+closes == 0)
			return heed.Worthwhile(a)
		}
		assert.Equal(t, 200, status(t, tr, get(t.Context())))
		assert.True(t, undecided, "nothing was read before the decision")
		assert.Equal(t, start, b.closed)
		between(t, 5*time.Second, time.Since(start), 6500*time.Millisecond)
	})
}

// slowBody is a body that never ends, and gives n bytes a second.
type slowBody struct {
	body
	n int
}

func (e *slowBody) Read(p []byte) (int, error) {
	time.Sleep(time.Second / time.Duration(e.n))
	e.r = strings.NewReader("x")
	return e.body.Read(p[:1])
}

func TestDrainingIsBoundedInBytesAndTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		drain := func(r reply, length int64) (reads, closes int, took time.Duration) {
			start, b := time.Now(), r.body.(interface{ counts() (int, int) })
			first := true
			tr := &heed.Transport{Retry: heed.RetryPolicy{Backoff: func(heed.Attempt) time.Duration { return 0 }}}
			tr.Base = roundTripFunc(func(req *http.Request) (*http.Response, error) {
				if !first {
					return response(req, ok), nil
				}
				first = false
				resp := response(req, r)
				resp.ContentLength = length
				return resp, nil
			})
			assert.Equal(t, 200, status(t, tr, get(t.Context())))
			synctest.Wait() // until the drainer has closed the body
			reads, closes = b.counts()
			return reads, closes, time.Since(start)
		}
		large := strings.Repeat("x", 1<<20)

		b := newBody(large)
		_, closes, _ := drain(reply{status: 503, body: b}, -1)
		assert.Equal(t, 1, closes)
		rest, _ := io.ReadAll(b.r)
		assert.Equal(t, 1<<20-16<<10-1, len(rest), "16 KiB are read, and one byte to see that there is more")

		reads, closes, _ := drain(reply{status: 503, body: newBody(large)}, 1<<20)
		assert.Equal(t, []int{0, 1}, []int{reads, closes}, "a body that is known to be long is closed unread")

		_, closes, took := drain(reply{status: 503, body: &slowBody{n: 100}}, -1)
		assert.Equal(t, 1, closes)
		between(t, 100*time.Millisecond, took, 120*time.Millisecond)

		reads, closes, _ = drain(reply{status: 503, proto: 2, body: newBody("small")}, 5)
		assert.Equal(t, []int{0, 1}, []int{reads, closes}, "on HTTP/2 draining has no use")
	})
}

type idleCloser struct {
	http.RoundTripper
	calls int
}

func (c *idleCloser) CloseIdleConnections() { c.calls++ }

func TestIdleConnectionsAreClosedOnlyOnDemand(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		base := &idleCloser{RoundTripper: newScript(unavailable)}
		client := &http.Client{Transport: &heed.Transport{Base: base}}
		resp, err := client.Get("http://api.example.com")
		require.NoError(t, err)
		resp.Body.Close()
		assert.Zero(t, base.calls)
		client.CloseIdleConnections()
		assert.Equal(t, 1, base.calls)
	})
}

func TestRedirectsAreLeftToTheClient(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, location := range []string{"/elsewhere", "http://%zz"} {
			s := newScript(reply{status: 302, header: []string{"Location", location, "Retry-After", "1", "Set-Cookie", "a=b"}})
			resp := roundTrip(t, &heed.Transport{Base: s, Trace: &heed.Trace{}}, get(t.Context()))
			assert.Equal(t, 302, resp.StatusCode)
			assert.Equal(t, location, resp.Header.Get("Location"))
			assert.Equal(t, 1, s.count())
			assert.Empty(t, s.seen[0].req.Header)
		}
	})
}

func TestErrSkipAltProtocolIsReturnedUnchanged(t *testing.T) {
	s := newScript(reply{err: http.ErrSkipAltProtocol})
	_, err := (&heed.Transport{Base: s}).RoundTrip(get(t.Context()))
	assert.True(t, err == http.ErrSkipAltProtocol, "net/http compares it with ==")
	assert.Equal(t, 1, s.count())
}

type timeout struct{ error }

func (timeout) Timeout() bool   { return true }
func (timeout) Temporary() bool { return true }

func TestErrorsKeepTheirCausesAndTimeouts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		record := tls.RecordHeaderError{Msg: "first record does not look like a TLS handshake"}
		_, err := (&heed.Transport{Base: newScript(reply{err: record})}).RoundTrip(get(t.Context()))
		assert.Equal(t, error(record), err, "the error of a single attempt is not wrapped: http.Client looks at its type")

		first, last := errors.New("first"), timeout{errors.New("last")}
		client := &http.Client{Transport: &heed.Transport{Budget: heed.Unlimited,
			Base: newScript(reply{err: first}, reply{err: last})}}
		_, err = client.Get("http://api.example.com")
		var outer *url.Error
		require.ErrorAs(t, err, &outer)
		assert.True(t, outer.Timeout())
		assert.True(t, outer.Temporary())
		assert.ErrorIs(t, err, first)
		assert.ErrorIs(t, err, last)
		assert.ErrorContains(t, err, "4 attempts failed: last")
	})
}

func TestAnEmptyIdempotencyKeyAllowsRetries(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, key := range []string{"Idempotency-Key", "X-Idempotency-Key"} {
			s := newScript(unavailable, ok)
			req := put(t.Context(), "content")
			req.Method = "POST"
			req.Header[key] = []string{}
			assert.Equal(t, 200, status(t, &heed.Transport{Base: s}, req))
			assert.Equal(t, 2, s.count())
		}
	})
}

func TestOnlyIdempotentOrUnprocessedRequestsAreRetried(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dial := reply{err: &net.OpError{Op: "dial", Err: errBroken}}
		for _, c := range []struct {
			method string
			first  reply
			want   int
		}{
			{"", unavailable, 2}, {"GET", unavailable, 2}, {"HEAD", unavailable, 2}, {"PUT", unavailable, 2},
			{"DELETE", unavailable, 2}, {"OPTIONS", unavailable, 2}, {"TRACE", unavailable, 2},
			{"PROPFIND", unavailable, 2}, {"REPORT", unavailable, 2}, {"SEARCH", unavailable, 2}, {"QUERY", unavailable, 2},
			{"POST", unavailable, 1}, {"PATCH", unavailable, 1}, {"get", unavailable, 1}, {"MKCOL", unavailable, 1},
			{"GET", reply{err: errBroken}, 2}, {"POST", reply{err: errBroken}, 1},
			{"POST", throttle("1"), 2}, {"POST", reply{status: 425}, 2}, {"POST", dial, 2},
			{"GET", reply{status: 404}, 1}, {"GET", reply{status: 501}, 1}, {"GET", reply{status: 403}, 1},
			{"POST", reply{status: 403, header: []string{"Retry-After", "1"}}, 2},
			{"GET", reply{status: 429, header: []string{"X-Should-Retry", "false"}}, 1},
			{"GET", reply{status: 503, header: []string{"Stripe-Should-Retry", "false"}}, 1},
		} {
			s := newScript(c.first, ok)
			req := get(t.Context())
			req.Method = c.method
			_, err := (&heed.Transport{Base: s}).RoundTrip(req)
			if c.want == 2 {
				assert.NoError(t, err)
			}
			assert.Equal(t, c.want, s.count(), "%s after %v %v", c.method, c.first.status, c.first.err)
		}
	})
}

// retrieveError has the shape of oauth2.RetrieveError.
type retrieveError struct{ Response *http.Response }

func (*retrieveError) Error() string { return `oauth2: "invalid_grant"` }

func TestPermanentErrorsAreNotRetried(t *testing.T) {
	for _, err := range []error{
		&tls.CertificateVerificationError{Err: errors.New("expired")},
		fmt.Errorf("proxy: %w", &tls.CertificateVerificationError{Err: errors.New("expired")}),
		&net.OpError{Op: "proxyconnect", Err: x509.UnknownAuthorityError{}},
		x509.HostnameError{Certificate: &x509.Certificate{}, Host: "api.example.com"},
		x509.CertificateInvalidError{},
		errors.New("unsupported protocol scheme \"ftp\""),
		errors.New("net/http: invalid header field name \"a b\""),
		&net.DNSError{Err: "no such host", IsNotFound: true},
		&heed.OverdueError{},
		&retrieveError{&http.Response{StatusCode: 400}},
	} {
		s := newScript(reply{err: err})
		_, got := (&heed.Transport{Base: s}).RoundTrip(get(t.Context()))
		assert.Equal(t, err, got)
		assert.Equal(t, 1, s.count(), "%v", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	s := newScript(reply{err: context.Canceled})
	cancel()
	_, err := (&heed.Transport{Base: s}).RoundTrip(get(ctx))
	assert.ErrorIs(t, err, context.Canceled)
	assert.Equal(t, 1, s.count())
}

// A 5xx that is not registered means the same as 500; a status above 599 is invalid, and final (RFC 9110
// section 15).
func TestWhich5xxAreRetried(t *testing.T) {
	for code := 500; code < 620; code++ {
		for _, method := range []string{"GET", "POST"} {
			req, _ := http.NewRequestWithContext(t.Context(), method, "http://api.example.com/", nil)
			got := heed.Worthwhile(heed.Attempt{Request: req, Response: &http.Response{StatusCode: code}})
			unregistered := code == 509 || 511 < code && code < 600
			want := method == "GET" && (unregistered || slices.Contains([]int{500, 502, 503, 504}, code))
			assert.Equal(t, want, got, "%s %d", method, code)
		}
	}
}

func TestNoFormOfRetryAfterIsRetriedEarly(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		then := time.Now().Add(20 * time.Second).UTC()
		for _, value := range []string{
			"20",
			then.Format(http.TimeFormat),
			then.Format("Monday, 02-Jan-06 15:04:05 GMT"),
			then.Format(time.ANSIC),
		} {
			for _, status := range []int{429, 503} {
				s := newScript(reply{status: status,
					header: []string{"Retry-After", value, "Date", then.Add(-20 * time.Second).Format(http.TimeFormat)}}, ok)
				resp := roundTrip(t, &heed.Transport{Base: s}, get(t.Context()))
				assert.Equal(t, 200, resp.StatusCode)
				between(t, 20*time.Second, s.times()[1], 26*time.Second)
			}
		}
	})
}

func TestAnEpochInRetryAfterIsNotWaitedFor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		start := time.Now()
		for _, value := range []string{"1795203030", "9223372037", "99999999999999999999"} {
			s := newScript(throttle(value), ok)
			assert.Equal(t, 429, status(t, &heed.Transport{Base: s}, get(t.Context())))
			assert.Equal(t, 1, s.count())
		}
		assert.Zero(t, time.Since(start))
	})
}

func TestTraceHooksFireForEachAttempt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		served := 0
		base, _ := serve(t, func(w http.ResponseWriter, r *http.Request) {
			if served++; served < 3 {
				w.WriteHeader(503)
			}
		})
		var resends []int
		tr := &heed.Transport{Base: roundTripFunc(func(req *http.Request) (*http.Response, error) {
			resends = append(resends, heed.ResendCount(req.Context()))
			return base.RoundTrip(req)
		})}
		wrote := 0
		ctx := httptrace.WithClientTrace(t.Context(), &httptrace.ClientTrace{WroteHeaders: func() { wrote++ }})
		assert.Equal(t, 200, status(t, tr, get(ctx)))
		assert.Equal(t, 3, wrote)
		assert.Equal(t, []int{0, 1, 2}, resends)
	})
}

func TestATransportIsSafeForConcurrentUse(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newScript(unavailable)
		tr := &heed.Transport{Base: s, Retry: heed.RetryPolicy{MaxAttempts: 2}}
		var wg sync.WaitGroup
		for i := range 500 {
			wg.Go(func() {
				req := put(t.Context(), fmt.Sprint(i))
				resp, err := tr.RoundTrip(req)
				if assert.NoError(t, err) {
					assert.Same(t, req, resp.Request)
				}
			})
		}
		wg.Wait()
		assert.Equal(t, 500+50+3, s.count(), "500 requests, a tenth of that, and the three of a new key")
	})
}

func TestAllWaitsFollowFakeTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		start := time.Now()
		s := newScript(unavailable, unavailable, unavailable, ok)
		tr := &heed.Transport{Base: s, Budget: heed.Unlimited,
			Retry: heed.RetryPolicy{Backoff: heed.Exponential(time.Second, time.Minute)}}
		assert.Equal(t, 200, status(t, tr, get(t.Context())))
		assert.Equal(t, []time.Duration{0, time.Second, 3 * time.Second, 7 * time.Second}, s.times())
		assert.Equal(t, 7*time.Second, time.Since(start))
	})
}

func TestStatusZeroAndInterimResponsesPassThrough(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newScript(reply{status: 0}, ok)
		assert.Equal(t, 0, status(t, &heed.Transport{Base: s, Trace: &heed.Trace{}}, get(t.Context())))
		assert.Equal(t, 1, s.count())

		base, _ := serve(t, func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Link", "</style.css>; rel=preload")
			w.WriteHeader(http.StatusEarlyHints)
			w.WriteHeader(204)
		})
		var interim []int
		ctx := httptrace.WithClientTrace(t.Context(), &httptrace.ClientTrace{
			Got1xxResponse: func(code int, _ textproto.MIMEHeader) error { interim = append(interim, code); return nil },
		})
		assert.Equal(t, 204, status(t, &heed.Transport{Base: base}, get(ctx)))
		assert.Equal(t, []int{103}, interim)
	})
}

func TestAPanicInAHookLeavesNothingOpen(t *testing.T) {
	boom := func(heed.Attempt) time.Duration { panic("boom") }
	for name, tr := range map[string]*heed.Transport{
		"If":      {Retry: heed.RetryPolicy{If: func(heed.Attempt) bool { panic("boom") }}},
		"Hint":    {Retry: heed.RetryPolicy{Hint: func(*http.Response, time.Time) (time.Duration, bool) { panic("boom") }}},
		"Backoff": {Retry: heed.RetryPolicy{Backoff: boom}},
		"Decided": {Trace: &heed.Trace{Decided: func(heed.Attempt, heed.Verdict, time.Duration) { panic("boom") }}},
		"Pacer":   {Pacer: panickingPacer{}},
	} {
		t.Run(name, func(t *testing.T) {
			sent, got := newBody("content"), newBody("answer")
			tr.Base = newScript(reply{status: 503, body: got})
			assert.Panics(t, func() { tr.RoundTrip(stream(t.Context(), "PUT", sent)) })
			_, closes := sent.counts()
			assert.Equal(t, 1, closes, "the request's body")
			_, closes = got.counts()
			assert.Equal(t, 1, closes, "the response's body")
		})
	}
	t.Run("Key", func(t *testing.T) {
		board := &heed.LocalBoard{}
		board.Post(t.Context(), "any", time.Hour, 0)
		sent := newBody("content")
		tr := &heed.Transport{Base: newScript(ok), Board: board, Key: func(*http.Request) string { panic("boom") }}
		assert.Panics(t, func() { tr.RoundTrip(stream(t.Context(), "PUT", sent)) })
		_, closes := sent.counts()
		assert.Equal(t, 1, closes)
	})
}

type panickingPacer struct{}

func (panickingPacer) Wait(*http.Request) error { return nil }
func (panickingPacer) Observe(heed.Attempt)     { panic("boom") }
