package redisstore_test

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/heedhttp/heed/internal/redistest"
	"github.com/heedhttp/heed/redisstore"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// A node is a fake server, alone or of a cluster, which keeps book of the scripts
// that it was told to execute.
type node struct {
	addr   string
	answer func(n *node, verb, key string) string // the protocol's bytes, for a script

	mu     sync.Mutex // guards what follows
	sent   []string   // verb and key
	master func() []*node
	asking bool
}

const one = ":1\r\n"

func newNode(t *testing.T, answer func(n *node, verb, key string) string) *node {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	n := &node{addr: l.Addr().String(), answer: answer}
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

func (n *node) serve(conn net.Conn) {
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

// readArgs returns nil if there are no more.
func readArgs(r *bufio.Reader) (args []string) {
	count := readNumber(r, "*")
	for range count {
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

func (n *node) reply(args []string) string {
	n.mu.Lock()
	defer n.mu.Unlock()
	switch verb := strings.ToLower(args[0]); verb {
	case "evalsha", "eval":
		n.sent = append(n.sent, verb+" "+args[3])
		return n.answer(n, verb, args[3])
	case "cluster":
		return slotsOf(n.master())
	case "command":
		return "*0\r\n"
	case "asking":
		n.asking = true
	case "hello":
		return "-ERR unknown command 'HELLO'\r\n"
	}
	return "+OK\r\n"
}

// slotsOf is a cluster whose slots are divided among masters.
func slotsOf(masters []*node) string {
	all := fmt.Sprintf("*%d\r\n", len(masters))
	for i, n := range masters {
		host, port, _ := net.SplitHostPort(n.addr)
		first, last := i*16384/len(masters), (i+1)*16384/len(masters)-1
		all += fmt.Sprintf("*3\r\n:%d\r\n:%d\r\n*3\r\n$%d\r\n%s\r\n:%s\r\n$%d\r\n%s\r\n",
			first, last, len(host), host, port, len(n.addr), n.addr)
	}
	return all
}

// executed returns what n was told to execute, in order of keys.
func (n *node) executed() []string {
	n.mu.Lock()
	defer n.mu.Unlock()
	return slices.Sorted(slices.Values(n.sent))
}

// quick is for how long a client waits for an answer that does not come. Each would
// repeat, and soon.
const quick = 20 * time.Millisecond

func clientOf(t *testing.T, n *node, wait time.Duration) *redis.Client {
	c := redis.NewClient(&redis.Options{Addr: n.addr, ReadTimeout: wait, MinRetryBackoff: 1, MaxRetryBackoff: 2})
	t.Cleanup(func() { c.Close() })
	return c
}

func clusterOf(t *testing.T, wait time.Duration, masters ...*node) *redis.ClusterClient {
	for _, n := range masters {
		n.master = func() []*node { return masters }
	}
	c := redis.NewClusterClient(&redis.ClusterOptions{Addrs: []string{masters[0].addr}, ReadTimeout: wait, MinRetryBackoff: 1, MaxRetryBackoff: 2})
	t.Cleanup(func() { c.Close() })
	return c
}

func ringOf(t *testing.T, n *node, wait time.Duration) *redis.Ring {
	c := redis.NewRing(&redis.RingOptions{Addrs: map[string]string{"a": n.addr}, ReadTimeout: wait, MinRetryBackoff: 1, MaxRetryBackoff: 2, HeartbeatFrequency: time.Hour})
	t.Cleanup(func() { c.Close() })
	return c
}

// Whatever a server does with a pipeline, nothing in it is sent twice, while the
// same client sends a pipeline of its own commands several times.
func TestOfAPipelineTooNothingIsSentTwice(t *testing.T) {
	says := func(reply string) func(*node, string, string) string {
		return func(*node, string, string) string { return reply }
	}
	for name, answer := range map[string]func(*node, string, string) string{
		"silence":           says(redistest.Silence),
		"closed connection": says(redistest.HangUp),
		"loading":           says(redistest.Loading),
		"read only":         says(redistest.ReadOnly),
		"cluster down":      says("-CLUSTERDOWN The cluster is down\r\n"),
		"try again":         says("-TRYAGAIN Multiple keys request during rehashing of slot\r\n"),
		"one answer": func(_ *node, _, key string) string {
			if key == "a" {
				return one
			}
			return redistest.Silence
		},
		"one answer, and closed": func(_ *node, _, key string) string {
			if key == "a" {
				return one
			}
			return redistest.HangUp
		},
	} {
		for kind, client := range map[string]func(t *testing.T, n *node) redis.UniversalClient{
			"client":  func(t *testing.T, n *node) redis.UniversalClient { return clientOf(t, n, quick) },
			"cluster": func(t *testing.T, n *node) redis.UniversalClient { return clusterOf(t, quick, n) },
			"ring":    func(t *testing.T, n *node) redis.UniversalClient { return ringOf(t, n, quick) },
		} {
			t.Run(kind+": "+name, func(t *testing.T) {
				t.Parallel()
				n := newNode(t, answer)
				errs := redisstore.SendAll(ctx, client(t, n), "a", "b", "c")
				for i, err := range errs {
					if answered := i == 0 && strings.HasPrefix(name, "one answer"); !answered {
						assert.Error(t, err)
					} // else a Client may say of it, too, that the connection broke
				}
				time.Sleep(3 * quick) // if it were to be repeated
				sent := n.executed()
				assert.Subset(t, []string{"evalsha a", "evalsha b", "evalsha c"}, sent)
				assert.Len(t, slices.Compact(slices.Clone(sent)), len(sent), "%v", sent)
			})
		}
	}
}

func TestGoRedisWouldSendAPipelineAgain(t *testing.T) {
	n := newNode(t, func(*node, string, string) string { return redistest.HangUp })
	for _, client := range []redis.UniversalClient{clientOf(t, n, hang), clusterOf(t, hang, n)} {
		n.mu.Lock()
		n.sent = nil
		n.mu.Unlock()
		pipe := client.Pipeline()
		pipe.EvalSha(ctx, redisstore.ScriptSHA, []string{"a"})
		pipe.EvalSha(ctx, redisstore.ScriptSHA, []string{"b"})
		_, err := pipe.Exec(ctx)
		require.Error(t, err)
		assert.Greater(t, len(n.executed()), 2)
	}
}

func TestOfAPipelineOnlyWhatIsUnknownIsShown(t *testing.T) {
	n := newNode(t, func(_ *node, verb, key string) string {
		switch {
		case verb == "evalsha" && (key == "b" || key == "d"):
			return redistest.NoScript
		case key == "c":
			return redistest.WrongType
		case verb == "eval" && key == "d":
			return redistest.ReadOnly
		}
		return one
	})
	for kind, client := range map[string]redis.UniversalClient{"client": clientOf(t, n, hang), "cluster": clusterOf(t, hang, n), "ring": ringOf(t, n, hang)} {
		n.mu.Lock()
		n.sent = nil
		n.mu.Unlock()
		errs := redisstore.SendAll(ctx, client, "a", "b", "c", "d")
		assert.NoError(t, errs[0], kind)
		assert.NoError(t, errs[1], kind)
		assert.ErrorContains(t, errs[2], "redisstore: WRONGTYPE", kind)
		assert.ErrorContains(t, errs[3], "redisstore: READONLY", kind)
		assert.Equal(t, []string{"eval b", "eval d", "evalsha a", "evalsha b", "evalsha c", "evalsha d"}, n.executed(), kind)
	}
}

func TestInAPipelineMOVEDAndASKAreFollowed(t *testing.T) {
	other := newNode(t, func(n *node, verb, key string) string {
		if key == "asked" && !n.asking {
			return "-MOVED 1 somewhere:1\r\n"
		}
		n.asking = false
		return one
	})
	first := newNode(t, func(_ *node, verb, key string) string {
		switch key {
		case "moved":
			return "-MOVED 1 " + other.addr + "\r\n"
		case "asked":
			return "-ASK 1 " + other.addr + "\r\n"
		}
		return one
	})
	client := clusterOf(t, hang, first)
	other.master = first.master
	for _, err := range redisstore.SendAll(ctx, client, "here", "moved", "asked", "there") {
		assert.NoError(t, err)
	}
	assert.Equal(t, []string{"evalsha asked", "evalsha here", "evalsha moved", "evalsha there"}, first.executed(), "where nothing was executed twice")
	assert.Equal(t, []string{"evalsha asked", "evalsha moved"}, other.executed())
}

// A real cluster that moves a slot while it is used.
func TestInAPipelineASlotMayMove(t *testing.T) {
	mostlyWaits(t)
	nodes := redistest.SharedCluster(t)
	client := newClusterClient(t, nodes)
	for _, err := range redisstore.SendAll(ctx, client, "x", "y", "z") {
		require.NoError(t, err)
	}
	slot, err := client.ClusterKeySlot(ctx, "x").Result()
	require.NoError(t, err)
	source, err := client.MasterForKey(ctx, "x")
	require.NoError(t, err)
	i := slices.IndexFunc(nodes, func(n *redistest.Server) bool { return n.Addr != source.Options().Addr })
	target := newClient(t, nodes[i])
	id := func(c *redis.Client) string { return c.Do(ctx, "CLUSTER", "MYID").Val().(string) }
	require.NoError(t, target.Do(ctx, "CLUSTER", "SETSLOT", slot, "IMPORTING", id(source)).Err())
	require.NoError(t, source.Do(ctx, "CLUSTER", "SETSLOT", slot, "MIGRATING", id(target)).Err())
	for _, err := range redisstore.SendAll(ctx, client, "x", "y", "z") { // x is asked for
		assert.NoError(t, err)
	}
	for _, c := range []*redis.Client{target, source} {
		require.NoError(t, c.Do(ctx, "CLUSTER", "SETSLOT", slot, "NODE", id(target)).Err())
	}
	for _, err := range redisstore.SendAll(ctx, client, "x", "y", "z") { // x has moved
		assert.NoError(t, err)
	}
}
