package redisstore

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"runtime"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

const (
	near = batchEvery / 2 // a round trip too short for a second batch in flight
	far  = 5 * batchEvery / 2
)

var errLost = errors.New("connection lost")

// A batchServer answers the batches of a batcher after one round trip, and records them.
type batchServer struct {
	batcher[string]
	rtt func() (time.Duration, error)

	book     sync.Mutex // guards what follows
	batches  [][]string
	open     int // batches that are not answered yet
	openMost int
	answered map[string]bool
}

func newBatchServer(rtt func() (time.Duration, error)) *batchServer {
	s := &batchServer{rtt: rtt, answered: make(map[string]bool)}
	s.send = func(_ context.Context, batch []string) error {
		took, err := s.receive(batch)
		time.Sleep(took)
		s.end(batch, err)
		return err
	}
	return s
}

// serverAt returns a server with this round trip time.
func serverAt(rtt time.Duration) *batchServer {
	return newBatchServer(func() (time.Duration, error) { return rtt, nil })
}

func (s *batchServer) receive(batch []string) (time.Duration, error) {
	s.book.Lock()
	defer s.book.Unlock()
	s.batches = append(s.batches, slices.Clone(batch))
	s.open++
	s.openMost = max(s.openMost, s.open)
	return s.rtt()
}

func (s *batchServer) end(batch []string, err error) {
	s.book.Lock()
	defer s.book.Unlock()
	s.open--
	for _, call := range batch {
		s.answered[call] = err == nil
	}
}

type batchResult struct {
	err  error
	took time.Duration
}

// call starts a call in a new goroutine, and waits until it is queued.
func (s *batchServer) call(ctx context.Context, name string) <-chan batchResult {
	done := make(chan batchResult, 1)
	go func() {
		began := time.Now()
		err := s.do(ctx, name)
		done <- batchResult{err, time.Since(began)}
	}()
	synctest.Wait()
	return done
}

// calls starts n calls, named prefix and a number.
func (s *batchServer) calls(ctx context.Context, prefix string, n int) (all []<-chan batchResult) {
	for i := range n {
		all = append(all, s.call(ctx, fmt.Sprint(prefix, i)))
	}
	return all
}

// learn makes the batcher measure the round trip, and clears the records.
func (s *batchServer) learn(t *testing.T) {
	require.NoError(t, (<-s.call(t.Context(), "learn")).err)
	synctest.Wait()
	s.book.Lock()
	defer s.book.Unlock()
	s.batches, s.openMost = nil, 0
}

// sent returns the batches that were sent.
func (s *batchServer) sent() [][]string {
	s.book.Lock()
	defer s.book.Unlock()
	return slices.Clone(s.batches)
}

func (s *batchServer) mostOpen() int {
	s.book.Lock()
	defer s.book.Unlock()
	return s.openMost
}

func (s *batchServer) sizes() (sizes []int) {
	for _, batch := range s.sent() {
		sizes = append(sizes, len(batch))
	}
	return sizes
}

// isIdle asserts that nothing waits or is in flight, and that the counts agree.
func (s *batchServer) isIdle(t *testing.T) {
	t.Helper()
	synctest.Wait()
	s.mu.Lock()
	defer s.mu.Unlock()
	assert.Empty(t, s.queue)
	assert.Zero(t, s.inFlight)
	assert.Zero(t, s.batcher.calls)
}

// balances asserts, while all goroutines are blocked, that the counts agree with what is in flight, and
// that no call waits without a batch to come.
func (s *batchServer) balances(t *testing.T, inline int) {
	t.Helper()
	s.mu.Lock()
	defer s.mu.Unlock()
	s.book.Lock()
	defer s.book.Unlock()
	sent := inline
	for _, batch := range s.batches {
		sent += len(batch)
	}
	assert.Equal(t, sent-len(s.answered), s.batcher.calls, "calls in flight")
	assert.Equal(t, s.open, s.inFlight, "batches in flight")
	assert.False(t, s.inFlight == 0 && len(s.queue) > 0, "calls wait, and no batch will be sent")
}

func TestWaitingCallsAreSentTogetherInOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := serverAt(near)
		for i, done := range s.calls(t.Context(), "", 5) {
			assert.Equal(t, batchResult{nil, time.Duration(min(i+1, 2)) * near}, <-done)
		}
		assert.Equal(t, [][]string{{"0"}, {"1", "2", "3", "4"}}, s.sent())
		assert.Equal(t, batchResult{nil, near}, <-s.call(t.Context(), "again"))
		assert.Equal(t, [][]string{{"0"}, {"1", "2", "3", "4"}, {"again"}}, s.sent())
		s.isIdle(t)
	})
}

func TestManyWaitingCallsAreSentBesideABatch(t *testing.T) {
	for _, test := range []struct {
		name          string
		second, third int // calls made while the first batch is in flight, then more
		batches       []int
		openMost      int
	}{
		{"too few", worthBatching - 1, 0, []int{1, worthBatching - 1}, 1},
		{"enough", worthBatching, 0, []int{1, worthBatching}, 2},
		{"and no third", worthBatching, 3 * worthBatching, []int{1, worthBatching, 3 * worthBatching}, 2},
	} {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := serverAt(near)
				s.learn(t)
				first := s.call(t.Context(), "first")
				time.Sleep(near / 2)
				second := s.calls(t.Context(), "second", test.second)
				third := s.calls(t.Context(), "third", test.third)
				assert.Equal(t, batchResult{nil, near}, <-first)
				waits := time.Duration(0)
				if test.second < worthBatching {
					waits = near / 2
				}
				for _, done := range second {
					assert.Equal(t, batchResult{nil, waits + near}, <-done)
				}
				for _, done := range third {
					assert.Equal(t, batchResult{nil, near/2 + near}, <-done, "sent when the first was answered")
				}
				assert.Equal(t, test.batches, s.sizes())
				assert.Equal(t, test.openMost, s.mostOpen())
				s.isIdle(t)
			})
		})
	}
}

// Otherwise one batch would stay small while most calls wait for the other.
func TestASecondBatchIsHalfAsBigAsTheFirst(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := serverAt(near)
		s.learn(t)
		first := s.call(t.Context(), "first")
		time.Sleep(near / 4)
		waiting := s.calls(t.Context(), "in the second,", worthBatching)
		time.Sleep(near / 4)
		waiting = append(waiting, s.calls(t.Context(), "in the third,", 4*worthBatching)...)
		<-first // now the third batch is sent
		synctest.Wait()
		time.Sleep(near / 4)
		synctest.Wait() // now the second batch is answered
		require.Equal(t, []int{1, worthBatching, 4 * worthBatching}, s.sizes())
		waiting = append(waiting, s.calls(t.Context(), "in the fourth,", 2*worthBatching-1)...)
		assert.Len(t, s.sent(), 3, "fewer than half of those in flight")
		waiting = append(waiting, s.call(t.Context(), "the last of the fourth"))
		assert.Equal(t, []int{1, worthBatching, 4 * worthBatching, 2 * worthBatching}, s.sizes())
		for _, done := range waiting {
			assert.NoError(t, (<-done).err)
		}
		s.isIdle(t)
	})
}

func TestABatchHasAtMostMaxBatchCalls(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := serverAt(near)
		s.learn(t)
		s.mu.Lock()
		s.inFlight, s.batcher.calls = 2, 1000 // so that all calls wait
		s.mu.Unlock()
		all := s.calls(t.Context(), "", 2*maxBatch+3)
		require.Empty(t, s.sent())
		s.mu.Lock()
		s.inFlight, s.batcher.calls = 1, 0
		s.mu.Unlock()
		go s.flush() // counts as one batch in flight
		for _, done := range all {
			assert.NoError(t, (<-done).err)
		}
		assert.Equal(t, []int{maxBatch, maxBatch, 3}, s.sizes())
		assert.Equal(t, "0", s.sent()[0][0])
		assert.Equal(t, fmt.Sprint(maxBatch), s.sent()[1][0])
		s.isIdle(t)
	})
}

