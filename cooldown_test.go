package heed_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/heedhttp/heed"
	"github.com/heedhttp/heed/internal/testenv"
)

// A limitedServer admits burst requests at once and rate a second. It answers after latency, and
// asks refused requests to come back in a second. If tells, it says that nothing is left.
type limitedServer struct {
	rate, burst float64
	latency     time.Duration
	tells       bool

	mu       sync.Mutex
	tokens   float64
	at       time.Time
	arrivals []arrival
}

type arrival struct {
	at       time.Time
	admitted bool
}

func (l *limitedServer) RoundTrip(req *http.Request) (*http.Response, error) {
	admitted := l.admit()
	time.Sleep(l.latency)
	switch {
	case admitted:
		return response(req, ok), nil
	case l.tells:
		return response(req, reply{status: 429, header: []string{"Retry-After", "1", "X-RateLimit-Remaining", "0"}}), nil
	}
	return response(req, throttle("1")), nil
}

func (l *limitedServer) admit() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	now := time.Now()
	if l.at.IsZero() {
		l.tokens, l.at = l.burst, now
	}
	l.tokens, l.at = min(l.burst, l.tokens+l.rate*now.Sub(l.at).Seconds()), now
	admitted := l.tokens >= 1
	if admitted {
		l.tokens--
	}
	l.arrivals = append(l.arrivals, arrival{now, admitted})
	return admitted
}

// earlyArrivals counts the arrivals between the answer to a refusal and a second later.
func (l *limitedServer) earlyArrivals() (n int) {
	var until time.Time
	var refused time.Time
	for _, a := range l.arrivals {
		if a.at.After(refused) && a.at.Before(until) {
			n++
		}
		if !a.admitted && a.at.Add(l.latency+time.Second).After(until) {
			refused, until = a.at.Add(l.latency), a.at.Add(l.latency+time.Second)
		}
	}
	return n
}

func TestFiftyWorkersRespectALimitOfTen(t *testing.T) {
	for _, latency := range []time.Duration{0, time.Millisecond, 20 * time.Millisecond, 100 * time.Millisecond,
		300 * time.Millisecond} {
		t.Run(latency.String(), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				srv := &limitedServer{rate: 10, burst: 10, latency: latency, tells: true}
				tr := &heed.Transport{Base: srv}
				var wg sync.WaitGroup
				for range 50 {
					wg.Go(func() { assert.Equal(t, 200, status(t, tr, get(t.Context()))) })
				}
				start := time.Now()
				wg.Wait()
				assert.LessOrEqual(t, len(srv.arrivals), 130)
				assert.Zero(t, srv.earlyArrivals(), "no request comes before the second is over")
				between(t, 4*time.Second, time.Since(start), 20*time.Second) // the slowest of 20,000 runs took 10 s
				t.Logf("%d requests in %v", len(srv.arrivals), time.Since(start))
			})
		})
	}
}

// intervalPacer lets one request go per interval, however long that takes, and counts what is
// observed and returned.
type intervalPacer struct {
	every time.Duration

	mu       sync.Mutex
	next     time.Time
	returned int
	observed int
}

func (p *intervalPacer) Wait(req *http.Request) error {
	p.mu.Lock()
	if p.next.Before(time.Now()) {
		p.next = time.Now()
	}
	due := p.next
	p.next = due.Add(p.every)
	p.mu.Unlock()
	select {
	case <-time.After(time.Until(due)):
		return nil
	case <-req.Context().Done():
		return req.Context().Err()
	}
}

func (p *intervalPacer) Observe(a heed.Attempt) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.observed++
	if a.Err == heed.ErrNotSent {
		p.returned++
	}
}

func TestACoolDownPostedDuringPacingIsObeyed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newScript(ok)
		pacer := &intervalPacer{every: time.Second}
		board := &heed.LocalBoard{}
		tr := &heed.Transport{Base: s, Pacer: pacer, Board: board}
		assert.Equal(t, 200, status(t, tr, get(t.Context())))
		time.AfterFunc(500*time.Millisecond,
			func() { board.Post(context.Background(), "http://api.example.com", 5*time.Second, 0) })
		assert.Equal(t, 200, status(t, tr, get(t.Context())))
		between(t, 5500*time.Millisecond, s.times()[1], 7*time.Second)
		assert.Equal(t, 1, pacer.returned, "the permit that was not used")
		assert.Equal(t, 3, pacer.observed, "each Wait that returned nil is observed once")
	})
}

