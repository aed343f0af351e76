package heed

import (
	"context"
	"net/http"
	"sync/atomic"
)

// A Transport is an http.RoundTripper that respects the limits which servers announce. Use it as
// the Transport of an http.Client:
//
//	client := &http.Client{Transport: &heed.Transport{}}
//
// It waits as long as the server asks, retries within a budget what may succeed later, and after a
// refusal holds back other requests to the same server. While a server is down, requests wait for
// it.
//
// The zero Transport is ready to use. It is safe for concurrent use. Do not copy it or change its
// fields once it is in use. Several Transports can share a Budget, Pacer or Board.
//
// A Transport never modifies the caller's request, and closes its body exactly once. The first
// attempt sends the caller's own request, unless heed has to keep its body, limit its time or add a
// field, or http.DefaultTransport was replaced.
//
// Some things are outside the reach of a RoundTripper:
//
//   - net/http may resend a request by itself, when the server had just closed the connection. heed
//     neither sees that nor charges it to the budget.
//   - The cookies of a response that was retried are lost.
//   - Each hop of a redirect is a request of its own.
//   - Client.Timeout covers all attempts and waits together. Prefer RetryPolicy.AttemptTimeout and
//     a deadline in the context.
//   - Put a RoundTripper that signs requests into Base, so that each attempt is signed.
type Transport struct {
	// Base sends the requests. If nil, it is http.DefaultTransport, as it is at each attempt. A
	// Transport may itself become http.DefaultTransport: then the one of the program's start sends.
	// (Some libraries fail then, because they expect an *http.Transport there.) It may also be inside
	// of a RoundTripper there which keeps the context of requests: that gets the call, and then each
	// attempt. If another Transport is there, its Base is used.
	Base http.RoundTripper

	// Retry says which requests are retried, and when. The zero RetryPolicy is a cautious one.
	// WithRetry and WithRetryFunc override it for one request.
	Retry RetryPolicy

	// Budget limits the retries, except those that wait for as long as a refusal asks and those
	// after a request that could not be sent. The retries of a request that ends well are given
	// back. If nil, the Transport has a LocalBudget of its own, which counts each host separately.
	Budget Budget

	// Pacer delays requests to stay within a limit. If nil, requests are not paced; they still wait
	// for cool-downs, and for hosts that are down.
	Pacer Pacer

	// Board stores cool-downs. If nil, the Transport has a LocalBoard of its own. Transports with
	// one LocalBoard also share what they know of hosts that are down, whatever the Key and the
	// credential. Other Boards store no outages: then each Transport knows its own. With NoBoard no
	// request waits for a cool-down or for a host that is down.
	Board Board

	// Key returns the key whose cool-downs apply to a request. If nil, it is ByCredential: scheme,
	// host and credential. For a vendor that limits some requests separately, the request's scope
	// is added: GitHub's resource, Slack's method, Discord's bucket, OpenAI's model, which is in a copy of
	// the body that GetBody returns. The scope comes from the
	// Profile for the host, in Retry.Profiles or built in (see ratelimit.Vendors), and from what
	// responses name. A refusal that concerns the whole credential, such as GitHub's secondary
	// limit, closes all its scopes.
	//
	// The result of a Key of your own is used without a scope. If it is "", the request neither
	// posts a cool-down nor waits for one.
	//
	// Other servers do not say which of their policies applies to a request, so a refusal under one
	// policy holds back all requests with the same key. If a policy covers only some requests, a
	// Key that tells those apart lets the others go on.
	Key func(*http.Request) string

	// Trace has hooks for logs and metrics. If nil, none are called.
	Trace *Trace

	budget   LocalBudget
	board    LocalBoard
	draining drainSlots
	marks    atomic.Bool // some requests have a mark
	closing  atomic.Bool // CloseIdleConnections is running
	lacking  atomic.Bool // it was told that a body does not name its limit
}

// CloseIdleConnections closes the idle connections of Base, if Base has such a method.
func (t *Transport) CloseIdleConnections() {
	base, _ := t.base(new(http.Request))
	if t.closing.CompareAndSwap(false, true) {
		defer t.closing.Store(false)
	} else if t.Base == nil {
		base = firstDefault // base has called back
	}
	if b, ok := base.(interface{ CloseIdleConnections() }); ok {
		b.CloseIdleConnections()
	}
}

// firstDefault is the http.DefaultTransport of the program's start.
var firstDefault = http.DefaultTransport

// A mark is the context key of the requests that t gave to a RoundTripper which may bring them back.
type mark struct{ t *Transport }

// base returns what sends req, and req as that gets it: with a mark, if it may come back to t.
func (t *Transport) base(req *http.Request) (http.RoundTripper, *http.Request) {
	if t.Base != nil {
		return t.Base, req
	}
	base := http.DefaultTransport
	if other, ok := base.(*Transport); ok {
		base = other.Base // one policy is enough
	}
	switch base.(type) {
	case nil:
		return firstDefault, req
	case *http.Transport: // which has no Transport inside
		return base, req
	}
	t.marks.Store(true)
	return base, req.WithContext(context.WithValue(req.Context(), mark{t}, true))
}

// localBudget returns the Budget if it is a LocalBudget, which can be called without another clock
// reading, and nil otherwise.
func (t *Transport) localBudget() *LocalBudget {
	if t.Budget == nil {
		return &t.budget
	}
	b, local := t.Budget.(*LocalBudget)
	if local && b == nil {
		return &t.budget // a nil *LocalBudget counts as no Budget
	}
	return b
}

func (t *Transport) budgetOrOwn() Budget {
	if b := t.localBudget(); b != nil {
		return b
	}
	return t.Budget
}

// localBoard returns the board with this process's waiting lines, which exist beside a shared Board
// too. It is nil if there are no cool-downs.
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

// sharedBoard returns a Board that other processes may use too, or nil if the Board is local.
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
