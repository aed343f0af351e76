package rulefile

import (
	"net/http"
	"net/netip"

	"github.com/heedhttp/heed/quota"
	"github.com/heedhttp/heed/ratelimit"
	"github.com/heedhttp/heed/serverside"
)

// A settings is a Config with what is needed to make it.
type settings struct {
	serverside.Config
	proxies serverside.Proxies
}

// A rule is a Rule with what is needed to make it, and its functions in words.
type rule struct {
	serverside.Rule
	method string
	words  []string // what its functions are
}

func (u *rule) say(what, text string) {
	if text != "" {
		u.words = append(u.words, what+" "+text)
	}
}

// A penalty is a Penalty with its functions in words.
type penalty struct {
	serverside.Penalty
	strike, pardon string
}

// An entry is an Allow with what is needed to make it.
type entry struct {
	serverside.Allow
	peers []netip.Prefix
	keys  []string
	of    key
	match string
}

// responseForms is what a kind of responses may be, for people.
const responseForms = "`unauthorized`, `succeeded`, `from-cache`, or the name of a function"

var fileFields = []field[settings]{
	{"trusted_proxies", "", "list of addresses or networks, or `loopback`",
		"Whose word on the client's address is taken. Without any, `ip` is the peer's address, and behind a proxy that is the proxy's.",
		func(r *reader, s spot, c *settings) { c.proxies.Trusted = r.prefixes(s) }},
	{"proxy_fields", "", "list of names; default `X-Forwarded-For`",
		"The header fields in which the proxies name the client, the first that a request has. They must write or delete each of them in every request.",
		func(r *reader, s spot, c *settings) { c.proxies.Fields = r.names(s) }},
	{"ipv6_bits", "", "1 to 128; default 64", "How much of an IPv6 address tells clients apart.", readIPv6Bits},
	{"key", "Key", "key; default `ip`", "Whose quota requests are charged to, where a rule does not say.",
		func(r *reader, s spot, c *settings) { r.readIP(c); r.readKey(s, c) }},
	{"rules", "Rules", "list of rules", "The limits. All that match a request apply to it.",
		func(r *reader, s spot, c *settings) { r.readIP(c); r.readRules(s, c) }},
	{"exempt", "Exempt", "list of patterns", "Requests that are never limited, for health checks.",
		func(r *reader, s spot, c *settings) { c.Exempt = r.list(s) }},
	{"allow", "Allow", "list of allowances", "Requests that have a limit of their own in place of the rules.",
		func(r *reader, s spot, c *settings) { r.readIP(c); r.readAllow(s, c) }},
	{"on_store_error", "OnStoreError", "`open`, `closed` or `local`; default `open`",
		"What happens while the store fails: requests are admitted, refused, or counted in each process.",
		func(r *reader, s spot, c *settings) { c.OnStoreError = choice(r, s, modeNames, modes) }},
	{"closed_status", "ClosedStatus", "`503` or `429`; default `503`", "The status of what is refused because the store fails.",
		func(r *reader, s spot, c *settings) { c.ClosedStatus = int(r.integer(s)) }},
	{"store_timeout", "StoreTimeout", "duration; default `75ms`", "How long a request waits for the store.",
		func(r *reader, s spot, c *settings) { c.StoreTimeout = r.duration(s) }},
	{"style", "Style", "list of `draft-11`, `x-ratelimit`, `x-ratelimit-delta`, `draft-07`, `draft-06`, `none`; default the first two",
		"Which rate-limit fields responses carry.", readStyle},
	{"fields_on_denial_only", "FieldsOnDenialOnly", "`true` or `false`", "Keeps the rate-limit fields off responses to admitted requests.",
		func(r *reader, s spot, c *settings) { c.FieldsOnDenialOnly = r.bool(s) }},
	{"expose_fields", "ExposeFields", "`true` or `false`", "Lets scripts of other origins read the fields.",
		func(r *reader, s spot, c *settings) { c.ExposeFields = r.bool(s) }},
	{"retry_after_date", "RetryAfterDate", "`true` or `false`", "Writes Retry-After as a date.",
		func(r *reader, s spot, c *settings) { c.RetryAfterDate = r.bool(s) }},
	{"retry_after_ms", "RetryAfterMS", "`true` or `false`", "Adds Retry-After-Ms, the wait in milliseconds.",
		func(r *reader, s spot, c *settings) { c.RetryAfterMS = r.bool(s) }},
	{"body", "Deny", "`problem`, `envelope`, `limit`, `detail`, `flat`, or the name of a function; default `problem`",
		"The body of denials.", readBody},
}

