package serverside

import (
	"fmt"
	"net/http"
	"strings"
	"time"
)

// An Event is something that a Limiter did, for a log or a metric. It holds no
// client's address, token or other secret; what Err says is up to the Store.
type Event struct {
	Kind EventKind

	// Rule and Pattern are those of the rule it is about: of several, the one
	// with the longest wait, or the strictest failure mode.
	Rule, Pattern string

	// Policies are the names, as in the RateLimit field, of the policies that
	// deny, or would.
	Policies []string

	// Key is a hash of the key that was charged: equal for equal keys. Whoever
	// can guess a key, and an IPv4 address can be guessed, can confirm it.
	Key string

	// Wait is how long it is until the request fits; 0 if it never does.
	Wait time.Duration

	// Mode is what was done about a Store that failed.
	Mode FailureMode

	// Err is what the Store returned.
	Err error
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
	// told once by each New and Reconfigure.
	ForwardingIgnored
)

var kindNames = [...]string{"", "denied", "would deny", "store failed", "forwarding ignored"}

// String is "denied", "would deny", "store failed" or "forwarding ignored".
func (k EventKind) String() string {
	if k < Denied || int(k) >= len(kindNames) {
		return fmt.Sprintf("EventKind(%d)", int(k))
	}
	return kindNames[k]
}

// auditDenials tells of what denies a request, or would, the longest wait first.
func (p *plan) auditDenials(kind EventKind, denials *trial) {
	if p.Audit == nil {
		return
	}
	worst := denials.policies[0].rule
	p.Audit(Event{
		Kind:     kind,
		Rule:     worst.name,
		Pattern:  worst.pattern,
		Policies: denials.names(),
		Key:      hash(denials.charges[0].Key),
		Wait:     denials.decisions[0].RetryAfter,
	})
}

// auditFailure tells that the Store did not decide, and what is done about it.
func (p *plan) auditFailure(r *rule, key string, err error) {
	if p.Audit == nil {
		return
	}
	p.Audit(Event{
		Kind:    StoreFailed,
		Rule:    r.name,
		Pattern: r.pattern,
		Key:     hash(key),
		Mode:    r.mode,
		Err:     err,
	})
}

// auditForwarding tells, once, that a request was charged to its peer although
// its header says that it is another's.
func (p *plan) auditForwarding(req *http.Request, r *rule, key string) {
	if len(req.Header["X-Forwarded-For"]) == 0 || p.forwarding.Load() {
		return
	}
	if chargesPeer(req, key) && p.forwarding.CompareAndSwap(false, true) {
		p.Audit(Event{Kind: ForwardingIgnored, Rule: r.name, Pattern: r.pattern, Key: hash(key)})
	}
}

// chargesPeer reports whether key is the peer's address, or a Join with it.
func chargesPeer(r *http.Request, key string) bool {
	peer := peerOf(r)
	return key == peer || key == keySpace+peer || strings.Contains(key, string(appendNetstring(nil, peer)))
}

// names returns the names, as in the RateLimit field, of t's policies.
func (t *trial) names() []string {
	names := make([]string, len(t.policies))
	for i, p := range t.policies {
		names[i] = p.fields.Name
	}
	return names
}
