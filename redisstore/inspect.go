package redisstore

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/heedhttp/heed/quota"
)

var (
	inspectScript = newScript("return redis.call('HGETALL', KEYS[1])")
	resetScript   = newScript("return redis.call('UNLINK', KEYS[1], KEYS[2])")
)

// Inspect implements quota.Inspector. It returns what is stored of key.
func (s *Store) Inspect(ctx context.Context, key string) ([]quota.State, error) {
	reply, err := s.evaluate(ctx, inspectScript, []string{s.prefix() + key})
	if err != nil {
		return nil, err
	}
	list, ok := reply.([]any)
	if !ok || len(list)%2 != 0 {
		return nil, fmt.Errorf("%w %.60q", errReply, fmt.Sprint(reply))
	}
	var states []quota.State
	for ; len(list) > 0; list = list[2:] {
		field, _ := list[0].(string)
		value, _ := list[1].(string)
		states = s.addState(states, field, value)
	}
	slices.SortFunc(states, compareStates)
	return states, nil
}

// addState appends the state in a field to states, if it can be read.
func (s *Store) addState(states []quota.State, field, value string) []quota.State {
	bucket, ok := decode(value)
	if !ok {
		s.corrupt.Add(1)
		return states
	}
	name, dry := strings.CutSuffix(field, dryRun)
	return append(states, quota.State{Name: name, DryRun: dry, Bucket: bucket})
}

func compareStates(a, b quota.State) int {
	return cmp.Or(cmp.Compare(a.Name, b.Name), dryRuns(a)-dryRuns(b))
}

func dryRuns(s quota.State) int {
	if s.DryRun {
		return 1
	}
	return 0
}

// Reset implements quota.Inspector. It forgets all that is stored of key. Other processes may still
// deny the key for a second; see AlwaysAsk.
func (s *Store) Reset(ctx context.Context, key string) error {
	_, err := s.evaluate(ctx, resetScript, []string{s.prefix() + key, idSetOf(s.prefix(), key)})
	s.denials.forget(key)
	return err
}
