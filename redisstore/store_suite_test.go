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

// A timekeeper is a hook that tells each script of a Store the time.
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

// timed is cmd with the time, if it is a script.
func (k timekeeper) timed(ctx context.Context, cmd redis.Cmder) redis.Cmder {
	if !strings.HasPrefix(cmd.Name(), "eval") {
		return cmd
	}
	µs := k.now().UnixMicro()
	return redis.NewCmd(ctx, append(slices.Clone(cmd.Args()), µs/1_000_000, µs%1_000_000)...)
}

// answer has cmd say what timed was answered.
func answer(cmd, timed redis.Cmder, err error) {
	cmd.SetErr(err)
	if to, ok := cmd.(interface{ SetVal(any) }); ok && cmd != timed {
		to.SetVal(timed.(*redis.Cmd).Val())
	}
}

// laborious are parts of the names of those tests of quotatest that take nearly all of
// its time: long random timelines, and many calls.
var laborious = []string{
	"random timelines", "hour of greed", "NextAfter is when", "who waits exactly", "remembers a thousand",
	"given back by 64", "another algorithm under an old name", "a key has a bucket for each policy",
}

// brief reports whether the test named name is to be run unless long forms are asked for.
func brief(name string) bool {
	name = strings.ReplaceAll(name, "_", " ")
	return !slices.ContainsFunc(laborious, func(part string) bool { return strings.Contains(name, part) })
}

// suite puts Stores that use client through quotatest. What is not chosen, by its name,
// is for the long form.
func suite(t *testing.T, client redis.UniversalClient, chosen func(name string) bool) {
	require.Equal(t, 1, strings.Count(redisstore.ScriptSource, redisstore.ClockLine))
	require.Equal(t, 1, strings.Count(redisstore.ScriptSource, redisstore.GraceLine))
	var now func() time.Time // the tests come one after the other
	client.AddHook(timekeeper{func() time.Time { return now() }})
	stores := 0
	for name, always := range map[string]bool{"remembering what was denied": false, "always asking": true} {
		t.Run(name, func(t *testing.T) {
			if !chosen(t.Name()) {
				testenv.NeedLong(t)
			}
			quotatest.Run(t, func(t *testing.T, clock func() time.Time) quota.Store {
				if !chosen(t.Name()) {
					testenv.NeedLong(t)
				}
				now = clock
				stores++
				s := &redisstore.Store{Client: client, Prefix: fmt.Sprintf("store %d:", stores), Timeout: time.Minute, AlwaysAsk: always}
				redisstore.SetClock(s)
				redisstore.RememberBy(s, clock)
				return s
			})
		})
	}
}

func TestStoreIsAStore(t *testing.T) { isAStore(t, redistest.Shared) }

func TestStoreIsAStoreOnValkey(t *testing.T) { isAStore(t, redistest.StartValkey) }

// isAStore runs all of the suite, whose long random timelines know no difference between
// a Store that remembers and one that always asks.
func isAStore(t *testing.T, start func(testing.TB) *redistest.Server) {
	mostlyWaits(t)
	client := newClient(t, start(t))
	suite(t, client, func(name string) bool { return brief(name) || strings.Contains(name, "remembering") })
	everyKeyExpires(t, client)
}

// What differs on a cluster is how several charges find their masters, which one of the
// random timelines shows.
func TestOnAClusterAStoreIsAStore(t *testing.T) {
	mostlyWaits(t)
	nodes := redistest.SharedCluster(t)
	suite(t, newClusterClient(t, nodes), func(name string) bool {
		return brief(name) && strings.Contains(name, "remembering") || strings.HasSuffix(name, "denied/random_timelines_agree_with_the_model")
	})
	for _, node := range nodes {
		everyKeyExpires(t, newClient(t, node))
	}
}

// A script that runs on miniredis, whose Lua is another, needs nothing of Redis' own. That
// Lua takes its time under the race detector.
func TestOnMiniredisAStoreIsAStore(t *testing.T) {
	server := miniredis.RunT(t)
	client := redis.NewClient(&redis.Options{Addr: server.Addr()})
	t.Cleanup(func() { client.Close() })
	suite(t, client, func(name string) bool {
		return brief(name) && strings.Contains(name, "remembering") && !strings.Contains(name, "at_once")
	})
	everyKeyExpires(t, client)
}

// everyKeyExpires checks all keys.
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
