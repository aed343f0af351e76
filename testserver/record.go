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
	"sync"
	"time"

	"github.com/heedhttp/heed/contract"
)

// maxBody is how much of a response's body a log keeps.
const maxBody = 64 << 10

// A recordedLog is the log of a Server.
type recordedLog struct {
	mu     sync.Mutex // guards the fields below and the exchanges in list
	list   []*contract.Exchange
	lastNo int64 // the number of the last arrival or answer
}

// A recorder records one exchange.
type recorder struct {
	http.ResponseWriter
	log      *recordedLog
	e        *contract.Exchange
	hijacked bool
}

// begin records the arrival of r.
func (l *recordedLog) begin(w http.ResponseWriter, r *http.Request, key string) *recorder {
	e := &contract.Exchange{
		Key:    key,
		Method: r.Method,
		URL:    absolute(r),
		Header: r.Header.Clone(),
		Remote: r.RemoteAddr,
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.lastNo++
	e.Arrived, e.ArrivalNo = time.Now(), l.lastNo
	l.list = append(l.list, e)
	return &recorder{ResponseWriter: w, log: l, e: e}
}

// absolute is r's URL as the client knows it.
func absolute(r *http.Request) string {
	switch {
	case r.URL.IsAbs():
		return r.RequestURI
	case r.TLS != nil:
		return "https://" + r.Host + r.RequestURI
	}
	return "http://" + r.Host + r.RequestURI
}

// WriteHeader records the header before net/http sends it.
func (rec *recorder) WriteHeader(status int) {
	if status >= 200 || status == http.StatusSwitchingProtocols {
		rec.answer(status)
	}
	rec.ResponseWriter.WriteHeader(status)
}

func (rec *recorder) answer(status int) {
	rec.log.mu.Lock()
	defer rec.log.mu.Unlock()
	if rec.e.Status != 0 {
		return
	}
	now := time.Now()
	h := rec.Header()
	if _, ok := h["Date"]; !ok {
		h.Set("Date", now.UTC().Format(http.TimeFormat)) // net/http would only do it later
	}
	rec.log.lastNo++
	rec.e.Status, rec.e.ResponseHeader = status, h.Clone()
	rec.e.Answered, rec.e.AnswerNo = now, rec.log.lastNo
}

func (rec *recorder) Write(b []byte) (int, error) {
	rec.answer(http.StatusOK)
	rec.keep(b)
	return rec.ResponseWriter.Write(b)
}

// keep records b before it is sent, so that a caller that has read the response finds it in the
// log.
func (rec *recorder) keep(b []byte) {
	rec.log.mu.Lock()
	defer rec.log.mu.Unlock()
	if e := rec.e; e.Method != http.MethodHead {
		e.ResponseLength += int64(len(b))
		e.ResponseBody = append(e.ResponseBody, b[:min(len(b), maxBody-len(e.ResponseBody))]...)
	}
}

// Flush implements http.Flusher.
func (rec *recorder) Flush() {
	rec.answer(http.StatusOK)
	_ = http.NewResponseController(rec.ResponseWriter).Flush() // http.Flusher returns no error
}

// Hijack implements http.Hijacker. What happens on the connection after it is not recorded.
func (rec *recorder) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	conn, rw, err := http.NewResponseController(rec.ResponseWriter).Hijack()
	rec.hijacked = err == nil
	return conn, rw, err
}

// Unwrap supports http.ResponseController.
func (rec *recorder) Unwrap() http.ResponseWriter { return rec.ResponseWriter }

// end records that the handler has returned or panicked.
func (rec *recorder) end(r *http.Request, returned bool) {
	if returned && !rec.hijacked {
		rec.answer(http.StatusOK)
	}
	rec.log.mu.Lock()
	defer rec.log.mu.Unlock()
	e := rec.e
	e.Finished = time.Now()
	e.BodyUnread = r.Body != http.NoBody && e.BodyLength == 0 && e.BodySHA256 == ""
	if e.Status == 0 && !rec.hijacked {
		rec.log.lastNo++
		e.Dropped, e.AnswerNo = true, rec.log.lastNo
	}
}

// A bodyRecorder records a request's body while it is read.
type bodyRecorder struct {
	io.ReadCloser
	rec *recorder
	sum hash.Hash
}

func (rec *recorder) body(b io.ReadCloser) io.ReadCloser {
	r := &bodyRecorder{b, rec, sha256.New()}
	if b == http.NoBody {
		r.record(nil, io.EOF)
		return b
	}
	return r
}

func (r *bodyRecorder) Read(p []byte) (int, error) {
	n, err := r.ReadCloser.Read(p)
	r.record(p[:n], err)
	return n, err
}

func (r *bodyRecorder) record(b []byte, err error) {
	r.rec.log.mu.Lock()
	defer r.rec.log.mu.Unlock()
	r.sum.Write(b)
	r.rec.e.BodyLength += int64(len(b))
	if err == io.EOF {
		r.rec.e.BodySHA256 = hex.EncodeToString(r.sum.Sum(nil))
	}
}

// copy returns the exchanges so far. Their Header maps do not change any more.
func (l *recordedLog) copy() []contract.Exchange {
	l.mu.Lock()
	defer l.mu.Unlock()
	list := make([]contract.Exchange, len(l.list))
	for i, e := range l.list {
		list[i] = *e
		list[i].ResponseBody = bytes.Clone(e.ResponseBody)
	}
	return list
}
