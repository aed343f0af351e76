package serverside

import (
	"cmp"
	"fmt"
	"net/http"
	"time"

	"github.com/heedhttp/heed/quota"
	"github.com/heedhttp/heed/ratelimit"
)

// A Config configures a Limiter. Only Rules is required:
//
//	serverside.Config{
//		Rules: []serverside.Rule{{Name: "api", Policies: []quota.Policy{quota.PerMinute(60)}}},
//		Key:   serverside.ClientIP(netip.MustParsePrefix("10.0.0.0/8")), // the proxies
//		Store: &redisstore.Store{Client: client},
//	}
//
// New and Reconfigure copy it: later changes have no effect.
type Config struct {
	// Rules are the limits. All rules of a Stage that match a request decide together: the
	// request is charged to all of them, or denied and charged to none. A request that matches
	// no rule is not limited.
	//
	// Rules are checked by Stage, then from the most to the least specific Pattern, then in the
	// order given. If several deny, Denial.Rule is the first.
	Rules []Rule

	// Exempt are patterns, as in Rule.Pattern, of requests that are never limited or counted,
	// such as health checks. Unlike in a Rule, a pattern matches only the plain spelling of a
	// path: lower case, no escapes, no doubled slashes.
	Exempt []string

	// Allow lists requests with a limit of their own instead of Rules. The first entry that
	// matches applies.
	Allow []Allow

	// Store counts requests, for several processes together if it is a redisstore.Store. If
	// nil, Memory counts for this process alone. If the Store has a method
	// Ping(context.Context) error, New calls it in the background and reports a failure as
	// StoreFailed.
	Store quota.Store

	// Memory counts if Store is nil, and for FailLocal. If nil, the Limiter makes one for
	// 65,536 keys, which Limiter.Memory returns.
	Memory *quota.Memory

	// Gate counts requests in flight, for Rule.MaxInFlight. If nil, the Store does if it is a
	// quota.Gate, and otherwise Memory.
	Gate quota.Gate

	// StoreTimeout is the longest wait for one answer of the Store, even if the Store ignores
	// its context. After that OnStoreError applies, and the Store decides nothing more about
	// the request. Most requests ask once; those with a rule that reads the body or has Limits,
	// twice; logins, three times. If zero, 75 ms, longer than the deadline of a
	// redisstore.Store.
	StoreTimeout time.Duration

	// OnStoreError says what happens while the Store fails, for rules that do not say it
	// themselves. If zero, FailLocal.
	OnStoreError FailureMode

	// ClosedStatus is the status with which FailClosed refuses: 503 Service Unavailable, the
	// default, or 429 Too Many Requests, for clients that retry nothing else.
	ClosedStatus int

	// Key names the client that is charged, for rules without a Key. If nil, the peer's
	// address. Behind a proxy, set it to ClientIP.
	Key Key

	// Style selects the rate-limit fields. If zero, ratelimit.Draft11|ratelimit.XRateLimit.
	Style ratelimit.Style

	// FieldsOnDenialOnly leaves the rate-limit fields out of responses to admitted requests.
	FieldsOnDenialOnly bool

	// ExposeFields lets browser scripts of other origins read the rate-limit fields and
	// Retry-After, by adding them to Access-Control-Expose-Headers. A handler that sets that
	// field has to list them itself.
	ExposeFields bool

	// RetryAfterDate writes Retry-After as a date. Prefer seconds, the default: a client's
	// clock may differ from this machine's.
	RetryAfterDate bool

	// RetryAfterMS adds Retry-After-Ms, the wait in milliseconds.
	RetryAfterMS bool

	// InContext puts the Decision into the request's context, for FromContext.
	InContext bool

	// Deny, if not nil, writes the body of denials instead of the problem document:
	// EnvelopeBody, another body of this package, or your own. All header fields but
	// Content-Type are set. The status is Denial.Status whatever Deny writes, and HEAD gets no
	// body.
	Deny func(w http.ResponseWriter, r *http.Request, d Denial)

	// Audit receives an Event for each denial, failure and change of the Config. The request's
	// goroutine calls it: it must return quickly and be safe for concurrent use. If nil,
	// warnings and errors are logged to slog.Default, as by LogAudit.
	Audit func(Event)

	// AuditAddresses puts the client's address into Events: the one that Key reads if Key is a
	// ClientIP, and otherwise the peer's. If false, Events have only a hash of the key.
	AuditAddresses bool

	// Description describes the functions in the Config, which Limiter.Hash cannot compare.
	// Package rulefile sets it; functions that do the same have the same description.
	Description string

	// Observe, if not nil, receives every decision, for metrics. Like Audit, it must return
	// quickly and be safe for concurrent use.
	Observe func(Observation)
}

