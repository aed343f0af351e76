package redisstore_test

import (
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/heedhttp/heed/internal/redistest"
	"github.com/heedhttp/heed/quota"
	"github.com/heedhttp/heed/redisstore"
)

// Names of limits and Keys are the program's, or its clients'.
func TestAnyNameCounts(t *testing.T) {
	client := newClient(t, redistest.Shared(t))
	s := &redisstore.Store{Client: client, Timeout: patient}
	for _, name := range []string{"key", "text", "changed", "lasts", "first", "1", "while"} { // also in the script
		limit := compile(t, quota.Policy{Name: name, Quota: 2, Window: time.Hour})
		for i := range 3 {
			assert.Equal(t, i < 2, take(t, s, quota.Charge{Key: "k", Limit: limit})[0].Allowed, name)
		}
	}
	n, m := compile(t, quota.Policy{Name: "n", Quota: 10, Window: time.Hour}), compile(t, quota.Policy{Name: "m", Quota: 10, Window: time.Hour})
	for _, d := range take(t, s, quota.Charge{Key: "{t}a", Limit: n, ID: "m\nx", N: 4}, quota.Charge{Key: "{t}a\nn", Limit: m, ID: "x", N: 4}) {
		assert.EqualValues(t, 6, d.Remaining, "two IDs")
	}
	var failed atomic.Int64
	var all sync.WaitGroup
	for i := range 256 { // each of these Keys needs a tag of its own for its IDs
		all.Go(func() {
			if _, err := s.Take(ctx, nil, quota.Charge{Key: fmt.Sprint("user}", i), Limit: n, ID: "1"}); err != nil {
				failed.Add(1)
			}
		})
	}
	all.Wait()
	assert.Zero(t, failed.Load())
}

// A line that no Store has written harms nobody but its own Key.
func TestATamperedLineHarmsNoOtherCall(t *testing.T) {
	client := newClient(t, redistest.Shared(t))
	s := &redisstore.Store{Client: client, Timeout: patient}
	good := compile(t, quota.Policy{Name: "good", Quota: 1000, Window: time.Hour, Algorithm: quota.FixedWindow})
	of := func(p quota.Policy) *quota.Limit {
		p.Name, p.Quota = "a", 10
		return compile(t, p)
	}
	log, bucket := of(quota.Policy{Window: time.Hour, Algorithm: quota.SlidingLog}), of(quota.Policy{Window: time.Hour})
	day := of(quota.Policy{Calendar: quota.Day, Algorithm: quota.FixedWindow})
	now := time.Now().UnixMicro()
	entry := func(at, n int64) string { return fmt.Sprintf("%016d%05d", at, n) }
	huge := strings.Repeat("9", 400)
	used := int64(0)
	for _, c := range []struct {
		limit *quota.Limit
		line  string // with the time when it ends
	}{
		{log, fmt.Sprintf("a\tl3600000000 %%d %d 1 0 0 %s\n", now, entry(now-3_700_000_000, 5)+entry(now, 1))},
		{log, fmt.Sprintf("a\tl3600000000 %%d %d 1 0 0 %s\n", now, entry(now-100, 500)+entry(now, 99_999))},
		{bucket, fmt.Sprintf("a\tcday %%d %d 5\n", now)},
		{bucket, fmt.Sprintf("a\tl%s %%d %d 5\n", huge, now)},
		{bucket, fmt.Sprintf("a\tb1,%s,1 %%d %d 5\n", huge, now)},
		{day, fmt.Sprintf("a\tcday %%d %d 9 %d 0 \n", now, now-1)},
		{bucket, "a\tf9007199254740991 %d 9007199254740991 9 0 86400000000 \n"},
	} {
		require.NoError(t, client.Set(ctx, "heed:quota:2:bad", fmt.Sprintf(c.line, now+7_200_000_000), time.Hour).Err())
		var all sync.WaitGroup
		for i := range 40 {
			all.Go(func() {
				if i%4 == 0 {
					_, err := s.Take(ctx, nil, quota.Charge{Key: "bad", Limit: c.limit})
					assert.NoError(t, err, "%.60q", c.line)
					assert.NoError(t, s.Settle(ctx, quota.Charge{Key: "bad", Limit: c.limit, N: -700}), "%.60q", c.line)
					return
				}
				_, err := s.Take(ctx, nil, quota.Charge{Key: "fine", Limit: good})
				assert.NoError(t, err, "%.60q", c.line)
			})
		}
		all.Wait()
		used += 30
		decisions, err := s.Peek(ctx, nil, quota.Charge{Key: "fine", Limit: good})
		require.NoError(t, err)
		assert.Equal(t, 1000-used, decisions[0].Remaining, "%.60q", c.line)
	}
}
