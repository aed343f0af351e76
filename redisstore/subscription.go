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
	quietAtMost = 2 * time.Second        // until a connection has to prove that it lives
	restAtLeast = 100 * time.Millisecond // between two attempts to subscribe
	restAtMost  = 10 * time.Second
)

// A subscription hears what is published on a channel, and begins anew whenever that
// ends. Its functions are called by one goroutine.
type subscription struct {
	client  redis.UniversalClient
	channel string
	began   func()               // messages are heard from now on; what was said before was not
	heard   func(message string) // a message
	ended   func(err error)      // none are heard any more, or none could be to begin with
}

// run hears messages until ctx is over.
func (s *subscription) run(ctx context.Context) {
	for vain := 0; ctx.Err() == nil; vain++ {
		began, err := s.hear(ctx)
		if began {
			vain = 0
		}
		s.ended(err)
		rest(ctx, min(restAtMost, restAtLeast<<min(vain, 7)))
	}
}

func rest(ctx context.Context, d time.Duration) {
	select {
	case <-time.After(d):
	case <-ctx.Done():
	}
}

// hear subscribes once, and hears messages until the connection is lost.
func (s *subscription) hear(ctx context.Context) (began bool, err error) {
	defer func() { // go-redis panics if a server replies what no Redis does
		if v := recover(); v != nil {
			err = fmt.Errorf("%v", v)
		}
	}()
	from, err := s.publisher()
	if err != nil {
		return false, err
	}
	sub := from.Subscribe(ctx, s.channel)
	defer sub.Close()
	defer context.AfterFunc(ctx, func() { sub.Close() })()
	for pinged := false; ; {
		message, err := sub.ReceiveTimeout(ctx, quietAtMost)
		switch {
		case err == nil:
			pinged = false
			began = s.take(message) || began
		case !isTimeout(err) || pinged:
			return began, err
		default:
			if now, err := s.publisher(); now != from || err != nil {
				return began, err
			}
			pinged = true
			sub.Ping(ctx)
		}
	}
}

// take reports whether what came says that messages are heard from now on.
func (s *subscription) take(came any) (begins bool) {
	switch m := came.(type) {
	case *redis.Subscription:
		s.began()
		return true
	case *redis.Message:
		s.heard(m.Payload)
	}
	return false
}

type publisher interface {
	Subscribe(ctx context.Context, channels ...string) *redis.PubSub
}

// publisher is whom messages come from. A Ring's own Subscribe panics if no shard is
// up, and is not told when there is another one for the channel.
func (s *subscription) publisher() (publisher, error) {
	if ring, ok := s.client.(*redis.Ring); ok {
		return ring.GetShardClientForKey(s.channel)
	}
	return s.client, nil
}

func isTimeout(err error) bool {
	var timeout net.Error
	return errors.As(err, &timeout) && timeout.Timeout()
}
