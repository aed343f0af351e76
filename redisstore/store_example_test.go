package redisstore_test

import (
	"context"
	"fmt"
	"time"

	"github.com/heedhttp/heed/quota"
	"github.com/heedhttp/heed/redisstore"
	"github.com/redis/go-redis/v9"
)

// Processes with the same Redis and Prefix count together.
func ExampleStore() {
	store := &redisstore.Store{Client: redis.NewClient(&redis.Options{Addr: "localhost:6379"})}
	second, err := quota.PerSecond(10).Compile()
	if err != nil {
		panic(err)
	}
	day, err := quota.PerDay(10_000).Compile()
	if err != nil {
		panic(err)
	}

	ds, err := store.Take(context.Background(), nil,
		quota.Charge{Key: "alice", Limit: second},
		quota.Charge{Key: "alice", Limit: day})
	if err != nil {
		fmt.Println("Redis did not answer:", err) // admit the request or not: it is your choice
		return
	}
	for _, d := range ds {
		if !d.Allowed {
			fmt.Println("again in", d.RetryAfter)
		}
	}
}

// Workers in all processes wait for the units of one limit.
func ExampleStore_Reserve() {
	store := &redisstore.Store{Client: redis.NewClient(&redis.Options{Addr: "localhost:6379"})}
	limit, err := quota.PerSecond(50).Compile()
	if err != nil {
		panic(err)
	}
	wait, at, ok, err := store.Reserve(context.Background(), time.Minute, quota.Charge{Key: "orders-api", Limit: limit})
	if err != nil || !ok {
		fmt.Println("not within a minute:", wait, err)
		return
	}
	time.Sleep(wait)
	// If the unit is not needed after all, give it back:
	store.Settle(context.Background(), quota.Charge{Key: "orders-api", Limit: limit, N: -1, At: at})
}
