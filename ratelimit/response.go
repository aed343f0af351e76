package ratelimit

import (
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

const (
	mostBody = 64 << 10    // of a body, to be read; what announces a limit is short
	bodyTime = time.Second // to wait for it
)

// Read returns what resp means. If p needs the body for that, Read waits up to a second
// for its first 64 KiB; the caller can still read all of it. Read ignores a body that is
// longer, encoded, or neither JSON nor XML.
func (p *Profile) Read(resp *http.Response, now time.Time) Answer {
	var body []byte
	if p.needsBody(resp.StatusCode, resp.Header) && readable(resp) {
		body = peek(resp)
	}
	return p.Judge(resp.StatusCode, resp.Header, body, now)
}

// Hint returns the wait of Read. It fits heed.RetryPolicy.Hint, for clients of a single
// vendor. RetryPolicy.Profiles is better: it uses the Meaning, too.
func (p *Profile) Hint(resp *http.Response, now time.Time) (wait time.Duration, ok bool) {
	if resp == nil {
		return 0, false
	}
	a := p.Read(resp, now)
	return a.Wait, a.Known
}

// Suspects reports whether a response with a status below 400 may still be a refusal, so
// that Read is worth calling. It is cheap: it looks only at the status unless p has a
// Sign for that status.
func (p *Profile) Suspects(status int, h http.Header) bool {
	if !slices.ContainsFunc(p.Signs, func(s Sign) bool { return slices.Contains(s.Status, status) }) {
		return false
	}
	return p.mayShow(status, h, func(s *Sign) bool { return s.Means != Unsaid })
}

// needsBody reports whether Judge needs the body.
func (p *Profile) needsBody(status int, h http.Header) bool {
	inBody := p.Cost != nil ||
		slices.ContainsFunc(p.Delays, func(d Delay) bool { return d.Body != "" && d.Header == "" })
	if inBody && (status < 100 || status >= 400) {
		return true
	}
	return p.mayShow(status, h, func(s *Sign) bool { return s.Body != "" || inBody && s.Means == Limited })
}

// mayShow reports whether the response may show one of the Signs for which asked is true.
func (p *Profile) mayShow(status int, h http.Header, asked func(*Sign) bool) bool {
	var e interpreter
	for i := range p.Signs {
		s := &p.Signs[i]
		if !asked(s) {
			continue
		}
		if e.profile == nil {
			e = p.interpret(status, h)
		}
		if e.mayShow(s) {
			return true
		}
	}
	return false
}

// readable reports whether the body may be a document.
func readable(resp *http.Response) bool {
	if resp.Body == nil || resp.Body == http.NoBody || resp.ContentLength > mostBody ||
		len(resp.Header["Content-Encoding"]) > 0 {
		return false
	}
	kind := strings.ToLower(first(resp.Header["Content-Type"]))
	return strings.Contains(kind, "json") || strings.Contains(kind, "xml") || kind == "" && resp.StatusCode >= 400
}

// mostPeeks bounds the bodies being read at once: some may never arrive.
const mostPeeks = 256

var peeks atomic.Int64

// peek returns the beginning of resp's body and puts it back. It returns nil if the body
// is late, or if too many others are being read; the caller can still read it.
func peek(resp *http.Response) []byte {
	if peeks.Add(1) > mostPeeks {
		peeks.Add(-1)
		return nil
	}
	b := &peeked{rest: resp.Body, read: make(chan struct{}), closed: make(chan struct{})}
	resp.Body = b
	go b.readHead()
	timer := time.NewTimer(bodyTime)
	defer timer.Stop()
	select {
	case <-b.read:
		return b.head
	case <-timer.C:
		return nil
	}
}

// A peeked is a body whose beginning is read before the caller asks for it.
type peeked struct {
	rest   io.ReadCloser
	read   chan struct{} // closed when head and err are set
	head   []byte
	err    error         // what follows head; if nil, rest
	closed chan struct{} // closed by Close
	once   sync.Once     // for Close
}

func (b *peeked) readHead() {
	defer peeks.Add(-1)
	defer close(b.read)
	defer func() {
		if p := recover(); p != nil {
			b.err = fmt.Errorf("ratelimit: reading the body panicked: %v", p)
		}
	}()
	b.head, b.err = io.ReadAll(io.LimitReader(b.rest, mostBody))
}

func (b *peeked) Read(p []byte) (int, error) {
	select {
	case <-b.closed:
	case <-b.read:
	}
	switch {
	case b.isClosed():
		return 0, http.ErrBodyReadAfterClose
	case len(b.head) > 0:
		n := copy(p, b.head)
		b.head = b.head[n:]
		return n, nil
	case b.err != nil:
		return 0, b.err
	}
	return b.rest.Read(p)
}

func (b *peeked) isClosed() bool {
	select {
	case <-b.closed:
		return true
	default:
		return false
	}
}

// Close closes the body and ends a blocked Read. It does not wait for the beginning,
// because the Close of some bodies waits for a Read.
func (b *peeked) Close() (err error) {
	b.once.Do(func() {
		close(b.closed)
		select {
		case <-b.read:
			err = b.rest.Close()
		default:
			go b.rest.Close()
		}
	})
	return err
}

// first returns the first line of a field, or "".
func first(lines []string) string {
	if len(lines) == 0 {
		return ""
	}
	return lines[0]
}