func TestALineIsReleasedAtTheBoardsInterval(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		board := &heed.LocalBoard{}
		require.NoError(t, board.Post(t.Context(), "http://api.example.com", time.Second, 50*time.Millisecond))
		wait, every, err := board.Read(t.Context(), "http://api.example.com")
		assert.Equal(t, []any{time.Second, 50 * time.Millisecond, nil}, []any{wait, every, err})
		s := newScript(reply{status: 200, took: 10 * time.Second})
		var wg sync.WaitGroup
		for range 20 {
			wg.Go(func() { assert.Equal(t, 200, status(t, &heed.Transport{Base: s, Board: board}, get(t.Context()))) })
		}
		wg.Wait()
		times := s.times()
		slices.Sort(times)
		between(t, time.Second, times[0], time.Second+15*time.Millisecond) // a place in the jitter window
		for i, at := range times {
			assert.Equal(t, times[0]+time.Duration(i)*50*time.Millisecond, at)
		}
	})
}

func TestEarlierCallsAreReleasedFirst(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		board := &heed.LocalBoard{}
		board.Post(t.Context(), "http://api.example.com", time.Minute, time.Second)
		s := newScript(ok)
		tr := &heed.Transport{Base: s, Board: board}
		var wg sync.WaitGroup
		for i := range 10 {
			wg.Go(func() {
				req := get(t.Context())
				req.Header.Set("N", strconv.Itoa(i))
				assert.Equal(t, 200, status(t, tr, req))
			})
			time.Sleep(time.Millisecond)
		}
		wg.Wait()
		for i, seen := range s.seen {
			assert.Equal(t, strconv.Itoa(i), seen.req.Header.Get("N"))
		}
	})
}

func TestACoolDownBeyondMaxWaitRefusesAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newScript(throttle("3600"), ok)
		tr := &heed.Transport{Base: s}
		assert.Equal(t, 429, status(t, tr, get(t.Context())), "the refused request gets its response")
		start := time.Now()
		_, err := tr.RoundTrip(get(t.Context()))
		var overdue *heed.OverdueError
		require.ErrorAs(t, err, &overdue)
		assert.Equal(t, heed.OverdueError{Key: "http://api.example.com", Wait: time.Hour, Left: time.Minute,
			Cause: heed.CauseCoolDown, Limit: "RetryPolicy.MaxWait"}, *overdue)
		assert.NotErrorIs(t, err, context.DeadlineExceeded, "there was no deadline")
		assert.True(t, overdue.Timeout())
		assert.Zero(t, time.Since(start))
		assert.Equal(t, 1, s.count())
	})
}

func TestACoolDownBeyondTheDeadlineRefusesAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tr := &heed.Transport{Base: newScript(throttle("30"), ok), Retry: heed.RetryPolicy{MaxAttempts: 1}}
		assert.Equal(t, 429, status(t, tr, get(t.Context())))
		start := time.Now()
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		defer cancel()
		_, err := tr.RoundTrip(get(ctx))
		var overdue *heed.OverdueError
		require.ErrorAs(t, err, &overdue)
		assert.Equal(t, heed.OverdueError{Key: "http://api.example.com", Wait: 30 * time.Second, Left: 10 * time.Second,
			Deadline: true, Cause: heed.CauseCoolDown, Limit: "deadline"}, *overdue)
		assert.ErrorIs(t, err, context.DeadlineExceeded)
		assert.Zero(t, time.Since(start))
	})
}

func TestALongCoolDownIsProbedEverMoreRarely(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newScript(throttle("86400"))
		tr := &heed.Transport{Base: s}
		assert.Equal(t, 429, status(t, tr, get(t.Context())))
		refused := 0
		for range 600 { // ten minutes, once a second, five at once
			var wg sync.WaitGroup
			var mu sync.Mutex
			for range 5 {
				wg.Go(func() {
					resp, err := tr.RoundTrip(get(t.Context()))
					if err != nil {
						mu.Lock()
						refused++
						mu.Unlock()
						return
					}
					resp.Body.Close()
				})
			}
			wg.Wait()
			time.Sleep(time.Second)
		}
		assert.Equal(t, 1+4, s.count(), "one probe after 1, 2, 4 and 8 minutes")
		assert.Equal(t, 3000-4, refused)
	})
}

func TestA503DelaysNoOtherRequest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newScript(reply{status: 503, header: []string{"Retry-After", "5"}}, ok)
		tr := &heed.Transport{Base: s}
		var wg sync.WaitGroup
		wg.Go(func() { assert.Equal(t, 200, status(t, tr, get(t.Context()))) })
		synctest.Wait()
		assert.Equal(t, 200, status(t, tr, get(t.Context())))
		assert.Zero(t, s.times()[1])
		wg.Wait()
		between(t, 5*time.Second, s.times()[2], 6500*time.Millisecond)
	})
}

