package redisstore_test

import (
	"context"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/heedhttp/heed/internal/redistest"
	"github.com/heedhttp/heed/redisstore"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// openBoard returns a Board with a long Timeout that Redis has answered.
func openBoard(t *testing.T, client redis.UniversalClient) *redisstore.Board {
	b := &redisstore.Board{Client: client, Timeout: patient}
	t.Cleanup(func() { b.Close() })
	require.NoError(t, b.Post(ctx, fmt.Sprintf("opened %p", b), time.Second, 0))
	return b
}

// held asserts that b gets a cool-down for key, and returns how long that took.
func held(t *testing.T, b *redisstore.Board, key string) time.Duration {
	t.Helper()
	began := time.Now()
	for time.Since(began) < hang {
		if wait, _, _ := b.Read(ctx, key); wait > 0 {
			return time.Since(began)
		}
		time.Sleep(100 * time.Microsecond)
	}
	assert.Fail(t, "not held", "%s after %v", key, hang)
	return hang
}

func TestBoardsWorkOnEveryKindOfServer(t *testing.T) {
	t.Parallel()
	for name, connect := range map[string]func(*testing.T) (a, b redis.UniversalClient){
		"one server": func(t *testing.T) (a, b redis.UniversalClient) {
			s := redistest.Shared(t)
			return newClient(t, s), newClient(t, s)
		},
		"another database": func(t *testing.T) (a, b redis.UniversalClient) {
			s := redistest.Shared(t)
			client := redis.NewClient(&redis.Options{Addr: s.Addr, DB: 5})
			t.Cleanup(func() { client.Close() })
			return client, client
		},
		"cluster": func(t *testing.T) (a, b redis.UniversalClient) {
			nodes := redistest.StartCluster(t)
			return newClusterClient(t, nodes), newClusterClient(t, nodes)
		},
		"ring": func(t *testing.T) (a, b redis.UniversalClient) {
			client := newRing(t)
			return client, client
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			one, two := connect(t)
			a, b := openBoard(t, one), openBoard(t, two)
			var took []time.Duration
			for i := range 20 {
				key := fmt.Sprint("https://", i)
				require.NoError(t, a.Post(ctx, key, time.Hour, 20*time.Millisecond))
				took = append(took, held(t, b, key))
			}
			t.Logf("held after %v", took)
			other := &redisstore.Board{Client: one, Prefix: "other{tag}:", Timeout: patient}
			defer other.Close()
			require.NoError(t, other.Post(ctx, "https://0", time.Second, 0))
			require.NoError(t, other.Post(ctx, "theirs", time.Hour, 0))
			time.Sleep(50 * time.Millisecond)
			wait, _, err := other.Read(ctx, "https://0")
			assert.NoError(t, err)
			assert.LessOrEqual(t, wait, time.Second)
			assert.Zero(t, left(t, a, "theirs"))
		})
	}
}

func TestEveryKeyOfABoardHasATTL(t *testing.T) {
	client := newClient(t, redistest.Shared(t))
	b := openBoard(t, client)
	for _, key := range []string{"", host, "\x00\xff\r\n", strings.Repeat("x", 100_000), "first", "last"} {
		require.NoError(t, b.Post(ctx, key, time.Hour, time.Millisecond))
		assert.Positive(t, left(t, b, key), "%.50q", key)
	}
	keys := client.Keys(ctx, "*").Val()
	assert.ElementsMatch(t, []string{hash, changes}, keys)
	for _, key := range keys {
		assert.Positive(t, client.PTTL(ctx, key).Val(), key)
	}
}

