package remote_test

import (
	"context"
	"errors"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/heedhttp/heed/internal/remote"
)

const timeout = 50 * time.Millisecond

// isLate reports whether err is Late.
func isLate(err error) bool {
	failed, ok := errors.AsType[*remote.Error](err)
	return ok && failed.Late
}

func TestAnswersAndErrorsAreReturned(t *testing.T) {
	c := &remote.Caller{Name: "the store", Timeout: time.Minute}
	n, err := remote.Do(t.Context(), c, func(context.Context) (int, error) { return 7, nil }, nil)
	require.NoError(t, err)
	assert.Equal(t, 7, n)

	down := errors.New("down")
	_, err = remote.Do(t.Context(), c, func(context.Context) (int, error) { return 7, down }, nil)
	assert.ErrorIs(t, err, down)
	assert.False(t, isLate(err))

	_, err = remote.Do(t.Context(), c, func(context.Context) (int, error) { panic("a fault") }, nil)
	assert.EqualError(t, err, "the store panicked: a fault")
	_, err = remote.Do(t.Context(), c, func(context.Context) (int, error) { runtime.Goexit(); return 0, nil }, nil)
	assert.EqualError(t, err, "the store: the call ended its goroutine")
}

func TestACallOutlivesItsContextButNotTheTimeout(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := &remote.Caller{Name: "the store", Timeout: timeout}
		ctx, cancel := context.WithCancel(context.WithValue(t.Context(), c, "value"))
		unused := make(chan int, 1)
		start := time.Now()
		time.AfterFunc(timeout/5, cancel)
		_, err := remote.Do(ctx, c, func(ctx context.Context) (int, error) {
			deadline, _ := ctx.Deadline()
			assert.Equal(t, timeout, time.Until(deadline))
			assert.Equal(t, "value", ctx.Value(c))
			time.Sleep(timeout / 2)
			return 7, ctx.Err()
		}, func(n int) { unused <- n })
		assert.Equal(t, context.Canceled, err)
		assert.Equal(t, timeout/5, time.Since(start))
		assert.Equal(t, 7, <-unused)

		start = time.Now()
		_, err = remote.Do(t.Context(), c, func(context.Context) (int, error) { time.Sleep(time.Hour); return 8, nil },
			func(n int) { unused <- n })
		assert.EqualError(t, err, "the store did not answer within 50ms")
		assert.ErrorIs(t, err, context.DeadlineExceeded)
		assert.False(t, isLate(err))
		assert.Equal(t, timeout, time.Since(start))
		assert.Equal(t, 8, <-unused)
		assert.Equal(t, time.Hour, time.Since(start))
	})
}

func TestNoMoreCallsAreMadeWhileManyHang(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := &remote.Caller{Name: "the store", Timeout: timeout}
		var asked atomic.Int64
		release := make(chan struct{})
		hang := func(context.Context) (int, error) { asked.Add(1); <-release; return 0, nil }
		start := time.Now()
		for range 1000 {
			_, err := remote.Do(t.Context(), c, hang, nil)
			require.Error(t, err)
		}
		assert.Equal(t, int64(128), asked.Load())
		assert.Equal(t, 128*timeout, time.Since(start), "later calls did not wait")
		_, err := remote.Do(t.Context(), c, hang, nil)
		assert.ErrorIs(t, err, remote.ErrBusy)
		assert.EqualError(t, err, "the store: too many calls in flight")
		assert.False(t, isLate(err), "it hangs")

		close(release)
		synctest.Wait()
		_, err = remote.Do(t.Context(), c, hang, nil)
		assert.NoError(t, err)
	})
}

func TestConcurrentCallsAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := &remote.Caller{Name: "the store", Timeout: timeout}
		var late, answered atomic.Int64
		var group sync.WaitGroup
		for range 8000 {
			group.Go(func() {
				call := func(context.Context) (int, error) { time.Sleep(time.Millisecond); return 0, nil }
				_, err := remote.Do(t.Context(), c, call, nil)
				if err == nil {
					answered.Add(1)
				} else if isLate(err) {
					late.Add(1)
				}
			})
		}
		group.Wait()
		assert.Equal(t, [2]int64{2048, 5952}, [2]int64{answered.Load(), late.Load()})
	})
}

func TestATimeoutWhileOthersAreAnsweredIsLate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := &remote.Caller{Name: "the store", Timeout: timeout}
		failed := make(chan error)
		go func() {
			call := func(ctx context.Context) (int, error) { <-ctx.Done(); return 0, ctx.Err() }
			_, err := remote.Do(t.Context(), c, call, nil)
			failed <- err
		}()
		synctest.Wait()
		_, err := remote.Do(t.Context(), c, func(context.Context) (int, error) { return 0, nil }, nil)
		require.NoError(t, err)
		assert.True(t, isLate(<-failed))
	})
}
