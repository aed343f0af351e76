package redisstore_test

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/heedhttp/heed/internal/redistest"
	"github.com/heedhttp/heed/quota"
	"github.com/heedhttp/heed/redisstore"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// A holder is a process that acquires five of twenty places, prints "held", and waits. When its hold is
// lost, it releases it and prints "lost".
type holder struct {
	*exec.Cmd
	in  io.Closer
	out *bufio.Reader
}

func startHolder(t *testing.T, server *redistest.Server, ttl time.Duration) *holder {
	t.Helper()
	cmd := exec.Command(os.Args[0], "-test.run", "^"+t.Name()+"$")
	cmd.Env = append(os.Environ(), "GATE_REDIS="+server.Addr, "GATE_TTL="+ttl.String())
	in, err := cmd.StdinPipe() // the process ends at its end, even if the test is killed
	require.NoError(t, err)
	out, err := cmd.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	h := &holder{cmd, in, bufio.NewReader(out)}
	t.Cleanup(func() { cmd.Process.Kill(); cmd.Wait() })
	h.says(t, "held")
	return h
}

func (h *holder) says(t *testing.T, word string) {
	t.Helper()
	for {
		line, err := h.out.ReadString('\n')
		require.NoError(t, err, line)
		if strings.TrimSpace(line) == word {
			return
		}
	}
}

// holdIfAsked returns false, unless this is a holder.
func holdIfAsked(t *testing.T) bool {
	addr := os.Getenv("GATE_REDIS")
	if addr == "" {
		return false
	}
	ttl, err := time.ParseDuration(os.Getenv("GATE_TTL"))
	require.NoError(t, err)
	s := &redisstore.Store{Client: redis.NewClient(&redis.Options{Addr: addr}), Timeout: patient, HoldTTL: ttl}
	hold := mustAcquire(t, s, "key", 20, 5)
	fmt.Println("held")
	go func() {
		<-hold.Lost()
		hold.Release()
		fmt.Println("lost")
	}()
	io.Copy(io.Discard, os.Stdin)
	return true
}

func TestPlacesOfAKilledProcessAreFreeAfterHoldTTL(t *testing.T) {
	if holdIfAsked(t) {
		return
	}
	t.Parallel() // it waits for a process
	server := redistest.Shared(t)
	s := newStore(t, server)
	h := startHolder(t, server, patient)
	s.HoldTTL = time.Hour // nothing here is renewed meanwhile
	mustAcquire(t, s, "key", 20, 15)
	before := expiryOf(t, s, "5:")
	renewed := func() bool { return expiryOf(t, s, "5:") > before }
	require.Eventually(t, renewed, hang, 10*time.Millisecond, "it is renewed")

	require.NoError(t, h.Process.Kill())
	h.Wait()
	assert.Greater(t, expiryOf(t, s, "5:"), before)
	_, d, err := s.Acquire(ctx, "key", 20, 1)
	require.NoError(t, err)
	require.False(t, d.Allowed)
	expiry := shorten(t, s, "5:")
	for {
		_, d, err := s.Acquire(ctx, "key", 20, 1)
		require.NoError(t, err)
		if d.Allowed {
			assert.GreaterOrEqual(t, d.At.UnixMilli(), expiry)
			assert.EqualValues(t, 4, d.Remaining)
			break
		}
		require.Less(t, d.At.UnixMilli(), expiry)
		time.Sleep(time.Millisecond)
	}
}

// shorten makes a hold expire soon, and returns when. It first waits until commands of the dead process
// cannot renew it any more.
func shorten(t *testing.T, s *redisstore.Store, start string) int64 {
	t.Helper()
	client := s.Client.(*redis.Client)
	require.Eventually(t, func() bool {
		return strings.Count(client.ClientList(ctx).Val(), "\n") == int(client.PoolStats().TotalConns)
	}, hang, ms, "other clients are connected")
	for member := range expiries(t, s, gateKey) {
		if strings.HasPrefix(member, start) {
			expiry := client.Time(ctx).Val().Add(300 * ms).UnixMilli()
			require.NoError(t, client.ZAddXX(ctx, gateKey, redis.Z{Score: float64(expiry), Member: member}).Err())
			return expiry
		}
	}
	t.Fatalf("no hold %q", start)
	return 0
}

