package redisstore_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"runtime"
	"runtime/debug"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/heedhttp/heed/redisstore"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

const inTime = 50 * time.Millisecond

var errRefused = errors.New("refused")

// A wire is a server that takes its time.
type wire struct {
	*redisstore.Line
	trip func(names []string) time.Duration // forever if negative

	mu       sync.Mutex // guards what follows
	batches  [][]string
	away     int
	most     int // were away at once
	silences []error
}

func newWire(trip func(names []string) time.Duration) *wire {
	w := &wire{trip: trip}
	w.Line = redisstore.NewLine(inTime, w.send, func(err error) error {
		w.mu.Lock()
		defer w.mu.Unlock()
		w.silences = append(w.silences, err)
		return errRefused
	})
	return w
}

func always(d time.Duration) func([]string) time.Duration {
	return func([]string) time.Duration { return d }
}

// send answers each name with a word.
func (w *wire) send(ctx context.Context, names, words []string) error {
	w.depart(names)
	defer w.arrive()
	trip := w.trip(names)
	if trip < 0 {
		<-ctx.Done()
		time.Sleep(time.Second) // go-redis heeds no context
		return ctx.Err()
	}
	time.Sleep(trip)
	for i, name := range names {
		words[i] = "hello " + name
	}
	return nil
}

func (w *wire) depart(names []string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.batches = append(w.batches, slices.Clone(names))
	w.away++
	w.most = max(w.most, w.away)
}

func (w *wire) arrive() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.away--
}

// silent returns what the line was told of silence.
func (w *wire) silent() []error {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.silences
}

// call calls name in a goroutine of its own, after all who were called before.
func (w *wire) call(ctx context.Context, name string, how redisstore.Call) <-chan result {
	done := make(chan result, 1)
	go func() {
		begin := time.Now()
		word, err := w.Do(ctx, name, how)
		done <- result{word, err, time.Since(begin)}
	}()
	synctest.Wait()
	return done
}

type result struct {
	word string
	err  error
	took time.Duration
}

// callEach calls so many names.
func (w *wire) callEach(ctx context.Context, n int) (all []<-chan result) {
	for i := range n {
		all = append(all, w.call(ctx, fmt.Sprint(i), redisstore.Call{}))
	}
	return all
}

func TestWhoComesWhileACallIsOnTheWireSharesTheNextInOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWire(always(worthNothing))
		all := w.callEach(t.Context(), 5)
		for i, done := range all {
			r := <-done
			assert.NoError(t, r.err)
			assert.Equal(t, fmt.Sprint("hello ", i), r.word)
			assert.Equal(t, time.Duration(min(i+1, 2))*worthNothing, r.took)
		}
		assert.Equal(t, [][]string{{"0"}, {"1", "2", "3", "4"}}, w.batches)
		assert.Equal(t, "hello again", (<-w.call(t.Context(), "again", redisstore.Call{})).word)
		assert.Equal(t, [][]string{{"0"}, {"1", "2", "3", "4"}, {"again"}}, w.batches)
	})
}

func TestGoodCompanyNeedsNoRoom(t *testing.T) {
	for _, test := range []struct {
		name           string
		company, later int // how many come at once, and before any train has arrived
		batches        []int
	}{
		{"too few", redisstore.GoodCompany - 1, 0, []int{1, redisstore.GoodCompany - 1}},
		{"good", redisstore.GoodCompany, 0, []int{1, redisstore.GoodCompany}},
		{"fewer than are on the wire", redisstore.GoodCompany, redisstore.GoodCompany - 1, []int{1, redisstore.GoodCompany, redisstore.GoodCompany - 1}},
		{"as many as are on the wire", redisstore.GoodCompany, redisstore.GoodCompany, []int{1, redisstore.GoodCompany, redisstore.GoodCompany}},
	} {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWire(always(worthNothing))
				<-w.call(t.Context(), "to learn how long a trip is", redisstore.Call{})
				w.batches = nil
				first := w.call(t.Context(), "first", redisstore.Call{})
				time.Sleep(worthNothing / 2)
				company := w.callEach(t.Context(), test.company)
				later := w.callEach(t.Context(), test.later)
				assert.Equal(t, worthNothing, (<-first).took)
				wait := time.Duration(0)
				if test.company < redisstore.GoodCompany {
					wait = worthNothing / 2
				}
				for _, done := range company {
					assert.Equal(t, wait+worthNothing, (<-done).took)
				}
				wait = worthNothing / 2 // until there is room for good company
				if test.later < redisstore.GoodCompany {
					wait = worthNothing // until there is room for all
				}
				for _, done := range later {
					assert.Equal(t, wait+worthNothing, (<-done).took)
				}
				var batches []int
				for _, batch := range w.batches {
					batches = append(batches, len(batch))
				}
				assert.Equal(t, test.batches, batches)
			})
		})
	}
}

