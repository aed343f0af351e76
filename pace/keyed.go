package pace

import (
	"context"
	"fmt"
	"net/http"
	"sync"
	"time"

	"golang.org/x/time/rate"

	"github.com/heedhttp/heed"
	"github.com/heedhttp/heed/internal/hostkey"
	"github.com/heedhttp/heed/internal/keyed"
)

// maxKeys is how many keys a pacer remembers whose MaxKeys is n.
func maxKeys(n int) int {
	if n == 0 {
		return 1024
	}
	return n
}

// A Keyed paces the requests of each key with a rate.Limiter of its own. It
// is a heed.BoundedPacer. Its fields must not be changed, nor the Keyed be
// copied, after first use. It may be used by any number of goroutines, and
// shared by Transports.
//
// The zero Keyed lets nothing go: its Limit is missing, and Wait says so.
type Keyed struct {
	// Limit is how many requests of a key may be sent each second, in the long
	// run. It must be positive. rate.Inf is no limit.
	Limit rate.Limit

	// Burst is how many requests of a key may be sent at once, after it was
	// idle for long enough. If zero, 1. In the first minute of a limit of one a
	// second, Burst + 60 go: where a server counts by windows, leave room for it.
	Burst int

	// Key is what the limit applies to. If nil, scheme://host, in lower case
	// and without the default port. All requests whose key is "" share one.
	// A key is part of error messages, so it must not be a secret.
	Key func(*http.Request) string

	// MaxKeys is how many keys are remembered. If zero, 1,024.
	//
	// When one more comes, one of some 32 is forgotten: one whose burst is whole,
	// since it would be the same if it had been remembered, or else the least
	// recently used; should that come again, it starts with a whole burst. A key
	// with requests in line is not forgotten.
	MaxKeys int

	hosts hostkey.Cache

	mu    sync.Mutex // guards the lines
	lines keyed.Table[bucketLine]
}

var _ heed.BoundedPacer = (*Keyed)(nil)

// PerHost lets r requests a second go to each host, and burst of them at once.
// It is short for a Keyed with these two fields.
func PerHost(r rate.Limit, burst int) *Keyed {
	return &Keyed{Limit: r, Burst: burst}
}

// Wait blocks until req may be sent, for as long as its context allows.
func (k *Keyed) Wait(req *http.Request) error { return k.WaitAtMost(req, forever) }

// WaitAtMost blocks until req may be sent. If that is later than most from
// now, or not before the deadline of req's context, it returns a
// *heed.OverdueError at once. If most is zero or negative, there is no wait.
func (k *Keyed) WaitAtMost(req *http.Request, most time.Duration) error {
	ctx := req.Context()
	if ctx.Err() != nil {
		return ended(ctx)
	}
	w, err := k.join(ctx, k.key(req), most)
	if w == nil {
		return err
	}
	return w.wait(ctx, nil)
}

// Observe gives a token back if nothing was sent.
func (k *Keyed) Observe(a heed.Attempt) {
	if a.Err != heed.ErrNotSent {
		return
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	if l := k.lines.Find(hostkey.NameOf(k.key(a.Request))); l != nil {
		l.giveBackLocked(time.Now())
	}
}

func (k *Keyed) key(req *http.Request) string {
	if k.Key != nil {
		return k.Key(req)
	}
	return k.hosts.Key(req.URL.Scheme, req.URL.Host)
}

func (k *Keyed) join(ctx context.Context, key string, most time.Duration) (*waiter, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	now := time.Now()
	name := hostkey.NameOf(key)
	l := k.lines.Find(name)
	if l == nil {
		if err := k.check(); err != nil {
			return nil, err
		}
		k.lines.Most = maxKeys(k.MaxKeys)
		l = k.lines.Get(name, func(l *bucketLine) keyed.State { return l.stateLocked(k.burst(), now) })
		l.start(&k.mu, rate.NewLimiter(k.Limit, k.burst()), true)
	}
	return l.joinLocked(ctx, key, most, now)
}

// check returns an error that names the first field that is wrong.
func (k *Keyed) check() error {
	switch {
	case !(k.Limit > 0): // or not a number
		return fmt.Errorf("pace: Keyed.Limit is %v: it must be positive", float64(k.Limit))
	case k.Burst < 0:
		return fmt.Errorf("pace: Keyed.Burst is %d: it must not be negative", k.Burst)
	case k.MaxKeys < 0:
		return fmt.Errorf("pace: Keyed.MaxKeys is %d: it must not be negative", k.MaxKeys)
	}
	return nil
}

func (k *Keyed) burst() int {
	if k.Burst == 0 {
		return 1
	}
	return k.Burst
}
