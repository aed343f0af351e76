package redisstore

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/heedhttp/heed/internal/redistest"
)

// A scriptNode is a fake server, alone or in a cluster, that records the scripts that it gets.
type scriptNode struct {
	addr   string
	answer func(n *scriptNode, verb, key string) string // returns the reply to a script, in the protocol

	mu      sync.Mutex // guards what follows
	scripts []string   // verb and key of each
	masters func() []*scriptNode
	asking  bool
}

const replyOne = ":1\r\n"

func newScriptNode(t *testing.T, answer func(n *scriptNode, verb, key string) string) *scriptNode {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	n := &scriptNode{addr: l.Addr().String(), answer: answer}
	t.Cleanup(func() { l.Close() })
	go func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			t.Cleanup(func() { conn.Close() })
			go n.serve(conn)
		}
	}()
	return n
}

func (n *scriptNode) serve(conn net.Conn) {
	defer conn.Close()
	for r := bufio.NewReader(conn); ; {
		args := readArgs(r)
		if args == nil {
			return
		}
		reply := n.reply(args)
		if reply == redistest.HangUp {
			return
		}
		io.WriteString(conn, reply)
	}
}

// readArgs reads a command. It returns nil at the end.
func readArgs(r *bufio.Reader) (args []string) {
	for range readNumber(r, "*") {
		arg := make([]byte, readNumber(r, "$")+2)
		if _, err := io.ReadFull(r, arg); err != nil {
			return nil
		}
		args = append(args, string(arg[:len(arg)-2]))
	}
	return args
}

func readNumber(r *bufio.Reader, sign string) int {
	line, _ := r.ReadString('\n')
	n, _ := strconv.Atoi(strings.TrimSpace(strings.TrimPrefix(line, sign)))
	return n
}

func (n *scriptNode) reply(args []string) string {
	n.mu.Lock()
	defer n.mu.Unlock()
	switch verb := strings.ToLower(args[0]); verb {
	case "evalsha", "eval":
		n.scripts = append(n.scripts, verb+" "+args[3])
		return n.answer(n, verb, args[3])
	case "cluster":
		return slotsReply(n.masters())
	case "command":
		return "*0\r\n"
	case "asking":
		n.asking = true
	case "hello":
		return "-ERR unknown command 'HELLO'\r\n"
	}
	return "+OK\r\n"
}

// slotsReply returns the reply to CLUSTER SLOTS, with the slots divided among masters.
func slotsReply(masters []*scriptNode) string {
	all := fmt.Sprintf("*%d\r\n", len(masters))
	for i, n := range masters {
		host, port, _ := net.SplitHostPort(n.addr)
		first, last := i*slots/len(masters), (i+1)*slots/len(masters)-1
		all += fmt.Sprintf("*3\r\n:%d\r\n:%d\r\n*3\r\n$%d\r\n%s\r\n:%s\r\n$%d\r\n%s\r\n",
			first, last, len(host), host, port, len(n.addr), n.addr)
	}
	return all
}

// sent returns the scripts that n has got, sorted, and clears them.
func (n *scriptNode) sent() []string {
	n.mu.Lock()
	defer n.mu.Unlock()
	scripts := n.scripts
	n.scripts = nil
	slices.Sort(scripts)
	return scripts
}

const (
	// retrySoon is how long a client waits for an answer that does not come. A client that
	// retries sends its command again a moment later.
	retrySoon = 20 * time.Millisecond

	// sooner is how long a client waits for an answer that does come, on a busy machine.
	sooner = time.Minute
)

// clientsOf returns one client of each kind for n.
func clientsOf(t *testing.T, n *scriptNode, wait time.Duration) map[string]redis.UniversalClient {
	client := redis.NewClient(&redis.Options{Addr: n.addr, ReadTimeout: wait, MinRetryBackoff: 1, MaxRetryBackoff: 2})
	ring := redis.NewRing(&redis.RingOptions{
		Addrs: map[string]string{"a": n.addr}, ReadTimeout: wait,
		MinRetryBackoff: 1, MaxRetryBackoff: 2, HeartbeatFrequency: time.Hour,
	})
	t.Cleanup(func() { client.Close(); ring.Close() })
	return map[string]redis.UniversalClient{"client": client, "cluster": clusterOf(t, n, wait), "ring": ring}
}