func TestABoardThatLosesItsSubscriptionSubscribesAgain(t *testing.T) {
	server := redistest.Start(t)
	a, b, admin := openBoard(t, newClient(t, server)), openBoard(t, newClient(t, server)), newClient(t, server)
	for range 3 {
		subscribers := func() int64 { return admin.PubSubNumSub(ctx, hash).Val()[hash] }
		require.Eventually(t, func() bool { return subscribers() == 2 }, hang, 5*time.Millisecond)
		require.NoError(t, admin.Do(ctx, "CLIENT", "KILL", "TYPE", "pubsub").Err())
		key := fmt.Sprint(time.Now())
		require.NoError(t, a.Post(ctx, key, time.Hour, 0))
		held(t, b, key)
	}
}

func TestABoardWithoutPermissionToSubscribePolls(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	admin := newClient(t, server)
	require.NoError(t, admin.Do(ctx, "ACL", "SETUSER", "quiet", "on", "nopass", "~*", "resetchannels", "+@all").Err())
	user := redis.NewClient(&redis.Options{Addr: server.Addr, Username: "quiet", Password: "x"})
	defer user.Close()
	a := openBoard(t, admin)
	b := &redisstore.Board{Client: user, Timeout: patient}
	defer b.Close()
	b.Post(ctx, "first", time.Hour, 0) // returns the error, unless it joins a poll
	require.Eventually(t, func() bool { return denied(t, admin, "toplevel") > 1 }, hang, time.Millisecond)
	before := denied(t, admin, "lua")
	require.Eventually(t, func() bool {
		assert.NoError(t, admin.FlushAll(ctx).Err()) // so the next poll restores it, and may not publish that
		return denied(t, admin, "lua") >= before+2
	}, hang, time.Millisecond)
	const late = "redisstore: other processes see the cool-down up to a second late: "
	unseen := []string{
		late,
		"cannot subscribe to heed:board:{cool-downs}: NOPERM",
	}
	require.Eventually(t, func() bool {
		_, _, err := b.Read(ctx, host)
		unseen = slices.DeleteFunc(unseen, func(s string) bool { return err != nil && strings.Contains(err.Error(), s) })
		return len(unseen) == 0
	}, hang, time.Millisecond, "Read did not return each error")
	require.NoError(t, a.Post(ctx, host, time.Hour, 0))
	held(t, b, host)
	posts := 0 // one may join a poll, and then Read returns the error
	require.Eventually(t, func() bool {
		posts++
		err := b.Post(ctx, "theirs", time.Hour+time.Duration(posts)*time.Second, 0)
		return err != nil && strings.Contains(err.Error(), late)
	}, hang, time.Millisecond)
	held(t, a, "theirs")
}

// denied returns how many calls Redis has denied because of the channel: calls by a client ("toplevel") or
// by a script ("lua").
func denied(t *testing.T, admin *redis.Client, caller string) (n int64) {
	entries, err := admin.ACLLog(ctx, 128).Result()
	assert.NoError(t, err)
	for _, e := range entries {
		if e.Reason == "channel" && e.Context == caller {
			n += e.Count
		}
	}
	return n
}

func TestABoardKeepsItsCoolDownsWhileRedisIsStopped(t *testing.T) {
	server := redistest.Start(t)
	a, b := openBoard(t, newClient(t, server)), openBoard(t, newClient(t, server))
	hasty := &redisstore.Board{Client: newClient(t, server)}
	defer hasty.Close()
	require.NoError(t, a.Post(ctx, "before", time.Hour, 0))
	held(t, b, "before")
	held(t, hasty, "before")

	server.Stop()
	require.Error(t, hasty.Post(ctx, host, time.Hour, 0))
	for range 100 {
		require.Positive(t, left(t, hasty, host))
		require.Positive(t, left(t, hasty, "before"))
	}
	assert.Zero(t, left(t, b, host))

	server.Cont()
	held(t, a, host)
	held(t, b, host)
}

