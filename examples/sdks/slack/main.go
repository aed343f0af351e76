// Command slack posts a message with slack-go/slack. Slack, played by package standin, refuses
// the first attempt with a 200 and an error in the body. heed waits and sends it again:
//
//	cd examples/sdks && go run ./slack
package main

import (
	"fmt"
	"log"
	"net/http"

	"github.com/slack-go/slack"

	"github.com/heedhttp/heed"
	"github.com/heedhttp/heed/examples/sdks/internal/standin"
	"github.com/heedhttp/heed/ratelimit"
)

// newClient returns a client of slack-go that respects Slack's limits. If base is nil, it calls
// the real Slack. slack-go retries only if it has OptionRetry.
func newClient(base http.RoundTripper, token string) *slack.Client {
	return slack.New(token, slack.OptionHTTPClient(&http.Client{Transport: &heed.Transport{
		Base: base,
		Key:  method,
		Retry: heed.RetryPolicy{
			Profiles:      []*ratelimit.Profile{ratelimit.Vendor("slack")},
			MaxBodyBuffer: 1 << 20, // files come from a pipe: up to 1 MiB can be sent again
		},
	}}))
}

// method returns what Slack limits: a method of a workspace. Each workspace has a client here.
func method(req *http.Request) string { return req.URL.Host + req.URL.Path }

func main() {
	api := standin.Refusing(200, `{"ok": false, "error": "ratelimited"}`, `{"ok": true, "ts": "1.7"}`, "Retry-After", "1")
	client := newClient(api, "secret")
	_, timestamp, err := client.PostMessage("C1", slack.MsgOptionText("Hello", false))
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println("posted message", timestamp)
}
