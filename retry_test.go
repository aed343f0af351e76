package heed_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"math/rand/v2"
	"net"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/heedhttp/heed"
)

// verdicts runs one request and returns the verdict after each attempt.
func verdicts(t *testing.T, tr *heed.Transport, req *http.Request) (all []heed.Verdict) {
	t.Helper()
	tr.Trace = &heed.Trace{Decided: func(_ heed.Attempt, v heed.Verdict, _ time.Duration) { all = append(all, v) }}
	if resp, err := tr.RoundTrip(req); err == nil {
		resp.Body.Close()
	}
	return all
}

func constant(d time.Duration) heed.Backoff { return func(heed.Attempt) time.Duration { return d } }

// Each case fails one more check than the case before. The first failed check decides.
func TestVerdictsAreCheckedInOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		broke := &heed.LocalBudget{Ratio: -1, MinPerSecond: -1}
		deadline, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		long := heed.RetryPolicy{Backoff: constant(2 * time.Minute)}
		some := heed.RetryPolicy{Backoff: constant(2 * time.Second)}
		one := heed.RetryPolicy{Backoff: long.Backoff, MaxAttempts: 1}
		read := func(ctx context.Context) *http.Request { return stream(ctx, "PUT", newBody("content")) }
		for _, c := range []struct {
			want   heed.Verdict
			status int
			budget heed.Budget
			policy heed.RetryPolicy
			req    *http.Request
		}{
			{heed.Again, 503, nil, heed.RetryPolicy{}, get(t.Context())},
			{heed.OutOfBudget, 503, broke, heed.RetryPolicy{}, get(t.Context())},
			{heed.OutOfTime, 503, broke, some, get(deadline)},
			{heed.WaitTooLong, 503, broke, long, get(deadline)},
			{heed.NotReplayable, 503, broke, long, read(deadline)},
			{heed.OutOfAttempts, 503, broke, one, read(deadline)},
			{heed.Final, 404, broke, one, read(deadline)},
		} {
			tr := &heed.Transport{Base: newScript(reply{status: c.status}, ok), Budget: c.budget, Retry: c.policy}
			assert.Equal(t, c.want, verdicts(t, tr, c.req)[0], "%v", c.want)
		}
	})
}

func TestJitterOnlyLengthensTheHint(t *testing.T) {
	for _, c := range []struct {
		hint      string
		backoff   time.Duration
		low, high time.Duration
	}{
		{"0", 0, 0, 0},
		{"0", 3 * time.Second, 3 * time.Second, 3 * time.Second},
		{"10", 0, 10 * time.Second, 13 * time.Second},
		{"10", 20 * time.Second, 20 * time.Second, 23 * time.Second},
		{"60", 0, 60 * time.Second, 70 * time.Second}, // at most 10 s
		{"", 5 * time.Second, 5 * time.Second, 5 * time.Second},
	} {
		for _, status := range []int{429, 503} {
			synctest.Test(t, func(t *testing.T) {
				var least, most time.Duration = time.Hour, 0
				for range 200 {
					s := newScript(reply{status: status, header: []string{"Retry-After", c.hint}}, ok)
					tr := &heed.Transport{Base: s, Retry: heed.RetryPolicy{Backoff: constant(c.backoff)}}
					roundTrip(t, tr, get(t.Context()))
					wait := s.times()[1]
					least, most = min(least, wait), max(most, wait)
				}
				between(t, c.low, least, c.low+(c.high-c.low)/10)
				between(t, c.high-(c.high-c.low)/10, most, c.high)
			})
		}
	}
}

func TestJitterLeavesHalfOfTheTimeLeft(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for range 100 {
			ctx, cancel := context.WithTimeout(t.Context(), 11*time.Second)
			s := newScript(reply{status: 503, header: []string{"Retry-After", "10"}, took: 500 * time.Millisecond}, ok)
			assert.Equal(t, 200, status(t, &heed.Transport{Base: s, Budget: heed.Unlimited}, get(ctx)))
			between(t, 10500*time.Millisecond, s.times()[1], 10750*time.Millisecond)
			cancel()
		}
	})
}

