package heed_test

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/heedhttp/heed"
	"github.com/heedhttp/heed/pace"
	"github.com/heedhttp/heed/ratelimit"
)

// A chunk is what a server sends after some time.
type chunk struct {
	after time.Duration
	text  string
}

// streams answers each request with one stream after the other, and repeats the last one.
func streams(count *atomic.Int32, all ...[]chunk) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "Text/Event-Stream; charset=utf-8")
		for name, values := range r.URL.Query() { // the test's choice of other fields
			w.Header().Set(name, values[0])
		}
		w.(http.Flusher).Flush()
		for _, c := range all[min(int(count.Add(1)), len(all))-1] {
			select {
			case <-time.After(c.after):
			case <-r.Context().Done():
				return
			}
			io.WriteString(w, c.text)
			w.(http.Flusher).Flush()
		}
	}
}

// protocols runs test with a client and server of HTTP/1 and of HTTP/2.
func protocols(t *testing.T, h func() http.HandlerFunc, test func(*testing.T, *http.Transport)) {
	for _, http2 := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			var p http.Protocols
			p.SetHTTP1(!http2)
			p.SetUnencryptedHTTP2(http2)
			net := newPipes()
			srv, tr := &http.Server{Handler: h(), Protocols: &p}, &http.Transport{DialContext: net.Dial, Protocols: &p}
			go srv.Serve(net)
			defer srv.Close()
			defer tr.CloseIdleConnections()
			test(t, tr)
		})
	}
}

// bytewise sends text in pieces of one byte.
func bytewise(text string) (all []chunk) {
	for i := range len(text) {
		all = append(all, chunk{text: text[i : i+1]})
	}
	return all
}

func joined(chunks []chunk) string {
	var b strings.Builder
	for _, c := range chunks {
		b.WriteString(c.text)
	}
	return b.String()
}

const (
	ping    = "event: ping\ndata: {\"type\": \"ping\"}\n\n"
	started = "event: message_start\ndata: {\"type\":\"message_start\"}\n\n"
	refusal = "event: error\ndata: {\"type\":\"error\",\"error\":{\"type\":\"overloaded_error\",\"message\":\"Overloaded\"}}\n\n"
	failure = "event: error\ndata: {\"type\":\"error\",\"error\":{\"type\":\"api_error\",\"message\":\"Oops\"}}\n\n"
)

