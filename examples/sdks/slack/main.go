// Command slack posts a message with slack-go/slack. Slack, which package standin plays,
// refuses the first attempt with a 200; heed knows what that means, and waits:
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

// newClient returns a client of slack-go that keeps to Slack's limits. If base is nil, it
// reaches the real one. slack-go does not retry unless it is given OptionRetry.
func newClient(base http.RoundTripper, token string) *slack.Client {
	return slack.New(token, slack.OptionHTTPClient(&http.Client{Transport: &heed.Transport{
		Base: base,
		Key:  method,
		Retry: heed.RetryPolicy{
			Profiles:      []*ratelimit.Profile{ratelimit.Vendor("slack")},
			MaxBodyBuffer: 1 << 20, // files are sent from a pipe: those of up to 1 MiB can be sent again
		},
	}}))
}

// method is what Slack's limits apply to: a method of a workspace, and here each has a
// client of its own.
func method(req *http.Request) string { return req.URL.Host + req.URL.Path }

func main() {
	client := newClient(standin.Refusing(200, `{"ok": false, "error": "ratelimited"}`, `{"ok": true, "ts": "1.7"}`, "Retry-After", "1"), "secret")
	_, timestamp, err := client.PostMessage("C1", slack.MsgOptionText("Hello", false))
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println("posted message", timestamp)
}
