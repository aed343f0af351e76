package serverside

import (
	"context"
	"net/http"
	"sync/atomic"

	"github.com/heedhttp/heed/quota"
)

// A Limiter admits or denies requests. It is safe for concurrent use, by any
// number of handlers, and must not be copied. The zero Limiter admits all
// requests until it is Reconfigured.
type Limiter struct {
	plan  atomic.Pointer[plan]
	local quota.Memory // what counts without a Store, or while it fails
	wraps atomic.Int64 // calls of Wrap
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
	p, err := compile(cfg, &l.local)
	if err != nil {
		return err
	}
	l.plan.Store(p)
	return nil
}

// Wrap returns a handler that has h serve what l admits. If h is nil,
// http.DefaultServeMux.
//
// The fields of a response are in its header before h is called, so h may write
// early, fail or panic, and may change or delete them. h gets the ResponseWriter
// that the server made, with all its methods. A request that meets l again on
// its way through h, in another handler that l wraps, is not charged again. What a
// quota.LeakyBucket admits waits here for its turn; if its client goes meanwhile, h is
// not called.
func (l *Limiter) Wrap(h http.Handler) http.Handler {
	if h == nil {
		h = http.DefaultServeMux
	}
	l.wraps.Add(1)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		marked, met := l.meet(r)
		if marked != r {
			defer returned(r, marked)
		}
		if met || l.admit(w, marked) {
			h.ServeHTTP(w, marked)
		}
	})
}

// returned gives r what handlers have set in its copy for those around them: the
// pattern that matched, and the files that the server is to remove.
func returned(r, copied *http.Request) {
	r.Pattern, r.MultipartForm = copied.Pattern, copied.MultipartForm
}

// meet reports whether r has met l before, and returns r as one that has. Where
// l wraps one handler only, nobody will ask.
func (l *Limiter) meet(r *http.Request) (*http.Request, bool) {
	if l.wraps.Load() == 1 {
		return r, false
	}
	if r.Context().Value(l) != nil {
		return r, true
	}
	return r.WithContext(context.WithValue(r.Context(), l, true)), false
}

// admit reports whether r is admitted. If so, its response has its fields; if
// not, the response is written.
func (l *Limiter) admit(w http.ResponseWriter, r *http.Request) bool {
	p := l.plan.Load()
	switch {
	case p == nil:
		return true
	case p.most == 1:
		var n nook
		return l.try(p, w, r, &trial{n.policies[:0], n.charges[:0], n.decisions[:0], n.limits[:0]})
	default:
		return l.admitFew(p, w, r)
	}
}

// admitFew is admit with more room, which is cleared only where it is needed.
func (l *Limiter) admitFew(p *plan, w http.ResponseWriter, r *http.Request) bool {
	var n room
	return l.try(p, w, r, &trial{n.policies[:0], n.charges[:0], n.decisions[:0], n.limits[:0]})
}

func (l *Limiter) try(p *plan, w http.ResponseWriter, r *http.Request, t *trial) bool {
	t.charge(p, r)
	if len(t.charges) == 0 {
		return true
	}
	err := t.take(p, r)
	if err == nil && p.remote != nil {
		t.remember(&l.local)
	}
	if err != nil {
		i := t.strictest()
		failing := t.policies[i].rule
		p.auditFailure(failing, t.charges[i].Key, err)
		switch failing.mode {
		case FailOpen:
			return true
		case FailClosed:
			p.refuse(w, r, outageOf(failing))
			return false
		}
		t.keepLocal()
		t.count(&l.local)
	}
	t.judge()
	return p.sentence(w, r, t) && t.turn(r.Context())
}