// A Rule limits the requests that match its Pattern:
//
//	serverside.Rule{
//		Name:     "search",
//		Pattern:  "GET /search",
//		Key:      serverside.ClientIP(),
//		Policies: []quota.Policy{quota.PerSecond(5), quota.PerHour(1000)},
//	}
//
// A request counts once for every policy, and has to fit them all.
type Rule struct {
	// Name identifies the rule in the Store, in Events and in the fields. It is printable
	// ASCII. A rule that keeps its Name keeps its counts when its numbers change. If empty,
	// Pattern, or "default" if that is empty too.
	Name string

	// Pattern is a pattern of http.ServeMux, such as "POST /v1/{path...}". If empty, the rule
	// matches every request.
	//
	// A Pattern cannot be evaded by writing the path differently: case, escapes, dots, doubled
	// slashes and a final slash make no difference. It need not be one of the router's
	// patterns. If it is, and Wrap is behind that router, http.Request.Pattern decides instead
	// of the path, which http.StripPrefix and the like may have changed.
	//
	// The method is the one the request has when it reaches Wrap. If the handler takes another
	// one from a header or form (X-HTTP-Method-Override, _method), a GET evades a rule for
	// "POST /login". In that case override methods in front of the Limiter, or leave the method
	// out.
	Pattern string

	// If, if not nil, narrows the rule to requests for which it returns true. See Repeated.
	If func(*http.Request) bool

	// Stage is the Wrap at which the rule is checked. If zero, BeforeAuth.
	Stage Stage

	// Policies are the limits. At least one is required without Tiers, MaxInFlight or Login. A
	// policy without a Name is named after its Window.
	Policies []quota.Policy

	// Tiers, the lowest first, replace Policies for customers with different limits. Tier names
	// the one that applies; a name that no tier has means the lowest. Policies with the same
	// Name, or the same Window, share one count across tiers, so a customer who changes tier
	// keeps what is spent.
	Tiers []Tier

	// Tier returns the name of a request's tier. It is required with Tiers.
	Tier func(*http.Request) string

	// Limits, if not nil, returns limits of single keys, and can block keys. Policies or Tiers
	// apply to all other keys, and while Limits fails.
	Limits Limits

	// MaxInFlight is how many requests of one key are served at the same time. If zero, any
	// number. A request counts until its handler returns or panics, even if its client
	// disconnects before; otherwise a client could start any number of requests by
	// disconnecting. A handler that hijacks the connection counts only until it returns.
	MaxInFlight int64

	// Key names the client that is charged. If Key is nil or returns "", Config.Key does, in a
	// separate name space: a user called "192.0.2.1" does not share the quota of that address.
	// An Overload rule without a Key has one count for all requests.
	//
	// A rule that has Limits, or a Key that reads the body, is checked after the others, so a
	// request that those deny costs no reading and no look-up.
	Key Key

	// Cost returns how many units a request costs. Less than 1 counts as 1. If nil, 1.
	Cost func(*http.Request) int64

	// Settle, if not nil, returns what a request cost in the end. The request is charged its
	// Cost first; when it is answered, the difference is refunded, or charged even if that
	// exceeds the quota. Less than 0 counts as 0. A request whose response is not seen
	// (Response) keeps its charge. ChargeIf and RefundIf return such functions. The Store must
	// be a quota.Settler.
	Settle func(Response) int64

	// Penalty, if not nil, blocks keys that fail too often. The Store must be a quota.Settler.
	Penalty *Penalty

	// Login, if not nil, makes the rule limit password guesses. Key names the account. Logins
	// returns such a rule. The Store must be a quota.Settler.
	Login *Login

	// Status is the status of denials: 429 Too Many Requests, the default, or, in the Overload
	// stage only, 503 Service Unavailable.
	Status int

	// DryRun makes the rule count and report to Audit what it would deny, without denying or
	// writing fields. Its counts, penalties included, are separate: enforcing the rule later
	// starts from zero.
	DryRun bool

	// OnStoreError says what happens while the Store fails. If zero, Config.OnStoreError.
	OnStoreError FailureMode
}

