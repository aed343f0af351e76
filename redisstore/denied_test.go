package redisstore_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/heedhttp/heed/internal/redistest"
	"github.com/heedhttp/heed/quota"
	"github.com/heedhttp/heed/redisstore"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

const µs = time.Microsecond

// A deniedStore is a Store on a fakeRedis that answers at once.
type deniedStore struct {
	*fakeRedis
	t     *testing.T
	store *redisstore.Store
}

// withDeniedStore runs play in a synctest bubble.
func withDeniedStore(t *testing.T, play func(t *testing.T, s *deniedStore)) {
	synctest.Test(t, func(t *testing.T) {
		f := newFakeRedis(0)
		s := &deniedStore{f, t, &redisstore.Store{Client: f.link(t).Client, Timeout: time.Second}}
		redisstore.RememberBy(s.store, time.Now) // exact to the microsecond
		require.NoError(t, s.store.Ping(ctx))
		play(t, s)
	})
}

// take returns the decisions on charges, and whether Redis was asked.
func (s *deniedStore) take(charges ...quota.Charge) (ds []quota.Decision, asked bool) {
	s.t.Helper()
	before := s.roundTrips()
	ds, err := s.store.Take(ctx, nil, charges...)
	require.NoError(s.t, err)
	return ds, s.roundTrips() > before
}

// denied asserts that Redis is asked and denies charges.
func (s *deniedStore) denied(charges ...quota.Charge) {
	s.t.Helper()
	ds, asked := s.take(charges...)
	require.True(s.t, asked)
	for i, d := range ds {
		if !d.Allowed && !charges[i].DryRun {
			return
		}
	}
	require.Fail(s.t, "allowed")
}

// knows reports whether s denies charges without asking Redis.
func (s *deniedStore) knows(charges ...quota.Charge) bool {
	s.t.Helper()
	_, asked := s.take(charges...)
	return !asked
}

func TestADenialEndsWhenItsChargesFit(t *testing.T) {
	for _, p := range []quota.Policy{
		{Quota: 10, Window: time.Second},
		{Quota: 10, Window: time.Second, Burst: 1},
		{Quota: 10, Window: time.Second, Burst: 9, Algorithm: quota.LeakyBucket},
		{Quota: 10, Window: 100 * time.Millisecond, Algorithm: quota.FixedWindow},
		{Quota: 10, Window: 100 * time.Millisecond, Algorithm: quota.SlidingLog},
	} {
		withDeniedStore(t, func(t *testing.T, s *deniedStore) {
			c := quota.Charge{Key: "key", Limit: s.limit(p)}
			const wait = 100 * time.Millisecond
			full := c
			full.N = c.Limit.AtOnce()
			ds, _ := s.take(full)
			require.True(t, ds[0].Allowed)
			start := time.Now()
			s.denied(c)

			ds, asked := s.take(c)
			require.False(t, asked, "%v", p)
			assert.Equal(t, []quota.Decision{{
				Limit: 10, RetryAfter: wait, NextAfter: wait, ResetAfter: ds[0].ResetAfter, At: start.Local(),
			}}, ds)
			whole := ds[0].ResetAfter

			time.Sleep(wait - µs)
			ds, asked = s.take(c)
			require.False(t, asked)
			assert.Equal(t, µs, ds[0].RetryAfter)
			assert.Equal(t, whole-wait+µs, ds[0].ResetAfter)
			assert.Equal(t, start.Add(wait-µs).Local(), ds[0].At)

			time.Sleep(time.Nanosecond)
			assert.False(t, s.knows(c), "the last microsecond may have passed")
			time.Sleep(µs - 1)
			ds, asked = s.take(c)
			assert.True(t, asked)
			assert.True(t, ds[0].Allowed)
		})
	}
}

