package contract

import "slices"

// A Level says how binding a clause is, in the words of RFC 2119. Check reports both; [MustOnly]
// leaves out the SHOULDs.
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

	// Guessed is true if there is a breach only if identical requests are attempts of one: they
	// have neither an X-Request-Id nor an Idempotency-Key to tell them apart.
	Guessed bool
}

// Check checks log against clauses; without any, against all of [Client] and [Server]. Choose among
// them with [Select]. It returns nil if no clause is broken, a MUST or a SHOULD. A clause that is not
// applicable is not broken.
//
// The error has each broken clause once, with its first breach, and counts the others. Its method
// Unwrap() []error returns a [*BreachError] for every breach. It shows methods, URLs and statuses,
// but no query strings and no header fields of requests.
func Check(log []Exchange, clauses ...Clause) error {
	if len(clauses) == 0 {
		clauses = slices.Concat(Client(), Server())
	}
	var broken report
	for _, c := range clauses {
		breaches, _ := c.Check(log)
		var found []*BreachError
		for _, b := range breaches {
			found = append(found, &BreachError{Clause: c, Breach: b, where: describe(log, b.Exchanges)})
		}
		if len(found) > 0 {
			broken.clauses = append(broken.clauses, found)
		}
	}
	if len(broken.clauses) == 0 {
		return nil
	}
	return &broken
}

// A collector collects what a clause finds.
type collector struct {
	breaches []Breach
	judged   int  // how often the clause applied
	unclear  bool // something could not be judged
}

// breach adds a breach. The caller may still change it.
func (f *collector) breach(want, got string, exchanges ...int) *Breach {
	f.breaches = append(f.breaches, Breach{Exchanges: exchanges, Want: want, Got: got})
	return &f.breaches[len(f.breaches)-1]
}

// result reports the breaches, whatever else is in the log. The clause is applicable without a
// breach only if everything could be judged.
func (f *collector) result() ([]Breach, bool) {
	return f.breaches, len(f.breaches) > 0 || f.judged > 0 && !f.unclear
}