// Only the wait must end in time: how long an attempt took says nothing about the next one.
func TestTheWaitMustEndBeforeTheDeadline(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, c := range []struct {
			left time.Duration
			want int
		}{{4*time.Second + 1, 2}, {4 * time.Second, 1}} {
			s := newScript(reply{status: 503, took: 2 * time.Second}, ok)
			tr := &heed.Transport{Base: s, Retry: heed.RetryPolicy{Backoff: constant(2 * time.Second), MaxElapsed: c.left}}
			status(t, tr, get(t.Context()))
			assert.Equal(t, c.want, s.count(), "2 s of attempt and 2 s of wait in %v", c.left)

			s = newScript(reply{status: 503, took: 2 * time.Second}, ok)
			ctx, cancel := context.WithTimeout(t.Context(), c.left)
			status(t, &heed.Transport{Base: s, Retry: heed.RetryPolicy{Backoff: constant(2 * time.Second)}}, get(ctx))
			cancel()
			assert.Equal(t, c.want, s.count())
		}
	})
}

// One of several replicas hangs; AttemptTimeout is meant to reach another one.
func TestAnAttemptThatTimedOutIsRetriedWithinTheDeadline(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for range 50 {
			ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
			s := newScript(reply{took: time.Hour}, ok)
			assert.Equal(t, 200,
				status(t, &heed.Transport{Base: s, Retry: heed.RetryPolicy{AttemptTimeout: 5 * time.Second}}, get(ctx)))
			cancel()
		}
	})
}

func TestThePolicyBoundsAttemptsAndWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for name, c := range map[string]struct {
			policy  heed.RetryPolicy
			replies []reply
			want    int
		}{
			"four attempts":        {heed.RetryPolicy{}, []reply{unavailable}, 4},
			"two":                  {heed.RetryPolicy{MaxAttempts: 2}, []reply{unavailable}, 2},
			"one":                  {heed.RetryPolicy{MaxAttempts: 1}, []reply{unavailable}, 1},
			"a negative number":    {heed.RetryPolicy{MaxAttempts: -5}, []reply{unavailable}, 1},
			"a minute's wait":      {heed.RetryPolicy{}, []reply{throttle("60"), ok}, 2},
			"more than a minute's": {heed.RetryPolicy{}, []reply{throttle("61"), ok}, 1},
			"no wait at all":       {heed.RetryPolicy{MaxWait: -1}, []reply{throttle("1"), ok}, 1},
			"no wait, none needed": {heed.RetryPolicy{MaxWait: -1, Backoff: constant(0)}, []reply{unavailable, ok}, 2},
			"a negative backoff":   {heed.RetryPolicy{Backoff: constant(-time.Hour)}, []reply{unavailable, ok}, 2},
			"a negative hint": {heed.RetryPolicy{Backoff: constant(0), Hint: hint(-time.Hour)}, []reply{unavailable, ok},
				2},
			"five minutes in all": {heed.RetryPolicy{MaxAttempts: 100}, []reply{throttle("50")}, 6},
			"unbounded":           {heed.RetryPolicy{MaxAttempts: 12, MaxElapsed: -1}, []reply{throttle("50")}, 12},
			"its own hint":        {heed.RetryPolicy{Hint: hint(2 * time.Minute)}, []reply{throttle("1"), ok}, 1},
			"its own judgement": {heed.RetryPolicy{If: func(a heed.Attempt) bool { return a.Response.StatusCode == 404 }},
				[]reply{{status: 404}, unavailable}, 2},
			"a success to do again": {heed.RetryPolicy{If: func(a heed.Attempt) bool { return a.Response.StatusCode == 202 }},
				[]reply{{status: 202}, ok}, 2},
		} {
			s := newScript(c.replies...)
			status(t, &heed.Transport{Base: s, Retry: c.policy, Budget: heed.Unlimited}, get(t.Context()))
			assert.Equal(t, c.want, s.count(), name)
		}
	})
}

