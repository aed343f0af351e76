package main

import (
	"context"
	"fmt"
	"os"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/heedhttp/heed"
	"github.com/heedhttp/heed/examples/internal/stage"
	"github.com/heedhttp/heed/redisstore"
)

// An order is what one of several processes is to do.
type order struct {
	stage.Load
	URL       string
	Redis     string
	Name      string // of what is shared, in Redis
	Limit     int64
	Processes int
}

// processes does the load of o in several processes, which share a bucket and a
// budget.
func processes(ctx context.Context, o *options, url string) (stage.Outcome, error) {
	name := fmt.Sprintf("heed:workers:%d:%d", os.Getpid(), time.Now().UnixNano())
	orders := make([]order, o.processes)
	for i := range orders {
		orders[i] = order{o.Share(i, o.processes), url, o.redis, name, o.limit, o.processes}
	}
	return stage.Processes(ctx, orders)
}

// Obey is what such a process does.
func (o order) Obey(ctx context.Context) stage.Outcome {
	client := redis.NewClient(&redis.Options{Addr: o.Redis})
	defer client.Close()
	var degraded atomic.Int64
	count := func(error) { degraded.Add(1) }

	pacer := bucket(&redisstore.Store{Client: client, Prefix: o.Name + ":"}, o.Limit)
	pacer.Processes, pacer.Degraded = o.Processes, count
	budget := &redisstore.Budget{Client: client, Key: o.Name, Degraded: count}
	out := through(ctx, &heed.Transport{Pacer: pacer, Budget: budget}, o.Load, o.URL)
	out.Degraded = int(degraded.Load())
	return out
}
