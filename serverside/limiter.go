package serverside

import (
	"context"
	"net/http"
	"slices"
	"sync/atomic"
	"time"

	"github.com/heedhttp/heed/internal/remote"
	"github.com/heedhttp/heed/quota"
)

// A Limiter admits or denies requests by the rules of its Config. New makes one. It is safe for
// concurrent use by any number of handlers, and must not be copied. The zero Limiter admits
// everything until Reconfigure is called.
type Limiter struct {
	compiled atomic.Pointer[compiled]
	memory   quota.Memory // counts if Config.Memory is nil
	hot      hotKeys      // keys that are denied often
}

// New returns a Limiter for cfg. The error joins one *ConfigError for each fault of cfg. An
// unreachable Store is not a fault: the Limiter starts in the mode of OnStoreError, and uses
// the Store as soon as it is back.
func New(cfg Config) (*Limiter, error) {
	l := new(Limiter)
	if err := l.Reconfigure(cfg); err != nil {
		return nil, err
	}
	return l, nil
}

// Reconfigure replaces l's Config, at once and for all handlers. Requests that are being
// decided on keep the old one. If cfg has a fault, Reconfigure returns the error that New
// would, and nothing changes.
//
// Rules and policies that keep their name (for policies without one, their window) keep their
// counts, even if their numbers change: 40 of 60 spent become 40 of 600 spent. Counts do not
// move to another Store.
func (l *Limiter) Reconfigure(cfg Config) error {
	old := l.compiled.Load()
	c, err := compile(cfg, l)
	if err != nil {
		if old != nil {
			old.Audit(Event{Kind: ConfigRejected, Err: err})
		}
		return err
	}
	l.compiled.Store(c)
	c.Audit(Event{Kind: Configured, Hash: c.hash, Memory: c.Memory, Rules: slices.Clone(cfg.Rules)})
	for _, warning := range c.warnings() {
		c.Audit(Event{Kind: ConfigWarning, Rule: warning.rule.name, Pattern: warning.rule.pattern, Err: warning.err})
	}
	if old == nil || old.Store != c.Store {
		c.pingStore()
	}
	return nil
}

// pingStore reports a Store that cannot be reached.
func (c *compiled) pingStore() {
	store, ok := c.Store.(interface{ Ping(context.Context) error })
	if !ok {
		return
	}
	caller := &remote.Caller{Name: "serverside: the Store", Timeout: 5 * time.Second}
	go func() {
		_, err := remote.Do(context.Background(), caller, func(ctx context.Context) (struct{}, error) {
			return struct{}{}, store.Ping(ctx)
		}, nil)
		if err != nil {
			c.Audit(Event{Kind: StoreFailed, Mode: c.rules[0].mode, Err: storeError(err)})
			c.failing.Store(true)
		}
	}()
}

// Memory returns Config.Memory, or the Limiter's own if that is nil. Its Forgotten and Dropped
// show whether it is too small.
func (l *Limiter) Memory() *quota.Memory {
	if c := l.compiled.Load(); c != nil {
		return c.Memory
	}
	return &l.memory
}

// Wrap returns a handler that passes admitted requests to h and answers the others itself. If h
// is nil, http.DefaultServeMux:
//
//	http.ListenAndServe(":8080", limiter.Wrap(mux))
//
// Wrap the server's outermost handler, such as a framework's engine, rather than a group of
// routes: what a framework writes after its middleware has returned is not seen (Response).
// Handlers that take over whole connections, such as h2c.NewHandler, go around Wrap, because
// requests they serve themselves are not limited.
//
// The fields are set before h is called; h may change or delete them. If a rule with Settle,
// Penalty or Login applies, h gets a ResponseWriter that records the status and has the same
// optional methods as the server's; otherwise it gets the server's own.
//
// A request that meets l twice, because a handler inside h is wrapped too, is charged once. A
// request that h creates and serves itself is charged like any other. With a quota.LeakyBucket,
// admitted requests wait here until they are due; h is not called if the client disconnects
// meanwhile.
func (l *Limiter) Wrap(h http.Handler) http.Handler { return l.wrap(h, stages) }

// WrapEarly is Wrap for the rules of the BeforeAuth stage only. Put it in front of
// authentication, and Wrap behind it:
//
//	limiter.WrapEarly(authenticate(limiter.Wrap(mux)))
//
// So failed authentication is limited too, and rules of AfterAuth can use what authentication
// found out. Each rule is checked and charged once. If a rule of a later stage denies, the
// charges of earlier stages stay.
func (l *Limiter) WrapEarly(h http.Handler) http.Handler { return l.wrap(h, AfterAuth) }

// wrap checks the rules of the stages before until that were not checked yet.
func (l *Limiter) wrap(h http.Handler, until Stage) http.Handler {
	if h == nil {
		h = http.DefaultServeMux
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		compiled := l.compiled.Load()
		if compiled == nil {
			h.ServeHTTP(w, r)
			return
		}
		tracked, progress := l.progressOf(r)
		c := check{compiled: compiled, w: w, r: tracked, progress: progress}
		defer c.end(r)
		if compiled.exempts(r) {
			progress.exempt.Store(true)
		}
		from, ok := progress.claim(until)
		if !ok {
			h.ServeHTTP(w, tracked)
			return
		}
		var matches [stackCharges]match
		var charges [stackCharges]charged
		if all, ok := c.admits(matched{matches[:0], charges[:0]}, from, until); ok {
			c.serve(h, all)
		}
	})
}

// end frees the places in flight. It copies to r what handlers set in its copy and outer
// handlers read: the pattern that matched, and the multipart form whose files the server
// removes.
func (c *check) end(r *http.Request) {
	for _, hold := range c.holds {
		hold.Release()
	}
	if c.r != r {
		r.Pattern, r.MultipartForm = c.r.Pattern, c.r.MultipartForm
	}
}