// What other processes do meanwhile is seen within a second, and a Key that stays denied is asked for once a second.
func TestADenialIsRememberedForASecondAtMost(t *testing.T) {
	withDeniedStore(t, func(t *testing.T, s *deniedStore) {
		c := quota.Charge{Key: "key", Limit: s.limit(quota.PerDay(1))}
		always := &redisstore.Store{Client: s.store.Client, Timeout: time.Second, AlwaysAsk: true}
		s.charge(c, 1)
		for n := range time.Duration(3) {
			s.denied(c)
			time.Sleep(time.Second - µs)
			ds, asked := s.take(c)
			require.False(t, asked)
			assert.Equal(t, 24*time.Hour-(n+1)*time.Second+µs, ds[0].RetryAfter, "the exact wait")
			time.Sleep(µs)
		}
		s.denied(c)
		s.charge(c, -1)
		assert.True(t, s.knows(c))
		ds, err := always.Take(ctx, nil, c)
		require.NoError(t, err)
		assert.True(t, ds[0].Allowed)
		s.charge(c, -1)
		time.Sleep(time.Second)
		ds, _ = s.take(c)
		assert.True(t, ds[0].Allowed)
	})
}

// Redis read the bucket at some time after it was asked.
func TestARememberedDenialIsNeverLongerThanThatOfRedis(t *testing.T) {
	withDeniedStore(t, func(t *testing.T, s *deniedStore) {
		const took = 30 * time.Millisecond
		c := quota.Charge{Key: "key", Limit: s.limit(quota.PerSecond(10))}
		s.setRTT(took)
		time.AfterFunc(took/2-µs, func() { s.charge(c, 10) })
		s.denied(c)
		ds, asked := s.take(c)
		require.False(t, asked)
		assert.Equal(t, 100*time.Millisecond-took-µs, ds[0].RetryAfter, "it may have answered at once")
	})
}

func TestASmallerChargeThatFitsIsNotDenied(t *testing.T) {
	for n := int64(1); n <= 12; n++ {
		withDeniedStore(t, func(t *testing.T, s *deniedStore) {
			c := quota.Charge{Key: "key", N: 5, Limit: s.limit(quota.PerSecond(10))}
			s.charge(c, 7)
			s.denied(c)
			c.N = n
			ds, asked := s.take(c)
			assert.Equal(t, n <= 3, asked, n)
			assert.Equal(t, n <= 3, ds[0].Allowed, n)
			if n > 3 {
				assert.Equal(t, n > 10, ds[0].Never, n)
				assert.EqualValues(t, 3, ds[0].Remaining, n)
			}
		})
	}
	for n, until := range map[int64]time.Duration{4: 100 * time.Millisecond, 10: 200 * time.Millisecond} {
		withDeniedStore(t, func(t *testing.T, s *deniedStore) {
			c := quota.Charge{Key: "key", N: 5, Limit: s.limit(quota.PerSecond(10))}
			s.charge(c, 7)
			s.denied(c)
			c.N = n
			time.Sleep(until - µs)
			assert.True(t, s.knows(c), "for as long as the larger charge is denied")
			time.Sleep(µs)
			assert.False(t, s.knows(c))
		})
	}
}

// Limits of one name are distinguished by their numbers.
func TestAChangedLimitIsSeenAtOnce(t *testing.T) {
	for _, quotaIs := range []int64{3, 11, 1000} {
		withDeniedStore(t, func(t *testing.T, s *deniedStore) {
			p := quota.Policy{Name: "api", Quota: 10, Window: time.Minute}
			s.charge(quota.Charge{Key: "key", Limit: s.limit(p)}, 10)
			s.denied(quota.Charge{Key: "key", Limit: s.limit(p)})
			p.Quota = quotaIs
			assert.False(t, s.knows(quota.Charge{Key: "key", Limit: s.limit(p)}), quotaIs)
		})
	}
}

