package rulefile

import (
	"net/http"
	"net/netip"

	"github.com/heedhttp/heed/quota"
	"github.com/heedhttp/heed/ratelimit"
	"github.com/heedhttp/heed/serverside"
)

// Fields of a file and of each object in it. docs/rules.md describes them.

var fileFields = []field[Listing]{
	{"trusted_proxies", "", func(w *walk, v value, l *Listing) { l.Proxies.Trusted = w.prefixes(v) }},
	{"proxy_fields", "", func(w *walk, v value, l *Listing) { l.Proxies.Fields = list(w, v, parseFieldName) }},
	{"ipv6_bits", "", func(w *walk, v value, l *Listing) { l.Proxies.IPv6Bits = w.ipv6Bits(v) }},
	{"key", "Key", func(w *walk, v value, l *Listing) { w.key = w.keyOf(v); l.Config.Key = w.key.of }},
	{"rules", "Rules", readRules},
	{"exempt", "Exempt", func(w *walk, v value, l *Listing) { l.Config.Exempt = list(w, v, asItIs) }},
	{"allow", "Allow", readAllow},
	{"on_store_error", "OnStoreError", func(w *walk, v value, l *Listing) {
		l.Config.OnStoreError = parsed(w, v, oneOf(modes))
	}},
	{"closed_status", "ClosedStatus", func(w *walk, v value, l *Listing) { l.Config.ClosedStatus = int(w.integer(v)) }},
	{"store_timeout", "StoreTimeout", func(w *walk, v value, l *Listing) { l.Config.StoreTimeout = w.duration(v) }},
	{"style", "Style", readStyle},
	{"fields_on_denial_only", "FieldsOnDenialOnly", func(w *walk, v value, l *Listing) {
		l.Config.FieldsOnDenialOnly = w.bool(v)
	}},
	{"expose_fields", "ExposeFields", func(w *walk, v value, l *Listing) { l.Config.ExposeFields = w.bool(v) }},
	{"retry_after_date", "RetryAfterDate", func(w *walk, v value, l *Listing) { l.Config.RetryAfterDate = w.bool(v) }},
	{"retry_after_ms", "RetryAfterMS", func(w *walk, v value, l *Listing) { l.Config.RetryAfterMS = w.bool(v) }},
	{"audit_addresses", "AuditAddresses", func(w *walk, v value, l *Listing) { l.Config.AuditAddresses = w.bool(v) }},
	{"body", "Deny", readBody},
}

// A rule is a Rule with its key as written in the file.
type rule struct {
	serverside.Rule
	key key
}

var ruleFields = []field[rule]{
	{"login", "Login", readLogin}, // first, because other fields override what Logins sets
	{"name", "Name", func(w *walk, v value, r *rule) { r.Name = w.text(v) }},
	{"pattern", "Pattern", func(w *walk, v value, r *rule) { r.Pattern = w.text(v) }},
	{"method", "", readMethod}, // after pattern, to which it is added
	{"if", "If", func(w *walk, v value, r *rule) {
		r.If = function(w, v, "match function", requests, w.env.Matches, nil)
	}},
	{"stage", "Stage", readStage},
	{"policies", "Policies", func(w *walk, v value, r *rule) { r.Policies = w.policies(v) }},
	{"tiers", "Tiers", readTiers},
	{"tier", "Tier", func(w *walk, v value, r *rule) {
		r.Tier = function(w, v, "tier function", nil, w.env.Tiers, func(*http.Request) string { return "" })
	}},
	{"limits", "Limits", func(w *walk, v value, r *rule) {
		r.Limits = function(w, v, "limits table", nil, w.env.Limits, nil)
	}},
	{"max_in_flight", "MaxInFlight", func(w *walk, v value, r *rule) { r.MaxInFlight = w.integer(v) }},
	{"key", "Key", readKey},
	{"cost", "Cost", readCost},
	{"charge_if", "Settle", func(w *walk, v value, r *rule) { w.settle(v, r, serverside.ChargeIf) }},
	{"refund_if", "Settle", func(w *walk, v value, r *rule) { w.settle(v, r, serverside.RefundIf) }},
	{"penalty", "Penalty", readPenalty},
	{"status", "Status", func(w *walk, v value, r *rule) { r.Status = int(w.integer(v)) }},
	{"dry_run", "DryRun", func(w *walk, v value, r *rule) { r.DryRun = w.bool(v) }},
	{"on_store_error", "OnStoreError", func(w *walk, v value, r *rule) { r.OnStoreError = parsed(w, v, oneOf(modes)) }},
}

var loginFields = []field[rule]{
	{"account", "Key", readAccount},
	{"failed", "Failed", func(w *walk, v value, r *rule) { r.Login.Failed = w.response(v) }},
}

