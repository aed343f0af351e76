package heed_test

import (
	"context"
	"crypto/sha256"
	"errors"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/heedhttp/heed"
)

func TestMaxBodyBufferReplaysTheBytesRead(t *testing.T) {
	for name, c := range map[string]struct {
		content string
		buffer  int64
		want    []string
	}{
		"all of it":          {"0123456789", 10, []string{"0123456789", "0123456789"}},
		"one byte too much":  {"0123456789", 9, []string{"0123456789"}},
		"nothing to be kept": {"", 0, []string{"", ""}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newScript(unavailable, ok)
				b := newBody(c.content)
				status(t, &heed.Transport{Base: s, Retry: heed.RetryPolicy{MaxBodyBuffer: c.buffer}},
					stream(t.Context(), "PUT", b))
				assert.Equal(t, c.want, s.bodies())
				_, closes := b.counts()
				assert.Equal(t, 1, closes)
			})
		})
	}
}

// The first attempts fail after they read a part of the body.
func TestAReplaySendsKeptBytesThenTheRest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var held []io.ReadCloser
		base := roundTripFunc(func(req *http.Request) (*http.Response, error) {
			held = append(held, req.Body)
			if len(held) < 3 {
				io.ReadFull(req.Body, make([]byte, 2*len(held)))
				return nil, errBroken
			}
			assert.Equal(t, "0123456789", content(t, &http.Response{Body: req.Body}))
			return response(req, ok), nil
		})
		b := newBody("0123456789")
		tr := &heed.Transport{Base: base, Retry: heed.RetryPolicy{MaxBodyBuffer: 100}}
		assert.Equal(t, 200, status(t, tr, stream(t.Context(), "PUT", b)))
		for _, old := range held[:2] {
			n, err := old.Read(make([]byte, 1))
			assert.Zero(t, n)
			assert.ErrorContains(t, err, "taken back")
			assert.NoError(t, old.Close())
		}
		_, closes := b.counts()
		assert.Equal(t, 1, closes)
	})
}

func TestABodyThatFailsIsNotSentAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		failing := io.NopCloser(io.MultiReader(strings.NewReader("half"), errReader{}))
		s := newScript(ok)
		_, err := (&heed.Transport{Base: s, Retry: heed.RetryPolicy{MaxBodyBuffer: 100}}).RoundTrip(stream(t.Context(),
			"PUT", failing))
		assert.ErrorIs(t, err, errBroken)
		assert.Equal(t, 1, s.count())
	})
}

type errReader struct{}

func (errReader) Read([]byte) (int, error) { return 0, errBroken }

// The server answers while the body is still being read.
func TestABodyBeingReadIsNotTakenBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, w := io.Pipe()
		var wg sync.WaitGroup
		s := roundTripFunc(func(req *http.Request) (*http.Response, error) {
			wg.Go(func() {
				_, err := io.ReadAll(req.Body)
				assert.ErrorIs(t, err, io.ErrClosedPipe)
			})
			synctest.Wait()
			assert.NoError(t, req.Body.Close(), "Close unblocks the Read")
			return response(req, throttle("1")), nil
		})
		var got heed.Verdict
		tr := &heed.Transport{Base: s,
			Trace: &heed.Trace{Decided: func(_ heed.Attempt, v heed.Verdict, _ time.Duration) { got = v }}}
		assert.Equal(t, 429, status(t, tr, stream(t.Context(), "PUT", r)))
		assert.Equal(t, heed.NotReplayable, got)
		_, err := w.Write([]byte("x"))
		assert.ErrorIs(t, err, io.ErrClosedPipe)
		wg.Wait()
	})
}

