package contract

import (
	"slices"
	"strings"
)

// A Filter chooses clauses: it returns true for those to keep. [MustOnly], [IETFOnly] and [HeedOnly]
// are filters, and [Except] returns one. So is any function of yours.
type Filter func(Clause) bool

// Select returns the clauses that every filter keeps, in their order:
//
//	err := contract.Check(srv.Log(), contract.Select(contract.Client(), contract.MustOnly, contract.IETFOnly)...)
//
// If nothing is left, Check checks all clauses, as it does without any.
func Select(clauses []Clause, filters ...Filter) []Clause {
	return slices.DeleteFunc(slices.Clone(clauses), func(c Clause) bool {
		return slices.ContainsFunc(filters, func(keep Filter) bool { return !keep(c) })
	})
}

// MustOnly is a [Filter] that keeps the clauses of level [Must].
func MustOnly(c Clause) bool { return c.Level == Must }

// IETFOnly is a [Filter] that keeps the clauses whose source is an RFC or an Internet-Draft alone,
// none with a rule of heed's own. Their levels are the contract's: the RFCs often only recommend.
func IETFOnly(c Clause) bool {
	for source := range strings.SplitSeq(c.Ref, "; ") {
		if !strings.HasPrefix(source, "RFC ") && !strings.HasPrefix(source, "draft-") {
			return false
		}
	}
	return true
}

// HeedOnly is a [Filter] that keeps the clauses that go beyond RFCs and Internet-Drafts: their
// source names heed. Other libraries may break them with good reason.
func HeedOnly(c Clause) bool {
	for source := range strings.SplitSeq(c.Ref, "; ") {
		if strings.HasPrefix(source, "heed: ") {
			return true
		}
	}
	return false
}

// Except returns a [Filter] that keeps all clauses but those with the given IDs, for a client or
// server that breaks one on purpose:
//
//	srv.Check(t, contract.Except("client/idempotent"))
func Except(ids ...string) Filter {
	return func(c Clause) bool { return !slices.Contains(ids, c.ID) }
}
