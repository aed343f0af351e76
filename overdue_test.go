package heed_test

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/heedhttp/heed"
)

var errFull = errors.New("the queue is full")

// The caller and Trace get the same error, and LogTrace logs its cause and setting.
func TestARefusalNamesItsCauseAndSetting(t *testing.T) {
	for name, c := range map[string]struct {
		hint     string // of the request before
		tr       *heed.Transport
		deadline time.Duration // time left, if not 0
		error    string
		log      string
	}{
		"a cool-down, MaxWait": {
			hint: "65", tr: &heed.Transport{},
			error: "heed: http://api.example.com must wait 1m5s for a cool-down after a refusal, " +
				"longer than RetryPolicy.MaxWait (1m0s)",
			log: `cause=cool-down wait=1m5s limit=RetryPolicy.MaxWait`,
		},
		"a cool-down, the deadline": {
			hint: "30", tr: &heed.Transport{}, deadline: 1500 * time.Millisecond,
			error: "heed: http://api.example.com must wait 30s for a cool-down after a refusal, " +
				"longer than the 1.5s left until the deadline",
			log: `cause=cool-down wait=30s limit=deadline`,
		},
		"a cool-down, MaxElapsed": {
			hint: "30", tr: &heed.Transport{Retry: heed.RetryPolicy{MaxElapsed: 20 * time.Second}},
			error: "heed: http://api.example.com must wait 30s for a cool-down after a refusal, " +
				"longer than the 20s left of RetryPolicy.MaxElapsed",
			log: `cause=cool-down wait=30s limit=RetryPolicy.MaxElapsed`,
		},
		"the Pacer, MaxWait": {
			tr:    &heed.Transport{Pacer: refusingPacer{&heed.OverdueError{Key: "line", Wait: 60123456789, Left: time.Minute}}},
			error: "heed: line must wait 1m0.1s for its Pacer, longer than RetryPolicy.MaxWait (1m0s)",
			log:   `cause=pace wait=1m0.1s limit=RetryPolicy.MaxWait`,
		},
		"the Pacer, by its own bound": {
			tr: &heed.Transport{
				Pacer: refusingPacer{&heed.OverdueError{Key: "line", Wait: 3 * time.Second, Left: time.Second}}},
			error: "heed: line must wait 3s for its Pacer, longer than the 1s that it may wait",
			log:   `cause=pace wait=3s`,
		},
		"the Pacer, for another reason": {
			tr:    &heed.Transport{Pacer: refusingPacer{errFull}},
			error: "heed: http://api.example.com was refused by its Pacer: the queue is full",
			log:   `cause=pace wait=0s error="the queue is full"`,
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var traced []*heed.OverdueError
				var log bytes.Buffer
				ctx := heed.WithTrace(t.Context(),
					&heed.Trace{Refused: func(_ *http.Request, err *heed.OverdueError) { traced = append(traced, err) }})
				if c.deadline > 0 {
					var cancel context.CancelFunc
					ctx, cancel = context.WithTimeout(ctx, c.deadline)
					defer cancel()
				}
				s := newScript(ok)
				if c.hint != "" {
					s = newScript(throttle(c.hint), ok)
					c.tr.Base = s
					assert.Equal(t, 429, status(t, c.tr, get(heed.WithRetry(t.Context(), heed.RetryPolicy{MaxAttempts: 1}))))
				}
				c.tr.Base, c.tr.Trace = s, heed.LogTrace(slog.New(slog.NewTextHandler(&log, nil)))
				sent := s.count()
				_, err := c.tr.RoundTrip(get(ctx))
				require.Error(t, err)
				assert.Equal(t, sent, s.count())
				require.Len(t, traced, 1)
				assert.EqualError(t, traced[0], c.error)
				assert.ErrorIs(t, err, heed.ErrNotSent)
				if traced[0].Err == nil {
					assert.Same(t, traced[0], errors.Unwrap(err))
				} else {
					assert.Same(t, errFull, errors.Unwrap(err), "the Pacer's error")
					assert.ErrorIs(t, traced[0], errFull)
				}
				assert.Equal(t, strings.HasSuffix(c.error, "deadline"), errors.Is(err, context.DeadlineExceeded))
				assert.Contains(t, log.String(), `level=WARN msg="request not sent" method=GET host=api.example.com `+c.log+"\n")
			})
		})
	}
}

func TestACancelledRequestIsNotTracedAsRefused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		ctx = heed.WithTrace(ctx,
			&heed.Trace{Refused: func(*http.Request, *heed.OverdueError) { t.Error("traced as refused") }})
		tr := &heed.Transport{Base: newScript(throttle("10"), ok)}
		time.AfterFunc(time.Second, cancel)
		_, err := tr.RoundTrip(get(ctx))
		assert.ErrorIs(t, err, context.Canceled)
	})
}

// A refused request also waits for the cool-down that its own 429 posted. That is one wait, and its
// cause is the hint. If others make the cool-down longer, only the rest is reported.
func TestEachWaitIsTracedOnceWithItsCause(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		type wait struct {
			cause heed.Cause
			d     time.Duration
		}
		trace := func(waits *[]wait) *heed.Trace {
			return &heed.Trace{
				Cooled: func(_ *http.Request, _ string, d time.Duration) { *waits = append(*waits, wait{heed.CauseCoolDown, d}) },
				Decided: func(a heed.Attempt, _ heed.Verdict, d time.Duration) {
					if a.Cause != 0 {
						*waits = append(*waits, wait{a.Cause, d})
					}
				},
			}
		}
		var waits []wait
		tr := &heed.Transport{Base: newScript(throttle("10"), ok), Retry: heed.RetryPolicy{Backoff: constant(0)}}
		assert.Equal(t, 200, status(t, tr, get(heed.WithTrace(t.Context(), trace(&waits)))))
		assert.Equal(t, []wait{{heed.CauseHint, 10 * time.Second}}, waits)

		waits = nil
		board := &heed.LocalBoard{}
		tr = &heed.Transport{Base: newScript(throttle("10"), ok), Board: board}
		time.AfterFunc(4*time.Second, func() { board.Post(t.Context(), key, 20*time.Second, 0) })
		assert.Equal(t, 200, status(t, tr, get(heed.WithTrace(t.Context(), trace(&waits)))))
		assert.Equal(t, []wait{{heed.CauseHint, 10 * time.Second}, {heed.CauseCoolDown, 14 * time.Second}}, waits)
	})
}

func TestARefusalInLineSaysThatItWaitedAlready(t *testing.T) {
	err := &heed.OverdueError{
		Key: "line", Wait: 20 * time.Second, Left: time.Minute,
		Cause: heed.CauseCoolDown, Limit: "RetryPolicy.MaxWait",
	}
	assert.EqualError(t, err, "heed: line must wait 20s more for a cool-down after a refusal, "+
		"in all longer than RetryPolicy.MaxWait (1m0s)")
}
