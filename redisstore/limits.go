package redisstore

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/heedhttp/heed/internal/hostkey"
	"github.com/heedhttp/heed/internal/keyed"
	"github.com/heedhttp/heed/quota"
)

// Limits reads the limits of single keys, such as what each customer has bought, from Redis. It is
// a serverside.Limits:
//
//	limits := &redisstore.Limits{Client: rdb}
//	defer limits.Close()
//
// The limits of a key are a hash, named Prefix and the key, with the fields per_second, per_minute,
// per_hour and per_day. A window that is 0 or missing is not enforced, and a key without a hash has
// no limits of its own. The field blocked, if it is 1, blocks the key. To change limits, write the
// hash and publish its key on the channel Prefix + "changed", or an empty message for all keys:
//
//	HSET heed:limits:key-1 per_minute 120 per_day 5000
//	PUBLISH heed:limits:changed key-1
//
// An answer of Redis is used for TTL, or until a message says that it has changed. After half of TTL
// it is refreshed in the background, so no request waits for limits that are in use. For other keys
// requests wait, sharing one call for each key, until Timeout or their context ends. A change
// without a message, or while there is no subscription, is seen after TTL.
//
// While Redis does not answer, or the hash is invalid, the last valid answer stays in use, however long.
// But a blocked field of 1 blocks the key, even if other fields are invalid. A key without an answer is
// asked for again after a second; until the first answer its limits are unknown, and in serverside
// Rule.OnStoreError applies.
//
// On first use, Limits subscribes to the channel, with a goroutine and a connection, until Close.
// Set Client: without it, Redis counts as down. Fields must not change once it is in use, and it
// must not be copied. It is safe for concurrent use.
type Limits struct {
	// Client connects to Redis. If nil, Redis counts as down.
	Client redis.UniversalClient

	// Prefix is what the names of the hashes and of the channel begin with. If empty,
	// "heed:limits:".
	Prefix string

	// TTL is how long an answer is used. If zero or negative, 10 s; above a year, a year.
	TTL time.Duration

	// MaxKeys is how many keys are kept in memory, those without limits included. When there
	// are more, a key that has not been used for long is dropped, so that its limits are unknown until
	// they are read again. A key takes some 500 bytes.
	// If zero or negative, 16,384.
	MaxKeys int

	// Timeout is how long a call to Redis may take. If zero or negative, 50 ms.
	Timeout time.Duration

	once    sync.Once // guards the creation of redis and end
	redis   *client
	end     context.CancelFunc
	corrupt atomic.Int64
	subErr  onceError    // why there is no subscription
	version atomic.Int64 // number of messages about all keys, plus one
	known   keyed.Table[knownLimits]
}

// retryLimits is how long after a failure a key is asked for again.
const retryLimits = time.Second

// knownLimits are the limits of one key, as last read.
type knownLimits struct {
	messages atomic.Int64 // about this key

	mu         sync.Mutex // guards what follows
	policies   []quota.Policy
	err        error
	answered   bool          // Redis has ever answered
	version    int64         // of the key when Redis was asked; 0 if it never was
	refreshAt  time.Duration // when to ask Redis again
	freshUntil time.Duration // when requests must wait for a new answer
	asking     int64         // version of the call in flight, or 0
	done       chan struct{} // closed at its end
}

// Limits returns the policies of key, or none if it has no limits of its own. A policy with a Quota of
// zero is not enforced, and one with a Quota of quota.Blocked blocks the key. The slice is shared and
// must not be changed.
//
// After an error, the policies are the last valid ones, or none. The error joins a *LimitsError for
// each fault in the hash, or reports that Redis did not answer; if it never has for this key, the error
// wraps quota.ErrUnknownLimits. If the subscription fails, for
// example for want of permission, one caller gets that error, whatever its key; it is returned again
// only after the subscription has worked.
func (l *Limits) Limits(ctx context.Context, key string) ([]quota.Policy, error) {
	l.open()
	policies, err := l.get(ctx, key)
	return policies, errors.Join(err, l.subErr.take())
}

