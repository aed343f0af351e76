package redistest_test

import (
	"bufio"
	"context"
	"net"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/heedhttp/heed/internal/redistest"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestServerAnswersUntilItsTestEnds(t *testing.T) {
	var addr, process string
	t.Run("running", func(t *testing.T) {
		s := redistest.Start(t)
		addr, process = s.Addr, runID(t, s)
		pong, err := s.Do("PING")
		require.NoError(t, err)
		assert.Equal(t, "PONG", pong)
	})
	if addr != "" {
		assert.False(t, answers(addr, process))
	}
}

// answers reports whether the process with this ID answers at addr. When it has ended, another one may.
func answers(addr, process string) bool {
	info, err := (&redistest.Server{Addr: addr}).Do("INFO", "server")
	return err == nil && strings.Contains(info, "run_id:"+process)
}

func TestAKilledServerRefusesConnectionsUntilItsRestart(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("here another process may take the port")
	}
	s := redistest.Start(t)
	for range 3 {
		s.Kill()
		_, err := net.Dial("tcp", s.Addr)
		assert.ErrorIs(t, err, syscall.ECONNREFUSED)
		s.Restart()
	}
	_, err := net.Dial("tcp", redistest.Nowhere(t))
	assert.ErrorIs(t, err, syscall.ECONNREFUSED)
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

