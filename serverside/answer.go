package serverside

import (
	"bufio"
	"io"
	"net"
	"net/http"
	"strings"
)

// FromCache reports whether r says that it comes from a cache: by Cache-Status
// (RFC 9211), X-Cache, or an Age (RFC 9111, section 5.1) of more than 0.
func FromCache(r Response) bool {
	for _, line := range r.Header["Cache-Status"] {
		last := line[strings.LastIndexByte(line, ',')+1:]
		for param := range strings.SplitSeq(last, ";") {
			if strings.TrimSpace(param) == "hit" {
				return true
			}
		}
	}
	age := r.Header.Get("Age")
	return strings.HasPrefix(strings.ToUpper(r.Header.Get("X-Cache")), "HIT") || age != "" && strings.Trim(age, "0") != ""
}

// A watcher sees the status of a response, before it is written.
type watcher struct {
	http.ResponseWriter
	status   int
	answered func(status int)
}

// watch returns w as one that calls answered, once, and watches what is written.
// It has the optional methods that the writers of net/http's two servers have, if
// w has them.
func watch(w http.ResponseWriter, answered func(status int)) (http.ResponseWriter, *watcher) {
	seen := &watcher{ResponseWriter: w, answered: answered}
	_, hijacks := w.(http.Hijacker)
	_, pushes := w.(http.Pusher)
	_, reads := w.(io.ReaderFrom)
	_, flushes := w.(http.Flusher)
	switch {
	case flushes && hijacks && reads:
		return http1Watcher{flushWatcher{seen}}, seen
	case flushes && pushes:
		return http2Watcher{flushWatcher{seen}}, seen
	case flushes:
		return flushWatcher{seen}, seen
	default:
		return seen, seen
	}
}

func (w *watcher) WriteHeader(status int) {
	if status >= 200 || status == http.StatusSwitchingProtocols {
		w.see(status)
	}
	w.ResponseWriter.WriteHeader(status)
}

func (w *watcher) see(status int) {
	if w.status == 0 {
		w.status = status
		w.answered(status)
	}
}

func (w *watcher) Write(b []byte) (int, error) {
	w.see(http.StatusOK)
	return w.ResponseWriter.Write(b)
}

// WriteString spares callers of io.WriteString a copy, where the writer does.
func (w *watcher) WriteString(s string) (int, error) {
	w.see(http.StatusOK)
	return io.WriteString(w.ResponseWriter, s)
}

// Unwrap is for http.ResponseController.
func (w *watcher) Unwrap() http.ResponseWriter { return w.ResponseWriter }

type flushWatcher struct{ *watcher }

func (w flushWatcher) Flush() {
	w.see(http.StatusOK)
	w.ResponseWriter.(http.Flusher).Flush()
}

type http1Watcher struct{ flushWatcher }

func (w http1Watcher) ReadFrom(r io.Reader) (int64, error) {
	w.see(http.StatusOK)
	return w.ResponseWriter.(io.ReaderFrom).ReadFrom(r)
}

func (w http1Watcher) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	w.see(http.StatusSwitchingProtocols)
	return w.ResponseWriter.(http.Hijacker).Hijack()
}

type http2Watcher struct{ flushWatcher }

func (w http2Watcher) Push(target string, options *http.PushOptions) error {
	return w.ResponseWriter.(http.Pusher).Push(target, options)
}
