// Package contract checks from a log whether a client and a server follow the rules of rate limits:
//
//	log := []contract.Exchange{
//		{Method: "GET", URL: "http://api.example/a", Arrived: t0, Status: 429, ResponseHeader: header},
//		{Method: "GET", URL: "http://api.example/a", Arrived: t0.Add(time.Second), Status: 200},
//	}
//	err := contract.Check(log, contract.Client()...)
//
// The error names each broken rule, its source (an RFC, for example), and the first exchanges that
// broke it. The rules are the clauses of [Client] and [Server]. A broken SHOULD is an error like a
// broken MUST; choose the clauses with [Select]. You can add a [Clause] of your own.
//
// A log is a list of exchanges as a server saw them. Package testserver records one. Anything else
// that knows when requests arrived and what was answered can make one too.
//
// The package imports only the standard library. It reads header fields and bodies with strict
// parsers of its own, and shares no code with heed's client and server, so that no mistake of theirs
// is repeated here.
//
// # Which exchanges belong to one request
//
// A client may send one request in several attempts. Exchanges are attempts of one request if they
// have the same Idempotency-Key. Without one, their X-Request-Id, method and URL must be the same;
// without that too, their method, URL, body and Authorization. In the last two cases an exchange is
// another attempt only if the one before it failed. If two such exchanges overlap in time, a later
// one may repeat either or none; clauses that need to know are then not applicable.
//
// Without a name this is a guess: a log cannot tell a retry from a loop that sends the same request
// again. The error says where it rests on that. If you send identical requests, one after the other
// or from several workers, give each an X-Request-Id. Clients send it in every attempt.
//
// # What it does not do
//
// It judges only what a log shows. A client that gives up too early, or a server that limits too
// much, breaks no clause. Times less than 0.1 ms apart count as equal. A request that arrives within
// 0.1 s after another one was refused may have been sent before that. If limits do not apply to the
// host as a whole, set [Exchange.Key].
package contract

//go:generate go test . -run TestDocs -update
