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

// slowly is a Budget whose floor, ten retries, does not refill during a test.
func slowly(client redis.UniversalClient) *redisstore.Budget {
	return &redisstore.Budget{Client: client, Key: "orders-api", MinPerSecond: 0.001, TTL: 10_000 * time.Second}
}

// failing fails the test if b loses Redis, for which it has more time than usual:
// the machine may be slow.
func failing(t testing.TB, b *redisstore.Budget) *redisstore.Budget {
	b.Timeout = 10 * time.Second
	b.Degraded = func(err error) {
		if t.Context().Err() == nil { // else its client is being closed
			t.Errorf("degraded: %v", err)
		}
	}
	return b
}

func TestAThousandRequestsEarnAHundredRetriesAndTheFloorTen(t *testing.T) {
	b := failing(t, slowly(newClient(t, redistest.Start(t))))
	deposit(b, 1000)
	assert.Equal(t, 110, withdrawn(b))
	b.Refund(t.Context(), host)
	assert.Equal(t, 1, withdrawn(b))
}

func TestTwoBudgetsShareOneRatioAndOneFloor(t *testing.T) {
	server := redistest.Start(t)
	a, b := failing(t, slowly(newClient(t, server))), failing(t, slowly(newClient(t, server)))
	deposit(a, 503)
	deposit(b, 497)
	got := 0
	for range 20 { // both bring what they have, and take turns
		for _, each := range []*redisstore.Budget{a, b} {
			if each.Withdraw(t.Context(), host) {
				got++
			}
		}
	}
	assert.Equal(t, 110, got+withdrawn(a)+withdrawn(b))
}

func TestOneBudgetSeesWhatAnotherEarnedWithinASecond(t *testing.T) {
	server := redistest.Start(t)
	a, b := failing(t, slowly(newClient(t, server))), failing(t, slowly(newClient(t, server)))
	require.Equal(t, 10, withdrawn(b))
	deposit(a, 50)
	require.Equal(t, 0, withdrawn(b))
	got := 0
	for began := time.Now(); got < 5 && time.Since(began) < time.Second+busy; time.Sleep(20 * time.Millisecond) {
		got += withdrawn(b)
	}
	assert.Equal(t, 5, got)
	assert.Zero(t, withdrawn(b))
}

func TestConcurrentWithdrawalsAreCountedExactly(t *testing.T) {
	server := redistest.Start(t)
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
	got := granted.Load() + int64(withdrawn(budgets[0])+withdrawn(budgets[1]))
	assert.EqualValues(t, 1000/10+10, got)
}

func TestDepositsExpireAndTheHashGoes(t *testing.T) {
	client := newClient(t, redistest.Start(t))
	b := failing(t, &redisstore.Budget{Client: client, MinPerSecond: -1, TTL: 200 * time.Millisecond})
	deposit(b, 20)
	require.True(t, b.Withdraw(t.Context(), host))
	require.Len(t, client.Keys(t.Context(), "*").Val(), 1)
	time.Sleep(250 * time.Millisecond)
	assert.Empty(t, client.Keys(t.Context(), "*").Val())
	assert.False(t, b.Withdraw(t.Context(), host))
}

