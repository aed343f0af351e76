package redisstore_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/heedhttp/heed/internal/redistest"
	"github.com/heedhttp/heed/quota"
	"github.com/heedhttp/heed/redisstore"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// Policies that nobody uses any more leave the value of a Key when their windows end. Of too many, those that end
// first are forgotten, and that is told.
func TestTheValueOfAKeyIsBoundedAndForgetsOldPolicies(t *testing.T) {
	client := newClient(t, redistest.Shared(t))
	now := time.Date(2026, 2, 3, 12, 0, 0, 0, time.UTC)
	client.AddHook(timekeeper{func() time.Time { return now }})
	s := &redisstore.Store{Client: client, Timeout: patient, AlwaysAsk: true}
	redisstore.SetClock(s)
	charge := func(n int, window time.Duration) {
		for i := 0; i < n; i += 100 {
			var charges []quota.Charge
			for j := range min(100, n) {
				limit := compile(t, quota.Policy{Name: fmt.Sprint(window, " ", i+j), Quota: 10, Window: window})
				charges = append(charges, quota.Charge{Key: "key", N: 10, Limit: limit})
			}
			require.True(t, take(t, s, charges...)[0].Allowed)
		}
	}
	lines := func(window time.Duration) int {
		value, err := client.Get(ctx, "heed:quota:2:key").Result()
		require.NoError(t, err)
		assert.LessOrEqual(t, len(value), 64<<10)
		return strings.Count(value, window.String()+" ")
	}
	const day, hour, minute = 24 * time.Hour, time.Hour, time.Minute
	charge(500, day)
	assert.Zero(t, s.Forgotten())
	charge(500, hour)
	kept := lines(hour)
	assert.Equal(t, 500, lines(day), "they end last")
	assert.Less(t, kept, 500)
	assert.EqualValues(t, 500-kept, s.Forgotten())

	now = now.Add(2 * hour)
	charge(1, minute)
	assert.Equal(t, []int{500, 0, 1}, []int{lines(day), lines(hour), lines(minute)})
	now = now.Add(2 * day)
	charge(1, minute)
	assert.Equal(t, []int{0, 0, 1}, []int{lines(day), lines(hour), lines(minute)})
	assert.EqualValues(t, 500-kept, s.Forgotten(), "what ended was not forgotten")
}
