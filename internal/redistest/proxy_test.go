package redistest_test

import (
	"context"
	"io"
	"net"
	"strconv"
	"syscall"
	"testing"
	"time"

	"github.com/heedhttp/heed/internal/redistest"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// proxied returns a Proxy, its server, and a client with one open connection through it.
func proxied(t *testing.T) (*redistest.Proxy, *redistest.Server, *redis.Client) {
	t.Helper()
	server := redistest.Shared(t)
	p := redistest.NewProxy(t, server.Addr)
	client := redis.NewClient(&redis.Options{Addr: p.Addr(), PoolSize: 1, MaxRetries: -1, ReadTimeout: time.Minute})
	t.Cleanup(func() { client.Close() })
	require.NoError(t, client.Set(context.Background(), "n", 1, 0).Err())
	return p, server, client
}

func TestAProxyDelaysEachDirection(t *testing.T) {
	p, _, client := proxied(t)
	const delay = 20 * time.Millisecond
	p.SetDelay(delay)
	start := time.Now()
	require.NoError(t, client.Ping(context.Background()).Err())
	assert.GreaterOrEqual(t, time.Since(start), 2*delay)

	// Commands sent without waiting for replies are delayed once, and arrive in order.
	p.SetDelay(100 * time.Millisecond)
	conn, err := net.Dial("tcp", p.Addr())
	require.NoError(t, err)
	defer conn.Close()
	start = time.Now()
	var want string
	const commands = 1000 // each by itself, they would take over three minutes
	for i := range commands {
		_, err := conn.Write([]byte("INCR n\r\n"))
		require.NoError(t, err)
		if i%100 == 0 {
			time.Sleep(time.Millisecond)
		}
	}
	for i := range commands {
		want += ":" + strconv.Itoa(i+2) + "\r\n"
	}
	assert.Equal(t, want, read(t, conn, len(want)))
	assert.GreaterOrEqual(t, time.Since(start), 200*time.Millisecond)
	assert.Less(t, time.Since(start), time.Minute, "not each by itself")
}

func TestAProxiedConnectionThatLostBytesStaysDead(t *testing.T) {
	p, server, _ := proxied(t)
	idle, err := net.Dial("tcp", p.Addr())
	require.NoError(t, err)
	defer idle.Close()
	_, err = idle.Write([]byte("PING\r\n"))
	require.NoError(t, err)
	require.Equal(t, "+PONG\r\n", read(t, idle, 7))

	p.Swallow(true)
	fresh, err := net.Dial("tcp", p.Addr())
	require.NoError(t, err, "new connections are accepted")
	defer fresh.Close()
	const command = "INCR n\r\n"
	lose := func(dropped int) {
		t.Helper()
		_, err := fresh.Write([]byte(command))
		require.NoError(t, err)
		require.Eventually(t, func() bool { return p.Dropped() == dropped }, time.Minute, time.Millisecond)
		silent(t, fresh)
	}
	lose(len(command))
	p.Swallow(false)
	lose(2 * len(command))
	assert.Equal(t, "1", do(t, server, "GET", "n"))
	_, err = idle.Write([]byte(command))
	require.NoError(t, err)
	assert.Equal(t, ":2\r\n", read(t, idle, 4), "this connection lost nothing")
}

func TestAProxyCutsTheReplyToAnExecutedCommand(t *testing.T) {
	p, server, client := proxied(t)
	for lost := range 3 {
		p.Cut(lost) // bytes of ":2\r\n"
		assert.Error(t, client.Incr(context.Background(), "n").Err())
		require.Equal(t, strconv.Itoa(2+2*lost), do(t, server, "GET", "n"))
		assert.EqualValues(t, 3+2*lost, client.Incr(context.Background(), "n").Val(), "once")
	}
	conn, err := net.Dial("tcp", p.Addr())
	require.NoError(t, err)
	defer conn.Close()
	p.Cut(2)
	_, err = conn.Write([]byte("INCR n\r\n"))
	require.NoError(t, err)
	assert.Equal(t, ":8", read(t, conn, 2), "the bytes before the cut")
	_, err = conn.Read(make([]byte, 1))
	assert.ErrorIs(t, err, syscall.ECONNRESET)
}

func TestAProxyResetsConnections(t *testing.T) {
	p, _, client := proxied(t)
	conn, err := net.Dial("tcp", p.Addr())
	require.NoError(t, err)
	defer conn.Close()
	_, err = conn.Write([]byte("PING\r\n"))
	require.NoError(t, err)
	require.Equal(t, "+PONG\r\n", read(t, conn, 7))
	p.Reset()
	_, err = conn.Read(make([]byte, 1))
	assert.ErrorIs(t, err, syscall.ECONNRESET)

	p.Refuse(true)
	p.Reset()
	assert.Error(t, client.Ping(context.Background()).Err())
	p.Refuse(false)
	ping := func() bool { return client.Ping(context.Background()).Err() == nil }
	assert.Eventually(t, ping, time.Minute, time.Millisecond)
}

func TestAProxyClosesAConnectionWithItsServer(t *testing.T) {
	server := redistest.Start(t)
	p := redistest.NewProxy(t, server.Addr)
	conn, err := net.Dial("tcp", p.Addr())
	require.NoError(t, err)
	defer conn.Close()
	_, err = conn.Write([]byte("QUIT\r\n"))
	require.NoError(t, err)
	assert.Equal(t, "+OK\r\n", read(t, conn, 5))
	_, err = conn.Read(make([]byte, 1))
	assert.Error(t, err)

	server.Kill()
	if conn, err := net.Dial("tcp", p.Addr()); err == nil { // it may be reset before Dial returns
		defer conn.Close()
		_, err = conn.Read(make([]byte, 1))
		assert.Error(t, err, "the server is gone")
	}
}

// silent requires that nothing arrives.
func silent(t *testing.T, conn net.Conn) {
	t.Helper()
	require.NoError(t, conn.SetReadDeadline(time.Now().Add(50*time.Millisecond)))
	_, err := conn.Read(make([]byte, 1))
	timeout, ok := err.(net.Error)
	require.True(t, ok && timeout.Timeout(), "%v", err)
}

// read returns the next n bytes.
func read(t *testing.T, conn net.Conn, n int) string {
	t.Helper()
	require.NoError(t, conn.SetReadDeadline(time.Now().Add(time.Minute)))
	data := make([]byte, n)
	_, err := io.ReadFull(conn, data)
	require.NoError(t, err)
	return string(data)
}
