package contract

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"
)

// A Level says how binding a clause is, in the words of RFC 2119.
type Level int

const (
	Must   Level = iota // no client or server may do otherwise
	Should              // one may do otherwise, and ought to have a reason
)

func (l Level) String() string {
	if l == Should {
		return "SHOULD"
	}
	return "MUST"
}

// A Clause is one sentence of the contract, and how to tell from a log that it
// was broken.
type Clause struct {
	ID    string // such as "client/wait-seconds"
	Level Level
	Text  string // the sentence; it is printed when the clause is broken
	Ref   string // where it comes from: an RFC, a draft or heed's own design

	// Check returns every breach of the clause in log. applicable is false if
	// the log has nothing that the clause speaks of, or if what it has can be
	// read in more than one way: such a log neither keeps nor breaks the clause.
	// Check never changes log, never panics, and may be called concurrently.
	Check func(log []Exchange) (breaches []Breach, applicable bool)
}

// A Breach is one place in a log where a clause is broken.
type Breach struct {
	Exchanges []int  // positions in the log, the offending one last
	Want, Got string // what the clause asks for, and what was there instead
}

// A BreachError is a Breach with the clause that it breaks.
type BreachError struct {
	Clause Clause
	Breach Breach

	where string
}

func (e *BreachError) Error() string {
	return fmt.Sprintf("contract: %s: %v: %s (%s)\n\twant %s\n\tgot  %s%s",
		e.Clause.ID, e.Clause.Level, e.Clause.Text, e.Clause.Ref, e.Breach.Want, e.Breach.Got, e.where)
}

// Check holds log against clauses, or if there are none, against all of
// [Client] and [Server]. It returns nil if no clause is broken, and else every
// breach as a [*BreachError], joined by [errors.Join]. Clauses that are not
// applicable are not broken. The error quotes methods, paths and statuses, but
// neither query strings nor header fields of requests.
func Check(log []Exchange, clauses ...Clause) error {
	if len(clauses) == 0 {
		clauses = slices.Concat(Client(), Server())
	}
	var broken []error
	for _, c := range clauses {
		breaches, _ := c.Check(log)
		for _, b := range breaches {
			broken = append(broken, &BreachError{Clause: c, Breach: b, where: where(log, b.Exchanges)})
		}
	}
	return errors.Join(broken...)
}

// where describes the exchanges at the given positions, one a line.
func where(log []Exchange, positions []int) string {
	var b strings.Builder
	for _, i := range positions {
		if i < 0 || i >= len(log) {
			continue // a clause of somebody else's
		}
		e := &log[i]
		fmt.Fprintf(&b, "\n\t#%d at %v: %s %s: %s", i, since(log, e.Arrived), e.Method, e.path(), outcome(e))
	}
	return b.String()
}

func outcome(e *Exchange) string {
	switch {
	case e.Dropped:
		return "dropped"
	case e.Status == 0:
		return "no answer yet"
	}
	return fmt.Sprint(e.Status)
}

// since is the time from the first exchange of log to t, as the errors show it.
func since(log []Exchange, t time.Time) time.Duration {
	return t.Sub(log[0].Arrived).Round(time.Microsecond)
}

// findings is what a clause has seen.
type findings struct {
	breaches []Breach
	judged   int  // how many times the clause applied
	unclear  bool // and whether there was something that it cannot judge
}

func (f *findings) breach(want, got string, exchanges ...int) {
	f.breaches = append(f.breaches, Breach{Exchanges: exchanges, Want: want, Got: got})
}

// result follows one rule: a breach counts whatever else is in the log, but
// "kept" is only said where everything could be judged.
func (f *findings) result() ([]Breach, bool) {
	return f.breaches, len(f.breaches) > 0 || f.judged > 0 && !f.unclear
}
