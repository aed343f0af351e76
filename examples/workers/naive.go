package main

import (
	"context"
	"net/http"
	"time"

	"github.com/heedhttp/heed/examples/internal/stage"
)

// naivePause is how long the naive loop waits before it tries again. Many that
// are in use do not wait at all.
const naivePause = 100 * time.Millisecond

// naive does l in the loop that everybody has written once: if the server does
// not do it, ask again. For at most as long as limit.
func naive(ctx context.Context, l stage.Load, url string, limit time.Duration) stage.Outcome {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	base := l.Connections()
	defer base.CloseIdleConnections()
	once := stage.Get(&http.Client{Transport: base}, url)
	return l.Do(ctx, func(ctx context.Context, job int) (status int, err error) {
		for {
			status, err = once(ctx, job)
			if status == http.StatusOK || !rest(ctx, naivePause) {
				return status, err
			}
		}
	})
}

// rest waits for d, and reports whether ctx lasted.
func rest(ctx context.Context, d time.Duration) bool {
	select {
	case <-time.After(d):
		return true
	case <-ctx.Done():
		return false
	}
}
