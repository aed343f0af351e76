// Package ratelimit reads and writes the HTTP header fields that announce rate limits.
//
// A client asks how long to wait after a refusal, and what is left of its quotas:
//
//	if wait, ok := ratelimit.Wait(resp.StatusCode, resp.Header, time.Time{}); ok {
//		time.Sleep(wait)
//	}
//	for _, limit := range ratelimit.Parse(resp.Header, time.Time{}) {
//		fmt.Println(limit.Name, limit.Remaining, "of", limit.Quota)
//	}
//
// A server announces a limit:
//
//	ratelimit.Set(w.Header(), ratelimit.Draft11, ratelimit.Limit{
//		Name: "default", Quota: 100, Window: time.Minute,
//		Remaining: 42, Next: time.Second, Reset: 35 * time.Second, At: time.Now(),
//	})
//
// [Wait] and [Parse] need no configuration: they read the standard's fields and the
// dialects that most servers use. Where a vendor means something else by its fields, or
// announces a limit in the body, a [Profile] says so; [Vendor] and [Vendors] return the
// known ones.
//
// Reading is lenient and safe: malformed values are ignored, none is negative, and longer
// waits are capped at 2³¹ seconds. Writing is strict. The package does not decide whether
// to retry, how much jitter to add, or how long is too long.
//
// Header maps must have canonical keys, as in net/http.
package ratelimit
