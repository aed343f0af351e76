package heed_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"strconv"
	"time"

	"github.com/heedhttp/heed"
)

// userKey is the context key of the user whom the proxy has authenticated.
type userKey struct{}

// newProxy returns a proxy to target for users with a session. Their tokens for target are passed on
// unverified.
func newProxy(target *url.URL, users map[string]string) http.Handler {
	proxy := &httputil.ReverseProxy{
		Rewrite: func(r *httputil.ProxyRequest) {
			r.SetURL(target)
			r.Out.Header.Del("Cookie") // the session is the proxy's
		},
		Transport: &heed.Transport{
			// Not ByCredential: a forged token would delay the user whom it names.
			Key: func(req *http.Request) string {
				return heed.ByHost(req) + " " + req.Context().Value(userKey{}).(string)
			},
			Retry: heed.RetryPolicy{MaxWait: 5 * time.Second},
		},
		ErrorHandler: passOn,
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		session, err := r.Cookie("session")
		if err != nil || users[session.Value] == "" {
			w.WriteHeader(http.StatusUnauthorized)
			return
		}
		ctx := context.WithValue(r.Context(), userKey{}, users[session.Value])
		proxy.ServeHTTP(w, r.WithContext(ctx))
	})
}

// passOn tells the user how long to wait, in whole seconds: after "Retry-After: 0" all come back at once.
func passOn(w http.ResponseWriter, r *http.Request, err error) {
	var overdue *heed.OverdueError
	if errors.As(err, &overdue) {
		wait := max(1, math.Ceil(overdue.Wait.Seconds()))
		w.Header().Set("Retry-After", strconv.Itoa(int(wait)))
		w.WriteHeader(http.StatusTooManyRequests)
		return
	}
	w.WriteHeader(http.StatusBadGateway)
}

// In a reverse proxy each user has a cool-down of their own, by the name that the proxy has
// authenticated. A user whose request heed refuses gets a 429 with Retry-After instead of a 502.
func ExampleTransport_reverseProxy() {
	api := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Authorization") == "Bearer greedy" {
			w.Header().Set("Retry-After", "600")
			w.WriteHeader(http.StatusTooManyRequests)
		}
	}))
	defer api.Close()
	target, _ := url.Parse(api.URL)
	front := httptest.NewServer(newProxy(target, map[string]string{"s1": "greedy", "s2": "modest"}))
	defer front.Close()

	for _, from := range [][2]string{{"s1", "greedy"}, {"s1", "greedy"}, {"s2", "modest"}} {
		session, user := from[0], from[1]
		req, _ := http.NewRequest("GET", front.URL, nil)
		req.AddCookie(&http.Cookie{Name: "session", Value: session})
		req.Header.Set("Authorization", "Bearer "+user)
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			fmt.Println(err)
			return
		}
		resp.Body.Close()
		wait, _ := strconv.Atoi(resp.Header.Get("Retry-After"))
		fmt.Println(user, resp.StatusCode, (wait+59)/60, "min")
	}
	// Output:
	// greedy 429 10 min
	// greedy 429 10 min
	// modest 200 0 min
}