// Those who call again as soon as they are answered share the next train with those who
// wait for it, instead of one half of all waiting for the other by turns.
func TestWhoIsAnsweredAndCallsAgainIsWaitedFor(t *testing.T) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
	synctest.Test(t, func(t *testing.T) {
		const callers, calls = redisstore.GoodCompany - 2, 100
		w := newWire(always(worthNothing))
		var all sync.WaitGroup
		for i := range callers {
			all.Go(func() {
				for range calls {
					_, err := w.Do(t.Context(), fmt.Sprint(i), redisstore.Call{})
					assert.NoError(t, err)
				}
			})
		}
		all.Wait()
		assert.Less(t, len(w.batches), calls*3/2)
	})
}

// Those who come again and again are on the wire by halves, and each half leaves without
// waiting for the other.
func TestWhileOneHalfIsOnTheWireTheOtherIsHere(t *testing.T) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
	synctest.Test(t, func(t *testing.T) {
		const callers, calls = 8 * redisstore.GoodCompany, 100
		w := newWire(always(worthNothing))
		var all sync.WaitGroup
		for i := range callers {
			all.Go(func() {
				time.Sleep(time.Duration(i) * worthNothing / callers)
				for range calls {
					_, err := w.Do(t.Context(), fmt.Sprint(i), redisstore.Call{})
					assert.NoError(t, err)
				}
			})
		}
		all.Wait()
		assert.Equal(t, 2, w.most)
		var sizes []int
		for _, batch := range w.batches {
			sizes = append(sizes, len(batch))
		}
		assert.LessOrEqual(t, slices.Max(sizes), callers/2)
		slices.Sort(sizes)
		assert.Greater(t, sizes[len(sizes)/4], callers/3)
	})
}

// However many there are: half of them may be more than a train carries.
func TestWhoAreAFullTrainDoNotWaitForOneThatMayLeaveInAMoment(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWire(always(worthNothing))
		w.Arriving(4 * redisstore.FullTrain)
		w.callEach(t.Context(), redisstore.FullTrain-1)
		assert.Empty(t, w.batches)
		assert.Equal(t, worthNothing, (<-w.call(t.Context(), "last", redisstore.Call{})).took)
		require.Len(t, w.batches, 1)
		assert.Len(t, w.batches[0], redisstore.FullTrain)
	})
}

// worthNothing is a trip during which nobody else leaves.
const worthNothing = redisstore.WorthWaiting / 2

func TestWhoFindsNobodyOnTheWireGoesInItsOwnGoroutineIfItIsStraight(t *testing.T) {
	for _, straight := range []bool{true, false} {
		own := false
		l := redisstore.NewLine(inTime, func(context.Context, []string, []string) error {
			own = strings.Contains(string(debug.Stack()), "redisstore_test.fromHere(")
			return nil
		}, nil)
		require.NoError(t, fromHere(t, l, redisstore.Call{Straight: straight}))
		assert.Equal(t, straight, own)
	}
}

//go:noinline
func fromHere(t *testing.T, l *redisstore.Line, how redisstore.Call) error {
	_, err := l.Do(t.Context(), "me", how)
	return err
}

func TestATrainCarriesNoMoreThanItCan(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWire(always(worthNothing))
		w.call(t.Context(), "first", redisstore.Call{})
		var last <-chan result
		for i := range 9 {
			last = w.call(t.Context(), fmt.Sprint(i), redisstore.Call{Weight: redisstore.FullTrain / 4})
		}
		w.call(t.Context(), "heavy", redisstore.Call{Weight: 2 * redisstore.FullTrain})
		end := w.call(t.Context(), "end", redisstore.Call{Weight: 1})
		<-last
		<-end
		assert.Equal(t, [][]string{{"first"}, {"0", "1", "2", "3"}, {"4", "5", "6", "7"}, {"8"}, {"heavy"}, {"end"}}, w.batches)
	})
}

