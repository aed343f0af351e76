package contract

import (
	"fmt"
	"time"
)

// Tolerances of the clauses for the network and the clock.
const (
	maxAttempts = 10                     // of one request
	probeAfter  = time.Minute            // after this time a client may probe, whatever the hint
	slack       = 100 * time.Microsecond // a request that is early by less is on time
	inFlight    = 100 * time.Millisecond // how long a request may be under way before it arrives
	instant     = 5 * time.Millisecond   // events within this time are simultaneous
	herd        = 3                      // this many requests make a herd
	shortHint   = 2 * time.Second        // a refusal with no longer hint may bind its own request alone
	manyGood    = 5                      // so many good answers show that a refusal came by chance
)

// Client returns the clauses for clients. Use all of them, or pick single ones:
//
//	err := contract.Check(srv.Log(), contract.Client()...)
func Client() []Clause {
	return []Clause{
		{
			ID: "client/wait-seconds", Level: Must, Ref: "RFC 9110 section 10.2.3",
			Text: "After an answer with Retry-After in seconds, the request is not repeated before that time, or the " +
				"exact milliseconds it was rounded from, has passed.",
			Check: func(log []Exchange) ([]Breach, bool) { return waits(log, false) },
		},
		{
			ID: "client/wait-date", Level: Must, Ref: "RFC 9110 sections 5.6.7 and 10.2.3",
			Text: "After an answer with Retry-After as a date, the request is not repeated before that date, by the " +
				"clock of the response's Date.",
			Check: func(log []Exchange) ([]Breach, bool) { return waits(log, true) },
		},
		{
			ID: "client/cool-down", Level: Must, Ref: "heed: cool-down; RFC 6585 section 4",
			Text: "After a 429 with Retry-After, no request of any worker arrives before that time has passed. If that is " +
				"longer than a minute and no field says that nothing is left, probes may arrive after 1, 2, 4, 8 … minutes; " +
				"what they are told replaces it. A 429 of at most two seconds, without such a field, may bind its own " +
				"request alone: the first of these in a minute, if its key was answered well within ten seconds before, and " +
				"any one before which that was answered well five times within two seconds.",
			Check: coolDown,
		},
		{
			ID: "client/attempts", Level: Must, Ref: "heed: RetryPolicy.MaxAttempts",
			Text:  "A request is sent at most 10 times.",
			Check: attempts,
		},
		{
			ID: "client/budget", Level: Must, Ref: "heed: Budget; Site Reliability Engineering, chapter 21",
			Text: "Retries are at most a tenth of the requests to a host, plus 10, plus one a second; a refused " +
				"connection, which no log has, is neither. Two kinds do not count: retries of a request whose last " +
				"answer is below 500 and no refusal; and retries that waited for the Retry-After of a refusal, unless " +
				"the refused attempt was sent after the end of the caller's previous Retry-After and nothing was " +
				"answered well since that end.",
			Check: budget,
		},
		{
			ID: "client/same-request", Level: Must, Ref: "draft-ietf-httpapi-idempotency-key-header-07 section 2",
			Text:  "All attempts of a request have the same method, URL, body and Idempotency-Key.",
			Check: sameRequest,
		},
		{
			ID: "client/idempotent", Level: Must, Ref: "RFC 9110 section 9.2.2",
			Text: "A request with neither an idempotent method nor an Idempotency-Key is not repeated after a lost " +
				"answer or a 5xx, because the server may have acted on it, unless X-Should-Retry or " +
				"Stripe-Should-Retry asks for it, or the vendor's own client repeats such a request.",
			Check: idempotent,
		},
		{
			ID: "client/herd", Level: Should, Ref: "heed: cool-down; draft-ietf-httpapi-ratelimit-headers-11 section 8.5",
			Text:  "Requests that were told to wait do not all return at the moment when the wait ends.",
			Check: returnTogether,
		},
	}
}

func early(h hint, at time.Time) bool { return h.until.Sub(at) >= slack }

// notBefore returns the Want and Got of a request that came before the end of h.
func notBefore(log []Exchange, h hint, at time.Time) (want, got string) {
	return fmt.Sprintf("no arrival before %v, %v after the answer", since(log, h.until), h.wait),
		fmt.Sprintf("one at %v, %v too early", since(log, at), h.until.Sub(at))
}

// waits judges every attempt by the longest hint that its request got.
func waits(log []Exchange, date bool) ([]Breach, bool) {
	s := parseLog(log, byIdempotencyKey)
	longest := make(map[*request]hint)
	f := collector{unclear: s.ambiguous}
	for _, ev := range s.events {
		r := s.of[ev.i]
		h := longest[r]
		if ev.answer {
			if next, ok := retryAfter(ev.i, &log[ev.i]); ok && log[ev.i].Status >= 400 && next.until.After(h.until) {
				longest[r] = next
			}
			continue
		}
		switch {
		case h.wait <= 0 || h.date != date:
		case h.wait > probeAfter && !r.named:
			f.unclear = true // a client gives up rather than wait so long: this may be another request
		case early(h, ev.at):
			want, got := notBefore(log, h, ev.at)
			f.breach(want, got, h.i, ev.i).Guessed = !r.named
		default:
			f.judged++
		}
	}
	return f.result()
}

func attempts(log []Exchange) ([]Breach, bool) {
	s := parseLog(log, byIdempotencyKey)
	f := collector{unclear: s.ambiguous}
	for _, r := range s.requests {
		if n := len(r.attempts); n > maxAttempts {
			f.breach(fmt.Sprintf("at most %d attempts", maxAttempts), fmt.Sprint(n), r.attempts[0],
				r.attempts[maxAttempts]).Guessed = !r.named
		} else if n > 1 {
			f.judged++
		}
	}
	return f.result()
}