func TestTheFirstEventOfAStreamIsRead(t *testing.T) {
	for name, c := range map[string]struct {
		stream   []chunk
		returned time.Duration // when RoundTrip returns the stream
		refused  bool          // and is sent again if it may be
		query    string
	}{
		"at once":            {stream: []chunk{{0, started}, {time.Minute, started}}},
		"after 99 ms":        {stream: []chunk{{99 * ms, started}}, returned: 99 * ms},
		"after 101 ms":       {stream: []chunk{{101 * ms, started}}, returned: 100 * ms},
		"after 30 s":         {stream: []chunk{{30 * time.Second, started}}, returned: 100 * ms},
		"in two parts":       {stream: []chunk{{0, started[:30]}, {30 * ms, started[30:]}}, returned: 30 * ms},
		"never complete":     {stream: []chunk{{0, started[:30]}, {30 * ms, "x"}, {time.Second, "y"}}, returned: 100 * ms},
		"nothing":            {stream: []chunk{{50 * ms, ""}}, returned: 50 * ms},
		"no line end":        {stream: []chunk{{0, strings.Repeat("x", 1<<20)}}},
		"4 KiB":              {stream: []chunk{{0, strings.Repeat("x", 1<<12-1)}, {50 * ms, "x"}, {50 * ms, "x"}}, returned: 50 * ms},
		"a long event":       {stream: []chunk{{0, "data: " + strings.Repeat("x", 4090)}, {time.Second, "\n\n"}}},
		"many lines":         {stream: []chunk{{0, strings.Repeat("\n", 1<<13)}}},
		"pings first":        {stream: []chunk{{0, ping}, {20 * ms, ": keep-alive\n\n"}, {30 * ms, started}}, returned: 50 * ms},
		"pings only":         {stream: []chunk{{0, ping}, {60 * ms, ping}, {60 * ms, started}}, returned: 100 * ms},
		"refused":            {stream: []chunk{{0, refusal}}, refused: true},
		"refused late":       {stream: []chunk{{99 * ms, refusal}}, returned: 99 * ms, refused: true},
		"refused too late":   {stream: []chunk{{101 * ms, refusal}}, returned: 100 * ms},
		"refused with CRLF":  {stream: []chunk{{0, strings.ReplaceAll(refusal, "\n", "\r\n")}}, refused: true},
		"refused with CR":    {stream: []chunk{{0, "\uFEFF" + strings.ReplaceAll(refusal, "\n", "\r")}}, refused: true},
		"refused in pieces":  {stream: bytewise(refusal), refused: true},
		"refused after ping": {stream: []chunk{{0, ": x\n\nid: 1\nevent: x\n\n" + ping}, {ms, refusal}}, returned: ms, refused: true},
		"refused second":     {stream: []chunk{{0, started}, {0, refusal}}},
		"error of the user":  {stream: []chunk{{0, strings.ReplaceAll(refusal, "overloaded", "not_found")}}},
		"error not JSON":     {stream: []chunk{{0, "event: error\ndata: no\n\n"}}},
		"not complete":       {stream: []chunk{{0, refusal[:len(refusal)-1]}}},
		"compressed":         {stream: []chunk{{20 * ms, refusal}}, query: "?Content-Encoding=gzip"},
		"other type":         {stream: []chunk{{20 * ms, refusal}}, query: "?Content-Type=text/event-streams"},
	} {
		for _, attempts := range []int{1, 2} {
			var count *atomic.Int32
			h := func() http.HandlerFunc {
				count = new(atomic.Int32)
				return streams(count, c.stream, []chunk{{0, started}})
			}
			protocols(t, h, func(t *testing.T, base *http.Transport) {
				policy := vendor("anthropic")
				policy.MaxAttempts = attempts
				req, err := http.NewRequestWithContext(t.Context(), "POST", "http://h/"+c.query, strings.NewReader("{}"))
				require.NoError(t, err)
				req.Header.Set("Accept-Encoding", "identity") // or net/http expects gzip
				start := time.Now()
				resp := roundTrip(t, &heed.Transport{Base: base, Retry: policy}, req)
				took := time.Since(start)
				if c.refused && attempts == 2 {
					between(t, time.Second, took, 1500*ms)
					assert.Equal(t, started, content(t, resp), name)
					assert.Equal(t, int32(2), count.Load(), name)
					return
				}
				assert.Equal(t, c.returned, took, name)
				assert.Same(t, req, resp.Request)
				assert.Equal(t, joined(c.stream), content(t, resp), name)
				assert.Equal(t, int32(1), count.Load(), name)
			})
		}
	}
}

// Nothing is held back once the caller has the stream.
func TestAStreamIsPassedOnAsItComes(t *testing.T) {
	stream := []chunk{{0, "event: x\n"}, {time.Second, "data: 1\n"}, {time.Second, "\n"}, {time.Second, started}}
	for _, idle := range []time.Duration{0, time.Minute} {
		h := func() http.HandlerFunc { return streams(new(atomic.Int32), stream) }
		protocols(t, h, func(t *testing.T, base *http.Transport) {
			policy := vendor("anthropic")
			policy.IdleTimeout = idle
			start := time.Now()
			resp := roundTrip(t, &heed.Transport{Base: base, Retry: policy}, post(t.Context()))
			defer resp.Body.Close()
			for i, c := range stream {
				buf := make([]byte, len(c.text))
				_, err := io.ReadFull(resp.Body, buf)
				assert.NoError(t, err)
				assert.Equal(t, c.text, string(buf))
				between(t, time.Duration(i)*time.Second, time.Since(start), time.Duration(i)*time.Second+100*ms)
			}
		})
	}
}

// observed is a Pacer that keeps what it observes.
type observed struct{ meanings []ratelimit.Meaning }

func (o *observed) Wait(*http.Request) error { return nil }
func (o *observed) Observe(a heed.Attempt)   { o.meanings = append(o.meanings, a.Meaning()) }

func sse(text string) reply {
	return reply{status: 200, header: []string{"Content-Type", "text/event-stream"}, body: readCloser(text)}
}

const messages = "https://api.anthropic.com/v1/messages"

