package ratelimit_test

import (
	"fmt"
	"net/http"
	"time"

	"github.com/heedhttp/heed/ratelimit"
)

func ExampleWait() {
	h := http.Header{}
	h.Set("Date", "Fri, 20 Nov 2026 20:30:00 GMT") // the server's clock is an hour fast
	h.Set("Retry-After", "Fri, 20 Nov 2026 20:30:17 GMT")

	received := time.Date(2026, 11, 20, 19, 30, 0, 0, time.UTC)
	fmt.Println(ratelimit.Wait(http.StatusTooManyRequests, h, received))
	// Output: 17s true
}

// A malformed value is not a wait of zero: the server asked for nothing, and the client
// decides.
func ExampleWait_malformed() {
	h := http.Header{}
	h.Set("Retry-After", "NaN")

	fmt.Println(ratelimit.Wait(http.StatusTooManyRequests, h, time.Now()))
	// Output: 0s false
}

func ExampleSet() {
	limit := ratelimit.Limit{
		Quota:     100,
		Window:    time.Minute,
		Remaining: 42,
		Next:      200 * time.Millisecond,
		Reset:     34800 * time.Millisecond,
		At:        time.Unix(1795203000, 0),
	}
	h := http.Header{}
	ratelimit.Set(h, ratelimit.Draft11|ratelimit.XRateLimit, limit)

	fmt.Println("RateLimit-Policy:", h.Get("RateLimit-Policy"))
	fmt.Println("RateLimit:", h.Get("RateLimit"))
	fmt.Println("X-RateLimit-Limit:", h.Get("X-RateLimit-Limit"))
	fmt.Println("X-RateLimit-Remaining:", h.Get("X-RateLimit-Remaining"))
	fmt.Println("X-RateLimit-Reset:", h.Get("X-RateLimit-Reset"))
	// Output:
	// RateLimit-Policy: "default";q=100;w=60
	// RateLimit: "default";r=42;t=1
	// X-RateLimit-Limit: 100
	// X-RateLimit-Remaining: 42
	// X-RateLimit-Reset: 1795203035
}

func ExamplePrepare() {
	// Once, since the policies do not change:
	template := ratelimit.Prepare(ratelimit.Draft11, ratelimit.Limit{Name: "api", Quota: 100, Window: time.Minute})

	// For each response:
	h := http.Header{}
	template.Set(h, ratelimit.Limit{Name: "api", Remaining: 0, Next: 17 * time.Second})

	fmt.Println(h.Get("RateLimit-Policy"))
	fmt.Println(h.Get("RateLimit"))
	// Output:
	// "api";q=100;w=60
	// "api";r=0;t=17
}

func ExampleParse() {
	h := http.Header{}
	h.Set("X-RateLimit-Limit-Requests", "60")
	h.Set("X-RateLimit-Remaining-Requests", "59")
	h.Set("X-RateLimit-Reset-Requests", "1s")
	h.Set("X-RateLimit-Limit-Tokens", "150000")
	h.Set("X-RateLimit-Remaining-Tokens", "0")
	h.Set("X-RateLimit-Reset-Tokens", "6m0s")

	for _, limit := range ratelimit.Parse(h, time.Now()) {
		fmt.Println(limit.Name, limit.Remaining, "of", limit.Quota, "wait", limit.Wait())
	}
	// Output:
	// tokens 0 of 150000 wait 6m0s
	// requests 59 of 60 wait 0s
}

func ExampleProfile_Judge() {
	body := []byte(`{"ok":false,"error_code":429,"parameters":{"retry_after":35}}`)
	answer := ratelimit.Vendor("telegram").Judge(http.StatusTooManyRequests, nil, body, time.Now())
	fmt.Println(answer.Meaning, answer.Wait, answer.Known)
	// Output: limited 35s true
}

// A Profile for a vendor that heed does not know. It refuses with a 400, and writes waits
// in milliseconds.
func ExampleProfile() {
	ours := &ratelimit.Profile{
		Hosts:  []string{"api.example.com"},
		Signs:  []ratelimit.Sign{{Means: ratelimit.Limited, Status: []int{400}, Body: "error", Is: []string{"slow_down"}}},
		Delays: []ratelimit.Delay{{Header: "X-Come-Back", Form: ratelimit.Milliseconds}},
	}
	h := http.Header{"X-Come-Back": {"1500"}}
	slow := ours.Judge(400, h, []byte(`{"error":"slow_down"}`), time.Now())
	fmt.Println(slow.Meaning, slow.Wait, slow.Known)
	wrong := ours.Judge(400, nil, []byte(`{"error":"no such thing"}`), time.Now())
	fmt.Println(wrong.Meaning, wrong.Wait, wrong.Known)
	// Output:
	// limited 1.5s true
	// unsaid 0s false
}
