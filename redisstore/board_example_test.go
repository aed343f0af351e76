package redisstore_test

import (
	"net/http"

	"github.com/heedhttp/heed"
	"github.com/heedhttp/heed/redisstore"
	"github.com/redis/go-redis/v9"
)

// When a server asks one process to wait, all processes with this Redis wait.
func ExampleBoard() {
	rdb := redis.NewClient(&redis.Options{Addr: "localhost:6379"})
	board := &redisstore.Board{Client: rdb}
	defer board.Close()
	client := &http.Client{Transport: &heed.Transport{Board: board}}
	defer client.CloseIdleConnections()
}
