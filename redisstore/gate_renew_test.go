package redisstore_test

import (
	"context"
	"fmt"
	"net"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/heedhttp/heed/quota"
	"github.com/heedhttp/heed/redisstore"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// A gateRedis is a Redis in memory, by the clock of package time, and a network to it.
type gateRedis struct {
	*miniredis.Miniredis
	client *redis.Client

	mu      sync.Mutex // guards what follows
	network network
	calls   []string // the scripts that were executed: for each its verbs and its key
}

// A network carries a call. execute executes it.
type network func(ctx context.Context, execute func() error) error

func well(_ context.Context, execute func() error) error { return execute() }

// silent loses calls.
func silent(ctx context.Context, _ func() error) error {
	<-ctx.Done()
	return ctx.Err()
}

// lateBy delivers calls after d and loses the answers.
func lateBy(d time.Duration) network {
	return func(ctx context.Context, execute func() error) error {
		time.AfterFunc(d, func() { execute() })
		return silent(ctx, nil)
	}
}

// lagging delivers answers after 40 ms.
func lagging(_ context.Context, execute func() error) error {
	defer time.Sleep(40 * ms)
	return execute()
}

// timeline runs test in a bubble. In the end all Holds must be released, and then the Store must send
// nothing more and Redis have no data.
func timeline(t *testing.T, test func(t *testing.T, g *gateRedis, s *redisstore.Store)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		g := &gateRedis{Miniredis: miniredis.NewMiniRedis(), network: well}
		g.ClockTTL(true)
		dial := func(context.Context, string, string) (net.Conn, error) { return g.Dial() }
		g.client = redis.NewClient(&redis.Options{Addr: "127.0.0.1:1", Dialer: dial, MaxRetries: -1})
		g.client.AddHook(g)
		defer g.Close()
		defer g.client.Close()
		defer time.Sleep(time.Minute) // for probes of a silent server
		require.NoError(t, g.client.ScriptLoad(ctx, gateSource).Err())
		s := &redisstore.Store{Client: g.client, Prefix: "gate:"}
		require.NoError(t, s.Ping(ctx))
		test(t, g, s)
		g.use(well)
		time.Sleep(2 * time.Minute)
		g.took()
		time.Sleep(time.Hour)
		assert.Empty(t, g.took(), "the Store still sends")
		assert.Empty(t, g.Keys(), "places are still taken")
	})
}

// use sets the network for calls from now on.
func (g *gateRedis) use(n network) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.network = n
}

// took returns the calls that were executed since its last call, after those that are due now.
func (g *gateRedis) took() []string {
	synctest.Wait()
	g.mu.Lock()
	defer g.mu.Unlock()
	calls := g.calls
	g.calls = nil
	return calls
}

// inUse returns how many places of key are taken, after the calls that are due now.
func (g *gateRedis) inUse(key string) (n int) {
	synctest.Wait()
	entries, _ := g.ZMembers("gate:\x01" + key)
	for _, entry := range entries {
		if expiry, _ := g.ZScore("gate:\x01"+key, entry); int64(expiry) > time.Now().UnixMilli() {
			n += int(places(entry))
		}
	}
	return n
}

func (g *gateRedis) DialHook(next redis.DialHook) redis.DialHook { return next }

func (g *gateRedis) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return next
}

func (g *gateRedis) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		if !strings.HasPrefix(cmd.Name(), "eval") {
			return next(ctx, cmd) // the client's handshake
		}
		g.mu.Lock()
		carry := g.network
		g.mu.Unlock()
		late := context.WithoutCancel(ctx)
		sent := redis.NewCmd(late, cmd.Args()...) // a copy, for it may be executed after the caller has left
		err := carry(ctx, func() error {
			err := next(late, sent)
			if args := cmd.Args(); err == nil && len(args) > 5 {
				var call strings.Builder
				for i := 5; i < len(args); i += 3 {
					fmt.Fprint(&call, args[i], " ")
				}
				g.mu.Lock()
				defer g.mu.Unlock()
				g.calls = append(g.calls, call.String()+strings.TrimPrefix(args[3].(string), "gate:\x01"))
			}
			return err
		})
		if err == nil {
			cmd.(interface{ SetVal(any) }).SetVal(sent.Val())
		}
		cmd.SetErr(err)
		return err
	}
}

func TestAHoldIsRenewedThreeTimesInItsTTL(t *testing.T) {
	for ttl, renewed := range map[time.Duration]time.Duration{
		0: 10 * time.Second, -1: 10 * time.Second, 3 * time.Second: time.Second,
		time.Millisecond: 33333333, 300 * time.Hour: 8 * time.Hour,
	} {
		timeline(t, func(t *testing.T, g *gateRedis, s *redisstore.Store) {
			s.HoldTTL = ttl
			hold := mustAcquire(t, s, "key", 3, 2)
			require.Equal(t, []string{"take key"}, g.took())
			for range 4 {
				time.Sleep(renewed - 1)
				require.Empty(t, g.took(), ttl)
				time.Sleep(time.Nanosecond)
				require.Equal(t, []string{"keep key"}, g.took(), ttl)
			}
			assert.Equal(t, 2, g.inUse("key"))
			assert.False(t, isLost(hold))
			hold.Release()
			assert.Zero(t, g.inUse("key"))
			assert.Equal(t, []string{"drop key"}, g.took())
		})
	}
}

