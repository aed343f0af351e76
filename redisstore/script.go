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

// run returns what s replies. The script is executed at most once: nothing is
// sent again unless the server said NOSCRIPT. After an error it is unknown whether
// s was executed, but see unexecuted.
//
// It takes no longer than timeout, nor than ctx. go-redis heeds neither while it
// reads, unless Options.ContextTimeoutEnabled is set, and a Cluster has many
// timeouts of its own; Client.WithTimeout would drop the client's hooks. So the
// call is left behind when its time is over, until the client gives it up as
// well; keys and args belong to it for good.
func (c *caller) run(ctx context.Context, client redis.UniversalClient, timeout time.Duration, s *script, keys []string, args ...any) (any, error) {
	if isNil(client) {
		return nil, errNoClient
	}
	if c.calls.Add(1) > maxCalls {
		c.calls.Add(-1)
		return nil, errBusy
	}
	within, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	replies := make(chan reply, 1)
	go func() {
		defer c.calls.Add(-1)
		replies <- s.send(within, client, keys, args)
	}()
	select {
	case r := <-replies:
		return r.value, r.err
	case <-within.Done():
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		return nil, fmt.Errorf("redisstore: no answer within %v: %w", timeout, within.Err())
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

// send names s by its digest, and shows it to a server that does not know it.
func (s *script) send(ctx context.Context, client redis.UniversalClient, keys []string, args []any) reply {
	r := process(ctx, client, "evalsha", s.sha, keys, args)
	if redis.HasErrorPrefix(r.err, "NOSCRIPT") {
		r = process(ctx, client, "eval", s.source, keys, args)
	}
	if r.err != nil {
		r.err = fmt.Errorf("redisstore: %w", r.err)
	}
	return r
}

func process(ctx context.Context, client redis.UniversalClient, verb, body string, keys []string, args []any) reply {
	all := make([]any, 0, 3+len(keys)+len(args))
	all = append(all, verb, body, len(keys))
	for _, key := range keys {
		all = append(all, key)
	}
	cmd := once{redis.NewCmd(ctx, append(all, args...)...)}
	client.Process(ctx, cmd)
	value, err := cmd.Result()
	if err == redis.Nil {
		err = nil // a reply like any other, and not one of a server that refused
	}
	return reply{value, err}
}

// once is a command that go-redis never sends a second time. By default it
// sends one four times if no answer comes, and each may have been executed.
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
