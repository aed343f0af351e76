package pace

import (
	"container/list"
	"context"
	"fmt"
	"math"
	"net/http"
	"strings"
	"sync"
	"time"

	"golang.org/x/time/rate"

	"github.com/heedhttp/heed"
	"github.com/heedhttp/heed/internal/hostkey"
)

const (
	defaultMaxKeys = 1024
	mostLooks      = 32 // at lines, to find one to forget
)

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
	// idle for long enough. If zero, 1.
	Burst int

	// Key is what the limit applies to. If nil, scheme://host, in lower case
	// and without the default port. All requests whose key is "" share one.
	// A key is part of error messages, so it must not be a secret.
	Key func(*http.Request) string

	// MaxKeys is how many keys are remembered. If zero, 1,024.
	//
	// When one more comes, one of the 32 least recently used is forgotten: the
	// oldest whose burst is whole, since it would be the same if it had been
	// remembered. If there is none, that one which has most of its burst; should
	// it come again, it starts with a whole one. A key with requests in line is
	// not forgotten, so there are more than MaxKeys if the 32 are waited for.
	MaxKeys int

	hosts hostkey.Cache

	mu     sync.Mutex               // guards all below, and the lines
	lines  map[string]*list.Element // of recent, by key
	recent list.List                // of *keyedLine, the most recently used first
}

var _ heed.BoundedPacer = (*Keyed)(nil)

type keyedLine struct {
	key string
	line
}

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
	key := k.key(req)
	w, err := k.join(ctx, key, most)
	if w == nil {
		return err
	}
	return w.wait(ctx)
}

// Observe gives the turn back if nothing was sent.
func (k *Keyed) Observe(a heed.Attempt) {
	if a.Err != heed.ErrNotSent {
		return
	}
	key := k.key(a.Request)
	k.mu.Lock()
	defer k.mu.Unlock()
	if place := k.lines[key]; place != nil {
		place.Value.(*keyedLine).giveBackLocked(time.Now())
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
	l, err := k.lineLocked(key, now)
	if err != nil {
		return nil, err
	}
	return l.joinLocked(ctx, key, most, now)
}

// lineLocked returns the line of key, as the most recently used one.
func (k *Keyed) lineLocked(key string, now time.Time) (*keyedLine, error) {
	if place := k.lines[key]; place != nil {
		k.recent.MoveToFront(place)
		return place.Value.(*keyedLine), nil
	}
	if err := k.check(); err != nil {
		return nil, err
	}
	if k.lines == nil {
		k.lines = make(map[string]*list.Element)
	}
	if len(k.lines) >= k.maxKeys() {
		k.forgetLocked(now)
	}
	key = strings.Clone(key) // it may be a part of something large
	limiter := rate.NewLimiter(min(k.Limit, rate.Inf), k.burst())
	l := &keyedLine{key, line{mu: &k.mu, limiter: limiter, own: true}}
	k.lines[key] = k.recent.PushFront(l)
	return l, nil
}

// forgetLocked makes room for a key, if it can.
func (k *Keyed) forgetLocked(now time.Time) {
	var (
		least *list.Element
		most  = math.Inf(-1)
	)
	place := k.recent.Back()
	for looks := 0; looks < mostLooks && place != nil && most < float64(k.burst()); looks++ {
		l := place.Value.(*keyedLine)
		if tokens := l.limiter.TokensAt(now); l.waiting.Len() == 0 && tokens > most {
			least, most = place, tokens
		}
		place = place.Prev()
	}
	if least != nil {
		delete(k.lines, least.Value.(*keyedLine).key)
		k.recent.Remove(least)
	}
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

func (k *Keyed) maxKeys() int {
	if k.MaxKeys == 0 {
		return defaultMaxKeys
	}
	return k.MaxKeys
}
