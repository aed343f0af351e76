package rulefile

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/heedhttp/heed/serverside"
)

// A Source is where rules are kept in place of a file: a text in Redis, such as a
// redisstore.Document, or in a system for feature flags.
type Source interface {
	// Read returns the text as it is now. It has a deadline of its own.
	Read(ctx context.Context) ([]byte, error)

	// Follow calls changed whenever the text may have changed, also if it has not,
	// until ctx is over; then it returns. It must not miss a change between Read and
	// Follow: it is enough to call changed in an interval.
	Follow(ctx context.Context, changed func())
}

// A Watcher has a Limiter follow a rule file. When the file changes, it is read, and if
// nothing is wrong with it, put into effect at once (Reconfigure). If anything is,
// what was in effect stays, and Env.Config.Audit gets a serverside.ConfigRejected with
// all faults. Of each warning (Listing.Warnings) it gets a serverside.ConfigWarning. A
// file that is gone is wrong. A Watcher is safe for concurrent use; its zero value is of
// no use.
type Watcher struct {
	// Limiter is what follows the file.
	Limiter *serverside.Limiter

	name   string
	source Source
	env    Env
	cancel context.CancelFunc
	done   chan struct{} // closed when the Source follows no more

	reading sync.Mutex // held while the file is read and put into effect
	data    []byte     // as last read; nil if it could not be; guarded by reading

	mu  sync.Mutex
	err error // what is wrong with the file; guarded by mu
}

// Watch reads the rule file called name, makes a Limiter of it, and has it follow
// the file until Close. If anything is wrong with the file to begin with, that
// is an error, as of Parse, and nothing is watched.
//
// The file may be written in place, replaced by renaming another one, or be a
// symbolic link that is pointed elsewhere, as Kubernetes does. It is read a moment
// after the last change, and every half minute besides.
//
// Env.Config.Audit gets a serverside.Configured, with the rules' hash, at the start and
// for each change. If it is nil, both are logged to slog.Default.
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

// Follow is Watch of a Source. The name is that of the text in faults; it also says
// what the text is: JSON if it ends in ".json", and otherwise YAML.
//
// If anything is wrong with the text to begin with, or it cannot be read, fallback is
// in effect until that changes, and Audit gets a serverside.ConfigRejected. Without a
// fallback it is an error.
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

// start puts the text into effect, or the fallback.
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

// Err returns what is wrong with the file as it was last read: nil if it is what is
// in effect.
func (w *Watcher) Err() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.err
}

// Reload reads the file now, for a program that does not wait until a change is
// noticed, and returns what is wrong with it. Audit must not call it.
func (w *Watcher) Reload() error {
	w.refresh(context.Background())
	return w.Err()
}

// Close ends the watch, and blocks until nothing of it is left. The Limiter keeps the
// rules that are in effect. It returns nil. Audit must not call it.
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
		w.set(err) // already in the log, though the reason may be another one
	case err != nil:
		w.data = nil
		w.reject(err)
	case w.data == nil || !bytes.Equal(data, w.data):
		w.data = append([]byte{}, data...) // never nil, and not the Source's
		if l, err := List(w.name, w.data, w.env); err != nil {
			w.reject(err)
		} else {
			w.set(w.apply(l))
		}
	}
}

// apply has the Limiter do what a file says.
func (w *Watcher) apply(l *Listing) error {
	if err := w.Limiter.Reconfigure(l.Config); err != nil {
		return err
	}
	if w.env.Config.Audit == nil { // else the Limiter has
		w.audit(serverside.Event{Kind: serverside.Configured, Hash: w.Limiter.Hash()})
	}
	for _, warning := range l.own {
		w.audit(serverside.Event{Kind: serverside.ConfigWarning, Err: warning})
	}
	return nil
}

// reject keeps what is in effect. What is wrong at the start, Watch returns.
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
