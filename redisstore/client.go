package redisstore

import (
	"context"
	"errors"
	"reflect"
	"sync"
	"time"

	"github.com/heedhttp/heed/internal/remote"
	"github.com/redis/go-redis/v9"
)

const (
	longestCheck  = 250 * time.Millisecond // until a connection has to prove that it is alive
	longestAnswer = time.Second            // until a server has to answer a new one
)

var errNoClient = errors.New("redisstore: Client is nil")

// A client runs scripts in Redis for a Store, Board, Budget, Limits or Document, and waits no
// longer than a timeout. Connections are made in the background, with the time of their own
// that go-redis gives them: a call waits for the first one within its timeout. After a call
// without an answer, others fail at once until the server answers a probe. Each master of a
// Cluster, and each shard of a Ring, is judged by itself.
//
// It is safe for concurrent use.
type client struct {
	redis   redis.UniversalClient // the user's
	single  *redis.Client         // redis with read and write timeouts; nil if it is no *redis.Client
	timeout time.Duration
	execute func(ctx context.Context, batch []*request) error // set by a Store only

	connections connections
	servers     sync.Map // *server, by the *redis.Client of it; nil if that is not known
	only        *server  // of a *redis.Client; nil if there may be several
}

// A server is a Redis, one of the masters of a Cluster, or a shard of a Ring, with its own breaker.
type server struct {
	remote.Caller
	batches batcher[*request] // used by a Store only
}

// newClient returns the client of c, which may be nil.
func newClient(c redis.UniversalClient, timeout time.Duration) *client {
	made := &client{redis: c, timeout: timeout}
	if isNil(c) {
		return made
	}
	if single, ok := c.(*redis.Client); ok {
		made.single = single.WithTimeout(timeout)
		made.only = made.newServer(single, func(ctx context.Context, s *server) error { return made.connect(ctx, s, single) })
	}
	made.connections.watch(c, made.dialFailed) // which a client that others use may do at once
	return made
}

// run has s executed, at most once and in no batch, and returns its reply. After an error nobody
// knows whether it was executed, unless unexecuted says so. If ctx ends first, run returns, and the
// call is left to itself.
func (c *client) run(ctx context.Context, s *script, keys []string, args ...any) (any, error) {
	return c.runBy(remote.Do[any], ctx, s, keys, args)
}

// runPatiently is run, but if Redis does not answer, it first waits up to the timeout until a probe
// says that it does.
func (c *client) runPatiently(ctx context.Context, s *script, keys []string, args ...any) (any, error) {
	return c.runBy(remote.DoPatiently[any], ctx, s, keys, args)
}

func (c *client) runBy(do func(context.Context, *remote.Caller, func(context.Context) (any, error), func(any)) (any, error),
	ctx context.Context, s *script, keys []string, args []any) (any, error) {
	if isNil(c.redis) {
		return nil, errNoClient
	}
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	value, err := do(ctx, &c.serverOf(keys[0]).Caller, func(ctx context.Context) (any, error) {
		e := &execution{script: s, keys: keys, args: args}
		e.send(c.inTime(ctx), c.redis)
		return e.value, e.err
	}, nil)
	return value, c.connections.explain(err)
}

// isReady reports whether the server of a key is known to answer. It does not wait.
func (c *client) isReady(key string) bool {
	return !isNil(c.redis) && c.serverOf(key).Ready(ended) == nil
}

// unexecuted reports whether err, of run, says that the script was not executed: it was not
// sent, or the server refused it.
func unexecuted(err error) bool {
	call, ok := errors.AsType[*remote.Error](err)
	return err == errNoClient || isAnswer(err) || ok && call.Unsent
}

// inTime returns a context with which a *redis.Client ends a command after the timeout. By itself
// it heeds no deadline while it reads, unless Options.ContextTimeoutEnabled is set; and what
// WithTimeout returns has none of its hooks.
func (c *client) inTime(ctx context.Context) context.Context {
	if c.single == nil {
		return ctx
	}
	return context.WithValue(ctx, timedClient{}, c.single)
}

// timedClient is the key of a context's value: the *redis.Client, with timeouts, that clientHook
// sends a command with.
type timedClient struct{}

// serverOf returns the server of a key, as Redis has it.
func (c *client) serverOf(key string) *server {
	if c.only != nil {
		return c.only
	}
	if node := c.node(ended, key); node != nil {
		return c.serverAt(node)
	}
	return c.serverBy(nil, func(ctx context.Context, _ *server) error { return c.findServers(ctx, key) })
}

// serverAt returns the server that node is a client of. A server that leaves a Cluster or Ring and
// comes back has another: the first is closed.
func (c *client) serverAt(node *redis.Client) *server {
	if c.only != nil {
		return c.only
	}
	return c.serverBy(node, func(ctx context.Context, s *server) error { return c.connect(ctx, s, node) })
}

// serverBy returns the server of node, or of nil if that is not known, whose Probe is connect.
func (c *client) serverBy(node *redis.Client, connect func(context.Context, *server) error) *server {
	if s, ok := c.servers.Load(node); ok {
		return s.(*server)
	}
	s, _ := c.servers.LoadOrStore(node, c.newServer(node, connect))
	return s.(*server)
}

