package redisstore_test

import (
	"context"
	"errors"
	"net"
	"strings"
	"sync"
	"sync/atomic"
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

// slack is what a busy machine may add to a Timeout.
const slack = 200 * time.Millisecond

// calls returns all kinds of calls to a Store.
func calls(s *redisstore.Store, c quota.Charge) map[string]func(context.Context) error {
	return map[string]func(context.Context) error{
		"Take":    func(ctx context.Context) error { _, err := s.Take(ctx, nil, c); return err },
		"Peek":    func(ctx context.Context) error { _, err := s.Peek(ctx, nil, c); return err },
		"Reserve": func(ctx context.Context) error { _, _, _, err := s.Reserve(ctx, time.Hour, c); return err },
		"Settle":  func(ctx context.Context) error { c.N = 1; return s.Settle(ctx, c) },
	}
}

func TestACallThatCannotBeMadeIsNotSent(t *testing.T) {
	fake := redistest.NewFake(t, redistest.Silence)
	client := redis.NewClient(&redis.Options{Addr: fake.Addr})
	defer client.Close()
	valid := quota.Charge{Key: "key", Limit: compile(t, quota.PerDay(1))}
	gone, cancel := context.WithCancel(ctx)
	cancel()
	for name, call := range calls(&redisstore.Store{Client: client}, quota.Charge{Key: "key"}) {
		assert.ErrorAs(t, call(ctx), new(*quota.ChargeError), name)
	}
	for name, call := range calls(&redisstore.Store{Client: client}, valid) {
		assert.Equal(t, context.Canceled, call(gone), name)
	}
	assert.Empty(t, fake.Commands())
	for _, none := range []redis.UniversalClient{nil, (*redis.Client)(nil), (*redis.ClusterClient)(nil)} {
		for name, call := range calls(&redisstore.Store{Client: none}, valid) {
			assert.EqualError(t, call(ctx), "redisstore: Client is nil", name)
		}
	}
}

func TestAnInvalidReplyIsAnErrorInTime(t *testing.T) {
	for name, reply := range map[string]string{
		"wrong type":        redistest.WrongType,
		"loading":           redistest.Loading,
		"read only":         redistest.ReadOnly,
		"no script, ever":   redistest.NoScript,
		"garbage":           redistest.Garbage,
		"silence":           redistest.Silence,
		"closed connection": redistest.HangUp,
		"nil":               "$-1\r\n",
		"a status":          "+OK\r\n",
		"a string":          "$2\r\n12\r\n",
		"an empty list":     "*0\r\n",
		"a short list":      "*3\r\n:1\r\n:0\r\n:1\r\n",
		"a long list":       "*9\r\n:1\r\n:0\r\n:1\r\n:1\r\n:1\r\n:0\r\n:0\r\n:1\r\n:1\r\n",
		"strings":           "*7\r\n$1\r\n1\r\n:0\r\n:1\r\n:1\r\n:1\r\n:0\r\n:0\r\n",
		"negative numbers":  "*7\r\n:1\r\n:0\r\n:1\r\n:1\r\n:1\r\n:-5\r\n:0\r\n",
		"numbers too large": "*7\r\n:1\r\n:0\r\n:1\r\n:1\r\n:9007199254740992\r\n:0\r\n:0\r\n",
		"out of memory":     "-OOM command not allowed when used memory > 'maxmemory'.\r\n",
		"half a reply":      "*7\r\n:1\r\n:0\r\n",
	} {
		for _, verb := range []string{"Take", "Peek", "Reserve", "Settle"} {
			t.Run(name+" to "+verb, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					_, client := memoryRedis(t, redis.Options{}, reply)
					s := &redisstore.Store{Client: client}
					call := calls(s, quota.Charge{Key: "key", Limit: compile(t, quota.PerDay(1))})[verb]
					for range 3 {
						start := time.Now()
						require.Error(t, call(ctx))
						require.LessOrEqual(t, time.Since(start), 50*time.Millisecond)
					}
				})
			})
		}
	}
}

func TestErrorRepliesDoNotOpenTheBreaker(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, client := memoryRedis(t, redis.Options{}, redistest.Loading)
		s := &redisstore.Store{Client: client, Timeout: patient}
		for range 5 {
			_, err := s.Take(ctx, nil, quota.Charge{Key: "key", Limit: compile(t, quota.PerDay(1))})
			require.ErrorAs(t, err, new(redis.Error))
			require.NotContains(t, err.Error(), "is unavailable")
		}
	})
}

