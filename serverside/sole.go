package serverside

import (
	"context"
	"net/http"

	"github.com/heedhttp/heed/quota"
)

// admitToSole is admit where there is one policy. Nothing is to be compared with it, so
// there is no trial unless it denies, or somebody is to be told that it soon may.
func (p *plan) admitToSole(w http.ResponseWriter, r *http.Request) bool {
	rule, aim, who := p.sole.rule, target{request: r}, identity{request: r, otherwise: p.Key}
	if !rule.matches(&aim) {
		return true
	}
	charges := []quota.Charge{{Key: who.of(rule), Limit: p.sole.limit, N: rule.units(r)}}
	if p.audited {
		p.auditForwarding(r, rule, charges[0].Key)
	}
	var space [1]quota.Decision
	decisions, _ := p.memory.Take(context.Background(), space[:0], charges...) // fails only on charges that compile does not make
	d := &decisions[0]
	if !d.Allowed || p.audited && p.sole.isNear(d) {
		t := &trial{[]*policy{p.sole}, charges, decisions}
		return p.sentence(w, r, t, nil) == admitted && turn(r.Context(), d.Delay)
	}
	if !p.FieldsOnDenialOnly {
		p.template.Set(w.Header(), p.sole.describe(d))
	}
	return turn(r.Context(), d.Delay)
}

// isNear reports whether less than a tenth of p is left.
func (p *policy) isNear(d *quota.Decision) bool { return d.Remaining*10 < p.atOnce }
