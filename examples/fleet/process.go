package main

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/heedhttp/heed"
	"github.com/heedhttp/heed/examples/internal/stage"
	"github.com/heedhttp/heed/pace"
	"github.com/heedhttp/heed/quota"
	"github.com/heedhttp/heed/redisstore"
)

// An order is what one of the processes is to do.
type order struct {
	stage.Load
	URL, Redis string
	Name       string // of what is shared, in Redis
}

// plenty is more jobs than a process can do. Those of process i begin after i·plenty.
const plenty = 1_000_000

func orders(url, redis string, lasting time.Duration) (all []order) {
	name := fmt.Sprintf("heed:fleet:%d:%d:", os.Getpid(), time.Now().UnixNano())
	for i := range processes {
		all = append(all, order{stage.Load{Workers: workers, Jobs: plenty, First: i * plenty, For: lasting}, url, redis, name})
	}
	return all
}

// Obey is what such a process does. Whatever it cannot share is counted.
func (o order) Obey(ctx context.Context) stage.Outcome {
	client := redis.NewClient(&redis.Options{Addr: o.Redis})
	defer client.Close()
	board := &redisstore.Board{Client: client, Prefix: o.Name}
	defer board.Close()
	base := o.Connections()
	defer base.CloseIdleConnections()
	var degraded atomic.Int64
	count := func(error) { degraded.Add(1) }

	out := o.Do(ctx, stage.Get(&http.Client{Transport: &heed.Transport{
		Base:   base,
		Board:  board,
		Budget: &redisstore.Budget{Client: client, Key: o.Name, Degraded: count},
		Pacer: &pace.Shared{
			Store:     &redisstore.Store{Client: client, Prefix: o.Name},
			Policies:  []quota.Policy{{Quota: limit, Window: time.Second, Burst: 1}},
			Processes: processes,
			Degraded:  count,
		},
		Trace: &heed.Trace{Degraded: count},
	}}, o.URL))
	out.Degraded = int(degraded.Load())
	return out
}
