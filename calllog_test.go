package heed_test

import (
	"context"
	"errors"
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"github.com/heedhttp/heed"
	"github.com/heedhttp/heed/testserver"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func steady(heed.Attempt) time.Duration { return 2 * time.Second }

func TestALedgerRecordsAttemptsWaitsCausesAndSources(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		srv := testserver.New(t,
			testserver.Step{Status: 429, Header: http.Header{"Retry-After-Ms": {"2500"}}, Delay: 10 * time.Millisecond},
			testserver.Step{Status: 503, Delay: 20 * time.Millisecond},
			testserver.Step{Status: 200, Delay: 30 * time.Millisecond})
		tr := &heed.Transport{Base: srv.Transport(), Retry: heed.RetryPolicy{Backoff: steady}}
		req, err := http.NewRequestWithContext(heed.WithLedger(t.Context()), http.MethodGet, srv.URL, nil)
		require.NoError(t, err)
		resp, err := tr.RoundTrip(req)
		require.NoError(t, err)
		defer resp.Body.Close()

		l := heed.FromResponse(resp)
		require.Len(t, l.Entries, 3, l.String())
		assert.Empty(t, l.Waits)
		first, second, third := l.Entries[0], l.Entries[1], l.Entries[2]
		assert.Equal(t, heed.Entry{
			Number: 1, Request: req, Status: 429, Took: 10 * time.Millisecond, Hinted: true, Hint: 2500 * time.Millisecond,
			Sources: []string{"Retry-After-Ms"}, Verdict: heed.Again, Next: 2500 * time.Millisecond,
		}, first)
		assert.GreaterOrEqual(t, second.Waited, 2500*time.Millisecond)
		require.NotEmpty(t, second.Waits)
		assert.Equal(t, heed.Wait{Cause: heed.CauseHint, For: 2500 * time.Millisecond}, second.Waits[0])
		second.Waited, second.Waits = 0, nil
		assert.Equal(t, heed.Entry{
			Number: 2, Request: req, Status: 503, Took: 20 * time.Millisecond, Verdict: heed.Again, Next: 2 * time.Second,
		}, second)
		assert.Equal(t, heed.Entry{
			Number: 3, Request: req, Status: 200, Took: 30 * time.Millisecond, Waited: 2 * time.Second,
			Waits: []heed.Wait{{Cause: heed.CauseBackoff, For: 2 * time.Second}},
		}, third)
		assert.Equal(t, "3. waited 2s (backoff 2s), 200 in 30ms: final", third.String())
		assert.Equal(t, "1. 429 in 10ms, asked to wait 2.5s by Retry-After-Ms: again", first.String())
		srv.Check(t)
	})
}

func TestALedgerSaysThatTheHostIsStillDown(t *testing.T) {
	l := heed.Ledger{Refused: &heed.OverdueError{Cause: heed.CauseOutage, Limit: "RetryPolicy.MaxOutage"}}
	assert.Equal(t, "not sent again: the host is down for longer than RetryPolicy.MaxOutage\n", l.String())
}

// slowPacer delays each request by a second.
type slowPacer struct{}

func (slowPacer) Wait(*http.Request) error { time.Sleep(time.Second); return nil }
func (slowPacer) Observe(heed.Attempt)     {}

