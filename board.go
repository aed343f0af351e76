package heed

import (
	"context"
	"sync/atomic"
	"time"

	"github.com/heedhttp/heed/internal/hostkey"
)

// A Board is where cool-downs are posted: what one worker is told, all obey.
// Implementations must be safe for concurrent use.
type Board interface {
	// Post makes key wait at least wait from now; it never shortens what was
	// posted before. every is the interval at which the server admits requests
	// of key, 0 if unknown. It is that of the policy that denied one: if others
	// deny meanwhile, the longest interval holds until the cool-down is over.
	Post(ctx context.Context, key string, wait, every time.Duration) error
	// Read reports what is left, and the interval, which is to be told for as
	// long as there may be waiters: they follow one that has become longer. It
	// is called before every attempt, and answers from memory.
	Read(ctx context.Context, key string) (wait, every time.Duration, err error)
}

// NoBoard is a Board that keeps nothing: each request waits for itself alone.
var NoBoard Board = noBoard{}

type noBoard struct{}

func (noBoard) Post(context.Context, string, time.Duration, time.Duration) error { return nil }
func (noBoard) Read(context.Context, string) (wait, every time.Duration, err error) {
	return 0, 0, nil
}

// A LocalBoard holds the cool-downs of one process. Its zero value is ready to
// use; shared by pointer, it lets the Transports that share it wait in one line
// for each key. Keys whose cool-down is over are forgotten, and at 65,536 keys
// others as well. It must not be copied.
type LocalBoard struct {
	used  atomic.Bool // whether anything was ever posted: until then there is nothing to look up
	lanes rows[lane]
}

// longestCoolDown is where a posted wait saturates: no server means longer.
const longestCoolDown = 24 * time.Hour

// Post makes key wait at least wait from now, at most 24 hours. It returns nil.
func (b *LocalBoard) Post(_ context.Context, key string, wait, every time.Duration) error {
	b.post(hostkey.NameOf(key), now(), wait, unnamed(every))
	return nil
}

// Read reports what is left of key's cool-down. It returns a nil error.
func (b *LocalBoard) Read(_ context.Context, key string) (wait, every time.Duration, err error) {
	if l := b.closed(hostkey.NameOf(key)); l != nil {
		wait, every = l.left(now())
	}
	return wait, every, nil
}

func (b *LocalBoard) post(key hostkey.Name, now, wait time.Duration, denials []denial) {
	if wait > 0 {
		b.used.Store(true)
		b.lane(key).post(now, min(wait, longestCoolDown), denials)
	}
}

// closed returns key's lane, or nil if it is open: then nothing is to be waited
// for. It costs a request to a key that was never cooled a few nanoseconds.
func (b *LocalBoard) closed(key hostkey.Name) *lane {
	if !b.used.Load() {
		return nil
	}
	l := b.lane(key)
	if l.open() {
		return nil
	}
	return l
}

func (b *LocalBoard) lane(key hostkey.Name) *lane {
	if l := b.lanes.recall(key); l != nil {
		return l
	}
	return b.lanes.get(key, (*lane).idle)
}

// hear is post for what another process may have posted: read again and again,
// the same cool-down ends a little later or earlier each time, and the interval
// grows with the number of those who share it.
func (b *LocalBoard) hear(key hostkey.Name, now, wait, every time.Duration) {
	l := b.lane(key)
	if left, _ := l.left(now); wait > left+time.Millisecond {
		b.post(key, now, wait, unnamed(every))
	}
	l.slow(now, every)
}
