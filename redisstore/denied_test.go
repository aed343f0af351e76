package redisstore_test

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/heedhttp/heed/quota"
	"github.com/heedhttp/heed/redisstore"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// noon is when Redis answers in these tests.
var noon = time.UnixMicro(1_790_000_000_000_000)

// denied has d learn that Redis denied charges at noon, at a time that is sent later
// by the process's own clock, when each charge's bucket owed so many units.
func denied(d *redisstore.Denials, sent time.Duration, owed int64, charges ...quota.Charge) {
	d.Ask(sent, func() (now, over time.Time, buckets []quota.Bucket) {
		over = noon
		for _, c := range charges {
			b := full(c.Limit, owed)
			buckets = append(buckets, b)
			if at := noon.Add(c.Limit.Wait(b, c.Units(), noon.UnixMicro())); at.After(over) && !c.DryRun {
				over = at
			}
		}
		return noon, over, buckets
	}, charges...)
}

// full is what l counts at noon when so many units have been charged then.
func full(l *quota.Limit, owed int64) quota.Bucket {
	b, _ := l.Try(l.Drain(quota.Bucket{}, noon.UnixMicro()), owed, noon.UnixMicro())
	return b
}

func knows(d *redisstore.Denials, at time.Duration, charges ...quota.Charge) bool {
	_, denied := d.Decide(nil, at, charges...)
	return denied
}

const µs = time.Microsecond

func TestADenialEndsWhenWhatWasDeniedFits(t *testing.T) {
	for _, p := range []quota.Policy{
		{Quota: 10, Window: time.Second},
		{Quota: 10, Window: time.Second, Burst: 1},
		{Quota: 10, Window: time.Second, Burst: 9, Algorithm: quota.LeakyBucket},
		{Quota: 10, Window: 100 * time.Millisecond, Algorithm: quota.FixedWindow},
		{Quota: 10, Window: 100 * time.Millisecond, Algorithm: quota.SlidingLog},
	} {
		d, l := new(redisstore.Denials), compile(t, p)
		c := quota.Charge{Key: "key", Limit: l}
		const wait, sent = 100 * time.Millisecond, 7 * time.Hour
		require.Equal(t, wait, l.Wait(full(l, l.AtOnce()), 1, noon.UnixMicro()), "%v", p)
		denied(d, sent, l.AtOnce(), c)

		ds, known := d.Decide(nil, sent, c)
		require.True(t, known, "%v", p)
		assert.Equal(t, []quota.Decision{{Limit: 10, RetryAfter: wait, NextAfter: wait, ResetAfter: ds[0].ResetAfter, At: noon.Local()}}, ds)

		ds, known = d.Decide(ds, sent+wait-µs, c)
		require.True(t, known)
		require.Len(t, ds, 2)
		assert.Equal(t, µs, ds[1].RetryAfter)
		assert.Equal(t, ds[0].ResetAfter-wait+µs, ds[1].ResetAfter)
		assert.Equal(t, noon.Add(wait-µs).Local(), ds[1].At)

		assert.False(t, knows(d, sent+wait, c))
		assert.False(t, knows(d, sent+wait-1, c), "less than a microsecond is not known to be left")
		assert.False(t, knows(d, sent+time.Hour, c))
	}
}

// Whatever others do meanwhile is seen a second later.
func TestADenialIsRememberedForASecondAtMost(t *testing.T) {
	d, c := new(redisstore.Denials), quota.Charge{Key: "key", Limit: compile(t, quota.PerDay(1))}
	const sent = time.Hour
	denied(d, sent, 1, c)
	ds, known := d.Decide(nil, sent+time.Second-µs, c)
	require.True(t, known)
	assert.Equal(t, 24*time.Hour-time.Second+µs, ds[0].RetryAfter, "the exact wait")
	assert.False(t, knows(d, sent+time.Second, c))
}

// The state was Redis' at some moment after the question was sent.
func TestADenialIsNeverLongerThanRedisWouldMakeIt(t *testing.T) {
	d, c := new(redisstore.Denials), quota.Charge{Key: "key", Limit: compile(t, quota.PerSecond(10))}
	const sent, took = time.Hour, 30 * time.Millisecond
	denied(d, sent, 10, c)
	ds, known := d.Decide(nil, sent+took, c)
	require.True(t, known)
	assert.Equal(t, 100*time.Millisecond-took, ds[0].RetryAfter, "it may have answered at once")
}

func TestWhatCostsLessThanFitsIsNotDenied(t *testing.T) {
	d, c := new(redisstore.Denials), quota.Charge{Key: "key", N: 5, Limit: compile(t, quota.PerSecond(10))}
	denied(d, 0, 7, c)
	for n := int64(1); n <= 12; n++ {
		c.N = n
		ds, known := d.Decide(nil, 0, c)
		assert.Equal(t, n > 3, known, n)
		if known {
			assert.Equal(t, n > 10, ds[0].Never, n)
			assert.EqualValues(t, 3, ds[0].Remaining, n)
		}
	}
	c.N = 4
	assert.True(t, knows(d, 100*time.Millisecond-µs, c))
	assert.False(t, knows(d, 100*time.Millisecond, c))
	c.N = 10
	assert.True(t, knows(d, 200*time.Millisecond-µs, c), "for as long as what was denied is")
	assert.False(t, knows(d, 200*time.Millisecond, c))
}

