package serverside

import (
	"net/http"
	"slices"
	"sync/atomic"

	"github.com/heedhttp/heed/quota"
)

// A Limiter admits or denies requests. It is safe for concurrent use, by any
// number of handlers, and must not be copied. The zero Limiter admits all
// requests until it is Reconfigured.
type Limiter struct {
	plan  atomic.Pointer[plan]
	local quota.Memory // what counts without a Store, or while it fails
	heat  heat         // who is denied
	wraps atomic.Int64 // calls of Wrap and WrapEarly
}

// New returns a Limiter that does what cfg says. The error joins a *ConfigError
// for each fault of cfg. A Store that cannot be reached is none: the Limiter
// starts, does what OnStoreError says, and counts as soon as the Store does.
func New(cfg Config) (*Limiter, error) {
	l := new(Limiter)
	if err := l.Reconfigure(cfg); err != nil {
		return nil, err
	}
	return l, nil
}

// Reconfigure replaces what l does by cfg, at once and for all handlers; requests
// that are being decided on are decided as before. If there is an error, as New
// would return it, nothing changes.
//
// What keys have spent stays spent in rules and policies that keep their name
// (policies without one, their window), also where their numbers change: 40 of
// 60 spent are 40 of 600 spent. This does not hold from one Store to another.
func (l *Limiter) Reconfigure(cfg Config) error {
	p, err := compile(cfg, l)
	if err != nil {
		if old := l.plan.Load(); old != nil {
			old.Audit(Event{Kind: ConfigRejected, Err: err})
		}
		return err
	}
	l.plan.Store(p)
	p.Audit(Event{Kind: Configured, Hash: p.hash, Rules: slices.Clone(cfg.Rules)})
	return nil
}

// Wrap returns a handler that has h serve what l admits. If h is nil,
// http.DefaultServeMux.
//
// The fields of a response are in its header before h is called, so h may write
// early, fail or panic, and may change or delete them. h gets the ResponseWriter
// that the server made, with all its methods, unless a rule with Settle or Penalty
// applies, which has to see the status: then h gets one with the methods of
// net/http's own. A request that meets l again on
// its way through h, in another handler that l wraps, is not charged again. What a
// quota.LeakyBucket admits waits here for its turn; if its client goes meanwhile, h is
// not called.
func (l *Limiter) Wrap(h http.Handler) http.Handler { return l.wrap(h, stages) }

// WrapEarly is Wrap for rules of the BeforeAuth stage only. Put it in front of
// authentication, and Wrap, which asks the other rules, behind it:
//
//	limiter.WrapEarly(authenticate(limiter.Wrap(mux)))
//
// So those who cannot authenticate are limited too, and rules can be about who is
// authenticated. Each rule is asked and charged once. What a rule of an earlier
// stage was charged stays charged if a later one denies.
func (l *Limiter) WrapEarly(h http.Handler) http.Handler { return l.wrap(h, AfterAuth) }

// wrap asks the rules of the stages before until that have not been asked yet.
func (l *Limiter) wrap(h http.Handler, until Stage) http.Handler {
	if h == nil {
		h = http.DefaultServeMux
	}
	l.wraps.Add(1)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		p := l.plan.Load()
		switch {
		case p == nil:
			h.ServeHTTP(w, r)
		case l.wraps.Load() > 1:
			l.visited(p, w, r, h, until)
		case !p.plain || until != stages:
			l.escort(p, w, r, h, nil, BeforeAuth, until)
		case l.admit(p, w, r):
			h.ServeHTTP(w, r)
		}
	})
}

// visited serves a request that may meet l again, or has met it.
func (l *Limiter) visited(p *plan, w http.ResponseWriter, r *http.Request, h http.Handler, until Stage) {
	marked, v := l.meet(r)
	if marked != r {
		defer returned(r, marked)
	}
	from, ok := v.begin(until)
	switch {
	case !ok:
		h.ServeHTTP(w, marked)
	case !p.plain || until-from != stages:
		l.escort(p, w, marked, h, v, from, until)
	case l.admit(p, w, marked):
		h.ServeHTTP(w, marked)
	}
}

// returned gives r what handlers have set in its copy for those around them: the
// pattern that matched, and the files that the server is to remove.
func returned(r, copied *http.Request) {
	r.Pattern, r.MultipartForm = copied.Pattern, copied.MultipartForm
}

// admit reports whether r is admitted by all rules. If so, its response has its
// fields; if not, the response is written.
func (l *Limiter) admit(p *plan, w http.ResponseWriter, r *http.Request) bool {
	if p.sole != nil {
		return p.admitToSole(w, r)
	}
	var n room
	t := n.trial()
	t.charge(p, p.rules, r, nil)
	if len(t.charges) == 0 {
		return true
	}
	o := l.decide(p, w, r, &t, nil)
	return o == uncounted || o == admitted && turn(r.Context(), t.delay())
}

// decide decides on the charges of t, and writes what the client is to know. e is
// nil where there is nothing but rules to look after.
func (l *Limiter) decide(p *plan, w http.ResponseWriter, r *http.Request, t *trial, e *escort) outcome {
	if err := t.take(p, r); err != nil {
		if o := l.cope(p, w, r, t, err); o != admitted {
			return o
		}
		if e != nil {
			e.local = true
		}
	} else if p.remote != nil {
		p.auditSuccess()
		t.remember(&l.local)
	}
	t.judge()
	return p.sentence(w, r, t, e)
}

// cope does what is to be done while the Store fails. If t is counted in this
// process instead, it is admitted so far.
func (l *Limiter) cope(p *plan, w http.ResponseWriter, r *http.Request, t *trial, err error) outcome {
	i := t.strictest()
	failing := t.policies[i].rule
	p.auditFailure(failing, t.charges[i].Key, err)
	switch failing.mode {
	case FailOpen:
		return uncounted
	case FailClosed:
		p.refuse(w, r, p.outageOf(failing))
		return denied
	}
	t.keepLocal()
	t.count(&l.local)
	return admitted
}

// An outcome is what was decided.
type outcome int

const (
	admitted  outcome = iota
	denied            // the response is written
	uncounted         // nobody knows, and so it is admitted
)
