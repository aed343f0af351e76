package pace_test

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"sync"
	"time"

	"golang.org/x/time/rate"

	"github.com/heedhttp/heed"
	"github.com/heedhttp/heed/pace"
	"github.com/heedhttp/heed/quota"
)

// threeGets fetches url three times and prints whether that took at least 100 ms.
func threeGets(pacer heed.Pacer, url string) {
	client := &http.Client{Transport: &heed.Transport{Pacer: pacer}}
	start := time.Now()
	for range 3 {
		resp, err := client.Get(url)
		if err != nil {
			fmt.Println(err)
			return
		}
		resp.Body.Close()
	}
	fmt.Println("at least 100ms:", time.Since(start) >= 100*time.Millisecond)
}

func server() *httptest.Server {
	return httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
}

// 20 requests a second to each host, one at a time.
func ExamplePerHost() {
	srv := server()
	defer srv.Close()
	threeGets(pace.PerHost(20, 1), srv.URL)
	// Output: at least 100ms: true
}

// A limit for each account instead of each host.
func ExampleKeyed() {
	pacer := &pace.Keyed{
		Limit: rate.Every(50 * time.Millisecond),
		Burst: 1,
		Key:   func(req *http.Request) string { return req.Header.Get("X-Account") },
	}
	srv := server()
	defer srv.Close()
	threeGets(pacer, srv.URL)
	// Output: at least 100ms: true
}

// One limiter for all hosts, which other code may use, too.
func ExampleWith() {
	limiter := rate.NewLimiter(20, 1)
	srv := server()
	defer srv.Close()
	threeGets(pace.With(limiter), srv.URL)
	// Output: at least 100ms: true
}

// The client follows what the server announces: here 20 requests for the rest of a
// second.
func ExampleAdvertised() {
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("RateLimit-Remaining", "19")
		w.Header().Set("RateLimit-Reset", "1")
	}))
	defer srv.Close()
	threeGets(&pace.Advertised{}, srv.URL)
	// Output: at least 100ms: true
}

// A batch that serves customers fairly and reports its progress.
func ExampleQueue() {
	pacer := &pace.Queue{
		Pacer:    pace.PerHost(20, 1),
		Max:      100,
		Key:      func(req *http.Request) string { return req.Header.Get("X-Customer") },
		Progress: func(p pace.Progress) { /* draw p.Done */ },
	}
	srv := server()
	defer srv.Close()
	threeGets(pacer, srv.URL)
	// Output: at least 100ms: true
}

// The pacer discovers an unknown limit, here within bounds.
func ExampleAdaptive() {
	pacer := &pace.Adaptive{Min: 1, Max: 20}
	srv := server()
	defer srv.Close()
	threeGets(pacer, srv.URL)
	// Output: at least 100ms: true
}

// Ten a second to each host, and a hundred a minute in total.
func ExampleEach() {
	pacer := pace.Each(
		pace.With(rate.NewLimiter(rate.Every(time.Minute/100), 100)),
		pace.PerHost(20, 1),
	)
	srv := server()
	defer srv.Close()
	threeGets(pacer, srv.URL)
	// Output: at least 100ms: true
}

// One limit for all users of a store. With a redisstore.Store instead of the
// quota.Memory, several processes share it.
func ExampleShared() {
	pacer := &pace.Shared{
		Store:    &quota.Memory{},
		Policies: []quota.Policy{{Quota: 20, Window: time.Second, Burst: 1}},
	}
	srv := server()
	defer srv.Close()
	threeGets(pacer, srv.URL)
	// Output: at least 100ms: true
}

// Requests and tokens are limited by the minute. A request gives the pacers an upper
// bound of its tokens, and the response contains the true number.
func ExampleWithCost() {
	pacer := pace.Each(
		&pace.Shared{
			Store:    &quota.Memory{},
			Policies: []quota.Policy{quota.PerMinute(500)},
		},
		&pace.Shared{
			Store:    &quota.Memory{},
			Policies: []quota.Policy{quota.PerMinute(200_000)},
			Unit:     "tokens",
			Settle:   pace.SettleHeader("X-Tokens-Used"),
		},
	)
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("X-Tokens-Used", "900")
	}))
	defer srv.Close()
	client := &http.Client{Transport: &heed.Transport{Pacer: pacer}}

	ctx := pace.WithCost(context.Background(), "tokens", 1500)
	req, err := http.NewRequestWithContext(ctx, "POST", srv.URL, nil)
	if err != nil {
		fmt.Println(err)
		return
	}
	resp, err := client.Do(req)
	if err != nil {
		fmt.Println(err)
		return
	}
	resp.Body.Close()
	fmt.Println(
		pace.Cost(req, "tokens"), "tokens were taken, and all but", resp.Header.Get("X-Tokens-Used"),
		"given back",
	)
	// Output: 1500 tokens were taken, and all but 900 given back
}

// Check finds invalid limits when the program starts.
func ExampleShared_Check() {
	pacer := &pace.Shared{
		Store:     &quota.Memory{},
		Policies:  []quota.Policy{{Quota: 20, Calendar: quota.Day, Algorithm: quota.FixedWindow}},
		Processes: 50,
	}
	fmt.Println(pacer.Check())
	// Output: pace: Shared.Policies[0]: "20/day" cannot be shared by 50 Processes: its Quota must be at least 50
}

// Ten workers, and no more than four requests in flight until their bodies are closed.
func ExampleInFlight() {
	pacer := &pace.InFlight{Limit: 4} // or none: then it is learnt
	srv := server()
	defer srv.Close()
	client := &http.Client{Transport: &heed.Transport{Pacer: pacer}}
	var calls sync.WaitGroup
	for range 10 {
		calls.Go(func() {
			if resp, err := client.Get(srv.URL); err == nil {
				resp.Body.Close()
			}
		})
	}
	calls.Wait()
	used, limit := pacer.Places(request(context.Background(), srv.URL))
	fmt.Println(used, "of", limit, "places are used")
	// Output: 0 of 4 places are used
}