func TestHoldsOfAKeyAreRenewedByOneCall(t *testing.T) {
	timeline(t, func(t *testing.T, g *gateRedis, s *redisstore.Store) {
		var holds []*quota.Hold
		for i := range 300 {
			holds = append(holds, mustAcquire(t, s, "many", 1000, 1), mustAcquire(t, s, fmt.Sprint(i/100), 100, 1))
			time.Sleep(10 * ms)
		}
		g.took()
		time.Sleep(10 * time.Second)
		calls, keep := g.took(), "keep "
		slices.Sort(calls)
		assert.Equal(t, []string{
			strings.Repeat(keep, 100) + "0", strings.Repeat(keep, 100) + "1", strings.Repeat(keep, 100) + "2",
			strings.Repeat(keep, 256) + "many", strings.Repeat(keep, 44) + "many",
		}, calls)
		for _, hold := range holds {
			hold.Release()
		}
	})
}

func TestASlowRedisRenewsHoldsOfManyKeysInTime(t *testing.T) {
	timeline(t, func(t *testing.T, g *gateRedis, s *redisstore.Store) {
		s.HoldTTL = 3 * time.Second
		var holds []*quota.Hold
		for i := range 100 {
			holds = append(holds, mustAcquire(t, s, fmt.Sprint(i), 1, 1))
		}
		g.use(lagging) // one after the other would take 4 s
		time.Sleep(10 * time.Second)
		for _, hold := range holds {
			assert.False(t, isLost(hold))
			hold.Release()
		}
	})
}

func TestAHoldIsLostWhenRedisFreesItsPlace(t *testing.T) {
	for _, renewals := range []time.Duration{0, 1} {
		timeline(t, func(t *testing.T, g *gateRedis, s *redisstore.Store) {
			s.HoldTTL = 30_300 * ms // at its end no repetition is due
			g.use(lagging)
			sent := time.Now().Add(renewals * s.HoldTTL / 3)
			hold := mustAcquire(t, s, "key", 1, 1)
			time.Sleep(time.Until(sent.Add(50 * ms)))
			g.use(silent)
			time.Sleep(time.Until(sent.Add(s.HoldTTL - 1)))
			assert.Equal(t, 1, g.inUse("key"))
			assert.False(t, isLost(hold))
			time.Sleep(time.Nanosecond)
			assert.Zero(t, g.inUse("key"))
			assert.True(t, isLost(hold))

			g.use(well)
			time.Sleep(time.Second)
			assert.Equal(t, 1, g.inUse("key"), "it is counted again, because it is in use")
			time.Sleep(time.Hour)
			assert.Equal(t, 1, g.inUse("key"))
			hold.Release()
		})
	}
}

func TestForgottenHoldsAreTakenAgainIfTheirPlacesAreFree(t *testing.T) {
	timeline(t, func(t *testing.T, g *gateRedis, s *redisstore.Store) {
		hold, other := mustAcquire(t, s, "key", 3, 2), mustAcquire(t, s, "key", 3, 1)
		g.FlushAll()
		g.took()
		time.Sleep(10 * time.Second)
		assert.Equal(t, []string{"keep keep key", "take take key"}, g.took())
		assert.Equal(t, 3, g.inUse("key"))
		assert.False(t, isLost(hold) || isLost(other))

		g.FlushAll()
		stranger := mustAcquire(t, newGate(g.client), "key", 3, 2)
		time.Sleep(10 * time.Second)
		assert.Equal(t, 3, g.inUse("key"))
		assert.True(t, isLost(hold))
		assert.False(t, isLost(other))
		g.took()
		time.Sleep(time.Minute)
		assert.Len(t, g.took(), 6, "every 10 s it tries to take the places again")
		stranger.Release()
		time.Sleep(10 * time.Second)
		assert.Equal(t, 3, g.inUse("key"), "a lost Hold is counted again when places are free")
		hold.Release()
		assert.Equal(t, 1, g.inUse("key"))

		g.FlushAll()
		stranger = mustAcquire(t, newGate(g.client), "key", 3, 3)
		time.Sleep(10 * time.Second)
		g.took()
		assert.True(t, isLost(other))
		other.Release()
		time.Sleep(5 * time.Second)
		assert.Equal(t, []string{"drop key"}, g.took(), "once, because every take was answered")
		assert.Equal(t, 3, g.inUse("key"))
		stranger.Release()
	})
}

func TestHoldsAreRestoredAsSoonAsRedisAnswersAgain(t *testing.T) {
	timeline(t, func(t *testing.T, g *gateRedis, s *redisstore.Store) {
		hold, far := mustAcquire(t, s, "key", 2, 1), mustAcquire(t, s, "far", 2, 1)
		g.use(silent)
		_, _, err := s.Acquire(ctx, "key", 2, 1)
		require.Error(t, err)
		time.Sleep(3 * time.Second)
		g.FlushAll()
		g.use(well)
		time.Sleep(time.Second)
		assert.Equal(t, 1, g.inUse("key"))
		assert.Zero(t, g.inUse("far"), "another key is renewed at its usual time")
		time.Sleep(10 * time.Second)
		assert.Equal(t, 1, g.inUse("far"))
		hold.Release()
		far.Release()
	})
}

