package quota

import (
	"errors"
	"fmt"
	"math"
	"strconv"
	"time"
)

// A Policy is a limit as people write it: Quota units per Window, of which Burst may be
// used at once.
//
//	quota.PerMinute(60)                                     // "60/1m"
//	quota.Policy{Quota: 60, Window: time.Minute, Burst: 10} // "60/1m burst 10"
//
// The doc of each Algorithm says how much that admits at most in any time as long as a
// Window: with the defaults, twice the Quota.
type Policy struct {
	// Name is the name of the policy in a Store and in the RateLimit-Policy field.
	// Charges of one Key whose Limits have the same Name are counted together, so a
	// policy that keeps its Name keeps its counts when its numbers change. It must be
	// printable ASCII. If empty, it is made from the numbers: "60/1m", "60/1m burst 10",
	// "60/1m log", or "1000/month Europe/Berlin".
	Name string

	// Quota is how many units come back per Window, at least 1. In the limits of a single key it may
	// also be 0 or Blocked: see serverside.Limits.
	Quota int64

	// Window is the time in which Quota units come back: more than 0, and of windows and logs
	// a whole number of µs. With a Calendar it must be 0.
	Window time.Duration

	// Burst is how many units may be used at once. If zero, Quota; windows and logs allow
	// nothing else. For LeakyBucket it is how many requests may wait.
	Burst int64

	// MaxDebt is how long what Settle charges beyond Burst may take to come back. If zero, ten
	// Windows, or a day if that is shorter. Windows and logs ignore it: they forget all debt with
	// the window.
	MaxDebt time.Duration

	// Algorithm is the way of counting. If zero, TokenBucket.
	Algorithm Algorithm

	// Calendar makes the windows of a FixedWindow days, weeks or months. If zero, they
	// are as long as Window.
	Calendar Calendar

	// Location is the time zone of the Calendar. If nil, UTC.
	Location *time.Location
}

// Blocked is the Quota of a policy that admits nothing. Only a serverside.Limits may return it: such a
// policy does not Compile. It is not -1, which some programs take for "unlimited".
const Blocked int64 = math.MinInt64

// ErrUnknownLimits is wrapped by an error of a serverside.Limits that does not know whether the key has
// limits or is blocked, because it could never look them up.
var ErrUnknownLimits = errors.New("the limits of the key are unknown")

// PerSecond returns a policy of n units per second with a Burst of n. See PerMinute for
// what that admits.
func PerSecond(n int64) Policy { return Policy{Quota: n, Window: time.Second} }

// PerMinute returns a policy of n units per minute with a Burst of n. Use it to limit
// clients of your own.
//
// To stay within a vendor's limit it admits too much: after a pause PerMinute(600) lets
// 600 requests go at once, and 600 more during the next minute, so a vendor that counts
// in fixed windows sees up to 1200 in one. A Burst of 1 avoids that:
//
//	quota.Policy{Quota: 600, Window: time.Minute, Burst: 1} // at most 601 in any minute
func PerMinute(n int64) Policy { return Policy{Quota: n, Window: time.Minute} }

// PerHour returns a policy of n units per hour with a Burst of n. See PerMinute for what
// that admits.
func PerHour(n int64) Policy { return Policy{Quota: n, Window: time.Hour} }

// PerDay returns a policy of n units per 24 hours with a Burst of n. See PerMinute for
// what that admits.
func PerDay(n int64) Policy { return Policy{Quota: n, Window: 24 * time.Hour} }

// A PolicyError says which field of a Policy is invalid, and why. Compile joins all of
// them.
type PolicyError struct {
	Policy string // the name of the policy, as given or made from its numbers
	Field  string // the invalid field
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
		p.Name = p.defaultName()
	}
	return p
}

// defaultName returns the name of a policy without one.
func (p Policy) defaultName() string {
	name := strconv.FormatInt(p.Quota, 10) + "/" + p.period()
	if p.Burst != p.Quota {
		name += " burst " + strconv.FormatInt(p.Burst, 10)
	}
	if p.Calendar == 0 {
		name += p.Algorithm.suffix()
	}
	return name
}

// period formats the Window or the Calendar.
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

// inOneUnit formats d in the largest unit that divides it: "1m", "90s", "1d".
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

// faults returns an error for each invalid field. p has its defaults.
func (p Policy) faults() error {
	var faults []error
	check := func(right bool, field, format string, args ...any) {
		if !right {
			faults = append(faults, &PolicyError{p.Name, field, fmt.Sprintf(format, args...)})
		}
	}
	check(printable(p.Name), "Name", "must be printable ASCII")
	check(p.Quota >= 1, "Quota", "is %d: must be at least 1", p.Quota)
	check(p.MaxDebt >= 0, "MaxDebt", "is %v: must not be negative", p.MaxDebt)
	check(p.Algorithm != SlidingLog || p.Quota <= maxLogged,
		"Quota", "is %d: must be at most %d with SlidingLog", p.Quota, maxLogged)
	check(p.Algorithm != FixedWindow || p.Quota <= maxExact,
		"Quota", "is %d: must be at most %d", p.Quota, int64(maxExact))
	p.checkWindow(check)
	check(p.Burst >= 0, "Burst", "is %d: must not be negative", p.Burst)
	check(p.Burst < 0 || p.Burst == p.Quota || p.Algorithm.drains(),
		"Burst", "is %d: must equal Quota with %v", p.Burst, p.Algorithm)
	check(p.Algorithm >= TokenBucket && p.Algorithm <= SlidingLog,
		"Algorithm", "is %d: unknown", int(p.Algorithm))
	check(p.Calendar == 0 || p.Algorithm == FixedWindow, "Calendar", "needs Algorithm FixedWindow, not %v", p.Algorithm)
	check(p.Calendar >= 0 && p.Calendar <= Month, "Calendar", "is %d: unknown", int(p.Calendar))
	check(p.Calendar != 0 || p.Location == nil, "Location", "needs a Calendar")
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

// printable reports whether s can be the content of a String of RFC 9651, section 3.3.3.
func printable(s string) bool {
	for i := range len(s) {
		if s[i] < 0x20 || s[i] > 0x7e {
			return false
		}
	}
	return true
}
