package serverside

import (
	"fmt"
	"net/http"
	"strings"
	"time"
)

// An Event is something that a Limiter did, for a log or an alarm. It holds no
// client's address, token or other secret; what Err says is up to the Store.
type Event struct {
	Kind EventKind

	// Rule and Pattern are those of the rule it is about: of several that deny,
	// Denial.Rule; of several that fail, the one with the strictest failure mode.
	Rule, Pattern string

	// Policies are the names, as in the RateLimit field, of the policies that
	// deny, or would, or are nearly used up.
	Policies []string

	// Limit is the quota of the first of Policies, or what may be in flight.
	Limit int64

	// Key is a hash of the key that was charged: equal for equal keys. Whoever
	// can guess a key, and an IPv4 address can be guessed, can confirm it.
	Key string

	// Wait is how long it is until the request fits; 0 if it never does.
	Wait time.Duration

	// Status is that of the denial, if there is one.
	Status int

	// Mode is what was done about a Store that failed.
	Mode FailureMode

	// Err is what the Store returned, or what is wrong with a Config.
	Err error

	// Hash is Limiter.Hash, of Configured.
	Hash string

	// Rules are Config.Rules, of Configured: what holds from now on. They must not
	// be changed, and have functions, of which there is no JSON.
	Rules []Rule `json:"-"`
}

// An EventKind is what an Event is about.
type EventKind int

const (
	// Denied is a request that was denied: one Event for each.
	Denied EventKind = iota + 1

	// WouldDeny is a request that rules with DryRun would have denied.
	WouldDeny

	// StoreFailed is a request that the Store did not decide on.
	StoreFailed

	// ForwardingIgnored is a request with X-Forwarded-For that was charged to
	// the peer's address: the peer is not a trusted proxy, or sends what is no
	// address. If the peer is a proxy, all its clients share one quota. It is
	// told once by each New and Reconfigure; without an Audit, when such a request
	// is denied.
	ForwardingIgnored

	// StoreRecovered is the first request that the Store has decided on since
	// StoreFailed.
	StoreRecovered

	// LimitsFailed is a request whose limits a Rule's Limits did not know for an
	// error.
	LimitsFailed

	// NearLimit is a request that left less than a tenth of a quota where the one
	// before had found more.
	NearLimit

	// HotKey is a key that was denied for more than 100 times within a minute. It
	// is told once, and again only after a minute with fewer.
	HotKey

	// Bypassed is a request that an Allow entry admitted: one Event for each.
	Bypassed

	// Penalized is a key that is kept out from now on, for as long as Wait.
	Penalized

	// Configured is that New or Reconfigure has put a Config into effect.
	Configured

	// ConfigRejected is a Reconfigure that failed. What was in effect still is.
	ConfigRejected
)

var kindNames = [...]string{"", "denied", "would deny", "store failed", "forwarding ignored", "store recovered",
	"limits failed", "near limit", "hot key", "bypassed", "penalized", "configured", "config rejected"}

// String is the kind in lower case, such as "would deny".
func (k EventKind) String() string {
	if k < Denied || int(k) >= len(kindNames) {
		return fmt.Sprintf("EventKind(%d)", int(k))
	}
	return kindNames[k]
}

// about is an Event about r and the Store's key.
func about(kind EventKind, r *rule, key string) Event {
	return Event{Kind: kind, Rule: r.name, Pattern: r.pattern, Key: hash(key)}
}

// auditDenial tells of the denials that d sums up.
func (p *plan) auditDenial(kind EventKind, r *http.Request, denials *trial, d *Denial) {
	first, key := denials.first().rule, denials.charges[0].Key
	e := about(kind, first, key)
	e.Policies, e.Limit, e.Wait = d.Policies, d.Quota, d.RetryAfter
	if kind == Denied {
		e.Status = d.Status
	}
	p.Audit(e)
	p.auditForwarding(r, first, key)
	if kind == Denied {
		p.warm(first, key, denials.decisions[0].At)
	}
}

// auditCrowd tells of a request that found all places of a rule taken.
func (p *plan) auditCrowd(kind EventKind, x extra) {
	e := about(kind, x.rule, x.key)
	e.Limit, e.Wait = x.rule.inFlight, crowdWait
	if kind == Denied {
		e.Status = x.rule.status
	}
	p.Audit(e)
	if kind == Denied {
		p.warm(x.rule, x.key, time.Now())
	}
}

// warm counts a denial of key at a time, and tells when there are too many.
func (p *plan) warm(r *rule, key string, at time.Time) {
	if p.heat.add(key, at) {
		p.Audit(about(HotKey, r, key))
	}
}

// auditNear tells that a request leaves less than a tenth of a quota, of which
// there was more before.
func (p *plan) auditNear(t *trial) {
	policy := t.policies[0]
	if (t.decisions[0].Remaining+t.charges[0].Units())*10 >= policy.atOnce {
		e := about(NearLimit, policy.rule, t.charges[0].Key)
		e.Policies, e.Limit = []string{policy.fields.Name}, policy.fields.Quota
		p.Audit(e)
	}
}

// auditFailure tells that the Store did not decide, and what is done about it. It is
// noted last, so that whoever is told of failures that overtake a recovery is told
// of another recovery after them.
func (p *plan) auditFailure(r *rule, key string, err error) {
	e := about(StoreFailed, r, key)
	e.Mode, e.Err = r.mode, err
	p.Audit(e)
	p.failing.Store(true)
}

// auditSuccess tells that the Store decides again.
func (p *plan) auditSuccess() {
	if p.failing.Load() && p.failing.CompareAndSwap(true, false) {
		p.Audit(Event{Kind: StoreRecovered})
	}
}

// auditLimits tells that the limits of key are not known.
func (p *plan) auditLimits(r *rule, key string, err error) {
	e := about(LimitsFailed, r, key)
	e.Err = err
	p.Audit(e)
}

// auditForwarding tells, once, that a request was charged to its peer although
// its header says that it is another's.
func (p *plan) auditForwarding(req *http.Request, r *rule, key string) {
	if len(req.Header["X-Forwarded-For"]) == 0 || p.forwarding.Load() {
		return
	}
	if chargesPeer(req, key) && p.forwarding.CompareAndSwap(false, true) {
		p.Audit(about(ForwardingIgnored, r, key))
	}
}

// chargesPeer reports whether key is the peer's address, or that Named or in a Join.
func chargesPeer(r *http.Request, key string) bool {
	peer := peerOf(r)
	return key == peer || strings.HasSuffix(key, ":"+peer) || strings.Contains(key, string(appendNetstring(nil, peer)))
}

// names returns the names, as in the RateLimit field, of t's policies.
func (t *trial) names() []string {
	names := make([]string, len(t.policies))
	for i, p := range t.policies {
		names[i] = p.fields.Name
	}
	return names
}
