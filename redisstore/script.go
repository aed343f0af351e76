package redisstore

import (
	"context"
	"crypto/sha1"
	"encoding/hex"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/heedhttp/heed/internal/remote"
	"github.com/redis/go-redis/v9"
)

const (
	askAgainAfter = 5 * time.Millisecond   // for keys that are on their way to another server of a Cluster
	askAgainFor   = 500 * time.Millisecond // at most
)

// errReply means that a reply is not one that these scripts make.
var errReply = errors.New("redisstore: unexpected reply")

// A script is a Lua script, which a server knows by the SHA-1 of its source.
type script struct {
	source, sha string
	commands    []any // examples of what it runs, such as "SET KEY 1": strings, to name what a user may not
}

func newScript(source string, commands ...any) *script {
	sum := sha1.Sum([]byte(source))
	return &script{source: source, sha: hex.EncodeToString(sum[:]), commands: commands}
}

// command returns a command that runs s by its digest.
func (s *script) command(ctx context.Context, keys []string, args []any) sentOnce {
	all := make([]any, 3, 3+len(keys)+len(args))
	all[0], all[1], all[2] = "evalsha", s.sha, len(keys)
	for _, key := range keys {
		all = append(all, key)
	}
	return sentOnce{redis.NewCmd(ctx, append(all, args...)...)}
}

// bySource returns cmd with the source instead of the digest.
func (s *script) bySource(ctx context.Context, cmd sentOnce) sentOnce {
	args := append([]any{"eval", s.source}, cmd.Args()[2:]...)
	return sentOnce{redis.NewCmd(ctx, args...)}
}

// sentOnce is a command that go-redis does not retry, alone or in a pipeline, except when another server
// turns out to have the key. By default it sends a command up to four times if there is no answer, and
// each may be executed.
type sentOnce struct{ *redis.Cmd }

func (sentOnce) NoRetry() bool { return true }

// A sender is a client or one of its connections.
type sender interface {
	Process(ctx context.Context, cmd redis.Cmder) error
	Pipeline() redis.Pipeliner
}

// run runs s once and returns its reply.
func (s *script) run(ctx context.Context, on sender, keys []string, args ...any) (any, error) {
	cmds := []sentOnce{s.command(ctx, keys, args)}
	s.sendAll(ctx, on, cmds)
	value, err := reply(cmds[0])
	return value, s.explain(ctx, on, keys, err)
}

// sendAll sends commands of s in one round trip; on a Cluster or Ring they may go to several servers. Each
// is executed at most once: only those that were not are sent again, with the source to a server that
// does not know s, and later if their keys are on their way to another server. cmds then has the
// commands that were sent last.
func (s *script) sendAll(ctx context.Context, on sender, cmds []sentOnce) {
	process(ctx, on, cmds)
	again := func(cmd sentOnce) sentOnce { return sentOnce{redis.NewCmd(ctx, cmd.Args()...)} }
	if len(cmds) > 1 { // a pipeline does not follow them
		resend(ctx, on, cmds, "MOVED", again)
		resend(ctx, on, cmds, "ASK", again)
	}
	resend(ctx, on, cmds, "NOSCRIPT", func(cmd sentOnce) sentOnce { return s.bySource(ctx, cmd) })
	for end := time.Now().Add(askAgainFor); time.Now().Before(end); {
		moving := slices.ContainsFunc(cmds, func(cmd sentOnce) bool { return redis.HasErrorPrefix(cmd.Err(), "TRYAGAIN") })
		if !moving || ctx.Err() != nil {
			return
		}
		sleep(ctx, askAgainAfter)
		resend(ctx, on, cmds, "TRYAGAIN", again)
	}
}

// resend sends the commands again, one by one, that were refused with an error of this prefix.
func resend(ctx context.Context, on sender, cmds []sentOnce, prefix string, again func(sentOnce) sentOnce) {
	for i, cmd := range cmds {
		if redis.HasErrorPrefix(cmd.Err(), prefix) {
			cmds[i] = again(cmd)
			on.Process(ctx, cmds[i])
		}
	}
}

// process sends commands, in a pipeline if there are several.
func process(ctx context.Context, on sender, cmds []sentOnce) {
	switch len(cmds) {
	case 0:
	case 1:
		on.Process(ctx, cmds[0])
	default:
		pipe := on.Pipeline()
		for _, cmd := range cmds {
			pipe.Process(ctx, cmd)
		}
		_, err := pipe.Exec(ctx)
		for _, cmd := range cmds {
			cmd.setMissing(err)
		}
	}
}

// setMissing makes err, that of a pipeline, the command's if it has no answer: the pipeline ended before it.
func (cmd sentOnce) setMissing(err error) {
	if value, failed := cmd.Result(); value == nil && failed == nil && err != nil {
		cmd.SetErr(err)
	}
}

// reply returns the reply to a command, which may be nil.
func reply(cmd sentOnce) (any, error) {
	value, err := cmd.Result()
	switch {
	case err == nil || err == redis.Nil:
		return value, nil
	case errors.Is(err, redis.ErrPoolExhausted) || errors.Is(err, redis.ErrPoolTimeout):
		// All connections of the client are in use, which says nothing about the server.
		return nil, &remote.Error{Err: fmt.Errorf("redisstore: %w", err), Late: true, Unsent: true}
	}
	return nil, fmt.Errorf("redisstore: %w", err)
}

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