func TestBatchesInFlightGrowWithTheRoundTripTime(t *testing.T) {
	for _, test := range []struct {
		rtt  time.Duration
		most int // connections; 0 if unknown
		want int
	}{
		{batchEvery - 1, 0, 1},
		{batchEvery, 0, 2},
		{far, 0, 3},
		{100 * batchEvery, 0, maxInFlight},
		{100 * batchEvery, 5, 5},
		{100 * batchEvery, 1, 1},
		{100 * batchEvery, 10 * maxInFlight, maxInFlight},
		{batchEvery, 5, 2},
	} {
		t.Run(fmt.Sprint(test.rtt, test.most), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := serverAt(test.rtt)
				if test.most == 0 {
					s.learn(t)
				} else {
					s.set(test.most)
					assert.Equal(t, test.want, s.measured(test.rtt))
				}
				all := s.calls(t.Context(), "", 100)
				want := test.want + 1 // one more because many calls wait, if there is a connection for it
				if test.most > 0 {
					want = min(want, test.most)
				}
				assert.Equal(t, want, s.mostOpen())
				for _, done := range all {
					r := <-done
					assert.NoError(t, r.err)
					assert.LessOrEqual(t, r.took, 2*test.rtt)
				}
				s.isIdle(t)
			})
		})
	}
}

// set sets the number of connections.
func (s *batchServer) set(most int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.most = most
}

func TestBatchingFollowsTheShortestRoundTrip(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rtt, fails := far, error(nil)
		s := newBatchServer(func() (time.Duration, error) { return rtt, fails })
		most := func() int {
			s.mu.Lock()
			defer s.mu.Unlock()
			return s.maxInFlightLocked()
		}
		s.learn(t) // this one had to connect first
		assert.Equal(t, 3, most())
		rtt, fails = time.Nanosecond, errLost
		assert.Equal(t, errLost, (<-s.call(t.Context(), "an error does not measure the round trip")).err)
		assert.Equal(t, 3, most())
		rtt, fails = near, nil
		s.learn(t)
		assert.Equal(t, 1, most())
		rtt = 100 * batchEvery
		s.learn(t)
		assert.Equal(t, 1, most(), "the server may be busy")
		for range 1000 {
			s.learn(t)
		}
		assert.Equal(t, maxInFlight, most(), "or has moved")
		rtt = near
		s.learn(t)
		assert.Equal(t, 1, most(), "and back")
	})
}

func TestACanceledCallInTheQueueIsNotSent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := serverAt(near)
		gone, leave := context.WithCancel(t.Context())
		first := s.call(t.Context(), "first")
		stays, leaves, staysToo := s.call(t.Context(), "stays"), s.call(gone, "leaves"), s.call(t.Context(), "stays too")
		leave()
		assert.Equal(t, batchResult{context.Canceled, 0}, <-leaves)
		for _, done := range []<-chan batchResult{first, stays, staysToo} {
			assert.NoError(t, (<-done).err)
		}
		assert.Equal(t, [][]string{{"first"}, {"stays", "stays too"}}, s.sent())

		first, leaves = s.call(t.Context(), "first"), nil
		gone, leave = context.WithCancel(t.Context())
		leaves = s.call(gone, "the only one")
		leave()
		assert.Equal(t, context.Canceled, (<-leaves).err)
		assert.NoError(t, (<-first).err)
		s.isIdle(t)
		assert.Len(t, s.sent(), 3, "no empty batch was sent")
	})
}

func TestABatchIsAnsweredAlthoughACallWasCanceled(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := serverAt(far)
		gone, leave := context.WithCancel(t.Context())
		leaves := s.call(gone, "leaves")
		waits := s.call(t.Context(), "waits")
		time.Sleep(far / 2)
		leave()
		assert.Equal(t, batchResult{context.Canceled, far / 2}, <-leaves)
		assert.Equal(t, batchResult{nil, 2 * far}, <-waits)
		short, cancel := context.WithTimeout(t.Context(), far/2)
		defer cancel()
		s.set(1)
		s.measured(near)
		first := s.call(t.Context(), "first")
		leaves, stays := s.call(short, "leaves later"), s.call(t.Context(), "stays")
		assert.Equal(t, batchResult{context.DeadlineExceeded, far / 2}, <-leaves, "it left while it was in flight")
		assert.NoError(t, (<-first).err)
		assert.NoError(t, (<-stays).err)
		assert.Equal(t, [][]string{{"leaves"}, {"waits"}, {"first"}, {"stays"}}, s.sent())
		s.isIdle(t)
	})
}