func hint(d time.Duration) func(*http.Response, time.Time) (time.Duration, bool) {
	return func(*http.Response, time.Time) (time.Duration, bool) { return d, true }
}

func TestAttemptHasNumberTimesAndOutcome(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var seen []heed.Attempt
		s := newScript(reply{status: 503, took: time.Second}, reply{err: errBroken, took: 2 * time.Second}, ok)
		tr := &heed.Transport{Base: s,
			Retry: heed.RetryPolicy{Backoff: constant(10 * time.Second), If: func(a heed.Attempt) bool {
				seen = append(seen, a)
				return heed.Worthwhile(a)
			}}}
		req := get(t.Context())
		assert.Equal(t, 200, status(t, tr, req))
		require.Len(t, seen, 3)
		for i, want := range []heed.Attempt{
			{Number: 1, Took: time.Second, Elapsed: time.Second},
			{Number: 2, Took: 2 * time.Second, Elapsed: 13 * time.Second, Waited: 10 * time.Second, Err: errBroken},
			{Number: 3, Took: 0, Elapsed: 23 * time.Second, Waited: 10 * time.Second},
		} {
			got := seen[i]
			assert.Same(t, req, got.Request)
			assert.Equal(t, want.Err == nil, got.Response != nil)
			assert.Equal(t, want,
				heed.Attempt{Number: got.Number, Took: got.Took, Elapsed: got.Elapsed, Waited: got.Waited, Err: got.Err})
		}
	})
}

func TestWithRetryAppliesToARequestAndItsRedirects(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		base, _ := serve(t, func(w http.ResponseWriter, r *http.Request) {
			if r.URL.Path != "/end" {
				http.Redirect(w, r, "/end", http.StatusTemporaryRedirect)
				return
			}
			w.WriteHeader(503)
		})
		tried := 0
		counting := roundTripFunc(func(req *http.Request) (*http.Response, error) { tried++; return base.RoundTrip(req) })
		client := &http.Client{Transport: &heed.Transport{Base: counting}}
		ctx := heed.WithRetry(t.Context(), heed.RetryPolicy{MaxAttempts: 2})
		resp, err := client.Do(get(ctx))
		require.NoError(t, err)
		resp.Body.Close()
		assert.Equal(t, 503, resp.StatusCode)
		assert.Equal(t, 1+2, tried)
	})
}

// There are as many requests as attempts, and no wait after the last.
func TestTheLastRefusalIsReturnedAtOnceAndUnread(t *testing.T) {
	for attempts := 1; attempts <= 5; attempts++ {
		synctest.Test(t, func(t *testing.T) {
			var replies []reply
			var bodies []*body
			for i := range attempts + 1 {
				bodies = append(bodies, newBody(fmt.Sprint("refusal ", i+1)))
				replies = append(replies, reply{status: 429, header: []string{"Retry-After", "10"}, body: bodies[i]})
			}
			s, start := newScript(replies...), time.Now()
			resp := roundTrip(t, &heed.Transport{Base: s, Retry: heed.RetryPolicy{MaxAttempts: attempts}}, get(t.Context()))
			assert.Equal(t, 429, resp.StatusCode)
			assert.Equal(t, attempts, s.count())
			assert.Equal(t, s.times()[attempts-1], time.Since(start), "there is no wait after it")
			for _, b := range bodies[:attempts-1] {
				_, closes := b.counts()
				assert.Equal(t, 1, closes)
			}
			reads, closes := bodies[attempts-1].counts()
			assert.Zero(t, reads+closes)
			assert.Equal(t, fmt.Sprint("refusal ", attempts), content(t, resp))
		})
	}
}

