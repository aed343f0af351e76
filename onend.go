package heed

import (
	"io"
	"net/http"
	"runtime"
	"sync"
)

// OnEnd calls f once, when the attempt no longer occupies the server as far as a client can tell: at
// once if there is no response or it has no body, and otherwise when the body was closed, ended or
// failed, or when the response was dropped for a retry. The body of a 101 is a connection; there only
// Close counts. A body that is lost without Close ends when it is garbage collected.
//
// OnEnd is for a Pacer's Observe, as in pace.InFlight. It replaces the response's body. f must be safe
// to call on any goroutine, must return soon, and must not refer to the response. It may be called
// before OnEnd returns.
func (a Attempt) OnEnd(f func()) {
	resp := a.Response
	if resp == nil || resp.Body == nil || resp.Body == http.NoBody {
		f()
		return
	}
	b := &endBody{resp.Body, sync.OnceFunc(f), resp.StatusCode == http.StatusSwitchingProtocols}
	runtime.AddCleanup(b, func(end func()) { end() }, b.end)
	if w, ok := resp.Body.(io.Writer); ok && b.upgraded {
		resp.Body = endConn{b, w}
		return
	}
	resp.Body = b
}

// An endBody calls end when the body has ended.
type endBody struct {
	io.ReadCloser
	end      func()
	upgraded bool // it is a connection, which may still be written to at the end of what it reads
}

func (b *endBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	if err != nil && !b.upgraded {
		b.end()
	}
	return n, err
}

func (b *endBody) Close() error {
	defer b.end()
	return b.ReadCloser.Close()
}

// An endConn is the body of a 101.
type endConn struct {
	*endBody
	io.Writer
}

// endDropped ends a body that nobody will read, even if it is not closed yet: the retry may need what
// its attempt holds.
func endDropped(body io.ReadCloser) {
	for b, ok := body.(*endBody); ok; b, ok = b.ReadCloser.(*endBody) {
		b.end()
	}
}

// cancelAttempt cancels the attempt that body belongs to, if it has a context of its own.
func cancelAttempt(body io.ReadCloser) {
	switch b := body.(type) {
	case *endBody:
		cancelAttempt(b.ReadCloser)
	case interface{ abort() }:
		b.abort()
	}
}