func TestABoardRestoresARestartedRedis(t *testing.T) {
	server := redistest.Start(t)
	a, b := openBoard(t, newClient(t, server)), openBoard(t, newClient(t, server))
	require.NoError(t, a.Post(ctx, "before", time.Hour, 0))
	held(t, b, "before")
	server.Kill()
	hasty := &redisstore.Board{Client: newClient(t, server)}
	defer hasty.Close()
	require.Error(t, hasty.Post(ctx, "meanwhile", time.Hour, 0))
	time.Sleep(100 * time.Millisecond) // in which the others mostly notice
	server.Restart()
	held(t, a, "meanwhile")
	held(t, b, "meanwhile")
	held(t, openBoard(t, newClient(t, server)), "before")
	key := fmt.Sprint(time.Now())
	require.NoError(t, a.Post(ctx, key, time.Hour, 0))
	held(t, b, key)
}

func TestABoardFollowsItsKeyToAnotherShard(t *testing.T) {
	t.Parallel()
	shards := map[string]*redistest.Server{"a": redistest.Start(t), "b": redistest.Start(t)}
	connect := func() *redis.Ring {
		ring := redis.NewRing(&redis.RingOptions{HeartbeatFrequency: 50 * time.Millisecond,
			Addrs: map[string]string{"a": shards["a"].Addr, "b": shards["b"].Addr}})
		t.Cleanup(func() { ring.Close() })
		return ring
	}
	a, b := openBoard(t, connect()), openBoard(t, connect())
	owner := "a"
	if newClient(t, shards["a"]).Exists(ctx, hash).Val() == 0 {
		owner = "b"
	}
	for _, change := range []func(){shards[owner].Kill, shards[owner].Restart} {
		change()
		require.Eventually(t, func() bool {
			key := fmt.Sprint(time.Now())
			a.Post(ctx, key, time.Hour, 0)
			for range 1000 {
				if left(t, b, key) > 0 {
					return true
				}
				time.Sleep(time.Millisecond)
			}
			return false
		}, 2*hang, time.Millisecond)
	}
	for _, shard := range shards {
		shard.Kill()
	}
	require.Error(t, a.Post(ctx, host, time.Hour, 0))
	time.Sleep(300 * time.Millisecond)
	assert.Positive(t, left(t, a, host), "without a shard")
}

func TestABoardKeepsItsCoolDownsDespiteInvalidReplies(t *testing.T) {
	t.Parallel()
	const oneChange = "*12\r\n:1\r\n:1\r\n:1\r\n$0\r\n\r\n$1\r\nk\r\n"
	for name, reply := range map[string]string{
		"WRONGTYPE":        redistest.WrongType,
		"LOADING":          redistest.Loading,
		"READONLY":         redistest.ReadOnly,
		"NOSCRIPT, twice":  redistest.NoScript,
		"garbage":          redistest.Garbage,
		"silence":          redistest.Silence,
		"hang up":          redistest.HangUp,
		"another type":     "+OK\r\n",
		"nothing":          "$-1\r\n",
		"an empty list":    "*0\r\n",
		"too few":          "*3\r\n:1\r\n:1\r\n:1\r\n",
		"too many":         "*6\r\n:1\r\n:1\r\n:1\r\n$0\r\n\r\n:0\r\n$1\r\nk\r\n",
		"no text":          "*4\r\n:1\r\n:1\r\n:1\r\n:1\r\n",
		"lists":            "*4\r\n*0\r\n*0\r\n*0\r\n*0\r\n",
		"huge numbers":     oneChange + ":1\r\n:9223372036854775807\r\n:0\r\n:0\r\n:1\r\n:0\r\n:0\r\n",
		"negative numbers": oneChange + ":1\r\n:9000000\r\n:0\r\n:-1\r\n:1\r\n:0\r\n:0\r\n",
		"a negative age":   oneChange + ":1\r\n:9000000\r\n:-1\r\n:0\r\n:1\r\n:0\r\n:0\r\n",
		"too many slots":   oneChange + ":1\r\n:1\r\n:0\r\n:0\r\n:1\r\n:4097\r\n:0\r\n",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			fake := redistest.NewFake(t, reply) // also answers the subscription
			client := redis.NewClient(&redis.Options{Addr: fake.Addr})
			defer client.Close()
			b := &redisstore.Board{Client: client}
			defer b.Close()
			began := time.Now()
			for range 3 {
				assert.ErrorContains(t, b.Post(ctx, host, time.Hour, time.Second), "redisstore: ")
				time.Sleep(20 * time.Millisecond)
			}
			wait, every, _ := b.Read(ctx, host)
			assert.LessOrEqual(t, wait, time.Hour)
			assert.GreaterOrEqual(t, wait, time.Hour-time.Since(began))
			assert.Equal(t, time.Second, every)
			assert.Zero(t, left(t, b, "k"))
		})
	}
}

