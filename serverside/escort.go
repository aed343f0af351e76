package serverside

import (
	"net/http"
	"time"
)

// An escort takes a request all the way: where a decision on rules is not all
// there is to do.
type escort struct {
	*plan
	limiter *Limiter
	visit   *visit
	w       http.ResponseWriter
	r       *http.Request
	entry   *rule // of the allow-list, if it matches
	trial   trial
	room    room      // of trial
	extras  []extra   // rules that matched and do more than charge
	places  []place   // that it holds
	begun   time.Time // if somebody observes
	outcome outcome
	local   bool // it was counted in this process, because the Store failed
}

// escort has h serve r if the rules of the stages from from to until admit it.
func (l *Limiter) escort(p *plan, w http.ResponseWriter, r *http.Request, h http.Handler, v *visit, from, until Stage) {
	if v != nil && v.passes {
		h.ServeHTTP(w, r)
		return
	}
	if p.exempts(r) {
		v.pass()
		h.ServeHTTP(w, r)
		return
	}
	e := &escort{plan: p, limiter: l, visit: v, w: w, r: r}
	e.trial = e.room.trial()
	defer e.release()
	if e.enter(from, until) {
		e.pass()
		if e.r != r {
			defer returned(r, e.r)
		}
		e.serve(h)
	}
}

// An extra is a rule that matched and does more than charge, with the Store's key
// and the units that it did charge.
type extra struct {
	rule *rule
	key  string
	cost int64
}

// meet keeps for later that r matched, and asks whether key is kept out.
func (e *escort) meet(r *rule, key string, cost int64) {
	e.extras = append(e.extras, extra{r, key, cost})
	if p := r.penalty; p != nil && p.First > 0 {
		c := e.trial.add(p.debt)
		c.Key, c.Limit, c.N, c.DryRun = key, p.debt.limit, 1, r.dryRun
	}
}

// enter reports whether the request is admitted.
func (e *escort) enter(from, until Stage) bool {
	if e.Observe != nil {
		e.begun = time.Now()
	}
	e.trial.charge(e.plan, e.applicable(from, until), e.r, e)
	if len(e.trial.charges)+len(e.extras) == 0 {
		return true
	}
	if e.expose != "" {
		e.w.Header().Add("Access-Control-Expose-Headers", e.expose)
	}
	return e.takePlaces() && e.decide()
}

// applicable are the rules that are asked.
func (e *escort) applicable(from, until Stage) []*rule {
	if e.entry = e.allowed(e.r); e.entry == nil {
		return e.between(from, until)
	}
	e.visit.pass()
	return []*rule{e.entry}
}

// between are the rules of the stages from from to until.
func (p *plan) between(from, until Stage) []*rule {
	rules := p.rules
	if until <= AfterAuth {
		rules = rules[:p.early]
	}
	if from > BeforeAuth {
		rules = rules[p.early:]
	}
	return rules
}

// decide reports whether the request is admitted to what it is charged.
func (e *escort) decide() bool {
	if len(e.trial.charges) > 0 {
		e.outcome = e.limiter.decide(e.plan, e.w, e.r, &e.trial, e)
	}
	e.observe(verdictOf(e.outcome, e.entry))
	if e.outcome == admitted && e.entry != nil {
		e.Audit(about(Bypassed, e.entry, e.trial.charges[0].Key))
	}
	return e.outcome == uncounted || e.outcome == admitted && turn(e.r.Context(), e.trial.delay())
}

// takePlaces reports whether the request may be served beside those that are.
func (e *escort) takePlaces() bool {
	for _, x := range e.extras {
		if x.rule.inFlight > 0 && !e.takePlace(x) {
			e.observe(Refused)
			return false
		}
	}
	return true
}

func (e *escort) takePlace(x extra) bool {
	key := x.rule.inFlightKey(x.key)
	place := e.gates.acquire(e.r.Context(), key, x.rule.inFlight)
	if place.hold == nil {
		place.release() // its context
	}
	if place.err != nil {
		e.auditFailure(x.rule, x.key, place.err)
		switch x.rule.mode {
		case FailOpen:
			e.outcome = uncounted // unless the Store decides on something else
			return true
		case FailClosed:
			e.refuse(e.w, e.r, e.outageOf(x.rule))
			return false
		}
		place = acquireIn(e.r.Context(), e.gates.local, key, x.rule.inFlight)
	} else if len(e.trial.charges) == 0 { // otherwise the Store may still fail
		e.auditSuccess()
	}
	if place.hold != nil {
		e.places = append(e.places, place)
		return true
	}
	if x.rule.dryRun {
		e.auditCrowd(WouldDeny, x)
		return true
	}
	e.auditCrowd(Denied, x)
	e.refuse(e.w, e.r, crowdOf(x.rule))
	return false
}

// release gives places back.
func (e *escort) release() {
	for i := range e.places {
		e.places[i].release()
	}
}
