package redisstore

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"time"

	"github.com/redis/go-redis/v9"
)

const (
	pingAfter    = 2 * time.Second        // without a message, before the connection must answer a ping
	firstPause   = 100 * time.Millisecond // the longest pause after the first attempt; it doubles each time
	longestPause = 10 * time.Second
	maxReasons   = 16 // that are remembered
)

// A subscription receives what is published on a channel, and subscribes again whenever its
// connection is lost. One goroutine calls its functions.
type subscription struct {
	client  redis.UniversalClient
	channel string
	started func()            // messages are received from now on; earlier ones were not
	message func(text string) // a message was received
	stopped func()            // no messages are received any more; may be nil
	failed  func(err error)   // it cannot subscribe: called once for each reason, until it can

	reasons map[string]bool // why it failed since the last success
}

// run receives messages until ctx ends. After a failure it pauses for a random time, so that
// processes do not all come back at once. Without a client there are no messages.
func (s *subscription) run(ctx context.Context) {
	if isNil(s.client) {
		return
	}
	for attempts := 0; ctx.Err() == nil; attempts++ {
		start := time.Now()
		subscribed, err := s.receive(ctx)
		switch {
		case ctx.Err() != nil:
		case !subscribed && err != nil:
			s.fail(err)
		case subscribed && s.stopped != nil:
			s.stopped()
		}
		if subscribed && time.Since(start) >= longestPause {
			attempts = 0
		}
		sleep(ctx, rand.N(min(longestPause, firstPause<<min(attempts, 7))))
	}
}

// fail reports err if its reason is new. The text around the reason may differ each time, such as a
// port.
func (s *subscription) fail(err error) {
	reason := innermost(err).Error()
	if s.reasons == nil || len(s.reasons) >= maxReasons {
		s.reasons = make(map[string]bool)
	}
	if !s.reasons[reason] {
		s.reasons[reason] = true
		s.failed(fmt.Errorf("redisstore: changes arrive late: cannot subscribe to %s: %w", s.channel, err))
	}
}

func sleep(ctx context.Context, d time.Duration) {
	select {
	case <-time.After(d):
	case <-ctx.Done():
	}
}

// receive subscribes once, and receives messages until the connection is lost.
func (s *subscription) receive(ctx context.Context) (subscribed bool, err error) {
	defer func() { // go-redis panics on some invalid replies
		if v := recover(); v != nil {
			err = fmt.Errorf("unexpected reply: %v", v)
		}
	}()
	from, err := s.publisher()
	if err != nil {
		return false, err
	}
	sub := from.Subscribe(ctx) // without channels: with one it would retry and hide the error
	defer sub.Close()
	defer context.AfterFunc(ctx, func() { sub.Close() })()
	if err := sub.Subscribe(ctx, s.channel); err != nil {
		return false, err
	}
	for pinged := false; ; {
		received, err := sub.ReceiveTimeout(ctx, pingAfter)
		switch {
		case err == nil:
			pinged = false
		case !isTimeout(err) || pinged:
			return subscribed, err
		default:
			if now, err := s.publisher(); now != from || err != nil {
				return subscribed, err
			}
			pinged = true
			sub.Ping(ctx)
		}
		switch m := received.(type) {
		case *redis.Subscription:
			subscribed, s.reasons = true, nil
			s.started()
		case *redis.Message:
			s.message(m.Payload)
		case *redis.Pong:
			if !subscribed { // go-redis takes any text for a pong
				return false, fmt.Errorf("unexpected reply %.60q", m.Payload)
			}
		}
	}
}

// A publisher is the client that messages come from.
type publisher interface {
	Subscribe(ctx context.Context, channels ...string) *redis.PubSub
}

// publisher returns the client to subscribe with. Ring.Subscribe panics if all shards are down, and
// does not change over when another shard takes the channel.
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
