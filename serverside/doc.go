// Package serverside limits the requests that a handler gets, and tells clients
// so in words that they can obey.
//
//	limiter, err := serverside.New(serverside.Config{
//		Rules: []serverside.Rule{{
//			Name: "api", Pattern: "/v1/", Policies: []quota.Policy{quota.PerMinute(60)},
//		}},
//	})
//	…
//	http.ListenAndServe(":8080", limiter.Wrap(mux))
//
// What happens to a request, in the order it happens:
//
//  1. Health checks (Config.Exempt) go straight to the handler. Whom the
//     allow-list trusts (Config.Allow) is charged to his entry of it instead of the
//     rules.
//  2. All rules whose Pattern matches apply to it. If none does, the handler has it.
//     Each rule's KeyFunc says whose quota it is charged to: by default, that of
//     the peer's address. Behind a proxy that is the proxy's, so use ClientIP.
//  3. If a rule limits what is in flight (Rule.MaxInFlight), there is a place for
//     it, or it is denied.
//  4. The Store makes one decision for all policies of all these rules: either
//     all are charged, or one denies and none is. If the Store fails or takes
//     too long, the rules' FailureMode says what happens.
//  5. The rate-limit fields of the decision are put into the response's header,
//     for every policy, and for those fields that tell of one, for the tightest:
//     the one that denies longest, or has the smallest part of its quota left.
//  6. The handler serves the request, or it is denied: 429 Too Many Requests with
//     Retry-After, Cache-Control: no-store and a problem document (RFC 9457). The
//     request's body is not read.
//  7. If a rule wants to know the answer, charges are corrected by it
//     (Rule.Settle), and who fails too often is kept out (Rule.Penalty).
//
// Retry-After (RFC 9110, section 10.2.3) is when a request of the same cost
// fits, in seconds, rounded up; the document's retry_after_ms is the same in
// milliseconds. A client that obeys either is admitted, unless another request
// with its key was admitted in between. A request that costs more than its quota
// ever holds gets no Retry-After, and a problem type of its own.
//
// Put the Limiter in front of whatever is expensive, authentication and the
// parsing of bodies included, and behind whatever caches: a response from a
// cache is not counted. Where rules are about who is authenticated, put one half
// of it, WrapEarly, in front of authentication and the other, Wrap, behind it. Use one Limiter with several rules rather than several
// Limiters: they cannot take back what another one charged, and of the fields
// that tell of one policy, the innermost Limiter's would be seen.
package serverside
