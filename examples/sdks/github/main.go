// Command github opens an issue with google/go-github. GitHub, played by package standin, refuses
// the first attempt until the quota is restored. heed waits and sends it again:
//
//	cd examples/sdks && go run ./github
package main

import (
	"context"
	"fmt"
	"log"
	"net/http"
	"strconv"
	"time"

	"github.com/google/go-github/v84/github"

	"github.com/heedhttp/heed"
	"github.com/heedhttp/heed/examples/sdks/internal/standin"
	"github.com/heedhttp/heed/ratelimit"
)

// newClient returns a client of go-github that respects GitHub's limits. If base is nil, it calls
// the real GitHub.
func newClient(base http.RoundTripper) *github.Client {
	// GitHub restores quotas every hour. To wait that long, raise MaxWait and MaxElapsed.
	client := github.NewClient(&http.Client{Transport: &heed.Transport{
		Base:  base,
		Retry: heed.RetryPolicy{Profiles: []*ratelimit.Profile{ratelimit.Vendor("github")}},
	}})
	// go-github retries only if SleepUntilPrimaryRateLimitResetWhenRateLimited is in the context.
	// But once a quota is used up, its own check fails requests for which heed would wait.
	client.DisableRateLimitCheck = true
	return client
}

func main() {
	restored := strconv.FormatInt(time.Now().Unix()+2, 10)
	client := newClient(standin.Refusing(403, `{"message": "API rate limit exceeded for user ID 1."}`, `{"number": 7}`,
		"X-RateLimit-Limit", "5000", "X-RateLimit-Remaining", "0", "X-RateLimit-Reset", restored))
	request := &github.IssueRequest{Title: new("Hello")}
	issue, _, err := client.Issues.Create(context.Background(), "heedhttp", "heed", request)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Printf("opened issue %d\n", issue.GetNumber())
}
