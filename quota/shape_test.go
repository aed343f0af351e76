package quota_test

import (
	"math"
	"testing"
	"testing/synctest"
	"time"

	"github.com/heedhttp/heed/quota"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// Other processes and other versions of this package depend on Shape, and on Most, which they
// compute from it.
func TestShapeSaysHowAStateReads(t *testing.T) {
	for _, test := range []struct {
		policy quota.Policy
		shape  string
		most   int64
	}{
		{quota.Policy{Quota: 10, Window: h}, "b1,1,360000000", 1 << 52},
		{quota.Policy{Quota: 10, Window: h, Burst: 3, Algorithm: quota.LeakyBucket}, "b1,1,360000000", 1 << 52},
		{quota.PerDay(1_000_003), "b10,1000003,8640000000", 1<<53 - 1},
		{quota.Policy{Quota: 7, Window: m, Algorithm: quota.FixedWindow}, "f60000000", 1<<53 - 1},
		{calendar(7, quota.Day, nil), "cday", 1<<53 - 1},
		{calendar(7, quota.Week, nil), "cweek", 1<<53 - 1},
		{calendar(7, quota.Month, time.FixedZone("", 3600)), "cmonth", 1<<53 - 1},
		{quota.Policy{Quota: 7, Window: m, Algorithm: quota.SlidingWindow}, "s1,60000000", (1<<53 - 1) / 60_000_000},
		{
			quota.Policy{Quota: 1_000_003, Window: 24 * h, Algorithm: quota.SlidingWindow}, "s10,86400000000",
			(1<<53 - 1) / 8_640_000_000,
		},
		{quota.Policy{Quota: 7, Window: m, Algorithm: quota.SlidingLog}, "l60000000", math.MaxUint16},
	} {
		l := compile(t, test.policy)
		assert.Equal(t, test.shape, l.Shape())
		assert.Equal(t, test.most, l.Most(), test.shape)
	}
}

func TestSettleLeavesABoundedDebt(t *testing.T) {
	for _, test := range []struct {
		policy quota.Policy
		units  float64 // of MaxDebt
	}{
		{quota.Policy{Quota: 6, Window: m, Burst: 2}, 2 + 60},
		{quota.Policy{Quota: 6, Window: m, Burst: 2, Algorithm: quota.LeakyBucket}, 3 + 60},
		{quota.Policy{Quota: 24, Window: 4 * h}, 24 + 24*6},                        // in a day
		{quota.Policy{Quota: 24, Window: 100 * 365 * 24 * h}, 24 + 24.0/(100*365)}, // and of the longest Windows
		{quota.PerDay(1_000_003), float64(1<<53-1) / 8_640_000_000},                // Most
		{quota.Policy{Quota: 1, Window: 150}, 1 + 1000.0/150},                      // in whole ticks
	} {
		l, now := compile(t, test.policy), noon.UnixMicro()
		unit := l.Unit()
		require.InDelta(t, test.units, float64(l.MaxDebt())/float64(unit), 1e-9, l.Name())
		settled := func(level, n int64) int64 {
			return l.Settle(quota.Bucket{Time: now, Level: level, Unit: unit}, n, 0, now).Level
		}
		assert.Equal(t, l.MaxDebt(), settled(0, math.MaxInt64), l.Name())
		assert.Equal(t, l.MaxDebt()-1, settled(l.MaxDebt()-1-unit, 1), l.Name())
		if l.MaxDebt() < l.Most() { // more may be reserved
			assert.Equal(t, l.MaxDebt()+1, settled(l.MaxDebt()+1, 5), l.Name())
		}
	}
	for _, p := range ways(20, m)[2:] {
		l := compile(t, p)
		assert.Equal(t, l.Most(), l.MaxDebt(), p.Algorithm)
		assert.Zero(t, l.Cut(l.Drain(quota.Bucket{}, 0), math.MaxInt64), p.Algorithm)
	}
	l := compile(t, quota.Policy{Quota: 3, Window: 7 * m, Burst: 5})
	for _, test := range []struct{ below, n, cut int64 }{
		{2 * l.Unit(), 2, 0}, {2 * l.Unit(), 3, 1}, {2*l.Unit() - 1, 2, 0}, {2*l.Unit() - 1, 3, 1}, {1, 1, 0}, {1, 2, 1},
		{0, 1, 1}, {-1, 1, 1}, {0, 0, 0}, {0, -1, 0}, {l.Unit(), math.MaxInt64, math.MaxInt64 - 1},
	} {
		b := quota.Bucket{Level: l.MaxDebt() - test.below, Unit: l.Unit()}
		assert.Equal(t, test.cut, l.Cut(b, test.n), "%+v", test)
	}
}

func TestSettleSaysWhatItDidNotCharge(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := new(quota.Memory)
		a, b := compile(t, quota.PerMinute(6)), compile(t, quota.PerHour(9))
		err := m.Settle(ctx, quota.Charge{Key: "key", Limit: b, N: 9}, quota.Charge{Key: "key", Limit: a, N: 70},
			quota.Charge{Key: "key", Limit: b, N: 999}, quota.Charge{Key: "other", Limit: b, N: 2})
		debt, ok := err.(*quota.DebtError)
		require.True(t, ok, "%v", err)
		assert.Equal(t, quota.DebtError{Index: 1, Limit: "6/1m", Units: 70, Cut: 4}, *debt, "the first")
		assert.EqualError(t, debt, `quota: charge 1: 4 of 70 units were not charged to "6/1m": the debt would be too large`)
		assert.EqualValues(t, 7, peek(t, m, "other", b).Remaining, "the rest was made")
	})
}

func TestOneCallHasOneShapeOfAName(t *testing.T) {
	charges := make([]quota.Charge, 2)
	for i, l := range []*quota.Limit{compile(t, ways(20, m)[0]), compile(t, ways(20, h)[0])} {
		charges[i] = quota.Charge{Key: "key", Limit: l}
	}
	for _, check := range []func([]quota.Charge) error{quota.CheckTake, quota.CheckSettle} {
		var fault *quota.ChargeError
		require.ErrorAs(t, check(charges), &fault)
		assert.Equal(t, 1, fault.Index)
		assert.Equal(t, "Limit", fault.Field)
	}
	charges[1].DryRun = true
	assert.NoError(t, quota.CheckTake(charges))
	charges[1] = quota.Charge{Key: "other", Limit: charges[1].Limit}
	assert.NoError(t, quota.CheckTake(charges))
	charges[1] = quota.Charge{Key: "key", Limit: compile(t, quota.PerMinute(3))}
	assert.NoError(t, quota.CheckTake(charges))
}
