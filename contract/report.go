package contract

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"
)

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
	return (&report{clauses: [][]*BreachError{{e}}}).Error()
}

// A report is the error of Check.
type report struct {
	clauses [][]*BreachError // the breaches of each broken clause, at least one
}

// Unwrap returns every breach, for errors.As.
func (r *report) Unwrap() []error {
	var all []error
	for _, breaches := range r.clauses {
		for _, b := range breaches {
			all = append(all, b)
		}
	}
	return all
}

func (r *report) Error() string {
	var b strings.Builder
	var guessed []string
	for _, breaches := range r.clauses {
		first := breaches[0]
		c := &first.Clause
		fmt.Fprintf(&b, "contract: %s: %v: %s (%s)\n\twant %s\n\tgot  %s%s%s\n", c.ID, c.Level, c.Text, c.Ref,
			first.Breach.Want, first.Breach.Got, first.where, more(breaches[1:]))
		if slices.ContainsFunc(breaches, func(b *BreachError) bool { return b.Breach.Guessed }) {
			guessed = append(guessed, c.ID)
		}
	}
	if len(guessed) > 0 {
		fmt.Fprintf(&b, "contract: these breaches take identical requests for attempts of one: %s\n"+
			"\tif they are different requests, give each an X-Request-Id\n", strings.Join(guessed, ", "))
	}
	return strings.TrimSuffix(b.String(), "\n")
}

// maxPlaces is how many further breaches of a clause a report locates.
const maxPlaces = 5

// more counts breaches, and says which exchanges the first of them are about.
func more(breaches []*BreachError) string {
	if len(breaches) == 0 {
		return ""
	}
	var places []string
	for _, b := range breaches[:min(maxPlaces, len(breaches))] {
		if n := len(b.Breach.Exchanges); n > 0 {
			places = append(places, fmt.Sprintf("#%d", b.Breach.Exchanges[n-1]))
		}
	}
	if len(breaches) > maxPlaces {
		places = append(places, "…")
	}
	text := fmt.Sprintf("\n\tand %d more", len(breaches))
	if len(places) > 0 {
		text += ": " + strings.Join(places, ", ")
	}
	return text
}

// describe describes the exchanges at these indexes, one per line.
func describe(log []Exchange, positions []int) string {
	var b strings.Builder
	for _, i := range positions {
		if i < 0 || i >= len(log) {
			continue // a user's clause may return any index
		}
		e := &log[i]
		fmt.Fprintf(&b, "\n\t#%d at %v: %s %s: %s", i, since(log, e.Arrived), cmp.Or(e.Method, "GET"), e.path(), outcome(e))
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
