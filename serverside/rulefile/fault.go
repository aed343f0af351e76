package rulefile

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
)

// A Fault is an error in a rule file, or a warning. The errors of Parse, List and Watch join
// Faults:
//
//	for _, f := range rulefile.Faults(err) {
//		fmt.Println(f.Line, f.Field, f.Reason)
//	}
type Fault struct {
	File         string // the name passed to Parse
	Line, Column int    // from 1; Column in characters
	Field        string // such as "rules[2].policies[0].quota"; "" is the whole file
	Reason       string // what is wrong
}

// Error formats the fault like a compiler's message, so that editors find the position:
//
//	rules.yaml:12:16: rules[2].policies[0].quota: is 0: must be at least 1
func (f *Fault) Error() string {
	place := fmt.Sprintf("%s:%d:%d: ", f.File, f.Line, f.Column)
	if f.Field == "" {
		return place + f.Reason
	}
	return place + f.Field + ": " + f.Reason
}

// Faults returns the Faults that err joins, in the order of the file, or none if err is not
// from this package.
func Faults(err error) []*Fault { return unjoin[*Fault](err) }

// unjoin returns all errors of type E that err joins.
func unjoin[E error](err error) (all []E) {
	if joined, ok := err.(interface{ Unwrap() []error }); ok {
		for _, err := range joined.Unwrap() {
			all = append(all, unjoin[E](err)...)
		}
		return all
	}
	if one, ok := errors.AsType[E](err); ok {
		return []E{one}
	}
	return nil
}

// inOrder sorts faults by their position in the file.
func inOrder(faults []*Fault) []*Fault {
	slices.SortStableFunc(faults, func(a, b *Fault) int {
		return cmp.Or(cmp.Compare(a.Line, b.Line), cmp.Compare(a.Column, b.Column))
	})
	return faults
}

// join joins faults in the order of the file. It returns nil if there are none.
func join(faults []*Fault) error {
	var errs []error
	for _, f := range inOrder(faults) {
		errs = append(errs, f)
	}
	return errors.Join(errs...)
}
