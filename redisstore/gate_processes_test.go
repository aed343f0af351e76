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

// holdTTL is that of the processes here, and of nobody else: they are stopped and
// killed, and the test is not.
const holdTTL = 2 * time.Second

// A holder is a process that acquires five of twenty places, says "held", and
// waits. When its hold is lost it releases it, and says "lost".
type holder struct {
	*exec.Cmd
	in  io.Closer
	out *bufio.Reader
}

func startHolder(t *testing.T, server *redistest.Server) *holder {
	t.Helper()
	cmd := exec.Command(os.Args[0], "-test.run", "^"+t.Name()+"$")
	cmd.Env = append(os.Environ(), "GATE_REDIS="+server.Addr)
	in, err := cmd.StdinPipe() // at whose end the process ends, however the test does
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

// holdIfAsked is what the process does, if this is one.
func holdIfAsked(t *testing.T) bool {
	addr := os.Getenv("GATE_REDIS")
	if addr == "" {
		return false
	}
	s := &redisstore.Store{Client: redis.NewClient(&redis.Options{Addr: addr}), Timeout: patient, HoldTTL: holdTTL}
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

func TestThePlacesOfAProcessThatWasKilledAreFreeWhenItsHoldExpiresAndNotBefore(t *testing.T) {
	if holdIfAsked(t) {
		return
	}
	server := redistest.Start(t)
	s := newStore(t, server)
	h := startHolder(t, server)
	mustAcquire(t, s, "key", 20, 15)
	time.Sleep(3 * holdTTL / 2) // for which it is renewed

	require.NoError(t, h.Process.Kill())
	h.Wait()
	expiry := expiryOf(t, s, "5:")
	denied := 0
	for {
		_, d, err := s.Acquire(ctx, "key", 20, 1)
		require.NoError(t, err)
		if d.Allowed {
			assert.GreaterOrEqual(t, d.At.UnixMilli(), expiry)
			assert.EqualValues(t, 4, d.Remaining)
			break
		}
		require.Less(t, d.At.UnixMilli(), expiry)
		denied++
		time.Sleep(time.Millisecond)
	}
	assert.Positive(t, denied)
}

// expiryOf returns when, in ms, the hold expires whose member begins so.
func expiryOf(t *testing.T, s *redisstore.Store, begin string) int64 {
	t.Helper()
	for _, z := range s.Client.ZRangeWithScores(ctx, gateKey, 0, -1).Val() {
		if strings.HasPrefix(z.Member.(string), begin) {
			return int64(z.Score)
		}
	}
	t.Fatalf("there is no hold %q", begin)
	return 0
}

func TestAProcessThatWasStoppedForTooLongHearsOfItAndTakesNothingFromOthers(t *testing.T) {
	if holdIfAsked(t) {
		return
	}
	server := redistest.Start(t)
	s := newStore(t, server)
	h := startHolder(t, server)
	require.NoError(t, h.Process.Signal(syscall.SIGSTOP))
	var all []*quota.Hold
	require.Eventually(t, func() bool {
		hold, d, err := s.Acquire(ctx, "key", 20, 20)
		all = append(all, hold)
		return err == nil && d.Allowed
	}, 5*time.Second, 5*time.Millisecond)

	require.NoError(t, h.Process.Signal(syscall.SIGCONT))
	h.says(t, "lost") // and has released it
	for range 3 {
		_, d, err := s.Acquire(ctx, "key", 20, 1)
		require.NoError(t, err)
		assert.False(t, d.Allowed)
		time.Sleep(holdTTL / 3)
	}
	assert.False(t, isLost(all[len(all)-1]))
	all[len(all)-1].Release()
	mustAcquire(t, s, "key", 20, 20).Release()
}

func TestProcessesAreNeverTooManyTogether(t *testing.T) {
	const processes, workers, rounds = 3, 16, 10
	if addr := os.Getenv("GATE_REDIS"); addr != "" {
		client := redis.NewClient(&redis.Options{Addr: addr})
		client.Incr(ctx, "ready")
		for client.Get(ctx, "ready").Val() != fmt.Sprint(processes) {
			time.Sleep(time.Millisecond)
		}
		comeAndGo(t, &redisstore.Store{Client: client, Timeout: patient, HoldTTL: holdTTL}, workers, rounds)
		return
	}
	server := redistest.Start(t)
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
	assert.Equal(t, "20", s.Client.Get(ctx, "most").Val(), "within at once")
	assert.Zero(t, s.Client.Exists(ctx, gateKey).Val(), "all was given back")
}

// comeAndGo counts in Redis how many are within at once, and how many were at most.
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
				time.Sleep(10 * time.Millisecond)
				assert.NoError(t, count.Run(ctx, s.Client, []string{"within", "most"}, -1).Err())
				hold.Release()
			}
		})
	}
	all.Wait()
}
