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
//  2. If the key it is counted under (its scheme and host, unless
//     Transport.Key says otherwise) cools down, the request waits for the end,
//     and then for its place in line: waiters are let go as a drip, not all at
//     once. If the cool-down is longer than MaxWait or the deadline, it fails at
//     once with an [*OverdueError], unsent. One request a minute, or each MaxWait
//     if that is longer, is let through to look again.
//  3. If there is a Pacer, the request waits for its turn, and if a cool-down was
//     posted meanwhile, for its end.
//  4. Base sends it.
//  5. The outcome is observed: the Pacer is told, and if the server refused the
//     request because of a limit and said for how long (429, or 403, 413, 420,
//     430 or 529 with a hint), that is posted for all others on the [Board]. What
//     else a vendor's responses mean is known to RetryPolicy.Profiles.
//  6. The [Verdict]: is another attempt worth it, are attempts left, can the body
//     be sent again, does the wait fit into MaxWait, does it end before the
//     deadline and within MaxElapsed, and does the budget allow it? The first "no" returns the response as it came, unread, with a
//     nil error.
//  7. Otherwise the body is drained, the request waits, and goes on at 2. The wait
//     is the longest of hint, backoff and cool-down; after a hint h it is longer
//     by a jitter from [0, min(0.3·h, 10 s)]. A hint is a floor: it is never
//     shortened, and never jittered downward.
//
// A retry that waits out a refusal's hint costs no budget: the server has named
// the time. Every other costs one, a 503's with a hint included.
//
// # What it does not do
//
// heed does not follow redirects, keep cookies or sign requests: the first two
// are http.Client's business, the last is that of a RoundTripper in Base. It does
// not limit concurrency. It does not break circuits: a breaker goes around a
// Transport, where it sees what retries could not mend, and takes a 429 for the
// answer that it is. It never turns a response into an error.
package heed
