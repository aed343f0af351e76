package redisstore_test

import (
	"bytes"
	"log/slog"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/heedhttp/heed/internal/redistest"
	"github.com/heedhttp/heed/quota"
	"github.com/heedhttp/heed/redisstore"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestAStoreWritesNothingWithoutAllPermissions(t *testing.T) {
	for _, rules := range [][]string{
		{"~*", "-del", "-set"},
		{"%R~*", "%W~heed:quota:2:a"}, // neither the other key nor budgets
	} {
		t.Run(rules[len(rules)-1], func(t *testing.T) {
			admin := newClient(t, redistest.Shared(t))
			args := []any{"ACL", "SETUSER", "limited", "on", "nopass", "+@all"}
			for _, rule := range rules {
				args = append(args, rule)
			}
			require.NoError(t, admin.Do(ctx, args...).Err())
			limited := redis.NewClient(&redis.Options{Addr: admin.Options().Addr, Username: "limited", Password: "any"})
			defer limited.Close()

			s := &redisstore.Store{Client: limited, Timeout: patient}
			limit := compile(t, quota.PerDay(10))
			a, b := quota.Charge{Key: "a", N: 1, Limit: limit}, quota.Charge{Key: "b", N: 1, Limit: limit}
			_, err := s.Take(ctx, nil, a, b)
			assert.ErrorAs(t, err, new(redis.Error))
			assert.ErrorAs(t, s.Settle(ctx, a, b), new(redis.Error))

			lost := make(chan error, 10)
			budget := slowly(limited)
			budget.MinPerSecond, budget.Timeout, budget.Degraded = -1, patient, func(err error) { lost <- err }
			assert.False(t, budget.Withdraw(ctx, host))
			assert.ErrorAs(t, <-lost, new(redis.Error))

			assert.Empty(t, admin.Keys(ctx, "*").Val())
		})
	}
}

func TestABudgetWritesNothingWithoutAllPermissions(t *testing.T) {
	admin := newClient(t, redistest.Shared(t))
	require.True(t, failing(t, slowly(admin)).Withdraw(ctx, host))
	before := admin.HGetAll(ctx, "heed:budget:orders-api").Val()
	require.Len(t, before, 3)
	for _, rule := range []string{"-pexpire", "-hset", "-del"} {
		require.NoError(t, admin.Do(ctx, "ACL", "SETUSER", "limited", "reset", "on", "nopass", "~*", "+@all", rule).Err())
		limited := redis.NewClient(&redis.Options{Addr: admin.Options().Addr, Username: "limited", Password: "any"})
		b := slowly(limited)
		b.MinPerSecond, b.Timeout = -1, patient
		assert.False(t, b.Withdraw(ctx, host), rule)
		assert.Equal(t, before, admin.HGetAll(ctx, "heed:budget:orders-api").Val(), rule)
		assert.NoError(t, limited.Close())
	}
}

func TestAStoreWritesNothingWhenRedisIsFull(t *testing.T) {
	s := newStore(t, redistest.Shared(t))
	limit := compile(t, quota.PerDay(10))
	take(t, s, quota.Charge{Key: "old", Limit: limit})
	require.NoError(t, s.Client.ConfigSet(ctx, "maxmemory", "1").Err())
	for _, key := range []string{"old", "new"} {
		_, err := s.Take(ctx, nil, quota.Charge{Key: key, Limit: limit})
		assert.ErrorContains(t, err, "OOM", key)
		assert.ErrorAs(t, err, new(redis.Error), key)
	}
	require.NoError(t, s.Client.ConfigSet(ctx, "maxmemory", "0").Err())
	assert.EqualValues(t, 8, take(t, s, quota.Charge{Key: "old", Limit: limit})[0].Remaining)
	assert.EqualValues(t, 9, take(t, s, quota.Charge{Key: "new", Limit: limit})[0].Remaining)
}

// What the user may not do is in the error of the decision, as an operator would write it in a rule.
func TestAMissingPermissionIsNamed(t *testing.T) {
	admin := newClient(t, redistest.Shared(t))
	c := quota.Charge{Key: "key", ID: "once", Limit: compile(t, quota.PerDay(10))}
	for rules, want := range map[string]string{
		"~* -get":            "the user may not run get",
		"~* -time -set":      "the user may not run time set",
		"~* -zadd":           "the user may not run zadd",
		"~* -pexpire":        "the user may not run pexpire",
		"~* -evalsha":        ".* run the 'evalsha' command", // this and what follows are Redis' own words
		"~other:*":           ".* access (one of the keys|a key).*",
		"~heed:quota:2:key ": ".* access (one of the keys|a key).*", // that of the IDs
	} {
		limited := asUser(t, admin, rules)
		s := &redisstore.Store{Client: limited, Timeout: patient}
		c.ID = rules // one that was written without its charge must not help the next
		_, err := s.Take(ctx, nil, c)
		require.Error(t, err, rules)
		assert.Regexp(t, "^redisstore: NOPERM "+want+"$", err.Error(), rules)
		assert.ErrorAs(t, err, new(redis.Error), rules)
	}
}

// asUser returns a client whose user may run all commands, and use no keys, except for rules.
func asUser(t *testing.T, admin *redis.Client, rules string) *redis.Client {
	args := []any{"ACL", "SETUSER", "limited", "reset", "on", "nopass", "+@all"}
	for _, rule := range strings.Fields(rules) {
		args = append(args, rule)
	}
	require.NoError(t, admin.Do(ctx, args...).Err())
	limited := redis.NewClient(&redis.Options{Addr: admin.Options().Addr, Username: "limited", Password: "any"})
	t.Cleanup(func() { limited.Close() })
	return limited
}

// A user who has not authenticated may send ten arguments at most, so Redis calls a script a protocol error.
func TestAScriptThatIsTooLongWithoutAPasswordIsAnAuthenticationError(t *testing.T) {
	fake := redistest.NewFake(t, "-ERR Protocol error: unauthenticated multibulk length\r\n")
	client := redis.NewClient(&redis.Options{Addr: fake.Addr})
	defer client.Close()
	s := &redisstore.Store{Client: client, Timeout: patient}
	_, err := s.Take(ctx, nil, quota.Charge{Key: "key", Limit: compile(t, quota.PerDay(10))})
	assert.EqualError(t, err, "redisstore: NOAUTH Authentication required")
}

// While its keys are on their way to another server of a Cluster, a script was not executed and is sent again.
func TestACallIsMadeAgainWhileItsKeysMove(t *testing.T) {
	const moving = "-TRYAGAIN Multiple keys request during rehashing of slot\r\n"
	for times, fails := range []bool{false, false, false, true} {
		synctest.Test(t, func(t *testing.T) {
			replies := append(slices.Repeat([]string{moving}, times), "$27\r\n1764153000000000 0 0 1 1 1 \r\n")
			if fails {
				replies = []string{moving} // for ever
			}
			fake, client := memoryRedis(t, redis.Options{}, redistest.Loading)
			s := &redisstore.Store{Client: client, Timeout: time.Second}
			require.NoError(t, s.Ping(ctx))
			before := len(fake.Commands())
			fake.Say(replies...)
			start := time.Now()
			ds, err := s.Take(ctx, nil, quota.Charge{Key: "key", ID: "id", Limit: compile(t, quota.PerDay(10))})
			if fails {
				assert.ErrorContains(t, err, "TRYAGAIN")
				assert.Equal(t, 500*time.Millisecond, time.Since(start))
				return
			}
			require.NoError(t, err)
			assert.True(t, ds[0].Allowed)
			assert.Equal(t, time.Duration(times)*5*time.Millisecond, time.Since(start))
			assert.Len(t, fake.Commands(), before+times+1)
		})
	}
}

// That Redis may forget counts is logged once, and known to a health endpoint until the policy is another.
func TestAStoreTellsThatRedisMayEvictCounts(t *testing.T) {
	server := redistest.Shared(t)
	log := logged(t)
	for policy, evicts := range map[string]bool{
		"allkeys-lru": true, "allkeys-random": true, "volatile-ttl": false, "noeviction": false,
	} {
		s := newStore(t, server)
		log.Reset()
		require.NoError(t, s.Client.ConfigSet(ctx, "maxmemory-policy", policy).Err())
		for range 3 {
			require.NoError(t, s.Ping(ctx))
		}
		if !evicts {
			assert.NoError(t, s.Check(), policy)
			assert.Empty(t, log.String(), policy)
			continue
		}
		assert.ErrorContains(t, s.Check(), "maxmemory-policy is "+policy)
		assert.Equal(t, 1, strings.Count(log.String(), "level=WARN msg=rate_limit.store_evicts"), policy)
		assert.Contains(t, log.String(), "maxmemory-policy is "+policy)
		require.NoError(t, s.Client.ConfigSet(ctx, "maxmemory-policy", "noeviction").Err())
		require.NoError(t, s.Ping(ctx))
		assert.NoError(t, s.Check())
	}
}

// logged returns a buffer for the log until t ends.
func logged(t *testing.T) *bytes.Buffer {
	text, before := new(bytes.Buffer), slog.Default()
	slog.SetDefault(slog.New(slog.NewTextHandler(text, nil)))
	t.Cleanup(func() { slog.SetDefault(before) })
	return text
}

// LogTo is for the whole process, so this runs in one of its own.
func TestLinesOfGoRedisGoToTheProgramsLog(t *testing.T) {
	if os.Getenv("LOG_TO") == "" {
		child := exec.Command(os.Args[0], "-test.run", "^"+t.Name()+"$", "-test.v")
		child.Env = append(os.Environ(), "LOG_TO=yes", "GORACE=atexit_sleep_ms=0")
		said, err := child.CombinedOutput()
		require.NoError(t, err, "%s", said)
		assert.Contains(t, string(said), "--- PASS")
		assert.NotContains(t, string(said), "redis: ", "nothing is printed")
		return
	}
	var mu sync.Mutex
	var lines []string
	redisstore.LogTo(slog.New(slog.NewTextHandler(writer(func(line []byte) (int, error) {
		mu.Lock()
		defer mu.Unlock()
		lines = append(lines, string(line))
		return len(line), nil
	}), nil)))
	for range 3 { // several lines each, the ports of which differ
		client := redis.NewClient(&redis.Options{Addr: redistest.Nowhere(t), DialerRetries: 1})
		require.Error(t, client.Ping(ctx).Err())
		require.NoError(t, client.Close())
	}
	mu.Lock()
	defer mu.Unlock()
	require.Len(t, lines, 1, "%q", lines)
	assert.Contains(t, lines[0], "level=WARN msg=rate_limit.redis message=\"redis: connection pool: failed to dial")
	assert.Contains(t, lines[0], "connection refused")
}

type writer func([]byte) (int, error)

func (w writer) Write(b []byte) (int, error) { return w(b) }
