package contract

import (
	"fmt"
	"strings"
	"time"
)

// A callKey identifies the same call by the same caller. Only the limiter knows what identifies its
// callers: callerFields are the usual fields.
type callKey struct{ key, caller, method, url string }

var callerFields = []string{"Authorization", "Proxy-Authorization", "Cookie", "Forwarded", "X-Forwarded-For",
	"X-Real-Ip", "X-Api-Key"}

func callKeyOf(e *Exchange) callKey {
	caller := ""
	for _, field := range callerFields {
		if values := e.Header[field]; len(values) > 0 {
			caller += field + ": " + strings.Join(values, ", ") + "\n"
		}
	}
	return callKey{e.key(), caller, e.Method, e.URL}
}

// admissions counts the admitted requests of one key.
type admissions struct{ arrived, answered int }

// A promise is a refusal's hint: a request that returns then will be admitted.
type promise struct {
	hint
	admitted int // requests admitted before it was given
}

func obeyed(log []Exchange) ([]Breach, bool) {
	keys := make(map[string]*admissions)
	promises := make(map[callKey]promise)
	relied := make(map[int]promise) // by exchange: the promise that it relies on
	var f collector
	for _, ev := range events(log) {
		e := &log[ev.i]
		a := keys[e.key()]
		if a == nil {
			a = &admissions{}
			keys[e.key()] = a
		}
		admitted := e.Status != 0 && !e.throttled()
		switch {
		case !ev.answer:
			if p, ok := promises[callKeyOf(e)]; ok && !ev.at.Before(p.until) {
				relied[ev.i] = p
			}
			if admitted {
				a.arrived++
			}
		case admitted:
			a.answered++
			if _, ok := relied[ev.i]; ok {
				f.judged++
			}
			delete(promises, callKeyOf(e))
		default:
			if p, ok := relied[ev.i]; ok && denies(e) && a.arrived == p.admitted {
				f.breach(fmt.Sprintf("a request at %v or later to be admitted", since(log, p.until)),
					fmt.Sprintf("one at %v denied", since(log, e.Arrived)), p.i, ev.i)
			}
			if h, ok := exactWait(ev.i, e); ok {
				promises[callKeyOf(e)] = promise{h, a.answered}
			}
		}
	}
	return f.result()
}

// exactWait is Retry-After, or the retry_after_ms of the body, which is more exact.
func exactWait(i int, e *Exchange) (hint, bool) {
	h, ok := retryAfter(i, e)
	if wait, fine := bodyWaits(e)["retry_after_ms"]; ok && fine && wait > 0 && wait < h.wait.Seconds() {
		h.wait = time.Duration(wait * float64(time.Second))
		h.until = h.at.Add(h.wait)
	}
	return h, ok && denies(e) && h.wait > 0
}

// usedUp judges only calls that are known to cost one unit: two of the same were admitted at the
// same time, and the second left one unit less. A HEAD is not judged, because without a body its
// cost is unknown.
func usedUp(log []Exchange) ([]Breach, bool) {
	last := make(map[callKey]int) // the last admitted exchange
	one := make(map[callKey]bool)
	for _, ev := range events(log) {
		e := &log[ev.i]
		if ev.answer || e.Status == 0 || e.throttled() {
			continue
		}
		a := callKeyOf(e)
		if before, ok := last[a]; ok && e.Arrived.Sub(log[before].Arrived) < slack &&
			leastRemaining(&log[before])-leastRemaining(e) == 1 {
			one[a] = true
		}
		last[a] = ev.i
	}
	var f collector
	for i := range log {
		e := &log[i]
		if e.Method == "HEAD" || !denies(e) || !announcing(e) || neverAdmitted(e) || !one[callKeyOf(e)] {
			continue
		}
		f.judged++
		if left := leastRemaining(e); left > 0 {
			f.breach("a policy with 0 remaining", fmt.Sprintf("at least %d of each", left), i)
		}
	}
	return f.result()
}

// leastRemaining is what remains of the policy with the least left.
func leastRemaining(e *Exchange) int64 {
	left := int64(1<<63 - 1)
	for _, st := range announces(e).limits {
		left = min(left, st.remaining)
	}
	return left
}
