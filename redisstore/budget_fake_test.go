package redisstore_test

import (
	"context"
	"sync"
	"testing"

	"github.com/heedhttp/heed/redisstore"
	"github.com/redis/go-redis/v9"
)

const host = "https://api.example.com"

// sent is what one call of a Budget sends.
type sent struct{ earned, refunded, owed, price int64 }

// A budgetFake is a client whose replies the test sets, without a network.
type budgetFake struct {
	*redis.Client

	mu    sync.Mutex // guards what follows
	reply func(context.Context) (any, error)
	calls []sent
	keys  []string
	terms []terms
}

func newBudgetFake(t *testing.T) *budgetFake {
	s := &budgetFake{Client: redis.NewClient(&redis.Options{Addr: "127.0.0.1:1"})}
	s.AddHook(s)
	t.Cleanup(func() { s.Close() })
	return s
}

func (s *budgetFake) answer(granted, balance, processes int64) {
	s.set(func(context.Context) (any, error) { return []any{granted, balance, t0, processes}, nil })
}

func (s *budgetFake) refuse(err error) { s.set(func(context.Context) (any, error) { return nil, err }) }

func (s *budgetFake) fallSilent() {
	s.set(func(ctx context.Context) (any, error) { <-ctx.Done(); return nil, ctx.Err() })
}

func (s *budgetFake) set(reply func(context.Context) (any, error)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.reply = reply
}

// took returns the calls since its last call.
func (s *budgetFake) took() []sent {
	s.mu.Lock()
	defer s.mu.Unlock()
	calls := s.calls
	s.calls = nil
	return calls
}

func (s *budgetFake) DialHook(next redis.DialHook) redis.DialHook { return next }

func (s *budgetFake) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return next
}

func (s *budgetFake) ProcessHook(redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		a := cmd.Args()
		s.mu.Lock()
		if reply := s.reply; len(a) < 12 { // a probe
			s.mu.Unlock()
			_, err := reply(ctx)
			return err
		}
		s.calls = append(s.calls, sent{a[4].(int64), a[5].(int64), a[6].(int64), a[7].(int64)})
		s.keys = append(s.keys, a[3].(string))
		s.terms = append(s.terms, terms{a[8].(int64), a[9].(int64), a[10].(int64)})
		reply := s.reply
		s.mu.Unlock()
		value, err := reply(ctx)
		cmd.(interface{ SetVal(any) }).SetVal(value)
		return err
	}
}

func (s *budgetFake) budget() *redisstore.Budget {
	return &redisstore.Budget{Client: s.Client, Key: "orders-api"}
}

// withdrawn returns how many retries b grants until it refuses one.
func withdrawn(b *redisstore.Budget) (n int) {
	for n < 10_000 && b.Withdraw(context.Background(), host) {
		n++
	}
	return n
}

func deposit(b *redisstore.Budget, n int) {
	for range n {
		b.Deposit(context.Background(), host)
	}
}
