package redisstore

import (
	"context"
	_ "embed"
	"errors"
	"time"

	"github.com/heedhttp/heed/internal/remote"
)

var (
	//go:embed lua/number.lua
	numberSource string
	//go:embed lua/state.lua
	stateSource string
	//go:embed lua/bucket.lua
	bucketSource string
	//go:embed lua/window.lua
	windowSource string
	//go:embed lua/log.lua
	logSource string
	//go:embed lua/expiry.lua
	expirySource string
	//go:embed lua/store.lua
	storeSource string

	storeScript = newScript(numberSource + stateSource + bucketSource + windowSource + logSource +
		expirySource + storeSource)
)

// A request is the ops of one caller, executed one after the other by one script. All their keys are
// on one server, and on a Cluster in one slot.
type request struct {
	ops []*op
	err error // of this request: others of its batch may have succeeded
}

// ask executes ops, in a batch with those of other callers, and fills in their answers. A redis.Error
// means that they were not executed; after any other error they may have been.
func (s *Store) ask(ctx context.Context, ops ...*op) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	c := s.redis()
	if isNil(c.redis) {
		return errNoClient
	}
	server := c.serverOf(s.prefix() + ops[0].charges[0].Key)
	began := time.Now()
	within, cancel := context.WithTimeout(ctx, c.timeout)
	defer cancel()
	r := &request{ops: ops}
	err := s.enqueue(within, server, r)
	switch {
	case err == nil:
		err = r.err
	case err == within.Err() && ctx.Err() == nil:
		err = server.Expired(began)
	}
	return c.connections.explain(err)
}

// askPatiently is ask, but while Redis does not answer, it first waits within the timeout for a probe
// to succeed.
func (s *Store) askPatiently(ctx context.Context, o *op) error {
	c := s.redis()
	within, cancel := context.WithTimeout(ctx, c.timeout)
	defer cancel()
	_ = c.serverOf(s.prefix() + o.charges[0].Key).WaitReady(within) // ask returns the same error
	return s.ask(ctx, o)
}

// enqueue blocks until r is answered. If nothing else is in flight, it sends r in this goroutine, which
// saves two goroutine switches, and otherwise in a batch.
func (s *Store) enqueue(ctx context.Context, on *server, r *request) error {
	if s.client.mayInline(ctx) {
		ok, err := on.batches.doInline(func() error {
			return remote.Inline(ctx, &on.Caller, func(ctx context.Context) error {
				return s.execute(ctx, []*request{r})
			})
		})
		if ok {
			return err
		}
	}
	return on.batches.do(ctx, r)
}

// mayInline reports whether a call may be made in its caller's goroutine. There only go-redis can end
// it, by default after the timeout whatever ctx says. So ctx must have about that much time left, and
// a connection must be idle, because dialing may take longer.
func (c *client) mayInline(ctx context.Context) bool {
	if c.single == nil {
		return false
	}
	deadline, _ := ctx.Deadline()
	return time.Until(deadline) > c.timeout*9/10 && c.single.PoolStats().IdleConns > 0
}

// A group is the requests of a batch that one script executes.
type group struct {
	requests []*request
	now      int64 // Redis' time as it replied to an earlier attempt, or 0
}

// execute executes the requests of a batch in one round trip, and sets their errors. It takes one script,
// or on a Cluster or Ring one for each hash tag; some may need a second round trip. It returns an error
// if a server did not answer. An error reply is the error of its request only.
func (s *Store) execute(ctx context.Context, batch []*request) (noAnswer error) {
	for groups := s.groupByTag(batch); len(groups) > 0 && noAnswer == nil; {
		groups, noAnswer = s.sendGroups(ctx, groups)
	}
	for _, r := range batch {
		for _, o := range r.ops {
			s.forget(o)
		}
	}
	return noAnswer
}

// groupByTag returns one group for each script that batch needs.
func (s *Store) groupByTag(batch []*request) (groups []*group) {
	if s.client.single != nil || len(batch) == 1 {
		return []*group{{requests: batch}}
	}
	tags := make(map[string]*group)
	for _, r := range batch {
		tag := tagOf(s.prefix() + r.ops[0].charges[0].Key)
		g := tags[tag]
		if g == nil {
			g = new(group)
			tags[tag], groups = g, append(groups, g)
		}
		g.requests = append(g.requests, r)
	}
	return groups
}

// sendGroups executes groups in one round trip. It returns those to execute again, because nothing was
// done for them.
func (s *Store) sendGroups(ctx context.Context, groups []*group) (again []*group, noAnswer error) {
	all := make([]*execution, len(groups))
	for i, g := range groups {
		all[i] = &execution{script: s.storeScript()}
		all[i].keys, all[i].args = encodeOps(s.prefix(), g.ops(), g.assumedNow())
	}
	sendAll(s.client.inTime(ctx), s.client.redis, all)
	for i, g := range groups {
		if err := all[i].err; err != nil && !isAnswer(err) {
			noAnswer = err
		}
		again = append(again, s.finish(g, all[i])...)
	}
	return again, noAnswer
}

func (g *group) ops() (ops []*op) {
	for _, r := range g.requests {
		ops = append(ops, r.ops...)
	}
	return ops
}

// assumedNow returns the time to encode g for. It matters for the windows of a Calendar.
func (g *group) assumedNow() int64 {
	if g.now != 0 {
		return g.now
	}
	return time.Now().UnixMicro()
}

// finish sets the answers of g's requests from the result of e. If nothing was done, it may return groups
// to send again: g for Redis' actual time, or after a refusal each request by itself, because one
// request may be the reason.
func (s *Store) finish(g *group, e *execution) (again []*group) {
	err := e.err
	if err == nil {
		var corrupt int64
		corrupt, err = decodeReply(g.ops(), e.value)
		s.corrupt.Add(corrupt)
	}
	if now, other := errors.AsType[otherTime](err); other && g.now == 0 {
		return []*group{{g.requests, int64(now)}}
	}
	if err != nil && isAnswer(err) && len(g.requests) > 1 {
		for i := range g.requests {
			again = append(again, &group{g.requests[i : i+1], g.now})
		}
		return again
	}
	for _, r := range g.requests {
		r.err = err
	}
	return nil
}

func (s *Store) storeScript() *script {
	if s.script != nil {
		return s.script
	}
	return storeScript
}
