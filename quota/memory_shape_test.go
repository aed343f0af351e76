package quota_test

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/heedhttp/heed/quota"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// A new plan for one Key keeps its count, however many plans other Keys have.
func TestAKeyKeepsItsCountUnderAnotherPlanOfMany(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := &quota.Memory{MaxKeys: 500} // one shard
		var plans []*quota.Limit
		for i := range int64(100) {
			plans = append(plans, compile(t, quota.Policy{Name: "api", Quota: 20 + i, Window: h}))
			take(t, m, fmt.Sprint(i), 20, plans[i])
		}
		assert.EqualValues(t, 119-1, take(t, m, "new", 1, plans[99]).Remaining)
		assert.EqualValues(t, 119-21, take(t, m, "0", 1, plans[99]).Remaining)
		assert.Zero(t, take(t, m, "0", 1, plans[0]).Remaining)
		assert.EqualValues(t, 102, quota.Kept(m))
	})
}

// 10 a day becomes 10 an hour. The counts of both are kept until neither owes anything:
// otherwise the one would begin with the other.
func TestCountsOfOneNameAreForgottenTogether(t *testing.T) {
	for _, by := range []quota.Algorithm{quota.TokenBucket, quota.SlidingLog} { // in the table, and in overflow
		day := compile(t, quota.Policy{Name: "api", Quota: 10, Window: 24 * h, Algorithm: by})
		hour := compile(t, quota.Policy{Name: "api", Quota: 10, Window: h})
		flood := func(t *testing.T, m *quota.Memory, l *quota.Limit) {
			for i := range 300 {
				take(t, m, fmt.Sprint("flood ", i), 2, l)
			}
		}
		for name, meanwhile := range map[string]func(t *testing.T, m *quota.Memory){
			"nothing":    func(*testing.T, *quota.Memory) {},
			"tidying":    func(t *testing.T, m *quota.Memory) { take(t, m, "another", 1, hour) },
			"rebuilding": func(t *testing.T, m *quota.Memory) { flood(t, m, hour) },
			"evicting":   func(t *testing.T, m *quota.Memory) { m.MaxKeys = 4; flood(t, m, compile(t, quota.PerMinute(2))) },
		} {
			synctest.Test(t, func(t *testing.T) {
				m := &quota.Memory{MaxKeys: 500}
				take(t, m, "key", 10, day)
				assert.False(t, take(t, m, "key", 1, hour).Allowed, "it begins with the other's")
				require.NoError(t, m.Settle(ctx, quota.Charge{Key: "key", N: 1, Limit: hour}))
				time.Sleep(2 * h)
				meanwhile(t, m)
				for range 10 {
					assert.True(t, take(t, m, "key", 1, hour).Allowed, "%v, %s", by, name)
				}
				assert.False(t, take(t, m, "key", 1, hour).Allowed, "%v, %s", by, name)
				states, err := m.Inspect(ctx, "key")
				require.NoError(t, err)
				require.Len(t, states, 2)
				assert.Equal(t, hour.Shape(), states[0].Shape)
				assert.Equal(t, day.Shape(), states[1].Shape)

				time.Sleep(49 * h)
				take(t, m, "another", 1, hour)
				assert.EqualValues(t, 1, quota.Kept(m), "%v, %s", by, name)
				take(t, m, "key", 9, day)
				assert.EqualValues(t, 0, take(t, m, "key", 1, hour).Remaining)
				require.NoError(t, m.Reset(ctx, "key"))
				assert.EqualValues(t, 1, quota.Kept(m), "%v, %s", by, name)
				assert.EqualValues(t, 9, take(t, m, "key", 1, hour).Remaining)
			})
		}
	}
}