// A Stage says whether a Rule is checked before or after authentication. Limiter.WrapEarly
// checks the rules of BeforeAuth; Limiter.Wrap checks those of all stages that were not checked
// yet.
type Stage int

const (
	// BeforeAuth is for rules that do not depend on who the client is.
	BeforeAuth Stage = iota

	// AfterAuth is for rules that do. Their keys may be what clients send, because
	// authentication has checked it.
	AfterAuth

	// Overload is for limits of the server as a whole. The fields show them only when they
	// deny, because their numbers are not the client's own.
	Overload

	stages // number of stages
)

// A Tier is the limits of one group of customers, such as "free". See Rule.Tiers.
type Tier struct {
	Name     string
	Policies []quota.Policy // at least one
}

// A FailureMode says what happens to requests while the Store is gone: it returns an error or
// nonsense, panics, or does not answer in time. If the rules of a request have different modes,
// the strictest applies. The zero value means the mode of the Config, which is FailLocal by
// default. While the limits of a key are unknown (Limits), the mode of its rule applies too.
//
// Modes are for a Store that is gone. If this process itself is the slow one (StoreError.Late),
// it counts on its own in every mode, so that an overloaded limiter keeps limiting.
type FailureMode int

const (
	// FailOpen admits the request uncounted. Its response has no rate-limit fields.
	FailOpen FailureMode = iota + 1

	// FailClosed answers 503, or Config.ClosedStatus, with Retry-After.
	FailClosed

	// FailLocal counts in this process, by the same policies, and shows its own numbers in the
	// fields. The Store does not learn what was counted here. So a key may get its quota once from each
	// process, and once more from a Store that is back.
	FailLocal
)

var modeNames = [...]string{"inherited", "open", "closed", "local"}

// String returns "open", "closed" or "local", or "inherited" if m is zero.
func (m FailureMode) String() string {
	if !m.valid() {
		return fmt.Sprintf("FailureMode(%d)", int(m))
	}
	return modeNames[m]
}

func (m FailureMode) valid() bool { return m >= 0 && int(m) < len(modeNames) }

// severity orders modes by how much they refuse.
func (m FailureMode) severity() int {
	switch m {
	case FailClosed:
		return 2
	case FailLocal:
		return 1
	default:
		return 0
	}
}

// modeOr returns r's mode, or the inherited one if it has none. A dry run refuses nothing.
func (r Rule) modeOr(inherited FailureMode) FailureMode {
	mode := cmp.Or(r.OnStoreError, inherited, FailLocal)
	if mode == FailClosed && r.DryRun {
		return FailOpen
	}
	return mode
}

// A ConfigError is one fault of a Config. New and Reconfigure return all of them, joined.
type ConfigError struct {
	Field  string // such as "Rules[2].Pattern"
	Reason string // what is wrong with it
}

func (e *ConfigError) Error() string { return "serverside: " + e.Field + ": " + e.Reason }