func TestThereAreAsManyTrainsAsALongTripIsWorth(t *testing.T) {
	for _, test := range []struct {
		trip   time.Duration
		trains int
	}{
		{redisstore.WorthWaiting - 1, 1},
		{redisstore.WorthWaiting, 2},
		{5 * redisstore.WorthWaiting / 2, 3},
		{100 * redisstore.WorthWaiting, redisstore.MostTrains},
	} {
		synctest.Test(t, func(t *testing.T) {
			w := newWire(always(test.trip))
			<-w.call(t.Context(), "to learn how long a trip is", redisstore.Call{})
			all := w.callEach(t.Context(), 100)
			for _, done := range all {
				r := <-done
				assert.NoError(t, r.err)
				assert.LessOrEqual(t, r.took, 2*test.trip)
			}
			assert.Equal(t, test.trains+1, w.most, "one with good company")
			assert.LessOrEqual(t, len(w.batches), 1+test.trains+1+3, "a half of all rides in each, at most")
		})
	}
}

// Trains that arrive at once leave as one, which need not carry all.
func TestWhoDoesNotFitIntoATrainLeavesInAnotherIfThereIsRoom(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const trip = redisstore.MostTrains * redisstore.WorthWaiting
		w := newWire(always(trip))
		<-w.call(t.Context(), "to learn how long a trip is", redisstore.Call{})
		var all []<-chan result
		for i := range 4 * redisstore.FullTrain {
			all = append(all, w.call(t.Context(), fmt.Sprint(i), redisstore.Call{Weight: 1}))
		}
		for i, done := range all {
			r := <-done
			assert.NoError(t, r.err)
			assert.LessOrEqual(t, r.took, 2*trip, i)
		}
	})
}

func TestTheShortestTripTellsHowLongTheWayIs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		trip := 10 * time.Millisecond
		w := newWire(func([]string) time.Duration { return trip })
		most := func() int {
			w.most = 0
			for _, done := range w.callEach(t.Context(), 50) {
				<-done
			}
			return w.most - 1 // which left with good company
		}
		<-w.call(t.Context(), "which has to connect first", redisstore.Call{})
		trip = worthNothing
		<-w.call(t.Context(), "which has not", redisstore.Call{})
		assert.Equal(t, 1, most())
		trip = 10 * time.Millisecond
		assert.Equal(t, 1, most(), "they may be busy")
		for range 1000 {
			<-w.call(t.Context(), "always", redisstore.Call{})
		}
		assert.Equal(t, redisstore.MostTrains, most())
		trip = worthNothing
		<-w.call(t.Context(), "once", redisstore.Call{})
		assert.Equal(t, 1, most())
	})
}

func TestWhoLeavesTheQueueIsNotSent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWire(always(worthNothing))
		first := w.call(t.Context(), "first", redisstore.Call{})
		gone, leave := context.WithCancel(t.Context())
		stays, leaves := w.call(t.Context(), "stays", redisstore.Call{}), w.call(gone, "leaves", redisstore.Call{})
		leave()
		assert.Equal(t, result{err: context.Canceled}, <-leaves)
		assert.NoError(t, (<-first).err)
		assert.NoError(t, (<-stays).err)
		assert.Equal(t, [][]string{{"first"}, {"stays"}}, w.batches)
	})
}

func TestWhoLeavesTheWireLeavesTheOthersTheirAnswers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWire(always(10 * time.Millisecond))
		short, cancel := context.WithTimeout(t.Context(), 12*time.Millisecond)
		defer cancel()
		first := w.call(t.Context(), "first", redisstore.Call{})
		stays, leaves := w.call(t.Context(), "stays", redisstore.Call{}), w.call(short, "leaves", redisstore.Call{})
		assert.Equal(t, result{err: context.DeadlineExceeded, took: 12 * time.Millisecond}, <-leaves)
		assert.Equal(t, result{word: "hello first", took: 10 * time.Millisecond}, <-first)
		assert.Equal(t, result{word: "hello stays", took: 20 * time.Millisecond}, <-stays)
		assert.Equal(t, [][]string{{"first"}, {"stays", "leaves"}}, w.batches)
		assert.Empty(t, w.silent())
	})
}

