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

// maxKeys returns the number of keys to remember, given a field MaxKeys.
func maxKeys(n int) int {
	if n == 0 {
		return 1024
	}
	return n
}

// A Keyed limits the requests of each key: by default of each host.
//
//	pacer := &pace.Keyed{
//		Limit: 5, // a second
//		Key:   func(req *http.Request) string { return req.Header.Get("X-Account") },
//	}
//
// It is a heed.BoundedPacer. Do not change its fields or copy it after first use.
// Goroutines and Transports may share it. The zero Keyed admits nothing: Wait returns an
// error because Limit is missing. So it does if Burst or MaxKeys is negative.
type Keyed struct {
	// Limit is the number of requests of a key per second, in the long run. It must be
	// positive; rate.Inf means no limit.
	Limit rate.Limit

	// Burst is the number of requests of a key that may be sent at once after a pause. If
	// zero, 1. With a limit of one a second, Burst + 60 requests go in the first minute:
	// leave room for that if the server counts by windows.
	Burst int

	// Key returns what the limit applies to. If nil, it is scheme://host, in lower case
	// and without the default port. All requests with the key "" share a limit. Error
	// messages contain keys, so a key must not be a secret.
	Key func(*http.Request) string

	// MaxKeys is the number of keys to remember. If zero, 1,024.
	//
	// For a new key beyond that, the Keyed looks at about 32 keys and forgets one: one
	// with a full burst, which loses nothing, or else the least recently used, which
	// starts with a full burst if it returns. A key with waiting requests is not
	// forgotten.
	MaxKeys int

	hosts hostkey.Cache

	mu    sync.Mutex // guards the lines
	lines keyed.Table[bucketLine]
}

var _ heed.BoundedPacer = (*Keyed)(nil)

// PerHost returns a Keyed that admits r requests a second to each host, and burst of them
// at once after a pause:
//
//	Pacer: pace.PerHost(10, 1)                      // 10 a second
//	Pacer: pace.PerHost(rate.Every(time.Second), 1) // 60 a minute, evenly spaced
func PerHost(r rate.Limit, burst int) *Keyed {
	return &Keyed{Limit: r, Burst: burst}
}

// Wait blocks until req may be sent, for as long as its context allows.
func (k *Keyed) Wait(req *http.Request) error { return k.WaitAtMost(req, forever) }

// WaitAtMost blocks until req may be sent. It returns a *heed.OverdueError at once if
// that takes longer than most or reaches the deadline of req's context. If most is zero
// or negative, it does not wait.
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

// Observe returns a token if nothing was sent.
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

func (k *Keyed) behind(l *limit, ahead int64, now time.Time) time.Duration {
	k.mu.Lock()
	defer k.mu.Unlock()
	if line := k.lines.Find(hostkey.NameOf(l.key)); line != nil {
		return line.behindLocked(ahead, now)
	}
	return 0
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
