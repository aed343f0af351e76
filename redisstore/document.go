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
	maxDocument   = 1 << 20                // bytes
	documentPause = 100 * time.Millisecond // the shortest time between two calls of changed
)

var documentScript = newScript(fmt.Sprintf("return redis.call('GETRANGE', KEYS[1], 0, %d)", maxDocument))

// A Document is a text in Redis, such as a file of rules, that all processes follow. It is a
// rulefile.Source:
//
//	rules, err := rulefile.Follow("heed:rules", &redisstore.Document{Client: rdb}, nil, env)
//
// To change it, set the key and publish a message on the channel of the same name:
//
//	redis-cli -x SET heed:rules < rules.yaml
//	redis-cli PUBLISH heed:rules changed
//
// If the message is lost, the change is seen after Interval.
//
// Set Client. There is nothing to close. Fields must not change once the Document is in use, and it
// must not be copied. It is safe for concurrent use.
type Document struct {
	// Client connects to Redis. If nil, Read fails.
	Client redis.UniversalClient

	// Key names a Redis string, and the channel. If empty, "heed:rules".
	Key string

	// Interval is how often Follow calls changed when there are no messages. If zero or
	// negative, 10 s.
	Interval time.Duration

	// Timeout is how long a Read may take. If zero or negative, 1 s.
	Timeout time.Duration

	// Degraded is called with the reason why Follow gets no messages, such as a user without
	// permission for the channel: once for each reason, and again after messages have worked in
	// between. Each Follow calls it from one goroutine. If nil, the reason is logged to
	// slog.Default as a warning.
	Degraded func(err error)

	once  sync.Once // guards the creation of redis
	redis *client
}

// Read returns the text. The error is fs.ErrNotExist if it is missing or empty. It is also an error if
// the text is longer than 1 MiB or Redis does not answer. Read always asks Redis, even if the last
// Read failed.
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

// Follow blocks until ctx ends, and calls changed whenever the text may have changed: after a message,
// when the subscription starts again, and after each Interval, but at most every 100 ms.
func (d *Document) Follow(ctx context.Context, changed func()) {
	wake := make(chan struct{}, 1)
	signal := func(string) {
		select {
		case wake <- struct{}{}:
		default: // a call is already due
		}
	}
	var subscribed sync.WaitGroup
	defer subscribed.Wait()
	s := subscription{
		client: d.Client, channel: d.key(), started: func() { signal("") }, message: signal, failed: d.degraded,
	}
	subscribed.Go(func() { s.run(ctx) })
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
		sleep(ctx, documentPause)
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
