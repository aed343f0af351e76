package heed_test

import (
	"bytes"
	"context"
	"log/slog"
	"net"
	"net/http"
	"os"
	"strings"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/heedhttp/heed"
)

var (
	errRefused = &net.OpError{Op: "dial", Net: "tcp", Err: os.NewSyscallError("connect", syscall.ECONNREFUSED)}
	noListener = reply{err: errRefused, took: time.Millisecond}
	noName     = reply{err: &net.OpError{Op: "dial", Net: "tcp", Err: &net.DNSError{Err: "no such host", IsNotFound: true}}}
	noServer   = reply{status: 503, took: time.Millisecond}
)

// A restarting server gives bad replies for some time, and then good ones.
type restarting struct {
	bad     reply
	from    time.Duration
	to      time.Duration
	start   time.Time
	mu      sync.Mutex
	attempt []seen
	wrong   int // bad replies
}

func newRestarting(bad reply, from, to time.Duration) *restarting {
	return &restarting{bad: bad, from: from, to: to, start: time.Now()}
}

func (s *restarting) RoundTrip(req *http.Request) (*http.Response, error) {
	at, r := time.Since(s.start), reply{status: 200, took: 5 * time.Millisecond}
	down := s.from <= at && at < s.to
	if down {
		r = s.bad
	}
	s.mu.Lock()
	s.attempt = append(s.attempt, seen{at: at, req: req})
	if down {
		s.wrong++
	}
	s.mu.Unlock()
	time.Sleep(r.took)
	if r.err != nil {
		return nil, r.err
	}
	if r.status == 503 {
		r.body = readCloser("busy")
	}
	return response(req, r), nil
}

// of returns when the attempts of calls with this name came.
func (s *restarting) of(name string) (times []time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, a := range s.attempt {
		if a.req.Header.Get("N") == name {
			times = append(times, a.at)
		}
	}
	return times
}

// named returns a request that (*restarting).of finds.
func named(ctx context.Context, method, name string) *http.Request {
	req := get(ctx)
	req.Method = method
	req.Header.Set("N", name)
	return req
}

// lower makes calls that fail at once until the server's host is down, for tr's Board.
func lower(t *testing.T, tr *heed.Transport) {
	t.Helper()
	for range 10 {
		if resp, err := tr.RoundTrip(get(heed.WithRetry(t.Context(), heed.RetryPolicy{MaxAttempts: 1}))); err == nil {
			resp.Body.Close()
		}
	}
	time.Sleep(150 * time.Millisecond)
}

// others begin a call every 10 ms, which are probes before older calls are.
func others(t *testing.T, tr *heed.Transport, during time.Duration) {
	var all sync.WaitGroup
	for range during / (10 * time.Millisecond) {
		all.Go(func() {
			if resp, err := tr.RoundTrip(get(t.Context())); err == nil {
				resp.Body.Close()
			}
		})
		time.Sleep(10 * time.Millisecond)
	}
	all.Wait()
}

func TestCallsWaitUntilTheirHostIsBack(t *testing.T) {
	for name, bad := range map[string]reply{"refused": noListener, "503": noServer} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newRestarting(bad, time.Second, 3*time.Second)
				l := &countingBudget{}
				tr := &heed.Transport{Base: s, Budget: l}
				var all sync.WaitGroup
				calls := 100
				for range calls {
					all.Go(func() { assert.Equal(t, 200, status(t, tr, get(t.Context()))) })
					time.Sleep(50 * time.Millisecond)
				}
				all.Wait()
				t.Logf("%d attempts for %d calls, %d withdrawals", len(s.attempt), calls, l.withdrawals)
				assert.LessOrEqual(t, s.wrong, 45, "of 40 calls")
				busiest := 0
				for i, a := range s.attempt { // 20/s and a line of 40 that takes two seconds
					n := 0
					for _, b := range s.attempt[i:] {
						if a.at >= 3*time.Second && b.at < a.at+time.Second {
							n++
						}
					}
					busiest = max(busiest, n)
				}
				assert.LessOrEqual(t, busiest, 50)
				if bad.err != nil {
					assert.Zero(t, l.withdrawals, "what was not sent costs nothing")
				} else {
					assert.LessOrEqual(t, l.withdrawals, 15)
				}
			})
		})
	}
}

func TestAPostIsHeldAndSentOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newRestarting(noServer, 0, 2*time.Second)
		tr := &heed.Transport{Base: s, Budget: heed.Unlimited}
		lower(t, tr)
		var post sync.WaitGroup
		time.AfterFunc(5*time.Millisecond, func() {
			post.Go(func() { assert.Equal(t, 200, status(t, tr, named(t.Context(), "POST", "post"))) })
		})
		others(t, tr, 3*time.Second)
		post.Wait()
		require.Len(t, s.of("post"), 1)
		assert.GreaterOrEqual(t, s.of("post")[0], 2*time.Second)
	})
}

func TestAPostIsSentAgainOnlyIfItWasNotSent(t *testing.T) {
	for name, c := range map[string]struct {
		bad      reply
		status   int
		attempts int
	}{"503": {noServer, 503, 1}, "refused": {noListener, 200, 2}} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newRestarting(c.bad, 0, 2*time.Millisecond)
				assert.Equal(t, c.status, status(t, &heed.Transport{Base: s}, named(t.Context(), "POST", "post")))
				assert.GreaterOrEqual(t, len(s.of("post")), c.attempts)
				assert.Equal(t, c.attempts == 1, len(s.of("post")) == 1)
			})
		})
	}
}

func TestWhoDoesNotWaitIsSentAtOnce(t *testing.T) {
	for name, c := range map[string]struct {
		retry heed.RetryPolicy
		board heed.Board
	}{
		"MaxAttempts 1":      {heed.RetryPolicy{MaxAttempts: 1}, nil},
		"no MaxWait":         {heed.RetryPolicy{MaxWait: -1}, nil},
		"no MaxOutage":       {heed.RetryPolicy{MaxOutage: -1}, nil},
		"NoBoard":            {heed.RetryPolicy{}, heed.NoBoard},
		"a deadline of 1 ms": {heed.RetryPolicy{MaxElapsed: time.Nanosecond}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newRestarting(noListener, 0, time.Hour)
				tr := &heed.Transport{Base: s, Board: c.board}
				lower(t, tr)
				at := time.Since(s.start)
				tr.Retry = c.retry
				_, err := tr.RoundTrip(named(t.Context(), "GET", "call"))
				assert.ErrorIs(t, err, syscall.ECONNREFUSED)
				assert.Equal(t, at, s.of("call")[0])
				assert.LessOrEqual(t, len(s.of("call")), 4)
			})
		})
	}
}

// It was held for as long as it may be. What it gets is its result.
func TestACallThatWasNeverSentIsSentAtTheEnd(t *testing.T) {
	for name, c := range map[string]struct {
		bad    reply
		method string
	}{"503": {noServer, "POST"}, "refused": {noListener, "GET"}, "503 to an idempotent request": {noServer, "GET"}} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newRestarting(c.bad, 0, time.Hour)
				tr := &heed.Transport{Base: s}
				lower(t, tr)
				var call sync.WaitGroup
				at := time.Since(s.start) + 15*time.Millisecond
				time.AfterFunc(15*time.Millisecond, func() {
					call.Go(func() {
						resp, err := tr.RoundTrip(named(t.Context(), c.method, "call"))
						if c.bad.err != nil {
							assert.ErrorIs(t, err, syscall.ECONNREFUSED)
						} else if assert.NoError(t, err) {
							assert.Equal(t, "busy", content(t, resp))
						}
					})
				})
				others(t, tr, 11*time.Second)
				call.Wait()
				assert.Equal(t, []time.Duration{at + 10*time.Second}, s.of("call"))
			})
		})
	}
}

func TestACallWhoseResponseFoundTheHostDownReturnsIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newRestarting(noServer, 0, time.Hour)
		refused := 0
		tr := &heed.Transport{Base: s, Budget: heed.Unlimited}
		var mu sync.Mutex
		var all sync.WaitGroup
		for range 30 {
			all.Go(func() {
				ctx := heed.WithTrace(t.Context(), &heed.Trace{Refused: func(_ *http.Request, err *heed.OverdueError) {
					assert.Equal(t, heed.CauseOutage, err.Cause)
					assert.Equal(t, "RetryPolicy.MaxOutage", err.Limit)
					mu.Lock()
					refused++
					mu.Unlock()
				}})
				resp := roundTrip(t, tr, get(ctx))
				assert.Equal(t, 503, resp.StatusCode)
				assert.Equal(t, "busy", content(t, resp))
			})
			time.Sleep(10 * time.Millisecond)
		}
		all.Wait()
		assert.Positive(t, refused, "they were sent once, and not sent again")
		between(t, 10*time.Second, time.Since(s.start), 13*time.Second)
	})
}