func TestADenialIsForOneBucketOnly(t *testing.T) {
	withDeniedStore(t, func(t *testing.T, s *deniedStore) {
		minute, day := s.limit(quota.PerMinute(10)), s.limit(quota.PerDay(10))
		c := quota.Charge{Key: "key", Limit: minute}
		s.charge(c, 10)
		s.denied(c)
		for range 2 {
			assert.True(t, s.knows(c))
			assert.False(t, s.knows(quota.Charge{Key: "other", Limit: minute}))
			assert.False(t, s.knows(quota.Charge{Key: "key", Limit: day}))
			assert.False(t, s.knows(quota.Charge{Key: "key", Limit: minute, DryRun: true}), "Redis must count dry runs")
			assert.False(t, s.knows(quota.Charge{Key: "key", Limit: minute, ID: "a"}), "it may have been made before")
			ds, err := s.store.Peek(ctx, nil, c)
			require.NoError(t, err)
			assert.False(t, ds[0].Allowed)
		}
		assert.Equal(t, 1+4*2+2, s.roundTrips(), "other calls do not change what is remembered, and Peek always asks")
	})
}

// What this Store itself gives back, takes or reserves is seen at once.
func TestCallsOfTheSameStoreAreSeenAtOnce(t *testing.T) {
	withDeniedStore(t, func(t *testing.T, s *deniedStore) {
		c := quota.Charge{Key: "key", N: 2, Limit: s.limit(quota.PerDay(5))}
		one, back := c, c
		one.N, back.N = 1, -2
		s.charge(c, 4)
		s.denied(c)
		require.NoError(t, s.store.Reset(ctx, "key"))
		s.denied(c) // this Redis cannot reset
		require.NoError(t, s.store.Settle(ctx, back))
		ds, _ := s.take(c)
		assert.True(t, ds[0].Allowed)
		s.denied(c)
		_, _, ok, err := s.store.Reserve(ctx, time.Hour, c)
		require.NoError(t, err)
		assert.False(t, ok)
		s.denied(c)
		ds, _ = s.take(one)
		assert.True(t, ds[0].Allowed)
		s.denied(c) // less is left than when it was denied before
		assert.True(t, s.knows(one))
	})
}

func TestADenialNeedsAllBucketsOfTheCall(t *testing.T) {
	withDeniedStore(t, func(t *testing.T, s *deniedStore) {
		minute := quota.Charge{Key: "key", Limit: s.limit(quota.PerMinute(10))}
		day := quota.Charge{Key: "key", Limit: s.limit(quota.PerDay(1000))}
		dry := quota.Charge{Key: "key", Limit: s.limit(quota.PerHour(5)), DryRun: true}
		s.charge(minute, 10)
		s.charge(day, 10)
		s.charge(dry, 5)
		s.denied(minute)
		s.denied(minute, day)
		ds, asked := s.take(minute, day)
		require.False(t, asked)
		assert.False(t, ds[0].Allowed)
		assert.True(t, ds[1].Allowed)
		assert.EqualValues(t, 990, ds[1].Remaining)
		assert.True(t, s.knows(day, minute), "in any order")
		assert.False(t, s.knows(day), "only Redis can make a charge that fits")

		s.denied(minute, dry)
		assert.True(t, s.knows(minute))
		assert.False(t, s.knows(minute, dry))
	})
}

// Several charges of one bucket in a call count together.
func TestChargesOfOneBucketAddUp(t *testing.T) {
	withDeniedStore(t, func(t *testing.T, s *deniedStore) {
		c := quota.Charge{Key: "key", N: 5, Limit: s.limit(quota.PerSecond(10))}
		s.charge(c, 7)
		s.denied(c)
		c.N = 2
		ds, asked := s.take(c, c)
		require.False(t, asked)
		assert.True(t, ds[0].Allowed)
		assert.Equal(t, 100*time.Millisecond, ds[1].RetryAfter)
		c.N = 6
		ds, asked = s.take(c, c)
		require.False(t, asked)
		assert.True(t, ds[1].Never)
		c.N = 2
		assert.False(t, s.knows(c))
	})
}

func TestALateAnswerDoesNotUndoARefund(t *testing.T) {
	withDeniedStore(t, func(t *testing.T, s *deniedStore) {
		c := quota.Charge{Key: "key", Limit: s.limit(quota.PerDay(10))}
		s.charge(c, 10)
		s.setRTT(2 * ms)
		late := make(chan []quota.Decision)
		go func() {
			ds, _ := s.take(c)
			late <- ds
		}()
		time.Sleep(ms / 2)
		s.setRTT(100 * ms) // for the way back
		time.Sleep(ms)
		s.setRTT(2 * ms)
		c.N = -1
		require.NoError(t, s.store.Settle(ctx, c))
		c.N = 1
		require.False(t, (<-late)[0].Allowed)
		ds, asked := s.take(c)
		assert.True(t, asked, "the answer is older than the refund")
		assert.True(t, ds[0].Allowed)
	})
}

