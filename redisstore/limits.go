package redisstore

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/heedhttp/heed/quota"
)

// Limits are the limits that single keys have of their own, in Redis, where all
// processes find them: a serverside.Limits.
//
// Those of a key are a hash, named Prefix and the key, with the fields per_second,
// per_minute, per_hour and per_day. A window that is 0 or missing is not enforced; a key
// without a hash has no limits of its own. Who changes them says so on the channel
// Prefix + "changed", in a message that is the key, or is empty for all keys:
//
//	HSET heed:limits:key-1 per_minute 120 per_day 5000
//	PUBLISH heed:limits:changed key-1
//
// What Redis said is known for TTL, or until a message says that it has changed. Where
// half of TTL is over, Redis is asked while requests go on by what is known, so that
// none waits for limits that are in use. Others wait, all those of one key for one
// question, and for no longer than Timeout or their context lets them. A change without a
// message, or while there is no subscription, is seen after TTL.
//
// While Redis does not answer, or the hash makes no sense, what it said last holds, for
// however long that takes. A key for which there was no answer is asked for again
// once in a second.
//
// A Limits that is used for the first time begins to hear messages, in a goroutine and
// with a connection for it, until Close. The zero Limits knows nothing; set Client. Fields
// must not change once it is in use, and it must not be copied. It is safe for
// concurrent use.
type Limits struct {
	// Client is how Redis is reached. If nil, Redis counts as lost.
	Client redis.UniversalClient

	// Prefix begins the name of each hash, and of the channel. If empty, "heed:limits:".
	Prefix string

	// TTL is how long what Redis said is known. If zero or negative, 10 s.
	TTL time.Duration

	// MaxKeys is how many keys' limits are known at once, those of keys without any
	// included: one that was not asked for in a long time is forgotten for a new one.
	// A key takes some 500 bytes. If zero or negative, 16,384.
	MaxKeys int

	// Timeout is how long a call may take. If zero or negative, 50 ms.
	Timeout time.Duration

	once    sync.Once // guards the making of store and end
	store   Store     // through which Redis is asked
	end     context.CancelFunc
	corrupt atomic.Int64
	trouble trouble // of the subscription
	known   knownLimits
}

// Limits returns the policies of key; none if it has no limits of its own. A policy with
// a Quota of zero is not enforced. They are others' as well, and must not be changed.
//
// An error says why these are perhaps not what Redis has: it joins a *LimitsError for
// each thing that is wrong with the hash, or says that Redis did not answer. The policies
// beside it are the last that made sense; none if there were none yet. One for which
// Redis sends no messages, such as a user who may not hear the channel, is told to one
// caller, whatever his key is, and not again until they were heard.
func (l *Limits) Limits(ctx context.Context, key string) ([]quota.Policy, error) {
	l.open()
	policies, err := l.look(ctx, key)
	if trouble := l.trouble.take(); trouble != nil {
		err = errors.Join(err, trouble)
	}
	return policies, err
}

func (l *Limits) look(ctx context.Context, key string) ([]quota.Policy, error) {
	known, asked := l.known.look(key, monotonic(), l.ttl(), l.maxKeys(), l.ask)
	if asked == nil {
		return known.policies, known.err
	}
	select {
	case <-asked.done:
		return asked.answer.policies, asked.answer.err
	case <-ctx.Done():
		return known.policies, ctx.Err()
	}
}

// Corrupt returns how many times a hash was found in Redis that makes no sense.
func (l *Limits) Corrupt() int64 { return l.corrupt.Load() }

// Close ends the goroutine. A Limits that was closed hears no messages. It returns nil.
func (l *Limits) Close() error {
	l.open()
	l.end()
	return nil
}

func (l *Limits) open() {
	l.once.Do(func() {
		l.store.Client, l.store.Prefix, l.store.Timeout = l.Client, l.prefix(), l.Timeout
		var ctx context.Context
		ctx, l.end = context.WithCancel(context.Background())
		if isNil(l.Client) {
			return
		}
		s := &subscription{
			client: l.Client, channel: l.prefix() + "changed",
			began: func() { l.trouble.take(); l.void("") }, heard: l.void, vain: l.trouble.put,
		}
		go s.run(ctx)
	})
}

// ask has Redis answer q.
func (l *Limits) ask(q *inquiry) {
	at := monotonic()
	reply, err := l.store.evaluate(context.Background(), limitsScript, []string{l.prefix() + q.key})
	if err != nil && !redis.HasErrorPrefix(err, "WRONGTYPE") { // which replies nothing
		l.known.fail(q, err, monotonic()+limitsAgain)
		return
	}
	policies, err := parseLimits(q.key, reply)
	if err != nil {
		l.corrupt.Add(1)
	}
	l.known.learn(q, keyLimits{policies, err}, at)
}

// void has Redis asked when key is next looked up, or any key if it is empty. Who says
// so has spoken through Redis, so that it answers again if it did not.
func (l *Limits) void(key string) {
	l.store.servers.trust()
	l.known.void(key)
}

func (l *Limits) prefix() string {
	if l.Prefix != "" {
		return l.Prefix
	}
	return "heed:limits:"
}

func (l *Limits) ttl() time.Duration {
	if l.TTL <= 0 {
		return 10 * time.Second
	}
	return l.TTL
}

func (l *Limits) maxKeys() int {
	if l.MaxKeys <= 0 {
		return 16_384
	}
	return l.MaxKeys
}
