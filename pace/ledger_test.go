package pace

import (
	"math"
	"math/rand/v2"
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/heedhttp/heed/ratelimit"
)

// Whatever servers tell, in whatever order, a wait is a wait: neither negative
// nor longer than what was told, and a rate is a number.
func FuzzAnyAnswersLeaveALedgerInOrder(f *testing.F) {
	for seed := range uint64(50) {
		f.Add(seed, int64(seed), int64(60), int64(60))
	}
	f.Add(uint64(1), int64(math.MaxInt64), int64(math.MaxInt64), int64(math.MaxInt64))
	f.Add(uint64(2), int64(0), int64(0), int64(0))
	f.Add(uint64(3), int64(math.MaxInt64), int64(1), int64(0))
	f.Fuzz(func(t *testing.T, seed uint64, remaining, quota, seconds int64) {
		r := rand.New(rand.NewPCG(seed, 1))
		now := time.Unix(1e9, 0)
		told := func(n int64) int64 { return r.Int64N(max(1, n)) - int64(r.IntN(2)) }
		span := func() time.Duration { return time.Duration(max(-1, min(told(seconds), 1<<31))) * time.Second }
		var l ledger
		algorithm := []string{"", ratelimit.TokenBucket, ratelimit.LeakyBucket, ratelimit.FixedWindow, ratelimit.SlidingWindow, ratelimit.SlidingLog}[r.IntN(6)]
		for range 100 {
			now = now.Add(time.Duration(r.IntN(5000)) * time.Millisecond)
			c := costs{{"", int64(r.IntN(3))}, {"tokens", r.Int64N(1 << 40)}}
			l.spend(&http.Request{}, c, now)
			if r.IntN(3) == 0 {
				continue
			}
			answered, _ := l.land(l.flights[r.IntN(len(l.flights))].req)
			l.learn([]ratelimit.Limit{
				{Quota: told(quota), Window: max(0, span()), Remaining: told(remaining), Next: span(), Reset: span(), Algorithm: algorithm},
				{Unit: "tokens", Quota: told(quota), Remaining: told(remaining), Reset: span()},
			}, answered, r.IntN(2) == 0, now)
			later := now.Add(time.Duration(r.IntN(100)) * time.Second)
			for _, d := range []time.Duration{l.wait(c, later), l.ahead(3, c, later)} {
				require.GreaterOrEqual(t, d, time.Duration(0))
				require.LessOrEqual(t, d, (1<<31+24*60*60)*2*time.Second)
			}
			l.early(c, later)
			for i := range l.policies {
				require.False(t, math.IsNaN(l.policies[i].rate()))
			}
		}
	})
}

func TestALedgerForgetsWhatIsNotToldAgain(t *testing.T) {
	var l ledger
	now := time.Unix(1e9, 0)
	req := &http.Request{}
	hear := func(names ...string) {
		l.spend(req, nil, now)
		f, _ := l.land(req)
		var limits []ratelimit.Limit
		for _, name := range names {
			limits = append(limits, ratelimit.Limit{Name: name, Quota: 100, Remaining: 50, Next: -1, Reset: time.Minute})
		}
		l.learn(limits, f, true, now)
	}
	hear("a", "b")
	now = now.Add(time.Second)
	hear("b")
	assert.Len(t, l.policies, 2)
	now = now.Add(59 * time.Second)
	hear()
	require.Len(t, l.policies, 1, "also by an answer that tells nothing")
	hear("b")
	require.Len(t, l.policies, 1)
	assert.Equal(t, "b", l.policies[0].name)
	for i := range 100 {
		hear(string(rune('A' + i)))
	}
	assert.Len(t, l.policies, mostPolicies)
}

// A server's t of a bucket is always short, and that of a window only at its end.
func TestABucketIsKnownByThatUnitsAreAlwaysBackSoon(t *testing.T) {
	hear := func(l *ledger, at time.Duration, next time.Duration) *told {
		now := time.Unix(1e9, 0).Add(at)
		req := &http.Request{}
		l.spend(req, nil, now)
		f, _ := l.land(req)
		l.learn([]ratelimit.Limit{{Quota: 60, Window: time.Minute, Remaining: 20, Next: next, Reset: -1}}, f, true, now)
		return &l.policies[0]
	}
	var bucket, window ledger
	for at := range 60 * time.Second / time.Second {
		left := hear(&bucket, at*time.Second, time.Second)
		assert.Equal(t, at > 4, left.until.Sub(left.at) == 40*time.Second, "after %d s", at)
	}
	for at := range 200 * time.Second / time.Second {
		next := time.Minute - at%60*time.Second
		left := hear(&window, at*time.Second, next)
		assert.Equal(t, next, left.until.Sub(left.at), "after %d s", at)
	}
	var rare ledger // at the end of each window
	for at := range 10 * time.Minute / time.Minute {
		left := hear(&rare, at*time.Minute, time.Second)
		assert.Equal(t, time.Second, left.until.Sub(left.at), "after %d m", at)
	}
}

// Whoever has it all: no longer than until it is whole again.
func TestNobodyWaitsLongerForWhatSlidesThanItTakesToComeBack(t *testing.T) {
	var l ledger
	now := time.Unix(1e9, 0)
	req := &http.Request{}
	for range 2 {
		l.spend(req, nil, now)
		f, _ := l.land(req)
		l.learn([]ratelimit.Limit{{Quota: 60, Window: time.Minute, Reset: time.Minute, Algorithm: ratelimit.SlidingLog}}, f, false, now)
	}
	assert.Equal(t, time.Minute, l.wait(nil, now))
	assert.Zero(t, l.wait(nil, now.Add(time.Minute)), "then one looks")
}