// It leaves everything as the status does that it stands for.
func TestARefusalInAStreamCountsAsOne(t *testing.T) {
	type result struct {
		meanings []ratelimit.Meaning
		verdicts []heed.Verdict
		balance  float64
	}
	run := func(t *testing.T, reply func() reply) (r result) {
		synctest.Test(t, func(t *testing.T) {
			pacer, budget := new(observed), new(heed.LocalBudget)
			tr := &heed.Transport{Retry: vendor("anthropic"), Budget: budget, Pacer: pacer, Trace: &heed.Trace{
				Decided: func(_ heed.Attempt, v heed.Verdict, _ time.Duration) { r.verdicts = append(r.verdicts, v) },
			}}
			tr.Base = roundTripFunc(func(req *http.Request) (*http.Response, error) { return response(req, reply()), nil })
			tr.Retry.MaxAttempts = 3
			for range 3 {
				status(t, tr, ask(t.Context(), messages))
			}
			r.meanings, r.balance = pacer.meanings, budget.Balance("https://api.anthropic.com")
		})
		return r
	}
	overloaded := run(t, func() reply { return sse(refusal) })
	assert.Equal(t, run(t, func() reply { return reply{status: 429} }), overloaded)
	assert.Equal(t, ratelimit.Limited, overloaded.meanings[0])
	assert.Equal(t, []heed.Verdict{heed.Again, heed.Again, heed.OutOfAttempts}, overloaded.verdicts[:3])

	failed := run(t, func() reply { return sse(failure) })
	assert.Equal(t, run(t, func() reply { return reply{status: 500, header: []string{"X-Should-Retry", "true"}} }), failed)
	assert.Equal(t, ratelimit.Retry, failed.meanings[0])

	good := run(t, func() reply { return sse(started) })
	assert.Equal(t, run(t, func() reply { return reply{status: 200} }), good)
}

// As while nothing but 500 comes, the third retry waits for a second or more.
func TestAFailureInAStreamIsNoAnswerOfItsHost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		took := func(req *http.Request) time.Duration {
			policy := vendor("anthropic")
			policy.Backoff = nil
			tr := &heed.Transport{Retry: policy, Base: roundTripFunc(func(req *http.Request) (*http.Response, error) {
				return response(req, sse(failure)), nil
			})}
			start := time.Now()
			status(t, tr, req)
			return time.Since(start)
		}
		assert.Greater(t, took(ask(t.Context(), messages)), time.Second)
		counted := ask(t.Context(), messages)
		counted.Header.Set("X-Stainless-Retry-Count", "1")
		assert.Greater(t, took(counted), time.Second, "an SDK does not repeat it")
		assert.Zero(t, took(post(t.Context())), "what the vendor's client does not repeat may have been done")
	})
}

func TestALateBodyThatIsNoStreamIsStillRead(t *testing.T) {
	for _, idle := range []time.Duration{0, time.Minute} {
		synctest.Test(t, func(t *testing.T) {
			r, w := io.Pipe()
			time.AfterFunc(500*ms, func() {
				io.WriteString(w, `{"error":{"code":"insufficient_quota"}}`)
				w.Close()
			})
			base := newScript(reply{status: 429, header: []string{"Content-Type", "application/json"}, body: r}, ok)
			policy := vendor("openai")
			policy.IdleTimeout = idle
			assert.Equal(t, 429, status(t, &heed.Transport{Base: base, Retry: policy}, post(t.Context())))
		})
	}
}

func TestPacersAndLogsSeeARefusalInAStream(t *testing.T) {
	for text, rate := range map[string]int{refusal: -1, failure: 0, started: 1} { // slower, as it is, faster
		synctest.Test(t, func(t *testing.T) {
			var log bytes.Buffer
			var progress pace.Progress
			adaptive := &pace.Adaptive{}
			tr := &heed.Transport{
				Retry: vendor("anthropic"), Trace: heed.LogTrace(slog.New(slog.NewTextHandler(&log, nil))),
				Base:  roundTripFunc(func(req *http.Request) (*http.Response, error) { return response(req, sse(text)), nil }),
				Pacer: &pace.Queue{Pacer: adaptive, Progress: func(p pace.Progress) { progress = p }},
			}
			tr.Retry.MaxAttempts = 1
			status(t, &heed.Transport{Pacer: adaptive, Base: newScript(ok)}, post(t.Context()))
			before := adaptive.Limit(post(t.Context()))
			var calls sync.WaitGroup
			for range 5 {
				calls.Go(func() { status(t, tr, post(t.Context())) })
			}
			calls.Wait()
			assert.Equal(t, rate, cmp.Compare(adaptive.Limit(post(t.Context())), before), text)
			assert.Equal(t, rate < 0, progress.Refused == 5)
			assert.Equal(t, rate < 0, strings.Contains(log.String(), " meaning=limited"))
		})
	}
}

