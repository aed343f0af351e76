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
	Must   Level = iota // there is no reason to break it
	Should              // there may be a reason to break it
)

func (l Level) String() string {
	if l == Should {
		return "SHOULD"
	}
	return "MUST"
}

// A Clause is one rule of the contract. To add one of your own, write its Check:
//
//	noDelete := contract.Clause{
//		ID: "own/no-delete", Text: "Nothing is deleted.", Ref: "our API guide",
//		Check: func(log []contract.Exchange) (breaches []contract.Breach, applicable bool) {
//			for i, e := range log {
//				if e.Method == "DELETE" {
//					breaches = append(breaches, contract.Breach{Exchanges: []int{i}, Want: "no DELETE", Got: "one"})
//				}
//			}
//			return breaches, true
//		},
//	}
type Clause struct {
	ID    string // such as "client/wait-seconds"
	Level Level
	Text  string // the rule in one sentence, which the error quotes
	Ref   string // its source: an RFC, a draft or heed's own design

	// Check returns every breach of the clause in log. applicable is false if the log has nothing
	// that the clause is about, or if it can be read in more than one way: then the clause is
	// neither kept nor broken. Check must not change log or panic, and must be safe for concurrent
	// use.
	Check func(log []Exchange) (breaches []Breach, applicable bool)
}

// A Breach is one place in a log where a clause is broken.
type Breach struct {
	Exchanges []int  // indexes into the log; the last one breaks the clause
	Want, Got string // what the clause requires, and what happened
}

// A BreachError is a Breach and its clause. Get each one from the error of Check:
//
//	for _, err := range err.(interface{ Unwrap() []error }).Unwrap() {
//		var breach *contract.BreachError
//		if errors.As(err, &breach) {
//			fmt.Println(breach.Clause.ID, breach.Breach.Got)
//		}
//	}
type BreachError struct {
	Clause Clause
	Breach Breach

	where string
}

func (e *BreachError) Error() string {
	return fmt.Sprintf("contract: %s: %v: %s (%s)\n\twant %s\n\tgot  %s%s",
		e.Clause.ID, e.Clause.Level, e.Clause.Text, e.Clause.Ref, e.Breach.Want, e.Breach.Got, e.where)
}

// Check checks log against clauses; without any, against all of [Client] and [Server]. It returns
// nil if no clause is broken, and otherwise a [*BreachError] for every breach, joined by
// [errors.Join]. A clause that is not applicable is not broken. The error shows methods, paths and
// statuses, but no query strings and no header fields of requests.
func Check(log []Exchange, clauses ...Clause) error {
	if len(clauses) == 0 {
		clauses = slices.Concat(Client(), Server())
	}
	var broken []error
	for _, c := range clauses {
		breaches, _ := c.Check(log)
		for _, b := range breaches {
			broken = append(broken, &BreachError{Clause: c, Breach: b, where: describe(log, b.Exchanges)})
		}
	}
	return errors.Join(broken...)
}

// describe describes the exchanges at these indexes, one per line.
func describe(log []Exchange, positions []int) string {
	var b strings.Builder
	for _, i := range positions {
		if i < 0 || i >= len(log) {
			continue // a user's clause may return any index
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

// since is the time from the first exchange to t, for errors.
func since(log []Exchange, t time.Time) time.Duration {
	return t.Sub(log[0].Arrived).Round(time.Microsecond)
}

// A collector collects what a clause finds.
type collector struct {
	breaches []Breach
	judged   int  // how often the clause applied
	unclear  bool // something could not be judged
}

func (f *collector) breach(want, got string, exchanges ...int) {
	f.breaches = append(f.breaches, Breach{Exchanges: exchanges, Want: want, Got: got})
}

// result reports the breaches, whatever else is in the log. The clause is applicable without a
// breach only if everything could be judged.
func (f *collector) result() ([]Breach, bool) {
	return f.breaches, len(f.breaches) > 0 || f.judged > 0 && !f.unclear
}
