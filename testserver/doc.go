// Package testserver tests clients and servers against the rules of package [contract]:
//
//	func TestMyClientWaits(t *testing.T) {
//		synctest.Test(t, func(t *testing.T) {
//			srv := testserver.New(t, testserver.Step{Status: 429, RetryAfter: time.Minute})
//			client := &http.Client{Transport: &heed.Transport{Base: srv.Transport()}}
//			resp, err := client.Get(srv.URL)
//			require.NoError(t, err)
//			defer resp.Body.Close()
//			require.Equal(t, 200, resp.StatusCode)
//			srv.Check(t) // every clause of the contract
//		})
//	}
//
// A [Server] is a real net/http server in memory. It answers as a script says, and records every
// exchange. In a synctest bubble, as here, a wait of an hour takes no time and is exact. Its Transport
// takes URLs of any host, http and https.
//
// The client need not be heed's: use any that takes an [http.RoundTripper]. For other clients
// [NewTCP] listens on a port; it does not work in a bubble.
//
// To test a server, give its middleware to [NewLimited]: its Check also judges the server.
//
// A [Vendor] stands in for the API of GitHub, Slack, Discord, Okta or OpenAI, with the limits that
// you choose.
//
// A broken SHOULD fails the test like a broken MUST. To check some of the clauses only, give Check a
// filter:
//
//	srv.Check(t, contract.MustOnly)
//
// [Server.Log] returns the exchanges.
//
// # Inside a bubble
//
// Make the Server inside the bubble that uses it. Its network consists of pipes without buffers, so a
// handler's write ends only when the client has read it. When the test ends, everything still open
// is closed, also response bodies that the test forgot, because their goroutines would keep the
// bubble from ending. Check reports such bodies after the test's deferred calls have run.
//
// A bubble starts in the year 2000, when Unix time had nine digits. Most clients take such a number
// for seconds to wait (heed does not). If a Step of yours has a reset in Unix time, begin the test of
// such a client with
//
//	time.Sleep(time.Until(time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)))
//
// A Server speaks HTTP/1.1. Its log grows until the test ends.
package testserver