// mostDenials is how many denials are remembered at most.
const mostDenials = 14336

func TestDenialsTakeBoundedMemory(t *testing.T) {
	withDeniedStore(t, func(t *testing.T, s *deniedStore) {
		const keys = 3 * mostDenials
		l := s.limit(quota.Policy{Quota: 60, Window: time.Minute, Burst: 600})
		last := quota.Charge{Key: "last", N: 60, Limit: l}
		key := func(i int) quota.Charge { return quota.Charge{Key: fmt.Sprint(i), Limit: l} }
		for i := range keys {
			s.charge(key(i), 600)
		}
		s.charge(last, 600)
		time.Sleep(50 * time.Millisecond) // so that other denials expire before last
		s.denied(last)
		for i := range keys {
			s.denied(key(i))
		}
		s.fail(errors.New("gone"))
		known := 0
		for i := range keys {
			if _, err := s.store.Take(ctx, nil, key(i)); err == nil {
				known++
			}
		}
		assert.Less(t, known, mostDenials)
		assert.Greater(t, known, mostDenials*9/10)
		_, err := s.store.Take(ctx, nil, last)
		assert.NoError(t, err, "last expires last")
	})
}

// So nobody who is denied makes the script read a long log again and again.
func TestBucketsOfLongLogsAreRemembered(t *testing.T) {
	withDeniedStore(t, func(t *testing.T, s *deniedStore) {
		key := quota.Charge{Key: strings.Repeat("x", 2000), Limit: s.limit(quota.PerMinute(600))}
		s.charge(key, 600)
		s.denied(key)
		assert.False(t, s.knows(key), "a long Key")
		many := quota.Policy{Quota: 500, Window: time.Minute, Algorithm: quota.SlidingLog}
		for i := range 1000 { // more than fit
			log := quota.Charge{Key: fmt.Sprint("log", i), Limit: s.limit(many)}
			s.charge(log, 500)
			s.denied(log)
			assert.True(t, s.knows(log))
		}
		back := quota.Charge{Key: "log999", Limit: s.limit(many), N: -1}
		require.NoError(t, s.store.Settle(ctx, back))
		back.N = 1
		ds, asked := s.take(back)
		assert.True(t, asked && ds[0].Allowed, "a unit was given back")
	})
}

// Whatever other processes charge meanwhile, Redis would deny the same.
func TestARememberedDenialAgreesWithTheBucket(t *testing.T) {
	withDeniedStore(t, func(t *testing.T, s *deniedStore) {
		random := rand.New(rand.NewPCG(5, 6))
		var both, known int
		for i := range stated(3000, 1000) {
			p := quota.Policy{Name: fmt.Sprint(i), Quota: 1 + random.Int64N(50), Algorithm: quota.Algorithm(random.IntN(5))}
			p.Window = time.Duration(1+random.Int64N(5000)) * ms
			c := quota.Charge{Key: "key", Limit: s.limit(p)}
			for range random.IntN(60) {
				time.Sleep(time.Duration(random.Int64N(50_000)) * µs)
				c.N = 1 + random.Int64N(3)
				if s.wait(c) == 0 {
					s.charge(c, c.N)
				}
			}
			c.N = 1 + random.Int64N(3)
			s.setRTT(time.Duration(random.Int64N(3000)) * 2 * µs)
			wait := s.wait(c)
			if wait == 0 || wait == quota.Forever {
				continue
			}
			s.take(c)
			for range 20 {
				time.Sleep(time.Duration(random.Int64N(1+wait.Microseconds()/5)) * µs)
				if one := (quota.Charge{Key: "key", Limit: c.Limit}); s.wait(one) == 0 {
					s.charge(one, 1) // by another process
				}
				c.N = 1 + random.Int64N(5)
				wait := s.wait(c)
				ds, asked := s.take(c)
				if !asked {
					known++
					require.Positive(t, wait, "%v: %d", p, c.N)
					if !ds[0].Never {
						require.LessOrEqual(t, ds[0].RetryAfter, wait, "%v", p)
					}
				}
				if wait > 0 {
					both++
				}
			}
		}
		assert.Greater(t, known, both/3)
	})
}

