// Package otelheed shows in OpenTelemetry what a heed.Transport does: its attempts, its
// waits, what the server asked for, and what heed decided.
//
//	client := &http.Client{Transport: otelheed.NewTransport(&heed.Transport{}, otelheed.Options{})}
//	resp, err := client.Get("https://api.example.com/")
//
// Each call has a span with an event for each wait. Below it each attempt has a span, with
// http.request.resend_count if the call was sent before. A call that was refused once:
//
//	heed GET, internal: heed.attempts=2 heed.verdict=final http.response.status_code=200
//	    event heed.verdict: heed.attempt=1 heed.verdict=again http.response.status_code=429
//	    event heed.wait: heed.wait.cause=hint heed.wait.duration=1 heed.wait.sources=["Retry-After"]
//	    GET, client: http.response.status_code=429 error.type=429
//	    GET, client: http.request.resend_count=1 http.response.status_code=200
//
// The request of an attempt carries that attempt's traceparent.
//
// The span of a call is INTERNAL: the semantic conventions for HTTP ask for a CLIENT span for
// each request that is sent, and for no CLIENT span around those. Both kinds of span end when
// the response's header is there, or the error: a body that streams for an hour, or that is
// never closed, keeps no span open.
//
// To have otelhttp make the spans of the attempts, see Options.Attempts: otelheed adds the
// resend count, which otelhttp lacks.
//
// The metrics are called heed.client.*. docs/observability.md has tables of them, and of all
// attributes and events.
//
// No path, query string, header value, cool-down key or text of an error is in any attribute:
// they may hold a secret. This is why a span has no url.full.
package otelheed
