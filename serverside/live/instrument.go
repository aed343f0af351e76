package live

import (
	"time"

	"github.com/heedhttp/heed/serverside"
)

// Instrument returns cfg with an Audit and an Observe that p learns from, and that then
// do what those of cfg do; without an Audit, what serverside.LogAudit does. Use it for
// each Reconfigure too; and for rules in a file, on the Config of the rulefile.Env.
//
// A request costs a fraction of a microsecond more. It waits for no viewer; for another
// request, or for what is known to be copied for a viewer, it waits no longer than that
// takes.
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

var outcomeOf = map[serverside.Verdict]outcome{
	serverside.Admitted:  admitted,
	serverside.Refused:   denied,
	serverside.Uncounted: uncounted,
	serverside.Trusted:   trusted,
}

// observe counts a decision, and samples some.
func (p *Page) observe(o serverside.Observation, now time.Time) {
	counted, ok := outcomeOf[o.Verdict]
	if !ok {
		return
	}
	s := p.stats.of(ruleName{o.Rule, o.Pattern})
	if s.history.add(now.Unix(), counted) {
		s.keys.sample(o, now)
	}
}

// audit keeps what e says.
func (p *Page) audit(e serverside.Event, now time.Time) {
	switch e.Kind {
	case serverside.Denied:
		p.stats.of(ruleName{e.Rule, e.Pattern}).keys.deny(e.Key, now)
		p.denials.add(e, now)
	case serverside.WouldDeny:
		p.stats.of(ruleName{e.Rule, e.Pattern}).history.add(now.Unix(), wouldDeny)
		p.denials.add(e, now)
	case serverside.StoreFailed: // of each outage, the first is shown
		failing := &outage{now.UnixMilli(), e.Mode.String()}
		if p.outage.CompareAndSwap(nil, failing) {
			p.notices.add(e, now)
		}
	case serverside.StoreRecovered:
		p.outage.Store(nil)
		p.notices.add(e, now)
	case serverside.Configured: // then a failure is reported anew
		p.outage.Store(nil)
		p.rules.Store(rulesOf(e, now))
		p.notices.add(e, now)
	case serverside.ConfigRejected, serverside.ForwardingIgnored, serverside.HotKey, serverside.Penalized:
		p.notices.add(e, now)
	}
}

// An outage is a Store that fails since a moment.
type outage struct {
	Since int64  `json:"since"` // Unix milliseconds
	Mode  string `json:"mode"`  // what was done about it first
}
