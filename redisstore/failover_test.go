package redisstore_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/heedhttp/heed/internal/redistest"
	"github.com/heedhttp/heed/internal/testenv"
	"github.com/heedhttp/heed/quota"
	"github.com/heedhttp/heed/redisstore"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// A failover forgets charges that were answered and not yet replicated: fewer than were admitted in the
// last second, and no more than a bucket can owe. So in any time t with one failover at most
// 2·Burst + Quota·t/Window units are admitted, and without one Burst + Quota·t/Window.

var (
	rapid = quota.Policy{Name: "rapid", Quota: 1000, Window: time.Second, Burst: 100}

	// bottomless refills so slowly that what it owes is all that was taken.
	bottomless = quota.Policy{Name: "bottomless", Quota: 10, Window: 24 * time.Hour, Burst: 500_000}
)

// A load uses units of some keys as fast as it can.
type load struct {
	policy quota.Policy
	keys   []string
	used   map[string]*ledger
	began  time.Time
	failed atomic.Int64 // calls

	within context.Context
	stop   context.CancelFunc
	all    sync.WaitGroup
}

// A use tries to use one unit of a key. It returns when it did, or how long to wait.
type use func(key string) (at time.Time, ok bool, wait time.Duration, err error)

func newLoad(t *testing.T, policy quota.Policy, keys ...string) *load {
	l := &load{policy: policy, keys: keys, used: make(map[string]*ledger), began: time.Now()}
	l.within, l.stop = context.WithCancel(t.Context())
	for _, key := range keys {
		l.used[key] = new(ledger)
	}
	t.Cleanup(l.end)
	return l
}

// start starts goroutines that use units until the load ends.
func (l *load) start(workers int, use use) {
	for range workers {
		l.all.Go(func() {
			for l.within.Err() == nil {
				key := l.keys[rand.IntN(len(l.keys))]
				switch at, ok, wait, err := use(key); {
				case err != nil:
					l.failed.Add(1)
					time.Sleep(5 * ms)
				case ok:
					l.used[key].add(at.UnixMicro())
				default:
					time.Sleep(stated(wait, max(10*ms, wait)))
				}
			}
		})
	}
}

func (l *load) end() {
	l.stop()
	l.all.Wait()
}

// awaitUse waits until some units of key are used after since, and returns when the first was.
func (l *load) awaitUse(t *testing.T, key string, since time.Time, units int) (back time.Time) {
	t.Helper()
	require.Eventually(t, func() bool {
		used := between(l.used[key].times(), since, time.Now().Add(time.Hour))
		if len(used) > 0 {
			back = time.UnixMicro(used[0])
		}
		return len(used) > units
	}, hang, 10*time.Millisecond, "key %q is not served", key)
	return back
}

// goOn lets the load run for the stated time in the long form, and otherwise until it has used more of each
// key than a full bucket.
func (l *load) goOn(t *testing.T, stated time.Duration) {
	t.Helper()
	if testenv.Long() {
		time.Sleep(stated)
		return
	}
	now := time.Now()
	for _, key := range l.keys {
		l.awaitUse(t, key, now, int(l.policy.Burst)+100)
	}
}

// startLoad starts a load on a Store. It also counts all units that were ever used.
func startLoad(t *testing.T, client redis.UniversalClient, keys ...string) *load {
	l, s := newLoad(t, rapid, keys...), &redisstore.Store{Client: client, Timeout: slack}
	quick, deep := compile(t, rapid), compile(t, bottomless)
	l.start(16, func(key string) (at time.Time, ok bool, wait time.Duration, err error) {
		ds, err := s.Take(ctx, nil, quota.Charge{Key: key, Limit: quick}, quota.Charge{Key: key, Limit: deep})
		if err != nil {
			return at, false, 0, err
		}
		return ds[0].At, ds[0].Allowed && ds[1].Allowed, ds[0].RetryAfter, nil
	})
	return l
}

