package contract

import (
	"fmt"
	"time"
)

// What the clauses leave to the network and the clock.
const (
	maxAttempts = 10                     // of one request
	lookAfter   = time.Minute            // a client may look again after that long, whatever it was told
	slack       = 100 * time.Microsecond // what is early by less is on time
	inFlight    = 100 * time.Millisecond // how long a request may have been on its way
	instant     = 5 * time.Millisecond   // what happens within it happens at once
	herd        = 3                      // how many make one
)

// Client returns the clauses that bind clients. Each may be used on its own.
func Client() []Clause {
	return []Clause{
		{
			ID: "client/wait-seconds", Level: Must, Ref: "RFC 9110 section 10.2.3",
			Text:  "A request that was answered with Retry-After in seconds is not repeated before they, or the milliseconds that they are rounded from, are over.",
			Check: func(log []Exchange) ([]Breach, bool) { return waits(log, false) },
		},
		{
			ID: "client/wait-date", Level: Must, Ref: "RFC 9110 sections 5.6.7 and 10.2.3",
			Text:  "A request that was answered with Retry-After as a date is not repeated before it, by the clock of the response's Date.",
			Check: func(log []Exchange) ([]Breach, bool) { return waits(log, true) },
		},
		{
			ID: "client/cool-down", Level: Must, Ref: "heed: cool-down; RFC 6585 section 4",
			Text:  "After a 429 with Retry-After no request of any worker reaches the server before it is over, except that when it is longer than a minute, one request a minute may look again.",
			Check: coolDown,
		},
		{
			ID: "client/attempts", Level: Must, Ref: "heed: RetryPolicy.MaxAttempts",
			Text:  "One request is sent at most 10 times.",
			Check: attempts,
		},
		{
			ID: "client/budget", Level: Must, Ref: "heed: Budget; Site Reliability Engineering, chapter 21",
			Text:  "Retries that do not wait out the Retry-After of a throttled request are at most a tenth of the requests to a host, and 10, and one for each second.",
			Check: budget,
		},
		{
			ID: "client/same-request", Level: Must, Ref: "draft-ietf-httpapi-idempotency-key-header-07 section 2",
			Text:  "Every attempt of one request has the same method, URL, body and Idempotency-Key.",
			Check: sameRequest,
		},
		{
			ID: "client/idempotent", Level: Must, Ref: "RFC 9110 section 9.2.2",
			Text:  "A request whose method is not idempotent and that has no Idempotency-Key is not repeated after a lost answer or a 5xx: it may have been carried out, unless X-Should-Retry or Stripe-Should-Retry asks for it.",
			Check: idempotent,
		},
		{
			ID: "client/herd", Level: Should, Ref: "heed: cool-down; draft-ietf-httpapi-ratelimit-headers-11 section 8.5",
			Text:  "Requests that were told to wait do not all come back in the moment when the wait is over.",
			Check: wakesAtOnce,
		},
	}
}

func early(h told, at time.Time) bool { return h.until.Sub(at) >= slack }

// notBefore says h as the want of a breach, and by how much at missed it as
// the got.
func notBefore(log []Exchange, h told, at time.Time) (want, got string) {
	return fmt.Sprintf("no arrival before %v, %v after the answer", since(log, h.until), h.wait),
		fmt.Sprintf("one at %v, %v too early", since(log, at), h.until.Sub(at))
}

// waits judges every attempt by the longest wait that its own request was told.
func waits(log []Exchange, date bool) ([]Breach, bool) {
	s := read(log, byIdempotencyKey)
	longest := make(map[*request]told)
	f := findings{unclear: s.ambiguous}
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
		case h.wait > lookAfter && !r.named:
			f.unclear = true // who is told to wait that long gives up: this may well be another request
		case early(h, ev.at):
			want, got := notBefore(log, h, ev.at)
			f.breach(want, got, h.i, ev.i)
		default:
			f.judged++
		}
	}
	return f.result()
}

