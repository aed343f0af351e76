// Package testserver tests clients and servers against the [contract].
//
// A [Server] is a real net/http server that answers by a script, keeps a record
// of every exchange, and holds the record against the clauses of the contract.
// New starts one in memory, which works inside a synctest bubble, so that an
// hour of waiting takes no time and is exact:
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
// The client need not be heed's: whatever takes an [http.RoundTripper] can be
// put on Transport. What does not is tested over [NewTCP], outside of a bubble.
//
// [NewLimited] tests the other half: it puts a middleware around a handler, and
// its Check judges the server as well.
//
// A [Vendor] stands in for the API of GitHub, Slack, Discord, Okta or OpenAI, with limits
// of your own.
//
// What happened is in [Server.Log], to be counted, or to be held against some
// of the clauses:
//
//	err := contract.Check(srv.Log(), contract.Server()...)
//
// # Inside a bubble
//
// The network is made of pipes, without buffers: a handler's write ends when the
// client has read it. Make the Server inside the bubble that uses it. When the
// test ends, everything that is still open is closed, also bodies of responses
// that the test forgot; without that, their goroutines would keep the bubble
// from ending. Check names such bodies, after the test's deferred calls have run.
//
// A bubble begins in the year 2000, when Unix time had nine digits, by which most
// clients take it for a number of seconds; heed's does not. Where a Step has a reset in
// Unix time, let the test of another client begin with
//
//	time.Sleep(time.Until(time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)))
//
// A Server speaks HTTP/1.1. Its log grows until the test ends.
package testserver
