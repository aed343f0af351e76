package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/redis/go-redis/v9"

	"github.com/heedhttp/heed/internal/explain"
	"github.com/heedhttp/heed/quota"
	"github.com/heedhttp/heed/redisstore"
)

const limitsPrefix = "heed:limits:"

// A window is a window of redisstore.Limits.
type window struct {
	field string
	of    func(n int64) quota.Policy
}

var windows = []window{
	{"per_second", quota.PerSecond}, {"per_minute", quota.PerMinute},
	{"per_hour", quota.PerHour}, {"per_day", quota.PerDay},
}

// showLimits prints the limits of a single key.
func (s *session) showLimits(args []string) error {
	return s.inLimits("limits show", args, 1, func(ctx context.Context, l *ownLimits, _ []any) error {
		return l.show(ctx, l.none)
	})
}

// setLimits sets limits of a single key.
func (s *session) setLimits(args []string) error {
	return s.inLimits("limits set", args, math.MaxInt, func(ctx context.Context, l *ownLimits, fields []any) error {
		if err := l.client.HSet(ctx, l.prefix+l.key, fields...).Err(); err != nil {
			return fmt.Errorf("heed: %w", err)
		}
		if err := l.publish(ctx); err != nil { // before show subscribes
			return err
		}
		return l.show(ctx, l.unblocked)
	})
}

// assignments reads WINDOW=COUNT and blocked=1 arguments. It returns fields and values in turn.
func assignments(args []string) (fields []any, err error) {
	for _, a := range args {
		field, n, err := assignment(a)
		if err != nil {
			return nil, fmt.Errorf("heed limits set: %w", err)
		}
		fields = append(fields, field, n)
	}
	return fields, nil
}

// assignment reads per_minute=120 or blocked=1.
func assignment(text string) (field string, n int64, err error) {
	field, value, _ := strings.Cut(text, "=")
	if field == "blocked" {
		if n, err = strconv.ParseInt(value, 10, 64); err != nil || n < 0 || n > 1 {
			return "", 0, fmt.Errorf("blocked is %q: must be 0 or 1", value)
		}
		return field, n, nil
	}
	i := slices.IndexFunc(windows, func(w window) bool { return w.field == field })
	if i < 0 {
		const message = "%q must be like per_minute=120, with per_second, per_minute, per_hour or per_day, or blocked=1"
		return "", 0, fmt.Errorf(message, text)
	}
	if n, err = strconv.ParseInt(value, 10, 64); err != nil || n < 0 {
		return "", 0, fmt.Errorf("%s is %q: must be a whole number", field, value)
	}
	if n > 0 {
		_, err = windows[i].of(n).Compile()
	}
	return field, n, err
}

// unsetLimits removes the limits of a single key.
func (s *session) unsetLimits(args []string) error {
	return s.inLimits("limits unset", args, 1, func(ctx context.Context, l *ownLimits, _ []any) error {
		gone, err := l.client.Unlink(ctx, l.prefix+l.key).Result()
		if err != nil {
			return fmt.Errorf("heed: %w", err)
		}
		if gone == 0 {
			return l.none()
		}
		fmt.Fprintf(l.out, "%s has no limits of its own any more: the limits of the rules apply.\n", printable(l.key))
		return l.publish(ctx)
	})
}

// ownLimits are the limits of one key in Redis.
type ownLimits struct {
	*session
	client      redis.UniversalClient
	prefix, key string
}

// inLimits calls do with the key in args and the assignments after it.
func (s *session) inLimits(
	name string, args []string, most int, do func(context.Context, *ownLimits, []any) error,
) error {
	f := s.flags(name)
	prefix := f.String("prefix", "", "prefix of keys in Redis (default heed:limits:)")
	args, err := s.parse(f, args, min(2, most), most)
	if err != nil {
		return err
	}
	fields, err := assignments(args[1:]) // before Redis is needed
	if err != nil {
		return err
	}
	store, err := redisstore.FromEnv()
	if err != nil {
		return err
	}
	defer store.Client.Close()
	l := &ownLimits{session: s, client: store.Client, prefix: cmp.Or(*prefix, limitsPrefix)}
	l.key = strings.TrimPrefix(strings.TrimPrefix(args[0], l.prefix), "key:") // the form of a Store's key
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	return do(ctx, l, fields)
}

// show prints the limits in Redis, or calls none.
func (l *ownLimits) show(ctx context.Context, none func() error) error {
	limits := &redisstore.Limits{Client: l.client, Prefix: l.prefix, Timeout: patience}
	defer limits.Close()
	policies, err := limits.Limits(ctx, l.key)
	if _, senseless := errors.AsType[*redisstore.LimitsError](err); senseless || err != nil && len(policies) == 0 {
		return err // more than a failure to subscribe
	}
	if len(policies) == 0 {
		return none()
	}
	for _, p := range policies {
		switch p.Quota {
		case quota.Blocked:
			fmt.Fprintf(l.out, "%s: blocked\n", printable(l.key))
		case 0:
			fmt.Fprintf(l.out, "%s: no limit per %s\n", printable(l.key), explain.Brief(p.Window))
		default:
			fmt.Fprintf(l.out, "%s: %d per %s\n", printable(l.key), p.Quota, explain.Brief(p.Window))
		}
	}
	return nil
}

func (l *ownLimits) none() error {
	fmt.Fprintf(l.err, "heed: %s has no limits of its own\n", printable(l.key))
	return errWrong
}

// unblocked reports that blocked=0 has left the key without limits of its own, which is no failure.
func (l *ownLimits) unblocked() error {
	fmt.Fprintf(l.out, "%s: not blocked\n", printable(l.key))
	return nil
}

// publish informs all processes of the change.
func (l *ownLimits) publish(ctx context.Context) error {
	informed, err := l.client.Publish(ctx, l.prefix+"changed", l.key).Result()
	if err != nil {
		return fmt.Errorf("heed: the limits are changed, but no process was informed: %w", err)
	}
	if informed == 0 {
		fmt.Fprintln(l.err, "heed: no process is subscribed: a redisstore.Limits sees the change "+
			"within its TTL, 10 s by default")
		return nil
	}
	fmt.Fprintf(l.out, "Subscribers informed: %d.\n", informed)
	return nil
}
