package serverside

import (
	"cmp"
	"fmt"
	"net/http"
	"time"

	"github.com/heedhttp/heed/quota"
	"github.com/heedhttp/heed/ratelimit"
)

// A Config is what a Limiter does. Only Rules is required. It is read once, by
// New or Reconfigure; to change it later changes nothing.
type Config struct {
	// Rules are the limits. All rules of a Stage that match a request apply to
	// it, in one decision: it is admitted and charged to all of them, or denied
	// and charged to none. A request that no rule matches is not limited.
	//
	// Rules are asked by Stage; within one, the most specific Pattern first; and
	// those that are equally specific, as they stand here. Of several that deny,
	// the first is Denial.Rule.
	Rules []Rule

	// Exempt are patterns, as of Rule, of requests that are never limited, for
	// health checks: they are admitted before anything else is looked at, and
	// the Store never hears of them. Here a pattern matches paths in its own
	// spelling only, for what is more may be a way in for others.
	Exempt []string

	// Allow are requests that have a limit of their own in place of Rules. The
	// first entry that matches counts.
	Allow []Allow

	// Store counts. If nil, Memory does, which is right for one process and too
	// generous for several. A Store with a method Ping(context.Context) error is
	// asked once, in the background, by New, so that one that cannot be reached is
	// told at the start.
	Store quota.Store

	// Memory counts without a Store, and for FailLocal. If nil, a quota.Memory of the
	// Limiter's own, of 65,536 keys: set it for another number, or see Limiter.Memory.
	Memory *quota.Memory

	// Gate counts what is in flight, for rules with MaxInFlight. If nil, the
	// Store if it is a quota.Gate, and otherwise this process.
	Gate quota.Gate

	// StoreTimeout bounds how long a request waits for an answer of the Store, whether or
	// not the Store heeds its context; then OnStoreError decides, and the Store is not
	// asked to decide on that request again. Most requests ask once; one with a rule that
	// reads the body or has Limits, twice; a login, three times. If zero, 75 ms, which
	// leaves a redisstore.Store time for its own deadline. A quota.Memory is not waited for.
	StoreTimeout time.Duration

	// OnStoreError is what happens to a request while the Store fails, where a
	// Rule does not say otherwise. If zero, FailLocal.
	OnStoreError FailureMode

	// ClosedStatus is the status of what FailClosed refuses: 503 Service Unavailable,
	// also if zero; or 429 Too Many Requests, for clients that wait for nothing else.
	ClosedStatus int

	// Key says whose quota a request is charged to, where a Rule does not. If
	// nil, the peer's: behind a proxy, set it to ClientIP.
	Key Key

	// Style says which rate-limit fields responses carry. If zero,
	// ratelimit.Draft11|ratelimit.XRateLimit.
	Style ratelimit.Style

	// FieldsOnDenialOnly keeps the rate-limit fields off responses to requests
	// that were admitted.
	FieldsOnDenialOnly bool

	// ExposeFields lets scripts of other origins read the rate-limit fields and
	// Retry-After: it adds their names to Access-Control-Expose-Headers. A
	// handler that sets that field itself has to name them itself.
	ExposeFields bool

	// RetryAfterDate writes Retry-After as a date instead of seconds. The date is
	// by this machine's clock, which clients need not share: prefer seconds.
	RetryAfterDate bool

	// RetryAfterMS adds Retry-After-Ms, the wait in milliseconds, for clients to
	// which a second is long.
	RetryAfterMS bool

	// InContext puts the Decision on a request into its context, where FromContext
	// finds it.
	InContext bool

	// Deny, if not nil, writes the body of denials in place of the problem
	// document: EnvelopeBody and others here, or your own. The header has its
	// fields but Content-Type, the status is Denial.Status whatever Deny writes,
	// and a HEAD gets no body.
	Deny func(w http.ResponseWriter, r *http.Request, d Denial)

	// Audit is called with what happened, by the request's goroutine: it must be
	// quick, and safe for concurrent use. If nil, warnings and errors are logged to
	// slog.Default, as by LogAudit: nobody is denied in silence.
	Audit func(Event)

	// AuditAddresses puts the client's address into Events, by Key if that is a
	// ClientIP, and otherwise the peer's. If false, Events hold a hash of the key.
	AuditAddresses bool

	// Description says what the functions of the Config are, in words that are equal
	// where they do the same, for Limiter.Hash: it cannot tell functions apart.
	// Package rulefile writes it.
	Description string

	// Observe, if not nil, is called with every decision, for metrics. As Audit,
	// it must be quick and safe for concurrent use.
	Observe func(Observation)
}

