package redisstore_test

import (
	"cmp"
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

// A farRedis is one or more servers behind proxies that slow down or break the network.
type farRedis struct {
	servers []*redistest.Server
	proxies map[string]*redistest.Proxy // by the address of the server
	client  func() redis.UniversalClient
}

// throughProxies returns a farRedis of servers, each behind its own Proxy.
func throughProxies(t *testing.T, servers ...*redistest.Server) *farRedis {
	f := &farRedis{servers: servers, proxies: make(map[string]*redistest.Proxy)}
	for _, server := range servers {
		f.proxies[server.Addr] = redistest.NewProxy(t, server.Addr)
	}
	return f
}

// dial connects to addr through its Proxy. It is the Dialer of clients that learn addresses from Redis.
func (f *farRedis) dial(ctx context.Context, network, addr string) (net.Conn, error) {
	return new(net.Dialer).DialContext(ctx, network, f.proxies[addr].Addr())
}

// clientFor returns a client that lives as long as t.
func (f *farRedis) clientFor(t *testing.T) redis.UniversalClient {
	client := f.client()
	t.Cleanup(func() { client.Close() })
	return client
}

func (f *farRedis) each(do func(*redistest.Proxy)) {
	for _, p := range f.proxies {
		do(p)
	}
}

// executed returns how many scripts the servers have executed.
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

// farClients are clients of a farRedis, with default options.
var farClients = map[string]func(t *testing.T) *farRedis{
	"Addr": func(t *testing.T) *farRedis { return farServer(t, redistest.Shared(t), "", nil) },
	"TLS": func(t *testing.T) *farRedis {
		server := redistest.Shared(t)
		addr, config := terminateTLS(t, server.Addr)
		return farServer(t, server, addr, config)
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

// farServer returns one server, which is also at the address secured, if that is not empty.
func farServer(t *testing.T, server *redistest.Server, secured string, config *tls.Config) *farRedis {
	p := redistest.NewProxy(t, cmp.Or(secured, server.Addr))
	return &farRedis{
		servers: []*redistest.Server{server}, proxies: map[string]*redistest.Proxy{"": p},
		client: func() redis.UniversalClient {
			return redis.NewClient(&redis.Options{Addr: p.Addr(), TLSConfig: config})
		},
	}
}

// terminateTLS starts a TLS proxy in front of a server. It returns the address, and the configuration of
// a client that trusts it.
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

// A farCall makes a kind of call again and again, each of which ends within timeout.
type farCall struct {
	timeout time.Duration
	opens   func(t *testing.T, f *farRedis) (call func() error)
}

const usual = 50 * time.Millisecond // the default Timeout of most types

var farCalls = map[string]farCall{
	"Take": {usual, func(t *testing.T, f *farRedis) func() error {
		s := &redisstore.Store{Client: f.clientFor(t)}
		charge := quota.Charge{Key: fresh(), Limit: compile(t, quota.PerDay(1_000_000))}
		return func() error { _, err := s.Take(ctx, nil, charge); return err }
	}},
	"Acquire": {2 * usual, func(t *testing.T, f *farRedis) func() error {
		s, key := &redisstore.Store{Client: f.clientFor(t)}, fresh()
		return func() error {
			hold, d, err := s.Acquire(ctx, key, 1000, 1)
			hold.Release()
			if err == nil && !d.Allowed {
				err = errors.New("no place is free")
			}
			return err
		}
	}},
	"Withdraw": {usual, func(t *testing.T, f *farRedis) func() error {
		var lost atomic.Pointer[error]
		degraded := func(err error) { lost.Store(&err) }
		b := &redisstore.Budget{Client: f.clientFor(t), Key: fresh(), MinPerSecond: 1000, Degraded: degraded}
		return func() error {
			if !b.Withdraw(ctx, host) {
				return errors.New("not granted")
			}
			if err := lost.Swap(nil); err != nil {
				return *err
			}
			return nil
		}
	}},
	"Post": {usual, func(t *testing.T, f *farRedis) func() error {
		prefix := fresh()
		here := &redisstore.Board{Client: f.clientFor(t), Prefix: prefix}
		there := &redisstore.Board{Client: f.clientFor(t), Prefix: prefix}
		t.Cleanup(func() { here.Close(); there.Close() })
		left(t, there, host) // starts to follow Redis
		return func() error {
			key := fresh()
			err := here.Post(ctx, key, time.Minute, 0)
			for posted := time.Now(); err == nil && left(t, there, key) == 0; time.Sleep(ms) {
				if time.Since(posted) > time.Second {
					err = errors.New("the other Board did not get the cool-down")
				}
			}
			return err
		}
	}},
	"Limits": {usual, func(t *testing.T, f *farRedis) func() error {
		l := &redisstore.Limits{Client: f.clientFor(t)}
		t.Cleanup(func() { l.Close() })
		return func() error { _, err := l.Limits(ctx, fresh()); return err } // which are not cached
	}},
	"Read": {time.Second, func(t *testing.T, f *farRedis) func() error {
		d := &redisstore.Document{Client: f.clientFor(t)}
		for _, server := range f.servers {
			server.Do("SET", "heed:rules", "rules: []") // fails on all servers of a cluster but one
		}
		return func() error { _, err := d.Read(ctx); return err }
	}},
}

var lastFresh atomic.Int64

// fresh returns a new key.
func fresh() string { return fmt.Sprint("key ", lastFresh.Add(1)) }

// slackOfAMachine is how much longer than its Timeout a call may take on a busy machine, or a cool-down to arrive.
var slackOfAMachine = stated(1200*ms, 4*time.Second)

// A Redis that is 1 to 40 ms away works by default, from the first second on. If it is gone, no call
// takes longer than its Timeout, and when it is back, it is used again. Only the long form measures how
// soon, and that hardly any call fails.
func TestARedisFarAwayWorksByDefault(t *testing.T) {
	// At 20 ms, a call has 10 ms for everything else, which a busy machine may exceed.
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
					for began := time.Now(); time.Since(began) < hang; { // a busy machine may be late for some time
						t.Run(delay.String(), func(t *testing.T) { err = f.survives(t, call, delay) })
						if err == nil {
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

// survives makes calls while the network is good, broken, and good again.
func (f *farRedis) survives(t *testing.T, kind farCall, delay time.Duration) error {
	call, start := kind.opens(t, f), time.Now()
	var longest atomic.Int64
	timed := func() error {
		began := time.Now()
		err := call()
		for took := int64(time.Since(began)); took > longest.Load(); {
			longest.Store(took)
		}
		return err
	}
	timed()
	time.Sleep(time.Second - time.Since(start))

	failed, last := callCalmly(timed)
	if failed > stated[int64](5, 199) { // of 50 ms, a busy machine may use all
		return fmt.Errorf("of 200 calls %d failed, the last: %w", failed, last)
	}
	f.each(func(p *redistest.Proxy) { p.Swallow(true) })
	broken, _ := callCalmly(timed)
	f.each(func(p *redistest.Proxy) { p.Swallow(false) })

	before, back := f.executed(t), time.Now()
	for {
		err := timed()
		if err == nil && f.executed(t) > before {
			break
		}
		if most := stated(2*time.Second, hang); time.Since(back) > most {
			return fmt.Errorf("not used again within %v, the last: %v", most, err)
		}
		time.Sleep(10 * ms)
	}
	t.Logf("%v away: %d of 200 failed, %d while the network was down; used again after %v; the longest call took %v",
		2*delay, failed, broken, time.Since(back), time.Duration(longest.Load()))
	if time.Duration(longest.Load()) > kind.timeout+slackOfAMachine {
		return fmt.Errorf("a call took %v", time.Duration(longest.Load()))
	}
	return nil
}

// callCalmly makes 200 calls from 8 goroutines, 25 calls a second in each, or fewer in three seconds. It returns
// how many failed, and an error.
func callCalmly(call func() error) (failed int64, last error) {
	var fails atomic.Int64
	var err atomic.Value
	end := time.Now().Add(3 * time.Second)
	callers(8, 25, func(caller, i int) {
		if i == 0 {
			time.Sleep(time.Duration(caller) * 5 * ms)
		}
		if next := time.Now().Add(40 * ms); next.Before(end) {
			if e := call(); e != nil {
				fails.Add(1)
				err.Store(&e)
			}
			time.Sleep(time.Until(next))
		}
	})
	if e, ok := err.Load().(*error); ok {
		last = *e
	}
	return fails.Load(), last
}

// breakAtRandom resets connections, or cuts replies, at random times until stop is called.
func breakAtRandom(p *redistest.Proxy) (stop func()) {
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

// A lost answer may cost units or a place, but never admits anything extra.
func TestLostAnswersAdmitNothingExtra(t *testing.T) {
	mostlyWaits(t)
	const most, places = 300, 5
	p := redistest.NewProxy(t, redistest.Shared(t).Addr)
	charge := quota.Charge{Key: "key", Limit: compile(t, quota.PerDay(most))}
	var admitted, failed, within, acquired atomic.Int64
	stop := breakAtRandom(p)
	callers(8, 1, func(_, _ int) {
		client := redis.NewClient(&redis.Options{Addr: p.Addr()})
		t.Cleanup(func() { client.Close() })
		s := &redisstore.Store{Client: client, Timeout: patient, HoldTTL: time.Hour}
		for denied := false; !denied; {
			ds, err := s.Take(ctx, nil, charge)
			switch {
			case err != nil:
				failed.Add(1)
				time.Sleep(ms)
			case ds[0].Allowed:
				admitted.Add(1)
			default:
				denied = true
			}
		}
		for acquired.Load() < 100 {
			hold, d, err := s.Acquire(ctx, "key", places, 1)
			if err != nil || !d.Allowed {
				time.Sleep(ms)
				continue
			}
			acquired.Add(1)
			assert.LessOrEqual(t, within.Add(1), int64(places))
			time.Sleep(ms)
			within.Add(-1)
			hold.Release()
		}
		t.Cleanup(func() { eventually(t, s, "key", places, places).Release() }) // lost places are given back
	})
	stop()
	t.Logf("%d of %d admitted, %d calls failed", admitted.Load(), most, failed.Load())
	assert.LessOrEqual(t, admitted.Load(), int64(most))
	assert.GreaterOrEqual(t, admitted.Load(), most-failed.Load())
}

// After a Ping at the start, a program has connections for all its concurrent calls.
func TestAPingOpensConnectionsForManyCalls(t *testing.T) {
	mostlyWaits(t)
	proxy := redistest.NewProxy(t, redistest.Shared(t).Addr)
	proxy.SetDelay(5 * ms)
	client := redis.NewClient(&redis.Options{Addr: proxy.Addr(), PoolSize: 20})
	defer client.Close()
	require.NoError(t, (&redisstore.Store{Client: client}).Ping(ctx))
	assert.GreaterOrEqual(t, client.PoolStats().TotalConns, uint32(16))
}
