package quota

import (
	"errors"
	"fmt"
	"strconv"
	"time"
)

// A Policy is a limit as people write it: Quota units per Window, of which
// Burst may be spent at once. What that admits at most in any time as long as a
// Window depends on the Algorithm, and is said there: with the defaults, twice the
// Quota.
type Policy struct {
	// Name is the policy's name, in the RateLimit-Policy field and in a Store:
	// charges of one Key whose Limits have one Name are counted together, so a
	// policy that keeps its Name keeps its state when its numbers change. It is
	// printable ASCII. If empty, the policy is named after its numbers: "60/1m",
	// "60/1m burst 10", "60/1m log", or "1000/month Europe/Berlin".
	Name string

	// Quota is how many units are given back per Window, at least 1.
	Quota int64

	// Window is the time in which Quota units are given back, more than 0; with a
	// Calendar, 0.
	Window time.Duration

	// Burst is how many units may be spent at once. If zero, Quota, which is all it
	// can be for windows and logs. For LeakyBucket it is how many wait in line.
	Burst int64

	// Algorithm is the way of counting. If zero, TokenBucket.
	Algorithm Algorithm

	// Calendar makes the windows of a FixedWindow days, weeks or months. If zero,
	// they are as long as Window.
	Calendar Calendar

	// Location is where the clocks are that Calendar goes by. If nil, UTC.
	Location *time.Location
}

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
	if p.Location == nil && p.Calendar != 0 {
		p.Location = time.UTC
	}
	if p.Name == "" {
		p.Name = p.numbers()
	}
	return p
}

// numbers is the name of a policy that has none.
func (p Policy) numbers() string {
	name := strconv.FormatInt(p.Quota, 10) + "/" + p.period()
	if p.Burst != p.Quota {
		name += " burst " + strconv.FormatInt(p.Burst, 10)
	}
	if p.Calendar == 0 {
		name += p.Algorithm.suffix()
	}
	return name
}

// period writes the Window or the Calendar.
func (p Policy) period() string {
	switch {
	case p.Calendar == 0:
		return inOneUnit(p.Window)
	case p.Location == time.UTC:
		return p.Calendar.String()
	default:
		return p.Calendar.String() + " " + p.Location.String()
	}
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
	check := func(right bool, field, format string, args ...any) {
		if !right {
			faults = append(faults, &PolicyError{p.Name, field, fmt.Sprintf(format, args...)})
		}
	}
	check(printable(p.Name), "Name", "must be printable ASCII")
	check(p.Quota >= 1, "Quota", "is %d: must be at least 1", p.Quota)
	check(p.Algorithm != SlidingLog || p.Quota <= maxLogged,
		"Quota", "is %d: a SlidingLog remembers %d at most", p.Quota, maxLogged)
	check(p.Algorithm != FixedWindow || p.Quota <= maxExact,
		"Quota", "is %d: %d can be counted", p.Quota, int64(maxExact))
	p.checkWindow(check)
	check(p.Burst >= 0, "Burst", "is %d: must not be negative", p.Burst)
	check(p.Burst < 0 || p.Burst == p.Quota || p.Algorithm.drains(),
		"Burst", "is %d: of a %v it is the Quota", p.Burst, p.Algorithm)
	check(p.Algorithm >= TokenBucket && p.Algorithm <= SlidingLog,
		"Algorithm", "is %d: there is none", int(p.Algorithm))
	check(p.Calendar == 0 || p.Algorithm == FixedWindow, "Calendar", "is for FixedWindow, not %v", p.Algorithm)
	check(p.Calendar >= 0 && p.Calendar <= Month, "Calendar", "is %d: there is none", int(p.Calendar))
	check(p.Calendar != 0 || p.Location == nil, "Location", "is of no use without a Calendar")
	return errors.Join(faults...)
}

func (p Policy) checkWindow(check func(right bool, field, format string, args ...any)) {
	switch {
	case p.Calendar != 0:
		check(p.Window == 0, "Window", "is %v: must be 0 with a Calendar", p.Window)
	case p.Window <= 0:
		check(false, "Window", "is %v: must be more than 0", p.Window)
	case !p.Algorithm.drains():
		check(p.Window%time.Microsecond == 0, "Window", "is %v: must be a whole number of µs", p.Window)
		check(p.Window.Microseconds() <= maxWindow, "Window", "is %v: must not be longer than 71 years", p.Window)
	}
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
