// Package pace has Pacers for a heed.Transport: they hold requests back so that
// a limit is kept before a server has to say so.
//
//   - PerHost, or a Keyed, keeps a limit for each host, or key, in this process.
//   - With uses a rate.Limiter of yours.
//   - Shared keeps one limit together with other processes, through a store.
//   - Advertised keeps to what servers tell in their responses' fields.
//   - Adaptive finds out what a server allows that only ever refuses.
//   - Queue puts a batch in order before it goes to one of them: bounded, by
//     priority, fair between keys.
//   - Each puts several of them together.
//
// # Waiting
//
// Requests of one key wait in a line, first in, first out. When one leaves, since
// its context ended, those behind it move up. What was not used after all, since
// a cool-down was posted meanwhile, goes back, too. So nothing is lost, and
// nothing is made: in any time t a Keyed lets at most burst + limit·t requests of
// a key go, and so do With and Shared, together with all others that use the
// limiter or the Store. A Shared whose Store fails comes close to that; it says how
// close.
//
// A request that would wait for longer than it may is refused at once, unsent,
// with a *heed.OverdueError that says how long the wait would be. Those ahead
// of it in line count. How long it may wait is the time to its context's
// deadline, and what the Transport's RetryPolicy allows.
//
// # Costs
//
// A request costs 1, or what WithCost has put into its context, or what the
// pacer's Cost says: in requests, or in another unit, such as "tokens". Nothing
// of that is sent to the server.
//
// # When not to use it
//
// A Pacer bounds how often requests begin, not how many are under way: it does
// not know when a response's body ends. For that use http.Transport's
// MaxConnsPerHost, or a semaphore around your own code.
//
// A Transport keeps to the cool-downs that servers ask for without any Pacer.
// Where a limit is not known, do not guess one: a Pacer slower than the server
// wastes what the server would give, and one that is faster does nothing. An
// Adaptive, which needs no guess, costs some refusals to find the limit.
package pace
