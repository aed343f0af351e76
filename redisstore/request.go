package redisstore

import (
	"context"
	"fmt"
	"time"

	"github.com/redis/go-redis/v9"
)

// A request is an errand that waits in line, and how it was done.
type request struct {
	errand
	question
	err error // of this errand: others of its train may be done
}

// newRequest returns a call to do what like is, with charges to be added. Calls are
// not shared by Stores: the channel of one that was made in a bubble of testing/synctest
// must not leave it.
func (s *Store) newRequest(like errand) *call[request] {
	c, _ := s.requests.Get().(*call[request])
	if c == nil {
		c = newCall[request]()
	}
	e := &c.work.errand
	e.verb, e.peek, e.max = like.verb, like.peek, like.max
	return c
}

// freeRequest keeps what c has allocated, for others. Nobody may be about to do it.
func (s *Store) freeRequest(c *call[request]) {
	charges, visits := c.work.charges, c.work.visits
	clear(charges)
	clear(visits)
	c.work = request{errand: errand{charges: charges[:0], visits: visits[:0]}}
	c.ctx, c.stubborn = nil, false
	s.requests.Put(c)
}

// ask has c done, with others if there are any. After an error it was not done, if
// that is a redis.Error, or nobody knows; but the server is not asked if it is known
// not to answer, unless c is stubborn.
func (s *Store) ask(ctx context.Context, c *call[request]) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	if isNil(s.Client) {
		return errNoClient
	}
	r := &c.work
	server := s.serverFor(r.charges[0].Key)
	if server.broken.Load() && !c.stubborn {
		if err := server.pass(s.probe(s.keysOf(c))); err != nil {
			return s.connections.explain(err)
		}
	}
	now := monotonic()
	if !s.AlwaysAsk {
		r.question = s.denials.ask(r.charges, s.time(now))
	}
	r.err, c.weight = nil, len(r.charges)
	if err := server.line.do(ctx, c, now, s.straight(ctx)); err != nil {
		return s.connections.explain(err)
	}
	return s.connections.explain(r.err)
}

// straight reports whether a call may be made by its caller's own goroutine: go-redis
// has to give it up when its time is over, and its caller must not want to sooner.
func (s *Store) straight(ctx context.Context) bool {
	client, single := s.Client.(*redis.Client)
	if !single || !client.Options().ContextTimeoutEnabled {
		return false
	}
	deadline, ok := ctx.Deadline()
	return !ok || time.Until(deadline) >= s.timeout()
}

// keysOf names the first Key of c.
func (s *Store) keysOf(c *call[request]) []string {
	return []string{s.prefix() + c.work.charges[0].Key}
}

// A run is one execution of the script, for some calls of a train.
type run struct {
	calls   []*call[request]
	now     int64 // Redis' time; 0 if it should be this process's
	plan    *plan
	special bool // as the plan is
	execution
}

// carry has the calls of a batch done, in one round trip: by one script, or on a Cluster
// or Ring by one for each tag. It returns an error if there was no answer.
func (s *Store) carry(ctx context.Context, batch []*call[request]) (silence error) {
	defer func() {
		for _, c := range batch {
			s.forget(&c.work.errand)
		}
	}()
	runs := s.divide(batch)
	if err := s.calls.begin(); err != nil {
		fail(runs, err)
		return nil
	}
	defer s.calls.end()
	for len(runs) > 0 && silence == nil {
		runs, silence = s.execute(ctx, runs)
	}
	fail(runs, silence)
	return silence
}

// fail tells the calls of runs that they were not sent because of err.
func fail(runs []*run, err error) {
	for _, r := range runs {
		r.end(err)
	}
}

// end tells the calls of r that they were done, or not.
func (r *run) end(err error) {
	for _, c := range r.calls {
		c.work.err = err
	}
}

// divide makes runs of a batch.
func (s *Store) divide(batch []*call[request]) (runs []*run) {
	if _, single := s.Client.(*redis.Client); single || len(batch) == 1 {
		return []*run{{calls: batch}}
	}
	tags := make(map[string]*run)
	for _, c := range batch {
		tag := tagOf(s.prefix() + c.work.charges[0].Key)
		r := tags[tag]
		if r == nil {
			r = new(run)
			tags[tag], runs = r, append(runs, r)
		}
		r.calls = append(r.calls, c)
	}
	return runs
}

// execute has runs executed in one round trip, and returns those to be executed once
// more: nothing of them was done.
func (s *Store) execute(ctx context.Context, runs []*run) (again []*run, silence error) {
	all := make([]*execution, len(runs))
	for i, r := range runs {
		s.prepare(r)
		all[i] = &r.execution
	}
	sendAll(ctx, s.Client, all...)
	for _, r := range runs {
		if r.err != nil && !unexecuted(r.err) {
			silence = r.err
		}
		again = append(again, s.finish(r)...)
		r.plan.free()
	}
	return again, silence
}

// prepare makes what r is to send.
func (s *Store) prepare(r *run) {
	errands := make([]*errand, len(r.calls))
	for i, c := range r.calls {
		errands[i] = &c.work.errand
	}
	now := r.now
	if now == 0 {
		now = time.Now().UnixMicro()
	}
	r.plan = newPlan(s.prefix(), errands)
	r.plan.special = r.special
	r.plan.encode(now)
	r.execution = execution{script: s.script().of(r.plan), keys: r.plan.keys, args: []any{r.plan.args}}
}

// finish tells the calls of r what came of it, unless it is to be repeated. If several
// were refused, it may have been because of one, and each has to be asked for alone.
func (s *Store) finish(r *run) (again []*run) {
	err := r.err
	if err == nil {
		err = s.answer(r.plan, r.value)
	}
	now, other := err.(otherTime)
	switch {
	case err == errSpecial:
		return []*run{{calls: r.calls, special: true}}
	case other && r.now == 0:
		return []*run{{calls: r.calls, now: int64(now)}}
	case err != nil && unexecuted(err) && len(r.calls) > 1:
		for i := range r.calls {
			again = append(again, &run{calls: r.calls[i : i+1], now: r.now})
		}
		return again
	}
	r.end(err)
	return nil
}

// answer has the errands of p answered by a reply.
func (s *Store) answer(p *plan, value any) error {
	reply, ok := value.(string)
	if !ok {
		return fmt.Errorf("%w %.60q", errReply, fmt.Sprint(value))
	}
	corrupt, err := p.answer(reply)
	s.corrupt.Add(corrupt)
	return err
}
