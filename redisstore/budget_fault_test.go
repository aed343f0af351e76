package redisstore_test

import (
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/heedhttp/heed/internal/redistest"
	"github.com/heedhttp/heed/redisstore"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// All that a process is granted while Redis is lost is charged later, at most once.
func TestABudgetOwesWhatItSpendsWithoutRedis(t *testing.T) {
	for name, start := range stands {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := start(t)
			var granted, failed atomic.Int64
			// A floor of a thousand retries, which does not refill during the test.
			b := &redisstore.Budget{Client: s.connect(), Key: "k", MinPerSecond: 0.1, TTL: 10_000 * time.Second,
				Timeout: 3 * time.Second, Degraded: func(error) { failed.Add(1) }}
			answered := func() bool {
				before := failed.Load()
				if b.Withdraw(t.Context(), host) {
					granted.Add(1)
				}
				return failed.Load() == before
			}
			require.Eventually(t, answered, hang, ms)
			s.lose()
			var all sync.WaitGroup
			for range 100 {
				all.Go(func() {
					assert.True(t, b.Withdraw(t.Context(), host), "its share")
					granted.Add(1)
				})
			}
			all.Wait()
			s.back()
			require.Eventually(t, answered, hang, 100*ms)
			observer := s.connect()
			charged := func() int64 {
				floor, err := observer.HGet(t.Context(), "heed:budget:k", "floor").Int64()
				if err != nil {
					return 0
				}
				return 1000*unit - floor
			}
			require.Eventually(t, func() bool { return charged() >= (100-failed.Load()-5)*unit }, hang, 50*ms)
			time.Sleep(1500 * ms)
			assert.LessOrEqual(t, charged(), granted.Load()*unit)
		})
	}
}

func TestAServerThatMisbehavesCountsAsDown(t *testing.T) {
	for name, test := range map[string]struct {
		replies []string
		kept    int // of the retries of 20 deposits that were sent
		sent    int // commands
	}{
		"WRONGTYPE":          {[]string{redistest.WrongType}, 2, 1},
		"NOSCRIPT, twice":    {[]string{redistest.NoScript}, 2, 2},
		"garbage":            {[]string{redistest.Garbage}, 0, 1},
		"silence":            {[]string{redistest.Silence}, 0, 1},
		"NOSCRIPT, silence":  {[]string{redistest.NoScript, redistest.Silence}, 0, 2},
		"hang up":            {[]string{redistest.HangUp}, 0, 1},
		"too few":            {[]string{"*1\r\n:1\r\n"}, 0, 1},
		"too many":           {[]string{"*5\r\n:1\r\n:1\r\n:1\r\n:1\r\n:1\r\n"}, 0, 1},
		"a promise":          {[]string{"*4\r\n:1\r\n"}, 0, 1},
		"huge numbers":       {[]string{"*4\r\n:1\r\n:99999999999999999999\r\n:0\r\n:1\r\n"}, 0, 1},
		"a negative balance": {[]string{"*4\r\n:1\r\n:-1\r\n:0\r\n:1\r\n"}, 0, 1},
		"no process":         {[]string{"*4\r\n:1\r\n:1\r\n:0\r\n:0\r\n"}, 0, 1},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				fake, client := memoryRedis(t, redis.Options{}, "*4\r\n:1\r\n:0\r\n:1\r\n:1\r\n") // granted; also answers probes
				b, lost := slowly(client), error(nil)
				b.MinPerSecond = -1
				b.Degraded = func(err error) { lost = err }
				require.True(t, b.Withdraw(t.Context(), host))
				before := len(fake.Commands())
				fake.Say(test.replies...)
				deposit(b, 20)
				assert.Equal(t, test.kept, withdrawn(b))
				assert.ErrorContains(t, lost, "redisstore: ")
				assert.Len(t, fake.Commands()[before:], test.sent, "sent once")
			})
		})
	}
}
