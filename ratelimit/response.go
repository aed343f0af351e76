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
	mostBody = 64 << 10    // how much of a body is read: what tells a limit is short
	bodyTime = time.Second // how long it is waited for
)

// Read returns what resp means. If p has to know the body for that, Read waits for at
// most 64 KiB of it and for at most a second, and leaves it such that the caller reads
// all of it. What is not JSON or XML, is encoded, or longer, is left alone.
func (p *Profile) Read(resp *http.Response, now time.Time) Answer {
	var body []byte
	if p.needsBody(resp.StatusCode, resp.Header) && readable(resp) {
		body = peek(resp)
	}
	return p.Judge(resp.StatusCode, resp.Header, body, now)
}

// Hint returns the wait of Read. It has the form of a heed.RetryPolicy's Hint, for
// callers of one vendor: a policy with Profiles knows the Meaning, too.
func (p *Profile) Hint(resp *http.Response, now time.Time) (wait time.Duration, ok bool) {
	if resp == nil {
		return 0, false
	}
	a := p.Read(resp, now)
	return a.Wait, a.Known
}

// Suspects reports whether a response with a status below 400 may mean more than the
// status says, so that Read should look at it. It looks at no more than the status if
// p has no Sign for that, and does not allocate unless such a Sign is of a used-up quota
// and p has Delays or Quotas.
func (p *Profile) Suspects(status int, h http.Header) bool {
	if !slices.ContainsFunc(p.Signs, func(s Sign) bool { return slices.Contains(s.Status, status) }) {
		return false
	}
	return p.mayShow(status, h, func(s *Sign) bool { return s.Means != Unsaid })
}

// needsBody reports whether Judge has to know the body.
func (p *Profile) needsBody(status int, h http.Header) bool {
	inBody := p.Cost != nil || slices.ContainsFunc(p.Delays, func(d Delay) bool { return d.Body != "" && d.Header == "" })
	if inBody && (status < 100 || status >= 400) {
		return true
	}
	return p.mayShow(status, h, func(s *Sign) bool { return s.Body != "" || inBody && s.Means == Limited })
}

// mayShow reports whether a response may show one of the signs asked for.
func (p *Profile) mayShow(status int, h http.Header, asked func(*Sign) bool) bool {
	var e evidence
	for i := range p.Signs {
		s := &p.Signs[i]
		if !asked(s) {
			continue
		}
		if e.profile == nil {
			e = p.evidence(status, h)
		}
		if e.mayShow(s) {
			return true
		}
	}
	return false
}

// readable reports whether a body may be a document.
func readable(resp *http.Response) bool {
	if resp.Body == nil || resp.Body == http.NoBody || resp.ContentLength > mostBody || len(resp.Header["Content-Encoding"]) > 0 {
		return false
	}
	kind := strings.ToLower(first(resp.Header["Content-Type"]))
	return strings.Contains(kind, "json") || strings.Contains(kind, "xml") || kind == "" && resp.StatusCode >= 400
}

// mostPeeks bounds the bodies that are read at once: some may never come.
const mostPeeks = 256

var peeks atomic.Int64

// peek returns the beginning of resp's body, and puts it back. If it does not come in
// time, or too many others are being read, peek returns nil; the caller gets it
// nevertheless.
func peek(resp *http.Response) []byte {
	if peeks.Add(1) > mostPeeks {
		peeks.Add(-1)
		return nil
	}
	b := &peeked{rest: resp.Body, read: make(chan struct{}), closed: make(chan struct{})}
	resp.Body = b
	go b.begin()
	timer := time.NewTimer(bodyTime)
	defer timer.Stop()
	select {
	case <-b.read:
		return b.head
	case <-timer.C:
		return nil
	}
}

// A peeked is a body of which the beginning is read before the caller asks for it.
type peeked struct {
	rest   io.ReadCloser
	read   chan struct{} // closed when head and err are set
	head   []byte
	err    error         // what comes after head; if nil, rest
	closed chan struct{} // closed by Close
	once   sync.Once     // for Close
}

func (b *peeked) begin() {
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

// Close closes the body, and ends a Read. It does not wait for the beginning: there are
// bodies whose Close waits for a Read.
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
