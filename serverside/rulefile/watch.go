package rulefile

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/heedhttp/heed/serverside"
)

// A Source is where rules are stored instead of in a file, such as a redisstore.Document or a
// system for feature flags. Follow takes one.
type Source interface {
	// Read returns the current text. It must have a deadline of its own.
	Read(ctx context.Context) ([]byte, error)

	// Follow calls changed whenever the text may have changed, and returns when ctx is done. It
	// must not miss a change after Read. Calling changed at regular intervals is enough.
	Follow(ctx context.Context, changed func())
}

// A Watcher keeps a Limiter up to date with a rule file. Watch makes one.
//
// When the file changes, it is read, and put into effect at once if it is valid. If it is not,
// or is gone, the rules in effect stay, and Env.Config.Audit gets a serverside.ConfigRejected
// with all faults. Audit also gets a serverside.ConfigWarning for each of Listing.Warnings. A
// Watcher is safe for concurrent use. The zero Watcher is not usable.
type Watcher struct {
	// Limiter enforces the rules in effect.
	Limiter *serverside.Limiter

	name   string
	source Source
	env    Env
	cancel context.CancelFunc
	done   chan struct{} // closed when the Source has returned

	reading sync.Mutex // held while the file is read and put into effect
	data    []byte     // as last read; nil if that failed; guarded by reading

	mu  sync.Mutex
	err error // fault of the file; guarded by mu
}

// Watch reads a rule file and returns a Watcher that follows it until Close:
//
//	rules, err := rulefile.Watch("rules.yaml", rulefile.Env{Config: serverside.Config{Store: store}})
//
// If the file is invalid at the start, Watch returns the error that Parse would return. The
// file may be written in place, replaced by a rename, or be a symbolic link that changes, as in
// Kubernetes. It is read a moment after the last change, and every half minute in any case.
//
// Env.Config.Audit gets a serverside.Configured with the rules' hash at the start and after
// each change. If it is nil, these are logged to slog.Default.
func Watch(name string, env Env) (*Watcher, error) {
	f, err := open(name)
	if err != nil {
		return nil, err
	}
	w, err := Follow(name, f, nil, env)
	if err != nil {
		return nil, errors.Join(err, f.close())
	}
	return w, nil
}

// Follow is Watch for a Source. name names the text in faults; the text is JSON if name ends in
// ".json", and YAML otherwise.
//
// If the text is invalid at the start or cannot be read, fallback is in effect until there is a
// valid one, and Audit gets a serverside.ConfigRejected. With a nil fallback, Follow returns an
// error instead.
func Follow(name string, from Source, fallback []byte, env Env) (*Watcher, error) {
	ctx, cancel := context.WithCancel(context.Background())
	w := &Watcher{
		Limiter: new(serverside.Limiter), name: name, source: from, env: env,
		cancel: cancel, done: make(chan struct{}),
	}
	if err := w.start(fallback); err != nil {
		cancel()
		return nil, err
	}
	go func() {
		defer close(w.done)
		from.Follow(ctx, func() { w.refresh(ctx) })
	}()
	return w, nil
}

// start puts the text into effect, or else the fallback.
func (w *Watcher) start(fallback []byte) error {
	err := w.Reload()
	if err == nil || fallback == nil {
		return err
	}
	l, wrong := List(w.name, fallback, w.env)
	if wrong != nil {
		wrong = fmt.Errorf("rulefile: the fallback: %w", wrong)
	} else {
		wrong = w.apply(l)
	}
	if wrong != nil {
		return errors.Join(err, wrong)
	}
	w.reject(err)
	return nil
}

// Err returns what is wrong with the file as it was last read, or nil if it is in effect.
func (w *Watcher) Err() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.err
}

// Reload reads the file now instead of at the next change, and returns what is wrong with it.
// Audit must not call it.
func (w *Watcher) Reload() error {
	w.refresh(context.Background())
	return w.Err()
}

// Close stops following the file, and blocks until all goroutines have ended. The Limiter keeps
// its rules. Close returns nil. Audit must not call it.
func (w *Watcher) Close() error {
	w.cancel()
	<-w.done
	return nil
}

// refresh reads the file, and puts it into effect if it has changed.
func (w *Watcher) refresh(ctx context.Context) {
	w.reading.Lock()
	defer w.reading.Unlock()
	data, err := w.source.Read(ctx)
	switch {
	case ctx.Err() != nil:
	case err != nil && w.data == nil && w.Err() != nil:
		w.set(err) // not logged again, although the reason may differ
	case err != nil:
		w.data = nil
		w.reject(err)
	case w.data == nil || !bytes.Equal(data, w.data):
		w.data = append([]byte{}, data...) // a copy, and not nil
		if l, err := List(w.name, w.data, w.env); err != nil {
			w.reject(err)
		} else {
			w.set(w.apply(l))
		}
	}
}

// apply puts a file into effect.
func (w *Watcher) apply(l *Listing) error {
	if err := w.Limiter.Reconfigure(l.Config); err != nil {
		return err
	}
	if w.env.Config.Audit == nil { // otherwise Reconfigure has reported it
		w.audit(serverside.Event{Kind: serverside.Configured, Hash: w.Limiter.Hash()})
	}
	for _, warning := range l.own {
		w.audit(serverside.Event{Kind: serverside.ConfigWarning, Err: warning})
	}
	return nil
}

// reject keeps the rules in effect, and reports err unless there are none.
func (w *Watcher) reject(err error) {
	w.set(err)
	if w.Limiter.Hash() != "" {
		w.audit(serverside.Event{Kind: serverside.ConfigRejected, Err: err})
	}
}

func (w *Watcher) set(err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.err = err
}

func (w *Watcher) audit(e serverside.Event) {
	audit := w.env.Config.Audit
	if audit == nil {
		audit = serverside.LogAudit(nil)
	}
	audit(e)
}
