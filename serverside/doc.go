// Package serverside is net/http middleware that limits requests. It tells clients how
// much quota they have left and when to come back.
//
//	limiter, err := serverside.New(serverside.Config{
//		Rules: []serverside.Rule{{
//			Name: "api", Pattern: "/v1/", Policies: []quota.Policy{quota.PerMinute(60)},
//		}},
//	})
//	…
//	http.ListenAndServe(":8080", limiter.Wrap(mux))
//
// Behind a proxy, set Config.Key to ClientIP with the proxy's address: otherwise all
// clients share one quota, the proxy's. With several processes, set Config.Store to a
// redisstore.Store, so that they count together.
//
// # How a request is decided
//
//  1. A request that matches Config.Exempt goes straight to the handler, uncounted. A
//     request that matches an entry of Config.Allow is charged to that entry instead of
//     the rules.
//  2. Every rule whose Pattern matches applies. If none does, the request goes to the
//     handler. Rule.Key names the client whose quota is charged.
//  3. Rules whose key is a header or an address decide first (steps 4 and 5). If they
//     admit the request, rules follow that read the body (FormValue) or look up limits
//     (Rule.Limits). So a request that is denied by address costs no body and no look-up.
//     If a later rule denies, the earlier ones are refunded, unless it denies without
//     asking the Store: a key that Limits block, or a body without a key.
//  4. A rule with MaxInFlight admits the request if fewer requests of its key are being
//     served, and denies it otherwise.
//  5. The Store decides on all policies of these rules at once: either all are charged,
//     or one denies and none is.
//  6. The rate-limit fields go into the response header, one item per policy. Fields with
//     room for one policy show the tightest: the one that denies longest, or else the one
//     with the smallest fraction of its quota left.
//  7. The handler serves the request, or the client gets a denial: 429 Too Many Requests
//     with Retry-After, Cache-Control: no-store and a problem document (RFC 9457). Denial
//     lists the other statuses.
//  8. Rules with Settle, Penalty or Login look at the response: they correct the charge
//     and count failures.
//
// # Success and failure
//
// A success is a 2xx that the handler wrote to the ResponseWriter it was given. If the
// handler writes nothing, net/http sends 200, but the Limiter does not see it. Then
// nothing is refunded or forgiven, and no failure is counted. See Response.
//
// # When the Store fails
//
// FailureMode decides what happens when the Store fails or takes too long. By default
// this process counts on its own. FailOpen admits and FailClosed refuses until the Store
// is back. If this process is the slow one because it is overloaded, it counts on its own
// in every mode, so load never turns a limit off.
//
// # Retry-After
//
// Retry-After (RFC 9110, section 10.2.3) is the time until a request of the same cost
// fits, in seconds, rounded up; retry_after_ms in the document has milliseconds. A client
// that waits as long is admitted, unless others with its key used up the quota meanwhile.
// A request that costs more than its quota ever holds gets no Retry-After, and a problem
// type of its own.
//
// # Where to put the Limiter
//
// Put it in front of whatever is expensive, such as authentication and body parsing, and
// behind caches, so that cached responses are not counted. For rules about authenticated
// users, put WrapEarly in front of authentication and Wrap behind it.
//
// Use one Limiter with several rules rather than several Limiters. A Limiter cannot
// refund what another one charged, and fields with room for one policy show the
// innermost Limiter's.
package serverside