func TestACoolDownAppliesToItsKey(t *testing.T) {
	credential := func(name string) func(*http.Request) {
		return func(r *http.Request) { r.Header.Set("Authorization", "Bearer "+name) }
	}
	to := func(url string) func(*http.Request) {
		return func(r *http.Request) { *r = *r.WithContext(r.Context()); r.URL, _ = r.URL.Parse(url); r.Host = "" }
	}
	for name, c := range map[string]struct {
		tr            *heed.Transport
		first, second func(*http.Request)
		waits         bool
	}{
		"the same host":           {&heed.Transport{}, to("http://a.example/x"), to("http://a.example/y"), true},
		"in another spelling":     {&heed.Transport{}, to("http://a.example"), to("http://A.Example:80/"), true},
		"another host":            {&heed.Transport{}, to("http://a.example"), to("http://b.example"), false},
		"another scheme":          {&heed.Transport{}, to("http://a.example"), to("https://a.example"), false},
		"another port":            {&heed.Transport{}, to("http://a.example"), to("http://a.example:81"), false},
		"the same credential":     {&heed.Transport{Key: heed.ByCredential}, credential("a"), credential("a"), true},
		"another credential":      {&heed.Transport{Key: heed.ByCredential}, credential("a"), credential("b"), false},
		"nothing":                 {&heed.Transport{Key: func(*http.Request) string { return "" }}, to("/"), to("/"), false},
		"nothing, without boards": {&heed.Transport{Board: heed.NoBoard}, to("/"), to("/"), false},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				tr := &heed.Transport{Base: newScript(throttle("30"), ok), Board: c.tr.Board, Key: c.tr.Key}
				tr.Retry.MaxAttempts = 1
				first, second := get(t.Context()), get(t.Context())
				c.first(first)
				c.second(second)
				assert.Equal(t, 429, status(t, tr, first))
				start := time.Now()
				assert.Equal(t, 200, status(t, tr, second))
				assert.Equal(t, c.waits, time.Since(start) >= 30*time.Second)
			})
		})
	}
}

func TestByCredentialHidesTheCredential(t *testing.T) {
	req := get(t.Context())
	assert.Equal(t, "http://api.example.com", heed.ByCredential(req))
	req.Header.Set("Authorization", "Bearer s3cret")
	key := heed.ByCredential(req)
	assert.NotContains(t, key, "s3cret")
	assert.Contains(t, key, "http://api.example.com ")
	req.Header.Set("Authorization", "Bearer other")
	assert.NotEqual(t, key, heed.ByCredential(req))
}

// sharedBoard is a Board that the Transport does not know to be local, as one in Redis.
type sharedBoard struct {
	heed.LocalBoard
	err   error
	reads int
	mu    sync.Mutex
}

func (b *sharedBoard) Post(ctx context.Context, key string, wait, every time.Duration) error {
	return errors.Join(b.err, b.LocalBoard.Post(ctx, key, wait, every))
}

func (b *sharedBoard) Read(ctx context.Context, key string) (time.Duration, time.Duration, error) {
	b.mu.Lock()
	b.reads++
	b.mu.Unlock()
	if b.err != nil {
		return 0, 0, b.err
	}
	return b.LocalBoard.Read(ctx, key)
}

func TestASharedBoardIsReadBeforeEachAttempt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		board := &sharedBoard{}
		tr := &heed.Transport{Base: newScript(ok), Board: board}
		assert.Equal(t, 200, status(t, tr, get(t.Context())))
		board.Post(t.Context(), "http://api.example.com", 10*time.Second, 0)
		start := time.Now()
		assert.Equal(t, 200, status(t, tr, get(t.Context())))
		between(t, 10*time.Second, time.Since(start), 13*time.Second)
		assert.GreaterOrEqual(t, board.reads, 3, "before each attempt, and before a waiter is released")

		tr.Base = newScript(throttle("20"))
		tr.Retry.MaxAttempts = 1
		assert.Equal(t, 429, status(t, tr, get(t.Context())))
		wait, _, _ := board.LocalBoard.Read(t.Context(), "http://api.example.com")
		assert.Equal(t, 20*time.Second, wait, "a refusal is posted for other processes too")
	})
}

// Waiters read the Board again before they are released, without a new request that tells them.
func TestWaitersObeyCoolDownsPostedMeanwhile(t *testing.T) {
	for name, every := range map[string]time.Duration{"spread": 0, "at an interval": 20 * time.Millisecond} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				board := &sharedBoard{}
				s := newScript(reply{status: 200, took: 10 * time.Millisecond})
				tr := &heed.Transport{Base: s, Board: board}
				board.Post(t.Context(), key, time.Second, every)
				var all sync.WaitGroup
				for range 20 {
					all.Go(func() { assert.Equal(t, 200, status(t, tr, get(t.Context()))) })
				}
				time.Sleep(time.Millisecond / 2) // not at the moment of a release
				for s.count() < 5 {              // the release has begun
					time.Sleep(time.Millisecond)
				}
				board.Post(t.Context(), key, 10*time.Second, every)
				sent, until := s.count(), time.Since(s.start)+10*time.Second
				all.Wait()
				for _, at := range s.times()[sent:] {
					assert.GreaterOrEqual(t, at, until)
				}
			})
		})
	}
}