// forgotten returns how many units of key were used that Redis does not count.
func (l *load) forgotten(t *testing.T, client redis.UniversalClient, key string) int64 {
	t.Helper()
	var ds []quota.Decision
	s := &redisstore.Store{Client: client, Timeout: patient}
	require.Eventually(t, func() (ok bool) {
		var err error
		ds, err = s.Peek(ctx, nil, quota.Charge{Key: key, Limit: compile(t, bottomless)})
		return err == nil
	}, hang, 10*time.Millisecond)
	return max(0, int64(len(l.used[key].times()))-(bottomless.Burst-ds[0].Remaining))
}

// judge checks key. Its master was lost at whole, and was replaced at back. Before it died, it answered
// for the time cutOff without replicas.
func (l *load) judge(t *testing.T, client redis.UniversalClient, key string, whole, back time.Time, cutOff time.Duration) {
	t.Helper()
	used := l.used[key].times()
	before, after := between(used, time.Time{}, whole), between(used, back, time.Now())
	assert.NotEmpty(t, before)
	assert.Zero(t, excess(before, rapid))
	assert.Zero(t, excess(after, rapid))
	assert.LessOrEqual(t, excess(used, rapid), rapid.Burst+rapidIn(cutOff))
	forgotten, last := l.forgotten(t, client, key), len(between(used, whole.Add(-time.Second), back))
	if testenv.Long() { // the lag of a replica depends on the machine
		assert.LessOrEqual(t, forgotten, int64(last))
	}
	const format = "%q: %d units used, %d of them up to a second before the end; served again %v after it; " +
		"%d forgotten; %d more than Burst + Quota·t/Window"
	t.Logf(format,
		key, len(used), last, back.Sub(whole).Round(time.Millisecond), forgotten, excess(used, rapid))
}

// judgeMany checks a key that several masters have had, one after the other or at the same time: a busy
// server is replaced although it lives. Each master keeps to the limit by itself.
func (l *load) judgeMany(t *testing.T, key string, masters int) {
	t.Helper()
	used := l.used[key].times()
	most := int64(masters) * (rapid.Burst + rapidIn(time.Since(l.began)))
	assert.LessOrEqual(t, int64(len(used)), most)
	more := excess(used, rapid)
	if testenv.Long() { // on an idle machine they agree soon
		const disagreement = 5 * time.Second
		assert.LessOrEqual(t, more, rapid.Burst+rapidIn(disagreement))
	}
	t.Logf("%q: %d masters, %d units used, %d more than Burst + Quota·t/Window", key, masters, len(used), more)
}

// rapidIn returns how many units rapid refills in a time.
func rapidIn(d time.Duration) int64 { return 1 + rapid.Quota*int64(d)/int64(rapid.Window) }

// ends are the ways to lose a master. They return how long it still answered without replicas.
var ends = map[string]func(*testing.T, *redistest.Server) (cutOff time.Duration){
	"dies":                 func(_ *testing.T, master *redistest.Server) time.Duration { master.Kill(); return 0 },
	"hangs":                func(_ *testing.T, master *redistest.Server) time.Duration { master.Stop(); return 0 },
	"is cut off, and dies": cutOffAndKill,
}

// cutOffAndKill keeps replicas away from a master for 300 ms and then kills it, so that the charges of
// that time are forgotten.
func cutOffAndKill(t *testing.T, master *redistest.Server) (cutOff time.Duration) {
	client := newClient(t, master)
	start := time.Now()
	require.NoError(t, client.ConfigSet(ctx, "requirepass", "secret").Err())
	require.NoError(t, client.ClientKillByFilter(ctx, "TYPE", "replica").Err())
	time.Sleep(300 * time.Millisecond)
	master.Kill()
	return time.Since(start)
}

// epochOf returns the number after name in the replies of nodes to a command, as the node says that knows most.
// It counts elections: each leader may have promoted a replica.
func epochOf(t *testing.T, nodes []*redistest.Server, name string, command ...string) (most int) {
	for _, node := range nodes {
		reply, err := node.Do(command...)
		require.NoError(t, err)
		_, rest, _ := strings.Cut(reply, name)
		var epoch int
		_, err = fmt.Sscan(rest, &epoch)
		require.NoError(t, err)
		most = max(most, epoch)
	}
	return most
}

