package serverside

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"iter"
	"maps"
	"net/http"
	"strings"
	"time"

	"github.com/heedhttp/heed/quota"
)

// An Event is something that Config.Audit reports, such as a denial or a failing Store. It
// contains no secrets, and no client's address unless Config.AuditAddresses is set; only Err is
// up to the Store and to Rule.Limits.
type Event struct {
	Kind EventKind

	// Rule and Pattern identify the rule: of several that deny, Denial.Rule; of several that
	// fail, the one with the strictest FailureMode.
	Rule, Pattern string

	// Policies are the names, as in the RateLimit field, of the policies that deny, would deny,
	// or are nearly used up.
	Policies []string

	// Limit is the quota of the first of Policies, or Rule.MaxInFlight.
	Limit int64

	// Key is a hash of the key that was charged. A key that can be guessed, such as an IPv4
	// address, can be confirmed by hashing the guess.
	Key string

	// Address is the client's address if Config.AuditAddresses is set.
	Address string

	// Wait is the time until the request fits, or 0 if it never does.
	Wait time.Duration

	// Status is the status of the denial, or 0 if nothing was denied.
	Status int

	// Mode says what was done about a failed Store.
	Mode FailureMode

	// Err is a *StoreError, the error of Rule.Limits for LimitsFailed, or what is wrong with a
	// Config for ConfigRejected and ConfigWarning.
	Err error

	// Hash is Limiter.Hash, for Configured.
	Hash string

	// Memory is Limiter.Memory, for Configured. Metrics read its Forgotten and Dropped.
	Memory *quota.Memory `json:"-"`

	// Rules is Config.Rules, for Configured. It must not be changed.
	Rules []Rule `json:"-"`
}

// An EventKind says what an Event is about.
type EventKind int

const (
	// Denied reports a denied request. Each one is reported.
	Denied EventKind = iota + 1

	// WouldDeny reports a request that rules with DryRun would have denied.
	WouldDeny

	// StoreFailed reports a request that the Store did not decide, or, without a Rule, that New
	// could not reach the Store.
	StoreFailed

	// ForwardingIgnored reports a request with X-Forwarded-For that was charged to the peer's
	// address, because the peer is not a trusted proxy or sent no valid address. If the peer is
	// a proxy, all its clients share one quota. It is reported once after each New and
	// Reconfigure; without an Audit, only if the request is denied.
	ForwardingIgnored

	// StoreRecovered reports the first request that the Store decided after StoreFailed.
	StoreRecovered

	// LimitsFailed reports a request for which Rule.Limits returned an error.
	LimitsFailed

	// NearLimit reports a request that left less than a tenth of a quota, where at least a
	// tenth was left before.
	NearLimit

	// HotKey reports a key that was denied more than 100 times within a minute. It is reported
	// again only after a minute with fewer denials.
	HotKey

	// Bypassed reports a request that an Allow entry admitted. Each one is reported.
	Bypassed

	// Penalized reports a key that a Penalty blocks from now on, for Wait.
	Penalized

	// Configured reports that New or Reconfigure has put a Config into effect.
	Configured

	// ConfigRejected reports a Reconfigure that failed. The previous Config stays in effect.
	ConfigRejected

	// StoreLate reports a request that was counted in this process because this process was
	// late, not the Store (StoreError.Late).
	StoreLate

	// ForwardingDisputed reports a request of a trusted proxy whose fields name different
	// clients. It was charged to the proxy's address. It is reported once a minute.
	ForwardingDisputed

	// ResponseUnseen reports a request whose response was not seen (Response) by a rule with
	// Settle, Penalty or Login, although the client was still connected. It is reported once
	// after each New and Reconfigure.
	ResponseUnseen

	// ConfigWarning reports a probable mistake in a Config, such as Limits with keys that no
	// request can have. Err describes it.
	ConfigWarning

	// DebtCut reports that Settle charged a key less than a request cost, because the debt would
	// have taken longer than ten windows to come back. Err is a *quota.DebtError.
	DebtCut

	kinds // number of kinds, plus one
)

var kindNames = [...]string{"", "denied", "would deny", "store failed", "forwarding ignored", "store recovered",
	"limits failed", "near limit", "hot key", "bypassed", "penalized", "configured", "config rejected",
	"store late", "forwarding disputed", "response unseen", "config warning",
	"debt cut"}

// String returns the kind in lower case, such as "would deny".
func (k EventKind) String() string {
	if k < Denied || k >= kinds {
		return fmt.Sprintf("EventKind(%d)", int(k))
	}
	return kindNames[k]
}

// about returns an Event about r and a key of the Store.
func (c *check) about(kind EventKind, r *rule, key string) Event {
	return c.compiled.about(kind, c.r, r, key)
}

func (s *settlement) about(kind EventKind, r *rule, key string) Event {
	return s.compiled.about(kind, s.r, r, key)
}

func (c *compiled) about(kind EventKind, req *http.Request, r *rule, key string) Event {
	e := Event{Kind: kind, Rule: r.name, Pattern: r.pattern, Key: hash(key)}
	if c.AuditAddresses {
		e.Address = c.addressOf(req)
	}
	return e
}

// addressOf returns the client's address for AuditAddresses.
func (c *compiled) addressOf(req *http.Request) string {
	if c.Key != nil && known(c.Key).ip != nil {
		if addr, ok := known(c.Key).ip(req); ok {
			return addr.String()
		}
	}
	if addr, ok := parseHop(req.RemoteAddr); ok {
		return addr.String()
	}
	return ""
}

