package pace

import (
	"context"
	"errors"
	"math"
	"net/http"
	"sync"
	"time"

	"golang.org/x/time/rate"

	"github.com/heedhttp/heed"
)

// With lets requests go as l allows, whatever their host. Others may use l at
// the same time, for requests or anything else, and its limit and burst may be
// changed: those who wait notice within a second.
//
// The requests wait in one line, whose first has a reservation of l; so to
// others who wait for l, all of them together count as one. A second pacer of
// the same l has a line of its own.
//
// If l is nil, or its limit not a number, no request is let go, and Wait says
// why. If no turn can ever come, since l's burst is zero, or its limit is zero
// and the burst spent, the *heed.OverdueError's Wait is rate.InfDuration.
//
// What With returns is a heed.BoundedPacer.
func With(l *rate.Limiter) heed.Pacer {
	w := &with{}
	w.line.start(&w.mu, l, false)
	return w
}

type with struct {
	mu   sync.Mutex
	line bucketLine
}

var _ heed.BoundedPacer = (*with)(nil)

// key is that of With's errors.
func (w *with) key(*http.Request) string { return "the limiter" }

func (w *with) Wait(req *http.Request) error { return w.WaitAtMost(req, forever) }

func (w *with) WaitAtMost(req *http.Request, most time.Duration) error {
	ctx := req.Context()
	if ctx.Err() != nil {
		return ended(ctx)
	}
	if err := w.check(); err != nil {
		return err
	}
	waiter, err := w.join(ctx, w.key(req), most)
	if waiter == nil {
		return err
	}
	return waiter.wait(ctx, nil)
}

func (w *with) join(ctx context.Context, key string, most time.Duration) (*waiter, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.line.joinLocked(ctx, key, most, time.Now())
}

func (w *with) check() error {
	limiter := w.line.bucket.limiter
	if limiter == nil {
		return errors.New("pace: With was given a nil limiter")
	}
	if math.IsNaN(float64(limiter.Limit())) {
		return errors.New("pace: the limit of With's limiter is not a number")
	}
	return nil
}

func (w *with) Observe(a heed.Attempt) {
	if a.Err != heed.ErrNotSent || w.line.bucket.limiter == nil {
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.line.giveBackLocked(time.Now())
}
