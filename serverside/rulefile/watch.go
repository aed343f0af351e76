package rulefile

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/fsnotify/fsnotify"

	"github.com/heedhttp/heed/serverside"
)

const (
	// calm is how long nothing has happened before the file is read: who writes a
	// file does so in several steps.
	calm = 100 * time.Millisecond

	// longestStir is how long it is not read because something happens all the time.
	longestStir = time.Second

	// lookAgain is how often the file is read though nothing has been told, for file
	// systems that do not tell.
	lookAgain = 30 * time.Second
)

// A Watcher has a Limiter follow a rule file: whatever way the file changes, it is
// read, and if nothing is wrong with it, put into effect at once (Reconfigure). If
// anything is, what was in effect stays, and Env.Config.Audit is told of a
// serverside.ConfigRejected with all faults. It is safe for concurrent use.
//
// The file may be written in place, replaced by renaming another one, or be a
// symbolic link that is pointed elsewhere, as Kubernetes does. It is read a moment
// after the last change, and every half minute besides. One that is gone is wrong.
type Watcher struct {
	// Limiter is what follows the file.
	Limiter *serverside.Limiter

	name   string
	env    Env
	events *fsnotify.Watcher
	dirs   map[string]bool // that are watched; of the goroutine only
	closed sync.Once
	done   chan struct{} // closed by Close
	ended  chan struct{} // closed when the goroutine has ended

	reading sync.Mutex // held while the file is read and put into effect
	data    []byte     // as last read; guarded by reading

	mu  sync.Mutex
	err error // what is wrong with the file; guarded by mu
}

// Watch reads the rule file called name, makes a Limiter of it, and has it follow
// the file until Close. If there is anything wrong with the file to begin with, that
// is an error, as of Parse, and nothing is watched.
//
// Env.Config.Audit is told of a serverside.Configured, with the rules' hash, at the
// start and for each change. If it is nil, both are logged to slog.Default.
func Watch(name string, env Env) (*Watcher, error) {
	w := &Watcher{
		Limiter: new(serverside.Limiter), name: name, env: env,
		dirs: make(map[string]bool), done: make(chan struct{}), ended: make(chan struct{}),
	}
	events, err := fsnotify.NewWatcher()
	if err != nil {
		return nil, fmt.Errorf("rulefile: watch: %w", err)
	}
	w.events = events
	w.follow() // before the file is read, so that no change is missed
	if err := w.Reload(); err != nil {
		return nil, errors.Join(err, events.Close())
	}
	go w.run()
	return w, nil
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
	w.look()
	return w.Err()
}

// Close ends the watch, and waits until nothing of it is left. The Limiter keeps the
// rules that are in effect.
func (w *Watcher) Close() error {
	var err error
	w.closed.Do(func() {
		close(w.done)
		<-w.ended
		err = w.events.Close()
	})
	return err
}

// run waits for something to happen near the file, and then until nothing does.
func (w *Watcher) run() {
	defer close(w.ended)
	again := time.NewTicker(lookAgain)
	defer again.Stop()
	quiet := time.NewTimer(calm)
	quiet.Stop() // until something happens
	defer quiet.Stop()
	var stirred time.Time // when the first thing happened that was not looked at
	for {
		select {
		case <-w.done:
			return
		case <-w.events.Events:
			if stirred.IsZero() {
				stirred = time.Now()
			}
			quiet.Reset(max(0, min(calm, longestStir-time.Since(stirred))))
			continue
		case <-w.events.Errors: // events were lost
		case <-again.C:
		case <-quiet.C:
			stirred = time.Time{}
		}
		w.follow()
		w.look()
	}
}

// follow watches the directories in which a change may give the file other contents:
// that in which its name is, and that in which the file is, if the name is a link.
// A file that is replaced would be lost if it were watched itself.
func (w *Watcher) follow() {
	now := map[string]bool{filepath.Dir(w.name): true}
	if target, err := filepath.EvalSymlinks(w.name); err == nil {
		now[filepath.Dir(target)] = true
	}
	for dir := range w.dirs {
		if !now[dir] {
			_ = w.events.Remove(dir) // which may be gone by itself
		}
	}
	watched := make(map[string]bool)
	for dir := range now {
		if err := w.events.Add(dir); err == nil { // again, for it may be another one by that name
			watched[dir] = true
		}
	}
	w.dirs = watched
}

// look reads the file, and puts it into effect if it is another one than before.
func (w *Watcher) look() {
	w.reading.Lock()
	defer w.reading.Unlock()
	data, err := readFile(w.name)
	if err != nil {
		w.data = nil
		if before := w.Err(); before == nil || before.Error() != err.Error() {
			w.reject(err)
		}
		return
	}
	if w.data != nil && bytes.Equal(data, w.data) {
		return
	}
	w.data = data
	cfg, err := Parse(w.name, data, w.env)
	if err != nil {
		w.reject(err)
		return
	}
	w.set(w.Limiter.Reconfigure(cfg))
	if w.Err() == nil && w.env.Config.Audit == nil { // else it has been told
		w.tell(serverside.Event{Kind: serverside.Configured, Hash: w.Limiter.Hash()})
	}
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

// readFile reads a file, but no more of it than Parse accepts.
func readFile(name string) ([]byte, error) {
	if info, err := os.Stat(name); err != nil {
		return nil, fmt.Errorf("rulefile: %w", err)
	} else if !info.Mode().IsRegular() {
		return nil, fmt.Errorf("rulefile: %s is not a regular file", name)
	}
	f, err := os.Open(name)
	if err != nil {
		return nil, fmt.Errorf("rulefile: %w", err)
	}
	defer f.Close()
	data, err := io.ReadAll(io.LimitReader(f, mostBytes+1))
	if err != nil {
		return nil, fmt.Errorf("rulefile: %s: %w", name, err)
	}
	return data, nil
}