// auditDenial reports the denial d by the charges denying.
func (c *check) auditDenial(kind EventKind, denying []charged, d Denial) {
	first, key := firstAsked(denying), denying[0].key
	e := c.about(kind, first, key)
	e.Policies, e.Limit, e.Wait = d.Policies, d.Quota, d.RetryAfter
	if kind == Denied {
		e.Status = d.Status
	}
	c.Audit(e)
	c.auditForwarding(first, key)
	if kind == Denied {
		c.countDenial(first, key, denying[0].decision.At)
	}
}

// auditInFlight reports a denial by MaxInFlight.
func (c *check) auditInFlight(kind EventKind, m match) {
	e := c.about(kind, m.rule, m.key)
	e.Limit, e.Wait = m.rule.inFlight, inFlightWait
	if kind == Denied {
		e.Status = m.rule.status
	}
	c.Audit(e)
	if kind == Denied {
		c.countDenial(m.rule, m.key, time.Now())
	}
}

// countDenial counts a denial of key, and reports the key if there are too many.
func (c *check) countDenial(r *rule, key string, at time.Time) {
	if c.hot.add(key, at) {
		c.Audit(c.about(HotKey, r, key))
	}
}

// auditNear reports that the request crossed the last tenth of a quota.
func (c *check) auditNear(all []charged) {
	if len(all) == 0 || all[0].dryRun() {
		return
	}
	x := &all[0]
	left, before := x.decision.Remaining, x.decision.Remaining+x.n
	if left*10 < x.policy.atOnce && before*10 >= x.policy.atOnce {
		e := c.about(NearLimit, x.policy.rule, x.key)
		e.Policies, e.Limit = []string{x.policy.fields.Name}, x.policy.fields.Quota
		c.Audit(e)
	}
}

func (c *check) auditFailure(r *rule, key string, err error) {
	c.compiled.auditFailure(c.about(StoreFailed, r, key), r, err)
}

func (s *settlement) auditFailure(r *rule, key string, err error) {
	s.compiled.auditFailure(s.about(StoreFailed, r, key), r, err)
}

// auditFailure reports that the Store did not decide, and what was done instead. It sets
// failing last, so that a failure reported after a recovery is followed by another recovery.
func (c *compiled) auditFailure(e Event, r *rule, err error) {
	e.Mode, e.Err = r.modeAfter(err), err
	if isLate(err) {
		e.Kind = StoreLate
		c.Audit(e)
		return
	}
	c.Audit(e)
	c.failing.Store(true)
}

// auditSuccess reports that the Store decides again.
func (c *compiled) auditSuccess() {
	if c.failing.Load() && c.failing.CompareAndSwap(true, false) {
		c.Audit(Event{Kind: StoreRecovered})
	}
}

// auditLimits reports that the limits of m's key are unknown.
func (c *check) auditLimits(m match, err error) {
	e := c.about(LimitsFailed, m.rule, m.key)
	e.Err = err
	c.Audit(e)
}

// auditForwarding reports, from time to time, that a request was charged to its peer although
// its header names another client.
func (c *check) auditForwarding(r *rule, key string) {
	h := c.r.Header
	if len(h["X-Forwarded-For"])+len(h["Forwarded"])+len(h["X-Real-Ip"]) == 0 || !chargesPeer(c.r, key) {
		return
	}
	if c.disputes(r) {
		now := time.Now().Unix()
		if last := c.dispute.Load(); now-last >= 60 && c.dispute.CompareAndSwap(last, now) {
			c.Audit(c.about(ForwardingDisputed, r, key))
		}
		return
	}
	if len(c.r.Header["X-Forwarded-For"]) > 0 && !c.ignored.Load() && c.ignored.CompareAndSwap(false, true) {
		c.Audit(c.about(ForwardingIgnored, r, key))
	}
}

// disputes reports whether r's key is the address of a proxy whose fields disagree.
func (c *check) disputes(r *rule) bool {
	for _, key := range []Key{r.key, c.Key} {
		if key != nil && known(key).disputed != nil && known(key).disputed(c.r) {
			return true
		}
	}
	return false
}

// auditUnseen reports, once, that a rule did not see the response.
func (s *settlement) auditUnseen() {
	if s.r.Context().Err() == nil && !s.unseen.Load() && s.unseen.CompareAndSwap(false, true) {
		for i := range s.matches {
			if m := s.matches[i]; m.rule.needsResponse() {
				s.Audit(s.about(ResponseUnseen, m.rule, m.key))
				return
			}
		}
	}
}

// chargesPeer reports whether key is the peer's address, also inside Named or Join.
func chargesPeer(r *http.Request, key string) bool {
	peer := peerOf(r)
	return key == peer || strings.HasSuffix(key, ":"+peer) || strings.Contains(key, string(appendNetstring(nil, peer)))
}

// A warning is a probable mistake in a rule.
type warning struct {
	rule *rule
	err  error
}

// warnings returns the probable mistakes in c.
func (c *compiled) warnings() (all []warning) {
	for _, r := range c.rules {
		table, ok := LimitTable(nil), false
		if r.limits != nil {
			table, ok = r.limits.byKey.(LimitTable)
		}
		if !ok || r.key == nil || known(r.key).hashed == "" || len(table) == 0 {
			continue
		}
		isHash := func(key string) bool {
			b, err := hex.DecodeString(key)
			return err == nil && len(b) == sha256.Size/2
		}
		if unknown := len(table) - countFunc(maps.Keys(table), isHash); unknown > 0 {
			err := fmt.Errorf("%d of %d keys of Limits match nothing: %s is known by its hash, HashKey(%q, …)",
				unknown, len(table), known(r.key).text, known(r.key).hashed)
			all = append(all, warning{r, err})
		}
	}
	return all
}

func countFunc[T any](all iter.Seq[T], is func(T) bool) (n int) {
	for x := range all {
		n += boolInt(is(x))
	}
	return n
}