// Corrupt returns how many times an invalid hash was found in Redis.
func (l *Limits) Corrupt() int64 { return l.corrupt.Load() }

// Close stops listening for messages. It returns nil.
func (l *Limits) Close() error {
	l.open()
	l.end()
	return nil
}

func (l *Limits) open() {
	l.once.Do(func() {
		var ctx context.Context
		ctx, l.end = context.WithCancel(context.Background())
		l.redis, l.known.Most = newClient(l.Client, l.timeout()), l.maxKeys()
		l.version.Store(1)
		s := &subscription{
			client: l.Client, channel: l.prefix() + "changed", message: l.changed,
			started: func() { l.subErr.take(); l.changed("") }, failed: l.subErr.put,
		}
		go s.run(ctx)
	})
}

// changed makes the limits of key stale, or if key is empty those of all keys. A message is also a sign
// that Redis answers again.
func (l *Limits) changed(key string) {
	l.redis.answers()
	if key == "" {
		l.version.Add(1)
	} else if k := l.known.Find(hostkey.NameOf(key)); k != nil {
		k.messages.Add(1)
	}
}

// get returns the known limits of key if they are fresh, and otherwise asks Redis.
func (l *Limits) get(ctx context.Context, key string) ([]quota.Policy, error) {
	k := l.known.Get(hostkey.NameOf(key), func(*knownLimits) keyed.State { return keyed.Spare })
	k.mu.Lock()
	defer k.mu.Unlock()
	now, version := monotonic(), l.version.Load()+k.messages.Load()
	fresh := k.version == version && now < k.freshUntil
	if (!fresh || now >= k.refreshAt) && k.asking != version {
		k.asking, k.done = version, make(chan struct{})
		go l.read(key, k, version, k.done)
	}
	if fresh {
		return k.policies, k.err
	}
	done := k.done
	k.mu.Unlock()
	select {
	case <-done:
		k.mu.Lock()
		return k.policies, k.err
	case <-ctx.Done():
		k.mu.Lock()
		return k.policies, k.failure(ctx.Err())
	}
}

// read asks Redis for key. The answer is kept unless a newer one is, but it is stale already if a
// message has come meanwhile.
func (l *Limits) read(key string, k *knownLimits, version int64, done chan struct{}) {
	asked := monotonic()
	reply, err := l.redis.run(context.Background(), limitsScript, []string{l.prefix() + key})
	k.mu.Lock()
	defer k.mu.Unlock()
	defer close(done)
	if k.asking == version {
		k.asking = 0
	}
	switch {
	case version < k.version:
	case err == nil || redis.HasErrorPrefix(err, "WRONGTYPE"): // which parseLimits reports
		policies, err := parseLimits(key, reply)
		if err != nil {
			l.corrupt.Add(1)
		}
		if err == nil || slices.ContainsFunc(policies, blocks) { // a slip in another field lets nobody in
			k.policies = policies
		}
		k.err, k.answered, k.version = err, true, version
		k.refreshAt, k.freshUntil = asked+l.ttl()/2, asked+l.ttl()
	default:
		if k.version != version { // what is known is out of date
			k.freshUntil = 0
		}
		k.err, k.version, k.refreshAt = k.failure(err), version, monotonic()+retryLimits
		k.freshUntil = max(k.freshUntil, k.refreshAt)
	}
}

// failure returns err, as long as Redis has not answered with the fact that nothing is known.
func (k *knownLimits) failure(err error) error {
	if k.answered {
		return err
	}
	return fmt.Errorf("%w: %w", quota.ErrUnknownLimits, err)
}

func (l *Limits) prefix() string         { return cmp.Or(l.Prefix, "heed:limits:") }
func (l *Limits) maxKeys() int           { return cmp.Or(max(l.MaxKeys, 0), 16_384) }
func (l *Limits) timeout() time.Duration { return cmp.Or(max(l.Timeout, 0), 50*time.Millisecond) }

func (l *Limits) ttl() time.Duration {
	return min(cmp.Or(max(l.TTL, 0), 10*time.Second), 365*24*time.Hour)
}
