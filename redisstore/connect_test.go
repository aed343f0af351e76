package redisstore_test

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/http/httptest"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/heedhttp/heed/internal/redistest"
	"github.com/heedhttp/heed/quota"
	"github.com/heedhttp/heed/redisstore"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// secured starts a TLS listener with a certificate that no client trusts.
func secured(t *testing.T) (addr string) {
	t.Helper()
	server := httptest.NewTLSServer(nil)
	t.Cleanup(server.Close)
	server.Config.ErrorLog = nil
	return server.Listener.Addr().String()
}

// locked starts a Redis that requires a password.
func locked(t *testing.T) (addr string) {
	t.Helper()
	server := redistest.Start(t)
	_, err := server.Do("CONFIG", "SET", "requirepass", "open-s3same")
	require.NoError(t, err)
	return server.Addr
}

func noSuchHost(_ context.Context, network, addr string) (net.Conn, error) {
	err := &net.DNSError{Err: "no such host", Name: addr, IsNotFound: true}
	return nil, &net.OpError{Op: "dial", Net: network, Err: err}
}

func is(target error) func(error) bool { return func(err error) bool { return errors.Is(err, target) } }

func as[E error](err error) bool { _, ok := errors.AsType[E](err); return ok }

// misconfigured returns clients that cannot reach a Redis, with the errors of their Stores.
func misconfigured(t *testing.T) map[string]struct {
	options redis.Options
	says    string
	is      func(error) bool
} {
	return map[string]struct {
		options redis.Options
		says    string
		is      func(error) bool
	}{
		"refused": {redis.Options{Addr: redistest.Nowhere(t)}, "connection refused", is(syscall.ECONNREFUSED)},
		"no such host": {
			redis.Options{Addr: "redis.example:6379", Dialer: noSuchHost}, "no such host", as[*net.DNSError],
		},
		"unknown authority": {
			redis.Options{Addr: secured(t), TLSConfig: new(tls.Config)}, "certificate", as[*tls.CertificateVerificationError],
		},
		"plain against TLS": {redis.Options{Addr: secured(t)}, "does it expect TLS?", nil},
		"TLS against plain": {
			redis.Options{
				Addr: redistest.Start(t).Addr, TLSConfig: new(tls.Config), DialTimeout: 100 * time.Millisecond,
			}, "TLS handshake", nil,
		},
		"no password":    {redis.Options{Addr: locked(t)}, "NOAUTH", as[redis.Error]},
		"wrong password": {redis.Options{Addr: locked(t), Password: "s3cret"}, "WRONGPASS", as[redis.Error]},
	}
}

func TestErrorsHaveTheReasonThatRedisOrTheNetworkGave(t *testing.T) {
	mostlyWaits(t)
	for name, c := range misconfigured(t) {
		t.Run(name, func(t *testing.T) {
			start := redis.NewClient(&c.options)
			defer start.Close()
			assert.ErrorContains(t, (&redisstore.Store{Client: start}).Ping(ctx), c.says, "from Ping")

			client := redis.NewClient(&c.options)
			defer client.Close()
			s := &redisstore.Store{Client: client}
			check := func(err error) {
				assert.ErrorContains(t, err, c.says)
				assert.NotContains(t, err.Error(), "s3", "a secret")
				if c.is != nil {
					assert.True(t, c.is(err), "%v", err)
				}
			}
			for call, do := range calls(s, quota.Charge{Key: "key", Limit: compile(t, quota.PerDay(1))}) {
				var err error
				assert.Eventually(t, func() bool { // the client may find out later
					err = do(ctx)
					return err != nil && strings.Contains(err.Error(), c.says)
				}, hang, 10*time.Millisecond, call)
				check(err)
			}
			_, err := s.Inspect(ctx, "key")
			check(err)
			check(s.Ping(ctx))
		})
	}
}

func TestAPingOfARedisThatAnswersSucceeds(t *testing.T) {
	server := redistest.Shared(t)
	for name, client := range map[string]redis.UniversalClient{
		"server":  newClient(t, server),
		"cluster": newCluster(t),
		"ring":    newRing(t),
	} {
		s := &redisstore.Store{Client: client, Timeout: 1} // Ping ignores it
		assert.NoError(t, s.Ping(ctx), name)
		assert.NoError(t, (&redisstore.Lease{Store: s}).Ping(ctx), name)
	}
	assert.Error(t, new(redisstore.Lease).Ping(ctx))
	gone := redis.NewClusterClient(&redis.ClusterOptions{Addrs: []string{redistest.Nowhere(t)}})
	defer gone.Close()
	err := (&redisstore.Store{Client: gone}).Ping(ctx)
	assert.ErrorContains(t, err, "redisstore: ")
	assert.ErrorContains(t, err, "connection refused")
	assert.EqualError(t, new(redisstore.Store).Ping(ctx), "redisstore: Client is nil")
}

func TestAPingEndsWithItsContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, client := silentRedis(t, redis.Options{DialTimeout: 2 * time.Second})
		s := &redisstore.Store{Client: client}
		for _, c := range []struct{ given, takes time.Duration }{
			{10 * time.Millisecond, 10 * time.Millisecond}, {time.Minute, 3 * time.Second},
		} {
			within, cancel := context.WithTimeout(ctx, c.given)
			start := time.Now()
			assert.ErrorIs(t, s.Ping(within), context.DeadlineExceeded)
			assert.Equal(t, c.takes, time.Since(start))
			cancel()
		}
	})
}

// After a Ping, decisions work on a Redis that takes longer to connect to than a decision may take.
func TestAfterAPingThereIsAConnection(t *testing.T) {
	const far = 60 * time.Millisecond // more than a decision waits
	server := redistest.Shared(t)
	client := redis.NewClient(&redis.Options{Dialer: func(ctx context.Context, _, _ string) (net.Conn, error) {
		select {
		case <-time.After(far):
			return net.Dial("tcp", server.Addr)
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}})
	defer client.Close()
	s := &redisstore.Store{Client: client, Timeout: far - 10*time.Millisecond}
	limit := compile(t, quota.PerDay(1))
	_, err := s.Take(ctx, nil, quota.Charge{Key: "key", Limit: limit})
	require.Error(t, err)
	require.NoError(t, s.Ping(ctx))
	assert.Eventually(t, func() bool { // on a busy machine a call may time out now and then
		_, err := s.Take(ctx, nil, quota.Charge{Key: "key", Limit: limit})
		return err == nil
	}, hang, time.Millisecond)
}

// An ending is a hook that tells how long scripts took, alone and in pipelines, whether or not callers still wait.
type ending struct{ alone, pipelined chan time.Duration }

func (h ending) DialHook(next redis.DialHook) redis.DialHook { return next }

func (h ending) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		start := time.Now()
		err := next(ctx, cmd)
		if cmd.Name() == "evalsha" && len(cmd.Args()) > 4 { // not a probe
			h.alone <- time.Since(start)
		}
		return err
	}
}

func (h ending) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		start := time.Now()
		err := next(ctx, cmds)
		h.pipelined <- time.Since(start)
		return err
	}
}

// Otherwise a call that has no answer would keep a connection of the pool for the client's ReadTimeout, or for the
// Timeout of another user of the client.
func TestAReadOnAClusterOrRingEndsWithTheTimeout(t *testing.T) {
	mostlyWaits(t)
	cluster, server := redistest.SharedCluster(t), redistest.Shared(t)
	f := throughProxies(t, append(cluster, server)...)
	for name, client := range map[string]redis.UniversalClient{
		"cluster": redis.NewClusterClient(&redis.ClusterOptions{Addrs: addrs(cluster), Dialer: f.dial, ReadTimeout: hang}),
		"ring": redis.NewRing(&redis.RingOptions{
			Addrs: map[string]string{"one": server.Addr}, Dialer: f.dial, ReadTimeout: hang, HeartbeatFrequency: hang,
		}),
	} {
		(&redisstore.Document{Client: client, Timeout: hang}).Read(ctx) // so that the client has connections
		limit := compile(t, quota.PerDay(1000))
		isFound(t, &redisstore.Store{Client: client}, quota.Charge{Key: "key", Limit: limit}) // go-redis asks for COMMAND once
		h := ending{alone: make(chan time.Duration, 100), pipelined: make(chan time.Duration, 100)}
		client.AddHook(h)
		for n, took := range map[int]chan time.Duration{1: h.alone, 60: h.pipelined} {
			s := &redisstore.Store{Client: client, Timeout: 250 * time.Millisecond}
			require.NoError(t, s.Ping(ctx), name)
			f.each(func(p *redistest.Proxy) { p.Swallow(true) })
			callers(n, 1, func(i, _ int) {
				_, err := s.Take(ctx, nil, quota.Charge{Key: fmt.Sprint("key ", i), Limit: limit})
				assert.Error(t, err, name)
			})
			select {
			case d := <-took:
				assert.Less(t, d, hang/4, "%s, %d at once", name, n)
			case <-time.After(hang / 4):
				assert.Fail(t, "the read goes on", "%s, %d at once", name, n)
			}
			f.each(func(p *redistest.Proxy) { p.Swallow(false) })
		}
		require.NoError(t, client.Close())
	}
}

func TestAReadMayTakeAsLongAsItsOwnTimeout(t *testing.T) {
	mostlyWaits(t)
	server := redistest.Shared(t)
	require.NoError(t, newClient(t, server).Set(ctx, "heed:rules", "rules: []", 0).Err())
	p := redistest.NewProxy(t, server.Addr)
	client := redis.NewClient(&redis.Options{Addr: p.Addr()})
	defer client.Close()
	s := &redisstore.Store{Client: client, Timeout: 20 * time.Millisecond}
	require.NoError(t, s.Ping(ctx))
	p.SetDelay(20 * time.Millisecond)
	for range 3 {
		_, err := s.Take(ctx, nil, quota.Charge{Key: "key", Limit: compile(t, quota.PerDay(10))})
		assert.Error(t, err, "too far away")
		text, err := (&redisstore.Document{Client: client, Timeout: patient}).Read(ctx)
		require.NoError(t, err)
		assert.Equal(t, "rules: []", string(text))
	}
}
