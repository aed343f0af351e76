package profiles

import (
	"net/http"
	"slices"
	"time"

	"github.com/heedhttp/heed/quota"
	"github.com/heedhttp/heed/ratelimit"
	"github.com/heedhttp/heed/serverside"
)

// ForjaRedis is where Forja's store is if REDIS_URL does not say, for
// redisstore.FromEnvOr.
const ForjaRedis = "redis://127.0.0.1:6379"

// Forja limits each address, and then each API key:
//
//	of an address  50 a second, 500 a minute, 20 at the same time
//	of an API key  what Options.Limits says of it, by the second, minute, hour and day
//
// by windows of the clock, of which the one with the smallest part left is told:
// X-RateLimit-Reset is in seconds from now. Denials are problem documents that say by
// how much, with the code RATE_LIMITED.
//
// Where the description contradicts others: windows of the clock admit up to twice
// their quota around a boundary, and are kept because keys of this kind have contracts
// by the minute and the day (C20). A denial has Retry-After (C10), and so has what fails
// closed, with 429 as clients of this kind expect (C05). The burst is what is in flight
// (C38). Connections of this machine are limited like others (C03): to have 6,000 a
// minute of them, let Options.Trusted be serverside.Peers(serverside.Loopback()...),
// which no header field can claim (C01).
//
// With Limiter.WrapEarly in front of authentication wrong keys are counted for their
// address. With Limiter.Wrap alone both limits are one decision: what the key denies is
// not charged to the address.
func Forja(o Options) serverside.Config {
	return forja(o, o.Proxies.ClientIP(), 20, fixed(quota.PerSecond(50), quota.PerMinute(500)))
}

// ForjaFromEnv is Forja with the numbers, the failure mode and the proxies of the
// environment; Options.Proxies is not used. A number of 0 is not enforced, but not all
// may be.
//
//	APP__SECURITY__RATE_LIMIT_PER_SECOND  requests per second of an address; 50
//	APP__SECURITY__RATE_LIMIT_PER_MINUTE  requests per minute of an address; 500
//	APP__SECURITY__RATE_LIMIT_BURST       requests in flight of an address; 20
//	RATE_LIMIT_FAIL_MODE                  open, closed or local; open
//	TRUST_PROXY_HEADERS                   true or false; false
//	TRUSTED_PROXIES                       addresses and networks, with commas between
//	PROXY_HEADER                          the field that they write; X-Forwarded-For
//
// TRUST_PROXY_HEADERS has the TRUSTED_PROXIES believed in PROXY_HEADER. Without
// TRUSTED_PROXIES it is an error: nobody is believed because everybody is.
//
// The error joins an *EnvError for each variable that is wrong. An empty one is as
// good as none.
func ForjaFromEnv(o Options) (serverside.Config, error) {
	env, err := readForjaEnv()
	if err != nil {
		return serverside.Config{}, err
	}
	cfg := forja(o, env.ip, env.inFlight, fixed(env.policies...))
	cfg.OnStoreError = env.mode
	return cfg, nil
}

func forja(o Options, ip serverside.Key, atOnce int64, ofAddress []quota.Policy) serverside.Config {
	cfg := o.config(ratelimit.XRateLimitDelta)
	cfg.Deny = forjaBody
	cfg.ClosedStatus = http.StatusTooManyRequests
	cfg.Key = serverside.Named("ip", ip)
	cfg.Rules = []serverside.Rule{
		{Name: "ip", Policies: ofAddress, MaxInFlight: atOnce},
		{Name: "key", Stage: serverside.AfterAuth, Key: serverside.Named("key", o.apiKey()), Limits: keyTable{o.Limits},
			Policies: fixed(quota.PerSecond(50), quota.PerMinute(500))}, // while Limits fails
	}
	return cfg
}

var forjaBody = serverside.CodedProblem("https://forja.dev/errors/rate_limited")

// fixed are policies as windows of the clock, called s, m, h and d.
func fixed(policies ...quota.Policy) []quota.Policy {
	windows := slices.Clone(policies)
	for i := range windows {
		windows[i].Algorithm, windows[i].Name = quota.FixedWindow, letter(windows[i].Window)
	}
	return windows
}

func letter(window time.Duration) string {
	switch window {
	case time.Second:
		return "s"
	case time.Minute:
		return "m"
	case time.Hour:
		return "h"
	case 24 * time.Hour:
		return "d"
	default:
		return "" // which is called by its length
	}
}
