package redisstore_test

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http/httptest"
	"strconv"
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

// A farRedis is one behind a network that a test makes slow and bad.
type farRedis struct {
	servers []*redistest.Server
	proxies map[string]*redistest.Proxy // by the address that a client asks for
	client  func() redis.UniversalClient
}

// throughProxies is a farRedis of servers, each behind a Proxy.
func throughProxies(t *testing.T, servers ...*redistest.Server) *farRedis {
	f := &farRedis{servers: servers, proxies: make(map[string]*redistest.Proxy)}
	for _, server := range servers {
		f.proxies[server.Addr] = redistest.NewProxy(t, server.Addr)
	}
	return f
}

// dial connects to addr through its Proxy. It is the Dialer of clients that Redis tells
// where its servers are.
func (f *farRedis) dial(ctx context.Context, network, addr string) (net.Conn, error) {
	return new(net.Dialer).DialContext(ctx, network, f.proxies[addr].Addr())
}

func (f *farRedis) each(do func(*redistest.Proxy)) {
	for _, p := range f.proxies {
		do(p)
	}
}

// executed is how many scripts the servers were sent.
func (f *farRedis) executed(t *testing.T) (n int) {
	for _, server := range f.servers {
		stats, err := server.Do("INFO", "commandstats")
		require.NoError(t, err)
		for line := range strings.Lines(stats) {
			name, counts, _ := strings.Cut(line, ":calls=")
			if name == "cmdstat_evalsha" || name == "cmdstat_eval" {
				calls, _, _ := strings.Cut(counts, ",")
				count, err := strconv.Atoi(calls)
				require.NoError(t, err)
				n += count
			}
		}
	}
	return n
}

// farClients are the ways to reach a farRedis, with the options that a client has by default.
var farClients = map[string]func(t *testing.T) *farRedis{
	"Addr": func(t *testing.T) *farRedis {
		server := redistest.Shared(t)
		f := throughProxies(t, server)
		f.client = func() redis.UniversalClient {
			return redis.NewClient(&redis.Options{Addr: f.proxies[server.Addr].Addr()})
		}
		return f
	},
	"FromEnv": func(t *testing.T) *farRedis {
		server := redistest.Shared(t)
		f := throughProxies(t, server)
		f.client = func() redis.UniversalClient {
			s, err := redisstore.FromEnvOr("redis://" + f.proxies[server.Addr].Addr())
			require.NoError(t, err)
			return s.Client
		}
		return f
	},
	"TLS": func(t *testing.T) *farRedis {
		server := redistest.Shared(t)
		addr, config := terminateTLS(t, server.Addr)
		p := redistest.NewProxy(t, addr)
		f := &farRedis{servers: []*redistest.Server{server}, proxies: map[string]*redistest.Proxy{addr: p}}
		f.client = func() redis.UniversalClient {
			return redis.NewClient(&redis.Options{Addr: p.Addr(), TLSConfig: config})
		}
		return f
	},
	"Sentinel": func(t *testing.T) *farRedis {
		all := redistest.StartSentinel(t)
		f := throughProxies(t, append(append(all.Replicas, all.Master), all.Sentinels...)...)
		f.servers = []*redistest.Server{all.Master}
		f.client = func() redis.UniversalClient {
			return redis.NewFailoverClient(&redis.FailoverOptions{
				MasterName: all.Name, SentinelAddrs: all.Addrs(), Dialer: f.dial,
			})
		}
		return f
	},
	"Cluster": func(t *testing.T) *farRedis {
		nodes := redistest.SharedCluster(t)
		f := throughProxies(t, nodes...)
		f.client = func() redis.UniversalClient {
			return redis.NewClusterClient(&redis.ClusterOptions{Addrs: []string{nodes[0].Addr}, Dialer: f.dial})
		}
		return f
	},
}

