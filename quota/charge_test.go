package quota_test

import (
	"math"
	"testing"

	"github.com/heedhttp/heed/quota"
	"github.com/stretchr/testify/assert"
)

func TestNeedsAddsUpForEachBucket(t *testing.T) {
	hour, day := compile(t, quota.PerHour(5)), compile(t, quota.PerDay(5))
	charges := []quota.Charge{
		{Key: "a", Limit: hour, N: 2},
		{Key: "a", Limit: day, N: 3},
		{Key: "a", Limit: hour},
		{Key: "b", Limit: hour, N: 4},
		{Key: "a", Limit: hour, N: 5, DryRun: true},
		{Key: "a", Limit: hour, N: 6, ID: "x"},
		{Key: "a", Limit: hour, N: 6, ID: "x"},
		{Key: "a", Limit: day, N: 6, ID: "x"},
		{Key: "a", Limit: hour, N: 7, ID: "y"},
		{Key: "a", Limit: hour, N: 8, DryRun: true, ID: "x"},
		{Key: "a", Limit: hour, N: math.MaxInt64},
		{Key: "a", Limit: hour, N: math.MaxInt64},
	}
	var needs []int64
	for i := range charges {
		needs = append(needs, quota.Needs(charges, i))
	}
	most := int64(1<<53 - 1)
	assert.Equal(t, []int64{2, 3, 3, 4, 5, 9, 9, 9, 16, 13}, needs[:10])
	assert.GreaterOrEqual(t, needs[10], most)
	assert.GreaterOrEqual(t, needs[11], most, "no overflow")
	charges = append(charges, charges[10], charges[10], quota.Charge{Key: "a", Limit: hour})
	assert.GreaterOrEqual(t, quota.Needs(charges, len(charges)-1), most)
}
