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
	// quiet is how long nothing has happened before the file is read: editors write a
	// file in several steps.
	quiet = 100 * time.Millisecond

	// maxDelay is how long reading is put off while something happens all the time.
	maxDelay = time.Second

	// interval is how often the file is read although no event came, for file systems
	// that send none.
	interval = 30 * time.Second
)

// A file is the Source that Watch follows.
type file struct {
	name   string
	events *fsnotify.Watcher
	dirs   map[string]bool // that are watched; only Follow's goroutine uses it
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
	data, err := io.ReadAll(io.LimitReader(opened, maxBytes+1))
	if err != nil {
		return nil, fmt.Errorf("rulefile: %s: %w", f.name, err)
	}
	return data, nil
}

// Follow calls changed when something has happened near the file, and nothing does any
// more.
func (f *file) Follow(ctx context.Context, changed func()) {
	defer f.close()
	ticker := time.NewTicker(interval)
	defer ticker.Stop()
	settled := time.NewTimer(quiet)
	settled.Stop() // until something happens
	defer settled.Stop()
	var first time.Time // event since the file was read
	for {
		select {
		case <-ctx.Done():
			return
		case <-f.events.Events:
			if first.IsZero() {
				first = time.Now()
			}
			settled.Reset(max(0, min(quiet, maxDelay-time.Since(first))))
			continue
		case <-f.events.Errors: // events were lost
		case <-ticker.C:
		case <-settled.C:
			first = time.Time{}
		}
		f.watch()
		changed()
	}
}

// watch watches the directories in which a change may give the file other contents:
// that of its name and, if the name is a link, that of its target. A watch on the file
// itself would be lost when the file is replaced.
func (f *file) watch() {
	wanted := map[string]bool{filepath.Dir(f.name): true}
	if target, err := filepath.EvalSymlinks(f.name); err == nil {
		wanted[filepath.Dir(target)] = true
	}
	for dir := range f.dirs {
		if !wanted[dir] {
			_ = f.events.Remove(dir) // which may be gone by itself
		}
	}
	watched := make(map[string]bool)
	for dir := range wanted {
		if err := f.events.Add(dir); err == nil { // also if it was: it may be another one by that name
			watched[dir] = true
		}
	}
	f.dirs = watched
}
