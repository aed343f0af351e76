package redisstore_test

import (
	"context"
	"fmt"
	"net/http"

	"github.com/heedhttp/heed"
	"github.com/heedhttp/heed/redisstore"
	"github.com/redis/go-redis/v9"
)

// All processes with this Key share one budget of retries.
func ExampleBudget() {
	rdb := redis.NewClient(&redis.Options{Addr: "localhost:6379"})
	client := &http.Client{Transport: &heed.Transport{
		Budget: &redisstore.Budget{Client: rdb, Key: "orders-api"},
	}}
	defer client.CloseIdleConnections()
}

// Without Redis, a process still has the retries that its own requests earn, and one more for each
// TTL.
func ExampleBudget_withoutRedis() {
	ctx := context.Background()
	budget := &redisstore.Budget{Key: "orders-api"}
	for range 20 {
		budget.Deposit(ctx, "https://api.example.com")
	}
	for range 4 {
		fmt.Println(budget.Withdraw(ctx, "https://api.example.com"))
	}
	// Output:
	// true
	// true
	// true
	// false
}
