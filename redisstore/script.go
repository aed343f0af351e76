package redisstore

import (
	"context"
	"crypto/sha1"
	"encoding/hex"
	"errors"
	"fmt"

	"github.com/heedhttp/heed/internal/remote"
	"github.com/redis/go-redis/v9"
)

// errReply means that a reply is not one that these scripts make.
var errReply = errors.New("redisstore: unexpected reply")

// A script is a Lua script, which a server knows by the SHA-1 of its source.
type script struct{ source, sha string }

func newScript(source string) *script {
	sum := sha1.Sum([]byte(source))
	return &script{source: source, sha: hex.EncodeToString(sum[:])}
}

// An execution is one run of a script. When it was sent, it has the reply or an error.
type execution struct {
	script *script
	keys   []string
	args   []any

	value any
	err   error
}

// A sender is a client or one of its connections.
type sender interface {
	Process(ctx context.Context, cmd redis.Cmder) error
	Pipeline() redis.Pipeliner
}

func (e *execution) send(ctx context.Context, on sender) {
	sendAll(ctx, on, []*execution{e})
}

// sendAll executes scripts in one round trip, each at most once. It calls them by their digests, and
// sends the source to a server that does not know them. On a Cluster or Ring they may go to several
// servers.
func sendAll(ctx context.Context, on sender, all []*execution) {
	process(ctx, on, all, "evalsha")
	var unknown []*execution
	for _, e := range all {
		if redis.HasErrorPrefix(e.err, "NOSCRIPT") {
			unknown = append(unknown, e)
		}
	}
	process(ctx, on, unknown, "eval")
	for _, e := range all {
		if e.err == nil {
			continue
		}
		e.err = fmt.Errorf("redisstore: %w", e.err)
		if errors.Is(e.err, redis.ErrPoolExhausted) || errors.Is(e.err, redis.ErrPoolTimeout) {
			// All connections of the client are in use, which says nothing about the server.
			e.err = &remote.Error{Err: e.err, Late: true, Unsent: true}
		}
	}
}

// process sends a command for each of all, in a pipeline if there are several.
func process(ctx context.Context, on sender, all []*execution, verb string) {
	switch len(all) {
	case 0:
	case 1:
		cmd := all[0].command(ctx, verb)
		on.Process(ctx, cmd)
		all[0].setReply(cmd, nil)
	default:
		pipe, cmds := on.Pipeline(), make([]sentOnce, len(all))
		for i, e := range all {
			cmds[i] = e.command(ctx, verb)
			pipe.Process(ctx, cmds[i])
		}
		_, err := pipe.Exec(ctx)
		for i, e := range all {
			e.setReply(cmds[i], err)
		}
	}
}

func (e *execution) command(ctx context.Context, verb string) sentOnce {
	args := make([]any, 0, 3+len(e.keys)+len(e.args))
	if verb == "eval" {
		args = append(args, verb, e.script.source, len(e.keys))
	} else {
		args = append(args, verb, e.script.sha, len(e.keys))
	}
	for _, key := range e.keys {
		args = append(args, key)
	}
	return sentOnce{redis.NewCmd(ctx, append(args, e.args...)...)}
}

// setReply stores the reply to cmd, or the error of the pipeline if there is none.
func (e *execution) setReply(cmd sentOnce, pipeline error) {
	e.value, e.err = cmd.Result()
	switch {
	case e.err == redis.Nil:
		e.err = nil // nil is a valid reply
	case e.err == nil && e.value == nil:
		e.err = pipeline
	}
}

// sentOnce is a command that go-redis does not retry, alone or in a pipeline, except when another server
// turns out to have the key. By default it sends a command up to four times if there is no answer, and
// each may be executed.
type sentOnce struct{ *redis.Cmd }

func (sentOnce) NoRetry() bool { return true }

// isAnswer reports whether err is an error reply of a server.
func isAnswer(err error) bool {
	_, refused := errors.AsType[redis.Error](err)
	return refused
}

// admits reports whether err is the reply of a server that accepts this client. Others reject a script
// with many arguments as a protocol error.
func admits(err error) bool {
	return isAnswer(err) && !redis.HasErrorPrefix(err, "NOAUTH") && !redis.HasErrorPrefix(err, "WRONGPASS")
}
