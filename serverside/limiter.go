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

// A Limiter admits or denies requests. It is safe for concurrent use, by any
// number of handlers, and must not be copied. The zero Limiter admits all
// requests until it is Reconfigured.
type Limiter struct {
	compiled atomic.Pointer[compiled]
	memory   quota.Memory // what counts if Config.Memory is nil
	hot      hotKeys      // who is denied
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

// pingStore tells of a Store that cannot be reached.
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

// Memory returns what counts without a Store, and for FailLocal: Config.Memory, or one of
// l's own. Its Forgotten and Dropped say whether it is too small.
func (l *Limiter) Memory() *quota.Memory {
	if c := l.compiled.Load(); c != nil {
		return c.Memory
	}
	return &l.memory
}

// Wrap returns a handler that has h serve what l admits. If h is nil,
// http.DefaultServeMux.
//
// The fields of a response are in its header before h is called, so h may write
// early, fail or panic, and may change or delete them. h gets the ResponseWriter
// that the server made, unless a rule with Settle, Penalty or Login applies, which has to
// see the status: then h gets one with the methods that net/http's own has. A request that
// meets l again on its way through h, in another handler that l wraps, is not charged
// again; a request that h makes itself and serves is one of its own. What a quota.LeakyBucket admits
// waits here for its turn; if its client goes meanwhile, h is not called.
//
// Wrap the handler that is the server's, such as a framework's engine, rather than a
// group of its routes: what a framework writes when its middleware has returned is not
// seen (Response). What takes over whole connections, such as h2c.NewHandler, belongs
// around Wrap: what it serves itself is not limited.
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
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		compiled := l.compiled.Load()
		if compiled == nil {
			h.ServeHTTP(w, r)
			return
		}
		marked, progress := l.progressOf(r)
		c := check{compiled: compiled, w: w, r: marked, progress: progress}
		defer c.end(r)
		if compiled.exempts(r) {
			progress.exempt.Store(true)
		}
		from, ok := progress.claim(until)
		if !ok {
			h.ServeHTTP(w, marked)
			return
		}
		var matches [few]match
		var charges [few]charged
		if all, ok := c.admits(matched{matches[:0], charges[:0]}, from, until); ok {
			c.serve(h, all)
		}
	})
}

// end gives back the places in flight, and gives r what handlers have set in its copy for
// those around them: the pattern that matched, and the files that the server is to remove.
func (c *check) end(r *http.Request) {
	for _, hold := range c.holds {
		hold.Release()
	}
	if c.r != r {
		r.Pattern, r.MultipartForm = c.r.Pattern, c.r.MultipartForm
	}
}
