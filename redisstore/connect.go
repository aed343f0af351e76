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

	"github.com/redis/go-redis/v9"
)

// Ping connects to Redis, unless it is connected, and has it run a script that does
// nothing: on a Cluster or Ring, each of its masters or shards. It returns nil if they
// answered, so that decisions can be made, and otherwise why not: "connection refused", "no
// such host", an unknown authority, NOAUTH. Call it when a program starts: a Redis that is
// far away needs longer to connect than a decision may take.
//
// It takes as long as ctx lets it, and no longer than the client's DialTimeout, which is
// 5 s by default, and a second. Timeout does not matter, nor whether Redis failed to answer
// before.
func (s *Store) Ping(ctx context.Context) error {
	if isNil(s.Client) {
		return errNoClient
	}
	within := dialTimeout(s.Client) + time.Second // in which the client says what it ran into
	ctx, cancel := context.WithTimeout(ctx, within)
	defer cancel()
	answer := make(chan error, 1)
	go func() { answer <- s.ping(ctx, within) }()
	var err error
	select {
	case err = <-answer:
	case <-ctx.Done(): // which go-redis does not always heed
		err = fmt.Errorf("redisstore: no answer to a ping: %w", ctx.Err())
	}
	if err == nil {
		s.servers.trust()
	}
	return s.connections.explain(err)
}

// Ping is Store.Ping of l's Store.
func (l *Lease) Ping(ctx context.Context) error {
	if l.Store == nil {
		return errNoStore
	}
	return l.Store.Ping(ctx)
}

// ping is Ping, without regard to how long it takes.
func (s *Store) ping(ctx context.Context, within time.Duration) error {
	masters, err := s.masters(ctx)
	for _, server := range masters {
		if err == nil {
			_, err = s.calls.run(ctx, server, within, probeScript, nil)
		}
	}
	return err
}

// dialTimeout is how long a client may take to connect.
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

// findReason pings in the background if nobody knows yet why Redis does not answer: the
// client takes longer than a decision to find out that the other side is no Redis.
func (s *Store) findReason() {
	c := &s.connections
	if c.answered.Load() || c.fault.Load() != nil || !c.pinging.CompareAndSwap(false, true) {
		return
	}
	go func() {
		defer c.pinging.Store(false)
		s.Ping(context.Background())
	}()
}

// connections know why a client last failed to connect. A decision gives up sooner than
// the client does, and would say no more than that there was no answer in time. The zero
// value is ready to use, by many goroutines.
type connections struct {
	once     sync.Once             // guards the adding of the hook
	fault    atomic.Pointer[error] // nil once there is a connection
	answered atomic.Bool           // Redis has, to anything
	pinging  atomic.Bool           // in the background
}

// watch adds a hook to client that notes why it cannot connect.
func (c *connections) watch(client redis.UniversalClient) {
	c.once.Do(func() {
		if isNil(client) {
			return
		}
		add := func(server *redis.Client) {
			server.AddHook(dialHook{c, server.Options().TLSConfig != nil})
		}
		switch client := client.(type) {
		case *redis.Client:
			add(client)
		case *redis.ClusterClient: // whose own hooks do not hear its nodes dial
			client.OnNewNode(add)
		case *redis.Ring:
			client.OnNewNode(add)
		}
	})
}

// A dialHook notes how dialing ended.
type dialHook struct {
	*connections
	tls bool
}

func (h dialHook) DialHook(next redis.DialHook) redis.DialHook {
	return func(ctx context.Context, network, addr string) (net.Conn, error) {
		conn, err := next(ctx, network, addr)
		switch {
		case err == nil:
			h.fault.Store(nil)
		case !errors.Is(err, context.Canceled): // or else nobody waited for it
			fault := h.faultOf(addr, err)
			h.fault.Store(&fault)
		}
		return conn, err
	}
}

func (dialHook) ProcessHook(next redis.ProcessHook) redis.ProcessHook { return next }

func (dialHook) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return next
}

// faultOf is err, of dialing addr, with the address.
func (h dialHook) faultOf(addr string, err error) error {
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

// A connectError is the error of a call for which there was no connection.
type connectError struct {
	err   error // of the call
	fault error // of the connection
}

func (e *connectError) Error() string   { return "redisstore: no connection: " + e.fault.Error() }
func (e *connectError) Unwrap() []error { return []error{e.err, e.fault} }

// explain returns err, of a call, with the reason why there was no connection, if that is
// why there was no answer. It notes that there was one.
func (c *connections) explain(err error) error {
	switch fault := c.fault.Load(); {
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

func isAnswer(err error) bool {
	_, refused := errors.AsType[redis.Error](err)
	return refused
}

// isHangUp reports whether err says that the other side closed the connection.
func isHangUp(err error) bool {
	return errors.Is(err, io.EOF) || errors.Is(err, syscall.ECONNRESET)
}

func innermost(err error) error {
	for errors.Unwrap(err) != nil {
		err = errors.Unwrap(err)
	}
	return err
}
