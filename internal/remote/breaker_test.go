package remote_test

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/heedhttp/heed/internal/remote"
)

var (
	errGone    = errors.New("gone")
	errRefused = errors.New("refused")
)

// A host is the remote thing that a Caller calls. It answers after a time, with an error if it has one.
type host struct {
	remote.Caller
	takes  atomic.Int64 // ns; negative for ever
	fails  atomic.Bool
	calls  atomic.Int64
	probes atomic.Int64
}

func newHost(takes time.Duration) *host {
	h := &host{Caller: remote.Caller{Name: "the host", Timeout: timeout}}
	h.takes.Store(int64(takes))
	h.Answered = func(err error) bool { return errors.Is(err, errRefused) }
	h.Probe = func(ctx context.Context) error {
		h.probes.Add(1)
		ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
		defer cancel()
		return h.answer(ctx)
	}
	return h
}

func (h *host) answer(ctx context.Context) error {
	takes := time.Duration(h.takes.Load())
	if takes < 0 {
		<-ctx.Done()
		return ctx.Err()
	}
	time.Sleep(takes)
	if h.fails.Load() {
		return errGone
	}
	return nil
}

func (h *host) do(ctx context.Context) error {
	_, err := remote.Do(ctx, &h.Caller, func(ctx context.Context) (int, error) {
		h.calls.Add(1)
		return 0, h.answer(ctx)
	}, nil)
	return err
}

func isUnsent(err error) bool {
	failed, ok := errors.AsType[*remote.Error](err)
	return ok && failed.Unsent
}

func TestTheFirstCallWaitsForTheFirstProbe(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHost(timeout / 5)
		start := time.Now()
		var group sync.WaitGroup
		for range 10 {
			group.Go(func() { assert.NoError(t, h.do(t.Context())) })
		}
		group.Wait()
		assert.Equal(t, 2*timeout/5, time.Since(start))
		assert.Equal(t, []int64{1, 10}, []int64{h.probes.Load(), h.calls.Load()})
	})
}

func TestWaitingForTheFirstProbeEndsWithTheContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHost(4 * timeout)
		short, cancel := context.WithTimeout(t.Context(), timeout/5)
		defer cancel()
		assert.Equal(t, context.DeadlineExceeded, h.do(short))
		time.Sleep(4 * timeout)
		assert.NoError(t, h.Ready(t.Context()))
	})
}

func TestWaitingForTheFirstProbeEndsAfterTheTimeout(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHost(4 * timeout)
		start := time.Now()
		err := h.do(t.Context())
		assert.EqualError(t, err, "the host could not be reached within 50ms")
		assert.ErrorIs(t, err, context.DeadlineExceeded)
		assert.True(t, isUnsent(err))
		assert.Equal(t, timeout, time.Since(start))
		again := h.do(t.Context())
		assert.EqualError(t, again, "the host is unavailable: "+err.Error())
		assert.Equal(t, timeout, time.Since(start), "later calls do not wait")
		time.Sleep(4 * timeout)
		h.takes.Store(0)
		assert.NoError(t, h.do(t.Context()))
		assert.Equal(t, []int64{1, 1}, []int64{h.probes.Load(), h.calls.Load()})
	})
}

func TestFailsEndsTheWaitForAProbe(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHost(time.Second)
		time.AfterFunc(timeout/5, func() { h.Fails(errGone) })
		start := time.Now()
		err := h.do(t.Context())
		assert.EqualError(t, err, "the host is unavailable: gone")
		assert.Equal(t, timeout/5, time.Since(start))
		assert.ErrorIs(t, h.do(t.Context()), errGone)
		assert.Equal(t, timeout/5, time.Since(start))
		time.Sleep(time.Second)
		h.takes.Store(0)
		assert.NoError(t, h.do(t.Context()))
		h.Fails(errGone) // has no effect on a closed breaker
		assert.NoError(t, h.do(t.Context()))
	})
}

func TestNoAnswerCostsOneTimeoutAndTenProbesASecond(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHost(0)
		require.NoError(t, h.do(t.Context()))
		h.fails.Store(true)
		assert.ErrorIs(t, h.do(t.Context()), errGone)
		start, calls, probes := time.Now(), h.calls.Load(), h.probes.Load()
		for time.Since(start) < time.Second {
			err := h.do(t.Context())
			assert.ErrorIs(t, err, errGone)
			assert.True(t, isUnsent(err))
			time.Sleep(time.Millisecond)
		}
		assert.Equal(t, calls, h.calls.Load())
		assert.InDelta(t, 10, h.probes.Load()-probes, 1)
		h.fails.Store(false)
		time.Sleep(100 * time.Millisecond)
		_ = h.do(t.Context()) // starts a probe
		synctest.Wait()
		assert.NoError(t, h.do(t.Context()))
	})
}

