package redisstore

import (
	"context"
	"errors"
	"reflect"
	"sync"
	"sync/atomic"
	"time"

	"github.com/heedhttp/heed/internal/remote"
	"github.com/redis/go-redis/v9"
)

const (
	longestCheck  = 250 * time.Millisecond // for an idle connection to prove that it is alive
	shortestProbe = time.Second            // what a server has at least to answer a probe
)

var errNoClient = errors.New("redisstore: Client is nil")

// A client runs scripts for a Store, Board, Budget, Limits or Document, and waits no longer than its
// timeout. Connections are made in the background and may take as long as go-redis allows; a call
// waits for the first one within its timeout. After a call without an answer, further calls fail at
// once until the server answers a probe. Each master of a Cluster, and each shard of a Ring, has
// its own breaker.
//
// It is safe for concurrent use.
type client struct {
	redis   redis.UniversalClient // the user's
	single  *redis.Client         // redis with the timeout for reads and writes; nil if it is no *redis.Client
	timeout time.Duration
	execute func(ctx context.Context, batch []*op) error // set by a Store only

	connections connections
	servers     sync.Map // *server by its *redis.Client, or by nil while that is unknown
	only        *server  // the server of a *redis.Client; nil if there may be several
}

// A server is one Redis server: for a Cluster a master, for a Ring a shard. Each has its own breaker.
type server struct {
	remote.Caller
	batches batcher               // used by a Store only
	policy  atomic.Pointer[error] // that its maxmemory-policy evicts counts; nil if it does not
}

// newClient returns a client that uses c, which may be nil.
func newClient(c redis.UniversalClient, timeout time.Duration) *client {
	made := &client{redis: c, timeout: timeout}
	made.connections.timeout, made.connections.failed = timeout, made.dialFailed
	if isNil(c) {
		return made
	}
	if single, ok := c.(*redis.Client); ok {
		made.single = single.WithTimeout(timeout)
		made.only = made.newServer(single, func(ctx context.Context, s *server) error {
			return made.connect(ctx, s, single, made.probeTimeout())
		})
	}
	made.connections.watch(c) // last: if c is already in use, this may be called at once
	return made
}

// run executes s, at most once and outside of any batch, and returns its reply. After an error s may
// have been executed, unless unexecuted says otherwise. If ctx ends first, run returns and ignores
// the answer.
func (c *client) run(ctx context.Context, s *script, keys []string, args ...any) (any, error) {
	return c.runBy(remote.Do[any], ctx, s, keys, args)
}

// runPatiently is run, but while Redis does not answer, it waits within the timeout for a probe to
// succeed.
func (c *client) runPatiently(ctx context.Context, s *script, keys []string, args ...any) (any, error) {
	return c.runBy(remote.DoPatiently[any], ctx, s, keys, args)
}

func (c *client) runBy(
	do func(context.Context, *remote.Caller, func(context.Context) (any, error), func(any)) (any, error),
	ctx context.Context, s *script, keys []string, args []any,
) (any, error) {
	if isNil(c.redis) {
		return nil, errNoClient
	}
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	value, err := do(ctx, &c.serverOf(keys[0]).Caller, func(ctx context.Context) (any, error) {
		return s.run(c.connections.asking(ctx), c.redis, keys, args...)
	}, nil)
	return value, c.connections.explain(err)
}

