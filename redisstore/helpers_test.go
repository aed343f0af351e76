package redisstore_test

import (
	"flag"
	"sync"
	"testing"
	"time"

	"github.com/heedhttp/heed/internal/redistest"
	"github.com/heedhttp/heed/internal/testenv"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"
)

// Tests have their redis-server from redistest.Shared, and a cluster from SharedCluster,
// which keep for the tests that follow what they have started, unless a test has ended it,
// stopped it or configured it.
func TestMain(m *testing.M) {
	defer redistest.EndShared()
	flag.Set("test.parallel", "4") // unless the command line has another: they mostly wait
	m.Run()
}

// hang is for how long a test waits for what comes sooner or later. It is no more than a
// busy machine may need.
const hang = time.Minute

// mostlyWaits lets a test run beside others that do: most of its time it waits for what
// Redis does in its own. The long form measures, and has the machine for itself.
func mostlyWaits(t *testing.T) {
	if !testenv.Long() {
		t.Parallel()
	}
}

// atOnce has test test each of some at the same time, or in the long form one after the
// other.
func atOnce[T any](t *testing.T, each map[string]T, test func(t *testing.T, one T)) {
	var all sync.WaitGroup
	for name, one := range each {
		run := func() { t.Run(name, func(t *testing.T) { test(t, one) }) }
		if testenv.Long() {
			run()
		} else {
			all.Go(run)
		}
	}
	all.Wait()
}

// expiry is when a key expires by Redis' clock.
func expiry(t *testing.T, client redis.UniversalClient, key string) time.Time {
	t.Helper()
	var now *redis.TimeCmd
	var ttl *redis.DurationCmd
	_, err := client.TxPipelined(ctx, func(pipe redis.Pipeliner) error {
		now, ttl = pipe.Time(ctx), pipe.PTTL(ctx, key)
		return nil
	})
	require.NoError(t, err)
	require.Positive(t, ttl.Val())
	return now.Val().Add(ttl.Val())
}

// silentRedis is a Redis in memory that does not answer, and a client of it.
func silentRedis(t *testing.T, options redis.Options) (*redistest.Fake, *redis.Client) {
	return memoryRedis(t, options, redistest.Silence)
}

// memoryRedis is a Redis in memory that says what it is told to, and a client of it. It
// is for a bubble.
func memoryRedis(t *testing.T, options redis.Options, replies ...string) (*redistest.Fake, *redis.Client) {
	fake := redistest.NewMemoryFake(t, replies...)
	options.Addr, options.Dialer = "127.0.0.1:1", fake.Dial // an address that is not looked up
	client := redis.NewClient(&options)
	t.Cleanup(func() {
		time.Sleep(time.Minute) // for what the client does behind: it is not over when it is closed
		client.Close()
	})
	return fake, client
}
