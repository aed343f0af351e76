package testserver

import (
	"bufio"
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"hash"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/heedhttp/heed/contract"
)

// maxKept is how much of a response's body a log keeps.
const maxKept = 64 << 10

// A log is the record of a Server.
type log struct {
	mu   sync.Mutex // guards what follows, the entries' contents too
	list []*contract.Exchange
	no   int64 // of the last arrival or answer
}

// A record is the making of one exchange.
type record struct {
	http.ResponseWriter
	log      *log
	e        *contract.Exchange
	hijacked bool
}

// begin records the arrival of r.
func (l *log) begin(w http.ResponseWriter, r *http.Request, key string) *record {
	e := &contract.Exchange{
		Key:    key,
		Method: r.Method,
		URL:    absolute(r),
		Header: r.Header.Clone(),
		Remote: r.RemoteAddr,
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.no++
	e.Arrived, e.ArrivalNo = time.Now(), l.no
	l.list = append(l.list, e)
	return &record{ResponseWriter: w, log: l, e: e}
}

// absolute is r's URL as the client knows it.
func absolute(r *http.Request) string {
	if strings.Contains(r.RequestURI, "://") {
		return r.RequestURI
	}
	return "http://" + r.Host + r.RequestURI
}

// WriteHeader records the header that net/http is about to send.
func (rec *record) WriteHeader(status int) {
	if status >= 200 || status == http.StatusSwitchingProtocols {
		rec.answer(status)
	}
	rec.ResponseWriter.WriteHeader(status)
}

func (rec *record) answer(status int) {
	rec.log.mu.Lock()
	defer rec.log.mu.Unlock()
	if rec.e.Status != 0 {
		return
	}
	now := time.Now()
	h := rec.Header()
	if _, ok := h["Date"]; !ok {
		h.Set("Date", now.UTC().Format(http.TimeFormat)) // net/http would, later
	}
	rec.log.no++
	rec.e.Status, rec.e.ResponseHeader = status, h.Clone()
	rec.e.Answered, rec.e.AnswerNo = now, rec.log.no
}

func (rec *record) Write(b []byte) (int, error) {
	rec.answer(http.StatusOK)
	rec.keep(b)
	return rec.ResponseWriter.Write(b)
}

// keep records b before it is sent, so that who has read a response finds it in
// the log.
func (rec *record) keep(b []byte) {
	rec.log.mu.Lock()
	defer rec.log.mu.Unlock()
	if e := rec.e; e.Method != http.MethodHead {
		e.ResponseLength += int64(len(b))
		e.ResponseBody = append(e.ResponseBody, b[:min(len(b), maxKept-len(e.ResponseBody))]...)
	}
}

// Flush sends what was written, like http.Flusher.
func (rec *record) Flush() {
	rec.answer(http.StatusOK)
	_ = http.NewResponseController(rec.ResponseWriter).Flush() // it cannot say more than http.Flusher
}

// Hijack is that of http.Hijacker. What happens on the connection after it is
// not recorded.
func (rec *record) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	conn, rw, err := http.NewResponseController(rec.ResponseWriter).Hijack()
	rec.hijacked = err == nil
	return conn, rw, err
}

// Unwrap is for http.ResponseController.
func (rec *record) Unwrap() http.ResponseWriter { return rec.ResponseWriter }

// end records that the handler is done, or has panicked.
func (rec *record) end(r *http.Request, returned bool) {
	if returned && !rec.hijacked {
		rec.answer(http.StatusOK)
	}
	rec.log.mu.Lock()
	defer rec.log.mu.Unlock()
	e := rec.e
	e.Finished = time.Now()
	e.BodyUnread = r.Body != http.NoBody && e.BodyLength == 0 && e.BodySHA256 == ""
	if e.Status == 0 && !rec.hijacked {
		rec.log.no++
		e.Dropped, e.AnswerNo = true, rec.log.no
	}
}

// A reader records a request's body as it is read.
type reader struct {
	io.ReadCloser
	rec *record
	sum hash.Hash
}

func (rec *record) body(b io.ReadCloser) io.ReadCloser {
	r := &reader{b, rec, sha256.New()}
	if b == http.NoBody {
		r.took(nil, io.EOF)
		return b
	}
	return r
}

func (r *reader) Read(p []byte) (int, error) {
	n, err := r.ReadCloser.Read(p)
	r.took(p[:n], err)
	return n, err
}

func (r *reader) took(b []byte, err error) {
	r.rec.log.mu.Lock()
	defer r.rec.log.mu.Unlock()
	r.sum.Write(b)
	r.rec.e.BodyLength += int64(len(b))
	if err == io.EOF {
		r.rec.e.BodySHA256 = hex.EncodeToString(r.sum.Sum(nil))
	}
}

// copy returns what was recorded so far. Header maps are not written to again.
func (l *log) copy() []contract.Exchange {
	l.mu.Lock()
	defer l.mu.Unlock()
	list := make([]contract.Exchange, len(l.list))
	for i, e := range l.list {
		list[i] = *e
		list[i].ResponseBody = bytes.Clone(e.ResponseBody)
	}
	return list
}
