// Package contract says what a client and a server may expect of each other
// where there are limits, and tells from a log whether they kept to it.
//
// The contract is a list of clauses, [Client] and [Server], and a [Clause] is
// data: a sentence, where it comes from, and a function that finds breaches in
// a log. A log is a list of exchanges, as a server saw them. Package testserver
// records one; anything else that knows when a request arrived and what was
// answered can make one too:
//
//	log := []contract.Exchange{
//		{Method: "GET", URL: "http://api.example/a", Arrived: t0, Status: 429, ResponseHeader: header},
//		{Method: "GET", URL: "http://api.example/a", Arrived: t0.Add(time.Second), Status: 200},
//	}
//	err := contract.Check(log, contract.Client()...)
//
// The package depends on nothing but the standard library, and reads header
// fields and bodies with strict parsers of its own: it shares no code with what
// it judges, so that a mistake is not made twice.
//
// # Who repeats what
//
// Exchanges form one logical request by their Idempotency-Key, or else by their
// X-Request-Id, method and URL, or else by method, URL, body and Authorization.
// In the latter two ways a request begins where nothing before it has failed,
// and what follows a failure is another attempt. Where two of the same are in
// flight at once, a later one may repeat either of them or none. Then the
// clauses that need to know are not applicable. To have workers that all send
// the same judged in full, give each of their requests an X-Request-Id.
//
// # What it does not do
//
// It judges what a log shows, and only that. That a client gave up too early, or
// a server limits too much, is no breach. Moments that are closer than 0.1 ms
// are one moment. A request that arrives within 0.1 s after another one of its
// key was told to wait may have been on its way. Limits whose key is not the
// host must be told apart by [Exchange.Key].
package contract

//go:generate go test . -run TestDocs -update