func (c *client) newServer(node *redis.Client, connect func(context.Context, *server) error) *server {
	s := new(server)
	if node != nil {
		s.batches.most = maxConns(node)
	}
	s.Name, s.Timeout, s.Answered = "redisstore: Redis", c.timeout, admits
	s.Probe = func(ctx context.Context) error {
		ctx, cancel := context.WithTimeout(ctx, c.connectTimeout())
		defer cancel()
		return c.connections.explain(connect(ctx, s))
	}
	s.batches.send = func(ctx context.Context, batch []*request) error {
		_, err := remote.Do(ctx, &s.Caller, func(ctx context.Context) (struct{}, error) {
			return struct{}{}, c.execute(ctx, batch)
		}, nil)
		return err
	}
	return s
}

// each calls f with each server.
func (c *client) each(f func(*server)) {
	if c.only != nil {
		f(c.only)
	}
	c.servers.Range(func(_, s any) bool {
		f(s.(*server))
		return true
	})
}

// answers closes the breakers of all servers: something has come from Redis. A server that does not
// answer all the same costs one timeout.
func (c *client) answers() { c.each(func(s *server) { s.Answers() }) }

// dialFailed says that the client cannot connect because of err.
func (c *client) dialFailed(err error) {
	if c.only != nil { // or it may be another server that it cannot connect to
		c.only.Fails(err)
	}
}

// node returns the client of the one server that has key, or nil if that is not known.
func (c *client) node(ctx context.Context, key string) *redis.Client {
	var node *redis.Client
	var err error
	switch all := c.redis.(type) {
	case *redis.Client:
		node = all
	case *redis.ClusterClient:
		node, err = all.MasterForKey(ctx, key)
	case *redis.Ring:
		node, err = all.GetShardClientForKey(key)
	}
	if err != nil {
		return nil
	}
	return node
}

// ended is a context that has ended. With it a ClusterClient that does not know its masters fails
// instead of asking for them, and Ready does not wait.
var ended = func() context.Context {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	return ctx
}()

// isNil reports whether client is nil, or a nil pointer to some client.
func isNil(client redis.UniversalClient) bool {
	if client == nil {
		return true
	}
	v := reflect.ValueOf(client)
	return v.Kind() == reflect.Pointer && v.IsNil()
}

// probeScript is what a probe runs.
var probeScript = newScript("return 1")

// findServers asks a Cluster or Ring for the server of a key, and connects to all of them.
func (c *client) findServers(ctx context.Context, key string) error {
	if err := runProbe(ctx, c.redis, key); err != nil {
		return err
	}
	nodes, err := masters(ctx, c.redis)
	var all sync.WaitGroup
	for _, one := range nodes {
		if node, ok := one.(*redis.Client); ok {
			all.Go(func() { _ = c.serverAt(node).WaitReady(ctx) })
		}
	}
	all.Wait()
	return err
}

// connect is the Probe of s: it has s run a script that does nothing, for which go-redis connects if
// it has to. If s is so far away that several batches may be in flight, it opens a connection for
// each. It takes as long as connecting may take.
func (c *client) connect(ctx context.Context, s *server, node *redis.Client) error {
	if cluster, ok := c.redis.(*redis.ClusterClient); ok {
		// By itself it asks who has which keys when a server names another one, which one
		// that died does not, and after a minute.
		cluster.ReloadState(ctx)
	}
	// Its connections may be dead without a sign. This closes those on which nothing comes back.
	probeAll(ctx, node.WithTimeout(min(c.timeout, longestCheck)), int(node.PoolStats().IdleConns))
	inTime := context.WithValue(ctx, timedClient{}, node.WithTimeout(longestAnswer))
	if err := runProbe(inTime, node); err != nil {
		return err
	}
	c.connections.succeeded()
	began := time.Now()
	if err := runProbe(inTime, node); err != nil {
		return err
	}
	rtt, stats := time.Since(began), node.PoolStats()
	used := int(stats.TotalConns) - int(stats.IdleConns)
	if more := min(s.batches.measured(rtt)+1, maxConns(node)-used); more > 2 {
		probeAll(inTime, node, more)
	}
	return nil
}

// maxConns is how many connections node makes to its server.
func maxConns(node *redis.Client) int {
	options := node.Options()
	if most := options.MaxActiveConns; most > 0 {
		return min(most, options.PoolSize)
	}
	return options.PoolSize
}

// runProbe has a server run a script that does nothing.
func runProbe(ctx context.Context, on sender, keys ...string) error {
	e := &execution{script: probeScript, keys: keys}
	e.send(ctx, on)
	return e.err
}

// probeAll makes n probes of a server at once, by as many connections, which are made if there are
// fewer. go-redis closes those without an answer.
func probeAll(ctx context.Context, on sender, n int) {
	var all sync.WaitGroup
	for range n {
		all.Go(func() {
			defer func() { _ = recover() }() // of a user's hook, which the probe that counts reports
			_ = runProbe(ctx, on)
		})
	}
	all.Wait()
}

// connectTimeout is the client's DialTimeout and a second, for the handshake of the protocol.
func (c *client) connectTimeout() time.Duration { return dialTimeout(c.redis) + time.Second }
