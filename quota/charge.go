package quota

import (
	"fmt"
	"time"
)

// maxID is the highest number of bytes of an ID.
const maxID = 256

// A ChargeError says which field of which Charge in a call is invalid. Nothing was taken.
type ChargeError struct {
	Index  int    // of the charge in the call
	Field  string // the invalid field
	Reason string // what is wrong with it
}

func (e *ChargeError) Error() string {
	return fmt.Sprintf("quota: charge %d: %s %s", e.Index, e.Field, e.Reason)
}

// A DebtError says that Settle charged less than asked for, because the debt would have been
// more than Limit.MaxDebt. The rest of the call was made.
type DebtError struct {
	Index int    // of the charge in the call
	Limit string // its Limit's Name
	Units int64  // that were to be charged
	Cut   int64  // of these, how many were not
}

func (e *DebtError) Error() string {
	return fmt.Sprintf("quota: charge %d: %d of %d units were not charged to %q: the debt would be too large",
		e.Index, e.Cut, e.Units, e.Limit)
}

// CheckTake returns a *ChargeError if charges are invalid for Take, Peek or Reserve.
// Every Store calls it first.
func CheckTake(charges []Charge) error {
	for i := range charges {
		if charges[i].N < 0 {
			return &ChargeError{i, "N", fmt.Sprintf("is %d: must not be negative, except in Settle", charges[i].N)}
		}
	}
	return CheckSettle(charges)
}

// CheckSettle returns a *ChargeError if charges are invalid for Settle.
func CheckSettle(charges []Charge) error {
	for i := range charges {
		switch c := &charges[i]; {
		case c.Limit == nil:
			return &ChargeError{i, "Limit", "is nil"}
		case c.Limit.unit == 0:
			return &ChargeError{i, "Limit", "was not made by Policy.Compile"}
		case len(c.ID) > maxID:
			return &ChargeError{i, "ID", fmt.Sprintf("has %d bytes: must have at most %d", len(c.ID), maxID)}
		}
		for j := range charges[:i] {
			if charges[i].SameBucket(&charges[j]) && charges[i].Limit.shape != charges[j].Limit.shape {
				return &ChargeError{i, "Limit", fmt.Sprintf("has the Name of charge %d, but counts otherwise", j)}
			}
		}
	}
	return nil
}

// Needs returns how many units charges[:i+1] need together of the count of charges[i]. If
// that exceeds AtOnce, charges[i] never fits in this call. Charges with the same ID count
// once.
func Needs(charges []Charge, i int) int64 {
	c := &charges[i]
	sum := min(maxExact, c.Units())
	for j := range charges[:i] {
		if charges[j].SameBucket(c) && !repeated(charges, j, i) {
			sum = min(maxExact, sum+min(maxExact, charges[j].Units()))
		}
	}
	return sum
}

// repeated reports whether charges[j+1:i+1] contain charges[j] again.
func repeated(charges []Charge, j, i int) bool {
	for k := j + 1; k <= i && charges[j].ID != ""; k++ {
		if charges[k].ID == charges[j].ID && charges[k].SameBucket(&charges[j]) {
			return true
		}
	}
	return false
}

// SameBucket reports whether c and d are counted together.
func (c *Charge) SameBucket(d *Charge) bool {
	return c.Key == d.Key && c.Limit.name == d.Limit.name && c.DryRun == d.DryRun
}

// Judge returns the Decision on charges[i], without At. met is the bucket before the
// charge, with what earlier charges of the call took. left is the bucket after the call.
// Both are drained to now. For a charge whose ID was charged before, the Decision is
// Limit.Describe of left, with Allowed set.
func Judge(charges []Charge, i int, met, left Bucket, now int64) (d Decision) {
	c := &charges[i]
	c.Limit.describe(&d, &left, now)
	d.resolve(charges, i, c.Limit.wait(&met, c.Units(), now), c.Limit.delay(&met, now))
	return d
}

// resolve sets the outcome of charges[i], which fits after wait and is then delayed by
// delay.
func (d *Decision) resolve(charges []Charge, i int, wait, delay time.Duration) {
	switch {
	case wait == 0:
		d.Allowed, d.Delay = true, delay
	case wait == Forever || Needs(charges, i) > charges[i].Limit.atOnce:
		d.Never = true
	default:
		d.RetryAfter = wait
	}
}
