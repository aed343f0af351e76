package redisstore_test

import (
	"context"
	"net/http"

	"github.com/heedhttp/heed/quota"
	"github.com/heedhttp/heed/redisstore"
	"github.com/redis/go-redis/v9"
)

// All replicas together serve at most 20 requests at a time.
func ExampleStore_Acquire() {
	store := &redisstore.Store{Client: redis.NewClient(&redis.Options{Addr: "localhost:6379"})}
	http.HandleFunc("GET /report", func(w http.ResponseWriter, r *http.Request) {
		hold, decision, err := store.Acquire(r.Context(), "reports", 20, 1)
		if err == nil && !decision.Allowed {
			http.Error(w, "too many reports are being made", http.StatusServiceUnavailable)
			return
		}
		defer hold.Release() // does nothing for a nil hold, as after an error
		// …
	})
}

// A job that should not run twice at the same time stops when its place is lost. This is not a lock: by
// then another process may have started the job.
func ExampleStore_Acquire_lost() {
	store := &redisstore.Store{Client: redis.NewClient(&redis.Options{Addr: "localhost:6379"})}
	run := func(ctx context.Context, job func(context.Context) error) error {
		hold, decision, err := store.Acquire(ctx, "nightly", 1, 1)
		if err != nil || !decision.Allowed {
			return err
		}
		defer hold.Release()
		ctx, cancel := context.WithCancel(ctx)
		defer cancel()
		go watch(ctx, hold, cancel)
		return job(ctx)
	}
	run(context.Background(), func(context.Context) error { return nil })
}

// watch calls giveUp if hold is lost before ctx ends.
func watch(ctx context.Context, hold *quota.Hold, giveUp func()) {
	select {
	case <-hold.Lost():
		giveUp()
	case <-ctx.Done():
	}
}