func TestALimitOfOtherNumbersIsSeenAtOnce(t *testing.T) {
	d, p := new(redisstore.Denials), quota.Policy{Name: "api", Quota: 10, Window: time.Minute}
	denied(d, 0, 10, quota.Charge{Key: "key", Limit: compile(t, p)})
	for _, quota60 := range []int64{11, 1000} {
		raised := p
		raised.Quota = quota60
		assert.False(t, knows(d, 0, quota.Charge{Key: "key", Limit: compile(t, raised)}), "%d", quota60)
	}
	lowered := p
	lowered.Quota = 3
	ds, known := d.Decide(nil, 0, quota.Charge{Key: "key", Limit: compile(t, lowered)})
	require.True(t, known)
	assert.EqualValues(t, 3, ds[0].Limit)
	assert.Equal(t, 160*time.Second, ds[0].RetryAfter)
}

func TestADenialIsOfOneBucket(t *testing.T) {
	d := new(redisstore.Denials)
	minute, day := compile(t, quota.PerMinute(10)), compile(t, quota.PerDay(10))
	denied(d, 0, 10, quota.Charge{Key: "key", Limit: minute})
	assert.True(t, knows(d, 0, quota.Charge{Key: "key", Limit: minute}))
	assert.False(t, knows(d, 0, quota.Charge{Key: "other", Limit: minute}))
	assert.False(t, knows(d, 0, quota.Charge{Key: "key", Limit: day}))
	assert.False(t, knows(d, 0, quota.Charge{Key: "key", Limit: minute, DryRun: true}))
	assert.False(t, knows(d, 0, quota.Charge{Key: "key", Limit: minute, ID: "request 1"}), "it may have been made before")
	assert.False(t, knows(d, 0))
}

func TestACallIsDeniedOnlyIfAllItsStatesAreKnown(t *testing.T) {
	d := new(redisstore.Denials)
	minute := quota.Charge{Key: "key", Limit: compile(t, quota.PerMinute(10))}
	day := quota.Charge{Key: "key", Limit: compile(t, quota.PerDay(1000))}
	dry := quota.Charge{Key: "key", Limit: compile(t, quota.PerHour(5)), DryRun: true}
	denied(d, 0, 10, minute)
	assert.False(t, knows(d, 0, minute, day))
	denied(d, 0, 10, minute, day)
	ds, known := d.Decide(nil, 0, minute, day)
	require.True(t, known)
	assert.False(t, ds[0].Allowed)
	assert.True(t, ds[1].Allowed)
	assert.EqualValues(t, 990, ds[1].Remaining)
	assert.True(t, knows(d, 0, day, minute), "in any order")
	assert.False(t, knows(d, 0, day), "what fits is for Redis to take")

	denied(d, 0, 10, minute, dry)
	assert.True(t, knows(d, 0, minute))
	assert.False(t, knows(d, 0, minute, dry), "dry runs are for Redis to count")
}

// What a call asks of one bucket in several charges it asks in all.
func TestChargesOfOneBucketAddUp(t *testing.T) {
	d, c := new(redisstore.Denials), quota.Charge{Key: "key", N: 5, Limit: compile(t, quota.PerSecond(10))}
	denied(d, 0, 7, c)
	c.N = 2
	assert.False(t, knows(d, 0, c))
	ds, known := d.Decide(nil, 0, c, c)
	require.True(t, known)
	assert.True(t, ds[0].Allowed)
	assert.Equal(t, 100*time.Millisecond, ds[1].RetryAfter)
	c.N = 6
	ds, known = d.Decide(nil, 0, c, c)
	require.True(t, known)
	assert.True(t, ds[1].Never)
}

func TestARefundIsSeenAtOnce(t *testing.T) {
	d, c := new(redisstore.Denials), quota.Charge{Key: "key", Limit: compile(t, quota.PerMinute(10))}
	denied(d, 0, 10, c)
	require.True(t, knows(d, 0, c))
	d.Forget("key")
	assert.False(t, knows(d, 0, c))

	// Even if the state, from before the refund, comes later.
	d.Ask(0, func() (now, over time.Time, buckets []quota.Bucket) {
		d.Forget("key")
		return noon, noon.Add(time.Minute), []quota.Bucket{full(c.Limit, 10)}
	}, c)
	assert.False(t, knows(d, 0, c))
	denied(d, 0, 10, c)
	assert.True(t, knows(d, 0, c))
}