func TestPoliciesOfOtherClientsCanBeWritten(t *testing.T) {
	around := func(b heed.Backoff, low, high float64) heed.Backoff {
		return func(a heed.Attempt) time.Duration {
			return time.Duration(float64(b(a)) * (low + (high-low)*rand.Float64()))
		}
	}
	capped := func(b heed.Backoff, most time.Duration) heed.Backoff {
		return func(a heed.Attempt) time.Duration { return min(b(a), most) }
	}
	orASecond := func(resp *http.Response, now time.Time) (time.Duration, bool) {
		if wait, ok := heed.RetryAfter(resp, now); ok || resp.StatusCode != 429 {
			return wait, ok
		}
		return time.Second, true
	}
	short := heed.RetryPolicy{MaxAttempts: 3, Backoff: around(heed.Exponential(200*ms, time.Minute), 1, 1.3),
		Hint: orASecond}
	long := heed.RetryPolicy{MaxAttempts: 7,
		Backoff: capped(around(heed.Exponential(time.Second, 30*time.Second), 0.75, 1.25), 30*time.Second)}
	for name, c := range map[string]struct {
		policy heed.RetryPolicy
		reply  reply
		waits  [][2]time.Duration
	}{
		"three attempts from 200 ms": {short, unavailable,
			[][2]time.Duration{{200 * ms, 260 * ms}, {400 * ms, 520 * ms}}},
		"three attempts, a second without a hint": {short, reply{status: 429},
			[][2]time.Duration{{1000 * ms, 1300 * ms}, {1000 * ms, 1300 * ms}}},
		"three attempts, longer with a hint": {short, throttle("5"),
			[][2]time.Duration{{5000 * ms, 6500 * ms}, {5000 * ms, 6500 * ms}}},
		"a quarter more or less, at most 30 s": {long, unavailable,
			[][2]time.Duration{{750 * ms, 1250 * ms}, {1500 * ms, 2500 * ms}, {3000 * ms, 5000 * ms},
				{6000 * ms, 10_000 * ms}, {12_000 * ms, 20_000 * ms}, {22_500 * ms, 30_000 * ms}}},
		"heed's own": {heed.RetryPolicy{MaxOutage: -1}, unavailable,
			[][2]time.Duration{{0, 1000 * ms}, {0, 2000 * ms}, {0, 4000 * ms}}},
		"heed's own, with a hint": {heed.RetryPolicy{}, throttle("20"),
			[][2]time.Duration{{20_000 * ms, 26_000 * ms}, {20_000 * ms, 26_000 * ms}, {20_000 * ms, 26_000 * ms}}},
		"heed's own, without a hint": {heed.RetryPolicy{}, reply{status: 429},
			[][2]time.Duration{{0, 1000 * ms}, {1000 * ms, 2000 * ms}, {10_000 * ms, 10_000 * ms}}},
	} {
		t.Run(name, func(t *testing.T) {
			for range 50 {
				synctest.Test(t, func(t *testing.T) {
					s := newScript(c.reply)
					assert.Equal(t, c.reply.status,
						status(t, &heed.Transport{Base: s, Retry: c.policy, Budget: heed.Unlimited}, get(t.Context())))
					times := s.times()
					require.Len(t, times, len(c.waits)+1)
					for i, bounds := range c.waits {
						between(t, bounds[0], times[i+1]-times[i], bounds[1])
					}
				})
			}
		})
	}
}

const ms = time.Millisecond

// MaxElapsed and the budget end the retries of a policy without a limit of attempts.
func TestRetriesAlwaysEnd(t *testing.T) {
	for name, c := range map[string]struct {
		tr   *heed.Transport
		most int
	}{
		"time": {&heed.Transport{Retry: heed.RetryPolicy{MaxAttempts: math.MaxInt, Backoff: constant(time.Second)},
			Budget: heed.Unlimited}, 300},
		"budget": {&heed.Transport{Retry: heed.RetryPolicy{MaxAttempts: math.MaxInt, MaxElapsed: -1, Backoff: constant(0)}},
			4},
	} {
		synctest.Test(t, func(t *testing.T) {
			s, start := newScript(unavailable), time.Now()
			c.tr.Base = s
			assert.Equal(t, 503, status(t, c.tr, get(t.Context())), name)
			assert.Equal(t, c.most, s.count(), name)
			assert.LessOrEqual(t, time.Since(start), 5*time.Minute, name)
		})
	}
}