// do answers o, whose keys are all on the server of key and on a Cluster in one slot, in a batch with the ops
// of other calls. A redis.Error means that o was not executed; after any other error it may have been, and
// must not be used any more.
func (c *client) do(ctx context.Context, key string, o *op) error {
	if isNil(c.redis) {
		return errNoClient
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	server, began := c.serverOf(key), time.Now()
	err := server.batches.do(ctx, o, c.timeout, c.mayInline(ctx))
	if err == context.DeadlineExceeded && ctx.Err() == nil {
		err = server.Expired(began)
	}
	return c.connections.explain(err)
}

// mayInline reports whether a call may be made in its caller's goroutine. There only go-redis can end
// it, by default after the timeout whatever ctx says. So ctx must have about that much time left, and
// a connection must be idle, because dialing may take longer.
func (c *client) mayInline(ctx context.Context) bool {
	if c.single == nil || c.only.Ready(ended) != nil {
		return false
	}
	deadline, ends := ctx.Deadline()
	return (!ends || time.Until(deadline) > c.timeout*9/10) && c.single.PoolStats().IdleConns > 0
}

// send executes a batch on a server. It returns an error if there was no answer.
func (c *client) send(ctx context.Context, on *server, batch []*op) error {
	if len(batch) == 1 && c.mayInline(ctx) {
		ctx, cancel := context.WithTimeout(ctx, c.timeout) // for the wait for a connection, if another call takes the idle one
		defer cancel()
		return remote.Inline(ctx, &on.Caller, func(ctx context.Context) error { return c.execute(ctx, batch) })
	}
	// Copies are executed, because a call that takes too long goes on after its callers have left.
	copies := make([]*op, len(batch))
	for i, o := range batch {
		copied := *o
		copied.found, copies[i] = nil, &copied
	}
	executed, err := remote.Do(ctx, &on.Caller, func(ctx context.Context) ([]*op, error) {
		return copies, c.execute(ctx, copies)
	}, nil)
	for i, o := range executed {
		batch[i].err, batch[i].now, batch[i].allowed, batch[i].found = o.err, o.now, o.allowed, o.found
	}
	return err
}

// isReady reports whether the server of key is known to answer. It does not block.
func (c *client) isReady(key string) bool {
	return !isNil(c.redis) && c.serverOf(key).Ready(ended) == nil
}

// unexecuted reports whether err, returned by run, means that the script was not executed: it was
// not sent, or the server refused it.
func unexecuted(err error) bool {
	call, ok := errors.AsType[*remote.Error](err)
	return err == errNoClient || isAnswer(err) || ok && call.Unsent
}

// serverOf returns the server that has key, as far as go-redis knows.
func (c *client) serverOf(key string) *server {
	if c.only != nil {
		return c.only
	}
	if node := c.node(ended, key); node != nil {
		return c.serverAt(node)
	}
	return c.serverBy(nil, func(ctx context.Context, _ *server) error { return c.findServers(ctx, key) })
}

// serverAt returns the server that node connects to. go-redis closes the node of a server that leaves a
// Cluster or Ring, and makes another if the server comes back.
func (c *client) serverAt(node *redis.Client) *server {
	if c.only != nil {
		return c.only
	}
	return c.serverBy(node, func(ctx context.Context, s *server) error {
		return c.connect(ctx, s, node, c.probeTimeout())
	})
}

// serverBy returns the server of node, or of nil while the node is unknown. Its Probe is connect.
func (c *client) serverBy(node *redis.Client, connect func(context.Context, *server) error) *server {
	if s, ok := c.servers.Load(node); ok {
		return s.(*server)
	}
	if node != nil {
		c.connections.hook(node)
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
		return c.connections.explain(connect(c.connections.asking(ctx), s))
	}
	s.batches.send = func(ctx context.Context, batch []*op) error { return c.send(ctx, s, batch) }
	return s
}

// each calls f for each server.
func (c *client) each(f func(*server)) {
	if c.only != nil {
		f(c.only)
	}
	c.servers.Range(func(_, s any) bool {
		f(s.(*server))
		return true
	})
}

// answers closes the breakers of all servers, after a sign that Redis answers. For a server that still
// does not, this costs one more timeout.
func (c *client) answers() { c.each(func(s *server) { s.Answers() }) }

// dialFailed records why the client cannot connect.
func (c *client) dialFailed(err error) {
	if c.only != nil { // otherwise it is unknown which server the dial was for
		c.only.Fails(err)
	}
}

// node returns the client of the server that has key, or nil if it is unknown.
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

// ended is a canceled context. With it, a ClusterClient that does not know its masters fails instead
// of asking for them, and Ready does not block.
var ended = func() context.Context {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	return ctx
}()

// isNil reports whether client is nil or a nil pointer.
func isNil(client redis.UniversalClient) bool {
	if client == nil {
		return true
	}
	v := reflect.ValueOf(client)
	return v.Kind() == reflect.Pointer && v.IsNil()
}

// probeScript is the script that a probe runs.
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

// probeTimeout returns how long a server may take to answer a probe. A server that answers calls within a
// long timeout must not be taken for one that is down. But a probe holds a connection, so it takes no
// longer than connecting may.
func (c *client) probeTimeout() time.Duration {
	return min(max(shortestProbe, c.timeout), c.connectTimeout())
}

// connect is the Probe of s. It runs a script that does nothing, for which go-redis connects if
// necessary, and whose answer may take as long as timeout. If s is so far away that several batches
// may be in flight, it opens a connection for each. It may take as long as connecting takes,
// and a few times timeout.
func (c *client) connect(ctx context.Context, s *server, node *redis.Client, timeout time.Duration) error {
	if cluster, ok := c.redis.(*redis.ClusterClient); ok {
		// By itself a ClusterClient asks for the slots only once a minute, or when a server
		// redirects it, which a dead server does not.
		cluster.ReloadState(ctx)
	}
	// Idle connections may be dead without a sign. go-redis closes those that do not answer here.
	probeAll(ctx, node.WithTimeout(min(c.timeout, longestCheck)), int(node.PoolStats().IdleConns))
	inTime := context.WithValue(ctx, timedClient{}, node.WithTimeout(timeout))
	if err := runProbe(inTime, node); err != nil {
		return err
	}
	c.connections.succeeded()
	if c.execute != nil { // what others keep is no loss
		s.checkPolicy(ctx, node)
	}
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

// maxConns returns how many connections node makes at most.
func maxConns(node *redis.Client) int {
	options := node.Options()
	if most := options.MaxActiveConns; most > 0 {
		return min(most, options.PoolSize)
	}
	return options.PoolSize
}

// runProbe runs a script that does nothing.
func runProbe(ctx context.Context, on sender, keys ...string) error {
	_, err := probeScript.run(ctx, on, keys)
	return err
}

// probeAll sends n probes at once, each on its own connection. go-redis makes connections if there
// are too few, and closes those without an answer.
func probeAll(ctx context.Context, on sender, n int) {
	var all sync.WaitGroup
	for range n {
		all.Go(func() {
			defer func() { _ = recover() }() // a panic of a user's hook: the connect probe reports it
			_ = runProbe(ctx, on)
		})
	}
	all.Wait()
}

// connectTimeout returns the client's DialTimeout, plus a second for the handshake.
func (c *client) connectTimeout() time.Duration { return dialTimeout(c.redis) + time.Second }
