package heed

import (
	"bytes"
	"io"
	"net/http"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"time"
	"weak"
)

const (
	keepBytes  = 16 << 10               // how much of a response's body is kept during a retry
	drainTime  = 100 * time.Millisecond // how long that body is read
	maxDrained = 64                     // bodies at once, of one Transport
)

// A fallback is a response that the caller gets if its retry cannot be sent. The zero fallback is
// empty.
//
// Over HTTP/1 the body is drained, so that its connection can be used again, and its first 16 KiB
// are kept. Nothing is read of a body that is known to be longer; its connection is lost. Draining
// stops after 100 ms; the connection is then occupied until the server sends more or the context
// ends. From HTTP/2 on the body is not drained, because a stream does not block its connection.
type fallback struct {
	resp   *http.Response
	unread bool // the body was left alone
}

// keepFallback drains resp, if s has a free slot, and takes over the duty to close its body. The
// timer must be stopped.
func keepFallback(resp *http.Response, s *drainSlots, timer func() *time.Timer) fallback {
	if resp.ProtoMajor >= 2 {
		return fallback{resp, true}
	}
	kept := &fallbackBody{err: io.EOF}
	switch {
	case resp.ContentLength == 0 || resp.Body == http.NoBody:
		resp.Body.Close()
	case resp.ContentLength > keepBytes:
		resp.Body.Close()
		kept.err = io.ErrUnexpectedEOF
	default:
		kept.drain(resp.Body, s, timer())
	}
	resp.Body = kept // the other one would hold the buffers of its connection
	return fallback{resp: resp}
}

// drain reads body and closes it, within drainTime. A goroutine that takes longer is abandoned, and
// closes the body later.
func (b *fallbackBody) drain(body io.ReadCloser, s *drainSlots, timer *time.Timer) {
	timer.Reset(drainTime)
	defer timer.Stop()
	if !s.acquire(timer.C) {
		body.Close()
		b.err = io.ErrUnexpectedEOF
		return
	}
	d := &drainer{body: body, slots: s, buf: drainBuffers.Get().(*[keepBytes + 1]byte), done: make(chan struct{})}
	go d.run()
	select {
	case <-d.done:
	case <-timer.C:
		cancelAttempt(body) // this ends the Read, if Base respects its context
		// The drainer still writes to the rest of its buffer, which is therefore not reused.
		b.left, b.err = bytes.Clone(d.buf[:min(d.n.Load(), keepBytes)]), io.ErrUnexpectedEOF
		return
	}
	if d.panicked != nil {
		panic(d.panicked)
	}
	if d.err != io.EOF {
		b.err = io.ErrUnexpectedEOF
	}
	b.left = s.copy(d.buf[:min(d.n.Load(), keepBytes)])
	drainBuffers.Put(d.buf)
}

var drainBuffers = sync.Pool{New: func() any { return new([keepBytes + 1]byte) }}

// A drainer reads a body until its end or until buf is full, then closes it. Only its own goroutine
// uses the body, because some bodies block or deadlock when Read and Close are called at the same
// time.
type drainer struct {
	body  io.ReadCloser
	slots *drainSlots
	buf   *[keepBytes + 1]byte
	n     atomic.Int64  // how much of buf is filled
	done  chan struct{} // closed after body is closed and err is set
	err   error         // how body ended

	panicked any // a panic of body, which the caller's goroutine repeats if it still waits
}

func (d *drainer) run() {
	defer d.slots.release()
	defer close(d.done)
	defer func() { d.panicked = recover() }()
	defer d.body.Close()
	deadline := now() + drainTime
	for d.err == nil && d.n.Load() < int64(len(d.buf)) && now() < deadline {
		var n int
		n, d.err = d.body.Read(d.buf[d.n.Load():])
		d.n.Add(int64(n))
	}
}

// discard drops the response.
func (k *fallback) discard() {
	if k.unread {
		k.resp.Body.Close()
	}
	*k = fallback{}
}

// response returns the response after all; its body is what was kept.
func (k *fallback) response() *http.Response {
	resp := k.resp
	*k = fallback{}
	return resp
}

// A fallbackBody reads what was kept, then ends with io.EOF, or with io.ErrUnexpectedEOF if the
// rest is lost.
type fallbackBody struct {
	left []byte
	err  error
}

func (b *fallbackBody) Read(p []byte) (int, error) {
	if len(b.left) == 0 {
		return 0, b.err
	}
	n := copy(p, b.left)
	b.left = b.left[n:]
	return n, nil
}

func (b *fallbackBody) Close() error {
	b.left, b.err = nil, http.ErrBodyReadAfterClose
	return nil
}

// drainSlots limits how many bodies are drained at once, abandoned ones included. The zero value
// has maxDrained slots.
type drainSlots struct {
	mu      sync.Mutex
	taken   int
	waiting []chan struct{}
	copied  []byte // what copy returned last; it is never changed
}

// copy returns a copy of a body. In an outage many calls get the same page, and share one copy.
func (s *drainSlots) copy(body []byte) []byte {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !bytes.Equal(s.copied, body) {
		s.copied = bytes.Clone(body)
	}
	return s.copied
}

// acquire takes a slot, and waits for one until timeout.
func (s *drainSlots) acquire(timeout <-chan time.Time) bool {
	s.mu.Lock()
	if s.taken < maxDrained {
		s.taken++
		s.mu.Unlock()
		return true
	}
	w := make(chan struct{})
	s.waiting = append(s.waiting, w)
	s.mu.Unlock()
	select {
	case <-w:
		return true
	case <-timeout:
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if at := slices.Index(s.waiting, w); at >= 0 {
		s.waiting = slices.Delete(s.waiting, at, at+1)
	} else {
		s.releaseLocked() // w got a slot at the same moment, but its time is over
	}
	return false
}

// release gives the slot to the call of acquire that has waited longest.
func (s *drainSlots) release() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.releaseLocked()
}

func (s *drainSlots) releaseLocked() {
	if len(s.waiting) == 0 {
		s.taken--
		return
	}
	close(s.waiting[0])
	s.waiting = slices.Delete(s.waiting, 0, 1)
}

// givenUp holds the responses that a Transport returned although it might have retried. A Transport
// around it then does not retry either, or their attempts would multiply. The value orders them: it
// is the value of givenUps at that time. A response has no field in which this could be stored.
var givenUp sync.Map // of weak.Pointer[http.Response] to int64

// givenUps counts the responses that were given up.
var givenUps atomic.Int64

func recordGivenUp(resp *http.Response) {
	p := weak.Make(resp)
	givenUp.Store(p, givenUps.Add(1))
	runtime.AddCleanup(resp, func(p weak.Pointer[http.Response]) { givenUp.Delete(p) }, p)
}

// wasGivenUp reports whether resp was given up after since. If it was given up before, Base made
// the response once and returns it again and again.
func wasGivenUp(resp *http.Response, since int64) bool {
	n, found := givenUp.Load(weak.Make(resp))
	return found && n.(int64) > since
}
