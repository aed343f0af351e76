package rulefile

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/heedhttp/heed/serverside"
)

// A Source is where a rule file is that is not a file: a text in Redis, such as a
// redisstore.Document, or in a system for feature flags.
type Source interface {
	// Read returns the text as it is now. It has a deadline of its own.
	Read(ctx context.Context) ([]byte, error)

	// Follow calls changed whenever the text may have changed, also if it has not,
	// until ctx is over; then it returns. A text that changes between Read and
	// Follow must be told of: it is enough to call changed in an interval.
	Follow(ctx context.Context, changed func())
}

// A Watcher has a Limiter follow a rule file: when the file changes, it is read, and if
// nothing is wrong with it, put into effect at once (Reconfigure). If anything is,
// what was in effect stays, and Env.Config.Audit is told of a
// serverside.ConfigRejected with all faults. One that is gone is wrong. It is safe for
// concurrent use.
type Watcher struct {
	// Limiter is what follows the file.
	Limiter *serverside.Limiter

	name  string
	from  Source
	env   Env
	end   context.CancelFunc
	ended chan struct{} // closed when nothing is left

	reading sync.Mutex // held while the file is read and put into effect
	data    []byte     // as last read; nil if it could not be; guarded by reading

	mu  sync.Mutex
	err error // what is wrong with the file; guarded by mu
}

// Watch reads the rule file called name, makes a Limiter of it, and has it follow
// the file until Close. If there is anything wrong with the file to begin with, that
// is an error, as of Parse, and nothing is watched.
//
// The file may be written in place, replaced by renaming another one, or be a
// symbolic link that is pointed elsewhere, as Kubernetes does. It is read a moment
// after the last change, and every half minute besides.
//
// Env.Config.Audit is told of a serverside.Configured, with the rules' hash, at the
// start and for each change. If it is nil, both are logged to slog.Default.
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

// Follow is Watch of what is in another place than a file. The name is what faults are
// told of, and says what the text is: JSON if it ends in ".json", and otherwise YAML.
//
// If there is anything wrong with the text to begin with, or it cannot be read, then
// fallback is in effect until there is not; Audit is told of that too. Without a
// fallback it is an error.
func Follow(name string, from Source, fallback []byte, env Env) (*Watcher, error) {
	ctx, end := context.WithCancel(context.Background())
	w := &Watcher{Limiter: new(serverside.Limiter), name: name, from: from, env: env, end: end, ended: make(chan struct{})}
	if err := w.begin(fallback); err != nil {
		end()
		return nil, err
	}
	go func() {
		defer close(w.ended)
		from.Follow(ctx, func() { w.look(ctx) })
	}()
	return w, nil
}

// begin puts the text into effect, or the fallback.
func (w *Watcher) begin(fallback []byte) error {
	wrong := w.Reload()
	if wrong == nil || fallback == nil {
		return wrong
	}
	cfg, err := Parse(w.name, fallback, w.env)
	if err != nil {
		return errors.Join(wrong, fmt.Errorf("rulefile: the fallback: %w", err))
	}
	if err := w.apply(cfg); err != nil {
		return errors.Join(wrong, err)
	}
	w.reject(wrong)
	return nil
}

// Err returns what is wrong with the file as it was last read: nil if it is what is
// in effect.
func (w *Watcher) Err() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.err
}

// Reload reads the file now, if nobody is to wait until a change is noticed, and
// returns what is wrong with it. Audit must not call it.
func (w *Watcher) Reload() error {
	w.look(context.Background())
	return w.Err()
}

// Close ends the watch, and waits until nothing of it is left. The Limiter keeps the
// rules that are in effect. It returns nil. Audit must not call it.
func (w *Watcher) Close() error {
	w.end()
	<-w.ended
	return nil
}

// look reads the file, and puts it into effect if it is another one than before.
func (w *Watcher) look(ctx context.Context) {
	w.reading.Lock()
	defer w.reading.Unlock()
	data, err := w.from.Read(ctx)
	switch {
	case ctx.Err() != nil:
	case err != nil:
		w.unread(err)
	case w.data == nil || !bytes.Equal(data, w.data):
		w.data = append([]byte{}, data...) // never nil, and not the Source's
		w.read()
	}
}

// unread tells that the file cannot be read, once, though the reason may change.
func (w *Watcher) unread(err error) {
	if w.data == nil && w.Err() != nil {
		w.set(err)
		return
	}
	w.data = nil
	w.reject(err)
}

// read puts what was read into effect.
func (w *Watcher) read() {
	cfg, err := Parse(w.name, w.data, w.env)
	if err != nil {
		w.reject(err)
		return
	}
	w.set(w.apply(cfg))
}

// apply has the Limiter do what cfg says.
func (w *Watcher) apply(cfg serverside.Config) error {
	err := w.Limiter.Reconfigure(cfg)
	if err == nil && w.env.Config.Audit == nil { // else it has been told
		w.tell(serverside.Event{Kind: serverside.Configured, Hash: w.Limiter.Hash()})
	}
	return err
}

func (w *Watcher) set(err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.err = err
}

// reject keeps what is in effect. What is wrong at the start, Watch returns.
func (w *Watcher) reject(err error) {
	w.set(err)
	if w.Limiter.Hash() != "" {
		w.tell(serverside.Event{Kind: serverside.ConfigRejected, Err: err})
	}
}

func (w *Watcher) tell(e serverside.Event) {
	if w.env.Config.Audit != nil {
		w.env.Config.Audit(e)
		return
	}
	serverside.LogAudit(nil)(e)
}
