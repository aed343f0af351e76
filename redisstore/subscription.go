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
	quietAtMost = 2 * time.Second        // until a connection has to prove that it lives
	firstRest   = 100 * time.Millisecond // the longest after one attempt to subscribe, doubled after each one more
	longestRest = 10 * time.Second
	mostReasons = 16 // that are remembered
)

// A subscription hears what is published on a channel, and begins anew whenever that
// ends. Its functions are called by one goroutine; those that are nil are not.
type subscription struct {
	client  redis.UniversalClient
	channel string
	began   func()               // messages are heard from now on; what was said before was not
	heard   func(message string) // a message
	ended   func(err error)      // none are heard any more, or none could be to begin with
	vain    func(err error)      // none could be to begin with: once for each reason, until some are

	told reasons
}

// run hears messages until ctx is over. All who have lost a server want to come back at
// once: each rests for a time of its own.
func (s *subscription) run(ctx context.Context) {
	for short := 0; ctx.Err() == nil; short++ {
		start := time.Now()
		began, err := s.hear(ctx)
		if ctx.Err() == nil {
			s.tell(began, err)
		}
		if began && time.Since(start) >= longestRest {
			short = 0
		}
		rest(ctx, rand.N(min(longestRest, firstRest<<min(short, 7))))
	}
}

// tell tells how an attempt ended.
func (s *subscription) tell(began bool, err error) {
	if s.ended != nil {
		s.ended(err)
	}
	switch {
	case began:
		s.told.clear()
	case s.vain != nil && s.told.add(err):
		s.vain(fmt.Errorf("redisstore: changes are seen late: cannot subscribe to %s: %w", s.channel, err))
	}
}

// reasons are those for which something has failed since it last did not. The zero value
// has none.
type reasons struct{ known map[string]bool }

// add reports whether err has a reason that is new. What it says around that may differ
// each time, such as a port.
func (r *reasons) add(err error) bool {
	if err == nil {
		return false
	}
	for within := err; within != nil; within = errors.Unwrap(within) {
		err = within
	}
	if r.known == nil || len(r.known) >= mostReasons {
		r.known = make(map[string]bool)
	}
	reason := err.Error()
	known := r.known[reason]
	r.known[reason] = true
	return !known
}

func (r *reasons) clear() { r.known = nil }

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
			err = fmt.Errorf("unexpected reply: %v", v)
		}
	}()
	from, err := s.publisher()
	if err != nil {
		return false, err
	}
	sub := from.Subscribe(ctx) // to nothing yet, or it would keep the error to itself and try twice
	defer sub.Close()
	defer context.AfterFunc(ctx, func() { sub.Close() })()
	if err := sub.Subscribe(ctx, s.channel); err != nil {
		return false, err
	}
	for pinged := false; ; {
		message, err := sub.ReceiveTimeout(ctx, quietAtMost)
		pong, _ := message.(*redis.Pong)
		switch {
		case pong != nil && !began: // go-redis takes any text for one
			return false, fmt.Errorf("unexpected reply %.60q", pong.Payload)
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
