// Package heed makes an http.Client respect the rate limits of the servers it calls:
//
//	client := &http.Client{Transport: &heed.Transport{}}
//	resp, err := client.Get("https://api.example.com/items")
//
// The zero [Transport] waits as long as Retry-After and similar fields ask. It retries failed
// requests with backoff and jitter, within a retry budget, at most four attempts each. After one
// request was refused because of a limit, later requests to the same server wait too. While a
// server is down, requests wait for it, ten seconds at most.
//
// Set its fields to change that, for example to log what happens and to stay below a known limit:
//
//	client := &http.Client{Transport: &heed.Transport{
//		Retry: heed.RetryPolicy{MaxAttempts: 6, AttemptTimeout: 10 * time.Second},
//		Pacer: pace.PerHost(10, 1), // ten requests a second to each host
//		Trace: heed.LogTrace(slog.Default()),
//	}}
//
// The pacers of package pace count within one process, or in Redis for several.
//
// # What happens to a request
//
//  1. The request deposits in the [Budget], by default a tenth of a retry.
//  2. The request waits while its host is down. A host is down if nobody gets anything from it but
//     failed dials, failed look-ups, or a 502, 503 or 504 without a hint. One request at a time is
//     sent as a probe, those that were never sent first; the others wait in line. The first good
//     answer opens the host: any status below 500, or a refusal because of a limit. New requests
//     then go at once, and the line is released evenly over as long as the first in line has
//     waited. RetryPolicy.MaxOutage says how long a request waits. Then it is sent
//     nevertheless, if it never was, and its own outcome is the caller's.
//  3. The request waits if a cool-down applies to it. A cool-down belongs to a key: scheme, host
//     and credential, and for some vendors also the scope of their limit (see Transport.Key). When
//     the cool-down ends, its waiters are released evenly over a jitter window, then as fast as the
//     server answers well, or at the server's own interval if that is known. A request that would
//     have to wait longer than MaxWait, or past its deadline, fails at once with an [*OverdueError]
//     and is not sent. So does a new request if the server has refused everything for longer than
//     MaxWait and five of its hints. But while a minute or more of a cool-down is left, one of these
//     requests a minute is sent as a probe, and its answer replaces the cool-down.
//  4. The request waits for the Pacer, if there is one, for what is left of MaxWait. If a
//     cool-down or an outage began meanwhile, it waits for that too.
//  5. Base sends the request.
//  6. The outcome is reported to the Pacer, and to all requests to the host. If the server refused
//     the request because of a limit and said for how long (429, or 403, 413, 418, 420, 430 or 529 with
//     a hint), a cool-down is posted on the [Board] for all requests of the key. RetryPolicy.Profiles
//     know what other responses of some vendors mean, also by the first event of a stream. A
//     refusal that may have come by chance, because
//     its hint is short and others are answered, holds back no other request. If a server refuses a
//     fifth of the requests or more without a hint, and at least three, or two in a row where few are
//     answered, the key is throttled: its requests pause for a second, longer if they are still
//     refused, and then go at a rate that heed searches for. Routes that are not refused go on.
//  7. heed decides on a [Verdict]: may another attempt do better, are attempts left, can the body be
//     sent again, does the wait fit into MaxWait, does it end before the deadline and within
//     MaxElapsed, does the budget allow it? At the first "no" the caller gets the attempt's error,
//     or its response as it came: the body unread, and a nil error.
//  8. Otherwise the body is drained, the request waits, and continues at step 2. The wait is the
//     longest of hint, backoff and cool-down. A hint h is never shortened; a random jitter from
//     [0, min(0.3·h, 10 s)] is added to it.
//
// What was not sent costs nothing: neither a failed dial nor a wait for a host that is down takes
// from the budget, and while the request may wait for its host, failed dials do not count as
// attempts. A retry that waited for as long as a refusal's hint or a throttle requires costs no
// budget either, unless the server refuses everything although its hints are obeyed. Every other
// retry costs one, also after a 503 with a hint. If the request ends well, all its retries are given
// back.
//
// If a Transport is the Base of another one, both pace and observe, but only the inner one retries.
// The outer one does not repeat what the inner one gave up.
//
// # What it does not do
//
// It does not follow redirects or keep cookies: http.Client does. It does not sign requests: put a
// RoundTripper that signs into Base, so that each attempt is signed. It does not limit concurrency.
// It never turns a response into an error.
//
// It is not a circuit breaker. In an outage patient requests wait, and impatient ones are sent and
// get their own outcome at once; none fails unsent. A breaker around the Transport counts requests,
// not attempts. Have it treat a 429 as an answer rather than a failure.
package heed
