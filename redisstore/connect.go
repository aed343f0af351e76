package redisstore

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/heedhttp/heed/internal/remote"
	"github.com/redis/go-redis/v9"
)

// Ping connects to Redis and waits for an answer. Call it when a program starts:
//
//	if err := store.Ping(ctx); err != nil {
//		log.Print(err)
//	}
//
// It returns nil if decisions can be made, and otherwise the reason: "connection refused", "no such
// host", "certificate signed by unknown authority", "NOAUTH" and the like. A Redis far away takes
// longer to connect to than a decision may take, so without a Ping the first decisions may fail.
//
// On a Cluster or Ring, all masters or shards must answer. Ping blocks until ctx ends or the
// client's DialTimeout (5 s by default) and one more second have passed. It ignores Timeout, and
// earlier failures.
func (s *Store) Ping(ctx context.Context) error {
	c := s.redis()
	if isNil(c.redis) {
		return errNoClient
	}
	pinged := remote.Caller{Name: "redisstore: Redis", Timeout: c.connectTimeout()}
	_, err := remote.Do(ctx, &pinged, func(ctx context.Context) (struct{}, error) {
		return struct{}{}, s.ping(c.connections.asking(ctx))
	}, nil)
	switch {
	case err == nil:
		c.answers()
	case err == ctx.Err():
		err = fmt.Errorf("redisstore: no answer to a ping: %w", err)
	}
	return c.connections.explain(err)
}

// ping is Ping without the time limit. It also opens the connections that many concurrent calls need.
func (s *Store) ping(ctx context.Context) error {
	c := s.redis()
	servers, err := masters(ctx, c.redis)
	err = s.readFault(err)
	for _, server := range servers {
		inTime := ctx
		if node, ok := server.(*redis.Client); ok {
			inTime = context.WithValue(ctx, timedClient{}, node.WithTimeout(c.connectTimeout()))
		}
		if err == nil {
			err = runProbe(inTime, server)
		}
		if node, ok := server.(*redis.Client); ok && err == nil {
			err = c.connect(ctx, c.serverAt(node), node, c.connectTimeout())
		}
	}
	return err
}

// dialTimeout returns how long client may take to connect.
func dialTimeout(client redis.UniversalClient) (d time.Duration) {
	switch c := client.(type) {
	case *redis.Client:
		d = c.Options().DialTimeout
	case *redis.ClusterClient:
		d = c.Options().DialTimeout
	case *redis.Ring:
		d = c.Options().DialTimeout
	}
	if d <= 0 {
		d = 5 * time.Second
	}
	return d
}

// connections records why a client last failed to connect: a decision ends sooner than a dial, and
// could otherwise only report a timeout. The zero value is ready to use. It is safe for concurrent
// use.
type connections struct {
	fault    atomic.Pointer[error] // nil once there is a connection
	answered atomic.Bool           // Redis has answered at least once
	hooked   sync.Map              // the *redis.Client that have the hook
	timeout  time.Duration         // how long a server may take to answer a script
	failed   func(error)           // called when dialing fails
}

// watch adds a hook to client that records why it cannot connect, and ends scripts after the timeout.
func (c *connections) watch(client redis.UniversalClient) {
	switch client := client.(type) {
	case *redis.Client:
		c.hook(client)
	case *redis.ClusterClient: // its own hooks are not called when its nodes dial
		client.OnNewNode(c.hook)
	case *redis.Ring:
		client.OnNewNode(c.hook)
	}
}

// hook adds the hook to a server, once. A Ring, and a Cluster that is in use, have servers already when watch is
// called.
func (c *connections) hook(server *redis.Client) {
	if _, has := c.hooked.LoadOrStore(server, true); !has {
		server.AddHook(clientHook{c, server.Options().TLSConfig != nil, server.WithTimeout(c.timeout)})
	}
}

// asker is a context key. Its value is the *connections whose hook times a script: others may share the client.
type asker struct{}

// asking returns a ctx for scripts of c.
func (c *connections) asking(ctx context.Context) context.Context {
	return context.WithValue(ctx, asker{}, c)
}

