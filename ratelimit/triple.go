package ratelimit

// A triple is the names of a family of three fields, and of one that some servers
// send for the last of them.
type triple struct{ limit, remaining, reset, after string }

var (
	draft06          = triple{"Ratelimit-Limit", "Ratelimit-Remaining", "Ratelimit-Reset", "Ratelimit-Reset-After"}
	xRateLimit       = triple{"X-Ratelimit-Limit", "X-Ratelimit-Remaining", "X-Ratelimit-Reset", "X-Ratelimit-Reset-After"}
	xRateLimitHyphen = triple{"X-Rate-Limit-Limit", "X-Rate-Limit-Remaining", "X-Rate-Limit-Reset", "X-Rate-Limit-Reset-After"}
)
