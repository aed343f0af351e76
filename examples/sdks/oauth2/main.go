// Command oauth2 puts oauth2.Transport around heed, so that heed sees whose token a request
// has: a limit of one user delays no other. It asks a server of its own:
//
//	cd examples/sdks && go run ./oauth2
package main

import (
	"fmt"
	"log"
	"net/http"
	"net/http/httptest"

	"golang.org/x/oauth2"

	"github.com/heedhttp/heed"
)

func main() {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Authorization") == "Bearer ann" {
			w.Header().Set("Retry-After", "600")
			w.WriteHeader(http.StatusTooManyRequests)
		}
	}))
	defer server.Close()

	limits := &heed.Transport{}
	for _, user := range []string{"ann", "ann", "bob"} {
		resp, err := newClient(limits, user).Get(server.URL)
		if err != nil {
			fmt.Printf("%s: not sent, because the server said so before\n", user)
			continue
		}
		if err := resp.Body.Close(); err != nil {
			log.Fatal(err)
		}
		fmt.Printf("%s: %s\n", user, resp.Status)
	}
}

// newClient returns a user's client. All share one Transport, and so what it knows of limits.
func newClient(limits *heed.Transport, user string) *http.Client {
	return &http.Client{Transport: &oauth2.Transport{
		Source: oauth2.StaticTokenSource(&oauth2.Token{AccessToken: user}),
		Base:   limits,
	}}
}