// expiryOf returns when the hold expires whose member has this prefix, in ms.
func expiryOf(t *testing.T, s *redisstore.Store, start string) int64 {
	t.Helper()
	for member, expiry := range expiries(t, s, gateKey) {
		if strings.HasPrefix(member, start) {
			return expiry
		}
	}
	t.Fatalf("no hold %q", start)
	return 0
}

func TestAHoldOfASuspendedProcessIsLost(t *testing.T) {
	if holdIfAsked(t) {
		return
	}
	t.Parallel() // it waits for a process
	server := redistest.Shared(t)
	s := newStore(t, server)
	h := startHolder(t, server, time.Second)
	require.NoError(t, h.Process.Signal(syscall.SIGSTOP))
	var all []*quota.Hold
	require.Eventually(t, func() bool {
		hold, d, err := s.Acquire(ctx, "key", 20, 20)
		all = append(all, hold)
		return err == nil && d.Allowed
	}, hang, 5*time.Millisecond)

	require.NoError(t, h.Process.Signal(syscall.SIGCONT))
	h.says(t, "lost") // and has released it
	for range 3 {
		_, d, err := s.Acquire(ctx, "key", 20, 1)
		require.NoError(t, err)
		assert.False(t, d.Allowed)
		time.Sleep(200 * time.Millisecond)
	}
	assert.False(t, isLost(all[len(all)-1]))
	all[len(all)-1].Release()
	mustAcquire(t, s, "key", 20, 20).Release()
}

func TestProcessesTogetherNeverExceedTheLimitInFlight(t *testing.T) {
	const processes, workers = 3, 16
	rounds := int(stated(10, 4))
	if addr := os.Getenv("GATE_REDIS"); addr != "" {
		client := redis.NewClient(&redis.Options{Addr: addr})
		client.Incr(ctx, "ready")
		for client.Get(ctx, "ready").Val() != fmt.Sprint(processes) {
			time.Sleep(time.Millisecond)
		}
		comeAndGo(t, &redisstore.Store{Client: client, Timeout: patient, HoldTTL: time.Hour}, workers, rounds)
		return
	}
	t.Parallel()
	server := redistest.Shared(t)
	var all sync.WaitGroup
	for i := range processes {
		all.Go(func() {
			child := exec.Command(os.Args[0], "-test.run", "^"+t.Name()+"$")
			child.Env = append(os.Environ(), "GATE_REDIS="+server.Addr)
			out, err := child.CombinedOutput()
			assert.NoError(t, err, "process %d: %s", i, out)
		})
	}
	all.Wait()
	s := newStore(t, server)
	assert.Equal(t, "20", s.Client.Get(ctx, "most").Val(), "at the same time")
	assert.Zero(t, s.Client.Exists(ctx, gateKey).Val(), "all places were given back")
}

// comeAndGo counts in Redis how many workers hold a place at the same time, and the maximum. Until all
// places have been taken once, no worker releases its place.
func comeAndGo(t *testing.T, s *redisstore.Store, workers, rounds int) {
	count := redis.NewScript(`
		local now = redis.call('INCRBY', 'within', ARGV[1])
		if now > tonumber(redis.call('GET', 'most') or 0) then redis.call('SET', 'most', now) end
		return now`)
	var all sync.WaitGroup
	for range workers {
		all.Go(func() {
			for round := 0; round < rounds; {
				hold, d, err := s.Acquire(ctx, "key", 20, 1)
				if !assert.NoError(t, err) {
					return
				}
				if !d.Allowed {
					time.Sleep(time.Millisecond)
					continue
				}
				round++
				within, err := count.Run(ctx, s.Client, []string{"within", "most"}, 1).Int()
				assert.NoError(t, err)
				assert.LessOrEqual(t, within, 20)
				for since := time.Now(); s.Client.Get(ctx, "most").Val() != "20" && time.Since(since) < hang; {
					time.Sleep(10 * time.Millisecond)
				}
				time.Sleep(10 * time.Millisecond)
				assert.NoError(t, count.Run(ctx, s.Client, []string{"within", "most"}, -1).Err())
				hold.Release()
			}
		})
	}
	all.Wait()
}