func TestAnUnansweredCallIsSentOnce(t *testing.T) {
	for name, reply := range map[string]string{
		"silence": redistest.Silence, "closed connection": redistest.HangUp, "loading": redistest.Loading,
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				options := redis.Options{ReadTimeout: 20 * time.Millisecond, MaxRetryBackoff: time.Millisecond}
				fake, client := memoryRedis(t, options, redistest.Loading)
				s := &redisstore.Store{Client: client, Timeout: 300 * time.Millisecond}
				require.NoError(t, s.Ping(ctx))
				fake.Say(reply)
				_, err := s.Take(ctx, nil, quota.Charge{Key: "key", Limit: compile(t, quota.PerDay(1))})
				require.Error(t, err)
				time.Sleep(time.Minute)
				sent := 0
				for _, command := range fake.Commands() {
					if len(command) > 4 && command[3] == "heed:quota:2:key" { // not a probe
						sent++
					}
				}
				assert.Equal(t, 1, sent, "%q", fake.Commands())
			})
		})
	}
}

func TestACallEndsWithItsContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, client := silentRedis(t, redis.Options{})
		s := &redisstore.Store{Client: client, Timeout: patient}
		for name, call := range calls(s, quota.Charge{Key: "key", Limit: compile(t, quota.PerDay(1))}) {
			short, cancel := context.WithTimeout(ctx, 10*time.Millisecond)
			start := time.Now()
			assert.Equal(t, context.DeadlineExceeded, call(short), name)
			assert.Equal(t, 10*time.Millisecond, time.Since(start), name)
			cancel() // a caller's deadline does not open the breaker: the next call is made
		}
	})
}

func TestASilentRedisIsNoticedAlthoughAllCallersLeave(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fake, client := memoryRedis(t, redis.Options{}, redistest.Loading)
		s := &redisstore.Store{Client: client}
		require.NoError(t, s.Ping(ctx))
		fake.Say(redistest.Silence)
		c := quota.Charge{Key: "key", Limit: compile(t, quota.PerDay(1))}
		start, asked := time.Now(), 0
		for range 40 {
			short, cancel := context.WithTimeout(ctx, 40*time.Millisecond)
			_, err := s.Take(short, nil, c)
			cancel()
			require.Error(t, err)
			if err == context.DeadlineExceeded {
				asked++
			}
		}
		assert.LessOrEqual(t, asked, 3)
		assert.LessOrEqual(t, time.Since(start), 80*time.Millisecond)
	})
}

func TestAnAnswerAfterItsCallerLeftKeepsTheBreakerClosed(t *testing.T) {
	s := &redisstore.Store{Client: newRing(t), Timeout: patient} // a Ring makes no inline calls
	sent, release, answered := make(chan bool), make(chan bool), make(chan bool)
	var over atomic.Bool
	s.Client.AddHook(hook(func(cmds []redis.Cmder, next func() error) error {
		if over.Load() || scriptsIn(cmds) == 0 {
			return next()
		}
		sent <- true
		<-release
		err := next()
		answered <- true
		return err
	}))
	c := quota.Charge{Key: "key", Limit: compile(t, quota.PerDay(100))}
	for range 10 {
		within, leave := context.WithTimeout(ctx, patient/2) // short, so that the call is not inline
		left := make(chan error)
		go func() {
			_, err := s.Take(within, nil, c)
			left <- err
		}()
		<-sent
		leave()
		require.Equal(t, context.Canceled, <-left, "the call was sent")
		release <- true
		<-answered
	}
	assert.EqualValues(t, 10, s.Degraded())
	over.Store(true)
	ds, err := s.Peek(ctx, nil, c)
	require.NoError(t, err)
	assert.EqualValues(t, 100-10, ds[0].Remaining, "canceled calls in flight are charged")
}

func TestAStoppedRedisCostsOneTimeout(t *testing.T) {
	for _, enabled := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			fake, client := silentRedis(t, redis.Options{ContextTimeoutEnabled: enabled})
			s := &redisstore.Store{Client: client}
			c := quota.Charge{Key: "key", Limit: compile(t, quota.PerDay(1_000_000))}
			start := time.Now()
			var first sync.WaitGroup
			for range 20 {
				first.Go(func() { _, err := s.Take(ctx, nil, c); assert.Error(t, err) })
			}
			first.Wait()
			assert.Equal(t, 50*time.Millisecond, time.Since(start))

			for range 50 {
				one := time.Now()
				for range 100 {
					_, err := s.Take(ctx, nil, c)
					require.ErrorIs(t, err, context.DeadlineExceeded)
					require.ErrorContains(t, err, "is unavailable")
				}
				require.Zero(t, time.Since(one), "a hundred calls")
				time.Sleep(20 * time.Millisecond)
			}

			fake.Say(redistest.Loading) // an error reply is an answer
			back := time.Now()
			for {
				_, err := s.Take(ctx, nil, c)
				if require.Error(t, err); !strings.Contains(err.Error(), "is unavailable") {
					require.ErrorContains(t, err, "LOADING")
					break
				}
				require.Less(t, time.Since(back), time.Second)
				time.Sleep(time.Millisecond)
			}
		})
	}
}