// scriptedBoard reports what the test sets.
type scriptedBoard struct {
	mu    sync.Mutex
	until time.Time
	every time.Duration
}

func (b *scriptedBoard) set(wait, every time.Duration) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.until, b.every = time.Now().Add(wait), every
}

func (b *scriptedBoard) Post(context.Context, string, time.Duration, time.Duration) error { return nil }

func (b *scriptedBoard) Read(context.Context, string) (wait, every time.Duration, err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return max(0, time.Until(b.until)), b.every, nil
}

func TestALineFollowsAGrowingInterval(t *testing.T) {
	const ms = time.Millisecond
	for name, test := range map[string]struct {
		first, second time.Duration
		at            time.Duration   // when the second is set
		want          []time.Duration // releases, counted from the first one
	}{
		"during the cool-down":        {100 * ms, 300 * ms, 500 * ms, []time.Duration{0, 300 * ms, 600 * ms, 900 * ms}},
		"between two releases":        {100 * ms, 300 * ms, 1190 * ms, []time.Duration{0, 100 * ms, 400 * ms, 700 * ms}},
		"to one where none was known": {0, 300 * ms, 500 * ms, []time.Duration{0, 300 * ms, 600 * ms, 900 * ms}},
		"but not one that shrinks":    {300 * ms, 100 * ms, 1150 * ms, []time.Duration{0, 300 * ms, 600 * ms, 900 * ms}},
		"nor one that disappears":     {300 * ms, 0, 1150 * ms, []time.Duration{0, 300 * ms, 600 * ms, 900 * ms}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				board := &scriptedBoard{}
				board.set(time.Second, test.first)
				time.AfterFunc(test.at, func() { board.set(time.Second-test.at, test.second) })
				s := newScript(ok)
				tr := &heed.Transport{Base: s, Board: board}
				var all sync.WaitGroup
				for range 4 {
					all.Go(func() { assert.Equal(t, 200, status(t, tr, get(t.Context()))) })
				}
				all.Wait()
				times := s.times()
				slices.Sort(times)
				first := times[0]
				between(t, time.Second, first, 1075*time.Millisecond)
				for i := range times {
					times[i] -= first
				}
				assert.Equal(t, test.want, times)
			})
		})
	}
}

func TestAFailingBoardIsReportedAndCoolDownsStillHold(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var degraded []error
		board := &sharedBoard{err: errors.New("no route to host")}
		tr := &heed.Transport{Base: newScript(throttle("10"), ok), Board: board}
		tr.Trace = &heed.Trace{Degraded: func(err error) { degraded = append(degraded, err) }}
		start := time.Now()
		assert.Equal(t, 200, status(t, tr, get(t.Context())))
		between(t, 10*time.Second, time.Since(start), 13*time.Second)
		assert.GreaterOrEqual(t, len(degraded), 4, "a read, the post, a read before the retry, and one before its release")
		for _, err := range degraded {
			assert.ErrorIs(t, err, board.err)
		}
	})
}

func TestPostNeverShortensACoolDown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var b heed.LocalBoard
		read := func(key string) time.Duration {
			wait, _, err := b.Read(t.Context(), key)
			require.NoError(t, err)
			return wait
		}
		assert.Zero(t, read("a"))
		b.Post(t.Context(), "a", 10*time.Second, 0)
		assert.Equal(t, 10*time.Second, read("a"))
		b.Post(t.Context(), "a", 5*time.Second, 0)
		assert.Equal(t, 10*time.Second, read("a"))
		time.Sleep(4 * time.Second)
		b.Post(t.Context(), "a", 7*time.Second, 0)
		assert.Equal(t, 7*time.Second, read("a"))
		assert.Zero(t, read("b"))
		time.Sleep(7 * time.Second)
		assert.Zero(t, read("a"))
		b.Post(t.Context(), "b", 1<<62, 0)
		assert.Equal(t, 24*time.Hour, read("b"), "a wait is cut to a day")
		b.Post(t.Context(), "c", -time.Second, 0)
		assert.Zero(t, read("c"))
	})
}

func TestLocalBoardBoundsItsKeys(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var b heed.LocalBoard
		keys := 1<<16 + 500
		if testenv.Long() {
			keys = 80_000
		}
		for i := range keys {
			b.Post(t.Context(), fmt.Sprint(i), time.Hour, 0)
		}
		kept := 0
		for i := range keys {
			if wait, _, _ := b.Read(t.Context(), fmt.Sprint(i)); wait > 0 {
				kept++
			}
		}
		assert.LessOrEqual(t, kept, 1<<16)
		assert.Greater(t, kept, 1<<12)
	})
}
