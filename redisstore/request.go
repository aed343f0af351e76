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

	storeScript = newScript(numberSource + stateSource + bucketSource + windowSource + logSource + expirySource + storeSource)
)

// A request is ops that are done one after the other, by one script, for one caller. All their
// keys are on one server, and in a Cluster in one slot.
type request struct {
	ops []*op
	err error // of this request: others of its batch may be done
}

// ask has ops done, in a batch with those of other callers, and fills in their answers. After a
// redis.Error they were not done; after another error nobody knows.
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

// askPatiently is ask, but if Redis does not answer, it first waits up to the timeout until a probe
// says that it does.
func (s *Store) askPatiently(ctx context.Context, o *op) error {
	c := s.redis()
	within, cancel := context.WithTimeout(ctx, c.timeout)
	defer cancel()
	_ = c.serverOf(s.prefix() + o.charges[0].Key).WaitReady(within) // of which ask returns the error
	return s.ask(ctx, o)
}

// enqueue blocks until r is answered. It is sent in the caller's goroutine if nothing else is in
// flight, which saves two switches of goroutines, and otherwise in a batch.
func (s *Store) enqueue(ctx context.Context, on *server, r *request) error {
	if s.client.mayInline(ctx) {
		ok, err := on.batches.doInline(func() error {
			return remote.Inline(ctx, &on.Caller, func(ctx context.Context) error { return s.execute(ctx, []*request{r}) })
		})
		if ok {
			return err
		}
	}
	return on.batches.do(ctx, r)
}

// mayInline reports whether a call may be made in its caller's goroutine. There nothing but
// go-redis ends it, which by default does so after the timeout, whatever ctx says. So ctx must have about as
// much time left, and there must be a connection: dialing may take longer.
func (c *client) mayInline(ctx context.Context) bool {
	if c.single == nil {
		return false
	}
	deadline, _ := ctx.Deadline()
	return time.Until(deadline) > c.timeout*9/10 && c.single.PoolStats().IdleConns > 0
}

// A group is the requests of a batch that are done by one script.
type group struct {
	requests []*request
	now      int64 // Redis' time, which it replied to an earlier attempt; 0 if there was none
}

// execute has the requests of a batch done in one round trip, and sets their errors: by one script,
// or on a Cluster or Ring by one for each hash tag. Some may need another round trip. It returns an
// error if a server did not answer; a reply that is an error is that of a request.
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

// groupByTag returns a group for each script that batch needs.
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

// sendGroups has groups executed in one round trip, and returns those to be executed once more:
// nothing of them was done.
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

// assumedNow is the time for which g is encoded, which matters for the windows of a Calendar.
func (g *group) assumedNow() int64 {
	if g.now != 0 {
		return g.now
	}
	return time.Now().UnixMicro()
}

// finish has the requests of g answered by the reply of e, or returns what is to be sent again since
// nothing of it was done: g for the time that Redis says it is, or after a refusal, which may have
// been because of one request, each by itself.
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
