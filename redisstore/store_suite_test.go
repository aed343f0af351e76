package redisstore_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/heedhttp/heed/internal/redistest"
	"github.com/heedhttp/heed/internal/testenv"
	"github.com/heedhttp/heed/quota"
	"github.com/heedhttp/heed/quota/quotatest"
	"github.com/heedhttp/heed/redisstore"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// A timekeeper is a hook that passes the test's time to each script of a Store.
type timekeeper struct{ now func() time.Time }

func (timekeeper) DialHook(next redis.DialHook) redis.DialHook { return next }

func (k timekeeper) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		timed := k.timed(ctx, cmd)
		err := next(ctx, timed)
		answer(cmd, timed, err)
		return err
	}
}

func (k timekeeper) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		timed := make([]redis.Cmder, len(cmds))
		for i, cmd := range cmds {
			timed[i] = k.timed(ctx, cmd)
		}
		err := next(ctx, timed)
		for i, cmd := range cmds {
			answer(cmd, timed[i], timed[i].Err())
		}
		return err
	}
}

// timed returns cmd with the time as additional arguments, if it is a script.
func (k timekeeper) timed(ctx context.Context, cmd redis.Cmder) redis.Cmder {
	if !strings.HasPrefix(cmd.Name(), "eval") {
		return cmd
	}
	µs := k.now().UnixMicro()
	return redis.NewCmd(ctx, append(slices.Clone(cmd.Args()), µs/1_000_000, µs%1_000_000)...)
}

// answer copies the reply of timed to cmd.
func answer(cmd, timed redis.Cmder, err error) {
	cmd.SetErr(err)
	if to, ok := cmd.(interface{ SetVal(any) }); ok && cmd != timed {
		to.SetVal(timed.(*redis.Cmd).Val())
	}
}

// slowTests are parts of the names of the tests in quotatest that take most of its time.
var slowTests = []string{"random calls", "remembers a thousand"}

// isFast reports whether the test runs outside of the long form too.
func isFast(name string) bool {
	name = strings.ReplaceAll(name, "_", " ")
	return !slices.ContainsFunc(slowTests, func(part string) bool { return strings.Contains(name, part) })
}

// suite runs quotatest with Stores on client. Tests that chosen does not select run in the long form only.
func suite(t *testing.T, client redis.UniversalClient, chosen func(t *testing.T) bool) {
	require.Equal(t, 1, strings.Count(redisstore.ScriptSource, redisstore.ClockLine))
	require.Equal(t, 1, strings.Count(redisstore.ScriptSource, redisstore.GraceLine))
	var now func() time.Time // the tests come one after the other
	client.AddHook(timekeeper{func() time.Time { return now() }})
	stores := 0
	for name, always := range map[string]bool{"remembering what was denied": false, "always asking": true} {
		t.Run(name, func(t *testing.T) {
			if !chosen(t) {
				testenv.NeedLong(t)
			}
			quotatest.Run(t, func(t *testing.T, clock func() time.Time) quota.Store {
				if !chosen(t) {
					testenv.NeedLong(t)
				}
				now = clock
				stores++
				s := &redisstore.Store{
					Client: client, Prefix: fmt.Sprintf("store %d:", stores), Timeout: time.Minute, AlwaysAsk: always,
				}
				redisstore.SetClock(s)
				redisstore.RememberBy(s, clock)
				return s
			})
		})
	}
}

func TestStoreImplementsQuotaStore(t *testing.T) { isAStore(t, redistest.Shared) }

func TestStoreImplementsQuotaStoreOnValkey(t *testing.T) { isAStore(t, redistest.StartValkey) }

// isAStore runs the whole suite. The long random timelines are the same with AlwaysAsk, and run once.
func isAStore(t *testing.T, start func(testing.TB) *redistest.Server) {
	mostlyWaits(t)
	client := newClient(t, start(t))
	suite(t, client, func(t *testing.T) bool { return isFast(t.Name()) || strings.Contains(t.Name(), "remembering") })
	everyKeyExpires(t, client)
}

// On a cluster, charges of one call may be on several masters, and what was taken is given back if another master
// refuses. That is not exact as policies change: the count of another version may be charged less than is given
// back to it.
func TestStoreImplementsQuotaStoreOnACluster(t *testing.T) {
	mostlyWaits(t)
	nodes := redistest.SharedCluster(t)
	suite(t, newClusterClient(t, nodes), func(t *testing.T) bool {
		if strings.Contains(t.Name(), "policies_change") {
			t.Skip("not on several masters")
		}
		return strings.Contains(t.Name(), "remembering") && (isFast(t.Name()) || strings.HasSuffix(t.Name(), "seed_0"))
	})
	for _, node := range nodes {
		everyKeyExpires(t, newClient(t, node))
	}
}

// A script that runs on miniredis, which has another Lua, needs no features of Redis' own. That Lua is slow
// under the race detector.
func TestStoreImplementsQuotaStoreOnMiniredis(t *testing.T) {
	server := miniredis.RunT(t)
	client := redis.NewClient(&redis.Options{Addr: server.Addr()})
	t.Cleanup(func() { client.Close() })
	suite(t, client, func(t *testing.T) bool { return isFast(t.Name()) && strings.Contains(t.Name(), "remembering") })
	everyKeyExpires(t, client)
}

// everyKeyExpires asserts that every key has a TTL.
func everyKeyExpires(t *testing.T, client *redis.Client) {
	t.Helper()
	keys, err := client.Keys(ctx, "*").Result()
	require.NoError(t, err)
	assert.NotEmpty(t, keys)
	for _, key := range keys {
		ttl, err := client.Do(ctx, "PTTL", key).Int64()
		require.NoError(t, err)
		assert.Positive(t, ttl, "key %q", key)
	}
}
