package contract

import (
	"fmt"
	"strings"
	"time"
)

// An ask is what a limiter may be asked again: the same thing by the same
// client. Which part of a request says who the client is, only the limiter
// knows: these are the usual ones.
type ask struct{ key, caller, method, url string }

var callerFields = []string{"Authorization", "Proxy-Authorization", "Cookie", "Forwarded", "X-Forwarded-For", "X-Real-Ip", "X-Api-Key"}

func askOf(e *Exchange) ask {
	caller := ""
	for _, field := range callerFields {
		if values := e.Header[field]; len(values) > 0 {
			caller += field + ": " + strings.Join(values, ", ") + "\n"
		}
	}
	return ask{e.key(), caller, e.Method, e.URL}
}

// admissions count what was admitted of one key.
type admissions struct{ arrived, answered int }

// A promise is that whoever comes back is admitted.
type promise struct {
	told
	admitted int // how many had been, when it was given
}

func obeyed(log []Exchange) ([]Breach, bool) {
	keys := make(map[string]*admissions)
	promises := make(map[ask]promise)
	kept := make(map[int]promise) // those that an exchange relies on, by its position
	var f findings
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
			if p, ok := promises[askOf(e)]; ok && !ev.at.Before(p.until) {
				kept[ev.i] = p
			}
			if admitted {
				a.arrived++
			}
		case admitted:
			a.answered++
			if _, relied := kept[ev.i]; relied {
				f.judged++
			}
			delete(promises, askOf(e))
		default:
			if p, relied := kept[ev.i]; relied && denies(e) && a.arrived == p.admitted {
				f.breach(fmt.Sprintf("a request at %v or later to be admitted", since(log, p.until)),
					fmt.Sprintf("one at %v denied", since(log, e.Arrived)), p.i, ev.i)
			}
			if h, ok := exactly(ev.i, e); ok {
				promises[askOf(e)] = promise{h, a.answered}
			}
		}
	}
	return f.result()
}

// exactly is Retry-After, or the retry_after_ms of the body, which is finer.
func exactly(i int, e *Exchange) (told, bool) {
	h, ok := retryAfter(i, e)
	if wait, fine := bodyWaits(e)["retry_after_ms"]; ok && fine && wait > 0 && wait < h.wait.Seconds() {
		h.wait = time.Duration(wait * float64(time.Second))
		h.until = h.at.Add(h.wait)
	}
	return h, ok && denies(e) && h.wait > 0
}

// usedUp speaks of requests that the log shows to cost one unit: two of the same
// kind, admitted at one moment, of which the second left one unit less. A HEAD
// is not judged: without a body, nothing tells that it cost more.
func usedUp(log []Exchange) ([]Breach, bool) {
	last := make(map[ask]int) // the last admission
	one := make(map[ask]bool)
	for _, ev := range events(log) {
		e := &log[ev.i]
		if ev.answer || e.Status == 0 || e.throttled() {
			continue
		}
		a := askOf(e)
		if before, ok := last[a]; ok && e.Arrived.Sub(log[before].Arrived) < slack && least(&log[before])-least(e) == 1 {
			one[a] = true
		}
		last[a] = ev.i
	}
	var f findings
	for i := range log {
		e := &log[i]
		if e.Method == "HEAD" || !denies(e) || !announcing(e) || never(e) || !one[askOf(e)] {
			continue
		}
		f.judged++
		if left := least(e); left > 0 {
			f.breach("a policy with 0 remaining", fmt.Sprintf("at least %d of each", left), i)
		}
	}
	return f.result()
}

// least is what remains of the policy of e of which least remains.
func least(e *Exchange) int64 {
	left := int64(1<<63 - 1)
	for _, st := range announces(e).standings {
		left = min(left, st.remaining)
	}
	return left
}