// terminateTLS serves TLS in front of a server without, and returns where and how to
// trust it.
func terminateTLS(t *testing.T, server string) (addr string, client *tls.Config) {
	t.Helper()
	certificates := httptest.NewTLSServer(nil)
	defer certificates.Close()
	l, err := tls.Listen("tcp", "127.0.0.1:0", &tls.Config{Certificates: certificates.TLS.Certificates})
	require.NoError(t, err)
	t.Cleanup(func() { l.Close() })
	go func() {
		for {
			outer, err := l.Accept()
			if err != nil {
				return
			}
			inner, err := net.Dial("tcp", server)
			if err != nil {
				outer.Close()
				continue
			}
			for _, pair := range [][2]net.Conn{{outer, inner}, {inner, outer}} {
				go func() {
					io.Copy(pair[0], pair[1])
					outer.Close()
					inner.Close()
				}()
			}
		}
	}()
	trusted := x509.NewCertPool()
	trusted.AddCert(certificates.Certificate())
	return l.Addr().String(), &tls.Config{RootCAs: trusted, ServerName: "example.com"}
}

// A farCall is something that Redis is asked for, with a limit of time for each call of it.
type farCall struct {
	timeout time.Duration
	// open returns what asks once and says how long that took, and what ends it.
	open func(t *testing.T, f *farRedis) (ask func() (time.Duration, error), end func())
}

const usual = 50 * time.Millisecond // the Timeout of most

var farCalls = map[string]farCall{
	"Take": {usual, func(t *testing.T, f *farRedis) (func() (time.Duration, error), func()) {
		s := &redisstore.Store{Client: f.client()}
		charge := quota.Charge{Key: fresh(), Limit: compile(t, quota.PerDay(1_000_000))}
		return func() (time.Duration, error) {
			begin := time.Now()
			_, err := s.Take(ctx, nil, charge)
			return time.Since(begin), err
		}, func() { s.Client.Close() }
	}},
	"Acquire": {usual, func(t *testing.T, f *farRedis) (func() (time.Duration, error), func()) {
		s, key := &redisstore.Store{Client: f.client()}, fresh()
		return func() (time.Duration, error) {
			begin := time.Now()
			hold, d, err := s.Acquire(ctx, key, 1000, 1)
			took := time.Since(begin)
			if err == nil && !d.Allowed {
				err = errors.New("no place is free")
			}
			begin = time.Now()
			hold.Release()
			return max(took, time.Since(begin)), err
		}, func() { s.Client.Close() }
	}},
	"Withdraw": {usual, func(t *testing.T, f *farRedis) (func() (time.Duration, error), func()) {
		var lost atomic.Pointer[error]
		degraded := func(err error) { lost.Store(&err) }
		b := &redisstore.Budget{Client: f.client(), Key: fresh(), MinPerSecond: 1000, Degraded: degraded}
		return func() (time.Duration, error) {
			begin := time.Now()
			granted := b.Withdraw(ctx, host)
			took := time.Since(begin)
			if err := lost.Swap(nil); err != nil {
				return took, *err
			}
			if !granted {
				return took, errors.New("not granted")
			}
			return took, nil
		}, func() { b.Client.Close() }
	}},
	"Post": {usual, func(t *testing.T, f *farRedis) (func() (time.Duration, error), func()) {
		prefix := fresh()
		here := &redisstore.Board{Client: f.client(), Prefix: prefix}
		there := &redisstore.Board{Client: f.client(), Prefix: prefix}
		left(t, there, host) // it begins to follow
		return func() (time.Duration, error) {
			key, begin := fresh(), time.Now()
			err := here.Post(ctx, key, time.Minute, 0)
			took := time.Since(begin)
			for began := time.Now(); err == nil && left(t, there, key) == 0; time.Sleep(ms) {
				if time.Since(began) > time.Second {
					err = errors.New("the other did not hear of it")
				}
			}
			return took, err
		}, func() { here.Close(); there.Close(); here.Client.Close(); there.Client.Close() }
	}},
	"Limits": {usual, func(t *testing.T, f *farRedis) (func() (time.Duration, error), func()) {
		l := &redisstore.Limits{Client: f.client()}
		return func() (time.Duration, error) {
			key, begin := fresh(), time.Now() // whose limits are not known yet
			_, err := l.Limits(ctx, key)
			return time.Since(begin), err
		}, func() { l.Close(); l.Client.Close() }
	}},
	"Read": {time.Second, func(t *testing.T, f *farRedis) (func() (time.Duration, error), func()) {
		d := &redisstore.Document{Client: f.client()}
		for _, server := range f.servers {
			server.Do("SET", "heed:rules", "rules: []") // of a cluster only one server does
		}
		return func() (time.Duration, error) {
			begin := time.Now()
			_, err := d.Read(ctx)
			return time.Since(begin), err
		}, func() { d.Client.Close() }
	}},
}