func TestASilentServerCostsThoseOnTheWireATimeoutAndOthersNoMore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		silent := true
		w := newWire(func([]string) time.Duration {
			if silent {
				return -1
			}
			return worthNothing
		})
		first := w.call(t.Context(), "first", redisstore.Call{})
		time.Sleep(20 * time.Millisecond)
		waits, stubborn := w.call(t.Context(), "waits", redisstore.Call{}), w.call(t.Context(), "refund", redisstore.Call{Stubborn: true})
		r := <-first
		assert.ErrorIs(t, r.err, context.DeadlineExceeded)
		assert.EqualError(t, r.err, "redisstore: no answer within 50ms: context deadline exceeded")
		assert.Equal(t, inTime, r.took)
		assert.Equal(t, result{err: errRefused, took: inTime - 20*time.Millisecond}, <-waits)
		synctest.Wait()
		require.Len(t, w.silent(), 1)
		assert.Equal(t, r.err, w.silent()[0])

		r = <-stubborn
		assert.ErrorIs(t, r.err, context.DeadlineExceeded)
		assert.Equal(t, inTime, r.took, "the time in the queue included")

		time.Sleep(inTime) // the refund's train is given up, too
		synctest.Wait()
		silent = false
		assert.Equal(t, result{word: "hello again", took: worthNothing}, <-w.call(t.Context(), "again", redisstore.Call{}))
		assert.Equal(t, [][]string{{"first"}, {"refund"}, {"again"}}, w.batches)
		assert.Len(t, w.silent(), 2)
		time.Sleep(time.Minute)
	})
}

func TestAConnectionThatBreaksIsNobodysAnswerWhoWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		broken := errors.New("EOF")
		var silent []error
		l := redisstore.NewLine(inTime, func(_ context.Context, names, words []string) error {
			time.Sleep(time.Millisecond)
			words[0] = "EOF"
			return broken
		}, func(err error) error { silent = append(silent, err); return errRefused })
		w := &wire{Line: l}
		first, second := w.call(t.Context(), "first", redisstore.Call{}), w.call(t.Context(), "second", redisstore.Call{})
		assert.Equal(t, result{word: "EOF", took: time.Millisecond}, <-first)
		assert.Equal(t, result{err: errRefused, took: time.Millisecond}, <-second)
		assert.Equal(t, []error{broken}, silent)
	})
}

// A server may be slow, and is not silent: who waited for it has waited.
func TestTheTimeInTheQueueCounts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		trip := worthNothing
		w := newWire(func([]string) time.Duration { return trip })
		<-w.call(t.Context(), "to learn how long a trip is", redisstore.Call{})
		trip = 40 * time.Millisecond
		first := w.call(t.Context(), "first", redisstore.Call{})
		time.Sleep(10 * time.Millisecond)
		second := w.call(t.Context(), "second", redisstore.Call{})
		time.Sleep(25 * time.Millisecond)
		third := w.call(t.Context(), "third", redisstore.Call{})
		assert.NoError(t, (<-first).err)
		r := <-second
		assert.ErrorIs(t, r.err, context.DeadlineExceeded)
		assert.Equal(t, inTime, r.took)
		assert.Equal(t, result{word: "hello third", took: 45 * time.Millisecond}, <-third)
		assert.Empty(t, w.silent())
		assert.Equal(t, [][]string{{"second", "third"}}, w.batches[2:])
	})
}

// Whatever the callers do, each call is sent once, and only if nobody withdrew it.
func TestOfThousandsOfCallersEachIsSentOnceOrKnowsThatItWasNot(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		random := rand.New(rand.NewPCG(1, 2))
		w := newWire(func(names []string) time.Duration { return time.Duration(rand.Int64N(int64(20 * time.Millisecond))) })
		var all sync.WaitGroup
		var mu sync.Mutex // guards the two that follow
		results := make(map[string]error)
		answered := 0
		for i := range 5000 {
			name, patience := fmt.Sprint(i), time.Duration(random.Int64N(int64(100*time.Millisecond)>>random.IntN(8)))
			arrival := time.Duration(random.Int64N(int64(time.Second)))
			all.Go(func() {
				time.Sleep(arrival)
				short, cancel := context.WithTimeout(t.Context(), patience)
				defer cancel()
				begin := time.Now()
				word, err := w.Do(short, name, redisstore.Call{Weight: 1})
				mu.Lock()
				defer mu.Unlock()
				results[name] = err
				if err == nil {
					answered++
					assert.Equal(t, "hello "+name, word)
				}
				assert.LessOrEqual(t, time.Since(begin), min(patience, inTime))
			})
		}
		all.Wait()
		time.Sleep(time.Second) // those left behind
		sent := make(map[string]int)
		for _, batch := range w.batches {
			assert.LessOrEqual(t, len(batch), redisstore.FullTrain)
			for _, name := range batch {
				sent[name]++
				assert.Equal(t, 1, sent[name], name)
			}
		}
		withdrawn := 0
		for name, err := range results {
			if err == nil {
				assert.Equal(t, 1, sent[name], name)
			} else if sent[name] == 0 {
				withdrawn++
			}
		}
		assert.Len(t, results, 5000)
		assert.Equal(t, 5000, len(sent)+withdrawn)
		assert.Greater(t, answered, 1000)
		assert.Greater(t, withdrawn, 100)
		assert.Empty(t, w.silent())
		assert.Less(t, len(w.batches), 2000)
	})
}