var ruleFields = []field[rule]{
	{"name", "Name", "printable ASCII; default the pattern",
		"Tells the rule from others. A rule that keeps its name keeps what is spent when its numbers change.",
		func(r *reader, s spot, u *rule) { u.Name, _ = r.text(s) }},
	{"pattern", "Pattern", "pattern of `http.ServeMux`; default every request", "The requests that the rule is for: `/v1/`, `POST /login`.",
		func(r *reader, s spot, u *rule) { u.Pattern, _ = r.text(s) }},
	{"method", "", "method; default all", "The same as before the path in `pattern`.", readMethod},
	{"if", "If", "`repeated`, or the name of a function; default all", "To which of these requests it applies: `repeated` are those that say they are retries.", readIf},
	{"stage", "Stage", "`before-auth`, `after-auth` or `overload`; default `before-auth`", "When the rule is asked.",
		func(r *reader, s spot, u *rule) { u.Stage = choice(r, s, stageNames, stages) }},
	{"policies", "Policies", "policy, or list of them", "The limits.",
		func(r *reader, s spot, u *rule) { u.Policies = r.policies(s) }},
	{"tiers", "Tiers", "list of tiers, the lowest first", "Limits that depend on the customer, in place of `policies`.", readTiers},
	{"tier", "Tier", "name of a function", "The function that names a request's tier.",
		func(r *reader, s spot, u *rule) { readTier(r, s, u) }},
	{"limits", "Limits", "name of a table", "The table that knows limits of single keys.",
		func(r *reader, s spot, u *rule) {
			var name string
			u.Limits, name = function(r, s, r.env.Limits, "table of limits")
			u.say("limits", name)
		}},
	{"max_in_flight", "MaxInFlight", "number; default any", "How many requests of one key are served at the same time.",
		func(r *reader, s spot, u *rule) { u.MaxInFlight = r.integer(s) }},
	{"key", "Key", "key; default the file's", "Whose quota a request is charged to.",
		func(r *reader, s spot, u *rule) { k := r.key(s); u.Key = k.of; u.say("key", k.text) }},
	{"cost", "Cost", "number, or name of a function; default 1", "What a request costs, in units.", readCost},
	{"charge_if", "Settle", responseForms, "Which responses are charged for, once they are known: the others get their units back.",
		func(r *reader, s spot, u *rule) { readSettle(r, s, u, "charge if", serverside.ChargeIf) }},
	{"refund_if", "Settle", responseForms, "Which responses are not charged for.",
		func(r *reader, s spot, u *rule) { readSettle(r, s, u, "refund if", serverside.RefundIf) }},
	{"penalty", "Penalty", "penalty", "Keeps keys out that do too often what they should not.", readPenalty},
	{"status", "Status", "`429` or, in the stage `overload`, `503`; default `429`", "The status of denials.",
		func(r *reader, s spot, u *rule) { u.Status = int(r.integer(s)) }},
	{"dry_run", "DryRun", "`true` or `false`", "Counts and tells the log, and denies nobody.",
		func(r *reader, s spot, u *rule) { u.DryRun = r.bool(s) }},
	{"on_store_error", "OnStoreError", "`open`, `closed` or `local`; default the file's", "What happens while the store fails.",
		func(r *reader, s spot, u *rule) { u.OnStoreError = choice(r, s, modeNames, modes) }},
}

var penaltyFields = []field[penalty]{
	{"strike", "Strike", responseForms + "; default the rule's denials", "Which responses lead to a penalty.",
		func(r *reader, s spot, p *penalty) { p.Strike, p.strike = r.response(s) }},
	{"pardon", "Pardon", responseForms + "; default none", "Which responses forgive all.",
		func(r *reader, s spot, p *penalty) { p.Pardon, p.pardon = r.response(s) }},
	{"after", "After", "number; required", "How many strikes lead to one.",
		func(r *reader, s spot, p *penalty) { p.After = r.integer(s) }},
	{"within", "Within", "duration; required", "The time in which that many are forgotten, one by one.",
		func(r *reader, s spot, p *penalty) { p.Within = r.duration(s) }},
	{"first", "First", "duration", "How long the first penalty lasts. Each is twice as long as the one before.",
		func(r *reader, s spot, p *penalty) { p.First = r.duration(s) }},
	{"max", "Max", "duration; default an hour", "How long a penalty lasts at most.",
		func(r *reader, s spot, p *penalty) { p.Max = r.duration(s) }},
	{"forget", "Forget", "duration; default a day, or twice `max`", "After how long one penalty is forgotten.",
		func(r *reader, s spot, p *penalty) { p.Forget = r.duration(s) }},
}

