package redisstore_test

import (
	"context"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/heedhttp/heed/internal/redistest"
	"github.com/heedhttp/heed/quota"
	"github.com/heedhttp/heed/redisstore"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// What a failover forgets are the charges that were answered and not yet
// replicated. That is less than was admitted in the last second, and no more than
// a bucket can owe: so in any time t with a failover in it at most
// 2·Burst + Quota·t/Window units are admitted, and without one Burst + Quota·t/Window.

var (
	rapid = quota.Policy{Name: "rapid", Quota: 1000, Window: time.Second, Burst: 100}

	// bottomless is hardly given anything back: what it owes is all that was taken.
	bottomless = quota.Policy{Name: "bottomless", Quota: 10, Window: 24 * time.Hour, Burst: 500_000}
)

// A load takes units of some keys as fast as it may.
type load struct {
	store *redisstore.Store
	keys  []string
	used  map[string]*ledger

	unanswered atomic.Int64
	stop       context.CancelFunc
	all        sync.WaitGroup
}

// startLoad has 16 goroutines take units until the load is ended.
func startLoad(t *testing.T, client redis.UniversalClient, keys ...string) *load {
	within, stop := context.WithCancel(t.Context())
	l := &load{store: &redisstore.Store{Client: client, Timeout: slack}, keys: keys, used: make(map[string]*ledger), stop: stop}
	for _, key := range keys {
		l.used[key] = new(ledger)
	}
	quick, deep := compile(t, rapid), compile(t, bottomless)
	for range 16 {
		l.all.Go(func() {
			for within.Err() == nil {
				key := keys[rand.IntN(len(keys))]
				l.take(key, quota.Charge{Key: key, Limit: quick}, quota.Charge{Key: key, Limit: deep})
			}
		})
	}
	t.Cleanup(l.end)
	return l
}

// take makes charges of key, and waits a little if it cannot.
func (l *load) take(key string, charges ...quota.Charge) {
	ds, err := l.store.Take(ctx, nil, charges...)
	switch {
	case err != nil:
		l.unanswered.Add(1)
		time.Sleep(5 * time.Millisecond)
	case ds[0].Allowed && ds[1].Allowed:
		l.used[key].add(ds[0].At.UnixMicro())
	default:
		time.Sleep(ds[0].RetryAfter)
	}
}

func (l *load) end() {
	l.stop()
	l.all.Wait()
}

// awaitUse waits until a unit of key is used after a moment, and returns when.
func (l *load) awaitUse(t *testing.T, key string, lost time.Time) (back time.Time) {
	t.Helper()
	require.Eventually(t, func() bool {
		used := between(l.used[key].times(), lost, time.Now())
		if len(used) > 0 {
			back = time.UnixMicro(used[0])
		}
		return len(used) > 0
	}, 30*time.Second, 10*time.Millisecond, "key %q is not served again", key)
	return back
}

// forgotten is how many units of key were used that nobody knows of any more.
func (l *load) forgotten(t *testing.T, key string) int64 {
	t.Helper()
	var ds []quota.Decision
	require.Eventually(t, func() (ok bool) {
		var err error
		ds, err = l.store.Peek(ctx, nil, quota.Charge{Key: key, Limit: compile(t, bottomless)})
		return err == nil
	}, 5*time.Second, 10*time.Millisecond)
	return max(0, int64(len(l.used[key].times()))-(bottomless.Burst-ds[0].Remaining))
}

// judge checks key, whose master was whole until a moment, and back from another on.
func (l *load) judge(t *testing.T, key string, whole, back time.Time) {
	t.Helper()
	used := l.used[key].times()
	before, after := between(used, time.Time{}, whole), between(used, back, time.Now())
	assert.NotEmpty(t, before)
	assert.Zero(t, excess(before, rapid))
	assert.Zero(t, excess(after, rapid))
	assert.LessOrEqual(t, excess(used, rapid), rapid.Burst)
	forgotten, last := l.forgotten(t, key), len(between(used, whole.Add(-time.Second), back))
	assert.LessOrEqual(t, forgotten, int64(last))
	t.Logf("%q: %d units used, %d of them up to a second before the end; served again %v after it; %d forgotten; %d more than Burst + Quota·t/Window",
		key, len(used), last, back.Sub(whole).Round(time.Millisecond), forgotten, excess(used, rapid))
}

// ends are the ways in which a master is lost.
var ends = map[string]func(*testing.T, *redistest.Server){
	"dies":                 func(_ *testing.T, master *redistest.Server) { master.Kill() },
	"hangs":                func(_ *testing.T, master *redistest.Server) { master.Stop() },
	"is cut off, and dies": dieAlone,
}

// dieAlone has a master go on for 300 ms without its replicas, which it does not let
// in again, and then die: what it was told in that time is forgotten.
func dieAlone(t *testing.T, master *redistest.Server) {
	client := newClient(t, master)
	require.NoError(t, client.ConfigSet(ctx, "requirepass", "secret").Err())
	require.NoError(t, client.ClientKillByFilter(ctx, "TYPE", "replica").Err())
	time.Sleep(300 * time.Millisecond)
	master.Kill()
}

func TestAfterAFailoverBySentinelsTheLimitHoldsAgain(t *testing.T) {
	for name, end := range ends {
		t.Run(name, func(t *testing.T) { failOver(t, end) })
	}
}

// elections is how many times the Sentinels have elected one of them, as the one that
// knows of most says: each of these may have promoted a replica.
func elections(t *testing.T, s *redistest.Sentinel) (most int) {
	for _, addr := range s.Addrs() {
		client := redis.NewSentinelClient(&redis.Options{Addr: addr})
		master, err := client.Master(ctx, s.Name).Result()
		client.Close()
		require.NoError(t, err)
		epoch, err := strconv.Atoi(master["config-epoch"])
		require.NoError(t, err)
		most = max(most, epoch)
	}
	return most
}

// failOver ends a master. If the Sentinels promote two replicas, there are two masters
// until they agree, each of which keeps to the limit by itself.
func failOver(t *testing.T, end func(*testing.T, *redistest.Server)) {
	s := redistest.StartSentinel(t)
	client := redis.NewFailoverClient(&redis.FailoverOptions{MasterName: s.Name, SentinelAddrs: s.Addrs()})
	defer client.Close()
	l := startLoad(t, client, "key")
	time.Sleep(stated(20*time.Second, 500*time.Millisecond))
	whole := time.Now()
	end(t, s.Master)
	back := l.awaitUse(t, "key", time.Now())
	time.Sleep(stated(40*time.Second, 500*time.Millisecond))
	l.end()
	defer everyKeyExpires(t, client)
	t.Logf("%d calls had no answer", l.unanswered.Load())
	n := elections(t, s)
	if n == 1 {
		l.judge(t, "key", whole, back)
		return
	}
	const disagreement = 5 // seconds
	more := excess(l.used["key"].times(), rapid)
	t.Logf("%d elections of Sentinels: %d units forgotten, %d more than Burst + Quota·t/Window", n, l.forgotten(t, "key"), more)
	assert.LessOrEqual(t, more, rapid.Burst+disagreement*rapid.Quota*int64(time.Second)/int64(rapid.Window))
}

func TestAfterAReplicaTookOverInAClusterTheLimitHoldsAgain(t *testing.T) {
	for name, end := range ends {
		t.Run(name, func(t *testing.T) {
			masters, replicas := redistest.StartReplicatedCluster(t)
			client := redis.NewClusterClient(&redis.ClusterOptions{Addrs: addrs(append(masters, replicas...)),
				ReadTimeout: 500 * time.Millisecond}) // or it may wait long for the one that hangs to say who is there
			defer client.Close()
			l := startLoad(t, client, "a", "b", "c", "d", "e", "f")
			time.Sleep(stated(20*time.Second, 500*time.Millisecond))
			orphans := servedBy(t, masters[0])
			require.NotEmpty(t, orphans)
			whole := time.Now()
			end(t, masters[0])
			lost, back := time.Now(), make(map[string]time.Time)
			for _, key := range l.keys {
				back[key] = l.awaitUse(t, key, lost)
			}
			time.Sleep(stated(40*time.Second, 500*time.Millisecond))
			l.end()
			for _, key := range l.keys {
				if slices.Contains(orphans, key) {
					l.judge(t, key, whole, back[key])
					continue
				}
				assert.Zero(t, excess(l.used[key].times(), rapid), "key %q, whose master lives", key)
				assert.Zero(t, l.forgotten(t, key), "key %q, whose master lives", key)
			}
			for _, node := range []*redistest.Server{replicas[0], masters[1], masters[2]} {
				everyKeyExpires(t, newClient(t, node))
			}
			t.Logf("%d calls had no answer", l.unanswered.Load())
		})
	}
}

// servedBy returns the keys that a master has.
func servedBy(t *testing.T, master *redistest.Server) (keys []string) {
	names, err := newClient(t, master).Keys(ctx, "*").Result()
	require.NoError(t, err)
	for _, name := range names {
		keys = append(keys, strings.TrimPrefix(name, "heed:quota:"))
	}
	return keys
}

func addrs(nodes []*redistest.Server) (addrs []string) {
	for _, node := range nodes {
		addrs = append(addrs, node.Addr)
	}
	return addrs
}
