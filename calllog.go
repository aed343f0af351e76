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

// A Ledger records a call: its attempts, their outcomes, and the waits between them. Get one to
// find out why a call was slow or failed:
//
//	ctx := heed.WithLedger(context.Background())
//	req, _ := http.NewRequestWithContext(ctx, "GET", url, nil)
//	resp, err := client.Do(req)
//	fmt.Print(heed.FromContext(ctx))
//
// If http.Client followed redirects, the Ledger has the attempts of all hops. If several calls use
// one context, it has those of all calls, in the order in which they ended.
type Ledger struct {
	Entries []Entry
	Waits   []Wait // waits for an attempt that has not ended or was never sent

	// Refused says why the call, or its last retry, was not sent. It is nil if that was sent,
	// cancelled or drained.
	Refused *OverdueError
}

// An Entry is one attempt in a Ledger.
type Entry struct {
	Number  int           // 1 for a request's first attempt
	Request *http.Request // the caller's request
	Status  int           // 0 if Err is not nil
	Err     error
	Took    time.Duration // until the response's header had arrived
	Waited  time.Duration // since the previous attempt, or since RoundTrip was called
	Waits   []Wait        // the reasons, in the order in which they were known

	Hinted  bool          // whether the server asked for a wait
	Hint    time.Duration // the wait it asked for, from the end of the attempt on
	Sources []string      // the fields with the hint; empty if RetryPolicy.Hint found it

	Verdict Verdict       // what followed
	Next    time.Duration // how long the next attempt should wait, or would have had to
}

// A Wait is one reason why an attempt was not sent at once, and the time that it required. Several
// waits can run at the same time, so do not add them up.
type Wait struct {
	Cause Cause
	For   time.Duration
}

// A Cause is the reason for a wait. The zero Cause means that there is no wait, or that the reason
// is unknown.
type Cause int

const (
	CauseHint     Cause = iota + 1 // the server asked for it
	CauseBackoff                   // RetryPolicy.Backoff, if there was no hint or a shorter one
	CauseCoolDown                  // another request with the same key was refused
	CausePace                      // the Pacer delayed the request
	CauseOutage                    // the host was down
)

var causes = [...]string{CauseHint: "hint", CauseBackoff: "backoff", CauseCoolDown: "cool-down", CausePace: "pace", CauseOutage: "outage"}

// String returns "hint", "backoff", "cool-down", "pace" or "outage", and "unknown cause" for any other
// value.
func (c Cause) String() string {
	if c < CauseHint || int(c) >= len(causes) {
		return "unknown cause"
	}
	return causes[c]
}

// WithLedger returns a context whose calls are recorded in a Ledger, which FromResponse and
// FromContext return. Use a new one for each call. Recording costs a few allocations for each
// attempt; calls without it cost nothing.
func WithLedger(ctx context.Context) context.Context {
	b := new(ledgerRecorder)
	return context.WithValue(WithTrace(ctx, b.trace()), ledgerKey{}, b)
}

// FromResponse returns what is recorded so far of the call that returned resp. It is empty unless
// the request's context comes from WithLedger.
func FromResponse(resp *http.Response) Ledger {
	if resp == nil || resp.Request == nil {
		return Ledger{}
	}
	return FromContext(resp.Request.Context())
}

// FromContext returns what is recorded so far of the calls with this context. Unlike FromResponse
// it also works for a call that returned an error.
func FromContext(ctx context.Context) Ledger {
	if b, ok := ctx.Value(ledgerKey{}).(*ledgerRecorder); ok {
		return b.snapshot()
	}
	return Ledger{}
}

type ledgerKey struct{}

// A ledgerRecorder records a Ledger.
type ledgerRecorder struct {
	mu        sync.Mutex // guards the fields below
	ledger    Ledger
	refusedAt time.Duration // when ledger.Refused was set
}

func (b *ledgerRecorder) trace() *Trace {
	return &Trace{Paced: b.paced, Cooled: b.cooled, Waited: b.waited, Decided: b.decided, Refused: b.refused}
}

func (b *ledgerRecorder) snapshot() Ledger {
	b.mu.Lock()
	defer b.mu.Unlock()
	return Ledger{slices.Clone(b.ledger.Entries), slices.Clone(b.ledger.Waits), b.ledger.Refused}
}

func (b *ledgerRecorder) paced(_ *http.Request, wait time.Duration) {
	if wait >= minPaced {
		b.wait(Wait{CausePace, wait})
	}
}

func (b *ledgerRecorder) cooled(_ *http.Request, _ string, wait time.Duration) {
	b.wait(Wait{CauseCoolDown, wait})
}

// waited records waits for a host that was down. Of the others it is known before how long they take.
func (b *ledgerRecorder) waited(_ *http.Request, cause Cause, took time.Duration) {
	if cause == CauseOutage {
		b.wait(Wait{cause, took})
	}
}

func (b *ledgerRecorder) refused(_ *http.Request, err *OverdueError) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.ledger.Refused, b.refusedAt = err, now()
}

func (b *ledgerRecorder) wait(w Wait) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.ledger.Waits = append(b.ledger.Waits, w)
}

func (b *ledgerRecorder) decided(a Attempt, v Verdict, wait time.Duration) {
	e := (&a).entry(v, wait)
	b.mu.Lock()
	defer b.mu.Unlock()
	e.Waits, b.ledger.Waits = b.ledger.Waits, nil
	b.ledger.Entries = append(b.ledger.Entries, e)
	if a.sent > b.refusedAt { // what was refused before is over
		b.ledger.Refused = nil
	}
	if v == Again && wait > 0 && a.Cause != CauseOutage {
		b.ledger.Waits = []Wait{{a.Cause, wait}}
	}
}

// cause returns why the next attempt has to wait.
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

// entry returns the Entry for an attempt and its verdict.
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
		if wait, ok := ratelimit.Wait(resp.StatusCode, resp.Header, time.Time{}); ok && a.hinted && wait == a.hint {
			e.Sources = ratelimit.Sources(resp.StatusCode, resp.Header, time.Time{})
		}
	}
	return e
}

// String describes the call, with one line for each attempt. It contains no URL, header value or
// error text, because any of them may hold a secret.
func (l Ledger) String() string {
	var s strings.Builder
	for _, e := range l.Entries {
		fmt.Fprintln(&s, e)
	}
	switch r := l.Refused; {
	case r != nil && r.Cause == CauseOutage:
		fmt.Fprintf(&s, "not sent again: the host is down for longer than %s\n", r.Limit)
	case r != nil && r.Err != nil:
		fmt.Fprintln(&s, "not sent: refused by the Pacer")
	case r != nil:
		fmt.Fprintf(&s, "not sent: must wait %v (%v)", rounded(r.Wait), r.Cause)
		if r.Limit != "" {
			fmt.Fprintf(&s, ", too long for %s", r.Limit)
		}
		fmt.Fprintln(&s)
	case len(l.Waits) > 0:
		fmt.Fprintln(&s, "waiting"+reasons(l.Waits))
	}
	return s.String()
}

// String returns one line of Ledger.String.
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
