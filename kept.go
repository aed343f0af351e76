package heed

import (
	"io"
	"net/http"
	"sync"
	"time"
)

const (
	keepBytes = 16 << 10               // of a response that is about to be replaced
	drainTime = 100 * time.Millisecond // for reading them
)

var keepBuffers = sync.Pool{New: func() any { return new([keepBytes + 1]byte) }}

// A kept is a response whose place another one may take. Over HTTP/1 its body is
// drained, so that its connection can be used again, and its first 16 KiB are
// kept; a longer one, or one that does not come within 100 ms, costs the
// connection. From HTTP/2 on nothing is drained: a stream holds nobody up.
// The zero kept keeps nothing.
type kept struct {
	resp *http.Response
	buf  *[keepBytes + 1]byte
	n    int
	err  error // what the body ended with
	live bool  // the body was left alone
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

func (k *kept) drain(body io.ReadCloser) {
	k.buf = keepBuffers.Get().(*[keepBytes + 1]byte)
	end := now() + drainTime
	timer := time.AfterFunc(drainTime, func() { body.Close() })
	var err error
	for err == nil && k.n < len(k.buf) && now() < end {
		var n int
		n, err = body.Read(k.buf[k.n:])
		k.n += n
	}
	if timer.Stop() {
		body.Close()
	}
	if err != io.EOF {
		k.n, k.err = min(k.n, keepBytes), io.ErrUnexpectedEOF
	}
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
		resp.Body = &keptBody{kept: *k}
	}
	*k = kept{}
	return resp
}

// A keptBody reads what was kept, and then as the body ended: with io.EOF, or
// io.ErrUnexpectedEOF if the rest is lost.
type keptBody struct {
	kept
	at     int
	closed bool
}

func (b *keptBody) Read(p []byte) (int, error) {
	switch {
	case b.closed:
		return 0, http.ErrBodyReadAfterClose
	case b.at == b.n:
		return 0, b.err
	}
	n := copy(p, b.buf[b.at:b.n])
	b.at += n
	return n, nil
}

func (b *keptBody) Close() error {
	b.closed = true
	return nil
}
