package redisstore

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
)

// A refusal is an error reply of Redis in clearer words.
type refusal struct {
	text string
	err  error // as Redis says it
}

func (r *refusal) Error() string { return r.text }
func (r *refusal) Unwrap() error { return r.err }

// RedisError makes r a redis.Error: the script was not executed, or has written nothing.
func (r *refusal) RedisError() {}

// missingScript returns the commands of ARGV that the user may not run. Redis 6.2 cannot tell.
var missingScript = newScript(`
local missing = {}
for i = 1, redis.acl_check_cmd and #ARGV or 0 do
	local words = {}
	for word in string.gmatch(ARGV[i], '%S+') do words[#words + 1] = word == 'KEY' and KEYS[1] or word end
	if not redis.acl_check_cmd(unpack(words)) then missing[#missing + 1] = string.lower(words[1]) end
end
return table.concat(missing, ' ')`)

// explain returns err, the error of running s, in clearer words where Redis' own do not say what to do.
func (s *script) explain(ctx context.Context, on sender, keys []string, err error) error {
	switch {
	case err == nil:
	case strings.Contains(err.Error(), "unauthenticated"): // a script has more arguments than Redis reads before AUTH
		return &refusal{"redisstore: NOAUTH Authentication required", err}
	case isNotPermitted(err) && len(s.commands) > 0:
		text := "redisstore: NOPERM the user may not run all commands of the script: " + strings.ToLower(strings.Join(s.names(), " "))
		cmd := sentOnce{redis.NewCmd(ctx, append([]any{"eval", missingScript.source, 1, keys[0]}, s.commands...)...)}
		on.Process(ctx, cmd)
		if missing, _ := cmd.Text(); missing != "" {
			text = "redisstore: NOPERM the user may not run " + missing
		}
		return &refusal{text, err}
	}
	return err
}

// isNotPermitted reports whether err is of a script that ran a command that its user may not run.
func isNotPermitted(err error) bool {
	return strings.Contains(err.Error(), "can't run this command") || // up to Redis 7.0
		strings.Contains(err.Error(), "ACL failure in script")
}

// names returns the names of the commands that s runs.
func (s *script) names() (names []string) {
	for _, command := range s.commands {
		name, _, _ := strings.Cut(command.(string), " ")
		names = append(names, name)
	}
	return names
}

// evicts is an error if Redis may forget counts to make room for others.
func evicts(ctx context.Context, on *redis.Client) error {
	info, err := on.Info(ctx, "memory").Result()
	if err != nil {
		return nil // the user may not ask
	}
	_, rest, _ := strings.Cut(info, "maxmemory_policy:")
	policy, _, _ := strings.Cut(rest, "\r")
	if !strings.HasPrefix(policy, "allkeys") {
		return nil
	}
	return fmt.Errorf(
		"redisstore: Redis' maxmemory-policy is %s: it may forget counts to make room; set noeviction or volatile-ttl", policy)
}

// Check returns what is known to be wrong, or nil, without asking Redis, for a health endpoint: that Redis
// does not answer and why, or that it may forget counts because of its maxmemory-policy (read
// whenever a connection is made, and logged once to slog.Default).
func (s *Store) Check() error {
	c := s.redis()
	if isNil(c.redis) {
		return errNoClient
	}
	var faults []error
	c.each(func(s *server) {
		faults = append(faults, s.Ready(ended))
		if policy := s.policy.Load(); policy != nil {
			faults = append(faults, *policy)
		}
	})
	return errors.Join(faults...)
}

// checkPolicy records whether the server of node evicts counts, and logs it once.
func (s *server) checkPolicy(ctx context.Context, node *redis.Client) {
	ctx, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	err := evicts(ctx, node)
	if err == nil {
		s.policy.Store(nil)
	} else if s.policy.Swap(&err) == nil {
		slog.Warn("rate_limit.store_evicts", "error", err)
	}
}

// LogTo sends what go-redis prints to stderr, such as failed dials, to logger as warnings, the same line once
// in ten seconds. It is for the whole process, so the program must decide: call it once, at its start.
func LogTo(logger *slog.Logger) { redis.SetLogger(&redisLog{logger: logger}) }
