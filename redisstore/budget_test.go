package redisstore_test

import (
	"context"
	"fmt"
	"go/parser"
	"go/token"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/heedhttp/heed"
	"github.com/heedhttp/heed/internal/redistest"
	"github.com/heedhttp/heed/redisstore"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

var _ heed.Budget = (*redisstore.Budget)(nil)

func TestPackageDoesNotImportHeed(t *testing.T) {
	files, err := os.ReadDir(".")
	require.NoError(t, err)
	read := 0
	for _, file := range files {
		if !strings.HasSuffix(file.Name(), ".go") || strings.HasSuffix(file.Name(), "_test.go") {
			continue
		}
		parsed, err := parser.ParseFile(token.NewFileSet(), file.Name(), nil, parser.ImportsOnly)
		require.NoError(t, err)
		read++
		for _, spec := range parsed.Imports {
			assert.NotEqual(t, `"github.com/heedhttp/heed"`, spec.Path.Value, file.Name())
		}
	}
	assert.NotZero(t, read)
}

// slowly returns a Budget whose floor of ten retries does not refill during a test.
func slowly(client redis.UniversalClient) *redisstore.Budget {
	return &redisstore.Budget{Client: client, Key: "orders-api", MinPerSecond: 0.001, TTL: 10_000 * time.Second}
}

// failing fails the test if a call of b fails. It sets a long Timeout, because the machine may be
// slow.
func failing(t testing.TB, b *redisstore.Budget) *redisstore.Budget {
	b.Timeout = 10 * time.Second
	b.Degraded = func(err error) {
		if t.Context().Err() == nil { // otherwise the client is being closed
			t.Errorf("degraded: %v", err)
		}
	}
	return b
}

func TestRequestsEarnRetriesAndTheFloorAddsTen(t *testing.T) {
	b := failing(t, slowly(newClient(t, redistest.Shared(t))))
	deposit(b, 1000)
	grant(t, 110, b)
	b.Refund(t.Context(), host)
	grant(t, 1, b)
}

// grant asserts that budgets together grant want retries and no more. It waits for deposits that
// timers have sent.
func grant(t *testing.T, want int, budgets ...*redisstore.Budget) {
	t.Helper()
	got := 0
	all := func() bool {
		for _, b := range budgets {
			got += withdrawn(b)
		}
		return got >= want
	}
	require.Eventually(t, all, hang, ms)
	all()
	require.Equal(t, want, got)
}

func TestTwoBudgetsShareOneRatioAndOneFloor(t *testing.T) {
	server := redistest.Shared(t)
	a, b := failing(t, slowly(newClient(t, server))), failing(t, slowly(newClient(t, server)))
	deposit(a, 503)
	deposit(b, 497)
	got := 0
	for range 20 { // both send their deposits, one after the other
		for _, each := range []*redisstore.Budget{a, b} {
			if each.Withdraw(t.Context(), host) {
				got++
			}
		}
	}
	grant(t, 110-got, a, b)
}

func TestOneBudgetSeesWhatAnotherEarned(t *testing.T) {
	t.Parallel() // it waits for a timer
	server := redistest.Shared(t)
	a, b := failing(t, slowly(newClient(t, server))), failing(t, slowly(newClient(t, server)))
	grant(t, 10, b)
	deposit(a, 50)
	grant(t, 5, b)
}

func TestConcurrentWithdrawalsAreCountedExactly(t *testing.T) {
	server := redistest.Shared(t)
	budgets := []*redisstore.Budget{
		failing(t, slowly(newClient(t, server))),
		failing(t, slowly(newClient(t, server))),
	}
	var granted atomic.Int64
	var all sync.WaitGroup
	for i := range 50 {
		b := budgets[i%2]
		all.Go(func() {
			for range 20 {
				b.Deposit(t.Context(), host)
				if b.Withdraw(t.Context(), host) {
					granted.Add(1)
				}
			}
		})
	}
	all.Wait()
	grant(t, 1000/10+10-int(granted.Load()), budgets...)
}

func TestDepositsAndTheirHashExpire(t *testing.T) {
	client := newClient(t, redistest.Shared(t))
	b := failing(t, &redisstore.Budget{Client: client, Key: "orders-api", MinPerSecond: -1, TTL: time.Hour})
	deposit(b, 20)
	grant(t, 2, b)
	deposit(b, 20)
	require.True(t, b.Withdraw(t.Context(), host))
	const key = "heed:budget:orders-api"
	require.Equal(t, []string{key}, client.Keys(t.Context(), "*").Val())
	assert.LessOrEqual(t, client.PTTL(t.Context(), key).Val(), time.Hour+ms)

	require.NoError(t, client.PExpire(t.Context(), key, ms).Err()) // instead of waiting for an hour
	require.Eventually(t, func() bool { return client.Exists(t.Context(), key).Val() == 0 }, hang, ms)
	assert.False(t, b.Withdraw(t.Context(), host))
}

func TestEveryKeyOfABudgetHasATTL(t *testing.T) {
	client := newClient(t, redistest.Shared(t))
	ctx := t.Context()
	b := failing(t, &redisstore.Budget{Client: client, TTL: time.Hour})
	for _, key := range []string{host, "", "http://[::1]:8080", "https://{a}.example", strings.Repeat("x", 10_000)} {
		b.Deposit(ctx, key)
		assert.True(t, b.Withdraw(ctx, key))
		b.Refund(ctx, key)
		assert.True(t, b.Withdraw(ctx, key))
	}
	keys := client.Keys(ctx, "*").Val()
	assert.Len(t, keys, 5)
	for _, key := range keys {
		assert.Positive(t, client.PTTL(ctx, key).Val(), "%.50s", key)
	}
}

func TestAFlushOfRedisIsNoError(t *testing.T) {
	client := newClient(t, redistest.Shared(t))
	b := failing(t, slowly(client))
	for _, flush := range []string{"SCRIPT FLUSH", "FLUSHALL"} {
		require.True(t, b.Withdraw(t.Context(), host))
		args := []any{}
		for _, word := range strings.Fields(flush) {
			args = append(args, word)
		}
		require.NoError(t, client.Do(t.Context(), args...).Err())
		assert.True(t, b.Withdraw(t.Context(), host), flush)
	}
	assert.Equal(t, 9, withdrawn(b), "the floor is full again, less the one after FLUSHALL")
}

// go-redis alone would wait for an hour here. Another test shows that calls end after Timeout.
func TestABudgetRecoversFromAStoppedRedis(t *testing.T) {
	t.Parallel() // it waits for a timer
	server := redistest.Start(t)
	observer := newClient(t, server)
	clients := map[string]redis.UniversalClient{
		"client": redis.NewClient(&redis.Options{Addr: server.Addr, ReadTimeout: time.Hour, DialTimeout: time.Hour}),
		"without a connection yet": redis.NewClient(&redis.Options{Addr: server.Addr, ConnMaxIdleTime: time.Nanosecond,
			ReadTimeout: time.Hour, DialTimeout: time.Hour}),
		"ring": redis.NewRing(&redis.RingOptions{Addrs: map[string]string{"a": server.Addr},
			ReadTimeout: time.Hour, DialTimeout: time.Hour}),
	}
	budgets, lost := map[string]*redisstore.Budget{}, map[string]*atomic.Int64{}
	floor := func(name string) int64 {
		units, err := observer.HGet(t.Context(), "heed:budget:"+name, "floor").Int64()
		assert.NoError(t, err)
		return units
	}
	for name, client := range clients {
		defer client.Close()
		of := new(atomic.Int64)
		// A floor of a thousand retries.
		b := &redisstore.Budget{Client: client, Key: name, MinPerSecond: 0.1, TTL: 10_000 * time.Second}
		b.Timeout = 3 * time.Second // what is owed is lost if a busy machine takes longer to charge it
		b.Degraded = func(error) { of.Add(1) }
		budgets[name], lost[name] = b, of
		require.Eventually(t, func() bool { // on a busy machine calls may time out
			before := of.Load()
			return b.Withdraw(t.Context(), host) && of.Load() == before
		}, hang, ms, name)
	}

	server.Stop()
	before := map[string]int64{}
	var all sync.WaitGroup
	for name, b := range budgets {
		before[name] = lost[name].Load()
		all.Go(func() {
			for range 100 {
				assert.True(t, b.Withdraw(t.Context(), host), "%s: its share", name)
			}
		})
	}
	all.Wait()
	for name := range budgets {
		require.Eventually(t, func() bool { return lost[name].Load() > before[name] }, hang, ms, name)
	}

	server.Cont()
	for name, b := range budgets {
		require.Eventually(t, func() bool { return floor(name) <= 910*unit }, hang, 10*ms,
			"%s: what was spent without Redis is charged", name)
		require.Eventually(t, func() bool {
			before := floor(name)
			return b.Withdraw(t.Context(), host) && floor(name) <= before-unit/2
		}, hang, 10*ms, "%s: and what is spent later", name)
	}
}

func TestABudgetRecoversFromAKilledRedis(t *testing.T) {
	t.Parallel() // it waits for a timer
	server := redistest.Start(t)
	client := newClient(t, server)
	var lost atomic.Int64
	b := slowly(client)
	b.MinPerSecond = -1
	b.Timeout = patient // connections are refused sooner
	b.Degraded = func(err error) { lost.Add(1) }
	server.Kill()
	require.False(t, b.Withdraw(t.Context(), host))
	deposit(b, 30)
	assert.Equal(t, 3, withdrawn(b), "what its own requests earn")
	assert.Positive(t, lost.Load())
	deposit(b, 20)
	server.Restart()
	other := failing(t, slowly(newClient(t, server)))
	other.MinPerSecond = -1
	require.Eventually(t, func() bool { return other.Withdraw(t.Context(), host) }, hang, 100*ms)
	assert.True(t, b.Withdraw(t.Context(), host))
	assert.False(t, b.Withdraw(t.Context(), host))
}

func TestAServerThatMisbehavesCountsAsDown(t *testing.T) {
	for name, test := range map[string]struct {
		replies []string
		kept    int // of the 20 retries that were deposited and in flight
		sent    int // commands
		silent  bool
	}{
		"WRONGTYPE":         {[]string{redistest.WrongType}, 2, 1, false},
		"LOADING":           {[]string{redistest.Loading}, 2, 1, false},
		"READONLY":          {[]string{redistest.ReadOnly}, 2, 1, false},
		"NOSCRIPT, twice":   {[]string{redistest.NoScript}, 2, 2, false},
		"garbage":           {[]string{redistest.Garbage}, 0, 1, false},
		"silence":           {[]string{redistest.Silence}, 0, 1, true},
		"NOSCRIPT, silence": {[]string{redistest.NoScript, redistest.Silence}, 0, 2, true},
		"hang up":           {[]string{redistest.HangUp}, 0, 1, false},
		"another type":      {[]string{"+OK\r\n"}, 0, 1, false},
		"too few":           {[]string{"*1\r\n:1\r\n"}, 0, 1, false},
		"nothing":           {[]string{"$-1\r\n"}, 0, 1, false},
		"a promise":         {[]string{"*4\r\n:1\r\n"}, 0, 1, true},
		"huge numbers":      {[]string{"*4\r\n:1\r\n:99999999999999999999\r\n:0\r\n:1\r\n"}, 0, 1, false},
	} {
		t.Run(name, func(t *testing.T) {
			for began := time.Now(); ; {
				fake := redistest.NewFake(t, "*4\r\n:1\r\n:0\r\n:1\r\n:1\r\n") // granted; also answers probes
				client := redis.NewClient(&redis.Options{Addr: fake.Addr, ReadTimeout: time.Hour})
				defer client.Close()
				lost := make(chan error, 100)
				b := slowly(client)
				b.MinPerSecond = -1
				if !test.silent {
					b.Timeout = hang
				}
				b.Degraded = func(err error) { lost <- err }
				reached := b.Withdraw(t.Context(), host)
				before := len(fake.Commands())
				fake.Say(test.replies...)
				deposit(b, 20)
				kept, err := withdrawn(b), <-lost
				sent, asIs := whatWasSent(fake.Commands()[before:], test.sent)
				if (!asIs || !reached) && time.Since(began) < hang {
					continue
				}
				assert.Equal(t, test.kept, kept)
				assert.ErrorContains(t, err, "redisstore: ")
				assert.Equal(t, test.sent, sent, "sent once")
				return
			}
		})
	}
}

// whatWasSent returns how many commands of a Budget were sent. asIs is false if the machine was so
// slow that a Withdraw timed out before it was sent, or a timer sent something.
func whatWasSent(commands [][]string, most int) (sent int, asIs bool) {
	asIs = true
	for _, command := range commands {
		if len(command) < 8 { // a probe
			continue
		}
		asIs = asIs && command[7] == fmt.Sprint(unit)
		sent++
	}
	return sent, asIs && sent >= most
}

func TestABudgetDoesNotWaitForAConnection(t *testing.T) {
	server := redistest.Shared(t)
	client := redis.NewClient(&redis.Options{Addr: server.Addr, PoolSize: 1, PoolTimeout: time.Hour})
	defer client.Close()
	got := make(chan []string)
	go func() { got <- client.BLPop(context.Background(), 0, "list").Val() }()
	require.Eventually(t, func() bool {
		return client.PoolStats().TotalConns == 1 && client.PoolStats().IdleConns == 0
	}, hang, ms)
	slowly(client).Withdraw(t.Context(), host) // returns before there is a connection
	require.NoError(t, newClient(t, server).RPush(t.Context(), "list", "1").Err())
	assert.Equal(t, []string{"list", "1"}, <-got)
}

func TestABudgetOnAClusterIsExact(t *testing.T) {
	t.Parallel() // it waits for the cluster
	nodes := redistest.StartCluster(t)
	client := newClusterClient(t, nodes)
	b := failing(t, slowly(client))
	b.Key = ""
	var there, elsewhere []string // keys on the master that will be stopped, and on the others
	for i := range 10 {
		key := fmt.Sprint(host, i)
		withdrawnExactly(t, b, key, 50, 15)
		master, err := client.MasterForKey(t.Context(), "heed:host-budget:"+key)
		require.NoError(t, err)
		if master.Options().Addr == nodes[0].Addr {
			there = append(there, key)
		} else {
			elsewhere = append(elsewhere, key)
		}
	}
	require.NotEmpty(t, there)
	require.NotEmpty(t, elsewhere)

	nodes[0].Stop()
	defer nodes[0].Cont()
	var lost atomic.Int64
	later := slowly(client)
	later.Key, later.MinPerSecond, later.Degraded = "", -1, func(error) { lost.Add(1) }
	for i, key := range there {
		assert.False(t, later.Withdraw(t.Context(), key), "it has no share")
		assert.Greater(t, lost.Load(), int64(i))
	}
	for _, key := range elsewhere { // these are still counted exactly
		withdrawnExactly(t, b, key, 20, 2)
	}
}

// withdrawnExactly asserts that after so many deposits b grants want retries for key and no more. It
// waits for deposits that timers have sent.
func withdrawnExactly(t *testing.T, b *redisstore.Budget, key string, deposits, want int) {
	t.Helper()
	for range deposits {
		b.Deposit(t.Context(), key)
	}
	for n := range want {
		require.Eventually(t, func() bool { return b.Withdraw(t.Context(), key) }, hang, ms, "%s: %d", key, n)
	}
	require.False(t, b.Withdraw(t.Context(), key), key)
}

func BenchmarkDeposit(b *testing.B) {
	ctx := context.Background()
	for name, budget := range map[string]*redisstore.Budget{"Key": {Key: "orders-api"}, "host": {}} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				budget.Deposit(ctx, host)
			}
		})
		b.Run(name+"/parallel", func(b *testing.B) {
			b.ReportAllocs()
			b.RunParallel(func(pb *testing.PB) {
				for pb.Next() {
					budget.Deposit(ctx, host)
				}
			})
		})
	}
}