func TestPlacesOfAFailedAcquireAreGivenBack(t *testing.T) {
	for _, delay := range []time.Duration{0, 5 * time.Second, 35 * time.Second} { // in the last case they expire
		for _, timeout := range []time.Duration{10 * ms, time.Hour} {
			timeline(t, func(t *testing.T, g *gateRedis, s *redisstore.Store) {
				g.use(lateBy(delay))
				call, cancel := context.WithTimeout(ctx, timeout)
				defer cancel()
				began := time.Now()
				_, _, err := s.Acquire(call, "key", 1, 1)
				require.ErrorIs(t, err, context.DeadlineExceeded)
				assert.Equal(t, min(timeout, 50*ms), time.Since(began))
				g.use(well)
				time.Sleep(delay + time.Second)
				assert.Contains(t, g.took(), "take key")
				assert.Equal(t, delay > 30*time.Second, g.inUse("key") == 1)
			})
		}
	}
}

func TestNothingIsGivenBackAfterAnAcquireThatWasNotExecuted(t *testing.T) {
	timeline(t, func(t *testing.T, g *gateRedis, s *redisstore.Store) {
		hold := mustAcquire(t, s, "key", 1, 1)
		g.took()
		g.SetError("WRONGTYPE Operation against a key")
		_, _, err := s.Acquire(ctx, "key", 1, 1)
		require.ErrorContains(t, err, "WRONGTYPE")
		g.SetError("")
		time.Sleep(9 * time.Second)
		assert.Empty(t, g.took(), "nor is anything renewed sooner")
		hold.Release()

		g.use(silent)
		for i := range 1000 {
			_, _, err := s.Acquire(ctx, "key", 1, 1)
			require.Equal(t, i > 0, strings.Contains(err.Error(), "is unavailable"))
		}
		ended, cancel := context.WithCancel(ctx)
		cancel()
		_, _, err = s.Acquire(ended, "key", 1, 1)
		require.Equal(t, context.Canceled, err)
		g.use(well)
		time.Sleep(time.Second)
		assert.Contains(t, g.took(), "drop key", "only the first may have taken places")
	})
}

func TestAHoldReleasedWhileItIsTakenAgainIsGivenBack(t *testing.T) {
	timeline(t, func(t *testing.T, g *gateRedis, s *redisstore.Store) {
		hold := mustAcquire(t, s, "key", 1, 1)
		g.FlushAll()
		g.use(func(_ context.Context, execute func() error) error {
			g.use(lateBy(3 * time.Second)) // after a keep, whose entry does not exist
			return execute()
		})
		time.Sleep(10*time.Second + 100*ms)
		g.use(well)
		hold.Release()
		time.Sleep(3 * time.Second)
		assert.Contains(t, g.took(), "take key")
		time.Sleep(time.Second)
		assert.Zero(t, g.inUse("key"))
	})
}

func TestAFailedReleaseIsRepeatedUntilThePlacesAreFree(t *testing.T) {
	for _, outage := range []time.Duration{5 * time.Second, time.Minute} {
		timeline(t, func(t *testing.T, g *gateRedis, s *redisstore.Store) {
			hold := mustAcquire(t, s, "key", 1, 1)
			if outage == time.Minute { // and a renewal is answered after the release was sent
				time.Sleep(10*time.Second - ms)
				g.use(lagging)
				time.Sleep(10 * ms)
			}
			g.took()
			g.use(silent)
			began := time.Now()
			hold.Release()
			assert.Equal(t, 50*ms, time.Since(began), "the Timeout")
			assert.Equal(t, 1, g.inUse("key"))
			time.Sleep(outage)
			g.use(well)
			time.Sleep(time.Second)
			assert.Zero(t, g.inUse("key"))
			assert.Equal(t, outage > 30*time.Second, len(g.took()) == 0, "given up when they have expired")
			assert.False(t, isLost(hold))
		})
	}
}

func TestAReleaseEndsWithTheContextOfAcquire(t *testing.T) {
	for _, test := range []struct {
		timeout time.Duration
		network network
		within  time.Duration // it goes on in the background
	}{{0, lateBy(20 * ms), 21 * ms}, {10 * ms, silent, time.Second}} {
		timeline(t, func(t *testing.T, g *gateRedis, s *redisstore.Store) {
			request, cancel := context.WithCancel(ctx)
			hold, _, err := s.Acquire(request, "key", 1, 1)
			require.NoError(t, err)
			g.use(test.network)
			time.AfterFunc(test.timeout, cancel)
			synctest.Wait()
			began := time.Now()
			hold.Release()
			assert.Equal(t, test.timeout, time.Since(began))
			assert.Equal(t, 1, g.inUse("key"))
			g.use(well)
			time.Sleep(test.within)
			assert.Zero(t, g.inUse("key"))
		})
	}
}
