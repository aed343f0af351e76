// Package pace has Pacers for a heed.Transport. A Pacer delays requests so that they stay
// within a limit, instead of sending them and being refused:
//
//	client := &http.Client{Transport: &heed.Transport{
//		Pacer: pace.PerHost(10, 1), // 10 requests a second to each host, one at a time
//	}}
//
// Which one to use:
//
//   - PerHost and Keyed keep a limit that you know, for each host or key, in this
//     process.
//   - With uses a rate.Limiter of yours.
//   - Shared keeps a limit together with other processes, through a store such as Redis.
//   - Advertised follows the limits that servers announce in their responses.
//   - Adaptive discovers the rate a server allows when the server announces none.
//   - InFlight limits how many requests are in flight at a time, known or discovered.
//   - Queue orders a batch before one of these: bounded, by priority, fair between keys.
//   - Each combines several Pacers.
//
// # Waiting
//
// Requests of one key wait in line, first in, first out. When one leaves because its
// context ended, those behind it move up. A token that was taken but not used, because a
// cool-down began meanwhile, goes back. So in any time t a Keyed admits at most burst +
// limit·t requests of a key. The same holds for With and Shared, together with everything
// else that uses the same limiter or Store; Shared says how close it stays to that while
// its Store fails.
//
// A request that would have to wait too long is refused at once, unsent, with a
// *heed.OverdueError that contains the wait. The bound is the deadline of the request's
// context and what the Transport's RetryPolicy allows.
//
// # Costs
//
// A request costs 1, or what WithCost put into its context, or what the Pacer's Cost
// returns: in requests, or in another unit such as "tokens". Costs are not sent to the
// server.
//
// # When not to use it
//
// All but InFlight limit how often requests start, not how many are in flight: then slow
// answers are not the server's limit. (http.Transport's MaxConnsPerHost limits connections,
// of which HTTP/2 needs only one.)
//
// A Transport respects the cool-downs that servers ask for without any Pacer. Do not
// guess a limit: a Pacer that is slower than the server wastes quota, and one that is
// faster has no effect. Adaptive needs no guess, at the cost of some refusals.
package pace