// The batch has the context values of its first caller.
func TestABatchDoesNotEndWithItsFirstCaller(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		type key struct{}
		b := batcher[string]{send: func(ctx context.Context, batch []string) error {
			time.Sleep(far)
			assert.Equal(t, "caller", ctx.Value(key{}), "such as a trace ID")
			assert.NoError(t, ctx.Err())
			return nil
		}}
		gone, leave := context.WithCancel(context.WithValue(t.Context(), key{}, "caller"))
		time.AfterFunc(far/2, leave)
		assert.Equal(t, context.Canceled, b.do(gone, "leaves"))
		time.Sleep(far)
		synctest.Wait()
		assert.Zero(t, b.inFlight)
	})
}

func TestAnErrorIsReturnedToItsOwnBatchOnly(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fail := []error{nil, errLost, nil}
		s := newBatchServer(func() (time.Duration, error) {
			err := fail[0]
			fail = fail[1:]
			return near, err
		})
		first := s.call(t.Context(), "first")
		lost := s.calls(t.Context(), "lost", 3)
		assert.NoError(t, (<-first).err)
		synctest.Wait()
		next := s.call(t.Context(), "next")
		for _, done := range lost {
			assert.Equal(t, batchResult{errLost, 2 * near}, <-done)
		}
		assert.NoError(t, (<-next).err)
		assert.Equal(t, [][]string{{"first"}, {"lost0", "lost1", "lost2"}, {"next"}}, s.sent())
		s.isIdle(t)
	})
}

func TestOnlyASingleCallIsSentInline(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := serverAt(near)
		never := func() error { assert.Fail(t, "sent"); return nil }
		first, waits := s.call(t.Context(), "in flight"), s.call(t.Context(), "waits")
		ok, err := s.doInline(never)
		assert.False(t, ok)
		assert.NoError(t, err)
		assert.NoError(t, (<-first).err)
		synctest.Wait()
		ok, _ = s.doInline(never)
		assert.False(t, ok)
		assert.NoError(t, (<-waits).err)
		s.isIdle(t)

		var meanwhile []<-chan batchResult
		ok, err = s.doInline(func() error {
			if ok, _ := s.doInline(never); assert.False(t, ok) {
				meanwhile = s.calls(t.Context(), "meanwhile", 3)
			}
			assert.Len(t, s.sent(), 2)
			time.Sleep(near)
			return errLost
		})
		assert.True(t, ok)
		assert.Equal(t, errLost, err)
		for _, done := range meanwhile {
			assert.Equal(t, batchResult{nil, 2 * near}, <-done, "not the other call's error")
		}
		assert.Equal(t, []string{"meanwhile0", "meanwhile1", "meanwhile2"}, s.sent()[2])
		s.isIdle(t)

		ok, err = s.doInline(func() error {
			meanwhile = s.calls(t.Context(), "many", worthBatching)
			assert.Len(t, s.sent(), 4, "many calls do not wait for it")
			time.Sleep(near)
			return nil
		})
		assert.True(t, ok)
		assert.NoError(t, err)
		for _, done := range meanwhile {
			assert.Equal(t, batchResult{nil, near}, <-done)
		}
		s.isIdle(t)
	})
}

// Callers that call again as soon as they are answered join the calls that wait, instead of forming a
// small batch of their own.
func TestABatchIncludesCallersThatCallAgainAtOnce(t *testing.T) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
	synctest.Test(t, func(t *testing.T) {
		const callers, calls = worthBatching - 2, 100
		s := serverAt(near)
		var all sync.WaitGroup
		for i := range callers {
			all.Go(func() {
				for range calls {
					assert.NoError(t, s.do(t.Context(), fmt.Sprint(i)))
				}
			})
		}
		all.Wait()
		assert.Less(t, len(s.sent()), calls*3/2)
		s.isIdle(t)
	})
}