func clusterOf(t *testing.T, n *scriptNode, wait time.Duration) *redis.ClusterClient {
	n.masters = func() []*scriptNode { return []*scriptNode{n} }
	c := redis.NewClusterClient(&redis.ClusterOptions{
		Addrs: []string{n.addr}, ReadTimeout: wait, MinRetryBackoff: 1, MaxRetryBackoff: 2,
	})
	t.Cleanup(func() { c.Close() })
	return c
}

// sendFor executes a script for each of keys in a pipeline, and returns its errors.
func sendFor(client sender, keys ...string) (errs []error) {
	var all []*execution
	for _, key := range keys {
		all = append(all, &execution{script: probeScript, keys: []string{key}})
	}
	sendAll(context.Background(), client, all)
	for _, e := range all {
		errs = append(errs, e.err)
	}
	return errs
}

// Whatever a server replies to a script, alone or in a pipeline, it is not sent again.
func TestScriptsAreNotSentTwice(t *testing.T) {
	reply := func(reply string) func(*scriptNode, string, string) string {
		return func(*scriptNode, string, string) string { return reply }
	}
	answersA := func(others string) func(*scriptNode, string, string) string {
		return func(_ *scriptNode, _, key string) string {
			if key == "a" {
				return replyOne
			}
			return others
		}
	}
	for name, answer := range map[string]func(*scriptNode, string, string) string{
		"silence":                reply(redistest.Silence),
		"closed connection":      reply(redistest.HangUp),
		"loading":                reply(redistest.Loading),
		"read only":              reply(redistest.ReadOnly),
		"cluster down":           reply("-CLUSTERDOWN The cluster is down\r\n"),
		"try again":              reply("-TRYAGAIN Multiple keys request during rehashing of slot\r\n"),
		"master down":            reply("-MASTERDOWN Link with MASTER is down\r\n"),
		"too many clients":       reply("-ERR max number of clients reached\r\n"),
		"one answer":             answersA(redistest.Silence),
		"one answer, and closed": answersA(redistest.HangUp),
	} {
		for _, kind := range []string{"client", "cluster", "ring"} {
			for _, keys := range [][]string{{"b"}, {"a", "b", "c"}} {
				if kind == "cluster" && name == "read only" && len(keys) == 1 {
					continue // the client looks for the master, because a replica executes nothing
				}
				t.Run(fmt.Sprint(kind, ": ", name, " ", len(keys)), func(t *testing.T) {
					t.Parallel()
					n := newScriptNode(t, answer)
					for i, err := range sendFor(clientsOf(t, n, retrySoon)[kind], keys...) {
						if keys[i] != "a" || !strings.HasPrefix(name, "one answer") {
							assert.Error(t, err)
						} // otherwise a Client may also report that the connection broke
					}
					time.Sleep(3 * retrySoon) // for a second attempt, if there were one
					sent := n.sent()
					assert.Subset(t, []string{"evalsha a", "evalsha b", "evalsha c"}, sent)
					assert.Len(t, slices.Compact(slices.Clone(sent)), len(sent), "%v", sent)
				})
			}
		}
	}
}

// This shows that the test above can fail.
func TestGoRedisRetriesByDefault(t *testing.T) {
	n := newScriptNode(t, func(*scriptNode, string, string) string { return redistest.HangUp })
	clients := clientsOf(t, n, sooner)
	for _, kind := range []string{"client", "cluster"} {
		pipe := clients[kind].Pipeline()
		pipe.EvalSha(t.Context(), probeScript.sha, []string{"a"})
		pipe.EvalSha(t.Context(), probeScript.sha, []string{"b"})
		_, err := pipe.Exec(t.Context())
		require.Error(t, err)
		assert.Greater(t, len(n.sent()), 2, kind)
		require.Error(t, clients[kind].EvalSha(t.Context(), probeScript.sha, []string{"a"}).Err())
		assert.Greater(t, len(n.sent()), 1, kind)
	}
}