func TestNoKeyIsWithoutTTL(t *testing.T) {
	client := newClient(t, redistest.Start(t))
	ctx := t.Context()
	b := failing(t, &redisstore.Budget{Client: client})
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

func TestFlushedServerIsNoError(t *testing.T) {
	client := newClient(t, redistest.Start(t))
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

// soon is far less than what go-redis would wait by itself. That it is no more than
// Timeout is shown where a machine that is busy adds nothing: in a bubble.
const soon = timeout + busy

func TestStoppedRedisIsLeftInTimeAndFoundAgain(t *testing.T) {
	for name, connect := range map[string]func(redistest.Server) redis.UniversalClient{
		"client": func(s redistest.Server) redis.UniversalClient {
			return redis.NewClient(&redis.Options{Addr: s.Addr})
		},
		"without a connection yet": func(s redistest.Server) redis.UniversalClient {
			return redis.NewClient(&redis.Options{Addr: s.Addr, ConnMaxIdleTime: time.Nanosecond})
		},
		"ring": func(s redistest.Server) redis.UniversalClient {
			return redis.NewRing(&redis.RingOptions{Addrs: map[string]string{"a": s.Addr}})
		},
	} {
		t.Run(name, func(t *testing.T) {
			server := redistest.Start(t)
			client := connect(*server)
			defer client.Close()
			var lost atomic.Int64
			b := slowly(client)
			b.Timeout = slack // since a machine that is busy must not lose a Redis that is there
			b.Degraded = func(error) { lost.Add(1) }
			require.True(t, b.Withdraw(t.Context(), host))
			require.Zero(t, lost.Load())

			server.Stop()
			began := time.Now()
			require.True(t, b.Withdraw(t.Context(), host), "its share of nine")
			assert.Less(t, time.Since(began), soon)
			assert.EqualValues(t, 1, lost.Load())
			began = time.Now()
			assert.Equal(t, 8, withdrawn(b))
			assert.Less(t, time.Since(began), 8*timeout, "it does not wait for each")

			server.Cont()
			require.Eventually(t, func() bool {
				floor, err := newClient(t, server).HGet(t.Context(), "heed:budget:orders-api", "floor").Int64()
				return err == nil && floor < unit
			}, 5*time.Second, 100*time.Millisecond, "what was spent alone is charged")
			before := lost.Load()
			observer := failing(t, slowly(newClient(t, server)))
			deposit(observer, 20)
			require.True(t, observer.Withdraw(t.Context(), host))
			assert.True(t, b.Withdraw(t.Context(), host), "what the other earned")
			assert.Equal(t, before, lost.Load())
		})
	}
}

func TestKilledRedisIsLeftWithin50msAndFoundAgain(t *testing.T) {
	server := redistest.Start(t)
	client := newClient(t, server)
	var lost atomic.Int64
	b := slowly(client)
	b.MinPerSecond = -1
	b.Degraded = func(err error) { lost.Add(1) }
	server.Kill()
	began := time.Now()
	require.False(t, b.Withdraw(t.Context(), host))
	deposit(b, 30)
	assert.Equal(t, 3, withdrawn(b), "what its own requests earn")
	assert.Less(t, time.Since(began), soon)
	assert.EqualValues(t, 1, lost.Load())
	deposit(b, 20)
	server.Restart()
	other := failing(t, slowly(newClient(t, server)))
	other.MinPerSecond = -1
	require.Eventually(t, func() bool { return other.Withdraw(t.Context(), host) }, 5*time.Second, 100*time.Millisecond)
	assert.True(t, b.Withdraw(t.Context(), host))
	assert.False(t, b.Withdraw(t.Context(), host))
}

func TestServerThatMisbehavesIsLostWithin50ms(t *testing.T) {
	for name, test := range map[string]struct {
		replies []string
		kept    int // retries of the 20 deposits that were on their way
		sent    int // commands
	}{
		"WRONGTYPE":         {[]string{redistest.WrongType}, 2, 1},
		"LOADING":           {[]string{redistest.Loading}, 2, 1},
		"READONLY":          {[]string{redistest.ReadOnly}, 2, 1},
		"NOSCRIPT, twice":   {[]string{redistest.NoScript}, 2, 2},
		"garbage":           {[]string{redistest.Garbage}, 0, 1},
		"silence":           {[]string{redistest.Silence}, 0, 1},
		"NOSCRIPT, silence": {[]string{redistest.NoScript, redistest.Silence}, 0, 2},
		"hang up":           {[]string{redistest.HangUp}, 0, 1},
		"another type":      {[]string{"+OK\r\n"}, 0, 1},
		"too few":           {[]string{"*1\r\n:1\r\n"}, 0, 1},
		"nothing":           {[]string{"$-1\r\n"}, 0, 1},
		"a promise":         {[]string{"*4\r\n:1\r\n"}, 0, 1},
		"huge numbers":      {[]string{"*4\r\n:1\r\n:99999999999999999999\r\n:0\r\n:1\r\n"}, 0, 1},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			fake := redistest.NewFake(t, test.replies...)
			client := redis.NewClient(&redis.Options{Addr: fake.Addr})
			defer client.Close()
			lost := make(chan error, 100)
			b := slowly(client)
			b.Degraded = func(err error) { lost <- err }
			deposit(b, 20)
			began := time.Now()
			assert.Equal(t, test.kept, withdrawn(b))
			assert.Less(t, time.Since(began), soon)
			assert.ErrorContains(t, <-lost, "redisstore: ")
			assert.Len(t, fake.Commands(), test.sent, "sent once")
		})
	}
}

func TestBudgetWaitsForNoConnection(t *testing.T) {
	server := redistest.Start(t)
	client := redis.NewClient(&redis.Options{Addr: server.Addr, PoolSize: 1})
	defer client.Close()
	blocked := make(chan struct{})
	go func() { client.BLPop(context.Background(), time.Second, "never"); close(blocked) }()
	require.Eventually(t, func() bool { return client.PoolStats().TotalConns == 1 && client.PoolStats().IdleConns == 0 },
		time.Second, time.Millisecond)
	began := time.Now()
	slowly(client).Withdraw(t.Context(), host)
	assert.Less(t, time.Since(began), soon)
	<-blocked
}

func TestBudgetOnAClusterIsExactAndLosesOnlyWhatIsLost(t *testing.T) {
	nodes := redistest.StartCluster(t)
	client := newClusterClient(t, nodes)
	b := failing(t, slowly(client))
	b.Key = ""
	var there, elsewhere []string // on the master that will be stopped, or not
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
	quick := slowly(client)
	quick.Key, quick.Degraded = "", func(error) { lost.Add(1) }
	for i, key := range there {
		began := time.Now()
		assert.False(t, quick.Withdraw(t.Context(), key), "it knows of no share")
		assert.Less(t, time.Since(began), soon)
		assert.Greater(t, lost.Load(), int64(i))
	}
	for _, key := range elsewhere { // go on, exactly
		withdrawnExactly(t, b, key, 20, 2)
	}
}

// withdrawnExactly asserts that after so many deposits b grants want retries for key,
// and no more.
func withdrawnExactly(t *testing.T, b *redisstore.Budget, key string, deposits, want int) {
	t.Helper()
	for range deposits {
		b.Deposit(t.Context(), key)
	}
	for n := range want {
		require.True(t, b.Withdraw(t.Context(), key), "%s: %d", key, n)
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
