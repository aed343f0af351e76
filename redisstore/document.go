package redisstore

import (
	"cmp"
	"context"
	"fmt"
	"io/fs"
	"log/slog"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
)

const (
	maxDocument   = 1 << 20                // bytes that a Document may have
	documentPause = 100 * time.Millisecond // the least time between two calls of Follow
)

var documentScript = newScript(fmt.Sprintf("return redis.call('GETRANGE', KEYS[1], 0, %d)", maxDocument))

// A Document is a text in Redis that processes follow, such as their rules: it is a
// rulefile.Source. A program that writes it publishes a message on the channel of the same
// name:
//
//	redis-cli -x SET heed:rules < rules.yaml
//	redis-cli PUBLISH heed:rules changed
//
// A message that got lost costs an Interval.
//
// The zero Document has no Redis; set Client. It needs no Close. It is safe for
// concurrent use; its fields must not change once it is in use, and it must not be
// copied.
type Document struct {
	// Client is how Redis is reached. If nil, Read fails.
	Client redis.UniversalClient

	// Key is that of the text, a Redis string, and the name of the channel. If empty,
	// "heed:rules".
	Key string

	// Interval is how often Follow calls changed without a message. If zero or negative,
	// 10 s.
	Interval time.Duration

	// Timeout is how long a Read may take. If zero or negative, 1 s.
	Timeout time.Duration

	// Degraded is called with the reason why Follow gets no messages, such as a user who
	// may not subscribe to the channel: once for each reason, until there were some. If nil, the
	// reason is logged to slog.Default, as a warning. It is called by one goroutine for each Follow.
	Degraded func(err error)

	once  sync.Once // guards the making of redis
	redis *client
}

// Read returns the text. The error is fs.ErrNotExist if there is none, or it is empty.
// It is also an error if it is longer than 1 MiB, or Redis does not answer. Redis is
// always asked, whatever became of the Read before.
func (d *Document) Read(ctx context.Context) ([]byte, error) {
	d.once.Do(func() { d.redis = newClient(d.Client, d.timeout()) })
	reply, err := d.redis.runPatiently(ctx, documentScript, []string{d.key()})
	if err != nil {
		return nil, err
	}
	text, ok := reply.(string)
	switch {
	case !ok:
		return nil, fmt.Errorf("redisstore: %s: unexpected reply %.60q", d.key(), fmt.Sprint(reply))
	case text == "":
		return nil, fmt.Errorf("redisstore: %s: %w", d.key(), fs.ErrNotExist)
	case len(text) > maxDocument:
		return nil, fmt.Errorf("redisstore: %s is longer than 1 MiB", d.key())
	}
	return []byte(text), nil
}

// Follow calls changed, in its own goroutine, whenever the text may have changed, until
// ctx is over: when a message says so, when messages arrive again after a while
// without, and once in each Interval; but not more often than each 100 ms, however many
// messages there are.
func (d *Document) Follow(ctx context.Context, changed func()) {
	wake := make(chan struct{}, 1)
	signal := func() {
		select {
		case wake <- struct{}{}:
		default: // there is one already
		}
	}
	var subscribed sync.WaitGroup
	defer subscribed.Wait()
	if !isNil(d.Client) {
		s := subscription{
			client: d.Client, channel: d.key(), started: signal, message: func(string) { signal() }, failed: d.degraded,
		}
		subscribed.Go(func() { s.run(ctx) })
	}
	ticker := time.NewTicker(cmp.Or(max(d.Interval, 0), 10*time.Second))
	defer ticker.Stop()
	for ctx.Err() == nil {
		select {
		case <-ctx.Done():
			return
		case <-wake:
		case <-ticker.C:
		}
		changed()
		rest(ctx, documentPause)
	}
}

func (d *Document) degraded(err error) {
	if d.Degraded != nil {
		d.Degraded(err)
		return
	}
	slog.Warn("rate_limit.rules_unheard", "error", err)
}

func (d *Document) key() string            { return cmp.Or(d.Key, "heed:rules") }
func (d *Document) timeout() time.Duration { return cmp.Or(max(d.Timeout, 0), time.Second) }
