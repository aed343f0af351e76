package redisstore

import (
	"context"
	"fmt"
	"io/fs"
	"log/slog"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
)

const (
	mostDocument = 1 << 20 // bytes that a Document may have

	// documentCalm is how long a change is not told of after another one: who is told
	// reads it all.
	documentCalm = 100 * time.Millisecond
)

var documentScript = newScript(fmt.Sprintf("return redis.call('GETRANGE', KEYS[1], 0, %d)", mostDocument))

// A Document is a text in Redis that processes follow, such as their rules: it is a
// rulefile.Source. Whoever writes it says so on the channel of the same name:
//
//	redis-cli -x SET heed:rules < rules.yaml
//	redis-cli PUBLISH heed:rules changed
//
// A message that got lost is made good by looking again once in an interval.
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

	// Interval is how often Follow says that the text may have changed though nobody
	// has. If zero or negative, 10 s.
	Interval time.Duration

	// Timeout is how long a Read may take. If zero or negative, 1 s.
	Timeout time.Duration

	// Degraded is told why Follow hears no messages, such as of a user who may not hear
	// the channel: once for each reason, until they were heard. If nil, slog.Default
	// is, as a warning. It is called by one goroutine for each Follow.
	Degraded func(err error)

	calls caller
}

// Read returns the text. The error is fs.ErrNotExist if there is none, or it is empty.
// It is also an error if it is longer than 1 MiB, or Redis does not answer. Redis is
// always asked, whatever became of the Read before.
func (d *Document) Read(ctx context.Context) ([]byte, error) {
	reply, err := d.calls.run(ctx, d.Client, d.timeout(), documentScript, []string{d.key()})
	if err != nil {
		return nil, err
	}
	text, ok := reply.(string)
	switch {
	case !ok:
		return nil, fmt.Errorf("%w %.60q", errReply, fmt.Sprint(reply))
	case text == "":
		return nil, fmt.Errorf("redisstore: %s: %w", d.key(), fs.ErrNotExist)
	case len(text) > mostDocument:
		return nil, fmt.Errorf("redisstore: %s is longer than 1 MiB", d.key())
	}
	return []byte(text), nil
}

// Follow calls changed, in its own goroutine, whenever the text may have changed, until
// ctx is over: when a message says so, when messages are heard again after a while
// without, and once in each Interval; but not more often than each 100 ms, however many
// messages there are.
func (d *Document) Follow(ctx context.Context, changed func()) {
	news := make(chan struct{}, 1)
	var listening sync.WaitGroup
	defer listening.Wait()
	if !isNil(d.Client) {
		listening.Go(func() { d.listen(ctx, news) })
	}
	again := time.NewTicker(d.interval())
	defer again.Stop()
	for {
		select {
		case <-ctx.Done():
		case <-news:
		case <-again.C:
		}
		if ctx.Err() != nil {
			return
		}
		changed()
		rest(ctx, documentCalm)
	}
}

// listen puts something into news, where there is room for one, when there is any.
func (d *Document) listen(ctx context.Context, news chan<- struct{}) {
	told := func() {
		select {
		case news <- struct{}{}:
		default: // which is about this as well
		}
	}
	s := subscription{client: d.Client, channel: d.key(), began: told, heard: func(string) { told() }, vain: d.degraded}
	s.run(ctx)
}

func (d *Document) degraded(err error) {
	if d.Degraded != nil {
		d.Degraded(err)
		return
	}
	slog.Warn("rate_limit.rules_unheard", "error", err)
}

func (d *Document) key() string {
	if d.Key != "" {
		return d.Key
	}
	return "heed:rules"
}

func (d *Document) interval() time.Duration {
	if d.Interval <= 0 {
		return 10 * time.Second
	}
	return d.Interval
}

func (d *Document) timeout() time.Duration {
	if d.Timeout <= 0 {
		return time.Second
	}
	return d.Timeout
}
