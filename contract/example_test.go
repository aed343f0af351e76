package contract_test

import (
	"errors"
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/heedhttp/heed/contract"
)

// A log made by hand: the client was told to wait for 10 s, and came after one.
func ExampleCheck() {
	t0 := time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC)
	log := []contract.Exchange{
		{Method: "GET", URL: "http://api.example/a", Arrived: t0, Status: 503,
			ResponseHeader: http.Header{"Retry-After": {"10"}}},
		{Method: "GET", URL: "http://api.example/a", Arrived: t0.Add(time.Second), Status: 200},
	}
	err := contract.Check(log, contract.Client()...)
	_, details, _ := strings.Cut(err.Error(), "\n") // the first line has the clause and its source
	fmt.Println(details)
	// Output:
	// 	want no arrival before 10s, 10s after the answer
	// 	got  one at 1s, 9s too early
	// 	#0 at 0s: GET http://api.example/a: 503
	// 	#1 at 1s: GET http://api.example/a: 200
	// contract: these breaches take identical requests for attempts of one: client/wait-seconds
	// 	if they are different requests, give each an X-Request-Id
}

// Find out which clauses are broken.
func ExampleBreachError() {
	log := []contract.Exchange{{Method: "GET", URL: "http://api.example/", Status: 429}}
	err := contract.Check(log, contract.Server()...)
	for _, err := range err.(interface{ Unwrap() []error }).Unwrap() {
		var b *contract.BreachError
		if errors.As(err, &b) {
			fmt.Println(b.Clause.Level, b.Clause.ID)
		}
	}
	// Output:
	// MUST server/retry-after
	// SHOULD server/fields
	// SHOULD server/explained
	// SHOULD server/no-store
}

// Choose the clauses to check.
func ExampleSelect() {
	all := contract.Client()
	for _, c := range contract.Select(all, contract.IETFOnly, contract.Except("client/same-request")) {
		fmt.Println(c.Level, c.ID)
	}
	// Output:
	// MUST client/wait-seconds
	// MUST client/wait-date
	// MUST client/idempotent
}

// A clause about which a log says nothing is neither kept nor broken.
func ExampleClause() {
	log := []contract.Exchange{{Method: "GET", URL: "http://api.example/", Status: 200}}
	for _, c := range contract.Client()[:2] {
		breaches, applicable := c.Check(log)
		fmt.Println(c.ID, len(breaches), applicable)
	}
	// Output:
	// client/wait-seconds 0 false
	// client/wait-date 0 false
}
