package heed

import (
	"errors"
	"io"
	"net/http"
	"sync"
)

// errTakenBack is what an attempt that is over gets from a body that now
// belongs to another one.
var errTakenBack = errors.New("heed: the request's body was taken back for another attempt")

// hasBody reports whether req has a body to send. A body of http.NoBody is
// none, and stays as it is: wrapped, it would be sent in chunks.
func hasBody(req *http.Request) bool { return req.Body != nil && req.Body != http.NoBody }

// A source is a request body without GetBody. It is given to one attempt after
// the other, and closed once, when it is certain that no other follows: until
// then an attempt that closes its body gives it back.
//
// It can be taken back while nothing of it was read, or while all that was read
// is kept: bytes are kept as they are sent, at most keep of them.
type source struct {
	body io.ReadCloser
	keep int64

	mu     sync.Mutex   // guards what follows; not held while body is read
	holder *attemptBody // who may read; nil if nobody
	busy   bool         // whether a Read is under way
	lost   bool         // whether bytes were read that are not kept
	kept   []byte
	err    error // what body ended with
	final  bool  // no other attempt follows
	closed bool  // body was
}

// An attemptBody is the body of one attempt.
type attemptBody struct {
	src    *source
	at     int // bytes of src.kept that were handed out
	closed bool
}

func (s *source) next() io.ReadCloser {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.holder = &attemptBody{src: s}
	return s.holder
}

// replayable reports whether takeBack would succeed now.
func (s *source) replayable() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.replayableLocked()
}

func (s *source) replayableLocked() bool { return !s.busy && !s.lost && !s.closed }

// takeBack ends the present attempt's hold, so that a later Read or Close by the attempt
// which held it touches nothing. It reports whether it could.
func (s *source) takeBack() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.replayableLocked() {
		return false
	}
	s.holder = nil
	return true
}

// finish says that no other attempt follows. A body that nobody holds is
// closed now, one that is still being sent when its attempt is done with it.
func (s *source) finish() {
	s.mu.Lock()
	s.final = true
	over := s.holder == nil || s.holder.closed
	s.mu.Unlock()
	if over {
		s.close()
	}
}

// close closes body, once.
func (s *source) close() error {
	s.mu.Lock()
	closed := s.closed
	s.closed = true
	s.mu.Unlock()
	if closed {
		return nil
	}
	return s.body.Close()
}

func (a *attemptBody) Read(p []byte) (int, error) {
	s := a.src
	if n, err, done := s.startRead(a, p); done {
		return n, err
	}
	n, err := s.body.Read(p)
	s.endRead(a, p[:n], err)
	return n, err
}

// startRead answers what need not be read from the body.
func (s *source) startRead(a *attemptBody, p []byte) (n int, err error, done bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.holder != a:
		return 0, errTakenBack, true
	case a.closed:
		return 0, http.ErrBodyReadAfterClose, true
	case a.at < len(s.kept):
		n = copy(p, s.kept[a.at:])
		a.at += n
		return n, nil, true
	case s.err != nil:
		return 0, s.err, true
	}
	s.busy = true
	return 0, nil, false
}

// endRead keeps what was read, if there is room for all of it. A body that fails
// cannot be sent again.
func (s *source) endRead(a *attemptBody, b []byte, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.busy, s.err = false, err
	if !s.lost && int64(len(s.kept)+len(b)) <= s.keep {
		s.kept = append(s.kept, b...)
		a.at = len(s.kept)
	} else if len(b) > 0 {
		s.lost, s.kept, a.at = true, nil, 0
	}
	if err != nil && err != io.EOF {
		s.lost = true
	}
}

// Close gives the body back if another attempt may want it, and closes it if
// that cannot be: a Read under way may only return once it is closed.
func (a *attemptBody) Close() error {
	s := a.src
	s.mu.Lock()
	if s.holder != a || a.closed {
		s.mu.Unlock()
		return nil
	}
	a.closed = true
	over := s.final || s.busy || s.lost
	s.mu.Unlock()
	if over {
		return s.close()
	}
	return nil
}
