package heed

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/heedhttp/heed/ratelimit"
)

// A Ledger is the story of a call: what was sent, what came of it, and what was
// waited for in between. If an http.Client followed redirects, it is that of all
// hops; of several calls with one context, that of all of them, in the order in
// which their attempts ended.
type Ledger struct {
	Entries []Entry
	Waits   []Wait // those before an attempt that has not ended, or was never sent
}

// An Entry is one attempt in a Ledger.
type Entry struct {
	Number  int           // 1 for the first of a request
	Request *http.Request // as the caller gave it
	Status  int           // 0 if Err is not nil
	Err     error
	Took    time.Duration // of the attempt, up to the end of the response's header
	Waited  time.Duration // since the attempt before or, of the first, since RoundTrip was called
	Waits   []Wait        // what that was for, in the order in which it was decided on

	Hinted  bool          // whether the server asked for a wait
	Hint    time.Duration // how long it is, from the end of the attempt on
	Sources []string      // the response's fields that say so; empty if RetryPolicy.Hint found it

	Verdict Verdict       // what followed
	Next    time.Duration // what the next attempt was to wait, or would have had to
}

// A Wait is why an attempt was not sent at once, and for how long it was to be
// held back. Several can run at the same time: they do not add up.
type Wait struct {
	Cause Cause
	For   time.Duration
}

// A Cause is why an attempt waits.
type Cause int

const (
	CauseHint     Cause = iota + 1 // the server asked for it
	CauseBackoff                   // RetryPolicy.Backoff: there was no hint, or a shorter one
	CauseCoolDown                  // another request to the same key was told to wait
	CausePace                      // the Pacer held it back
)

var causes = [...]string{CauseHint: "hint", CauseBackoff: "backoff", CauseCoolDown: "cool-down", CausePace: "pace"}

// String is "hint", "backoff", "cool-down" or "pace".
func (c Cause) String() string {
	if c < CauseHint || int(c) >= len(causes) {
		return "unknown cause"
	}
	return causes[c]
}

// WithLedger returns a context whose calls are written down, for FromResponse and
// FromContext. It is for one call, and costs a few allocations for each attempt;
// calls without it cost nothing.
func WithLedger(ctx context.Context) context.Context {
	b := new(book)
	return context.WithValue(WithTrace(ctx, b.trace()), bookKey{}, b)
}

// FromResponse returns the story of the call that resp answers, as it is by now. It is
// empty unless the context of the request is one of WithLedger.
func FromResponse(resp *http.Response) Ledger {
	if resp == nil || resp.Request == nil {
		return Ledger{}
	}
	return FromContext(resp.Request.Context())
}

// FromContext is FromResponse for a call that ended with an error: ctx is that of
// the request.
func FromContext(ctx context.Context) Ledger {
	if b, ok := ctx.Value(bookKey{}).(*book); ok {
		return b.read()
	}
	return Ledger{}
}

type bookKey struct{}

// A book is a Ledger that is being written.
type book struct {
	mu     sync.Mutex
	ledger Ledger // guarded by mu
}

func (b *book) trace() *Trace {
	return &Trace{Paced: b.paced, Cooled: b.cooled, Decided: b.decided}
}

func (b *book) read() Ledger {
	b.mu.Lock()
	defer b.mu.Unlock()
	return Ledger{slices.Clone(b.ledger.Entries), slices.Clone(b.ledger.Waits)}
}

func (b *book) paced(_ *http.Request, wait time.Duration) {
	if wait >= time.Millisecond { // less is what asking takes
		b.wait(Wait{CausePace, wait})
	}
}

func (b *book) cooled(_ *http.Request, _ string, wait time.Duration) {
	b.wait(Wait{CauseCoolDown, wait})
}

func (b *book) wait(w Wait) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.ledger.Waits = append(b.ledger.Waits, w)
}

func (b *book) decided(a Attempt, v Verdict, wait time.Duration) {
	e := (&a).entry(v, wait)
	b.mu.Lock()
	defer b.mu.Unlock()
	e.Waits, b.ledger.Waits = b.ledger.Waits, nil
	b.ledger.Entries = append(b.ledger.Entries, e)
	if v == Again && wait > 0 {
		b.ledger.Waits = []Wait{{a.Cause, wait}}
	}
}

// cause is what has the attempt after a wait for so long.
func (a *Attempt) cause(v Verdict, wait time.Duration) Cause {
	switch {
	case v != Again || wait == 0:
		return 0
	case wait == a.hint:
		return CauseHint
	case wait == a.backoff:
		return CauseBackoff
	}
	return CauseCoolDown
}

// entry writes a down, and what follows from it.
func (a *Attempt) entry(v Verdict, wait time.Duration) Entry {
	e := Entry{
		Number: a.Number, Request: a.Request, Err: a.Err, Took: a.Took, Waited: a.Waited,
		Hinted: a.hinted, Hint: a.hint, Verdict: v, Next: wait,
	}
	if a.Number == 1 {
		e.Waited = a.Elapsed - a.Took
	}
	if resp := a.Response; resp != nil {
		e.Status = resp.StatusCode
		if wait, ok := RetryAfter(resp, time.Time{}); ok && a.hinted && wait == a.hint {
			e.Sources = ratelimit.Sources(resp.StatusCode, resp.Header, time.Time{})
		}
	}
	return e
}

// String tells the story in a line for each attempt. It shows no URL, no header
// value and no text of an error, any of which may hold a secret.
func (l Ledger) String() string {
	var s strings.Builder
	for _, e := range l.Entries {
		fmt.Fprintln(&s, e)
	}
	if len(l.Waits) > 0 {
		fmt.Fprintln(&s, "waiting"+reasons(l.Waits))
	}
	return s.String()
}

// String is a line of Ledger.String.
func (e Entry) String() string {
	s := fmt.Sprintf("%d.", e.Number)
	if e.Waited >= time.Millisecond {
		s += fmt.Sprintf(" waited %v%s,", e.Waited.Round(time.Millisecond), reasons(e.Waits))
	}
	if e.Err != nil {
		s += " failed"
	} else {
		s += fmt.Sprintf(" %d", e.Status)
	}
	s += fmt.Sprintf(" in %v", e.Took.Round(time.Microsecond))
	if e.Hinted {
		s += fmt.Sprintf(", asked to wait %v", e.Hint)
		if len(e.Sources) > 0 {
			s += " by " + strings.Join(e.Sources, ", ")
		}
	}
	return s + ": " + e.Verdict.String()
}

func reasons(waits []Wait) string {
	if len(waits) == 0 {
		return ""
	}
	var all []string
	for _, w := range waits {
		all = append(all, fmt.Sprintf("%v %v", w.Cause, w.For.Round(time.Millisecond)))
	}
	return " (" + strings.Join(all, ", ") + ")"
}
