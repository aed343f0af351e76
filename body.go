package heed

import (
	"errors"
	"io"
	"net/http"
	"sync"
)

// errTakenBack is returned to an old attempt that still reads the body, after a newer one got it.
var errTakenBack = errors.New("heed: the request's body was taken back for another attempt")

// hasBody reports whether req has a body to send. http.NoBody is none, and must not be wrapped, or
// it would be sent in chunks.
func hasBody(req *http.Request) bool { return req.Body != nil && req.Body != http.NoBody }

// A source is a request body without GetBody. One attempt after the other reads it. It is closed
// once, when no attempt can follow; an attempt that closes it earlier only hands it back.
//
// The next attempt can have the body if nothing of it was read, or if all that was read is kept.
// Bytes are kept while they are sent, at most keep of them.
type source struct {
	body io.ReadCloser
	keep int64

	mu     sync.Mutex   // guards the fields below; not held while body is read
	holder *attemptBody // the attempt that may read, or nil
	busy   bool         // a Read is under way
	lost   bool         // bytes were read that are not kept
	kept   []byte
	err    error // how body ended
	final  bool  // no attempt follows
	closed bool  // body is closed
}

// An attemptBody is the body of one attempt.
type attemptBody struct {
	src    *source
	at     int // how many bytes of src.kept were read
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

// takeBack takes the body from the present attempt, whose later Reads and Closes then do nothing.
// It returns false if the body cannot be sent again.
func (s *source) takeBack() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.replayableLocked() {
		return false
	}
	s.holder = nil
	return true
}

// finish tells that no attempt follows. It closes the body, unless an attempt is still sending it,
// which then closes it.
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

// startRead serves a Read from kept bytes or with an error, if that is possible. If not, done is
// false and the caller reads the body itself.
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

// endRead keeps the bytes that were read, if there is room for all of them. A body that failed
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

// Close hands the body back if another attempt may need it. Otherwise it closes the body, which may
// be what ends a Read under way.
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
