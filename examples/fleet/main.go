// Command fleet is one of several processes that share a pace, a retry budget and cool-downs
// through one Redis. Start it three times, against examples/server:
//
//	go run ./examples/server
//	go run ./examples/fleet
//
// Together they send a request every two seconds. Spend the rest of the limit with curl, and
// the first of them that is refused stops all three until the server has capacity again.
// -redis and -url say where Redis and the server are.
package main

import (
	"flag"
	"fmt"
	"log"
	"net/http"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/heedhttp/heed"
	"github.com/heedhttp/heed/pace"
	"github.com/heedhttp/heed/quota"
	"github.com/heedhttp/heed/redisstore"
)

// newTransport returns a Transport that shares all it knows with others on the same Redis.
func newTransport(rdb redis.UniversalClient, policy quota.Policy) *heed.Transport {
	degraded := func(err error) { log.Print("Redis does not answer, using a share: ", err) }
	return &heed.Transport{
		Pacer: &pace.Shared{
			Store:     &redisstore.Store{Client: rdb, Prefix: "orders:"},
			Policies:  []quota.Policy{policy},
			Processes: 3, // each has a third of the policy while Redis is down
			Degraded:  degraded,
		},
		Budget: &redisstore.Budget{Client: rdb, Key: "orders", Degraded: degraded},
		Board:  &redisstore.Board{Client: rdb, Prefix: "orders:"},
		Trace:  heed.LogTrace(nil),
	}
}

func main() {
	address := flag.String("redis", "localhost:6379", "`address` of Redis")
	url := flag.String("url", "http://localhost:8080/v1/hello", "`URL` to request")
	flag.Parse()
	policy := quota.Policy{Quota: 30, Window: time.Minute, Burst: 1}
	client := &http.Client{Transport: newTransport(redis.NewClient(&redis.Options{Addr: *address}), policy)}
	for {
		resp, err := client.Get(*url)
		if err != nil {
			log.Fatal(err)
		}
		resp.Body.Close()
		fmt.Println(time.Now().Format(time.TimeOnly), resp.Status)
	}
}
