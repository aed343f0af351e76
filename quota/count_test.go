package quota_test

import (
	"math/rand/v2"
	"testing"
	"time"

	"github.com/heedhttp/heed/quota"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

const (
	µs = time.Microsecond
	ms = time.Millisecond
	s  = time.Second
	m  = time.Minute
	h  = time.Hour
)

// noon is the start of an hour and of a minute since the Unix epoch.
var noon = time.Date(2026, 2, 3, 12, 0, 0, 0, time.UTC)

// A count is the state that a Store keeps for one key, without the Store.
type count struct {
	t      testing.TB
	limit  *quota.Limit
	bucket quota.Bucket
	now    int64
}

func newCount(t testing.TB, p quota.Policy) *count {
	return &count{t: t, limit: compile(t, p), now: noon.UnixMicro()}
}

func (c *count) wait(d time.Duration) { c.now += d.Microseconds() }

// take is Take with one charge.
func (c *count) take(n int64) quota.Decision {
	met := c.limit.Drain(c.bucket, c.now)
	after, fits := c.limit.Try(met, n, c.now)
	if fits {
		c.bucket = after
	}
	charge := quota.Charge{Limit: c.limit, N: n}
	d := quota.Judge([]quota.Charge{charge}, 0, met, after, c.now)
	require.Equal(c.t, fits, d.Allowed)
	return d
}

// all takes everything that is left, unit by unit, and returns the number of units.
func (c *count) all() (n int64) {
	for c.take(1).Allowed {
		n++
	}
	return n
}

func (c *count) reserve(n int64, max time.Duration) (wait time.Duration, ok bool) {
	after, wait, ok := c.limit.TryWithin(c.limit.Drain(c.bucket, c.now), n, c.now, max)
	if ok {
		c.bucket = after
	}
	return wait, ok
}

// settle settles n units of a charge made ago.
func (c *count) settle(n int64, ago time.Duration) {
	c.bucket = c.limit.Settle(c.limit.Drain(c.bucket, c.now), n, c.now-ago.Microseconds(), c.now)
}

func (c *count) describe() quota.Decision {
	return c.limit.Describe(c.limit.Drain(c.bucket, c.now), c.now)
}

// under continues the count with another policy.
func (c *count) under(p quota.Policy) *count {
	c.limit = compile(c.t, p)
	return c
}

// A moment is one Take of n units, some time after the previous moment, and its Decision.
type moment struct {
	after     time.Duration
	n         int64
	allowed   bool
	remaining int64
	retry     time.Duration
	next      time.Duration
	reset     time.Duration
	delay     time.Duration
}

// follow takes from c.
func (c *count) follow(moments []moment) {
	c.t.Helper()
	for i, want := range moments {
		c.wait(want.after)
		d := c.take(want.n)
		got := moment{want.after, want.n, d.Allowed, d.Remaining, d.RetryAfter, d.NextAfter, d.ResetAfter, d.Delay}
		require.Equal(c.t, want, got, "moment %d", i)
		require.Equal(c.t, c.limit.Policy().Quota, d.Limit)
	}
}

// A trail is what was taken, and when.
type trail []struct{ at, n int64 }

// most returns the highest number of units in any half-open time as long as window. It
// starts or ends with a charge.
func (tr trail) most(window time.Duration) (most int64) {
	for _, first := range tr {
		var sum int64
		for _, e := range tr {
			if e.at >= first.at && e.at < first.at+window.Microseconds() {
				sum += e.n
			}
		}
		most = max(most, sum)
	}
	return most
}

// greedy takes everything that is left at each of the moments.
func (c *count) greedy(moments ...time.Duration) (got trail) {
	start := c.now
	for _, at := range moments {
		c.now = start + at.Microseconds()
		if n := c.all(); n > 0 {
			got = append(got, struct{ at, n int64 }{c.now, n})
		}
	}
	return got
}

// every returns the moments from 0 to end.
func every(step, end time.Duration) (moments []time.Duration) {
	for at := time.Duration(0); at <= end; at += step {
		moments = append(moments, at)
	}
	return moments
}

func TestTrailMost(t *testing.T) {
	tr := trail{{0, 1}, {10, 2}, {20, 4}, {30, 8}}
	assert.EqualValues(t, 12, tr.most(11*µs))
	assert.EqualValues(t, 8, tr.most(10*µs))
	assert.EqualValues(t, 14, tr.most(30*µs))
	assert.EqualValues(t, 15, tr.most(31*µs))
}

// The promised waits are right to the microsecond, from ten thousand random states, by
// random policies of every Algorithm.
func TestWaitingExactlyAdmitsFromAnyState(t *testing.T) {
	random := rand.New(rand.NewPCG(5, 6))
	for denied := 0; denied < 10_000; {
		p := quota.Policy{
			Quota:     1 + random.Int64N(1<<random.IntN(10)),
			Window:    time.Duration(1+random.Int64N(1<<random.IntN(40))) * µs,
			Algorithm: quota.Algorithm(random.IntN(5))}
		if p.Algorithm <= quota.LeakyBucket {
			p.Burst = random.Int64N(p.Quota + 1)
		}
		if _, err := p.Compile(); err != nil {
			continue
		}
		c := newCount(t, p)
		for range 20 {
			c.wait(time.Duration(random.Int64N(int64(p.Window))))
			n := 1 + random.Int64N(c.limit.AtOnce())
			d := c.take(n)
			if d.Allowed {
				continue
			}
			denied++
			c.wait(d.RetryAfter - µs)
			early := c.take(n)
			require.False(t, early.Allowed, "%s: %d, a microsecond before %v", c.limit.Name(), n, d.RetryAfter)
			require.Equal(t, µs, early.RetryAfter, c.limit.Name())
			c.wait(µs)
			require.True(t, c.take(n).Allowed, "%s: %d after %v", c.limit.Name(), n, d.RetryAfter)
		}
	}
}