// A blocking is a body whose Read returns what it gets, and blocks for the rest. It fails the test if Read
// and Close run at the same time.
type blocking struct {
	t       *testing.T
	text    chan string
	ctx     context.Context // whose end ends a Read, unless nil
	mu      sync.Mutex
	closes  atomic.Int32
	panicks bool
}

func (b *blocking) Read(p []byte) (int, error) {
	assert.True(b.t, b.mu.TryLock(), "Read during Read or Close")
	defer b.mu.Unlock()
	var done <-chan struct{}
	if b.ctx != nil {
		done = b.ctx.Done()
	}
	if b.panicks {
		panic("broken body")
	}
	select {
	case text, ok := <-b.text:
		if !ok {
			return 0, io.EOF
		}
		return copy(p, text), nil
	case <-done:
		return 0, b.ctx.Err()
	}
}

func (b *blocking) Close() error {
	assert.True(b.t, b.mu.TryLock(), "Close during Read")
	defer b.mu.Unlock()
	b.closes.Add(1)
	return nil
}

// blocked returns a Transport whose response has a body that blocks.
func blocked(t *testing.T, policy heed.RetryPolicy, heedsContext bool) (*heed.Transport, *blocking) {
	b := &blocking{t: t, text: make(chan string, 10)}
	return &heed.Transport{Retry: policy, Base: roundTripFunc(func(req *http.Request) (*http.Response, error) {
		if heedsContext {
			b.ctx = req.Context()
		}
		r := sse("")
		r.body = b
		return response(req, r), nil
	})}, b
}

func TestAStreamIsClosedWhileItsFirstEventIsAwaited(t *testing.T) {
	for _, heedsContext := range []bool{true, false} {
		synctest.Test(t, func(t *testing.T) {
			tr, b := blocked(t, vendor("anthropic"), heedsContext)
			resp := roundTrip(t, tr, post(t.Context()))
			read := make(chan error)
			go func() {
				_, err := resp.Body.Read(make([]byte, 10))
				read <- err
			}()
			synctest.Wait()
			assert.NoError(t, resp.Body.Close())
			assert.NoError(t, resp.Body.Close())
			assert.ErrorIs(t, <-read, http.ErrBodyReadAfterClose)
			synctest.Wait()
			if !heedsContext {
				assert.Zero(t, b.closes.Load())
				b.text <- "late"
				synctest.Wait()
			}
			assert.Equal(t, int32(1), b.closes.Load())
		}) // which waits for goroutines
	}
}

// Else its connection, or the goroutine that drains it, would stay for as long as the server likes.
func TestARefusedStreamThatStaysOpenIsCancelled(t *testing.T) {
	var cancelled chan time.Duration
	h := func() http.HandlerFunc {
		var count atomic.Int32
		cancelled = make(chan time.Duration, 1)
		return func(w http.ResponseWriter, r *http.Request) {
			start := time.Now()
			w.Header().Set("Content-Type", "text/event-stream")
			if count.Add(1) > 1 {
				return
			}
			io.WriteString(w, refusal)
			w.(http.Flusher).Flush()
			<-r.Context().Done()
			cancelled <- time.Since(start)
		}
	}
	protocols(t, h, func(t *testing.T, base *http.Transport) {
		tr := &heed.Transport{Base: base, Retry: vendor("anthropic")}
		assert.Empty(t, content(t, roundTrip(t, tr, post(t.Context()))))
		between(t, 100*ms, <-cancelled, 1500*ms)
	})
}

func TestACancelledCallDoesNotWaitForAnEvent(t *testing.T) {
	for _, heedsContext := range []bool{true, false} {
		synctest.Test(t, func(t *testing.T) {
			tr, b := blocked(t, vendor("anthropic"), heedsContext)
			ctx, cancel := context.WithTimeout(t.Context(), 30*ms)
			defer cancel()
			start := time.Now()
			resp, err := tr.RoundTrip(post(ctx))
			assert.Equal(t, 30*ms, time.Since(start))
			require.NoError(t, err)
			if heedsContext {
				_, err = resp.Body.Read(make([]byte, 10))
				assert.ErrorIs(t, err, context.DeadlineExceeded)
			}
			resp.Body.Close()
			close(b.text)
			synctest.Wait()
			assert.Equal(t, int32(1), b.closes.Load())
		})
	}
}

