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

// An Event is something that a Limiter did, for a log or an alarm. It holds no
// client's address, unless Config.AuditAddresses is set, no token or other secret; what Err
// says is up to the Store.
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

	// Address is the client's, if Config.AuditAddresses is set.
	Address string

	// Wait is how long it is until the request fits; 0 if it never does.
	Wait time.Duration

	// Status is that of the denial, if there is one.
	Status int

	// Mode is what was done about a Store that failed.
	Mode FailureMode

	// Err is a *StoreError, or what is wrong with a Config.
	Err error

	// Hash is Limiter.Hash, of Configured.
	Hash string

	// Memory is Limiter.Memory, of Configured, for its Forgotten and Dropped.
	Memory *quota.Memory `json:"-"`

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

	// StoreFailed is a request that the Store did not decide on; or, without a Rule, that
	// a Store could not be reached when New asked it.
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

	// StoreLate is a request that was counted in this process because it is this process
	// that is late, and not the Store that is gone: StoreError.Late.
	StoreLate

	// ForwardingDisputed is a request of a trusted proxy with fields that say different
	// clients, which was charged to the proxy's address. It is told once a minute.
	ForwardingDisputed

	// ResponseUnseen is a request whose response a rule with Settle, Penalty or Login has
	// not seen (Response), although its client waits for it. It is told once by each New
	// and Reconfigure.
	ResponseUnseen

	// ConfigWarning is something in a Config that is no fault, and likely a mistake: a
	// rule whose Limits can never know a key, say. Err says what.
	ConfigWarning

	kinds // the end of them
)

var kindNames = [...]string{"", "denied", "would deny", "store failed", "forwarding ignored", "store recovered",
	"limits failed", "near limit", "hot key", "bypassed", "penalized", "configured", "config rejected",
	"store late", "forwarding disputed", "response unseen", "config warning"}

// String is the kind in lower case, such as "would deny".
func (k EventKind) String() string {
	if k < Denied || k >= kinds {
		return fmt.Sprintf("EventKind(%d)", int(k))
	}
	return kindNames[k]
}

// about is an Event about r and the Store's key.
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

// addressOf is the client's address, for people.
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

// auditDenial tells of denying, which d sums up.
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

// auditFull tells of a request that found all places of a rule taken.
func (c *check) auditFull(kind EventKind, m match) {
	e := c.about(kind, m.rule, m.key)
	e.Limit, e.Wait = m.rule.inFlight, fullWait
	if kind == Denied {
		e.Status = m.rule.status
	}
	c.Audit(e)
	if kind == Denied {
		c.countDenial(m.rule, m.key, time.Now())
	}
}

// countDenial counts a denial of key at a time, and tells when there are too many.
func (c *check) countDenial(r *rule, key string, at time.Time) {
	if c.hot.add(key, at) {
		c.Audit(c.about(HotKey, r, key))
	}
}

// auditNear tells that a request leaves less than a tenth of a quota, of which
// there was more before.
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

// auditFailure tells that the Store did not decide, and what is done about it. It is
// noted last, so that whoever is told of failures that overtake a recovery is told
// of another recovery after them.
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

// auditSuccess tells that the Store decides again.
func (c *compiled) auditSuccess() {
	if c.failing.Load() && c.failing.CompareAndSwap(true, false) {
		c.Audit(Event{Kind: StoreRecovered})
	}
}

// auditLimits tells that the limits of m's key are not known.
func (c *check) auditLimits(m match, err error) {
	e := c.about(LimitsFailed, m.rule, m.key)
	e.Err = err
	c.Audit(e)
}

// auditForwarding tells, now and then, that a request was charged to its peer although
// its header says that it is another's.
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

// disputes reports whether the key of r is an address about which a proxy's fields
// disagree.
func (c *check) disputes(r *rule) bool {
	for _, key := range []Key{r.key, c.Key} {
		if key != nil && known(key).disputed != nil && known(key).disputed(c.r) {
			return true
		}
	}
	return false
}

// auditUnseen tells, once, that nobody knows what a request was answered.
func (s *settlement) auditUnseen() {
	if s.r.Context().Err() == nil && !s.unseen.Load() && s.unseen.CompareAndSwap(false, true) {
		for i := range s.matches {
			if m := s.matches[i]; m.rule.follows() {
				s.Audit(s.about(ResponseUnseen, m.rule, m.key))
				return
			}
		}
	}
}

// chargesPeer reports whether key is the peer's address, or that Named or in a Join.
func chargesPeer(r *http.Request, key string) bool {
	peer := peerOf(r)
	return key == peer || strings.HasSuffix(key, ":"+peer) || strings.Contains(key, string(appendNetstring(nil, peer)))
}

// A warning is what is likely a mistake in a rule.
type warning struct {
	rule *rule
	err  error
}

// warnings are what is likely a mistake in c.
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
			err := fmt.Errorf("%d of %d keys of its Limits match nothing: %s is known by its hash, HashKey(%q, …)",
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