func TestDenialsAreSafeForConcurrentUse(t *testing.T) {
	withDeniedStore(t, func(t *testing.T, s *deniedStore) {
		l := s.limit(quota.PerMinute(10))
		for key := range 100 {
			s.charge(quota.Charge{Key: fmt.Sprint(key), Limit: l}, 10)
		}
		callers(8, 2000, func(caller, i int) {
			c := quota.Charge{Key: fmt.Sprint(i % 100), Limit: l}
			if i%10 == caller {
				assert.NoError(t, s.store.Settle(ctx, quota.Charge{Key: c.Key, Limit: l, N: 1}))
			}
			ds, err := s.store.Take(ctx, nil, c)
			if assert.NoError(t, err) {
				assert.False(t, ds[0].Allowed)
			}
		})
	})
}

func TestARememberedDenialDoesNotAllocate(t *testing.T) {
	withDeniedStore(t, func(t *testing.T, s *deniedStore) {
		c := quota.Charge{Key: "key", Limit: s.limit(quota.PerDay(10))}
		s.charge(c, 10)
		s.denied(c)
		dst, charges := make([]quota.Decision, 0, 1), []quota.Charge{c}
		const runs = 1000 // so many that what goroutines of earlier tests allocate does not count
		assert.Zero(t, testing.AllocsPerRun(runs, func() {
			if ds, _ := s.store.Take(ctx, dst, charges...); ds[0].Allowed {
				t.Error("allowed")
			}
		}))
	})
}

// A denial of one Key is remembered with the buckets of all Keys of the call.
func TestADenialOfSeveralKeysOnARingIsRemembered(t *testing.T) {
	direct := newClient(t, redistest.Shared(t))
	ring := redis.NewRing(&redis.RingOptions{Addrs: map[string]string{"a": direct.Options().Addr}})
	defer ring.Close()
	s := &redisstore.Store{Client: ring, Timeout: patient}
	stopClock(s)
	wide := quota.Charge{Key: "wide", Limit: compile(t, quota.PerDay(100))}
	narrow := quota.Charge{Key: "narrow", N: 2, Limit: compile(t, quota.PerDay(3))}
	take(t, s, wide, narrow)
	take(t, s, wide, narrow)
	asked := commandsProcessed(t, direct)
	for range 5 {
		ds := take(t, s, wide, narrow)
		assert.True(t, ds[0].Allowed)
		assert.EqualValues(t, 99, ds[0].Remaining)
		assert.False(t, ds[1].Allowed)
		assert.EqualValues(t, 1, ds[1].Remaining)
	}
	assert.Equal(t, asked+1, commandsProcessed(t, direct), "this INFO")
}

// stopClock stops the clock of s's denials.
func stopClock(s *redisstore.Store) {
	now := time.Now()
	redisstore.RememberBy(s, func() time.Time { return now })
}

// This measures a decision from memory.
func BenchmarkDenied(b *testing.B) {
	s := newStore(b, redistest.Shared(b))
	c := quota.Charge{Key: "user:12345", Limit: compile(b, quota.PerDay(1))}
	stopClock(s)
	for range 2 {
		take(b, s, c)
	}
	b.Run("serial", func(b *testing.B) {
		b.ReportAllocs()
		dst := make([]quota.Decision, 0, 1)
		for b.Loop() {
			s.Take(ctx, dst, c)
		}
	})
	b.Run("parallel", func(b *testing.B) {
		b.ReportAllocs()
		b.RunParallel(func(pb *testing.PB) {
			dst := make([]quota.Decision, 0, 1)
			for pb.Next() {
				s.Take(ctx, dst, c)
			}
		})
	})
}
