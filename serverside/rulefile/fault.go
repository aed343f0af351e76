package rulefile

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
)

// A Fault is one thing that is wrong with a rule file. Parse joins all there are.
type Fault struct {
	File         string // as it was named to Parse
	Line, Column int    // from 1; in characters
	Field        string // such as "rules[2].policies[0].quota"; "" is the file as a whole
	Reason       string // what is wrong with it
}

// Error is the fault as compilers write theirs, so that editors find the place:
//
//	rules.yaml:12:16: rules[2].policies[0].quota: is 0: must be at least 1
func (f *Fault) Error() string {
	place := fmt.Sprintf("%s:%d:%d: ", f.File, f.Line, f.Column)
	if f.Field == "" {
		return place + f.Reason
	}
	return place + f.Field + ": " + f.Reason
}

// Faults returns the faults that err joins, in the order of the file; none if err
// is not of this package.
func Faults(err error) (faults []*Fault) {
	if joined, ok := err.(interface{ Unwrap() []error }); ok {
		for _, err := range joined.Unwrap() {
			faults = append(faults, Faults(err)...)
		}
		return faults
	}
	if fault, ok := errors.AsType[*Fault](err); ok {
		return []*Fault{fault}
	}
	return nil
}

// joined is faults as one error, in the order of the file.
func joined(faults []*Fault) error {
	slices.SortStableFunc(faults, func(a, b *Fault) int {
		return cmp.Or(cmp.Compare(a.Line, b.Line), cmp.Compare(a.Column, b.Column))
	})
	errs := make([]error, len(faults))
	for i, f := range faults {
		errs[i] = f
	}
	return errors.Join(errs...)
}