func TestARetryThatCannotBeSentReturnsTheLastResponse(t *testing.T) {
	long := strings.Repeat("x", 20<<10)
	lateBoard := func() heed.Board { // closes the key for an hour while the retry waits
		b := &heed.LocalBoard{}
		time.AfterFunc(time.Second, func() { b.Post(context.Background(), key, time.Hour, 0) })
		return b
	}
	for name, c := range map[string]struct {
		first   reply
		want    string
		wantErr error
		change  func(tr *heed.Transport, req *http.Request)
	}{
		"a cool-down": {reply{status: 503, body: readCloser("busy")}, "busy", nil,
			func(tr *heed.Transport, _ *http.Request) { tr.Board = lateBoard() }},
		"a cool-down, on HTTP/2": {reply{status: 503, proto: 2, body: readCloser(long)}, long, nil,
			func(tr *heed.Transport, _ *http.Request) { tr.Board = lateBoard() }},
		"a long body": {reply{status: 503, body: readCloser(long)}, long[:16<<10], io.ErrUnexpectedEOF,
			func(tr *heed.Transport, _ *http.Request) { tr.Board = lateBoard() }},
		"exactly what is kept": {reply{status: 503, body: readCloser(long[:16<<10])}, long[:16<<10], nil,
			func(tr *heed.Transport, _ *http.Request) { tr.Board = lateBoard() }},
		"the pacer": {reply{status: 503, body: readCloser("busy")}, "busy", nil,
			func(tr *heed.Transport, _ *http.Request) { tr.Pacer = &onlyFirst{} }},
		"GetBody": {reply{status: 503, body: readCloser("busy")}, "busy", nil,
			func(_ *heed.Transport, req *http.Request) {
				req.Body, req.GetBody = readCloser("content"), func() (io.ReadCloser, error) { return nil, errBroken }
			}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s, l := newScript(c.first, ok), &countingBudget{}
				tr := &heed.Transport{Base: s, Budget: l, Retry: heed.RetryPolicy{Backoff: constant(5 * time.Second)}}
				req := put(t.Context(), "")
				req.Body, req.GetBody = nil, nil
				c.change(tr, req)
				resp := roundTrip(t, tr, req)
				assert.Equal(t, 503, resp.StatusCode)
				got, err := io.ReadAll(resp.Body)
				assert.Equal(t, c.want, string(got))
				assert.Equal(t, c.wantErr, err)
				assert.NoError(t, resp.Body.Close())
				_, err = resp.Body.Read(make([]byte, 1))
				assert.Error(t, err, "after Close")
				assert.Equal(t, 1, s.count())
				assert.Equal(t, []int{1, 1}, []int{l.withdrawals, l.refunds})
			})
		})
	}
}

// onlyFirst is a Pacer that refuses retries.
type onlyFirst struct{ asked, observed int }

func (p *onlyFirst) Wait(*http.Request) error {
	if p.asked++; p.asked > 1 {
		return &heed.OverdueError{Key: key, Wait: time.Hour}
	}
	return nil
}
func (p *onlyFirst) Observe(heed.Attempt) { p.observed++ }

func TestCancellingBetweenAttemptsReturnsAllCauses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, first := &countingBudget{}, newBody("busy")
		cause := errors.New("the user went away")
		ctx, cancel := context.WithCancelCause(t.Context())
		time.AfterFunc(15*time.Second, func() { cancel(cause) })
		tr := &heed.Transport{Base: newScript(reply{err: errBroken}, reply{status: 503, body: first}, ok), Budget: l}
		tr.Retry.Backoff = constant(10 * time.Second)
		resp, err := tr.RoundTrip(get(ctx))
		assert.Nil(t, resp)
		for _, target := range []error{context.Canceled, cause, errBroken} {
			assert.ErrorIs(t, err, target)
		}
		assert.ErrorContains(t, err, "after attempt 2, which ended with status 503 Service Unavailable")
		assert.NotContains(t, err.Error(), "s3cret")
		assert.Equal(t, []int{2, 1}, []int{l.withdrawals, l.refunds})
		_, closes := first.counts()
		assert.Equal(t, 1, closes)
	})
}

