package redisstore

import (
	"context"
	"errors"
	"fmt"
	"net"
	"time"

	"github.com/redis/go-redis/v9"
)

const (
	quietAtMost = 2 * time.Second  // until a connection has to prove that it lives
	restAtMost  = 10 * time.Second // between two attempts to subscribe
)

// listen has a trip made for each message, and subscribes again when that ends.
func (l *link) listen() {
	for vain := 0; l.ctx.Err() == nil; vain++ {
		err := l.hear()
		if l.listening.Swap(false) {
			vain = 0
			l.kick() // which makes the timer quick
		}
		if err != nil && l.ctx.Err() == nil {
			l.trouble.put(fmt.Errorf("redisstore: cannot subscribe: %w", err))
		}
		l.rest(min(restAtMost, searchEvery<<min(vain, 7)))
	}
}

func (l *link) rest(d time.Duration) {
	select {
	case <-time.After(d):
	case <-l.ctx.Done():
	}
}

// hear subscribes once, and hears messages until the connection is lost.
func (l *link) hear() (err error) {
	defer func() { // go-redis panics if a server replies what no Redis does
		if v := recover(); v != nil {
			err = fmt.Errorf("%v", v)
		}
	}()
	from, err := l.publisher()
	if err != nil {
		return err
	}
	sub := from.Subscribe(l.ctx, l.keys[0])
	defer sub.Close()
	defer context.AfterFunc(l.ctx, func() { sub.Close() })()
	for pinged := false; ; {
		message, err := sub.ReceiveTimeout(l.ctx, quietAtMost)
		switch {
		case err == nil:
			pinged = false
			l.heard(message)
		case !isTimeout(err) || pinged:
			return err
		default:
			if now, err := l.publisher(); now != from || err != nil {
				return err
			}
			pinged = true
			sub.Ping(l.ctx)
		}
	}
}

func (l *link) heard(message any) {
	switch message.(type) {
	case *redis.Subscription:
		l.listening.Store(true)
		l.kick() // what was said before
	case *redis.Message:
		l.kick()
	}
}

type publisher interface {
	Subscribe(ctx context.Context, channels ...string) *redis.PubSub
}

// publisher is whom the link's messages come from. A Ring's own Subscribe panics
// if no shard is up, and is not told when there is another one for the key.
func (l *link) publisher() (publisher, error) {
	if ring, ok := l.client.(*redis.Ring); ok {
		return ring.GetShardClientForKey(l.keys[0])
	}
	return l.client, nil
}

func isTimeout(err error) bool {
	var timeout net.Error
	return errors.As(err, &timeout) && timeout.Timeout()
}
