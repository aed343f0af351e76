// Package redisstore shares rate limits, retry budgets and cool-downs among processes through Redis.
//
//	rdb := redis.NewClient(&redis.Options{Addr: "localhost:6379"})
//	store := &redisstore.Store{Client: rdb} // or redisstore.FromEnv()
//	if err := store.Ping(ctx); err != nil {
//		log.Print(err) // "connection refused", "NOAUTH", …
//	}
//
//	// A server: all replicas count together.
//	limiter, err := serverside.New(serverside.Config{
//		Store: store,
//		Rules: []serverside.Rule{{Name: "api", Pattern: "/v1/", Policies: []quota.Policy{quota.PerMinute(60)}}},
//	})
//
//	// A client: all workers share one rate, one retry budget and the servers' cool-downs.
//	client := &http.Client{Transport: &heed.Transport{
//		Pacer:  &pace.Shared{Store: store, Policies: []quota.Policy{quota.PerSecond(50)}},
//		Budget: &redisstore.Budget{Client: rdb, Key: "orders-api"},
//		Board:  &redisstore.Board{Client: rdb},
//	}}
//
// A [Lease] makes a Store faster for busy keys below their limits: it takes units ahead, so that most
// decisions need no round trip. [Store.Acquire] limits requests in flight. [Limits] reads the limits of
// single keys from Redis, and a [Document] a file of rules.
//
// # When Redis does not answer
//
// No call waits longer than its own Timeout, 50 ms by default, whatever the timeouts of the
// client are. After a call without an answer, further calls fail at once, and a probe in the
// background finds out when Redis answers again. With a Store, the caller decides what to do
// meanwhile; a Budget and a Board go on with what they know.
//
// Give Redis enough memory, and a maxmemory-policy of noeviction or volatile-ttl: evicting a
// bucket gives its quota away a second time. docs/redis.md has the permissions and settings.
//
// # Scripts
//
// Each decision is one Lua script and one round trip. A script reads Redis' clock once, so the
// clocks of the processes need not agree. It computes with integers that a Lua number holds
// exactly, as package quota describes. What it writes
// comes last, so that a script that fails has written nothing. (A user who may write the IDs of charges, but
// not the counts, leaves an ID without its charge.) All that a script writes expires.
//
// A script is called by its digest, and its source is sent to a server that does not know it. A
// script that is refused has done nothing. If it was a batch of several calls, each is sent again
// by itself, because one call may be the reason. Nothing else is ever sent twice, unlike in
// go-redis by default: a script that got no answer may have been executed.
package redisstore
