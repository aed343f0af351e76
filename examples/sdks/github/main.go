// Command github opens an issue with google/go-github. GitHub, which package standin plays,
// refuses the first attempt until a quota is restored; heed waits for that:
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

// newClient returns a client of go-github that keeps to GitHub's limits. If base is nil,
// it reaches the real one.
func newClient(base http.RoundTripper) *github.Client {
	// GitHub restores quotas by the hour: who can wait that long raises MaxWait and MaxElapsed.
	client := github.NewClient(&http.Client{Transport: &heed.Transport{
		Base:  base,
		Retry: heed.RetryPolicy{Profiles: []*ratelimit.Profile{ratelimit.Vendor("github")}},
	}})
	// go-github repeats nothing, unless SleepUntilPrimaryRateLimitResetWhenRateLimited is in
	// the context. But when a quota is used up, it fails by itself what heed lets wait.
	client.DisableRateLimitCheck = true
	return client
}

func main() {
	restored := strconv.FormatInt(time.Now().Unix()+2, 10)
	client := newClient(standin.Refusing(403, `{"message": "API rate limit exceeded for user ID 1."}`, `{"number": 7}`,
		"X-RateLimit-Limit", "5000", "X-RateLimit-Remaining", "0", "X-RateLimit-Reset", restored))
	issue, _, err := client.Issues.Create(context.Background(), "heedhttp", "heed", &github.IssueRequest{Title: new("Hello")})
	if err != nil {
		log.Fatal(err)
	}
	fmt.Printf("opened issue %d\n", issue.GetNumber())
}