func TestABoardSurvivesAFailover(t *testing.T) {
	t.Parallel()
	s := redistest.StartSentinel(t)
	connect := func() redis.UniversalClient {
		client := redis.NewFailoverClient(&redis.FailoverOptions{MasterName: s.Name, SentinelAddrs: s.Addrs()})
		t.Cleanup(func() { client.Close() })
		return client
	}
	a, b := openBoard(t, connect()), openBoard(t, connect())
	require.NoError(t, a.Post(ctx, "before", time.Hour, 0))
	held(t, b, "before")
	s.Master.Kill()
	s.Watch()
	hasty := &redisstore.Board{Client: connect()}
	defer hasty.Close()
	hasty.Post(ctx, "meanwhile", time.Hour, 0) // fails, unless there is a new master by now
	assert.Positive(t, left(t, hasty, "meanwhile"))
	t.Logf("a post made without a master arrived after %v", held(t, b, "meanwhile"))
	held(t, a, "meanwhile")
	newcomer := &redisstore.Board{Client: connect(), Timeout: patient}
	defer newcomer.Close()
	held(t, newcomer, "before")
}

func TestAGarbageBoardEndsItsGoroutine(t *testing.T) {
	t.Parallel()
	server := redistest.Shared(t)
	client := newClient(t, server)
	listeners := func() int64 { return client.PubSubNumSub(ctx, hash).Val()[hash] }
	func() {
		b := &redisstore.Board{Client: newClient(t, server), Timeout: patient}
		require.NoError(t, b.Post(ctx, host, time.Hour, 0))
		require.Eventually(t, func() bool { return listeners() == 1 }, hang, time.Millisecond)
		runtime.KeepAlive(b)
	}()
	assert.Eventually(t, func() bool { runtime.GC(); return listeners() == 0 }, hang, 100*time.Millisecond)
}

func TestABoardInUseIsNotGarbage(t *testing.T) {
	t.Parallel()
	server := redistest.Shared(t)
	a, b := openBoard(t, newClient(t, server)), openBoard(t, newClient(t, server))
	for range 5 {
		runtime.GC()
		time.Sleep(50 * time.Millisecond)
	}
	time.Sleep(1100 * time.Millisecond)
	require.NoError(t, a.Post(ctx, host, time.Hour, 0))
	held(t, b, host)
}

func TestABoardIsSafeForConcurrentUse(t *testing.T) {
	server := redistest.Shared(t)
	boards := []*redisstore.Board{openBoard(t, newClient(t, server)), openBoard(t, newClient(t, server))}
	began := time.Now()
	done := make(chan bool)
	for i := range 16 {
		go func() {
			for n := range 50 {
				key := fmt.Sprint(n % 10)
				boards[i%2].Post(context.Background(), key, time.Duration(i+n+1)*time.Minute, time.Millisecond)
				boards[(i+n)%2].Read(context.Background(), key)
			}
			done <- true
		}()
	}
	for range 16 {
		<-done
	}
	for key := range 10 {
		longest := time.Duration(15+41+key) * time.Minute
		for _, b := range boards {
			require.Eventually(t, func() bool {
				return left(t, b, fmt.Sprint(key)) >= longest-time.Since(began)
			}, hang, time.Millisecond)
			assert.Less(t, left(t, b, fmt.Sprint(key)), longest+time.Second)
		}
	}
}
