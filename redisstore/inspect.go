package redisstore

import (
	"cmp"
	"context"
	"fmt"
	"slices"

	"github.com/heedhttp/heed/quota"
)

var (
	inspectScript = newScript("return redis.call('GET', KEYS[1])")
	resetScript   = newScript("return redis.call('UNLINK', KEYS[1], KEYS[2])")
)

// Inspect implements quota.Inspector. It returns what is stored of key.
func (s *Store) Inspect(ctx context.Context, key string) ([]quota.State, error) {
	reply, err := s.evaluate(ctx, inspectScript, []string{s.prefix() + key})
	if err != nil {
		return nil, err
	}
	value, ok := reply.(string)
	if !ok && reply != nil {
		return nil, fmt.Errorf("%w %.60q", errReply, fmt.Sprint(reply))
	}
	return s.states(value), nil
}

// states returns the states in the value of a Key.
func (s *Store) states(value string) []quota.State {
	states, corrupt := decodeValue(value)
	s.corrupt.Add(corrupt)
	slices.SortFunc(states, compareStates)
	return states
}

func compareStates(a, b quota.State) int {
	return cmp.Or(cmp.Compare(a.Name, b.Name), dryRuns(a)-dryRuns(b), cmp.Compare(a.Shape, b.Shape))
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
