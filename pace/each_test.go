package pace_test

import (
	"context"
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/heedhttp/heed"
	"github.com/heedhttp/heed/pace"
)

// A plainPacer is not a BoundedPacer. Its Wait calls a function.
type plainPacer struct {
	wait     func(*http.Request) error
	observed []heed.Attempt
}

func (p *plainPacer) Wait(req *http.Request) error { return p.wait(req) }
func (p *plainPacer) Observe(a heed.Attempt)       { p.observed = append(p.observed, a) }

// sleeper admits requests after d.
func sleeper(d time.Duration) *plainPacer {
	return &plainPacer{wait: func(req *http.Request) error {
		select {
		case <-time.After(d):
			return nil
		case <-req.Context().Done():
			return req.Context().Err()
		}
	}}
}

func TestEachWaitsForAll(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tl := newTimeline(t, pace.Each(pace.PerHost(10, 3), nil, pace.PerHost(2, 1)))
		tl.goes()
		require.NoError(t, tl.pacer.Wait(get()))
		require.NoError(t, tl.pacer.Wait(get()))
		assert.Equal(t, 1000*ms, time.Since(tl.start))
	})
}

func TestEachReturnsTokensWhenOnePacerRefuses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		first, second := pace.PerHost(0.01, 1), pace.PerHost(10, 1)
		tl := newTimeline(t, pace.Each(first, second))
		require.NoError(t, second.Wait(get()))
		tl.waits(100 * ms)
		newTimeline(t, first).goes()
	})
}

func TestEachObservesInOrder(t *testing.T) {
	var order []int
	nth := func(i int) heed.Pacer { return &observer{func(heed.Attempt) { order = append(order, i) }} }
	pace.Each(nth(1), nth(2), nth(3)).Observe(heed.Attempt{Request: get()})
	assert.Equal(t, []int{1, 2, 3}, order)
}

type observer struct{ observe func(heed.Attempt) }

func (o *observer) Wait(*http.Request) error { return nil }
func (o *observer) Observe(a heed.Attempt)   { o.observe(a) }

func TestEachWithoutPacersPacesNothing(t *testing.T) {
	for _, pacer := range []heed.Pacer{pace.Each(), pace.Each(nil, nil)} {
		assert.NoError(t, pacer.Wait(get()))
		pacer.Observe(heed.Attempt{Request: get(), Err: heed.ErrNotSent})
	}
}

func TestTheBoundOfEachCoversAllPacers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		first, second := pace.PerHost(10, 1), pace.PerHost(5, 1)
		pacer := pace.Each(first, second).(heed.BoundedPacer)
		require.NoError(t, pacer.Wait(get()))
		start := time.Now()
		err := pacer.WaitAtMost(get(), 150*ms) // 100 ms for the first, 200 in total for the second
		assert.Equal(t, 100*ms, overdueError(t, err).Wait)
		assert.Equal(t, 50*ms, overdueError(t, err).Left)
		assert.Equal(t, 100*ms, time.Since(start))
		newTimeline(t, first).goes() // was returned
	})
}

func TestEachBoundsPlainPacers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		first, slow := pace.PerHost(10, 1), sleeper(time.Second)
		pacer := pace.Each(first, slow).(heed.BoundedPacer)
		start := time.Now()

		err := pacer.WaitAtMost(get(), 400*ms)
		assert.Equal(t, &heed.OverdueError{Key: "http://example.com", Wait: time.Second, Left: 400 * ms}, err, "at least")
		assert.NotErrorIs(t, err, context.DeadlineExceeded, "the caller set no deadline")
		assert.Equal(t, 400*ms, time.Since(start))
		assert.Empty(t, slow.observed, "it admitted nothing")

		soon, cancel := context.WithTimeout(t.Context(), 300*ms)
		defer cancel()
		assert.Equal(t, context.DeadlineExceeded, pacer.WaitAtMost(request(soon, "http://example.com"), 400*ms))

		gone, cancel := context.WithCancel(t.Context())
		time.AfterFunc(50*ms, cancel)
		assert.Equal(t, context.Canceled, pacer.WaitAtMost(request(gone, "http://example.com"), 400*ms))

		assert.NoError(t, pacer.WaitAtMost(get(), 2*time.Second))
	})
}

func TestAPlainPacersRefusalHidesTheAddedDeadline(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		inner := pace.PerHost(10, 1)
		require.NoError(t, inner.Wait(get()))
		pacer := pace.Each(&plainPacer{wait: inner.Wait}).(heed.BoundedPacer)
		err := pacer.WaitAtMost(get(), 20*ms)
		assert.Equal(t, "http://example.com", overdueError(t, err).Key)
		assert.Equal(t, 100*ms, overdueError(t, err).Wait)
		assert.NotErrorIs(t, err, context.DeadlineExceeded)
	})
}

func TestTheCallersDeadlineDiffersFromTheBound(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		inner := pace.PerHost(10, 1)
		require.NoError(t, inner.Wait(get()))
		pacer := pace.Each(&plainPacer{wait: inner.Wait}).(heed.BoundedPacer)
		ctx, cancel := context.WithTimeout(t.Context(), 20*ms)
		defer cancel()
		err := pacer.WaitAtMost(request(ctx, "http://example.com"), time.Hour)
		assert.True(t, overdueError(t, err).Deadline)
		assert.ErrorIs(t, err, context.DeadlineExceeded)
	})
}

func TestAPlainPacerWithoutAWaitAdmitsWithoutABound(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		pacer := pace.Each(&plainPacer{wait: func(req *http.Request) error { return req.Context().Err() }})
		assert.NoError(t, pacer.(heed.BoundedPacer).WaitAtMost(get(), 0))
	})
}