var penaltyFields = []field[serverside.Penalty]{
	{"strike", "Strike", func(w *walk, v value, p *serverside.Penalty) { p.Strike = w.response(v) }},
	{"pardon", "Pardon", func(w *walk, v value, p *serverside.Penalty) { p.Pardon = w.response(v) }},
	{"after", "After", func(w *walk, v value, p *serverside.Penalty) { p.After = w.integer(v) }},
	{"within", "Within", func(w *walk, v value, p *serverside.Penalty) { p.Within = w.duration(v) }},
	{"first", "First", func(w *walk, v value, p *serverside.Penalty) { p.First = w.duration(v) }},
	{"max", "Max", func(w *walk, v value, p *serverside.Penalty) { p.Max = w.duration(v) }},
	{"forget", "Forget", func(w *walk, v value, p *serverside.Penalty) { p.Forget = w.duration(v) }},
}

var tierFields = []field[serverside.Tier]{
	{"name", "Name", func(w *walk, v value, t *serverside.Tier) { t.Name = w.text(v) }},
	{"policies", "Policies", func(w *walk, v value, t *serverside.Tier) { t.Policies = w.policies(v) }},
}

// An allowance is an Allow with its key and peers as written in the file.
type allowance struct {
	serverside.Allow
	key   key
	peers []netip.Prefix
}

var allowFields = []field[allowance]{
	{"name", "Name", func(w *walk, v value, a *allowance) { a.Name = w.text(v) }},
	{"key", "Key", func(w *walk, v value, a *allowance) { a.key = w.keyOf(v); a.Key = a.key.of }},
	{"peers", "", readPeers},
	{"keys", "", readKeys}, // after key, which has to be known
	{"match", "Match", readMatch},
	{"policies", "Policies", func(w *walk, v value, a *allowance) { a.Policies = w.policies(v) }},
}

var policyFields = []field[quota.Policy]{
	{"name", "Name", func(w *walk, v value, p *quota.Policy) { p.Name = w.text(v) }},
	{"quota", "Quota", func(w *walk, v value, p *quota.Policy) { p.Quota = w.integer(v) }},
	{"window", "Window", func(w *walk, v value, p *quota.Policy) { p.Window = w.duration(v) }},
	{"burst", "Burst", func(w *walk, v value, p *quota.Policy) { p.Burst = w.integer(v) }},
	{"calendar", "Calendar", func(w *walk, v value, p *quota.Policy) {
		p.Calendar, p.Algorithm = parsed(w, v, oneOf(calendars)), quota.FixedWindow
	}},
	{"algorithm", "Algorithm", func(w *walk, v value, p *quota.Policy) { p.Algorithm = parsed(w, v, oneOf(algorithms)) }},
	{"location", "Location", func(w *walk, v value, p *quota.Policy) { p.Location = parsed(w, v, parseLocation) }},
}

var (
	modes = map[string]serverside.FailureMode{
		"open": serverside.FailOpen, "closed": serverside.FailClosed, "local": serverside.FailLocal,
	}

	stages = map[string]serverside.Stage{
		"before-auth": serverside.BeforeAuth, "after-auth": serverside.AfterAuth, "overload": serverside.Overload,
	}
	styles = map[string]ratelimit.Style{
		"draft-11": ratelimit.Draft11, "draft-07": ratelimit.Draft07, "draft-06": ratelimit.Draft06,
		"x-ratelimit": ratelimit.XRateLimit, "x-ratelimit-delta": ratelimit.XRateLimitDelta, "none": ratelimit.None,
	}
	algorithms = map[string]quota.Algorithm{
		"token-bucket": quota.TokenBucket, "leaky-bucket": quota.LeakyBucket, "fixed-window": quota.FixedWindow,
		"sliding-window": quota.SlidingWindow, "sliding-log": quota.SlidingLog,
	}
	calendars = map[string]quota.Calendar{"day": quota.Day, "week": quota.Week, "month": quota.Month}

	requests  = map[string]func(*http.Request) bool{"repeated": serverside.Repeated}
	responses = map[string]func(serverside.Response) bool{
		"unauthorized": serverside.Unauthorized, "succeeded": serverside.Succeeded, "from-cache": serverside.FromCache,
	}
	bodies = map[string]body{
		"problem": nil, "envelope": serverside.EnvelopeBody, "limit": serverside.LimitBody,
		"detail": serverside.DetailBody, "flat": serverside.FlatBody,
		"timed-problem": nil, "coded-problem": nil, // listed for errors; see problems
	}
	problems = map[string]func(uri string) body{
		"timed-problem": serverside.TimedProblem, "coded-problem": serverside.CodedProblem,
	}
)
