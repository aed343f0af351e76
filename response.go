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
	keepBytes   = 16 << 10               // of a response that is about to be replaced
	copyBytes   = 1 << 10                // up to which they are copied out of their buffer
	drainTime   = 100 * time.Millisecond // for reading them
	mostDrained = 64                     // bodies at once, of one Transport
)

// A kept is a response whose place another one may take. Over HTTP/1 its body is
// drained, so that its connection can be used again, and its first 16 KiB are
// kept; of one that is known to be longer nothing is. A longer one costs the
// connection. One that does not come within 100 ms occupies it until the server goes on,
// or the context ends. From HTTP/2 on nothing is drained: a stream holds nobody up. The
// zero kept keeps nothing.
type kept struct {
	resp *http.Response
	body []byte
	buf  *[keepBytes + 1]byte // where body is, unless it is short or nothing
	err  error                // what the body ended with
	live bool                 // the body was left alone
}

// keep drains resp, if s has a slot for that. Its timer must not be running. It takes over
// the duty to close the body.
func keep(resp *http.Response, s *slots, timer func() *time.Timer) kept {
	k := kept{resp: resp, err: io.EOF}
	switch {
	case resp.ProtoMajor >= 2:
		k.live = true
	case resp.ContentLength == 0 || resp.Body == http.NoBody:
		resp.Body.Close()
	case resp.ContentLength > keepBytes:
		resp.Body.Close()
		k.err = io.ErrUnexpectedEOF
	default:
		k.drain(resp.Body, s, timer())
	}
	return k
}

// drain reads body and closes it, within drainTime or in a goroutine that is left behind.
func (k *kept) drain(body io.ReadCloser, s *slots, timer *time.Timer) {
	timer.Reset(drainTime)
	defer timer.Stop()
	if !s.acquire(timer.C) {
		body.Close()
		k.err = io.ErrUnexpectedEOF
		return
	}
	d := &drainer{body: body, slots: s, buf: drainBuffers.Get().(*[keepBytes + 1]byte), done: make(chan struct{})}
	go d.run()
	select {
	case <-d.done:
	case <-timer.C:
		if b, ok := body.(*boundBody); ok {
			b.cancel(nil) // which ends the Read, where Base follows its context
		}
		// The drainer still writes behind what was read; its buffer is not given back.
		k.body, k.err = bytes.Clone(d.buf[:min(d.n.Load(), keepBytes)]), io.ErrUnexpectedEOF
		return
	}
	if d.panicked != nil {
		panic(d.panicked)
	}
	if d.err != io.EOF {
		k.err = io.ErrUnexpectedEOF
	}
	if n := d.n.Load(); n > copyBytes {
		k.body, k.buf = d.buf[:min(n, keepBytes)], d.buf
	} else { // many may wait at once, and most bodies are short
		k.body = bytes.Clone(d.buf[:n])
		drainBuffers.Put(d.buf)
	}
}

var drainBuffers = sync.Pool{New: func() any { return new([keepBytes + 1]byte) }}

// A drainer reads a body to its end or to that of buf, and then closes it. Only its own
// goroutine touches the body: there are bodies whose Close waits for a Read, or
// deadlocks with one.
type drainer struct {
	body  io.ReadCloser
	slots *slots
	buf   *[keepBytes + 1]byte
	n     atomic.Int64  // how much of buf was read
	done  chan struct{} // closed when body is, and err is set
	err   error         // what body ended with

	panicked any // by body; for the caller's goroutine, if that still waits
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

// discard gives up the response.
func (k *kept) discard() {
	if k.live {
		k.resp.Body.Close()
	}
	if k.buf != nil {
		drainBuffers.Put(k.buf)
	}
	*k = kept{}
}

// response returns the response after all, what was kept as its body.
func (k *kept) response() *http.Response {
	resp := k.resp
	if !k.live {
		resp.Body = &keptBody{left: k.body, err: k.err}
	}
	*k = kept{}
	return resp
}

// A keptBody reads what was kept, and then as the body ended: with io.EOF, or
// io.ErrUnexpectedEOF if the rest is lost.
type keptBody struct {
	left []byte
	err  error
}

func (b *keptBody) Read(p []byte) (int, error) {
	if len(b.left) == 0 {
		return 0, b.err
	}
	n := copy(p, b.left)
	b.left = b.left[n:]
	return n, nil
}

func (b *keptBody) Close() error {
	b.left, b.err = nil, http.ErrBodyReadAfterClose
	return nil
}

// Slots bound how many bodies are drained at once, those that never end included.
// The zero value has mostDrained of them.
type slots struct {
	mu      sync.Mutex
	taken   int
	waiting []chan struct{}
}

// acquire takes a slot, and waits for one no longer than until timeout.
func (s *slots) acquire(timeout <-chan time.Time) bool {
	s.mu.Lock()
	if s.taken < mostDrained {
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
		s.releaseLocked() // w was given one just now, and there is no time left to use it
	}
	return false
}

// release gives a slot to the caller of acquire that has waited longest.
func (s *slots) release() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.releaseLocked()
}

func (s *slots) releaseLocked() {
	if len(s.waiting) == 0 {
		s.taken--
		return
	}
	close(s.waiting[0])
	s.waiting = slices.Delete(s.waiting, 0, 1)
}

// givenUp are the responses that a Transport gave up although it might have retried, by when
// that was: another Transport around it does not repeat what this one did not, or the attempts
// of both would multiply. There is no place in a response for it.
var givenUp sync.Map // of weak.Pointer[http.Response] to int64

// givenUps is the time for that: how many there were.
var givenUps atomic.Int64

func giveUpOn(resp *http.Response) {
	p := weak.Make(resp)
	givenUp.Store(p, givenUps.Add(1))
	runtime.AddCleanup(resp, func(p weak.Pointer[http.Response]) { givenUp.Delete(p) }, p)
}

// wasGivenUp reports whether resp was given up since then. What was given up before is a
// response that Base makes once, and returns again and again.
func wasGivenUp(resp *http.Response, since int64) bool {
	n, found := givenUp.Load(weak.Make(resp))
	return found && n.(int64) > since
}