// If the Sentinels promote two replicas, there are two masters until they agree, each with the whole limit.
func TestTheLimitHoldsAfterAFailoverBySentinels(t *testing.T) {
	mostlyWaits(t)
	atOnce(t, ends, func(t *testing.T, end func(*testing.T, *redistest.Server) time.Duration) {
		s := redistest.StartSentinel(t)
		elections := func() int { return epochOf(t, s.Sentinels, "config-epoch", "SENTINEL", "MASTER", s.Name) }
		client := redis.NewFailoverClient(&redis.FailoverOptions{MasterName: s.Name, SentinelAddrs: s.Addrs()})
		defer client.Close()
		l := startLoad(t, client, "key")
		l.goOn(t, 20*time.Second)
		require.Zero(t, elections())
		whole := time.Now()
		cutOff := end(t, s.Master)
		s.Watch()
		back := l.awaitUse(t, "key", time.Now(), 50)
		l.goOn(t, 40*time.Second)
		l.end()
		defer everyKeyExpires(t, client)
		t.Logf("%d calls had no answer", l.failed.Load())
		if n := elections(); n > 1 {
			l.judgeMany(t, "key", 1+n)
			return
		}
		l.judge(t, client, "key", whole, back, cutOff)
	})
}

func TestTheLimitHoldsAfterAFailoverInACluster(t *testing.T) {
	mostlyWaits(t)
	atOnce(t, ends, func(t *testing.T, end func(*testing.T, *redistest.Server) time.Duration) {
		masters, replicas := redistest.StartReplicatedCluster(t)
		elected := func(nodes ...*redistest.Server) int { // each master starts with an epoch of its own
			return epochOf(t, nodes, "cluster_current_epoch:", "CLUSTER", "INFO") - 3
		}
		client := redis.NewClusterClient(&redis.ClusterOptions{Addrs: addrs(append(masters, replicas...)),
			// Otherwise it may wait long for a suspended node to name the new master.
			ReadTimeout: 500 * time.Millisecond})
		defer client.Close()
		l := startLoad(t, client, "a", "b", "c", "d", "e", "f")
		l.goOn(t, 20*time.Second)
		orphans := servedBy(t, masters[0])
		require.NotEmpty(t, orphans)
		require.Zero(t, elected(masters...))
		whole := time.Now()
		cutOff := end(t, masters[0])
		redistest.Watch(append(masters[1:], replicas...)...)
		lost, back := time.Now(), make(map[string]time.Time)
		for _, key := range l.keys {
			back[key] = l.awaitUse(t, key, lost, 50)
		}
		l.goOn(t, 40*time.Second)
		l.end()
		t.Logf("%d calls had no answer", l.failed.Load())
		for _, node := range []*redistest.Server{replicas[0], masters[1], masters[2]} {
			everyKeyExpires(t, newClient(t, node))
		}
		if n := elected(replicas[0], masters[1], masters[2]); n > 1 && !testenv.Long() {
			for _, key := range l.keys {
				l.judgeMany(t, key, 1+n)
			}
			return
		}
		for _, key := range l.keys {
			if slices.Contains(orphans, key) {
				l.judge(t, client, key, whole, back[key], cutOff)
				continue
			}
			assert.Zero(t, excess(l.used[key].times(), rapid), "key %q, whose master lives", key)
			assert.Zero(t, l.forgotten(t, client, key), "key %q, whose master lives", key)
		}
	})
}

// servedBy returns the keys of a master.
func servedBy(t *testing.T, master *redistest.Server) (keys []string) {
	names, err := newClient(t, master).Keys(ctx, "*").Result()
	require.NoError(t, err)
	for _, name := range names {
		keys = append(keys, strings.TrimPrefix(name, "heed:quota:2:"))
	}
	return keys
}

func addrs(nodes []*redistest.Server) (addrs []string) {
	for _, node := range nodes {
		addrs = append(addrs, node.Addr)
	}
	return addrs
}