// Whatever becomes of trains, nobody waits longer than he may, or for a train that does
// not come, and in the end nothing is left.
func TestTheBooksOfALineBalanceWhateverTheServerDoes(t *testing.T) {
	for seed := range 12 {
		synctest.Test(t, func(t *testing.T) {
			trip := time.Duration(rand.Int64N(int64(5 * time.Millisecond)))
			silent, broken := 10*(seed%3), 5*(seed%2) // per cent of the trains
			heaviest := []int{1, 8, 100, 3 * redisstore.FullTrain}[seed%4]
			var l *redisstore.Line
			l = redisstore.NewLine(inTime, func(ctx context.Context, names, words []string) error {
				assert.Empty(t, l.Fault())
				if rand.IntN(100) < silent {
					<-ctx.Done()
					time.Sleep(time.Second)
					return ctx.Err()
				}
				time.Sleep(trip)
				if rand.IntN(100) < broken {
					return errors.New("EOF")
				}
				return nil
			}, func(error) error { return errRefused })
			var all sync.WaitGroup
			for range stated(100, 40) {
				all.Go(func() {
					for range 20 {
						patience := inTime << 1 >> rand.IntN(6)
						short, cancel := context.WithTimeout(t.Context(), patience)
						begin := time.Now()
						l.Do(short, "", redisstore.Call{Weight: 1 + rand.IntN(heaviest), Stubborn: rand.IntN(5) == 0})
						assert.LessOrEqual(t, time.Since(begin), min(patience, inTime))
						assert.Empty(t, l.Fault())
						cancel()
						time.Sleep(time.Duration(rand.Int64N(int64(2*time.Millisecond)) >> rand.IntN(10)))
					}
				})
			}
			all.Wait()
			time.Sleep(time.Minute)
			synctest.Wait()
			assert.True(t, l.Idle())
		})
	}
}

// All this by the real clock, for the race detector: callers of every kind.
func TestALineMayBeUsedByManyAtOnce(t *testing.T) {
	var sent, served atomic.Int64
	l := redisstore.NewLine(time.Minute, func(ctx context.Context, names, words []string) error {
		sent.Add(int64(len(names)))
		copy(words, names)
		if rand.IntN(100) == 0 {
			return errors.New("EOF")
		}
		return nil
	}, func(error) error { return errRefused })
	calls := stated(500, 100)
	var refused, withdrawn atomic.Int64
	var all sync.WaitGroup
	for i := range 64 {
		all.Go(func() {
			for j := range calls {
				name := fmt.Sprint(i, ".", j)
				ctx, cancel := context.WithCancel(t.Context())
				if j%7 == 0 {
					go cancel()
				}
				word, err := l.Do(ctx, name, redisstore.Call{Straight: i%2 == 0, Stubborn: i%3 == 0})
				cancel()
				switch {
				case err == nil:
					served.Add(1)
					assert.Equal(t, name, word)
				case err == errRefused:
					refused.Add(1)
				default:
					withdrawn.Add(1)
					assert.Equal(t, context.Canceled, err)
				}
			}
		})
	}
	all.Wait()
	assert.EqualValues(t, 64*calls, served.Load()+refused.Load()+withdrawn.Load())
	assert.LessOrEqual(t, served.Load(), sent.Load())
	assert.LessOrEqual(t, sent.Load(), served.Load()+withdrawn.Load())
}