var tierFields = []field[serverside.Tier]{
	{"name", "Name", "text", "What the function calls the tier.", func(r *reader, s spot, t *serverside.Tier) { t.Name, _ = r.text(s) }},
	{"policies", "Policies", "policy, or list of them", "The limits.",
		func(r *reader, s spot, t *serverside.Tier) { t.Policies = r.policies(s) }},
}

var allowFields = []field[entry]{
	{"name", "Name", "printable ASCII; required", "Tells the entry from others, and stands in the audit trail.",
		func(r *reader, s spot, e *entry) { e.Name, _ = r.text(s) }},
	{"peers", "", "list of addresses or networks, or `loopback`", "Who is trusted, by the address that requests come straight from.",
		func(r *reader, s spot, e *entry) { e.peers = r.prefixes(s) }},
	{"key", "Key", "key; default the file's", "Whose quota a request is charged to.",
		func(r *reader, s spot, e *entry) { e.of = r.key(s); e.Key = e.of.of }},
	{"keys", "", "list of keys' values", "Who is trusted, by what `key` makes of a request: of `header:`, `cookie:` and `form:` the hash that `heed rules key` prints.",
		func(r *reader, s spot, e *entry) { e.keys = r.list(s) }},
	{"match", "Match", "name of a function", "Who is trusted, as the program knows.",
		func(r *reader, s spot, e *entry) { readMatch(r, s, e) }},
	{"policies", "Policies", "policy, or list of them; required", "The limits, in place of the rules'.",
		func(r *reader, s spot, e *entry) { e.Policies = r.policies(s) }},
}

var policyFields = []field[quota.Policy]{
	{"name", "Name", "printable ASCII; default the window", "Its name in the header fields and in the store.",
		func(r *reader, s spot, p *quota.Policy) { p.Name, _ = r.text(s) }},
	{"quota", "Quota", "number; required", "How many units are given back in a window.",
		func(r *reader, s spot, p *quota.Policy) { p.Quota = r.integer(s) }},
	{"window", "Window", "duration; required without `calendar`", "The time in which they are: `90s`, `1m`, `1h30m`, `7d`.",
		func(r *reader, s spot, p *quota.Policy) { p.Window = r.duration(s) }},
	{"burst", "Burst", "number; default the quota", "How many may be spent at once.",
		func(r *reader, s spot, p *quota.Policy) { p.Burst = r.integer(s) }},
	{"calendar", "Calendar", "`day`, `week` or `month`", "Windows of the calendar instead.",
		func(r *reader, s spot, p *quota.Policy) {
			p.Calendar, p.Algorithm = choice(r, s, calendarNames, calendars), quota.FixedWindow
		}},
	{"algorithm", "Algorithm", "`token-bucket`, `leaky-bucket`, `fixed-window`, `sliding-window` or `sliding-log`; default the first, or with `calendar` the third",
		"The way of counting.",
		func(r *reader, s spot, p *quota.Policy) { p.Algorithm = choice(r, s, algorithmNames, algorithms) }},
	{"location", "Location", "time zone, such as `Europe/Berlin`; default UTC", "Where the clocks are that the calendar goes by.", readLocation},
}

var (
	modeNames = []string{"open", "closed", "local"}
	modes     = []serverside.FailureMode{serverside.FailOpen, serverside.FailClosed, serverside.FailLocal}

	stageNames = []string{"before-auth", "after-auth", "overload"}
	stages     = []serverside.Stage{serverside.BeforeAuth, serverside.AfterAuth, serverside.Overload}

	styleNames = []string{"draft-11", "x-ratelimit", "x-ratelimit-delta", "draft-07", "draft-06", "none"}
	styles     = []ratelimit.Style{ratelimit.Draft11, ratelimit.XRateLimit, ratelimit.XRateLimitDelta, ratelimit.Draft07, ratelimit.Draft06, ratelimit.None}

	responseNames = []string{"unauthorized", "succeeded", "from-cache"}
	responses     = []func(serverside.Response) bool{serverside.Unauthorized, serverside.Succeeded, serverside.FromCache}

	bodyNames = []string{"problem", "envelope", "limit", "detail", "flat"}
	bodies    = []func(http.ResponseWriter, *http.Request, serverside.Denial){
		nil, serverside.EnvelopeBody, serverside.LimitBody, serverside.DetailBody, serverside.FlatBody}
)
