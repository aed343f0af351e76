package pace_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"net/http"
	"strconv"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/time/rate"

	"github.com/heedhttp/heed"
	"github.com/heedhttp/heed/pace"
	"github.com/heedhttp/heed/quota"
	"github.com/heedhttp/heed/serverside"
	"github.com/heedhttp/heed/testserver"
)

// admissionOrder starts requests one after the other, and returns the order in which a
// queue with a pace of one per 100 ms admits them.
func admissionOrder(t *testing.T, q *pace.Queue, reqs map[string]*http.Request, names ...string) (order []string) {
	q.Pacer = pace.PerHost(10, 1)
	require.NoError(t, q.Wait(get()))
	var (
		mu sync.Mutex
		wg sync.WaitGroup
	)
	for _, name := range append([]string{"next"}, names...) {
		req := get()
		if reqs[name] != nil {
			req = reqs[name]
		}
		wg.Go(func() {
			assert.NoError(t, q.Wait(req))
			mu.Lock()
			defer mu.Unlock()
			order = append(order, name)
		})
		synctest.Wait()
	}
	wg.Wait()
	require.Equal(t, "next", order[0], "a request that asks the Pacer is not overtaken")
	return order[1:]
}

func TestAQueueIsFIFOWithinAPriority(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		urgent := request(pace.WithPriority(t.Context(), 1), "http://example.com")
		late := request(pace.WithPriority(t.Context(), -1), "http://example.com")
		order := admissionOrder(t, &pace.Queue{}, map[string]*http.Request{"urgent": urgent, "late": late},
			"late", "a", "b", "urgent", "c")
		assert.Equal(t, []string{"urgent", "a", "b", "c", "late"}, order)
	})
}

func TestQueueKeysShareUnitsFairly(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		reqs := make(map[string]*http.Request)
		of := func(key string, tokens int64, names ...string) {
			for _, name := range names {
				reqs[name] = request(pace.WithCost(t.Context(), "tokens", tokens), "http://example.com/")
				reqs[name].Header.Set("Customer", key)
			}
		}
		of("a", 1, "a1", "a2", "a3", "a4", "a5")
		of("b", 2, "b1", "b2")
		of("c", -7, "c1")
		q := &pace.Queue{
			Key:  func(req *http.Request) string { return req.Header.Get("Customer") },
			Unit: "tokens",
		}
		order := admissionOrder(t, q, reqs, "a1", "a2", "a3", "a4", "a5", "b1", "b2", "c1")
		assert.Equal(t, []string{"a1", "b1", "c1", "a2", "a3", "b2", "a4", "a5"}, order)
	})
}

// A batch of 100 at 10 a second, and a 101st that has no room.
func TestABatchPassesAQueueWithoutRefusals(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		limiter, err := serverside.New(serverside.Config{
			Rules: []serverside.Rule{{Policies: []quota.Policy{{Quota: 10, Window: time.Second, Burst: 1}}}},
		})
		require.NoError(t, err)
		srv := testserver.NewLimited(t, limiter.Wrap)
		var last pace.Progress
		q := &pace.Queue{Pacer: pace.PerHost(10, 1), Max: 100, Progress: func(p pace.Progress) { last = p }}
		client := &http.Client{Transport: &heed.Transport{Base: srv.Transport(), Pacer: q}}
		var wg sync.WaitGroup
		start := time.Now()
		for range 101 { // one does not wait
			wg.Go(func() {
				resp, err := client.Get(srv.URL)
				if assert.NoError(t, err) {
					assert.Equal(t, 200, resp.StatusCode)
					resp.Body.Close()
				}
			})
			synctest.Wait()
		}
		assert.Equal(t, pace.Progress{Waiting: 100, Done: 1}, last)
		_, err = client.Get(srv.URL)
		assert.ErrorIs(t, err, pace.ErrQueueFull)
		assert.Zero(t, time.Since(start))
		wg.Wait()
		assert.Equal(t, 10*time.Second, time.Since(start))
		assert.Equal(t, pace.Progress{Done: 101}, last)
	})
}

