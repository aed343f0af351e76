package serverside

import (
	"bufio"
	"errors"
	"io"
	"net"
	"net/http"
)

// A watcher reports the status of a response just before the header is written.
type watcher struct {
	http.ResponseWriter
	status   int              // 0 until the header is written
	answered func(status int) // called once
}

// watch returns a writer that writes to w and calls answered, and its watcher. The writer has
// the same optional methods of net/http as w, and Unwrap for http.ResponseController.
func watch(w http.ResponseWriter, answered func(status int)) (http.ResponseWriter, *watcher) {
	seen := &watcher{ResponseWriter: w, answered: answered}
	return withMethodsOf(w, seen), seen
}

func (w *watcher) see(status int) {
	if w.status == 0 {
		w.status = status
		w.answered(status)
	}
}

func (w *watcher) WriteHeader(status int) {
	if status >= 200 || status == http.StatusSwitchingProtocols {
		w.see(status)
	}
	w.ResponseWriter.WriteHeader(status)
}

func (w *watcher) Write(b []byte) (int, error) {
	w.see(http.StatusOK)
	return w.ResponseWriter.Write(b)
}

// WriteString implements io.StringWriter, so that io.WriteString needs no copy.
func (w *watcher) WriteString(s string) (int, error) {
	w.see(http.StatusOK)
	return io.WriteString(w.ResponseWriter, s)
}

// Unwrap supports http.ResponseController.
func (w *watcher) Unwrap() http.ResponseWriter { return w.ResponseWriter }

// FlushError implements Flush of http.ResponseController.
func (w *watcher) FlushError() error {
	before := w.status
	if canFlush(w.ResponseWriter) { // otherwise Flush writes nothing
		w.see(http.StatusOK)
	}
	err := http.NewResponseController(w.ResponseWriter).Flush()
	if errors.Is(err, http.ErrNotSupported) { // canFlush was wrong: nothing was written
		w.status = before
	}
	return err
}

// canFlush reports whether http.ResponseController can flush w.
func canFlush(w http.ResponseWriter) bool {
	for {
		switch inner := w.(type) {
		case http.Flusher, interface{ FlushError() error }:
			return true
		case interface{ Unwrap() http.ResponseWriter }:
			w = inner.Unwrap()
		default:
			return false
		}
	}
}

func (w *watcher) Flush() { _ = w.FlushError() }

func (w *watcher) ReadFrom(r io.Reader) (int64, error) {
	if w.status == 0 { // a reader that fails at once writes nothing
		r = &firstRead{r, func() { w.see(http.StatusOK) }}
	}
	return w.ResponseWriter.(io.ReaderFrom).ReadFrom(r)
}

// A firstRead calls before when the first bytes, or the end, have been read.
type firstRead struct {
	io.Reader
	before func()
}

func (f *firstRead) Read(b []byte) (int, error) {
	n, err := f.Reader.Read(b)
	if n > 0 || err == io.EOF {
		f.before()
	}
	return n, err
}

func (w *watcher) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	conn, rw, err := http.NewResponseController(w.ResponseWriter).Hijack()
	if err == nil {
		w.see(http.StatusSwitchingProtocols)
	}
	return conn, rw, err
}

func (w *watcher) Push(target string, options *http.PushOptions) error {
	return w.ResponseWriter.(http.Pusher).Push(target, options)
}

type (
	// plainWriter has the methods that every watcher has.
	plainWriter interface {
		http.ResponseWriter
		io.StringWriter
		Unwrap() http.ResponseWriter
	}

	flusher interface {
		http.Flusher
		FlushError() error
	}
)

// withMethodsOf returns s with those of the optional methods that w has. Handlers check for
// them by type assertion, so there is one type for each combination.
func withMethodsOf(w http.ResponseWriter, s *watcher) http.ResponseWriter {
	const flushes, hijacks, reads, pushes = 1, 2, 4, 8
	_, f := w.(http.Flusher)
	_, h := w.(http.Hijacker)
	_, r := w.(io.ReaderFrom)
	_, p := w.(http.Pusher)
	switch boolInt(f)*flushes | boolInt(h)*hijacks | boolInt(r)*reads | boolInt(p)*pushes {
	case flushes:
		return struct {
			plainWriter
			flusher
		}{s, s}
	case hijacks:
		return struct {
			plainWriter
			http.Hijacker
		}{s, s}
	case flushes | hijacks:
		return struct {
			plainWriter
			flusher
			http.Hijacker
		}{s, s, s}
	case reads:
		return struct {
			plainWriter
			io.ReaderFrom
		}{s, s}
	case flushes | reads:
		return struct {
			plainWriter
			flusher
			io.ReaderFrom
		}{s, s, s}
	case hijacks | reads:
		return struct {
			plainWriter
			http.Hijacker
			io.ReaderFrom
		}{s, s, s}
	case flushes | hijacks | reads:
		return struct {
			plainWriter
			flusher
			http.Hijacker
			io.ReaderFrom
		}{s, s, s, s}
	case pushes:
		return struct {
			plainWriter
			http.Pusher
		}{s, s}
	case flushes | pushes:
		return struct {
			plainWriter
			flusher
			http.Pusher
		}{s, s, s}
	case hijacks | pushes:
		return struct {
			plainWriter
			http.Hijacker
			http.Pusher
		}{s, s, s}
	case flushes | hijacks | pushes:
		return struct {
			plainWriter
			flusher
			http.Hijacker
			http.Pusher
		}{s, s, s, s}
	case reads | pushes:
		return struct {
			plainWriter
			io.ReaderFrom
			http.Pusher
		}{s, s, s}
	case flushes | reads | pushes:
		return struct {
			plainWriter
			flusher
			io.ReaderFrom
			http.Pusher
		}{s, s, s, s}
	case hijacks | reads | pushes:
		return struct {
			plainWriter
			http.Hijacker
			io.ReaderFrom
			http.Pusher
		}{s, s, s, s}
	case flushes | hijacks | reads | pushes:
		return struct {
			plainWriter
			flusher
			http.Hijacker
			io.ReaderFrom
			http.Pusher
		}{s, s, s, s, s}
	default:
		return struct{ plainWriter }{s}
	}
}
