// Package serverside limits the requests that a handler gets, and tells clients how much
// they have left and when to come back.
//
//	limiter, err := serverside.New(serverside.Config{
//		Rules: []serverside.Rule{{
//			Name: "api", Pattern: "/v1/", Policies: []quota.Policy{quota.PerMinute(60)},
//		}},
//	})
//	…
//	server := &http.Server{
//		Addr: ":8080", Handler: http.MaxBytesHandler(limiter.Wrap(mux), 1<<20),
//		ReadHeaderTimeout: 5 * time.Second, ReadTimeout: 10 * time.Second, IdleTimeout: 2 * time.Minute,
//	}
//	server.ListenAndServe()
//
// A request goes through these steps, in this order:
//
//  1. A request that Config.Exempt matches goes to the handler. Nothing is charged. A
//     request that an entry of Config.Allow trusts is charged to that entry in place of
//     the rules.
//  2. All rules whose Pattern matches apply to the request. If none does, it goes to the
//     handler. Rule.Key says whose quota a rule charges. The default, Config.Key, is the
//     peer's address if it is nil. Behind a proxy that is the proxy's, so set it to
//     ClientIP.
//  3. First the rules are asked whose keys are in the header or are addresses: steps 4
//     and 5. If they admit the request, the rules are asked whose Key reads the body
//     (FormValue) or that look up limits (Rule.Limits). So a request that an address is
//     denied costs neither. If the second ones deny, the first ones give back what they
//     charged.
//  4. A rule with MaxInFlight takes a place for the request, or denies it.
//  5. The Store makes one decision for all policies of these rules: it charges all of
//     them, or one denies and none is charged.
//  6. The response's header gets the rate-limit fields, for every policy. Fields that
//     tell of one policy only tell of the tightest: the one that denies longest, or that
//     has the smallest part of its quota left.
//  7. The handler serves the request. Or it is denied: 429 Too Many Requests with
//     Retry-After, Cache-Control: no-store and a problem document (RFC 9457). Denial has
//     the other statuses.
//  8. Rules with Settle, Penalty or Login look at the response. They correct the charge,
//     and count failures.
//
// A success is a 2xx that the handler wrote through the ResponseWriter it was given. If
// the handler writes nothing, net/http sends 200, but the Limiter has not seen it: nothing
// is given back or forgiven, and no failure is counted. See Response.
//
// If the Store fails or takes too long, FailureMode says what happens. By default this
// process counts by itself. FailOpen admits and FailClosed refuses, while the Store is
// gone. If it is this process that is late, because it is overloaded, it counts by itself
// whatever the mode: load does not turn a limit off.
//
// Retry-After (RFC 9110, section 10.2.3) says when a request of the same cost fits, in
// seconds, rounded up. The document's retry_after_ms is the same in milliseconds. A client
// that obeys either is admitted, unless another request with its key was admitted in
// between. A request that costs more than its quota ever holds gets no Retry-After, and a
// problem type of its own.
//
// Put the Limiter in front of whatever is expensive, such as authentication and the
// parsing of bodies, and behind whatever caches: a response from a cache is not counted.
// If rules are about authenticated users, put WrapEarly in front of authentication and
// Wrap behind it.
//
// Use one Limiter with several rules rather than several Limiters. A Limiter cannot take
// back what another one charged, and of the fields that tell of one policy, clients see
// the innermost Limiter's.
package serverside