func TestASingleCallerMakesItsAttempts(t *testing.T) {
	for range 20 {
		synctest.Test(t, func(t *testing.T) {
			s := newRestarting(noServer, 0, time.Hour)
			assert.Equal(t, 503, status(t, &heed.Transport{Base: s, Budget: heed.Unlimited}, get(t.Context())))
			assert.Len(t, s.attempt, 4)
		})
	}
}

// The rest of the time is for the attempt: a quarter, at most a second.
func TestAWaitEndsBeforeTheDeadline(t *testing.T) {
	for _, c := range []struct{ deadline, elapsed, outage, sent time.Duration }{
		{2 * time.Second, 0, 0, 1500 * time.Millisecond},
		{8 * time.Second, 0, 0, 7 * time.Second},
		{time.Hour, 0, 0, 10 * time.Second},
		{time.Hour, 0, 3 * time.Second, 3 * time.Second},
		{time.Hour, 6 * time.Second, 0, 5 * time.Second},
	} {
		synctest.Test(t, func(t *testing.T) {
			s := newRestarting(noServer, 0, time.Hour)
			tr := &heed.Transport{Base: s}
			lower(t, tr)
			var call sync.WaitGroup
			begin := time.Since(s.start) + 15*time.Millisecond
			time.AfterFunc(15*time.Millisecond, func() {
				call.Go(func() {
					ctx, cancel := context.WithTimeout(t.Context(), c.deadline)
					defer cancel()
					ctx = heed.WithRetry(ctx, heed.RetryPolicy{MaxElapsed: c.elapsed, MaxOutage: c.outage})
					assert.Equal(t, 503, status(t, tr, named(ctx, "POST", "call")))
				})
			})
			others(t, tr, c.sent+time.Second)
			call.Wait()
			assert.Equal(t, []time.Duration{begin + c.sent}, s.of("call"))
		})
	}
}

func TestABackoffOfOnesOwnKeepsItsWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newRestarting(noListener, 0, time.Hour)
		tr := &heed.Transport{Base: s, Budget: heed.Unlimited,
			Retry: heed.RetryPolicy{MaxAttempts: 3, Backoff: constant(time.Second)}}
		_, err := tr.RoundTrip(named(t.Context(), "GET", "call"))
		assert.ErrorIs(t, err, syscall.ECONNREFUSED)
		const second = 1001 * time.Millisecond
		assert.Equal(t, []time.Duration{0, second, 2 * second}, s.of("call"))
	})
}

func TestANameThatWasKnownMayComeBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newRestarting(noName, 0, 2*time.Second)
		tr := &heed.Transport{Base: s}
		_, err := tr.RoundTrip(named(t.Context(), "GET", "unknown"))
		assert.ErrorAs(t, err, new(*net.DNSError))
		assert.Equal(t, []time.Duration{0}, s.of("unknown"))

		s.from, s.to = 3*time.Second, 5*time.Second
		time.Sleep(2500 * time.Millisecond)
		assert.Equal(t, 200, status(t, tr, get(t.Context())))
		time.Sleep(time.Second)
		assert.Equal(t, 200, status(t, tr, named(t.Context(), "GET", "known")))
		assert.Greater(t, len(s.of("known")), 1)

		s.from, s.to = time.Hour, 2*time.Hour
		time.Sleep(time.Until(s.start.Add(time.Hour)))
		_, err = tr.RoundTrip(named(t.Context(), "GET", "forgotten"))
		assert.ErrorAs(t, err, new(*net.DNSError))
		assert.Len(t, s.of("forgotten"), 1, "nobody was answered for ten minutes")
	})
}

func TestTransportsThatShareABoardShareAnOutage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newRestarting(noServer, 0, 2*time.Second)
		board := &heed.LocalBoard{}
		lower(t, &heed.Transport{Base: s, Board: board})
		assert.Equal(t, 10, s.wrong)
		// A call that is not the first probe waits, whoever the caller is.
		first := &heed.Transport{Base: s, Board: board, Budget: heed.Unlimited}
		tr := &heed.Transport{Base: s, Board: board}
		var call sync.WaitGroup
		time.AfterFunc(15*time.Millisecond, func() {
			call.Go(func() {
				req := named(t.Context(), "POST", "call")
				req.Header.Set("Authorization", "Bearer other")
				assert.Equal(t, 200, status(t, tr, req))
			})
		})
		others(t, first, 3*time.Second)
		call.Wait()
		require.Len(t, s.of("call"), 1)
		assert.GreaterOrEqual(t, s.of("call")[0], 2*time.Second)
	})
}