func TestAStoppedServerAnswersWhenContinued(t *testing.T) {
	s := redistest.Start(t)
	ping := func(patience time.Duration) error {
		client := redis.NewClient(&redis.Options{Addr: s.Addr, ReadTimeout: patience, MaxRetries: -1})
		defer client.Close()
		return client.Ping(context.Background()).Err()
	}
	require.NoError(t, ping(time.Minute))
	s.Stop()
	assert.Error(t, ping(50*time.Millisecond))
	s.Cont()
	assert.NoError(t, ping(time.Minute))
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

func TestAKilledOrPanickingTestLeavesNoServer(t *testing.T) {
	t.Parallel()
	end := os.Getenv("REDISTEST_END")
	s := redistest.StartSentinel(t) // skips the test without a redis-server
	if end != "" {
		announce(t, s)
		if end == "panic" {
			go panic("in a goroutine of a test")
		}
		select {}
	}
	for _, end := range []string{"panic", "kill"} {
		child := exec.Command(os.Args[0], "-test.run", "^"+t.Name()+"$")
		child.Env = append(os.Environ(), "REDISTEST_END="+end)
		out, err := child.StdoutPipe()
		require.NoError(t, err)
		require.NoError(t, child.Start())
		servers, err := bufio.NewReader(out).ReadString('\n')
		require.NoError(t, err)
		if end == "kill" {
			require.NoError(t, child.Process.Kill())
		}
		require.Error(t, child.Wait())
		require.Len(t, strings.Fields(servers), 6)
		for _, server := range strings.Fields(servers) {
			addr, process, _ := strings.Cut(server, "=")
			require.NotEmpty(t, process)
			require.Eventually(t, func() bool { return !answers(addr, process) }, time.Minute, 10*time.Millisecond, end)
		}
	}
}

// announce writes the addresses of the servers, and the IDs of their processes, for the parent process.
func announce(t *testing.T, s *redistest.Sentinel) {
	var all []string
	for _, server := range slices.Concat([]*redistest.Server{s.Master}, s.Replicas, s.Sentinels) {
		all = append(all, server.Addr+"="+runID(t, server))
	}
	os.Stdout.WriteString(strings.Join(all, " ") + "\n")
}

func TestWithoutABinaryTestsAreSkippedOrFailInCI(t *testing.T) {
	for ci, want := range map[string]string{"true": "--- FAIL", "": "--- SKIP"} {
		child := exec.Command(os.Args[0], "-test.v", "-test.run", "^TestServersRunSideBySide$")
		child.Env = []string{"PATH=" + t.TempDir(), "CI=" + ci}
		out, _ := child.CombinedOutput()
		assert.Contains(t, string(out), want, "CI=%q", ci)
		assert.Contains(t, string(out), "NOT TESTED", "CI=%q", ci)
	}
}

func TestAFakeSendsItsReplies(t *testing.T) {
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

func TestAFakeIsSilentOrHangsUp(t *testing.T) {
	for name, reply := range map[string]string{
		"silence": redistest.Silence, "hang up": redistest.HangUp, "garbage": redistest.Garbage,
	} {
		f := redistest.NewFake(t, reply)
		client := redis.NewClient(&redis.Options{Addr: f.Addr, ReadTimeout: 20 * time.Millisecond, MaxRetries: -1})
		assert.Error(t, client.Do(context.Background(), "GET", "a").Err(), name)
		client.Close()
	}
}

func TestClusterServesEverySlot(t *testing.T) {
	t.Parallel()
	var addrs []string
	for _, node := range redistest.StartCluster(t) {
		addrs = append(addrs, node.Addr)
	}
	client := redis.NewClusterClient(&redis.ClusterOptions{
		Addrs: addrs, DialTimeout: time.Minute, ReadTimeout: time.Minute, WriteTimeout: time.Minute,
	})
	defer client.Close()
	ctx := context.Background()
	for _, key := range []string{"a", "b", "c", "d", "e", "f"} {
		require.NoError(t, client.Set(ctx, key, key, time.Minute).Err())
		require.Equal(t, key, client.Get(ctx, key).Val())
	}
	var used int
	for _, node := range addrs {
		one := redis.NewClient(&redis.Options{Addr: node, DialTimeout: time.Minute, ReadTimeout: time.Minute})
		if one.DBSize(ctx).Val() > 0 {
			used++
		}
		one.Close()
	}
	assert.Equal(t, 3, used, "masters that hold keys")
}

// A client of the Sentinels finds the new master.
func TestSentinelsReplaceADeadMaster(t *testing.T) {
	t.Parallel()
	s := redistest.StartSentinel(t)
	client := redis.NewFailoverClient(&redis.FailoverOptions{MasterName: s.Name, SentinelAddrs: s.Addrs()})
	defer client.Close()
	ctx := context.Background()
	require.NoError(t, client.Set(ctx, "a", "1", time.Minute).Err())
	require.EqualValues(t, 2, client.Wait(ctx, 2, time.Minute).Val())
	s.Master.Kill()
	s.Watch()
	require.Eventually(t, func() bool {
		return client.Get(ctx, "a").Val() == "1" && client.Set(ctx, "a", "2", 0).Err() == nil
	}, time.Minute, 10*time.Millisecond)
}

func TestAReplicaTakesOverFromADeadMaster(t *testing.T) {
	t.Parallel()
	masters, replicas := redistest.StartReplicatedCluster(t)
	role, err := replicas[0].Do("INFO", "replication")
	require.NoError(t, err)
	require.Contains(t, role, "role:slave")
	require.Contains(t, role, "master_port:"+strings.TrimPrefix(masters[0].Addr, "127.0.0.1:"))
	masters[0].Kill()
	redistest.Watch(append(masters[1:], replicas...)...)
	require.Eventually(t, func() bool {
		role, err := replicas[0].Do("INFO", "replication")
		return err == nil && strings.Contains(role, "role:master")
	}, time.Minute, 10*time.Millisecond)
}

func TestSharedServersAreCleanAndUsedByOneTest(t *testing.T) {
	var first string
	t.Run("one test", func(t *testing.T) {
		a, b := redistest.Shared(t), redistest.Shared(t)
		require.NotEqual(t, a.Addr, b.Addr)
		first = a.Addr
		for _, command := range [][]string{{"SET", "k", "v"}, {"SCRIPT", "LOAD", "return 1"}} {
			_, err := a.Do(command...)
			require.NoError(t, err)
		}
		b.Stop()
	})
	t.Run("another", func(t *testing.T) {
		s := redistest.Shared(t)
		require.Equal(t, first, s.Addr)
		size, err := s.Do("DBSIZE")
		require.NoError(t, err)
		assert.Equal(t, "0", size)
		_, err = s.Do("EVALSHA", "e0e1f9fabfc9d4800c877a703b823ac0578ff8db", "0")
		assert.ErrorContains(t, err, "NOSCRIPT")
		stats, err := s.Do("INFO", "commandstats")
		require.NoError(t, err)
		assert.NotContains(t, stats, "cmdstat_set:")
	})
}

func TestAChangedSharedServerIsNotUsedAgain(t *testing.T) {
	for name, change := range map[string]func(*testing.T, *redistest.Server){
		"stopped":         func(_ *testing.T, s *redistest.Server) { s.Stop() },
		"killed":          func(_ *testing.T, s *redistest.Server) { s.Kill() },
		"restarted":       func(_ *testing.T, s *redistest.Server) { s.Restart() },
		"configured":      func(t *testing.T, s *redistest.Server) { do(t, s, "CONFIG", "SET", "maxmemory", "10mb") },
		"with a new user": func(t *testing.T, s *redistest.Server) { do(t, s, "ACL", "SETUSER", "alice") },
		"in use": func(t *testing.T, s *redistest.Server) {
			conn, err := net.Dial("tcp", s.Addr)
			require.NoError(t, err)
			t.Cleanup(func() { time.AfterFunc(time.Minute, func() { conn.Close() }) })
		},
	} {
		var process string
		t.Run(name, func(t *testing.T) {
			s := redistest.Shared(t)
			change(t, s)
			if name != "stopped" && name != "killed" {
				process = runID(t, s)
			}
		})
		t.Run("after one that was "+name, func(t *testing.T) {
			assert.NotEqual(t, process, runID(t, redistest.Shared(t)))
		})
	}
}

func runID(t *testing.T, s *redistest.Server) string {
	t.Helper()
	info := do(t, s, "INFO", "server")
	_, rest, _ := strings.Cut(info, "run_id:")
	id, _, _ := strings.Cut(rest, "\r\n")
	require.NotEmpty(t, id)
	return id
}

func do(t *testing.T, s *redistest.Server, command ...string) string {
	t.Helper()
	reply, err := s.Do(command...)
	require.NoError(t, err)
	return reply
}

func TestASharedClusterIsCleanOrReplaced(t *testing.T) {
	var first, second string
	t.Run("one test", func(t *testing.T) {
		nodes := redistest.SharedCluster(t)
		require.Len(t, nodes, 3)
		first = runID(t, nodes[0])
		do(t, nodes[0], "SCRIPT", "LOAD", "return 1")
	})
	t.Run("another", func(t *testing.T) {
		nodes := redistest.SharedCluster(t)
		assert.Equal(t, first, runID(t, nodes[0]))
		_, err := nodes[0].Do("EVALSHA", "e0e1f9fabfc9d4800c877a703b823ac0578ff8db", "0")
		assert.ErrorContains(t, err, "NOSCRIPT")
		do(t, nodes[0], "CLUSTER", "DELSLOTS", "0")
	})
	t.Run("a third, after one that changed the slots", func(t *testing.T) {
		second = runID(t, redistest.SharedCluster(t)[0])
		assert.NotEqual(t, first, second)
	})
}

func TestAMemoryFakeNeedsNoNetwork(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := redistest.NewMemoryFake(t, "+one\r\n", redistest.Silence)
		client := redis.NewClient(&redis.Options{
			Addr: "127.0.0.1:1", Dialer: f.Dial, ReadTimeout: time.Second, MaxRetries: -1,
		})
		defer client.Close()
		got, err := client.Do(context.Background(), "GET", "a").Text()
		require.NoError(t, err)
		assert.Equal(t, "one", got)
		start := time.Now()
		assert.Error(t, client.Do(context.Background(), "GET", "b").Err())
		assert.Equal(t, time.Second, time.Since(start))
		f.Say("+two\r\n")
		got, err = client.Do(context.Background(), "GET", "c").Text()
		require.NoError(t, err)
		assert.Equal(t, "two", got)
		assert.Equal(t, [][]string{{"GET", "a"}, {"GET", "b"}, {"GET", "c"}}, f.Commands())
	})
}

func TestMain(m *testing.M) {
	defer redistest.EndShared()
	m.Run()
}
