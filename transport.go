package heed

import (
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
	// Base sends the requests. If nil, the http.DefaultTransport that there was when
	// the program started, so that a Transport may be made the default itself. (Not all
	// libraries bear that: some expect http.DefaultTransport to be a *http.Transport.)
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

	// Key says what a cool-down applies to. If nil, ByCredential, scheme://host and whose
	// credential the request has; and of a vendor that limits some requests apart from
	// others, the scope of the request: GitHub's resource, Slack's method, Discord's
	// bucket. That is what the Scope of the Profile says which serves the host: the one in
	// Retry.Profiles, or else the built-in one (see ratelimit.Vendors), and what responses
	// name. A refusal that a Profile says is of all requests, such as GitHub's secondary
	// limit, holds all scopes of the credential.
	//
	// A Key of your own is used as it is, without a scope. "" means that the request
	// neither posts a cool-down nor waits for one.
	//
	// Of other servers no field tells which policy a request will meet. So a policy that
	// denies one request of a key holds all of them, and where it is only for some, a Key
	// that tells those apart holds no others.
	Key func(*http.Request) string

	// Trace is told what happens. If nil, nobody is.
	Trace *Trace

	budget   LocalBudget
	board    LocalBoard
	draining slots
}

// CloseIdleConnections closes those of Base, if it can.
func (t *Transport) CloseIdleConnections() {
	if b, ok := t.base().(interface{ CloseIdleConnections() }); ok {
		b.CloseIdleConnections()
	}
}

func (t *Transport) base() http.RoundTripper {
	if t.Base == nil {
		return defaultBase
	}
	return t.Base
}

var defaultBase = http.DefaultTransport

// localBudget is the Budget if it is one that costs no call to other code.
func (t *Transport) localBudget() *LocalBudget {
	if t.Budget == nil {
		return &t.budget
	}
	b, local := t.Budget.(*LocalBudget)
	if local && b == nil {
		return &t.budget // a nil pointer is no Budget either
	}
	return b
}

func (t *Transport) budgetOrOwn() Budget {
	if b := t.localBudget(); b != nil {
		return b
	}
	return t.Budget
}

// localBoard is where this process's requests wait in line, whatever the Board; nil
// if there are no cool-downs.
func (t *Transport) localBoard() *LocalBoard {
	if t.Board == nil {
		return &t.board
	}
	switch b := t.Board.(type) {
	case noBoard:
		return nil
	case *LocalBoard:
		if b != nil {
			return b
		}
	}
	return &t.board
}

// sharedBoard is the Board that others post to as well, nil if it is this process's.
func (t *Transport) sharedBoard() Board {
	if t.Board == nil {
		return nil
	}
	switch t.Board.(type) {
	case *LocalBoard, noBoard:
		return nil
	}
	return t.Board
}
