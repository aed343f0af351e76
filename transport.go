package heed

import (
	"context"
	"net/http"
)

// A Transport is an http.RoundTripper that keeps to the limits which servers
// announce. It waits as long as it is told to, retries what is worth it inside
// a budget, and lets one request's refusal hold back all others to the same
// server.
//
// The zero Transport is ready to use. It is safe for concurrent use; its fields
// must not change once it is in use, and it must not be copied. Whatever it
// shares with others (Budget, Pacer, Board) is shared by pointer.
//
// A request is given to Base as it came if it needs neither a copy of its body
// nor an AttemptTimeout, and is never written to. Its body is closed once, on
// every path.
//
// What a RoundTripper cannot do: net/http may send a request twice over a
// connection that the server had just closed, unseen and unbudgeted; the cookies
// of a response that was retried are lost; each hop of a redirect is a request
// of its own; what signs requests belongs into Base, so that each attempt is
// signed anew. Client.Timeout bounds all attempts and waits together: prefer
// RetryPolicy.AttemptTimeout, and a deadline in the context.
type Transport struct {
	// Base sends the requests. If nil, http.DefaultTransport.
	Base http.RoundTripper

	// Retry says what is retried, and when. The zero RetryPolicy is a careful
	// one. WithRetry replaces it for one request.
	Retry RetryPolicy

	// Budget bounds the retries that no server invited. If nil, a LocalBudget
	// of the Transport's own; it keeps each host apart.
	Budget Budget

	// Pacer holds attempts back so that a limit is not exceeded. If nil, they
	// are not paced; cool-downs still hold.
	Pacer Pacer

	// Board is where cool-downs are posted. If nil, a LocalBoard of the
	// Transport's own. NoBoard turns them off.
	Board Board

	// Key says what a cool-down applies to. If nil, scheme://host; "" means
	// that the request neither posts one nor waits for one. See ByCredential.
	Key func(*http.Request) string

	// Trace is told what happens. If nil, nobody is.
	Trace *Trace

	budget LocalBudget
	board  LocalBoard
}

// RoundTrip sends req, and sends it again as Retry says. It returns the last
// response as it came, its body unread, with a nil error: whatever its status, a
// response is never turned into an error. It returns an error if there is no
// response at all, an *OverdueError if req may not wait for its turn, and the
// context's error, among others, if the caller gave up.
func (t *Transport) RoundTrip(req *http.Request) (*http.Response, error) {
	if req.URL == nil {
		return t.base().RoundTrip(req) // which knows what to say, and closes the body
	}
	c := call{t: t, req: req, policy: &t.Retry, start: now()}
	if o, ok := req.Context().Value(overridesKey{}).(*overrides); ok {
		c.override(o)
	}
	c.host = hosts.Key(req.URL.Scheme, req.URL.Host)
	defer c.cleanUp()
	t.deposit(req.Context(), &c)
	return c.run()
}

// CloseIdleConnections closes those of Base, if it can.
func (t *Transport) CloseIdleConnections() {
	if b, ok := t.base().(interface{ CloseIdleConnections() }); ok {
		b.CloseIdleConnections()
	}
}

func (t *Transport) base() http.RoundTripper {
	if t.Base == nil {
		return http.DefaultTransport
	}
	return t.Base
}

// deposit spares a LocalBudget a clock reading of its own.
func (t *Transport) deposit(ctx context.Context, c *call) {
	switch b := t.Budget.(type) {
	case nil:
		t.budget.deposit(c.host, c.start)
	case *LocalBudget:
		b.deposit(c.host, c.start)
	default:
		b.Deposit(ctx, c.host)
	}
}

func (t *Transport) retries() Budget {
	if t.Budget == nil {
		return &t.budget
	}
	return t.Budget
}

// lanes is where this process's requests wait in line, whatever the Board; nil
// if there are no cool-downs.
func (t *Transport) lanes() *LocalBoard {
	switch b := t.Board.(type) {
	case *LocalBoard:
		return b
	case noBoard:
		return nil
	}
	return &t.board
}

// shared is the Board that others post to as well, nil if it is this process's.
func (t *Transport) shared() Board {
	switch t.Board.(type) {
	case nil, *LocalBoard, noBoard:
		return nil
	}
	return t.Board
}