func TestDenialsTakeBoundedMemory(t *testing.T) {
	d, l := new(redisstore.Denials), compile(t, quota.PerMinute(600))
	long := quota.Charge{Key: "long", N: 60, Limit: l}
	denied(d, 0, 600, long)
	key := func(i int) quota.Charge { return quota.Charge{Key: fmt.Sprint(i), Limit: l} }
	spent := []quota.Bucket{full(l, 600)}
	free := noon.Add(l.Wait(spent[0], 1, noon.UnixMicro()))
	for i := range stated(10, 5) * redisstore.MostDenials {
		d.Ask(0, func() (now, over time.Time, buckets []quota.Bucket) { return noon, free, spent }, key(i))
	}
	known := 0
	for i := range stated(10, 5) * redisstore.MostDenials {
		if knows(d, 0, key(i)) {
			known++
		}
	}
	assert.Equal(t, redisstore.MostDenials-1, known)
	assert.True(t, knows(d, 0, long), "which ends last")

	late := quota.Charge{Key: "late", Limit: l}
	for i := range 10 { // the same takes one place
		denied(d, time.Duration(i), 600, late)
	}
	assert.True(t, knows(d, 0, late))

	large := quota.Charge{Key: strings.Repeat("x", 2000), Limit: l}
	denied(d, 0, 600, large)
	assert.False(t, knows(d, 0, large))
	log := quota.Charge{Key: "log", Limit: compile(t, quota.Policy{Quota: 500, Window: time.Minute, Algorithm: quota.SlidingLog})}
	d.Ask(0, func() (now, over time.Time, buckets []quota.Bucket) {
		var b quota.Bucket
		for i := range int64(500) {
			b, _ = log.Limit.Try(log.Limit.Drain(b, noon.UnixMicro()+i), 1, noon.UnixMicro()+i)
		}
		return noon, noon.Add(time.Minute), []quota.Bucket{b}
	}, log)
	assert.False(t, knows(d, 0, log))
}

// Whatever others charge in the meantime, what is denied here Redis would deny.
func TestWhatIsDeniedIsDeniedByTheStateItself(t *testing.T) {
	random := rand.New(rand.NewPCG(5, 6))
	var both, told int
	for range stated(3000, 1000) {
		p := quota.Policy{Name: "api", Quota: 1 + random.Int64N(50), Window: time.Duration(1+random.Int64N(5000)) * time.Millisecond}
		p.Algorithm = quota.Algorithm(random.IntN(5))
		l := compile(t, p)
		d, now := new(redisstore.Denials), noon.UnixMicro()
		sent := time.Duration(random.Int64N(1e9)) * µs
		var state quota.Bucket
		pass := func(by int64) { now += by; state = l.Drain(state, now) }
		for range random.IntN(60) {
			pass(random.Int64N(50_000))
			state, _ = l.Try(state, 1+random.Int64N(3), now)
		}
		c := quota.Charge{Key: "key", N: 1 + random.Int64N(3), Limit: l}
		asked, lag := now, random.Int64N(3000) // Redis answered so much later
		pass(lag)
		wait := l.Wait(state, c.N, now)
		if wait == 0 || wait == quota.Forever {
			continue
		}
		d.Ask(sent, func() (at, over time.Time, buckets []quota.Bucket) {
			return time.UnixMicro(now), time.UnixMicro(now).Add(wait), []quota.Bucket{state}
		}, c)
		for range 20 {
			pass(random.Int64N(1 + wait.Microseconds()/5))
			state, _ = l.Try(state, 1, now) // somebody else's
			c.N = 1 + random.Int64N(5)
			ds, known := d.Decide(nil, sent+time.Duration(now-asked)*µs, c)
			_, fits := l.Try(state, c.N, now)
			if known {
				told++
				require.False(t, fits, "%v: %d", p, c.N)
				if !ds[0].Never {
					require.LessOrEqual(t, ds[0].RetryAfter, l.Wait(state, c.N, now), "%v", p)
				}
			}
			if !fits {
				both++
			}
		}
	}
	assert.Greater(t, told, both/3)
}

func TestDenialsMayBeUsedByManyAtOnce(t *testing.T) {
	d, l := new(redisstore.Denials), compile(t, quota.PerMinute(10))
	var all sync.WaitGroup
	for i := range 8 {
		all.Go(func() {
			var dst []quota.Decision
			for j := range 2000 {
				c := quota.Charge{Key: fmt.Sprint(j % 100), Limit: l}
				if j%10 == i {
					d.Forget(c.Key)
				}
				denied(d, 0, 10, c)
				ds, known := d.Decide(dst[:0], 0, c)
				if known {
					assert.False(t, ds[0].Allowed)
				}
			}
		})
	}
	all.Wait()
}

func TestADenialThatIsKnownAllocatesNothing(t *testing.T) {
	d, c := new(redisstore.Denials), quota.Charge{Key: "key", Limit: compile(t, quota.PerDay(10))}
	denied(d, 0, 10, c)
	dst := make([]quota.Decision, 0, 1)
	assert.Zero(t, testing.AllocsPerRun(100, func() {
		if _, known := d.Decide(dst, 0, c); !known {
			t.Error("unknown")
		}
	}))
}
