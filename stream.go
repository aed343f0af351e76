package heed

import (
	"fmt"
	"net/http"
	"sync/atomic"
	"time"

	"github.com/heedhttp/heed/ratelimit"
)

const (
	eventBytes = 4 << 10                // how much of an event stream is read before RoundTrip returns
	eventTime  = 100 * time.Millisecond // how long that may take
	idleBytes  = 32 << 10               // the most that one Read returns under IdleTimeout
)

// watches reports whether the attempt needs a context of its own, because its response's body may have to be
// given up.
func (c *call) watches() bool {
	return c.policy.IdleTimeout > 0 || c.vendor != nil && len(c.vendor.Events) > 0 && c.req.Header["Upgrade"] == nil
}

// watchBody replaces the response's body, which roundTripWithin has made, if its first event has to be read
// or if there is an IdleTimeout.
func (c *call) watchBody() {
	if c.resp == nil || !c.watches() {
		return
	}
	body, ok := c.resp.Body.(*cancelBody)
	events := c.vendor != nil && c.vendor.HasEvents(c.resp.StatusCode, c.resp.Header)
	if !ok || !events && c.policy.IdleTimeout <= 0 {
		return
	}
	b := &streamBody{cancelBody: body, idle: max(0, c.policy.IdleTimeout), ended: make(chan struct{})}
	if events {
		b.profile = c.vendor
	}
	c.resp.Body = b
}

// readAnswer returns what a's response means. It waits for the first event of a stream.
func readAnswer(profile *ratelimit.Profile, a *Attempt) ratelimit.Answer {
	resp := a.Response
	if b, ok := resp.Body.(*streamBody); ok && b.profile == profile {
		return profile.Judge(resp.StatusCode, resp.Header, b.beginning(a.Request.Context().Done()), time.Time{})
	}
	return profile.Read(resp, time.Time{})
}

// A streamBody is the body of a response that a goroutine reads, so that a Read can be given up: the first
// event of a stream, and everything if there is an IdleTimeout. What follows the first event is read
// directly otherwise.
//
// A goroutine's Read never runs at the same time as Close: if such a Read is given up, the attempt's context
// is cancelled, and the goroutine closes the body when Read returns.
type streamBody struct {
	*cancelBody
	profile *ratelimit.Profile // whose Events the first event may show, or nil
	idle    time.Duration      // IdleTimeout, or 0 if there is none

	// Only the goroutine that calls Read uses these.
	left    []byte          // what was read and not returned yet
	err     error           // how the body ended, after left
	pending *backgroundRead // under way, after left
	buf     []byte          // for a Read under IdleTimeout

	state atomic.Int32
	ended chan struct{} // closed when end is set
	end   error         // what Read returns since the body was closed or given up
}

// The states of a streamBody.
const (
	unused  = iota // by a goroutine
	reading        // a goroutine reads
	over           // nothing may begin to read
)

// A backgroundRead is one Read in a goroutine.
type backgroundRead struct {
	done     chan struct{} // closed when the fields below are set
	got      []byte
	err      error
	panicked any
}

// beginning reads the stream until the first event that counts is complete, within eventBytes, eventTime and
// until cancelled. It returns what was read, which Read returns as well.
func (b *streamBody) beginning(cancelled <-chan struct{}) []byte {
	timer := time.NewTimer(eventTime)
	defer timer.Stop()
	buf := make([]byte, 0, eventBytes)
	for b.err == nil && len(buf) < eventBytes && !b.profile.Decides(buf) {
		b.start(buf[len(buf):eventBytes])
		if !b.await(timer.C, cancelled) {
			break
		}
		buf = buf[:len(buf)+len(b.left)]
	}
	b.left = buf
	return buf
}

func (b *streamBody) Read(p []byte) (int, error) {
	if err := b.endError(); err != nil || len(p) == 0 {
		return 0, err
	}
	if len(b.left) == 0 && b.err == nil {
		if b.pending == nil && b.idle == 0 {
			return b.cancelBody.Read(p)
		}
		b.fill(len(p))
	}
	n := copy(p, b.left)
	b.left = b.left[n:]
	switch {
	case n > 0:
		return n, nil
	case b.err != nil:
		return 0, b.err
	}
	return 0, b.endError()
}

// fill waits for the pending Read, or for a new one of at most n bytes, until IdleTimeout.
func (b *streamBody) fill(n int) {
	if b.pending == nil {
		if n = min(n, idleBytes); len(b.buf) < n {
			b.buf = make([]byte, n)
		}
		b.start(b.buf[:n])
	}
	var timeout <-chan time.Time
	if b.idle > 0 {
		timer := time.NewTimer(b.idle)
		defer timer.Stop()
		timeout = timer.C
	}
	if !b.await(timeout, nil) {
		b.finish(&idleError{b.idle}) // unless the body was closed
		<-b.ended
	}
}

// start begins a Read into p.
func (b *streamBody) start(p []byte) {
	r := &backgroundRead{done: make(chan struct{})}
	b.pending = r
	if !b.state.CompareAndSwap(unused, reading) {
		return // await finds out why
	}
	go func() {
		defer close(r.done)
		defer func() { r.panicked = recover() }()
		defer b.readEnded()
		var n int
		n, r.err = b.cancelBody.Read(p)
		r.got = p[:n]
	}()
}

// readEnded closes the body if the Read was given up meanwhile.
func (b *streamBody) readEnded() {
	if !b.state.CompareAndSwap(reading, unused) {
		b.cancelBody.Close()
	}
}

// await waits for the pending Read. It returns false if one of the channels comes first, or the end of the
// body.
func (b *streamBody) await(timeout <-chan time.Time, cancelled <-chan struct{}) bool {
	r := b.pending
	select {
	case <-r.done:
	case <-timeout:
		return false
	case <-cancelled:
		return false
	case <-b.ended:
		return false
	}
	b.pending = nil
	if r.panicked != nil {
		panic(r.panicked)
	}
	b.left, b.err = r.got, r.err
	return true
}

// finish ends the body with an error for later Reads, once. It cancels a pending Read, which then closes the
// body.
func (b *streamBody) finish(end error) error {
	was := b.state.Swap(over)
	if was == over {
		return nil
	}
	b.end = end
	close(b.ended)
	if was == reading {
		b.abort()
		return nil
	}
	return b.cancelBody.Close()
}

// Close closes the body. It ends a Read that blocks.
func (b *streamBody) Close() error { return b.finish(http.ErrBodyReadAfterClose) }

func (b *streamBody) endError() error {
	select {
	case <-b.ended:
		return b.end
	default:
		return nil
	}
}

// An idleError is the error of a body that sent nothing for as long as IdleTimeout. It is a net.Error.
type idleError struct{ after time.Duration }

func (e *idleError) Error() string {
	return fmt.Sprintf("heed: the response's body sent nothing for RetryPolicy.IdleTimeout (%v)", e.after)
}
func (e *idleError) Timeout() bool   { return true }
func (e *idleError) Temporary() bool { return true }
