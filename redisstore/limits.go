package redisstore

import (
	"cmp"
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/heedhttp/heed/internal/hostkey"
	"github.com/heedhttp/heed/internal/keyed"
	"github.com/heedhttp/heed/quota"
)

// Limits are the limits that single keys have of their own, in Redis, where all
// processes find them: a serverside.Limits.
//
// Those of a key are a hash, named Prefix and the key, with the fields per_second,
// per_minute, per_hour and per_day. A window that is 0 or missing is not enforced; a key
// without a hash has no limits of its own. A program that changes them publishes a message
// on the channel Prefix + "changed", which is the key, or is empty for all keys:
//
//	HSET heed:limits:key-1 per_minute 120 per_day 5000
//	PUBLISH heed:limits:changed key-1
//
// What Redis answers is known for TTL, or until a message says that it has changed. Where
// half of TTL is over, Redis is asked while requests go on by what is known, so that
// none waits for limits that are in use. Others wait, all those of one key for one
// answer, and for no longer than Timeout or their context lets them. A change without a
// message, or while there is no subscription, is seen after TTL.
//
// While Redis does not answer, or the hash makes no sense, its last answer holds, for
// however long that takes. A key for which there was no answer is asked for again
// after a second.
//
// A Limits that is used for the first time subscribes to the channel, in a goroutine and
// with a connection for it, until Close. The zero Limits knows nothing; set Client. Fields
// must not change once it is in use, and it must not be copied. It is safe for
// concurrent use.
type Limits struct {
	// Client is how Redis is reached. If nil, Redis counts as lost.
	Client redis.UniversalClient

	// Prefix begins the name of each hash, and of the channel. If empty, "heed:limits:".
	Prefix string

	// TTL is how long an answer is known. If zero or negative, 10 s; above a year, a year.
	TTL time.Duration

	// MaxKeys is how many keys' limits are known at once, those of keys without any
	// included: one that was not asked for in a long time is forgotten for a new one.
	// A key takes some 500 bytes. If zero or negative, 16,384.
	MaxKeys int

	// Timeout is how long a call may take. If zero or negative, 50 ms.
	Timeout time.Duration

	once    sync.Once // guards the making of redis and end
	redis   *client
	end     context.CancelFunc
	corrupt atomic.Int64
	unheard atomic.Pointer[error] // why there are no messages, if nobody knows yet
	version atomic.Int64          // how many messages were about all keys, and one
	known   keyed.Table[knownLimits]
}

// retryLimits is how long a key is not asked for after Redis did not answer.
const retryLimits = time.Second

// knownLimits are what is known of one key.
type knownLimits struct {
	mu       sync.Mutex // guards what follows
	policies []quota.Policy
	err      error

	version    int64         // of all keys when Redis was asked; 0 if never, or if the key has changed since
	refreshAt  time.Duration // when Redis is to be asked again
	freshUntil time.Duration // when nothing holds any more but what a new answer says
	reading    *limitsReading
}

// A limitsReading is a call to Redis about one key.
type limitsReading struct {
	version  int64         // when it began
	done     chan struct{} // closed when what follows is there
	policies []quota.Policy
	err      error
}

// Limits returns the policies of key; none if it has no limits of its own. A policy with
// a Quota of zero is not enforced. They are others' as well, and must not be changed.
//
// An error says why these are perhaps not what Redis has: it joins a *LimitsError for
// each thing that is wrong with the hash, or says that Redis did not answer. The policies
// beside it are the last that made sense; none if there were none yet. An error for which
// there are no messages, such as a user who may not subscribe to the channel, is returned to one
// caller, whatever the key, and not again until there were some.
func (l *Limits) Limits(ctx context.Context, key string) ([]quota.Policy, error) {
	l.open()
	policies, err := l.get(ctx, key)
	if unheard := l.unheard.Load(); unheard != nil && l.unheard.CompareAndSwap(unheard, nil) {
		err = errors.Join(err, *unheard)
	}
	return policies, err
}

// Corrupt returns how many times a hash was found in Redis that makes no sense.
func (l *Limits) Corrupt() int64 { return l.corrupt.Load() }

// Close ends the goroutine. A Limits that was closed gets no messages. It returns nil.
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
		if isNil(l.Client) {
			return
		}
		s := &subscription{
			client: l.Client, channel: l.prefix() + "changed", message: l.changed,
			started: func() { l.unheard.Store(nil); l.changed("") },
			failed:  func(err error) { l.unheard.Store(&err) },
		}
		go s.run(ctx)
	})
}

// changed has Redis asked when key is next looked up, or any key if it is empty. A message
// is a sign that Redis answers again if it did not.
func (l *Limits) changed(key string) {
	l.redis.answers()
	if key == "" {
		l.version.Add(1)
	} else if k := l.known.Find(hostkey.NameOf(key)); k != nil {
		k.mu.Lock()
		defer k.mu.Unlock()
		k.version, k.reading = 0, nil
	}
}

// get returns what is known of key if that is fresh, and otherwise what Redis answers.
func (l *Limits) get(ctx context.Context, key string) ([]quota.Policy, error) {
	k := l.known.Get(hostkey.NameOf(key), func(*knownLimits) keyed.State { return keyed.Spare })
	k.mu.Lock()
	now, version := monotonic(), l.version.Load()
	fresh := k.version == version && now < k.freshUntil
	if (!fresh || now >= k.refreshAt) && (k.reading == nil || k.reading.version != version) {
		k.reading = &limitsReading{version: version, done: make(chan struct{})}
		go l.read(key, k, k.reading)
	}
	policies, err, reading := k.policies, k.err, k.reading
	k.mu.Unlock()
	if fresh {
		return policies, err
	}
	select {
	case <-reading.done:
		return reading.policies, reading.err
	case <-ctx.Done():
		return policies, ctx.Err()
	}
}

// read asks Redis for key, and notes the answer unless key has changed meanwhile.
func (l *Limits) read(key string, k *knownLimits, r *limitsReading) {
	asked := monotonic()
	reply, err := l.redis.run(context.Background(), limitsScript, []string{l.prefix() + key})
	answered := err == nil || redis.HasErrorPrefix(err, "WRONGTYPE") // which parseLimits says in its words
	if answered {
		if r.policies, err = parseLimits(key, reply); err != nil {
			l.corrupt.Add(1)
		}
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	defer close(r.done)
	if r.err = err; err != nil {
		r.policies = k.policies
	}
	if k.reading != r {
		return
	}
	if !answered && k.version != r.version { // the last answer is void
		k.freshUntil = 0
	}
	k.policies, k.err, k.version, k.reading = r.policies, r.err, r.version, nil
	if answered {
		k.refreshAt, k.freshUntil = asked+l.ttl()/2, asked+l.ttl()
	} else {
		k.refreshAt = monotonic() + retryLimits
		k.freshUntil = max(k.freshUntil, k.refreshAt)
	}
}

func (l *Limits) prefix() string         { return cmp.Or(l.Prefix, "heed:limits:") }
func (l *Limits) maxKeys() int           { return cmp.Or(max(l.MaxKeys, 0), 16_384) }
func (l *Limits) timeout() time.Duration { return cmp.Or(max(l.Timeout, 0), 50*time.Millisecond) }

func (l *Limits) ttl() time.Duration {
	return min(cmp.Or(max(l.TTL, 0), 10*time.Second), 365*24*time.Hour)
}
