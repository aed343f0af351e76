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
	// quiet is how long nothing must happen before the file is read, because editors write a
	// file in several steps.
	quiet = 100 * time.Millisecond

	// maxDelay limits the wait for quiet if changes do not stop.
	maxDelay = time.Second

	// interval is how often the file is read without an event, for file systems that send none.
	interval = 30 * time.Second
)

// A file is the Source of Watch.
type file struct {
	name   string
	events *fsnotify.Watcher
	dirs   map[string]bool // watched directories; used only by Follow's goroutine
}

// open starts to watch a file, so that no change between Read and Follow is missed.
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

// Read reads the file, but no more than Parse accepts.
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

// Follow calls changed after changes near the file, once they have stopped for a moment.
func (f *file) Follow(ctx context.Context, changed func()) {
	defer f.close()
	ticker := time.NewTicker(interval)
	defer ticker.Stop()
	settled := time.NewTimer(quiet)
	settled.Stop() // until something happens
	defer settled.Stop()
	var first time.Time // first event since the file was read
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

// watch watches the directory of the file and, if the file is a symbolic link, that of its
// target. A watch on the file itself would be lost when the file is replaced.
func (f *file) watch() {
	wanted := map[string]bool{filepath.Dir(f.name): true}
	if target, err := filepath.EvalSymlinks(f.name); err == nil {
		wanted[filepath.Dir(target)] = true
	}
	for dir := range f.dirs {
		if !wanted[dir] {
			_ = f.events.Remove(dir) // it may not exist any more
		}
	}
	watched := make(map[string]bool)
	for dir := range wanted {
		if err := f.events.Add(dir); err == nil { // again, because the directory may have been replaced
			watched[dir] = true
		}
	}
	f.dirs = watched
}
