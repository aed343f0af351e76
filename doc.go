// Package heed makes an http.Client keep to the limits that servers announce.
//
//	client := &http.Client{Transport: &heed.Transport{}}
//
// A [Transport] honours Retry-After, backs off with jitter, keeps its retries
// inside a budget, and lets one refusal hold back every other request to the
// same server. With a [Pacer] it also keeps to a rate of its own; those of
// package pace count in one process, or in Redis for as many as share it.
//
// # What happens to a request
//
// In this order:
//
//  1. The request earns its [Budget] a tenth of a retry.
//  2. If a key it is counted under (its scheme and host, and whose credential it has; and
//     which of a vendor's limits it is charged to; unless Transport.Key says otherwise)
//     cools down, the request waits for the end, and then for its place in line: the line
//     is released evenly over the jitter window, and then as fast as good answers come, or
//     at the server's interval if that is known. If the wait would be longer than MaxWait,
//     or not end before the deadline, the request fails at once with an [*OverdueError],
//     unsent. While a minute or more is left, one such request a minute is sent as a probe,
//     and what it is told holds from then on.
//  3. If there is a Pacer, the request waits for its turn, for what is left of MaxWait, and
//     if a cool-down began meanwhile, for its end.
//  4. Base sends it.
//  5. The outcome is observed: the Pacer is told, and if the server refused the
//     request because of a limit and said for how long (429, or 403, 413, 420,
//     430 or 529 with a hint), that is posted for all others on the [Board]. What
//     else a vendor's responses mean is known to RetryPolicy.Profiles. If a server says
//     429 and nothing else, to a fifth of the requests or more, the key is throttled: its
//     requests wait for a second, longer if all are refused then, too, and after that for
//     a rate that is searched for. Routes that are not refused go on.
//  6. The [Verdict]: is another attempt worth it, are attempts left, can the body
//     be sent again, does the wait fit into MaxWait, does it end before the
//     deadline and within MaxElapsed, and does the budget allow it? The first "no"
//     returns the response as it came, unread, with a nil error.
//  7. Otherwise the body is drained, the request waits, and goes on at 2. The wait
//     is the longest of hint, backoff and cool-down; after a hint h it is longer
//     by a jitter from [0, min(0.3·h, 10 s)]. A hint is a floor: it is never
//     shortened, and never jittered downward.
//
// A retry that waits out a refusal's hint, or for a throttle, costs no budget: it comes no
// sooner than the server allows. Every other costs one, a 503's with a hint included.
//
// Of Transports around each other, each paces and observes, but only the innermost one
// retries: what it gave up is final to the others.
//
// # What it does not do
//
// heed does not follow redirects, keep cookies or sign requests: the first two
// are http.Client's business, the last is that of a RoundTripper in Base. It does
// not limit concurrency. It does not break circuits: a breaker goes around a
// Transport, where it sees what retries could not mend, and takes a 429 for the
// answer that it is. It never turns a response into an error.
package heed
