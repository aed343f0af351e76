package redistest_test

import (
	"bufio"
	"context"
	"net"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/heedhttp/heed/internal/redistest"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestServerAnswersUntilItsTestEnds(t *testing.T) {
	var addr string
	t.Run("running", func(t *testing.T) {
		s := redistest.Start(t)
		addr = s.Addr
		pong, err := s.Do("PING")
		require.NoError(t, err)
		assert.Equal(t, "PONG", pong)
	})
	if addr != "" {
		_, err := net.Dial("tcp", addr)
		assert.ErrorIs(t, err, syscall.ECONNREFUSED)
	}
}

func TestServersRunSideBySide(t *testing.T) {
	a, b := redistest.Start(t), redistest.Start(t)
	require.NotEqual(t, a.Addr, b.Addr)
	_, err := a.Do("SET", "k", "a")
	require.NoError(t, err)
	exists, err := b.Do("EXISTS", "k")
	require.NoError(t, err)
	assert.Equal(t, "0", exists)
}

func TestStoppedServerAnswersWhenItGoesOn(t *testing.T) {
	s := redistest.Start(t)
	client := redis.NewClient(&redis.Options{Addr: s.Addr, ReadTimeout: 50 * time.Millisecond, MaxRetries: -1})
	defer client.Close()
	require.NoError(t, client.Ping(context.Background()).Err())
	s.Stop()
	assert.Error(t, client.Ping(context.Background()).Err())
	s.Cont()
	assert.NoError(t, client.Ping(context.Background()).Err())
}

func TestRestartedServerIsEmptyAtTheSameAddress(t *testing.T) {
	s := redistest.Start(t)
	addr := s.Addr
	_, err := s.Do("SET", "k", "v")
	require.NoError(t, err)
	s.Restart()
	assert.Equal(t, addr, s.Addr)
	exists, err := s.Do("EXISTS", "k")
	require.NoError(t, err)
	assert.Equal(t, "0", exists)
}

func TestKilledTestLeavesNoServer(t *testing.T) {
	if os.Getenv("REDISTEST_CHILD") != "" {
		os.Stdout.WriteString(redistest.Start(t).Addr + "\n")
		select {}
	}
	redistest.Start(t) // skips where there is none
	child := exec.Command(os.Args[0], "-test.run", "^"+t.Name()+"$")
	child.Env = append(os.Environ(), "REDISTEST_CHILD=1")
	out, err := child.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, child.Start())
	addr, err := bufio.NewReader(out).ReadString('\n')
	require.NoError(t, err)
	require.NoError(t, child.Process.Kill())
	child.Wait()
	require.Eventually(t, func() bool {
		conn, err := net.Dial("tcp", strings.TrimSpace(addr))
		if err == nil {
			conn.Close()
		}
		return err != nil
	}, 5*time.Second, 10*time.Millisecond)
}

func TestWithoutBinaryTheTestIsSkippedOrFailsUnderCI(t *testing.T) {
	for ci, want := range map[string]string{"true": "--- FAIL", "": "--- SKIP"} {
		child := exec.Command(os.Args[0], "-test.v", "-test.run", "^TestServersRunSideBySide$")
		child.Env = []string{"PATH=" + t.TempDir(), "CI=" + ci}
		out, _ := child.CombinedOutput()
		assert.Contains(t, string(out), want, "CI=%q", ci)
		assert.Contains(t, string(out), "NOT TESTED", "CI=%q", ci)
	}
}

func TestFakeSaysWhatItWasTold(t *testing.T) {
	f := redistest.NewFake(t, "+one\r\n", redistest.WrongType)
	client := redis.NewClient(&redis.Options{Addr: f.Addr, MaxRetries: -1})
	defer client.Close()
	got, err := client.Do(context.Background(), "GET", "a").Text()
	require.NoError(t, err)
	assert.Equal(t, "one", got)
	for range 2 {
		err = client.Do(context.Background(), "GET", "b").Err()
		assert.ErrorContains(t, err, "WRONGTYPE")
	}
	assert.Equal(t, [][]string{{"GET", "a"}, {"GET", "b"}, {"GET", "b"}}, f.Commands())
}

func TestFakeKeepsSilentOrHangsUp(t *testing.T) {
	for name, reply := range map[string]string{"silence": redistest.Silence, "hang up": redistest.HangUp, "garbage": redistest.Garbage} {
		f := redistest.NewFake(t, reply)
		client := redis.NewClient(&redis.Options{Addr: f.Addr, ReadTimeout: 20 * time.Millisecond, MaxRetries: -1})
		assert.Error(t, client.Do(context.Background(), "GET", "a").Err(), name)
		client.Close()
	}
}

func TestClusterServesEverySlot(t *testing.T) {
	var addrs []string
	for _, node := range redistest.StartCluster(t) {
		addrs = append(addrs, node.Addr)
	}
	client := redis.NewClusterClient(&redis.ClusterOptions{Addrs: addrs})
	defer client.Close()
	ctx := context.Background()
	for _, key := range []string{"a", "b", "c", "d", "e", "f"} {
		require.NoError(t, client.Set(ctx, key, key, time.Minute).Err())
		require.Equal(t, key, client.Get(ctx, key).Val())
	}
	var used int
	for _, node := range addrs {
		one := redis.NewClient(&redis.Options{Addr: node})
		if one.DBSize(ctx).Val() > 0 {
			used++
		}
		one.Close()
	}
	assert.Equal(t, 3, used, "masters that hold some of the keys")
}