var lastFresh atomic.Int64

// fresh is a key that nobody has used.
func fresh() string { return fmt.Sprint("key ", lastFresh.Add(1)) }

// slackOfAMachine is how much longer than its Timeout a call may take on a busy machine.
const slackOfAMachine = time.Second

// A Redis that is 1 to 40 ms away is used by default, from the first second on; one that
// is gone costs no call more than its Timeout, and it is used again when it is back.
func TestAFarRedisIsUsedByDefault(t *testing.T) {
	// 20 ms leave a call 10 ms for all else, which a machine that is busy may not have.
	delays := stated([]time.Duration{ms / 2, 5 * ms, 10 * ms, 20 * ms}, []time.Duration{10 * ms})
	for by, reach := range farClients {
		for what, call := range farCalls {
			if by != "Addr" && what != "Take" && !testenv.Long() {
				continue
			}
			t.Run(by+" "+what, func(t *testing.T) {
				t.Parallel() // it mostly waits
				f := reach(t)
				for _, delay := range delays {
					f.each(func(p *redistest.Proxy) { p.SetDelay(delay) })
					var err error
					for range 5 { // a machine that is busy may be late for a second or two
						if err = f.survives(t, call, delay); err == nil {
							break
						}
						t.Logf("%v: %v", delay, err)
					}
					require.NoError(t, err, delay)
				}
			})
		}
	}
}

// survives has Redis asked for something while the network is well, broken, and well again.
func (f *farRedis) survives(t *testing.T, call farCall, delay time.Duration) error {
	ask, end := call.open(t, f)
	defer end()
	begin := time.Now()
	longest, _ := ask()
	time.Sleep(time.Second - time.Since(begin))

	well := askCalmly(ask)
	longest = max(longest, well.longest)
	if well.failed > 5 {
		return fmt.Errorf("of 200 calls %d failed, the last: %w", well.failed, well.last)
	}
	f.each(func(p *redistest.Proxy) { p.Swallow(true) })
	broken := askCalmly(ask)
	longest = max(longest, broken.longest)
	f.each(func(p *redistest.Proxy) { p.Swallow(false) })

	before, back := f.executed(t), time.Now()
	for {
		took, err := ask()
		longest = max(longest, took)
		if err == nil && f.executed(t) > before {
			break
		}
		if time.Since(back) > 2*time.Second {
			return fmt.Errorf("not used again within 2 s, the last: %v", err)
		}
		time.Sleep(10 * ms)
	}
	t.Logf("%v away: %d of 200 failed, %d while nothing came through; used again after %v; the longest call took %v",
		2*delay, well.failed, broken.failed, time.Since(back), longest)
	if longest > call.timeout+slackOfAMachine {
		return fmt.Errorf("a call took %v", longest)
	}
	return nil
}

// farCounts is what became of calls.
type farCounts struct {
	failed  int
	last    error
	longest time.Duration
}

// askCalmly makes 200 calls by 8 goroutines, each 25 a second, or fewer in three seconds.
func askCalmly(ask func() (time.Duration, error)) (counts farCounts) {
	var mu sync.Mutex
	var all sync.WaitGroup
	for i := range 8 {
		all.Go(func() {
			time.Sleep(time.Duration(i) * 5 * ms)
			count := 0
			for end := time.Now().Add(3 * time.Second); count < 25 && time.Now().Before(end); count++ {
				next := time.Now().Add(40 * ms)
				took, err := ask()
				mu.Lock()
				counts.longest = max(counts.longest, took)
				if err != nil {
					counts.failed++
					counts.last = err
				}
				mu.Unlock()
				time.Sleep(time.Until(next))
			}
		})
	}
	all.Wait()
	return counts
}

