package testserver_test

import (
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/heedhttp/heed"
	"github.com/heedhttp/heed/contract"
	"github.com/heedhttp/heed/testserver"
)

// Keep this identical to the package documentation.
func TestMyClientWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		srv := testserver.New(t, testserver.Step{Status: 429, RetryAfter: time.Minute})
		client := &http.Client{Transport: &heed.Transport{Base: srv.Transport()}}
		resp, err := client.Get(srv.URL)
		require.NoError(t, err)
		defer resp.Body.Close()
		require.Equal(t, 200, resp.StatusCode)
		srv.Check(t) // every clause of the contract
	})
}

// inTest runs f as a test function, which examples do not have.
func inTest(f func(t testing.TB)) {
	t := &fakeTB{}
	defer func() {
		t.end()
		for _, failure := range t.failures {
			fmt.Println(failure)
		}
	}()
	f(t)
}

// A scripted server in memory, and its log.
func ExampleNew() {
	inTest(func(t testing.TB) { // func TestX(t *testing.T)
		srv := testserver.New(t,
			testserver.Step{Status: 503, Times: 2},
			testserver.Step{Status: 429, RetryAfter: 1500 * time.Millisecond},
			testserver.Step{Body: "hello"},
		)
		client := &http.Client{Transport: srv.Transport()}
		for range 5 {
			resp, err := client.Post(srv.URL+"/greet", "text/plain", strings.NewReader("hi"))
			if err != nil {
				fmt.Println(err)
				return
			}
			resp.Body.Close()
		}
		for _, e := range srv.Log() {
			fmt.Printf("%s %s %d %q %q\n", e.Method, e.URL, e.Status, e.ResponseHeader.Get("Retry-After"), e.ResponseBody)
		}
	})
	// Output:
	// POST http://server.test/greet 503 "" ""
	// POST http://server.test/greet 503 "" ""
	// POST http://server.test/greet 429 "2" ""
	// POST http://server.test/greet 200 "" "hello"
	// POST http://server.test/greet 200 "" "ok\n"
}

// A real connection, for any client. This client does not wait.
func ExampleNewTCP() {
	inTest(func(t testing.TB) {
		srv := testserver.NewTCP(t, testserver.Step{Status: 429, RetryAfter: time.Hour})
		for range 2 {
			if resp, err := http.Get(srv.URL); err == nil {
				resp.Body.Close()
			}
		}
		http.DefaultClient.CloseIdleConnections()
		err := contract.Check(srv.Log(), contract.Client()...)
		fmt.Println(strings.Count(err.Error(), "contract: client/cool-down: MUST"))
	})
	// Output: 1
}

// A middleware that refuses without Retry-After.
func ExampleNewLimited() {
	inTest(func(t testing.TB) {
		srv := testserver.NewLimited(t, func(next http.Handler) http.Handler {
			return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				w.Header().Set("X-RateLimit-Remaining", "-1")
				http.Error(w, "slow down", http.StatusTooManyRequests)
			})
		})
		resp, err := (&http.Client{Transport: srv.Transport()}).Get(srv.URL)
		if err != nil {
			fmt.Println(err)
			return
		}
		resp.Body.Close()
		for _, c := range contract.Server() {
			if breaches, _ := c.Check(srv.Log()); len(breaches) > 0 {
				fmt.Println(c.ID)
			}
		}
	})
	// Output:
	// server/retry-after
	// server/remaining
	// server/explained
	// server/no-store
}

// A stand-in for GitHub with small limits.
func ExampleGitHub() {
	inTest(func(t testing.TB) {
		github := testserver.GitHub(t, testserver.VendorLimit{Name: "search", Quota: 2, Window: time.Minute})
		srv := testserver.NewLimited(t, github.Wrap)
		client := &http.Client{Transport: srv.Transport()}
		for _, path := range []string{"/search/issues", "/search/users", "/search/issues", "/user"} {
			resp, err := client.Get("https://api.github.com" + path)
			if err != nil {
				fmt.Println(err)
				return
			}
			resp.Body.Close()
			fmt.Println(path, resp.StatusCode, resp.Header.Get("X-RateLimit-Resource"),
				resp.Header.Get("X-RateLimit-Remaining"))
		}
		fmt.Printf("%+v\n", github.Counts()["search"])
	})
	// Output:
	// /search/issues 200 search 1
	// /search/users 200 search 0
	// /search/issues 403 search 0
	// /user 200 core 4999
	// {Admitted:2 Refused:1}
}

// Each part of an API has its own script.
func ExampleServer_Route() {
	inTest(func(t testing.TB) {
		srv := testserver.New(t)
		srv.Route("GET /orders/{id}", testserver.Step{Body: "an order"})
		srv.Route("/orders/", testserver.Step{Status: 503, Times: -1})
		client := &http.Client{Transport: srv.Transport()}
		for _, path := range []string{"/orders/7", "/orders/", "/elsewhere"} {
			resp, err := client.Get(srv.URL + path)
			if err != nil {
				fmt.Println(err)
				return
			}
			body, _ := io.ReadAll(resp.Body)
			resp.Body.Close()
			fmt.Printf("%d %q\n", resp.StatusCode, body)
		}
	})
	// Output:
	// 200 "an order"
	// 503 ""
	// 200 "ok\n"
}
