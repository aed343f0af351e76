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

// With returns a Pacer that uses l, whatever the host of a request:
//
//	limiter := rate.NewLimiter(10, 1) // 10 a second
//	client := &http.Client{Transport: &heed.Transport{Pacer: pace.With(limiter)}}
//
// Other code may use l at the same time, and may change its limit and burst: waiting
// requests notice within a second.
//
// Requests wait in one line, and only the first has a reservation of l. So to others that
// wait for l, all requests together count as one waiter. A second Pacer with the same l
// has its own line.
//
// If l is nil, or its limit is not a number, nothing is admitted and Wait returns an
// error. If a request can never be admitted, because l's burst is zero or its limit is
// zero and the burst used up, the Wait of the *heed.OverdueError is rate.InfDuration.
//
// The result is a heed.BoundedPacer.
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

// key returns the key in errors.
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

func (w *with) behind(_ *limit, ahead int64, now time.Time) time.Duration {
	if w.check() != nil {
		return 0
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.line.behindLocked(ahead, now)
}

func (w *with) join(ctx context.Context, key string, most time.Duration) (*waiter, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.line.joinLocked(ctx, key, most, time.Now())
}

func (w *with) check() error {
	limiter := w.line.bucket.limiter
	if limiter == nil {
		return errors.New("pace: the limiter given to With is nil")
	}
	if math.IsNaN(float64(limiter.Limit())) {
		return errors.New("pace: the limit of the limiter given to With is not a number")
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
