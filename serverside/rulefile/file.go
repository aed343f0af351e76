package rulefile

import (
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"

	"github.com/fsnotify/fsnotify"
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

// A file is a Source that is one.
type file struct {
	name   string
	events *fsnotify.Watcher
	dirs   map[string]bool // that are watched; of the goroutine that follows only
}

// open watches a file, so that no change is missed between Read and Follow.
func open(name string) (*file, error) {
	events, err := fsnotify.NewWatcher()
	if err != nil {
		return nil, fmt.Errorf("rulefile: watch: %w", err)
	}
	f := &file{name, events, make(map[string]bool)}
	f.watch()
	return f, nil
}

func (f *file) close() error { return f.events.Close() }

// Read reads the file, but no more of it than Parse accepts.
func (f *file) Read(context.Context) ([]byte, error) {
	if info, err := os.Stat(f.name); err != nil {
		return nil, fmt.Errorf("rulefile: %w", err)
	} else if !info.Mode().IsRegular() {
		return nil, fmt.Errorf("rulefile: %s is not a regular file", f.name)
	}
	opened, err := os.Open(f.name)
	if err != nil {
		return nil, fmt.Errorf("rulefile: %w", err)
	}
	defer opened.Close()
	data, err := io.ReadAll(io.LimitReader(opened, mostBytes+1))
	if err != nil {
		return nil, fmt.Errorf("rulefile: %s: %w", f.name, err)
	}
	return data, nil
}

// Follow waits for something to happen near the file, and then until nothing does.
func (f *file) Follow(ctx context.Context, changed func()) {
	defer f.close()
	again := time.NewTicker(lookAgain)
	defer again.Stop()
	quiet := time.NewTimer(calm)
	quiet.Stop() // until something happens
	defer quiet.Stop()
	var stirred time.Time // when the first thing happened that was not looked at
	for {
		select {
		case <-ctx.Done():
			return
		case <-f.events.Events:
			if stirred.IsZero() {
				stirred = time.Now()
			}
			quiet.Reset(max(0, min(calm, longestStir-time.Since(stirred))))
			continue
		case <-f.events.Errors: // events were lost
		case <-again.C:
		case <-quiet.C:
			stirred = time.Time{}
		}
		f.watch()
		changed()
	}
}

// watch watches the directories in which a change may give the file other contents:
// that in which its name is, and that in which the file is, if the name is a link.
// A file that is replaced would be lost if it were watched itself.
func (f *file) watch() {
	now := map[string]bool{filepath.Dir(f.name): true}
	if target, err := filepath.EvalSymlinks(f.name); err == nil {
		now[filepath.Dir(target)] = true
	}
	for dir := range f.dirs {
		if !now[dir] {
			_ = f.events.Remove(dir) // which may be gone by itself
		}
	}
	watched := make(map[string]bool)
	for dir := range now {
		if err := f.events.Add(dir); err == nil { // again, for it may be another one by that name
			watched[dir] = true
		}
	}
	f.dirs = watched
}