// vandalize resets connections at random, or loses a part of an answer, until the
// function that it returns is called.
func vandalize(p *redistest.Proxy) (stop func()) {
	done := make(chan struct{})
	var vandal sync.WaitGroup
	vandal.Go(func() {
		for {
			select {
			case <-done:
				p.Cut(-1)
				return
			case <-time.After(time.Duration(rand.IntN(100)) * ms):
				if rand.IntN(2) == 0 {
					p.Reset()
				} else {
					p.Cut(rand.IntN(1000))
				}
			}
		}
	})
	return func() { close(done); vandal.Wait() }
}

func TestAnAnswerThatIsLostCostsUnitsAndAdmitsNobodyElse(t *testing.T) {
	mostlyWaits(t)
	const most = 300
	p := redistest.NewProxy(t, redistest.Shared(t).Addr)
	charge := quota.Charge{Key: "key", Limit: compile(t, quota.PerDay(most))}
	var admitted, failed atomic.Int64
	stop := vandalize(p)
	defer stop()
	var all sync.WaitGroup
	for range 8 {
		client := redis.NewClient(&redis.Options{Addr: p.Addr()})
		defer client.Close()
		s := &redisstore.Store{Client: client, Timeout: patient}
		all.Go(func() {
			for began := time.Now(); time.Since(began) < hang; {
				ds, err := s.Take(ctx, nil, charge)
				switch {
				case err != nil:
					failed.Add(1)
					time.Sleep(ms)
				case ds[0].Allowed:
					admitted.Add(1)
				default:
					return
				}
			}
			assert.Fail(t, "never denied")
		})
	}
	all.Wait()
	t.Logf("%d of %d admitted, %d calls failed", admitted.Load(), most, failed.Load())
	assert.LessOrEqual(t, admitted.Load(), int64(most))
	assert.GreaterOrEqual(t, admitted.Load(), most-failed.Load())
}

func TestAnAnswerThatIsLostNeverLetsTooManyBeInFlight(t *testing.T) {
	mostlyWaits(t)
	const most = 5
	p := redistest.NewProxy(t, redistest.Shared(t).Addr)
	var within, admitted atomic.Int64
	stop := vandalize(p)
	var all sync.WaitGroup
	var stores []*redisstore.Store
	for range 8 {
		client := redis.NewClient(&redis.Options{Addr: p.Addr()})
		defer client.Close()
		s := &redisstore.Store{Client: client, Timeout: patient, HoldTTL: time.Hour}
		stores = append(stores, s)
		all.Go(func() {
			for admitted.Load() < 100 {
				hold, d, err := s.Acquire(ctx, "key", most, 1)
				if err != nil || !d.Allowed {
					time.Sleep(ms)
					continue
				}
				admitted.Add(1)
				assert.LessOrEqual(t, within.Add(1), int64(most))
				time.Sleep(ms)
				within.Add(-1)
				hold.Release()
			}
		})
	}
	all.Wait()
	stop()
	for _, s := range stores { // what was lost is given back
		eventually(t, s, "key", most, most).Release()
	}
}

// A program that pings when it starts has connections for all calls that may come at once.
func TestAfterAPingOfAFarRedisThereAreConnectionsForManyCalls(t *testing.T) {
	mostlyWaits(t)
	proxy := redistest.NewProxy(t, redistest.Shared(t).Addr)
	proxy.SetDelay(5 * ms)
	client := redis.NewClient(&redis.Options{Addr: proxy.Addr(), PoolSize: 20})
	defer client.Close()
	require.NoError(t, (&redisstore.Store{Client: client}).Ping(ctx))
	assert.GreaterOrEqual(t, client.PoolStats().TotalConns, uint32(16))
}