// Each call is sent at most once, and ends with an answer or its context. In the end nothing is left.
func TestTheBatcherCountsExactlyWhateverCallersAndServerDo(t *testing.T) {
	var inline, answered, failed, left, unsent int // totals of all seeds
	for seed := range uint64(6) {
		synctest.Test(t, func(t *testing.T) {
			r := rand.New(rand.NewPCG(seed, 2))
			span := []time.Duration{batchEvery, time.Millisecond, 20 * time.Millisecond}[seed%3]
			lost := 10 * int(seed%2) // percent of batches
			s := newBatchServer(func() (time.Duration, error) {
				took := time.Duration(rand.Int64N(int64(span)))
				if rand.IntN(100) < lost {
					return took, errLost
				}
				return took, nil
			})
			const callers = 3000
			results := make([]error, callers)
			inlineBefore := inline
			var all sync.WaitGroup
			for i := range callers {
				name, alone := fmt.Sprint(i), r.IntN(4) == 0
				arrival := time.Duration(r.Int64N(int64(100 * time.Millisecond)))
				patience := time.Duration(1 + r.Int64N(int64(2*span)>>r.IntN(8)))
				all.Go(func() {
					time.Sleep(arrival)
					ctx, cancel := context.WithTimeout(t.Context(), patience)
					defer cancel()
					began := time.Now()
					if alone {
						ok, err := s.doInline(func() error {
							s.book.Lock()
							took, _ := s.rtt()
							s.open++
							inline++
							s.book.Unlock()
							time.Sleep(took)
							s.end([]string{name}, nil)
							return nil
						})
						if results[i] = err; ok {
							return
						}
					}
					results[i] = s.do(ctx, name)
					assert.LessOrEqual(t, time.Since(began), patience)
				})
			}
			for range 1000 {
				time.Sleep(100*time.Microsecond + 1)
				synctest.Wait()
				s.book.Lock()
				n := inline - inlineBefore
				s.book.Unlock()
				s.balances(t, n)
			}
			all.Wait()
			time.Sleep(time.Second)
			s.isIdle(t)

			sent := make(map[string]bool)
			for _, batch := range s.sent() {
				assert.LessOrEqual(t, len(batch), maxBatch)
				for _, call := range batch {
					assert.False(t, sent[call], "%s was sent twice", call)
					sent[call] = true
				}
			}
			for i, err := range results {
				name := fmt.Sprint(i)
				ok, wasSent := s.answered[name]
				switch err {
				case nil:
					answered++
					assert.True(t, ok)
				case errLost:
					failed++
					assert.True(t, wasSent && !ok)
				default:
					assert.Equal(t, context.DeadlineExceeded, err)
					left++
					if !sent[name] {
						unsent++
					}
				}
			}
		})
	}
	assert.Positive(t, inline)
	assert.Positive(t, answered)
	assert.Positive(t, failed)
	assert.Positive(t, unsent)
	assert.Greater(t, left, unsent, "some left while they were in flight")
}

// This one uses the real clock, for the race detector.
func TestABatcherIsSafeForConcurrentUse(t *testing.T) {
	const callers, calls = 64, 100
	type work struct{ sent, done int }
	b := batcher[*work]{send: func(_ context.Context, batch []*work) error {
		for _, w := range batch {
			w.sent++
		}
		if rand.IntN(100) == 0 {
			return errLost
		}
		for _, w := range batch {
			w.done++
		}
		return nil
	}}
	var all sync.WaitGroup
	for i := range callers {
		all.Go(func() {
			for j := range calls {
				ctx, cancel := context.WithCancel(t.Context())
				w := new(work)
				if j%7 == 0 {
					go cancel()
				}
				if i%2 == 0 {
					ok, err := b.doInline(func() error { w.sent++; return nil })
					if ok && assert.NoError(t, err) && assert.Equal(t, work{sent: 1}, *w) {
						cancel()
						continue
					}
				}
				switch err := b.do(ctx, w); err {
				case nil:
					assert.Equal(t, work{1, 1}, *w)
				case errLost:
					assert.Equal(t, work{1, 0}, *w)
				default:
					assert.Equal(t, context.Canceled, err)
				}
				cancel()
			}
		})
	}
	all.Wait()
	require.Eventually(t, func() bool {
		b.mu.Lock()
		defer b.mu.Unlock()
		return b.inFlight == 0
	}, time.Minute, time.Millisecond)
	assert.Empty(t, b.queue)
	assert.Zero(t, b.calls)
}