func TestQueueLinesOfHostsAreIndependent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := &pace.Queue{Pacer: pace.PerHost(1, 1)}
		require.NoError(t, q.WaitAtMost(get(), 0))
		var wg sync.WaitGroup
		wg.Go(func() { assert.NoError(t, q.Wait(get())) })
		synctest.Wait()
		assert.NoError(t, q.WaitAtMost(request(t.Context(), "http://other.example"), 0))
		wg.Wait()
	})
}

func TestLeavingAQueueMovesOthersUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := &pace.Queue{Pacer: pace.PerHost(10, 1), Max: 3}
		tl := newTimeline(t, q)
		tl.goes()
		b, c, d := tl.joins(), tl.joins(), tl.joins()
		assert.ErrorIs(t, q.Wait(get()), pace.ErrQueueFull)
		b.cancel(errGone) // it was asking the Pacer
		c.cancel(errGone)
		tl.wg.Wait()
		assert.ErrorIs(t, b.err, errGone)
		assert.ErrorIs(t, c.err, context.Canceled)
		tl.admittedAt(100*ms, d)
		tl.waits(100 * ms)
	})
}

// Of a Pacer of another package nothing is known.
func TestWaitingTooLongInAQueueIsOverdue(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := &pace.Queue{Pacer: struct{ heed.Pacer }{pace.PerHost(1, 1)}}
		tl := newTimeline(t, q)
		tl.goes()
		b, c := tl.joins(), tl.joins()
		err := q.WaitAtMost(get(), 0)
		assert.Equal(t, &heed.OverdueError{Key: "http://example.com", Wait: time.Second}, err)
		err = q.WaitAtMost(get(), 500*ms)
		assert.Equal(t, &heed.OverdueError{Key: "http://example.com", Wait: time.Second, Left: 500 * ms}, err)
		assert.Equal(t, 500*ms, time.Since(tl.start))
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		assert.Equal(t, context.DeadlineExceeded, q.Wait(request(ctx, "http://example.com")))
		tl.wg.Wait()
		tl.admittedAt(1*time.Second, b)
		tl.admittedAt(2*time.Second, c)
	})
}

func TestAQueueReturnsThePacersError(t *testing.T) {
	errNo := errors.New("no")
	inner := &fixedPacer{err: errNo}
	q := &pace.Queue{Pacer: inner}
	assert.ErrorIs(t, q.Wait(get()), errNo)
	inner.err = nil
	require.NoError(t, q.Wait(get()))
	q.Observe(heed.Attempt{Request: get(), Err: heed.ErrNotSent})
	assert.Equal(t, []error{heed.ErrNotSent}, inner.observed)

	assert.NoError(t, (&pace.Queue{}).WaitAtMost(get(), 0), "without a Pacer there is no limit")
	assert.EqualError(t, (&pace.Queue{Max: -1}).Wait(get()), "pace: Queue.Max is -1: it must not be negative")
}

// A fixedPacer returns err.
type fixedPacer struct {
	err      error
	observed []error
}

func (s *fixedPacer) Wait(*http.Request) error { return s.err }
func (s *fixedPacer) Observe(a heed.Attempt)   { s.observed = append(s.observed, a.Err) }

func TestAQueueLosesNoRequest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var last pace.Progress
		q := &pace.Queue{
			Pacer:    pace.With(rate.NewLimiter(1000, 1)),
			Max:      500,
			Key:      func(req *http.Request) string { return req.Header.Get("Key") },
			Progress: func(p pace.Progress) { last = p },
		}
		var wg sync.WaitGroup
		for i := range 500 {
			wg.Go(func() {
				ctx, cancel := context.WithCancel(pace.WithPriority(t.Context(), i%3))
				defer cancel()
				if i%7 == 0 {
					time.AfterFunc(time.Duration(i)*ms, cancel)
				}
				req := request(ctx, fmt.Sprintf("http://%d.example", i%2))
				req.Header.Set("Key", fmt.Sprint(i%11))
				if err := q.Wait(req); err != nil {
					assert.ErrorIs(t, err, context.Canceled)
					return
				}
				q.Observe(heed.Attempt{Request: req, Response: &http.Response{StatusCode: 200}})
			})
		}
		wg.Wait()
		assert.Zero(t, last.Waiting)
		assert.Zero(t, last.Sent)
		assert.GreaterOrEqual(t, last.Done, int64(500-72))
	})
}

