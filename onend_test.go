package heed_test

import (
	"context"
	"errors"
	"io"
	"net/http"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/heedhttp/heed"
)

// A countedBody counts its Closes.
type countedBody struct {
	io.Reader
	closes int
}

func (b *countedBody) Close() error                { b.closes++; return nil }
func (b *countedBody) Write(p []byte) (int, error) { return len(p), nil }

func TestAnAttemptEndsOnceWithItsBody(t *testing.T) {
	failing := io.MultiReader(strings.NewReader("a"), errorReader{errors.New("reset")})
	readAll := func(b io.ReadCloser) { _, _ = io.Copy(io.Discard, struct{ io.Reader }{b}) }
	shut := func(b io.ReadCloser) { _ = b.Close() }
	readSome := func(b io.ReadCloser) { _, _ = b.Read(make([]byte, 1)) }
	for name, c := range map[string]struct {
		status int
		reader io.Reader
		steps  []func(io.ReadCloser)
		ended  []int // how often, after each step
	}{
		"closed":                {200, strings.NewReader("ab"), []func(io.ReadCloser){readSome, shut, shut}, []int{0, 1, 1}},
		"read, then closed":     {200, strings.NewReader("ab"), []func(io.ReadCloser){readAll, shut, readAll}, []int{1, 1, 1}},
		"failed":                {200, failing, []func(io.ReadCloser){readSome, readAll, shut}, []int{0, 1, 1}},
		"a connection, half of": {101, strings.NewReader("ab"), []func(io.ReadCloser){readAll, readAll, shut, shut}, []int{0, 0, 1, 1}},
	} {
		t.Run(name, func(t *testing.T) {
			body := &countedBody{Reader: c.reader}
			resp := &http.Response{StatusCode: c.status, Body: body}
			ended, outer := 0, 0
			heed.Attempt{Response: resp}.OnEnd(func() { ended++ })
			heed.Attempt{Response: resp}.OnEnd(func() { outer++ })
			for i, step := range c.steps {
				step(resp.Body)
				assert.Equal(t, c.ended[i], ended, "after step %d", i)
				assert.Equal(t, ended, outer)
			}
			assert.Positive(t, body.closes)
			_, writes := resp.Body.(io.Writer)
			assert.Equal(t, c.status == 101, writes)
		})
	}
	for _, a := range []heed.Attempt{
		{Err: heed.ErrNotSent}, {Response: &http.Response{}}, {Response: &http.Response{Body: http.NoBody}},
	} {
		ended := 0
		a.OnEnd(func() { ended++ })
		assert.Equal(t, 1, ended)
	}
}

type errorReader struct{ err error }

func (r errorReader) Read([]byte) (int, error) { return 0, r.err }

func TestALostBodyEndsWhenItIsCollected(t *testing.T) {
	ended := make(chan struct{})
	heed.Attempt{Response: &http.Response{Body: io.NopCloser(strings.NewReader("a"))}}.OnEnd(func() { close(ended) })
	for done := false; !done; {
		runtime.GC()
		select {
		case <-ended:
			done = true
		case <-time.After(ms):
		}
	}
}

// A holdingPacer has one place.
type holdingPacer struct{ place chan struct{} }

func (p holdingPacer) Wait(req *http.Request) error {
	select {
	case p.place <- struct{}{}:
		return nil
	case <-req.Context().Done():
		return req.Context().Err()
	}
}

func (p holdingPacer) Observe(a heed.Attempt) { a.OnEnd(func() { <-p.place }) }

// The retry needs the place of the attempt before. A body that hangs, or that HTTP/2 leaves unread, must
// not keep it.
func TestADroppedResponseEndsBeforeItsRetry(t *testing.T) {
	for name, c := range map[string]struct {
		major   int
		hangs   bool
		timeout time.Duration
	}{
		"HTTP/1": {1, false, 0}, "HTTP/2": {2, false, 0}, "HTTP/1, hanging": {1, true, 0},
		"HTTP/1, hanging, with a context of its own": {1, true, time.Minute},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var sent int
				var over atomic.Bool
				ctx, cancel := context.WithCancel(t.Context())
				base := roundTripFunc(func(req *http.Request) (*http.Response, error) {
					sent++
					resp := response(req, ok)
					if resp.ProtoMajor = c.major; sent == 1 {
						resp.StatusCode = 500
						resp.Body, resp.ContentLength = io.NopCloser(strings.NewReader("no")), -1
						if c.hangs {
							resp.Body = io.NopCloser(hanging{req.Context(), &over})
						}
					}
					return resp, nil
				})
				p := holdingPacer{make(chan struct{}, 1)}
				tr := &heed.Transport{Base: base, Pacer: p, Retry: heed.RetryPolicy{AttemptTimeout: c.timeout}}
				req, err := http.NewRequestWithContext(ctx, "GET", "http://example.com/", nil)
				require.NoError(t, err)
				start := time.Now()
				resp, err := tr.RoundTrip(req)
				require.NoError(t, err)
				resp.Body.Close()
				assert.Equal(t, []int{200, 2}, []int{resp.StatusCode, sent})
				assert.Less(t, time.Since(start), 3*time.Second)
				assert.Empty(t, p.place)
				synctest.Wait()
				assert.Equal(t, c.timeout > 0, over.Load(), "the hanging attempt is cancelled")
				cancel()
			})
		})
	}
}

// A hanging body ends with its attempt.
type hanging struct {
	ctx  context.Context
	over *atomic.Bool
}

func (h hanging) Read([]byte) (int, error) {
	<-h.ctx.Done()
	h.over.Store(true)
	return 0, h.ctx.Err()
}
