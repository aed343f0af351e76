package live

import (
	"time"

	"github.com/heedhttp/heed/serverside"
)

// Instrument returns cfg with an Audit and an Observe that inform p and then call those of cfg.
// Without an Audit in cfg, Events go to serverside.LogAudit. Use it for each Reconfigure too,
// and for rule files on rulefile.Env.Config.
//
// It costs a fraction of a microsecond per request. Requests never wait for viewers; at most
// they wait for another request's update or for a copy of the data.
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

// observe counts a decision, and samples some keys.
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

// audit records e.
func (p *Page) audit(e serverside.Event, now time.Time) {
	switch e.Kind {
	case serverside.Denied:
		p.stats.of(ruleName{e.Rule, e.Pattern}).keys.deny(e.Key, now)
		p.denials.add(e, now)
	case serverside.WouldDeny:
		p.stats.of(ruleName{e.Rule, e.Pattern}).history.add(now.Unix(), wouldDeny)
		p.denials.add(e, now)
	case serverside.StoreFailed: // only the first of each outage is shown
		failing := &outage{now.UnixMilli(), e.Mode.String()}
		if p.outage.CompareAndSwap(nil, failing) {
			p.notices.add(e, now)
		}
	case serverside.StoreRecovered:
		p.outage.Store(nil)
		p.notices.add(e, now)
	case serverside.Configured: // the next failure is shown again
		p.outage.Store(nil)
		p.rules.Store(rulesOf(e, now))
		p.notices.add(e, now)
	case serverside.ConfigRejected, serverside.ForwardingIgnored, serverside.HotKey, serverside.Penalized:
		p.notices.add(e, now)
	}
}

// An outage is the time since which the Store fails.
type outage struct {
	Since int64  `json:"since"` // Unix milliseconds
	Mode  string `json:"mode"`  // the failure mode of the first failure
}
