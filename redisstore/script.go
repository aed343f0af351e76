package redisstore

import (
	"context"
	"crypto/sha1"
	"encoding/hex"
	"errors"
	"fmt"
	"reflect"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"
)

// maxCalls is how many calls of one caller may be under way, those that were
// left behind included.
const maxCalls = 1024

var (
	errNoClient = errors.New("redisstore: Client is nil")
	errBusy     = fmt.Errorf("redisstore: %d calls are waiting for an answer", maxCalls)
)

// A script is a Lua script, which a server knows by the SHA-1 of its source.
type script struct{ source, sha string }

func newScript(source string) *script {
	sum := sha1.Sum([]byte(source))
	return &script{source: source, sha: hex.EncodeToString(sum[:])}
}

// A caller runs scripts. Its zero value is ready to use, by many goroutines.
type caller struct{ calls atomic.Int32 }

// run returns what s replies, as underway.wait does.
func (c *caller) run(ctx context.Context, client redis.UniversalClient, timeout time.Duration, s *script, keys []string, args ...any) (any, error) {
	call, err := c.start(ctx, client, timeout, s, keys, args)
	if err != nil {
		return nil, err
	}
	return call.wait(ctx, func(error) {})
}

// begin returns an error if too many calls are under way already. Otherwise another one
// is, until end.
func (c *caller) begin() error {
	if c.calls.Add(1) > maxCalls {
		c.calls.Add(-1)
		return errBusy
	}
	return nil
}

func (c *caller) end() { c.calls.Add(-1) }

// start has s executed, at most once: nothing is sent again unless the server
// said NOSCRIPT. keys and args belong to the call for good.
func (c *caller) start(ctx context.Context, client redis.UniversalClient, timeout time.Duration, s *script, keys []string, args []any) (*underway, error) {
	if isNil(client) {
		return nil, errNoClient
	}
	if err := c.begin(); err != nil {
		return nil, err
	}
	within, end := context.WithTimeout(context.WithoutCancel(ctx), timeout)
	started := &underway{client: client, within: within, end: end, timeout: timeout, replies: make(chan reply, 1)}
	go func() {
		defer c.end()
		e := &execution{script: s, keys: keys, args: args}
		sendAll(within, client, e)
		started.replies <- e.reply
	}()
	return started, nil
}

// A script is underway for its timeout, however soon its caller goes.
type underway struct {
	client  redis.UniversalClient
	within  context.Context
	end     context.CancelFunc
	timeout time.Duration
	replies chan reply
}

// wait returns the answer. After an error it is unknown whether the script was
// executed, but see unexecuted.
//
// It takes no longer than the timeout, nor than ctx. go-redis heeds neither while
// it reads, unless Options.ContextTimeoutEnabled is set, and a Cluster has many
// timeouts of its own; Client.WithTimeout would drop the client's hooks. So the
// call is left behind when its time is over, until the client gives it up as well.
//
// judge is told the error of the call, or nil, once: before wait returns, or, if
// ctx is over first, when the call has ended.
func (c *underway) wait(ctx context.Context, judge func(error)) (any, error) {
	var r reply
	select {
	case r = <-c.replies:
	case <-c.within.Done():
		r.err = fmt.Errorf("redisstore: no answer within %v: %w", c.timeout, c.within.Err())
	case <-ctx.Done():
		go c.wait(context.WithoutCancel(ctx), judge)
		return nil, ctx.Err()
	}
	c.end()
	if r.err != nil && !unexecuted(r.err) {
		lookAgain(c.client)
	}
	judge(r.err)
	return r.value, r.err
}

// lookAgain has a ClusterClient ask who has which keys, since one of its servers did
// not answer. By itself it asks when a server names another one, which one that died
// does not, and after Options.ClusterStateReloadInterval, a minute by default.
func lookAgain(client redis.UniversalClient) {
	if c, ok := client.(*redis.ClusterClient); ok {
		c.ReloadState(context.Background())
	}
}

// unexecuted reports whether err, of run, says that the script was not executed:
// it was not sent, or the server refused it.
func unexecuted(err error) bool {
	var refusal redis.Error
	return err == errNoClient || err == errBusy || errors.As(err, &refusal)
}

type reply struct {
	value any
	err   error
}

// An execution is one of a script, with a reply once it was sent.
type execution struct {
	script *script
	keys   []string
	args   []any
	reply
}

// sendAll has scripts executed in one round trip, each at most once: it names them by
// their digests, and shows them to a server that does not know them. On a Cluster or
// Ring they may be for several servers.
func sendAll(ctx context.Context, client redis.UniversalClient, all ...*execution) {
	process(ctx, client, all, func(s *script) (verb, body string) { return "evalsha", s.sha })
	var unknown []*execution
	for _, e := range all {
		if redis.HasErrorPrefix(e.err, "NOSCRIPT") {
			unknown = append(unknown, e)
		}
	}
	process(ctx, client, unknown, func(s *script) (verb, body string) { return "eval", s.source })
	for _, e := range all {
		if e.err != nil {
			e.err = fmt.Errorf("redisstore: %w", e.err)
		}
	}
}

// process sends a command for each of all, in a pipeline if there are several.
func process(ctx context.Context, client redis.UniversalClient, all []*execution, call func(*script) (verb, body string)) {
	switch len(all) {
	case 0:
	case 1:
		cmd := all[0].command(ctx, call)
		client.Process(ctx, cmd)
		all[0].reply = cmd.reply(nil)
	default:
		pipe, cmds := client.Pipeline(), make([]once, len(all))
		for i, e := range all {
			cmds[i] = e.command(ctx, call)
			pipe.Process(ctx, cmds[i])
		}
		_, err := pipe.Exec(ctx)
		for i, e := range all {
			e.reply = cmds[i].reply(err)
		}
	}
}

func (e *execution) command(ctx context.Context, call func(*script) (verb, body string)) once {
	verb, body := call(e.script)
	all := make([]any, 0, 3+len(e.keys)+len(e.args))
	all = append(all, verb, body, len(e.keys))
	for _, key := range e.keys {
		all = append(all, key)
	}
	return once{redis.NewCmd(ctx, append(all, e.args...)...)}
}

// reply returns that to c, or if there is none the error of its pipeline.
func (c once) reply(of error) reply {
	value, err := c.Result()
	switch {
	case err == redis.Nil:
		err = nil // a reply like any other, and not one of a server that refused
	case err == nil && value == nil:
		err = of
	}
	return reply{value, err}
}

// once is a command that go-redis never sends a second time, alone or in a pipeline,
// unless it was told that another server has the key. By default it sends one four
// times if no answer comes, and each may have been executed.
type once struct{ *redis.Cmd }

func (once) NoRetry() bool { return true }

// isNil reports whether client is nil, or a nil pointer to some client.
func isNil(client redis.UniversalClient) bool {
	if client == nil {
		return true
	}
	v := reflect.ValueOf(client)
	return v.Kind() == reflect.Pointer && v.IsNil()
}
