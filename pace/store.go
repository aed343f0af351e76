package pace

import (
	"context"
	"errors"
	"fmt"
	"math"
	"time"

	"github.com/heedhttp/heed/internal/remote"
	"github.com/heedhttp/heed/quota"
)

const (
	storeTimeout = time.Second // for a Store that does not say how long its calls take
	reportEvery  = time.Second // at most one error
)

// A prompt Store ends its calls in time by itself. While it cannot be reached, it fails at once.
type prompt interface {
	AnswersWithin() time.Duration
}

// prepareStore finds out how s.Store is to be asked.
func (s *Shared) prepareStore() {
	_, s.inMemory = s.Store.(*quota.Memory)
	s.caller.Name = "the Store"
	s.caller.MaxCalls = math.MaxInt64 // those that wait for an answer are no more than the requests
	if store, ok := s.Store.(prompt); ok && store.AnswersWithin() > 0 {
		s.caller.Timeout = 2 * min(store.AnswersWithin(), time.Hour) // a request may need two calls
		return
	}
	s.caller.Timeout = storeTimeout
	s.caller.Answered = func(err error) bool { return !failed(err) }
	s.caller.Probe = s.probe
	s.caller.Answers() // unless it shows otherwise
}

// ask returns the result of call, which asks the Store. It returns an error when the Timeout of s.caller
// is over, or when ctx ends. If call reserves units after that, they are passed to unused.
func (s *Shared) ask(
	ctx context.Context, call func(context.Context) (reservation, error), unused func(reservation),
) (reservation, error) {
	if s.inMemory {
		return call(ctx)
	}
	r, err := remote.Do(ctx, &s.caller, call, unused)
	if _, ok := errors.AsType[*remote.Error](err); ok && failed(err) { // and not only ctx's
		s.report(err)
	}
	return r, err
}

// probe returns nil if the Store answers. A dry run has a count of its own, which is 0 here, so a refund
// changes nothing.
func (s *Shared) probe(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, storeTimeout)
	defer cancel()
	return s.Store.Settle(ctx, quota.Charge{Key: sharedKey, Limit: s.remote.limits[0], N: -1, DryRun: true})
}

// report passes an error of the Store to Degraded, but not while requests fail one after the other.
func (s *Shared) report(err error) {
	if s.Degraded == nil {
		return
	}
	now := time.Now()
	s.mu.Lock()
	due := now.Sub(s.reported) >= reportEvery
	if due {
		s.reported = now
	}
	s.mu.Unlock()
	if due {
		s.Degraded(fmt.Errorf("pace: Shared.Store: %w", err))
	}
}

// failed reports whether err means that the Store failed, rather than that the charge was
// invalid or too large a debt.
func failed(err error) bool {
	_, invalid := errors.AsType[*quota.ChargeError](err)
	_, cut := errors.AsType[*quota.DebtError](err)
	return err != nil && !invalid && !cut
}