// succeeded records that there is a connection.
func (c *connections) succeeded() {
	c.fault.Store(nil)
	c.answered.Store(true)
}

// A clientHook of a server records how dialing ended, and sends a command with its timeout, or with the client that
// client.connect put into its context. go-redis ignores deadlines while it reads, unless
// Options.ContextTimeoutEnabled is set. (Calling the client that WithTimeout returns would skip the user's hooks.)
type clientHook struct {
	*connections
	tls   bool
	timed *redis.Client
}

// timedClient is a context key. Its value is the *redis.Client to send a command with.
type timedClient struct{}

func (h clientHook) DialHook(next redis.DialHook) redis.DialHook {
	return func(ctx context.Context, network, addr string) (net.Conn, error) {
		conn, err := next(ctx, network, addr)
		switch {
		case err == nil:
			h.fault.Store(nil)
		case !errors.Is(err, context.Canceled): // canceled: the call has ended
			fault := h.faultOf(addr, err)
			h.fault.Store(&fault)
			h.failed(fault)
		}
		return conn, err
	}
}

func (h clientHook) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		timed := h.client(ctx)
		if _, ours := cmd.(sentOnce); !ours || timed == nil { // the handshake of a new connection, or the user's
			return next(ctx, cmd)
		}
		return timed.Process(ctx, cmd)
	}
}

func (h clientHook) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		timed := h.client(ctx)
		if _, ours := cmds[0].(sentOnce); !ours || timed == nil {
			return next(ctx, cmds)
		}
		pipe := timed.Pipeline()
		for _, cmd := range cmds {
			pipe.Process(ctx, cmd)
		}
		_, err := pipe.Exec(ctx)
		for _, cmd := range cmds {
			cmd.(sentOnce).setMissing(err)
		}
		return nil // a ClusterClient makes an error that of all commands, though others were executed
	}
}

// client returns the client to send a script with, or nil if another hook knows.
func (h clientHook) client(ctx context.Context) *redis.Client {
	timed, ok := ctx.Value(timedClient{}).(*redis.Client)
	if !ok && ctx.Value(asker{}) == h.connections {
		timed = h.timed
	}
	return timed
}

// faultOf returns the error of dialing addr, with addr in its text.
func (h clientHook) faultOf(addr string, err error) error {
	_, isNet := errors.AsType[*net.OpError](err)
	switch {
	case isNet:
		return err
	case h.tls && errors.Is(err, context.DeadlineExceeded):
		return fmt.Errorf("dial %s: no answer to a TLS handshake (does it expect TLS?): %w", addr, err)
	default:
		return fmt.Errorf("dial %s: %w", addr, err)
	}
}

// A connectError is the error of a call that had no connection.
type connectError struct {
	err   error // the call's
	fault error // the connection's
}

func (e *connectError) Error() string   { return "redisstore: no connection: " + e.fault.Error() }
func (e *connectError) Unwrap() []error { return []error{e.err, e.fault} }

// explain must be called with the result of every call, nil included. It records whether there was an
// answer. It returns err, with the reason if there was no connection.
func (c *connections) explain(err error) error {
	_, explained := errors.AsType[*connectError](err)
	switch fault := c.fault.Load(); {
	case explained:
	case err == nil || isAnswer(err):
		if fault != nil {
			c.fault.Store(nil)
		}
		if !c.answered.Load() {
			c.answered.Store(true)
		}
	case fault != nil && errors.Is(err, context.DeadlineExceeded):
		return &connectError{err, *fault}
	case !c.answered.Load() && isHangUp(err):
		fault := fmt.Errorf("closed before the first answer (does it expect TLS?): %w", innermost(err))
		c.fault.Store(&fault)
		return &connectError{err, fault}
	}
	return err
}

// isHangUp reports whether err means that the server closed the connection.
func isHangUp(err error) bool {
	return errors.Is(err, io.EOF) || errors.Is(err, syscall.ECONNRESET)
}

func innermost(err error) error {
	for errors.Unwrap(err) != nil {
		err = errors.Unwrap(err)
	}
	return err
}