// The server refuses the upload before it is sent, so nothing of the stream was read.
func TestAnUploadRefusedBefore100ContinueIsSentAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		served := 0
		base, _ := serve(t, func(w http.ResponseWriter, r *http.Request) {
			if served++; served == 1 {
				w.Header().Set("Retry-After", "5")
				w.WriteHeader(429)
				return
			}
			b, _ := io.ReadAll(r.Body)
			w.Write(b)
		})
		b := newBody("a large upload")
		req := stream(t.Context(), "POST", b)
		req.Header.Set("Expect", "100-continue")
		resp := roundTrip(t, &heed.Transport{Base: base}, req)
		assert.Equal(t, "a large upload", content(t, resp))
		assert.Equal(t, 2, served)
		synctest.Wait()
		_, closes := b.counts()
		assert.Equal(t, 1, closes)
	})
}

// The response to a HEAD has a Content-Length and no body, and must be drained too.
func TestAllAttemptsUseOneConnection(t *testing.T) {
	for _, method := range []string{"GET", "HEAD", "PUT"} {
		synctest.Test(t, func(t *testing.T) {
			served := 0
			base, network := serve(t, func(w http.ResponseWriter, r *http.Request) {
				io.Copy(io.Discard, r.Body)
				if served++; served < 4 {
					w.WriteHeader(503)
				}
				io.WriteString(w, strings.Repeat("x", 10<<10))
			})
			req := put(t.Context(), "content")
			req.Method = method
			assert.Equal(t, 200, status(t, &heed.Transport{Base: base, Budget: heed.Unlimited}, req))
			assert.Equal(t, 4, served)
			assert.Equal(t, 1, network.dialed())
		})
	}
}

func TestAnAttemptThatTimesOutReleasesItsConnection(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		served := 0
		gone := make(chan struct{})
		base, _ := serve(t, func(w http.ResponseWriter, r *http.Request) {
			if served++; served == 1 {
				<-r.Context().Done()
				close(gone)
			}
		})
		tr := &heed.Transport{Base: base, Retry: heed.RetryPolicy{AttemptTimeout: time.Second}}
		assert.Equal(t, 200, status(t, tr, get(t.Context())))
		<-gone
	})
}

func TestAnAttemptsContextEndsWithItsBody(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for name, end := range map[string]func(*http.Response){
			"read":   func(resp *http.Response) { io.ReadAll(resp.Body) },
			"closed": func(resp *http.Response) { resp.Body.Close() },
		} {
			var ctx context.Context
			tr := &heed.Transport{Retry: heed.RetryPolicy{AttemptTimeout: time.Second}}
			tr.Base = roundTripFunc(func(req *http.Request) (*http.Response, error) {
				ctx = req.Context()
				return response(req, reply{status: 200, body: readCloser("content")}), nil
			})
			resp := roundTrip(t, tr, get(t.Context()))
			time.Sleep(time.Minute)
			require.NoError(t, ctx.Err(), name)
			end(resp)
			assert.ErrorIs(t, ctx.Err(), context.Canceled, name)
		}
	})
}

func TestATimeoutWinsOverALateResponse(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBody("too late")
		tr := &heed.Transport{Retry: heed.RetryPolicy{AttemptTimeout: time.Second, MaxAttempts: 1}}
		tr.Base = roundTripFunc(func(req *http.Request) (*http.Response, error) {
			time.Sleep(2 * time.Second) // it ignores its context
			return response(req, reply{status: 200, body: b}), nil
		})
		resp, err := tr.RoundTrip(get(t.Context()))
		assert.Nil(t, resp)
		assert.ErrorContains(t, err, "no response within RetryPolicy.AttemptTimeout (1s)")
		_, closes := b.counts()
		assert.Equal(t, 1, closes)
	})
}

func TestClientTimeoutEndsTheWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		client := &http.Client{Transport: &heed.Transport{Base: newScript(reply{status: 503, took: time.Second})},
			Timeout: 2 * time.Second}
		client.Transport.(*heed.Transport).Retry.Backoff = constant(time.Second)
		start := time.Now()
		resp, err := client.Get("http://api.example.com")
		require.NoError(t, err, "the wait does not fit: the first attempt's response is returned")
		resp.Body.Close()
		assert.Equal(t, 503, resp.StatusCode)
		assert.Equal(t, time.Second, time.Since(start))

		client.Transport = &heed.Transport{Base: newScript(reply{took: time.Hour})}
		_, err = client.Get("http://api.example.com")
		var timeout interface{ Timeout() bool }
		require.True(t, errors.As(err, &timeout) && timeout.Timeout())
	})
}

func TestTheCallersDeadlineWinsOverAttemptTimeout(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tr := &heed.Transport{Retry: heed.RetryPolicy{AttemptTimeout: time.Second}}
		tr.Base = roundTripFunc(func(req *http.Request) (*http.Response, error) {
			time.Sleep(2 * time.Second)
			return response(req, ok), nil
		})
		ctx, cancel := context.WithTimeout(t.Context(), 1500*time.Millisecond)
		defer cancel()
		_, err := tr.RoundTrip(get(ctx))
		assert.ErrorIs(t, err, context.DeadlineExceeded)
	})
}

func TestAnAttemptTimeoutIsNotACancellation(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tr := &heed.Transport{Base: newScript(reply{took: time.Hour}),
			Retry: heed.RetryPolicy{AttemptTimeout: time.Second, MaxAttempts: 1}}
		_, err := tr.RoundTrip(get(t.Context()))
		assert.NotErrorIs(t, err, context.Canceled)
		assert.EqualError(t, err, "heed: no response within RetryPolicy.AttemptTimeout (1s)")
	})
}

func TestALateCloseByAnOldAttemptDoesNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBody("content")
		var bodies []io.ReadCloser
		tr := &heed.Transport{Base: roundTripFunc(func(req *http.Request) (*http.Response, error) {
			if bodies = append(bodies, req.Body); len(bodies) == 1 {
				return response(req, throttle("1")), nil
			}
			return response(req, ok), nil // during the upload
		})}
		assert.Equal(t, 200, status(t, tr, stream(t.Context(), "PUT", b)))
		assert.NoError(t, bodies[0].Close())
		_, closes := b.counts()
		assert.Zero(t, closes, "the second attempt still uses the body")
		assert.NoError(t, bodies[1].Close())
		_, closes = b.counts()
		assert.Equal(t, 1, closes)
	})
}

func TestEachAttemptSendsTheSameMebibyte(t *testing.T) {
	mebibyte := strings.Repeat("0123456789abcdef", 1<<16)
	want := sha256.Sum256([]byte(mebibyte))
	for name, c := range map[string]struct {
		getBody bool
		buffer  int64
		sent    int
	}{
		"GetBody":         {getBody: true, sent: 3},
		"kept":            {buffer: 1 << 20, sent: 3},
		"more than kept":  {buffer: 1<<20 - 1, sent: 1},
		"neither of both": {sent: 1},
	} {
		synctest.Test(t, func(t *testing.T) {
			s := newScript(reply{status: 429, header: []string{"Retry-After", "1"}, body: readCloser("busy")}, throttle("1"),
				ok)
			req := put(t.Context(), mebibyte)
			req.Method = "POST"
			if !c.getBody {
				req = stream(t.Context(), "POST", readCloser(mebibyte))
			}
			resp := roundTrip(t, &heed.Transport{Base: s, Retry: heed.RetryPolicy{MaxBodyBuffer: c.buffer}}, req)
			assert.Equal(t, c.sent, s.count(), name)
			for i, body := range s.bodies() {
				assert.Equal(t, want, sha256.Sum256([]byte(body)), "%s: attempt %d", name, i+1)
			}
			if c.sent == 1 {
				assert.Equal(t, 429, resp.StatusCode, name)
				assert.Equal(t, "busy", content(t, resp), name)
			} else {
				assert.Equal(t, 200, resp.StatusCode, name)
			}
		})
	}
}
