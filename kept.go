package heed

import (
	"bytes"
	"io"
	"net/http"
	"sync"
	"time"
)

const (
	keepBytes = 16 << 10               // of a response that is about to be replaced
	copyBytes = 1 << 10                // up to which they are copied out of their buffer
	drainTime = 100 * time.Millisecond // for reading them
)

var keepBuffers = sync.Pool{New: func() any { return new([keepBytes + 1]byte) }}

// A kept is a response whose place another one may take. Over HTTP/1 its body is
// drained, so that its connection can be used again, and its first 16 KiB are
// kept; of one that is known to be longer nothing is. A longer one, or one that
// does not come within 100 ms, costs the connection. From HTTP/2 on nothing is
// drained: a stream holds nobody up. The zero kept keeps nothing.
type kept struct {
	resp *http.Response
	body []byte
	buf  *[keepBytes + 1]byte // where body is, unless it is short or nothing
	err  error                // what the body ended with
	live bool                 // the body was left alone
}

// keep drains resp. It takes over the duty to close its body.
func keep(resp *http.Response) kept {
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
		k.drain(resp.Body)
	}
	return k
}

// drain reads into a buffer that others use before and after. A short body is
// copied out of it, as many may wait at once, and most bodies are short.
func (k *kept) drain(body io.ReadCloser) {
	buf := keepBuffers.Get().(*[keepBytes + 1]byte)
	end := now() + drainTime
	timer := time.AfterFunc(drainTime, func() { body.Close() })
	n := 0
	var err error
	for err == nil && n < len(buf) && now() < end {
		var more int
		more, err = body.Read(buf[n:])
		n += more
	}
	if timer.Stop() {
		body.Close()
	}
	if err != io.EOF {
		k.err = io.ErrUnexpectedEOF
	}
	if n > copyBytes {
		k.body, k.buf = buf[:min(n, keepBytes)], buf
		return
	}
	k.body = bytes.Clone(buf[:n])
	keepBuffers.Put(buf)
}

// discard gives up the response.
func (k *kept) discard() {
	if k.live {
		k.resp.Body.Close()
	}
	if k.buf != nil {
		keepBuffers.Put(k.buf)
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