// A Rule is a set of policies for the requests that it matches.
type Rule struct {
	// Name tells the rule from others, in the Store, in Events and where its
	// policies have no name of their own. It is printable ASCII. A rule that
	// keeps its Name keeps what its keys have spent when its numbers change. If
	// empty, the Pattern; if that is empty too, "default".
	Name string

	// Pattern is a pattern of http.ServeMux, such as "POST /v1/{path...}". If
	// empty, the rule matches every request.
	//
	// It matches whatever a router may take for its path, so that there is no
	// way around it: case, escapes, dots, doubled slashes and a slash at the end
	// make no difference. It is about requests, not handlers: it need not be a
	// pattern of the handler's. If it is, and Wrap is behind the router that has
	// matched it, Request.Pattern says so, and the path is not looked at again: it
	// may have been changed, as by http.StripPrefix.
	//
	// A method is the one that the request has at Wrap. Where a handler behind it
	// takes another from a header or a form (X-HTTP-Method-Override, _method), a
	// GET passes a rule for "POST /login": put what overrides methods in front of
	// the Limiter, or leave the method out.
	Pattern string

	// If, if not nil, says to which of these requests the rule applies: to the
	// others it does not, and tells them nothing. See Repeated.
	If func(*http.Request) bool

	// Stage is when the rule is asked. If zero, BeforeAuth.
	Stage Stage

	// Policies are the limits. There is at least one, unless there are Tiers,
	// MaxInFlight or a Login. A policy without a Name is called by its Window.
	Policies []quota.Policy

	// Tiers, if there are any, stand in place of Policies, the lowest first: Tier
	// says which holds for a request, and the lowest does for a name that none
	// has. Policies of several tiers that have one name, or one Window, are
	// counted together: who is moved to another tier keeps what is spent.
	Tiers []Tier

	// Tier names the tier of a request. It is required with Tiers.
	Tier func(*http.Request) string

	// Limits, if not nil, knows limits that single keys have in place of Policies
	// or Tiers, which hold for all other keys, and while Limits fails.
	Limits Limits

	// MaxInFlight is how many requests of one key are served at the same time. If
	// zero, any number. A place is taken until the handler returns or panics,
	// which it should when its client has gone: a place that was free as soon as
	// the client goes would let it start any number of requests and leave. A
	// handler that hijacks its connection and returns has given up its place.
	MaxInFlight int64

	// Key says whose quota a request is charged to. If nil, or where it returns
	// "", Config.Key does: in a name space of its own, so that a user who is called
	// like an address does not share its quota. If the Stage is Overload and it is
	// nil, all requests are charged to one key.
	//
	// A rule whose Key reads the body, or that has Limits, is asked after the
	// others: what those deny costs neither the reading nor the look-up. If it
	// then denies, the others get back what they were charged.
	Key Key

	// Cost is what a request costs, in units. If nil, 1, which is also what
	// less than 1 counts as.
	Cost func(*http.Request) int64

	// Settle, if not nil, says what a request has cost after all, when it is
	// answered. It is charged its Cost before, so that it counts while it is
	// served; then the difference is given back, or charged, into debt if need be.
	// The Store must be a quota.Settler. ChargeIf and RefundIf make such functions.
	// A request whose answer is not seen (Response) keeps its charge. Less than 0 is 0.
	Settle func(Response) int64

	// Penalty, if not nil, keeps keys out that do too often what they should not.
	// The Store must be a quota.Settler.
	Penalty *Penalty

	// Login, if not nil, has the rule limit guesses at the passwords of the accounts that
	// Key names. Logins makes such a rule.
	Login *Login

	// Status of denials is 429 Too Many Requests, also if zero; or 503 Service
	// Unavailable, only in the Overload stage: who is within a quota of its own
	// has not sent too many.
	Status int

	// DryRun decides and counts, but neither denies nor writes fields: Audit
	// tells what would have been. What it counts, penalties too, is apart from what
	// is counted without: a rule that is enforced later begins with nothing.
	DryRun bool

	// OnStoreError is what happens to a request while the Store fails. If zero,
	// Config.OnStoreError.
	OnStoreError FailureMode
}

// A Stage is when a Rule is asked. Limiter.WrapEarly asks those of BeforeAuth,
// and Limiter.Wrap those of all stages that have not been asked yet.
type Stage int

const (
	// BeforeAuth is for rules that need not know who the client says it is.
	BeforeAuth Stage = iota

	// AfterAuth is for rules that do. Their keys may be what clients send, since
	// somebody has checked it.
	AfterAuth

	// Overload is for guards of the server as a whole. The fields of a response tell
	// of them only if they deny: their numbers are not the client's own.
	Overload

	stages // their number
)

// A Tier is the limits of one group of customers.
type Tier struct {
	Name     string
	Policies []quota.Policy // at least one
}

// A FailureMode is what happens to a request when the Store is gone: when it
// returns an error, answers nonsense, panics, or is not done in time. Of a request's
// rules, the strictest decides. If zero, what is inherited: a Rule's is Config's, and
// Config's is FailLocal.
//
// It is about a Store that is gone. Where it is this process that is late, because it
// has too many calls under way or others are answered meanwhile, requests are counted
// in this process, whatever the mode: a limiter that is saturated is not turned off.
type FailureMode int

const (
	// FailOpen admits the request. Nobody counted it, so its response has no
	// rate-limit fields.
	FailOpen FailureMode = iota + 1

	// FailClosed answers 503, or Config.ClosedStatus, with Retry-After.
	FailClosed

	// FailLocal counts by the same policies in this process, and tells the
	// numbers it counted.
	FailLocal
)

var modeNames = [...]string{"inherited", "open", "closed", "local"}

// String is "open", "closed" or "local"; and "inherited" if m is zero.
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

// modeOr is r's mode, or what it inherits. A dry run refuses nobody.
func (r Rule) modeOr(inherited FailureMode) FailureMode {
	mode := cmp.Or(r.OnStoreError, inherited, FailLocal)
	if mode == FailClosed && r.DryRun {
		return FailOpen
	}
	return mode
}

// A ConfigError is one fault of a Config. New and Reconfigure join all there are.
type ConfigError struct {
	Field  string // such as "Rules[2].Pattern"
	Reason string // what is wrong with it
}

func (e *ConfigError) Error() string { return "serverside: " + e.Field + ": " + e.Reason }