func TestARefusedRetryReturnsBothErrors(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, err := (&heed.Transport{Base: newScript(reply{err: errBroken}), Pacer: &onlyFirst{}}).RoundTrip(get(t.Context()))
		var overdue *heed.OverdueError
		assert.ErrorAs(t, err, &overdue)
		assert.ErrorIs(t, err, errBroken)
	})
}

func TestEachWaitOfAPacerIsObservedOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := &intervalPacer{}
		assert.Equal(t, 200,
			status(t, &heed.Transport{Base: newScript(throttle("1"), unavailable, ok), Pacer: p}, get(t.Context())))
		assert.Equal(t, []int{3, 0}, []int{p.observed, p.returned})
	})
}

func TestMaxWaitBoundsAPlainPacer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		start := time.Now()
		tr := &heed.Transport{Base: newScript(ok), Pacer: &intervalPacer{every: time.Hour}}
		assert.Equal(t, 200, status(t, tr, get(t.Context())))
		_, err := tr.RoundTrip(get(t.Context()))
		var overdue *heed.OverdueError
		require.ErrorAs(t, err, &overdue)
		assert.Equal(t, time.Minute, overdue.Left)
		assert.Equal(t, time.Minute, time.Since(start))
	})
}

func TestBaseHandlesANilURL(t *testing.T) {
	b := newBody("content")
	_, err := (&heed.Transport{}).RoundTrip(&http.Request{Method: "PUT", Body: b})
	assert.ErrorContains(t, err, "nil Request.URL")
	_, closes := b.counts()
	assert.Equal(t, 1, closes)
}

func TestWorthwhileHandlesIncompleteAttempts(t *testing.T) {
	assert.False(t, heed.Worthwhile(heed.Attempt{}))
	assert.False(t, heed.Worthwhile(heed.Attempt{Err: errBroken}),
		"without a Request it is unknown whether it is idempotent")
	assert.False(t, heed.Worthwhile(heed.Attempt{Response: &http.Response{StatusCode: 503}}))
	assert.True(t, heed.Worthwhile(heed.Attempt{Response: &http.Response{StatusCode: 429}}))
	assert.False(t, heed.Worthwhile(heed.Attempt{Response: &http.Response{StatusCode: 403}}))
	hinted := &http.Response{StatusCode: 403, Header: http.Header{"Retry-After": {"1"}}}
	assert.True(t, heed.Worthwhile(heed.Attempt{Response: hinted}),
		"an Attempt made by the user is judged like the Transport's")
	_, known := heed.RetryAfter(nil, time.Now())
	assert.False(t, known)
}

func TestVerdictsHaveNames(t *testing.T) {
	for v, want := range map[heed.Verdict]string{
		heed.Final: "final", heed.Again: "again", heed.OutOfAttempts: "out of attempts", heed.OutOfBudget: "out of budget",
		heed.OutOfTime: "out of time", heed.WaitTooLong: "wait too long", heed.NotReplayable: "not replayable",
		-1: "unknown verdict", 7: "unknown verdict",
	} {
		assert.Equal(t, want, v.String())
	}
}

func TestARetryThatWasSentIsNotRefunded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := &countingBudget{}
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		defer cancel()
		tr := &heed.Transport{Base: newScript(unavailable, throttle("5"), ok), Budget: l, Pacer: &refusesAfter{n: 2}}
		tr.Retry.Backoff = constant(time.Second)
		assert.Equal(t, 429, status(t, tr, get(ctx)))
		assert.Equal(t, []int{1, 0}, []int{l.withdrawals, l.refunds},
			"the retry after the 503 was sent, that after the 429 was free")
	})
}

// refusesAfter is a Pacer that lets n attempts go.
type refusesAfter struct{ n int }

func (p *refusesAfter) Wait(*http.Request) error {
	if p.n--; p.n < 0 {
		return &heed.OverdueError{Key: key, Wait: time.Hour}
	}
	return nil
}
func (p *refusesAfter) Observe(heed.Attempt) {}

