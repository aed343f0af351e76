package redisstore_test

import (
	"fmt"
	"runtime"
	"strings"
	"testing"
	"testing/synctest"
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

// held asserts that boards get a cool-down for key.
func held(t *testing.T, key string, boards ...*redisstore.Board) {
	t.Helper()
	for _, b := range boards {
		require.Eventually(t, func() bool { return left(t, b, key) > 0 }, hang, ms, key)
	}
}

func TestBoardsAgreeWhenRedisIsBack(t *testing.T) {
	for name, start := range stands {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := start(t)
			a, b := openBoard(t, s.connect()), openBoard(t, s.connect())
			hasty := &redisstore.Board{Client: s.connect()}
			defer hasty.Close()
			require.NoError(t, a.Post(ctx, "before", time.Hour, 0))
			require.NoError(t, a.Post(ctx, "replaced", day, 0))
			held(t, "before", b, hasty)
			held(t, "replaced", hasty)
			s.lose()
			_ = hasty.Post(ctx, "meanwhile", time.Hour, 0) // fails, unless another server took over by now
			_ = hasty.Replace(ctx, "replaced", time.Hour, 0)
			assert.Positive(t, left(t, hasty, "meanwhile"))
			assert.LessOrEqual(t, left(t, hasty, "replaced"), time.Hour)
			held(t, "before", a, b, hasty)
			s.back()
			held(t, "meanwhile", a, b)
			newcomer := &redisstore.Board{Client: s.connect(), Timeout: patient}
			defer newcomer.Close()
			held(t, "before", newcomer)
			for _, one := range []*redisstore.Board{a, b, hasty, newcomer} {
				require.Eventually(t, func() bool {
					l := left(t, one, "replaced")
					return 0 < l && l <= time.Hour
				}, hang, ms)
			}
			posts := time.Duration(0) // one may fail because the machine is slow
			require.Eventually(t, func() bool {
				posts++
				return hasty.Post(ctx, "then", time.Hour+posts*time.Second, 0) == nil
			}, hang, ms)
			held(t, "then", a, b, newcomer)
		})
	}
}

func TestBoardsWithDifferentPrefixesShareNothing(t *testing.T) {
	client := newClient(t, redistest.Shared(t))
	a, b := openBoard(t, client), openBoard(t, client)
	other := &redisstore.Board{Client: client, Prefix: "other{tag}:", Timeout: patient}
	defer other.Close()
	require.NoError(t, other.Post(ctx, "theirs", time.Hour, 0))
	for _, key := range []string{"", host, "\x00\xff\r\n", strings.Repeat("x", 100_000), "first", "last"} {
		require.NoError(t, a.Post(ctx, key, time.Hour, tick))
		held(t, key, b)
		assert.Zero(t, left(t, other, key))
	}
	assert.Zero(t, left(t, a, "theirs"))
}

// The user may not listen, and what it changes is not announced.
func TestABoardReportsThatChangesArriveLate(t *testing.T) {
	bubble(t, func(t *testing.T, s *boardFake) {
		s.set(func() { s.noSubscriptions = true })
		b := openBoards(t, s, 1)[0]
		_, _, err := b.Read(t.Context(), host)
		assert.ErrorContains(t, err, "redisstore: changes arrive late: cannot subscribe to heed:board:{cool-downs}: NOPERM")
		s.become(s.saved())
		time.Sleep(time.Second)
		s.set(func() { s.noSubscriptions = false })
		time.Sleep(20 * time.Second)
		_, _, err = b.Read(t.Context(), host)
		assert.NoError(t, err, "it has subscribed since")
	})
	admin := newClient(t, redistest.Shared(t))
	require.NoError(t, admin.Do(ctx, "ACL", "SETUSER", "quiet", "on", "nopass", "~*", "resetchannels", "+@all").Err())
	user := redis.NewClient(&redis.Options{Addr: admin.Options().Addr, Username: "quiet", Password: "x"})
	defer user.Close()
	b := &redisstore.Board{Client: user, Timeout: patient}
	defer b.Close()
	const late = "redisstore: other processes see the cool-down up to a second late: "
	posts := time.Duration(0) // one may join a poll, and then Read returns the error
	require.Eventually(t, func() bool {
		posts++
		err := b.Post(ctx, host, time.Hour+posts*time.Second, 0)
		return err != nil && strings.Contains(err.Error(), late)
	}, hang, ms)
	held(t, host, openBoard(t, admin))
	require.Eventually(t, func() bool {
		admin.FlushAll(ctx) // so the next poll restores it, and may not announce that
		_, _, err := b.Read(ctx, host)
		return err != nil && strings.Contains(err.Error(), late)
	}, hang, ms)
}

func TestABoardKeepsItsCoolDownsDespiteInvalidReplies(t *testing.T) {
	const oneChange = "*12\r\n:1\r\n:1\r\n:1\r\n$0\r\n\r\n$1\r\nk\r\n"
	for name, reply := range map[string]string{
		"WRONGTYPE":        redistest.WrongType,
		"another type":     "+OK\r\n",
		"nothing":          "$-1\r\n",
		"too many":         "*6\r\n:1\r\n:1\r\n:1\r\n$0\r\n\r\n:0\r\n$1\r\nk\r\n",
		"no text":          "*4\r\n:1\r\n:1\r\n:1\r\n:1\r\n",
		"huge numbers":     oneChange + ":1\r\n:9223372036854775807\r\n:0\r\n:0\r\n:1\r\n:0\r\n:0\r\n",
		"days":             oneChange + ":1\r\n:86400000001\r\n:0\r\n:0\r\n:1\r\n:0\r\n:0\r\n",
		"negative numbers": oneChange + ":1\r\n:9000000\r\n:0\r\n:-1\r\n:1\r\n:0\r\n:0\r\n",
		"a negative age":   oneChange + ":1\r\n:9000000\r\n:-1\r\n:0\r\n:1\r\n:0\r\n:0\r\n",
		"too many slots":   oneChange + ":1\r\n:1\r\n:0\r\n:0\r\n:1\r\n:4097\r\n:0\r\n",
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				_, client := memoryRedis(t, redis.Options{}, reply) // also answers the subscription
				b := &redisstore.Board{Client: client}
				defer b.Close()
				for range 3 {
					assert.ErrorContains(t, b.Post(t.Context(), host, time.Hour, time.Second), "redisstore: ")
					time.Sleep(20 * ms)
				}
				wait, every, _ := b.Read(t.Context(), host)
				assert.InDelta(t, time.Hour-20*ms, wait, float64(160*ms))
				assert.Equal(t, time.Second, every)
				assert.Zero(t, left(t, b, "k"))
			})
		})
	}
}

func TestAGarbageBoardEndsItsGoroutine(t *testing.T) {
	t.Parallel()
	server := redistest.Shared(t)
	client := newClient(t, server)
	listeners := func() int64 { return client.PubSubNumSub(ctx, hash).Val()[hash] }
	kept := openBoard(t, newClient(t, server))
	func() {
		b := &redisstore.Board{Client: newClient(t, server), Timeout: patient}
		require.NoError(t, b.Post(ctx, host, time.Hour, 0))
		require.Eventually(t, func() bool { return listeners() == 2 }, hang, ms)
		runtime.KeepAlive(b)
	}()
	assert.Eventually(t, func() bool { runtime.GC(); return listeners() == 1 }, hang, 100*ms)
	held(t, host, kept)
}