func TestOnlyTheSourceOfAnUnknownScriptIsSent(t *testing.T) {
	n := newScriptNode(t, func(_ *scriptNode, verb, key string) string {
		switch {
		case verb == "evalsha" && (key == "b" || key == "d"):
			return redistest.NoScript
		case key == "c":
			return redistest.WrongType
		case verb == "eval" && key == "d":
			return redistest.ReadOnly
		case key == "e":
			return "$-1\r\n"
		}
		return replyOne
	})
	for kind, client := range clientsOf(t, n, sooner) {
		errs := sendFor(client, "a", "b", "c", "d", "e")
		assert.NoError(t, errs[0], kind)
		assert.NoError(t, errs[1], kind)
		assert.ErrorContains(t, errs[2], "redisstore: WRONGTYPE", kind)
		assert.ErrorContains(t, errs[3], "redisstore: READONLY", kind)
		assert.NoError(t, errs[4], "nil is a reply")
		want := []string{"eval b", "eval d", "evalsha a", "evalsha b", "evalsha c", "evalsha d", "evalsha e"}
		assert.Equal(t, want, n.sent(), kind)
		assert.NoError(t, sendFor(client, "b")[0])
		assert.Equal(t, []string{"eval b", "evalsha b"}, n.sent(), kind)
	}
}

func TestScriptsFollowMOVEDAndASK(t *testing.T) {
	other := newScriptNode(t, func(n *scriptNode, _, key string) string {
		if key == "asked" && !n.asking {
			return "-MOVED 1 somewhere:1\r\n"
		}
		n.asking = false
		return replyOne
	})
	first := newScriptNode(t, func(_ *scriptNode, _, key string) string {
		switch key {
		case "moved":
			return "-MOVED 1 " + other.addr + "\r\n"
		case "asked":
			return "-ASK 1 " + other.addr + "\r\n"
		}
		return replyOne
	})
	client := clusterOf(t, first, sooner)
	other.masters = first.masters
	for _, err := range sendFor(client, "here", "moved", "asked", "there") {
		assert.NoError(t, err)
	}
	assert.Equal(t, []string{"evalsha asked", "evalsha here", "evalsha moved", "evalsha there"}, first.sent(),
		"nothing was executed twice")
	assert.Equal(t, []string{"evalsha asked", "evalsha moved"}, other.sent())
	for _, key := range []string{"moved", "asked"} {
		assert.NoError(t, sendFor(client, key)[0])
		assert.Equal(t, []string{"evalsha " + key}, first.sent())
		assert.Equal(t, []string{"evalsha " + key}, other.sent())
	}
}

// A slot of a real cluster moves while it is in use.
func TestScriptsGoOnWhileASlotMoves(t *testing.T) {
	nodes := redistest.SharedCluster(t)
	var addrs []string
	for _, n := range nodes {
		addrs = append(addrs, n.Addr)
	}
	ctx, client := t.Context(), redis.NewClusterClient(&redis.ClusterOptions{Addrs: addrs})
	defer client.Close()
	succeeds := func() {
		t.Helper()
		for _, err := range sendFor(client, "x", "y", "z") {
			require.NoError(t, err)
		}
	}
	succeeds()
	slot := slotOf("x")
	source, err := client.MasterForKey(ctx, "x")
	require.NoError(t, err)
	addrs = slices.DeleteFunc(addrs, func(addr string) bool { return addr == source.Options().Addr })
	target := redis.NewClient(&redis.Options{Addr: addrs[0]})
	defer target.Close()
	id := func(c *redis.Client) string { return c.Do(ctx, "CLUSTER", "MYID").Val().(string) }
	require.NoError(t, target.Do(ctx, "CLUSTER", "SETSLOT", slot, "IMPORTING", id(source)).Err())
	require.NoError(t, source.Do(ctx, "CLUSTER", "SETSLOT", slot, "MIGRATING", id(target)).Err())
	succeeds() // by ASK
	for _, c := range []*redis.Client{target, source} {
		require.NoError(t, c.Do(ctx, "CLUSTER", "SETSLOT", slot, "NODE", id(target)).Err())
	}
	succeeds() // by MOVED
}