func TestAPanicReturnsUnusedBudgetAndPermits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, p := &countingBudget{}, &intervalPacer{}
		tr := &heed.Transport{Base: newScript(unavailable), Budget: l, Pacer: p}
		tr.Trace = &heed.Trace{Decided: func(heed.Attempt, heed.Verdict, time.Duration) { panic("boom") }}
		assert.Panics(t, func() { tr.RoundTrip(get(t.Context())) })
		assert.Equal(t, []int{1, 1}, []int{l.withdrawals, l.refunds})

		tr.Trace = &heed.Trace{Paced: func(*http.Request, time.Duration) { panic("boom") }}
		p.observed = 0
		assert.Panics(t, func() { tr.RoundTrip(get(t.Context())) })
		assert.Equal(t, []int{1, 1}, []int{p.observed, p.returned})
	})
}

func TestARequestThatCannotBeSentIsNotRetried(t *testing.T) {
	for name, change := range map[string]func(*http.Request){
		"no host":   func(r *http.Request) { r.URL.Host = "" },
		"no header": func(r *http.Request) { r.Header = nil },
	} {
		s := newScript(reply{err: errBroken})
		req := get(t.Context())
		change(req)
		_, err := (&heed.Transport{Base: s}).RoundTrip(req)
		assert.Equal(t, errBroken, err, name)
		assert.Equal(t, 1, s.count(), name)
	}
}

// deadlinePacer refuses because of the deadline that it was given.
type deadlinePacer struct{}

func (deadlinePacer) Wait(*http.Request) error {
	return &heed.OverdueError{Key: "its", Wait: time.Hour, Left: time.Minute, Deadline: true}
}
func (deadlinePacer) Observe(heed.Attempt) {}

func TestAPacersDeadlineIsNotTheCallers(t *testing.T) {
	_, err := (&heed.Transport{Base: newScript(ok), Pacer: deadlinePacer{}}).RoundTrip(get(t.Context()))
	var overdue *heed.OverdueError
	require.ErrorAs(t, err, &overdue)
	assert.Equal(t, heed.OverdueError{Key: "its", Wait: time.Hour, Left: time.Minute, Cause: heed.CausePace,
		Limit: "RetryPolicy.MaxWait"}, *overdue)
	assert.NotErrorIs(t, err, context.DeadlineExceeded)
}

func TestSomeStatusesMeanALimitOnlyWithAHint(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, status := range []int{403, 413, 418, 420, 430, 529} {
			req := get(t.Context())
			req.Method = "POST" // is retried after a limit, not after a failure
			s := newScript(reply{status: status}, ok)
			assert.Equal(t, status, roundTrip(t, &heed.Transport{Base: s}, req).StatusCode)
			s = newScript(reply{status: status, header: []string{"Retry-After", "1"}}, ok)
			assert.Equal(t, 200, roundTrip(t, &heed.Transport{Base: s}, req).StatusCode)
		}
	})
}

func TestAPostIsRetriedIfNothingWasSent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, err := range []error{
			&net.OpError{Op: "dial", Err: errBroken},
			&net.OpError{Op: "proxyconnect", Err: errBroken},
			&net.DNSError{Err: "server misbehaving", IsTemporary: true},
			errors.New("net/http: TLS handshake timeout"),
		} {
			s := newScript(reply{err: err}, ok)
			req := get(t.Context())
			req.Method = "POST"
			assert.Equal(t, 200, status(t, &heed.Transport{Base: s}, req), "%v", err)
		}
	})
}

func TestNilPointersCountAsUnset(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newScript(unavailable, throttle("5"), ok)
		tr := &heed.Transport{Base: s, Budget: (*heed.LocalBudget)(nil), Board: (*heed.LocalBoard)(nil)}
		assert.Equal(t, 200, status(t, tr, get(t.Context())))
		assert.Equal(t, 3, s.count())
		tr.Base, tr.Retry.MaxAttempts = newScript(throttle("5"), ok), 1
		assert.Equal(t, 429, status(t, tr, get(t.Context())))
		start := time.Now()
		assert.Equal(t, 200, status(t, tr, get(t.Context())))
		between(t, 5*time.Second, time.Since(start), 7*time.Second)
	})
}
