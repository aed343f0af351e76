package redisstore_test

import (
	"context"
	"flag"
	"sync"
	"testing"
	"time"

	"github.com/heedhttp/heed/internal/redistest"
	"github.com/heedhttp/heed/internal/testenv"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"
)

// Tests share a redis-server (redistest.Shared) and a cluster (redistest.SharedCluster), so that most need
// not start their own.
func TestMain(m *testing.M) {
	defer redistest.EndShared()
	flag.Set("test.parallel", "4") // unless the command line sets it: parallel tests mostly wait
	m.Run()
}

// hang is how long tests wait for something that must happen. A busy machine may need that long.
const hang = time.Minute

// mostlyWaits makes t a parallel test, because it mostly waits for Redis' clock. The long form measures
// times, so it runs alone.
func mostlyWaits(t *testing.T) {
	if !testenv.Long() {
		t.Parallel()
	}
}

// atOnce runs test for all of each in parallel, or in the long form one after the other.
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

// expiry returns when a key expires by Redis' clock.
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

// silentRedis returns a Redis in memory that does not answer, and a client for it.
func silentRedis(t *testing.T, options redis.Options) (*redistest.Fake, *redis.Client) {
	return memoryRedis(t, options, redistest.Silence)
}

// memoryRedis returns a Redis in memory with these replies, and a client for it, for synctest bubbles.
func memoryRedis(t *testing.T, options redis.Options, replies ...string) (*redistest.Fake, *redis.Client) {
	fake := redistest.NewMemoryFake(t, replies...)
	options.Addr, options.Dialer = "127.0.0.1:1", fake.Dial // an address without a DNS lookup
	client := redis.NewClient(&options)
	t.Cleanup(func() {
		time.Sleep(time.Minute) // for goroutines of the client that outlive Close
		client.Close()
	})
	return fake, client
}

// callers runs do in n goroutines, each calls times.
func callers(n, calls int, do func(caller, i int)) {
	var all sync.WaitGroup
	for caller := range n {
		all.Go(func() {
			for i := range calls {
				do(caller, i)
			}
		})
	}
	all.Wait()
}

// A hook sees the commands of a client, one by one or in pipelines. next sends them.
type hook func(cmds []redis.Cmder, next func() error) error

func (hook) DialHook(next redis.DialHook) redis.DialHook { return next }

func (h hook) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		return h([]redis.Cmder{cmd}, func() error { return next(ctx, cmd) })
	}
}

func (h hook) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		return h(cmds, func() error { return next(ctx, cmds) })
	}
}

// scriptsIn returns how many of cmds are scripts, without probes.
func scriptsIn(cmds []redis.Cmder) (n int64) {
	for _, cmd := range cmds {
		if cmd.Name() == "evalsha" && len(cmd.Args()) > len([]string{"evalsha", "digest", "1", "key"}) {
			n++
		}
	}
	return n
}