// A lateConn delivers each reply late.
type lateConn struct {
	net.Conn
	late time.Duration
}

func (c lateConn) Read(b []byte) (int, error) {
	time.Sleep(c.late)
	return c.Conn.Read(b)
}

func TestARedisThatAnswersWithinALongTimeoutIsUsed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fake := redistest.NewMemoryFake(t, redistest.Loading)
		client := redis.NewClient(&redis.Options{Addr: "127.0.0.1:1", DialTimeout: time.Minute, ReadTimeout: time.Minute,
			Dialer: func(ctx context.Context, network, addr string) (net.Conn, error) {
				conn, err := fake.Dial(ctx, network, addr)
				return lateConn{conn, 1200 * time.Millisecond}, err
			}})
		defer client.Close()
		s := &redisstore.Store{Client: client, Timeout: time.Minute} // it takes several replies to connect
		_, err := s.Take(ctx, nil, quota.Charge{Key: "key", Limit: compile(t, quota.PerDay(1))})
		assert.ErrorContains(t, err, "LOADING")
		assert.NotContains(t, err.Error(), "is unavailable")
		time.Sleep(time.Minute)
	})
}

// isFound waits until a call of s succeeds.
func isFound(t *testing.T, s *redisstore.Store, c quota.Charge) {
	t.Helper()
	require.Eventually(t, func() bool { _, err := s.Take(ctx, nil, c); return err == nil }, hang, 10*time.Millisecond)
}

func TestARedisThatStartsLaterIsFound(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fake := redistest.NewMemoryFake(t, redistest.Loading)
		var up atomic.Bool
		dial := func(ctx context.Context, network, addr string) (net.Conn, error) {
			if !up.Load() {
				return nil, errGone
			}
			return fake.Dial(ctx, network, addr)
		}
		client := redis.NewClient(&redis.Options{Addr: "127.0.0.1:1", Dialer: dial})
		defer client.Close()
		s := &redisstore.Store{Client: client}
		c := quota.Charge{Key: "key", Limit: compile(t, quota.PerDay(1_000_000))}
		for range 100 {
			start := time.Now()
			_, err := s.Take(ctx, nil, c)
			require.Error(t, err)
			require.LessOrEqual(t, time.Since(start), 50*time.Millisecond)
		}
		time.Sleep(time.Hour)
		up.Store(true)
		for back := time.Now(); ; time.Sleep(ms) {
			if _, err := s.Take(ctx, nil, c); errors.As(err, new(redis.Error)) {
				break // LOADING is an answer
			}
			require.Less(t, time.Since(back), 2*time.Second)
		}
		time.Sleep(time.Minute) // for goroutines of the client that outlive Close
	})
}

func BenchmarkStoreTake(b *testing.B) {
	s := newStore(b, redistest.Shared(b))
	minute, day := compile(b, quota.PerMinute(1_000_000_000)), compile(b, quota.PerDay(1_000_000_000))
	for name, charges := range map[string][]quota.Charge{
		"one":   {{Key: "key", Limit: minute}},
		"three": {{Key: "key", Limit: minute}, {Key: "key", Limit: day}, {Key: "key", Limit: day, DryRun: true}},
	} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for range b.N {
				if _, err := s.Take(ctx, nil, charges...); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
	b.Run("PING, for comparison", func(b *testing.B) {
		for range b.N {
			s.Client.Ping(ctx)
		}
	})
}

// The idle connection of a Redis that is gone is dead, so go-redis dials during the call, as often as it may.
func TestACallOnADeadConnectionEndsInTime(t *testing.T) {
	server := redistest.Shared(t)
	client := redis.NewClient(&redis.Options{Addr: server.Addr, DialerRetries: 100, DialerRetryTimeout: hang / 100})
	defer client.Close()
	s := &redisstore.Store{Client: client}
	c := quota.Charge{Key: "key", Limit: compile(t, quota.PerDay(1_000_000))}
	isFound(t, s, c)
	server.Kill()
	for range 10 {
		start := time.Now()
		_, err := s.Take(ctx, nil, c)
		require.Error(t, err)
		require.Less(t, time.Since(start), hang/10)
	}
}
