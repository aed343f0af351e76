package retryable

import (
	"context"
	"errors"
	"net/http"
	"reflect"

	"github.com/hashicorp/go-retryablehttp"

	"github.com/heedhttp/heed"
)

// Install lets heed do the retries of c, with the settings that c has:
//
//	retryable.Install(client, &heed.Transport{})
//
// The callers of c stay as they are, those of its StandardClient included.
//
// Install fills the zero fields of t.Retry and t.Trace from c. Fields that are set stay:
//
//   - RetryMax: MaxAttempts is one more.
//   - CheckRetry: If. One difference stays: a request that is not idempotent, such as a
//     POST without an Idempotency-Key, is not repeated after a status from 500 on, a 408 or
//     a broken connection, because the server may have acted upon it. To have CheckRetry
//     alone decide, set t.Retry.If to If(c.CheckRetry). If CheckRetry is one of
//     go-retryablehttp's own, heed.Worthwhile decides as well: it knows more refusals
//     because of a limit, and errors that stay, such as that of a name that does not exist.
//   - Backoff, RetryWaitMin, RetryWaitMax: Backoff. DefaultBackoff gets a jitter within
//     the two. A server's hint is the least wait, whatever Backoff says.
//   - HTTPClient.Timeout: AttemptTimeout. It bounds each attempt, as before, and the reading
//     of the response's body with it. It never bounds all attempts together.
//   - Logger: Trace, by LogTrace.
//   - MaxWait is a day, or RetryWaitMax if that is more, and MaxElapsed is unlimited:
//     go-retryablehttp has neither. A deadline of the context holds.
//   - MaxBodyBuffer is 8 MiB. It is for a body that only streams, through StandardClient or
//     FromRequest; others are replayed whatever their size.
//
// A hook of c is called as before: RequestLogHook for each attempt, ResponseLogHook for each
// response, PrepareRetry for each retry. What a hook changes in a retry, it changes for that
// retry alone. An error of PrepareRetry is final.
//
// The last result goes to CheckRetry and ErrorHandler as before. So without an ErrorHandler
// a failure is still an error, and with retryablehttp.PassthroughErrorHandler the caller
// gets the last response. A Request's ResponseHandler is called once, for the last response
// whatever its status, and its error is final. Cookies are kept of the last response alone.
//
// Budget, Pacer, Board and Key are those of t. Install replaces a nil Budget and a nil Board by
// heed's defaults, so that two clients installed with one t share them; each client keeps its
// own settings. heed.Unlimited and heed.NoBoard turn them off. Install does not change t.Retry
// and t.Trace: t may be used elsewhere too.
//
// t.Base sends the requests. If it is nil, c.HTTPClient's Transport sends them, and the first
// Install sets t.Base to it; a second client still sends through its own. c.HTTPClient is
// replaced by a copy, so others may share the original. CloseIdleConnections of the copy does
// nothing, because c calls it whenever a request fails; t.CloseIdleConnections works.
//
// Install reads all of this once: neither c nor t may be in use, and later changes of the
// settings have no effect until Install is called again. Hooks and Logger may still be set. An
// earlier Install, and a heed.Transport that is in c, are replaced, not wrapped. A nil t is
// a zero heed.Transport. Install panics if c is nil.
func Install(c *retryablehttp.Client, t *heed.Transport) {
	if c == nil {
		panic("retryable: Install: the client is nil")
	}
	if t == nil {
		t = new(heed.Transport)
	}
	i := newInstalled(c)
	i.t = i.transport(t)
	own := i.http
	own.Transport, own.Timeout = i, 0
	c.HTTPClient, c.CheckRetry, c.ErrorHandler = &own, i.checkLast, i.giveUp
}

// An installed is the Transport of c's http.Client. It has no CloseIdleConnections: c would
// call it whenever a request fails, and close the connections of all others.
type installed struct {
	c *retryablehttp.Client
	t *heed.Transport

	// What Install replaces in c.
	http   http.Client // Its Transport is what heed sends with.
	check  retryablehttp.CheckRetry
	handle retryablehttp.ErrorHandler
}

// newInstalled reads from c what Install replaces. What an earlier Install has replaced, it
// asks that for.
func newInstalled(c *retryablehttp.Client) *installed {
	i := &installed{c: c, check: c.CheckRetry, handle: c.ErrorHandler}
	if same(i.check, i.checkLast) {
		_, err := i.check(context.Background(), nil, errWhich)
		i.check = callOfResult(nil, err).client.check
	}
	if same(i.handle, i.giveUp) {
		_, err := i.handle(nil, errWhich, 0)
		i.handle = callOfResult(nil, err).client.handle
	}
	if c.HTTPClient == nil {
		i.http = *retryablehttp.NewClient().HTTPClient
	} else {
		i.http = *c.HTTPClient
	}
	if earlier, ok := i.http.Transport.(*installed); ok && i.http.Timeout == 0 {
		i.http.Timeout = earlier.http.Timeout
	}
	i.http.Transport = withoutHeed(i.http.Transport)
	return i
}

// errWhich asks checkLast and giveUp which installed they are of: a callError tells.
var errWhich = errors.New("retryable: which?")

// same reports whether two functions are the same, or the same method of two values.
func same(f, g any) bool { return reflect.ValueOf(f).Pointer() == reflect.ValueOf(g).Pointer() }

// withoutHeed returns what sends for rt, if rt is heed: one loop of attempts around another
// would multiply them.
func withoutHeed(rt http.RoundTripper) http.RoundTripper {
	switch rt := rt.(type) {
	case *installed:
		return withoutHeed(rt.t)
	case *heed.Transport:
		return withoutHeed(rt.Base)
	case *resender:
		return withoutHeed(rt.base)
	case nil:
		return defaultBase
	}
	return rt
}

// defaultBase is read once: a heed.Transport may become the default later.
var defaultBase = http.DefaultTransport

// transport returns a Transport for c alone. It shares with t what clients can share.
func (i *installed) transport(t *heed.Transport) *heed.Transport {
	if t.Budget == nil {
		t.Budget = new(heed.LocalBudget)
	}
	if t.Board == nil {
		t.Board = new(heed.LocalBoard)
	}
	return &heed.Transport{
		Base: &resender{i.base(t), i}, Retry: i.policy(t.Retry), Trace: i.trace(t.Trace),
		Budget: t.Budget, Pacer: t.Pacer, Board: t.Board, Key: t.Key,
	}
}

// base returns what sends for c. A Base of t's is used if the caller has set it, and not if it
// is a resender: that one an Install has set, for another client.
func (i *installed) base(t *heed.Transport) http.RoundTripper {
	if t.Base == nil {
		t.Base = &resender{i.http.Transport, nil}
	}
	if _, ok := t.Base.(*resender); ok {
		return i.http.Transport
	}
	return t.Base
}
