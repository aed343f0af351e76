package quota

import (
	"errors"
	"fmt"
	"strconv"
	"time"
)

// A Policy is a limit as people write it: Quota units per Window, of which
// Burst may be spent at once.
//
// A token bucket admits at most Burst + Quota·t/Window units in any time t, so
// with Burst equal to Quota up to twice the Quota in one Window. Where a Window
// must never see more than Quota units, choose Burst and a rate that add up to
// it.
type Policy struct {
	// Name is the policy's name, in the RateLimit-Policy field and in a Store:
	// charges of one Key whose Limits have one Name are counted together, so a
	// policy that keeps its Name keeps its state when its numbers change. It is
	// printable ASCII. If empty, the policy is named after its numbers: "60/1m",
	// or "60/1m burst 10".
	Name string

	// Quota is how many units are given back per Window, at least 1.
	Quota int64

	// Window is the time in which Quota units are given back, more than 0.
	Window time.Duration

	// Burst is how many units may be spent at once. If zero, Quota.
	Burst int64

	// Algorithm is the way of counting. If zero, TokenBucket.
	Algorithm Algorithm
}

// An Algorithm is a way of counting. The zero Algorithm is TokenBucket.
type Algorithm int

// TokenBucket refills continuously: two integers per bucket, and exact waits.
const TokenBucket Algorithm = 0

// PerSecond is n units per second, all of which may be spent at once.
func PerSecond(n int64) Policy { return Policy{Quota: n, Window: time.Second} }

// PerMinute is n units per minute, all of which may be spent at once.
func PerMinute(n int64) Policy { return Policy{Quota: n, Window: time.Minute} }

// PerHour is n units per hour, all of which may be spent at once.
func PerHour(n int64) Policy { return Policy{Quota: n, Window: time.Hour} }

// PerDay is n units per 24 hours, all of which may be spent at once.
func PerDay(n int64) Policy { return Policy{Quota: n, Window: 24 * time.Hour} }

// A PolicyError is one fault of a Policy. Compile joins all there are.
type PolicyError struct {
	Policy string // the policy's name, as given or made from its numbers
	Field  string // the field at fault
	Reason string // what is wrong with it
}

func (e *PolicyError) Error() string {
	return fmt.Sprintf("quota: policy %q: %s %s", e.Policy, e.Field, e.Reason)
}

// withDefaults returns p with its zero fields filled in.
func (p Policy) withDefaults() Policy {
	if p.Burst == 0 {
		p.Burst = p.Quota
	}
	if p.Name == "" {
		p.Name = p.numbers()
	}
	return p
}

// numbers is the name of a policy that has none.
func (p Policy) numbers() string {
	name := strconv.FormatInt(p.Quota, 10) + "/" + inOneUnit(p.Window)
	if p.Burst != p.Quota {
		name += " burst " + strconv.FormatInt(p.Burst, 10)
	}
	return name
}

// inOneUnit writes d in the largest unit that divides it: "1m", "90s", "1d".
func inOneUnit(d time.Duration) string {
	units := []struct {
		size time.Duration
		sign string
	}{
		{24 * time.Hour, "d"}, {time.Hour, "h"}, {time.Minute, "m"}, {time.Second, "s"},
		{time.Millisecond, "ms"}, {time.Microsecond, "us"},
	}
	for _, u := range units {
		if d%u.size == 0 {
			return strconv.FormatInt(int64(d/u.size), 10) + u.sign
		}
	}
	return strconv.FormatInt(int64(d), 10) + "ns"
}

// faults returns what is wrong with p's fields, one by one. p has its defaults.
func (p Policy) faults() error {
	var faults []error
	fault := func(field, format string, args ...any) {
		faults = append(faults, &PolicyError{p.Name, field, fmt.Sprintf(format, args...)})
	}
	if !printable(p.Name) {
		fault("Name", "must be printable ASCII")
	}
	if p.Quota < 1 {
		fault("Quota", "is %d: must be at least 1", p.Quota)
	}
	if p.Window <= 0 {
		fault("Window", "is %v: must be more than 0", p.Window)
	}
	if p.Burst < 0 {
		fault("Burst", "is %d: must not be negative", p.Burst)
	}
	if p.Algorithm != TokenBucket {
		fault("Algorithm", "is %d: there is only TokenBucket", int(p.Algorithm))
	}
	return errors.Join(faults...)
}

// printable reports whether s can be the content of a String of RFC 9651,
// section 3.3.3.
func printable(s string) bool {
	for i := range len(s) {
		if s[i] < 0x20 || s[i] > 0x7e {
			return false
		}
	}
	return true
}