// Each customer has a bucket. An empty one delays nobody else, whatever the Queue's Key.
func TestAnEmptyBucketDelaysOnlyItsCustomer(t *testing.T) {
	customer := func(req *http.Request) string { return req.Header.Get("Customer") }
	of := func(name string) *http.Request {
		req := get()
		req.Header.Set("Customer", name)
		return req
	}
	for name, inner := range map[string]heed.Pacer{
		"Keyed": &pace.Keyed{Key: customer, Limit: 0.1},
		"Shared": &pace.Shared{
			Key: customer, Store: &quota.Memory{},
			Policies: []quota.Policy{{Quota: 6, Window: time.Minute, Burst: 1}},
		},
		"Each":     pace.Each(pace.PerHost(rate.Inf, 1), &pace.Keyed{Key: customer, Limit: 0.1}),
		"Adaptive": &pace.Adaptive{Key: customer, Max: 0.1},
		"Queue":    &pace.Queue{Pacer: &pace.Keyed{Key: customer, Limit: 0.1}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				q := &pace.Queue{Pacer: inner, Key: customer}
				require.NoError(t, q.Wait(of("heavy")))
				var wg sync.WaitGroup
				ctx, cancel := context.WithCancel(t.Context())
				for range 10 {
					wg.Go(func() { assert.ErrorIs(t, q.Wait(of("heavy").WithContext(ctx)), context.Canceled) })
				}
				synctest.Wait()
				for i := range 10 {
					require.NoError(t, q.WaitAtMost(of(strconv.Itoa(i)), 0))
				}
				cancel()
				wg.Wait()
			})
		})
	}
}

func TestQueueCostsDoNotOverflow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		costs := map[string]int64{"heavy": math.MaxInt64, "light": 1, "least": math.MinInt64}
		q := &pace.Queue{
			Key:  func(req *http.Request) string { return req.Header.Get("Customer") },
			Cost: func(req *http.Request, _ string) int64 { return costs[req.Header.Get("Customer")] },
		}
		reqs := map[string]*http.Request{}
		var names []string
		for i := range 5 {
			for _, key := range []string{"heavy", "light", "least"} {
				name := key + strconv.Itoa(i)
				reqs[name] = get()
				reqs[name].Header.Set("Customer", key)
				names = append(names, name)
			}
		}
		assert.Equal(t, []string{
			"heavy0", "light0", "least0", "light1", "least1", "light2", "least2", "light3", "least3", "light4", "least4",
			"heavy1", "heavy2", "heavy3", "heavy4",
		}, admissionOrder(t, q, reqs, names...))
	})
}

// Requests that leave early do not delay the others of their key.
func TestLeavingAQueueCostsItsKeyNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		customer := func(req *http.Request) string { return req.Header.Get("Customer") }
		of := func(ctx context.Context, name string) *http.Request {
			req := request(ctx, "http://example.com/")
			req.Header.Set("Customer", name)
			return req
		}
		q := &pace.Queue{Pacer: pace.PerHost(1, 1), Key: customer}
		require.NoError(t, q.Wait(of(t.Context(), "c")))
		ctx, cancel := context.WithCancel(t.Context())
		var wg sync.WaitGroup
		wg.Go(func() { _ = q.Wait(of(t.Context(), "c")) }) // asks the Pacer
		synctest.Wait()
		for range 10 {
			wg.Go(func() { assert.Error(t, q.Wait(of(ctx, "a"))) })
		}
		synctest.Wait()
		cancel()
		synctest.Wait()
		var order []string
		var mu sync.Mutex
		for _, name := range []string{"b", "a", "b", "b"} {
			wg.Go(func() {
				assert.NoError(t, q.Wait(of(t.Context(), name)))
				mu.Lock()
				defer mu.Unlock()
				order = append(order, name)
			})
			synctest.Wait()
		}
		wg.Wait()
		assert.Equal(t, []string{"b", "a", "b", "b"}, order)
	})
}

func TestAPanickingPacerDoesNotBlockTheQueue(t *testing.T) {
	q := &pace.Queue{Pacer: panics{}}
	for range 3 {
		assert.Panics(t, func() { _ = q.Wait(get()) })
	}
}

type panics struct{}

func (panics) Wait(*http.Request) error { panic("a bug of the Pacer's") }
func (panics) Observe(heed.Attempt)     {}