// An account is what the requests to one host have earned and spent.
type account struct {
	first, last    time.Time
	requests, paid int
	retry          int  // the last paid retry of a request that did not end well
	guessed        bool // a paid retry may be another request
}

func (a *account) allowed() int {
	return int(10 + float64(a.requests)/10 + max(0, a.last.Sub(a.first).Seconds()) + 1e-9)
}

// budget counts what a server's log has. An attempt whose connection was lost is in the log, as
// Dropped. One whose connection was refused is not: it was never sent, and costs nothing.
func budget(log []Exchange) ([]Breach, bool) {
	s := parseLog(log, byIdempotencyKey)
	accounts, order := accountsOf(s)
	f := collector{unclear: s.ambiguous}
	for _, origin := range order {
		a := accounts[origin]
		switch {
		case a.paid > a.allowed():
			f.breach(fmt.Sprintf("at most %d such retries for %d requests in %v", a.allowed(), a.requests, a.last.Sub(a.first)),
				fmt.Sprint(a.paid), a.retry).Guessed = a.guessed
		case a.paid > 0:
			f.judged++
		}
	}
	return f.result()
}

func accountsOf(s *parsedLog) (accounts map[string]*account, order []string) {
	accounts = make(map[string]*account)
	free := make(map[*request]hint) // a retry is free if it comes after the end of this
	callers := make(map[caller]*callerState)
	for _, ev := range s.events {
		e, r := &s.log[ev.i], s.of[ev.i]
		if ev.answer {
			free[r] = stateOf(callers, e).answer(ev, e)
			continue
		}
		a := accounts[e.origin()]
		if a == nil {
			a = &account{first: ev.at}
			accounts[e.origin()] = a
			order = append(order, e.origin())
		}
		a.last = ev.at
		h := free[r]
		switch last := &s.log[r.attempts[len(r.attempts)-1]]; {
		case r.attempts[0] == ev.i:
			a.requests++
		case last.succeeded(): // its retries are given back
		case h.wait <= 0 || early(h, ev.at):
			a.paid++
			a.retry = ev.i
			a.guessed = a.guessed || !r.named
		}
	}
	return accounts, order
}

// A caller is one credential of one key. Each has its own limits.
type caller struct{ key, credential string }

// A callerState is what a caller knows from its last answers.
type callerState struct {
	until time.Time // the end of its last hint; zero if it had none
	good  bool      // since then there was a good answer
}

func stateOf(callers map[caller]*callerState, e *Exchange) *callerState {
	c := caller{e.key(), e.Header.Get("Authorization")}
	if callers[c] == nil {
		callers[c] = &callerState{}
	}
	return callers[c]
}

// answer returns the hint of a refusal after which a retry is free, or the zero hint.
func (c *callerState) answer(ev event, e *Exchange) (free hint) {
	c.good = c.good || e.succeeded() && !ev.at.Before(c.until)
	h, ok := retryAfter(ev.i, e)
	if !ok || h.wait <= 0 || !e.throttled() {
		return hint{}
	}
	if c.good || c.until.IsZero() || e.Arrived.Before(c.until) {
		free = h
	}
	if h.until.After(c.until) {
		c.until, c.good = h.until, false
	}
	return free
}

// sameRequest judges requests with a name. The attempts of other requests are recognised by the
// very parts that must be the same.
func sameRequest(log []Exchange) ([]Breach, bool) {
	s := parseLog(log, byRequestID)
	f := collector{unclear: s.ambiguous}
	for _, r := range s.requests {
		for _, i := range r.attempts[1:] {
			if !r.named {
				break
			}
			f.judged++
			if part, want, got := difference(&log[r.attempts[0]], &log[i]); part != "" {
				f.breach(part+want, part+got, r.attempts[0], i)
			}
		}
	}
	return f.result()
}

// difference names the first part in which two attempts differ. It shows no secret value.
func difference(a, b *Exchange) (part, want, got string) {
	switch {
	case a.Method != b.Method:
		return "method ", a.Method, b.Method
	case a.URL != b.URL:
		return "URL ", a.path(), b.path() + " (or another query)"
	case a.BodySHA256 != b.BodySHA256 && a.BodySHA256 != "" && b.BodySHA256 != "":
		return "body of SHA-256 ", shortHash(a.BodySHA256), shortHash(b.BodySHA256)
	case a.idempotencyKey() != b.idempotencyKey():
		return "Idempotency-Key ", "of the first attempt", "another one, or none"
	}
	return "", "", ""
}

func shortHash(hash string) string { return hash[:min(12, len(hash))] }

func idempotent(log []Exchange) ([]Breach, bool) {
	s := parseLog(log, byIdempotencyKey)
	f := collector{unclear: s.ambiguous}
	for _, r := range s.requests {
		if first := &log[r.attempts[0]]; first.idempotent() || first.idempotencyKey() != "" || first.declaredSafe() {
			continue
		}
		for n, i := range r.attempts[1:] {
			f.judged++
			if before := r.attempts[n]; mayHaveRun(&log[before]) {
				f.breach("no retry after "+outcome(&log[before]), "a retry", before, i).Guessed = !r.named
			}
		}
	}
	return f.result()
}

// mayHaveRun reports whether the server may have acted on e's request.
func mayHaveRun(e *Exchange) bool {
	if e.BodyUnread || e.throttled() || e.asksAgain() {
		return false
	}
	return e.Dropped || e.Status >= 500
}

// asksAgain reports whether the server asks the client to repeat e's request.
func (e *Exchange) asksAgain() bool {
	return e.ResponseHeader.Get("X-Should-Retry") == "true" || e.ResponseHeader.Get("Stripe-Should-Retry") == "true"
}