func TestAWaitForAHostCanBeEnded(t *testing.T) {
	for name, c := range map[string]struct {
		end  func(ctx context.Context, after time.Duration) context.Context
		want error
	}{
		"WithDrain": {func(ctx context.Context, after time.Duration) context.Context {
			stop, cancel := context.WithCancel(context.Background())
			time.AfterFunc(after, cancel)
			return heed.WithDrain(ctx, stop)
		}, heed.ErrNotSent},
		"cancellation": {func(ctx context.Context, after time.Duration) context.Context {
			ctx, cancel := context.WithCancel(ctx)
			time.AfterFunc(after, cancel)
			return ctx
		}, context.Canceled},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newRestarting(noServer, 0, time.Hour)
				tr := &heed.Transport{Base: s}
				lower(t, tr)
				var call sync.WaitGroup
				time.AfterFunc(15*time.Millisecond, func() {
					call.Go(func() {
						begin := time.Now()
						_, err := tr.RoundTrip(named(c.end(t.Context(), time.Second), "POST", "call"))
						assert.ErrorIs(t, err, c.want)
						assert.Equal(t, time.Second, time.Since(begin))
					})
				})
				others(t, tr, 2*time.Second)
				call.Wait()
				assert.Empty(t, s.of("call"))
			})
		})
	}
}

func TestACallThatGivesUpFreesItsPlace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newRestarting(noServer, 0, 2*time.Second)
		tr := &heed.Transport{Base: s}
		lower(t, tr)
		var calls sync.WaitGroup
		time.AfterFunc(15*time.Millisecond, func() {
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			time.AfterFunc(time.Second, cancel)
			calls.Go(func() {
				_, err := tr.RoundTrip(named(ctx, "POST", "first"))
				assert.ErrorIs(t, err, context.Canceled)
			})
		})
		time.AfterFunc(25*time.Millisecond, func() {
			calls.Go(func() { assert.Equal(t, 200, status(t, tr, named(t.Context(), "POST", "second"))) })
		})
		others(t, tr, 3*time.Second)
		calls.Wait()
		require.Len(t, s.of("second"), 1)
		assert.Less(t, s.of("second")[0], 5*time.Second)
	})
}

func TestAFullLineSendsAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newRestarting(noServer, 0, time.Hour)
		tr := &heed.Transport{Base: s}
		lower(t, tr)
		ctx, cancel := context.WithCancel(t.Context())
		var all sync.WaitGroup
		for range 10_000 + 1 { // one of them is a probe
			all.Go(func() {
				if resp, err := tr.RoundTrip(get(ctx)); err == nil {
					resp.Body.Close()
				}
			})
		}
		time.Sleep(time.Microsecond)
		at := time.Since(s.start)
		assert.Equal(t, 503, status(t, tr, named(t.Context(), "POST", "call")))
		assert.Equal(t, []time.Duration{at}, s.of("call"))
		cancel()
		all.Wait()
	})
}

func TestAWaitForAHostIsReported(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newRestarting(noListener, 0, 3*time.Second)
		var log bytes.Buffer
		tr := &heed.Transport{Base: s}
		lower(t, tr)
		tr.Trace = heed.LogTrace(slog.New(slog.NewTextHandler(&log, nil)))
		var reported, waited time.Duration
		ctx := heed.WithTrace(heed.WithLedger(t.Context()), &heed.Trace{
			Waited: func(_ *http.Request, cause heed.Cause, took time.Duration) {
				assert.Equal(t, heed.CauseOutage, cause)
				reported += took
			},
			Decided: func(a heed.Attempt, _ heed.Verdict, _ time.Duration) {
				waited = a.Elapsed - time.Duration(a.Number)*time.Millisecond
				if a.Err == nil {
					waited -= 4 * time.Millisecond
				}
			},
		})
		begin := time.Now()
		assert.Equal(t, 200, status(t, tr, get(ctx)))
		assert.Equal(t, waited, reported)
		assert.GreaterOrEqual(t, reported, time.Since(begin)*9/10)
		ledger := heed.FromContext(ctx)
		var recorded time.Duration
		for _, e := range ledger.Entries {
			for _, w := range e.Waits {
				assert.Equal(t, heed.CauseOutage, w.Cause)
				recorded += w.For
			}
		}
		assert.Equal(t, reported, recorded, ledger)
		assert.NotContains(t, log.String(), "s3cret")
	})
}

func TestALongWaitForAHostIsLoggedOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newRestarting(noServer, 0, 3*time.Second)
		var log bytes.Buffer
		tr := &heed.Transport{Base: s}
		lower(t, tr)
		var call sync.WaitGroup
		time.AfterFunc(15*time.Millisecond, func() {
			call.Go(func() {
				ctx := heed.WithTrace(t.Context(), heed.LogTrace(slog.New(slog.NewTextHandler(&log, nil))))
				req := named(ctx, "POST", "call")
				req.Header.Set("Authorization", "Bearer s3cret")
				assert.Equal(t, 200, status(t, tr, req))
			})
		})
		others(t, tr, 4*time.Second)
		call.Wait()
		lines := strings.Split(strings.TrimSpace(log.String()), "\n")
		require.Len(t, lines, 1)
		assert.Contains(t, lines[0], `level=INFO msg="request waited" method=POST host=api.example.com cause=outage wait=`)
		assert.NotContains(t, lines[0], "s3cret")
	})
}

// They say that somebody is there.
func TestWhatIsNoOutageHoldsNobody(t *testing.T) {
	for name, bad := range map[string]reply{
		"a TLS handshake that took too long": {err: timeoutError("net/http: TLS handshake timeout")},
		"GOAWAY":                             {err: errorString("http2: Transport received Server's graceful shutdown GOAWAY")},
		"a reset":                            {err: errBroken},
		"500":                                {status: 500},
		"503 with a hint":                    {status: 503, header: []string{"Retry-After", "1"}},
		"429":                                {status: 429},
		"an answer of a cache":               {status: 503, header: []string{"X-From-Cache", "1"}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newRestarting(bad, 0, time.Hour)
				tr := &heed.Transport{Base: s, Key: func(*http.Request) string { return "" }}
				lower(t, tr)
				at := time.Since(s.start)
				s.to = 0
				assert.Equal(t, 200, status(t, tr, named(t.Context(), "GET", "call")))
				assert.Equal(t, []time.Duration{at}, s.of("call"))
			})
		})
	}
}

type errorString string

func (e errorString) Error() string { return string(e) }

type timeoutError string

func (e timeoutError) Error() string   { return string(e) }
func (e timeoutError) Timeout() bool   { return true }
func (e timeoutError) Temporary() bool { return true }

func TestARetryInALineBacksOff(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var mu sync.Mutex
		good, dials, start := 0, 0, time.Now()
		tr := &heed.Transport{Base: roundTripFunc(func(req *http.Request) (*http.Response, error) {
			time.Sleep(time.Millisecond)
			mu.Lock()
			defer mu.Unlock()
			if time.Since(start) < time.Second {
				return nil, errRefused
			}
			if good < 1 { // one answer only
				good++
				return response(req, ok), nil
			}
			dials++
			return nil, errRefused
		})}
		lower(t, tr)
		var all sync.WaitGroup
		for range 20 {
			all.Go(func() {
				if resp, err := tr.RoundTrip(get(t.Context())); err == nil {
					resp.Body.Close()
				}
			})
			time.Sleep(20 * time.Millisecond)
		}
		all.Wait()
		assert.LessOrEqual(t, dials, 200, "of 20 calls in ten seconds")
	})
}

func TestASilentProbeDoesNotStallTheLine(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		start := time.Now()
		tr := &heed.Transport{Base: roundTripFunc(func(req *http.Request) (*http.Response, error) {
			at := time.Since(start)
			switch {
			case at < time.Second:
				return nil, errRefused
			case at < 1300*time.Millisecond: // the first request hangs, then all is well
				time.Sleep(30 * time.Second)
			default:
				time.Sleep(5 * time.Millisecond)
			}
			return response(req, ok), nil
		})}
		lower(t, tr)
		var all sync.WaitGroup
		for range 20 {
			all.Go(func() {
				begin := time.Now()
				if resp, err := tr.RoundTrip(get(t.Context())); assert.NoError(t, err) {
					resp.Body.Close()
				}
				if took := time.Since(begin); took < 30*time.Second { // not the probe
					assert.Less(t, took, 6*time.Second)
				}
			})
			time.Sleep(20 * time.Millisecond)
		}
		all.Wait()
	})
}