func TestALedgerRecordsTheFirstAttemptsWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		srv := testserver.New(t, testserver.Step{Status: 429, RetryAfter: 5 * time.Second})
		tr := &heed.Transport{Base: srv.Transport(), Pacer: slowPacer{}, Retry: heed.RetryPolicy{MaxAttempts: 1}}
		send := func(ctx context.Context) *http.Response {
			req, err := http.NewRequestWithContext(ctx, http.MethodGet, srv.URL, nil)
			require.NoError(t, err)
			resp, err := tr.RoundTrip(req)
			require.NoError(t, err)
			resp.Body.Close()
			return resp
		}
		refused := heed.FromResponse(send(heed.WithLedger(t.Context())))
		require.Len(t, refused.Entries, 1)
		assert.Equal(t, heed.OutOfAttempts, refused.Entries[0].Verdict)
		assert.Equal(t, 5*time.Second, refused.Entries[0].Next)

		l := heed.FromResponse(send(heed.WithLedger(t.Context())))
		require.Len(t, l.Entries, 1)
		waits := l.Entries[0].Waits
		require.Len(t, waits, 2, l.String())
		assert.Equal(t, heed.Wait{Cause: heed.CauseCoolDown, For: 5 * time.Second}, waits[0])
		assert.Equal(t, heed.Wait{Cause: heed.CausePace, For: time.Second}, waits[1])
		assert.GreaterOrEqual(t, l.Entries[0].Waited, 6*time.Second)
		assert.Equal(t, heed.Ledger{}, heed.FromResponse(send(t.Context())), "the context has no Ledger")
	})
}

func TestALedgerRecordsACancelledCall(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		broken := errors.New("secret broken")
		tr := &heed.Transport{Retry: heed.RetryPolicy{Backoff: steady},
			Base: roundTripFunc(func(*http.Request) (*http.Response, error) {
				return nil, broken
			})}
		ctx, cancel := context.WithCancel(heed.WithLedger(t.Context()))
		time.AfterFunc(3*time.Second, cancel)
		_, err := tr.RoundTrip(get(ctx))
		require.ErrorIs(t, err, context.Canceled)
		l := heed.FromContext(ctx)
		require.Len(t, l.Entries, 2)
		assert.ErrorIs(t, l.Entries[1].Err, broken)
		assert.Equal(t, []heed.Wait{{Cause: heed.CauseBackoff, For: 2 * time.Second}}, l.Waits,
			"the wait that was cancelled")
		assert.NotContains(t, l.String(), "secret")
		assert.Equal(t, "1. failed in 0s: again\n2. waited 2s (backoff 2s), failed in 0s: again\nwaiting (backoff 2s)\n",
			l.String())
	})
}

func TestWithoutACallALedgerIsEmpty(t *testing.T) {
	assert.Equal(t, heed.Ledger{}, heed.FromResponse(nil))
	assert.Equal(t, heed.Ledger{}, heed.FromResponse(&http.Response{}))
	assert.Equal(t, heed.Ledger{}, heed.FromContext(t.Context()))
	assert.Equal(t, "unknown cause", heed.Cause(9).String())
}

func TestALaterRequestClearsTheLedgersRefusal(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx := heed.WithLedger(t.Context())
		tr := &heed.Transport{Base: newScript(throttle("100"), ok), Retry: heed.RetryPolicy{MaxAttempts: 1}}
		assert.Equal(t, 429, status(t, tr, get(t.Context())))
		_, err := tr.RoundTrip(get(ctx))
		assert.ErrorAs(t, err, new(*heed.OverdueError))
		assert.NotNil(t, heed.FromContext(ctx).Refused)
		time.Sleep(200 * time.Second)
		assert.Equal(t, 200, status(t, tr, get(ctx)))
		assert.Nil(t, heed.FromContext(ctx).Refused)
	})
}

// The outer Transport reports an attempt that began before the inner one refused its retry.
func TestALedgerKeepsTheRefusalOfANestedTransport(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx := heed.WithLedger(t.Context())
		inner := &heed.Transport{Base: newScript(throttle("1"), throttle("100")), Pacer: onlyOnce{new(int)}}
		assert.Equal(t, 429, status(t, &heed.Transport{Base: inner}, get(ctx)))
		assert.NotNil(t, heed.FromContext(ctx).Refused)
	})
}

// onlyOnce is a Pacer that admits one request.
type onlyOnce struct{ admitted *int }

func (p onlyOnce) Wait(*http.Request) error {
	if *p.admitted++; *p.admitted > 1 {
		return errFull
	}
	return nil
}

func (onlyOnce) Observe(heed.Attempt) {}