func attempts(log []Exchange) ([]Breach, bool) {
	s := read(log, byIdempotencyKey)
	f := findings{unclear: s.ambiguous}
	for _, r := range s.requests {
		if n := len(r.attempts); n > maxAttempts {
			f.breach(fmt.Sprintf("at most %d attempts", maxAttempts), fmt.Sprint(n), r.attempts[0], r.attempts[maxAttempts])
		} else if n > 1 {
			f.judged++
		}
	}
	return f.result()
}

// An account is what one host's requests have earned and spent.
type account struct {
	first, last    time.Time
	requests, paid int
	retry          int // the last paid retry
}

func (a *account) allowed() int {
	return int(10 + float64(a.requests)/10 + max(0, a.last.Sub(a.first).Seconds()) + 1e-9)
}

func budget(log []Exchange) ([]Breach, bool) {
	s := read(log, byIdempotencyKey)
	accounts, order := accountsOf(s)
	f := findings{unclear: s.ambiguous}
	for _, origin := range order {
		a := accounts[origin]
		switch {
		case a.paid > a.allowed():
			f.breach(fmt.Sprintf("at most %d such retries for %d requests in %v", a.allowed(), a.requests, a.last.Sub(a.first)),
				fmt.Sprint(a.paid), a.retry)
		case a.paid > 0:
			f.judged++
		}
	}
	return f.result()
}

func accountsOf(s *story) (accounts map[string]*account, order []string) {
	accounts = make(map[string]*account)
	throttle := make(map[*request]told) // the wait that the request's last answer named
	for _, ev := range s.events {
		e, r := &s.log[ev.i], s.of[ev.i]
		if ev.answer {
			h, _ := retryAfter(ev.i, e)
			if !e.throttled() {
				h = told{}
			}
			throttle[r] = h
			continue
		}
		a := accounts[e.origin()]
		if a == nil {
			a = &account{first: ev.at}
			accounts[e.origin()] = a
			order = append(order, e.origin())
		}
		a.last = ev.at
		h := throttle[r]
		switch {
		case r.attempts[0] == ev.i:
			a.requests++
		case h.wait <= 0 || early(h, ev.at):
			a.paid++
			a.retry = ev.i
		}
	}
	return accounts, order
}

// sameRequest looks at requests with a name. Of others, attempts are told by
// the very things that must be the same.
func sameRequest(log []Exchange) ([]Breach, bool) {
	s := read(log, byRequestID)
	f := findings{unclear: s.ambiguous}
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

// difference names the first thing in which two attempts differ. It shows no
// value that may be secret.
func difference(a, b *Exchange) (part, want, got string) {
	switch {
	case a.Method != b.Method:
		return "method ", a.Method, b.Method
	case a.URL != b.URL:
		return "URL ", a.path(), b.path() + " (or another query)"
	case a.BodySHA256 != b.BodySHA256 && a.BodySHA256 != "" && b.BodySHA256 != "":
		return "body of SHA-256 ", brief(a.BodySHA256), brief(b.BodySHA256)
	case a.idempotencyKey() != b.idempotencyKey():
		return "Idempotency-Key ", "of the first attempt", "another one, or none"
	}
	return "", "", ""
}

func brief(hash string) string { return hash[:min(12, len(hash))] }

func idempotent(log []Exchange) ([]Breach, bool) {
	s := read(log, byIdempotencyKey)
	f := findings{unclear: s.ambiguous}
	for _, r := range s.requests {
		if first := &log[r.attempts[0]]; first.idempotent() || first.idempotencyKey() != "" {
			continue
		}
		for n, i := range r.attempts[1:] {
			f.judged++
			if before := r.attempts[n]; carriedOut(&log[before]) {
				f.breach("no retry after "+outcome(&log[before]), "one", before, i)
			}
		}
	}
	return f.result()
}

// carriedOut reports whether e's request may have been.
func carriedOut(e *Exchange) bool {
	if e.BodyUnread || e.throttled() || e.asksAgain() {
		return false
	}
	return e.Dropped || e.Status >= 500
}

// asksAgain reports that the server says that e's request is to be repeated.
func (e *Exchange) asksAgain() bool {
	return e.ResponseHeader.Get("X-Should-Retry") == "true" || e.ResponseHeader.Get("Stripe-Should-Retry") == "true"
}