func TestARefusalIsAnAnswer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHost(0)
		probe := h.Probe
		h.Probe = func(ctx context.Context) error { _ = probe(ctx); return errRefused }
		for range 2 {
			_, err := remote.Do(t.Context(), &h.Caller, func(context.Context) (int, error) { return 0, errRefused }, nil)
			assert.ErrorIs(t, err, errRefused)
			assert.False(t, isUnsent(err))
		}
		assert.Equal(t, int64(1), h.probes.Load())
	})
}

func TestNoAnswerIsNoticedAlthoughAllCallersLeave(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHost(0)
		require.NoError(t, h.do(t.Context()))
		h.takes.Store(-1)
		short, cancel := context.WithTimeout(t.Context(), timeout/5)
		defer cancel()
		assert.Equal(t, context.DeadlineExceeded, h.do(short))
		assert.NoError(t, h.Ready(t.Context()))
		time.Sleep(timeout)
		synctest.Wait()
		assert.Error(t, h.Ready(t.Context()))
		h.Answers()
		assert.NoError(t, h.Ready(t.Context()))
		time.Sleep(5 * time.Second) // until the probe ends
	})
}

func TestTimeoutsBesideAnswersKeepTheBreakerClosed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHost(0)
		require.NoError(t, h.do(t.Context()))
		h.takes.Store(-1)
		failed := make(chan error)
		go func() { failed <- h.do(t.Context()) }()
		synctest.Wait()
		h.takes.Store(0)
		require.NoError(t, h.do(t.Context()))
		assert.True(t, remote.IsLate(<-failed))
		assert.NoError(t, h.do(t.Context()))
		assert.Equal(t, int64(1), h.probes.Load())
	})
}

func TestAPatientCallWaitsForAProbe(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHost(0)
		require.NoError(t, h.WaitReady(t.Context()))
		h.fails.Store(true)
		require.Error(t, h.do(t.Context()))
		short, cancel := context.WithTimeout(t.Context(), timeout)
		defer cancel()
		assert.ErrorIs(t, h.WaitReady(short), errGone)
		time.Sleep(time.Second)
		h.fails.Store(false)
		assert.Error(t, h.Ready(t.Context()), "the breaker is still open")
		h.fails.Store(true)
		time.Sleep(time.Second)
		h.fails.Store(false)
		h.takes.Store(int64(timeout))
		start := time.Now()
		assert.NoError(t, h.WaitReady(t.Context()))
		assert.Equal(t, timeout, time.Since(start))
	})
}

// A Probe may hang because its packets are lost.
func TestAnotherProbeStartsBesideOneThatHangs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHost(0)
		require.NoError(t, h.do(t.Context()))
		h.takes.Store(-1)
		require.Error(t, h.do(t.Context()))
		for range 20 {
			_ = h.do(t.Context())
			time.Sleep(time.Second)
		}
		assert.GreaterOrEqual(t, h.probes.Load(), int64(10), "while one hangs for five seconds")
		h.takes.Store(0)
		start := time.Now()
		assert.NoError(t, h.WaitReady(t.Context()))
		assert.LessOrEqual(t, time.Since(start), time.Second)
		time.Sleep(5 * time.Second) // until the other probes fail, which has no effect
		assert.NoError(t, h.Ready(t.Context()))
	})
}

func TestThePanicOfAProbeIsTheErrorOfCalls(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHost(0)
		h.Probe = func(context.Context) error { panic("a fault") }
		assert.ErrorContains(t, h.do(t.Context()), "the host panicked: a fault")
	})
}

func TestAnInlineCallThatPanicsIsAnError(t *testing.T) {
	c := &remote.Caller{Name: "the host", Timeout: time.Minute}
	err := remote.Inline(t.Context(), c, func(context.Context) error { panic("a fault") })
	assert.EqualError(t, err, "the host panicked: a fault")
}

func TestACanceledInlineCallKeepsTheBreakerClosed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHost(0)
		require.NoError(t, h.do(t.Context()))
		ctx, cancel := context.WithCancel(t.Context())
		err := remote.Inline(ctx, &h.Caller, func(ctx context.Context) error { cancel(); return ctx.Err() })
		assert.Equal(t, context.Canceled, err)
		assert.NoError(t, h.Ready(t.Context()))
	})
}
