package live

import (
	"time"

	"github.com/heedhttp/heed/serverside"
)

// Instrument returns cfg with an Audit and an Observe that p learns from, and that then
// do what those of cfg do; without an Audit, what serverside.LogAudit does. Use it for
// each Reconfigure too; and for rules in a file, on the Config of the rulefile.Env.
//
// A request costs a fraction of a microsecond more, and waits for nobody: not for a
// viewer, and not for another request.
func (p *Page) Instrument(cfg serverside.Config) serverside.Config {
	audit, observe := cfg.Audit, cfg.Observe
	if audit == nil {
		audit = serverside.LogAudit(nil)
	}
	cfg.Audit = func(e serverside.Event) {
		p.audit(e, time.Now())
		audit(e)
	}
	cfg.Observe = func(o serverside.Observation) {
		p.observe(o, time.Now())
		if observe != nil {
			observe(o)
		}
	}
	return cfg
}

// observe counts a decision, and looks closer at some.
func (p *Page) observe(o serverside.Observation, now time.Time) {
	p.roll(now)
	if o.Verdict < serverside.Admitted || o.Verdict > serverside.Trusted {
		return
	}
	r := p.route(name{o.Rule, o.Pattern})
	if r.history.add(kind(o.Verdict - serverside.Admitted)) {
		r.keys.sample(o, now)
	}
}

// audit takes note of e.
func (p *Page) audit(e serverside.Event, now time.Time) {
	p.roll(now)
	switch e.Kind {
	case serverside.Denied:
		p.route(name{e.Rule, e.Pattern}).keys.deny(e.Key)
		p.denials.offer(e, now)
	case serverside.WouldDeny:
		p.route(name{e.Rule, e.Pattern}).history.add(would)
		p.denials.offer(e, now)
	case serverside.StoreFailed:
		if p.store.fail(e, now) {
			p.notices.add(e, now)
		}
	case serverside.StoreRecovered:
		p.store.recover()
		p.notices.add(e, now)
	case serverside.Configured: // which tells of a failure anew
		p.store.recover()
		p.rules.Store(rulesOf(e, now))
		p.notices.add(e, now)
	case serverside.ConfigRejected, serverside.ForwardingIgnored, serverside.HotKey, serverside.Penalized:
		p.notices.add(e, now)
	}
}