func TestIdleTimeoutEndsABodyThatSendsNothing(t *testing.T) {
	stream := []chunk{{20 * time.Second, "1"}, {29 * time.Second, "2"}, {time.Hour, "3"}}
	for _, policy := range []heed.RetryPolicy{
		{}, {AttemptTimeout: 5 * time.Second}, vendor("anthropic"), vendor("telegram"),
	} {
		h := func() http.HandlerFunc { return streams(new(atomic.Int32), stream) }
		protocols(t, h, func(t *testing.T, base *http.Transport) {
			policy.IdleTimeout = 30 * time.Second
			client := &http.Client{Transport: &heed.Transport{Base: base, Retry: policy}, Timeout: time.Hour}
			start := time.Now()
			resp, err := client.Do(get(t.Context()))
			require.NoError(t, err)
			got, err := io.ReadAll(resp.Body)
			assert.Equal(t, "12", string(got))
			assert.Equal(t, 79*time.Second, time.Since(start))
			var timeout net.Error
			assert.True(t, errors.As(err, &timeout) && timeout.Timeout())
			assert.EqualError(t, err, "heed: the response's body sent nothing for RetryPolicy.IdleTimeout (30s)")
			_, again := resp.Body.Read(make([]byte, 1))
			assert.Equal(t, err, again)
			assert.NoError(t, resp.Body.Close())
		})
	}
}

func TestIdleTimeoutEndsTheBodyOfAnyBase(t *testing.T) {
	for _, heedsContext := range []bool{true, false} {
		for _, name := range []string{"anthropic", "telegram"} { // with and without a first event to read
			synctest.Test(t, func(t *testing.T) {
				policy := vendor(name)
				policy.IdleTimeout = 50 * ms
				tr, b := blocked(t, policy, heedsContext)
				resp := roundTrip(t, tr, post(t.Context()))
				time.Sleep(time.Hour) // a caller that does not read
				start := time.Now()
				_, err := resp.Body.Read(make([]byte, 10))
				assert.ErrorContains(t, err, "IdleTimeout")
				assert.Equal(t, 50*ms, time.Since(start))
				resp.Body.Close()
				close(b.text)
				synctest.Wait()
				assert.Equal(t, int32(1), b.closes.Load())
			})
		}
	}
}

func TestIdleTimeoutDoesNotPunishASlowCaller(t *testing.T) {
	text := strings.Repeat("0123456789", 100<<10)
	h := func() http.HandlerFunc { return streams(new(atomic.Int32), []chunk{{0, text}}) }
	protocols(t, h, func(t *testing.T, base *http.Transport) {
		tr := &heed.Transport{Base: base, Retry: heed.RetryPolicy{IdleTimeout: time.Second}}
		resp := roundTrip(t, tr, get(t.Context()))
		var got strings.Builder
		for buf := make([]byte, 100<<10); ; time.Sleep(time.Minute) {
			n, err := resp.Body.Read(buf[:1+got.Len()%len(buf)])
			got.Write(buf[:n])
			if err != nil {
				assert.Equal(t, io.EOF, err)
				break
			}
		}
		assert.True(t, text == got.String())
		_, err := resp.Body.Read(make([]byte, 1))
		assert.Equal(t, io.EOF, err)
		_, err = resp.Body.Read(nil)
		assert.NoError(t, err)
	})
}

func TestAPanicOfABodyReachesItsReader(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tr, b := blocked(t, heed.RetryPolicy{IdleTimeout: time.Second}, true)
		b.panicks = true
		resp := roundTrip(t, tr, get(t.Context()))
		assert.PanicsWithValue(t, "broken body", func() { resp.Body.Read(make([]byte, 1)) })
		resp.Body.Close()
		assert.Equal(t, int32(1), b.closes.Load())
	})
}

// The body of a 101 is a connection, and nothing is wrapped without need.
func TestABodyStaysAsItIs(t *testing.T) {
	for _, c := range []struct {
		status int
		policy heed.RetryPolicy
		kind   string
		same   bool
	}{
		{101, heed.RetryPolicy{IdleTimeout: time.Second}, "text/event-stream", true},
		{200, heed.RetryPolicy{IdleTimeout: -1}, "text/event-stream", true},
		{200, vendor("telegram"), "text/event-stream", true},
		{200, heed.RetryPolicy{IdleTimeout: time.Second}, "text/plain", false},
	} {
		b := newBody("x")
		base := newScript(reply{status: c.status, body: b, header: []string{"Content-Type", c.kind}})
		resp := roundTrip(t, &heed.Transport{Base: base, Retry: c.policy}, get(t.Context()))
		assert.Equal(t, c.same, resp.Body == io.ReadCloser(b), "%+v", c)
		resp.Body.Close()
	}
}
