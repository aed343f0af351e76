package testserver

import (
	"math"
	"math/bits"
	"strconv"
	"time"
)

// A quotaMeter counts what one customer used of one limit. It has windows that end on a whole unit
// of the fields that report it or, if unit is 0, a bucket that refills.
type quotaMeter struct {
	VendorLimit
	unit time.Duration
	used int       // in the window
	end  time.Time // of the window
	full time.Time // when the bucket will be full
}

// meter returns a customer's quotaMeter of a limit. If its window is over, it starts the next one.
func (v *Vendor) meter(name, whose string, unit time.Duration, now time.Time) *quotaMeter {
	m := v.meters[[2]string{name, whose}]
	if m == nil {
		limit, known := v.limits[name]
		if !known {
			limit = v.limits[""]
		}
		limit.Name = name
		m = &quotaMeter{VendorLimit: limit, unit: unit}
		v.meters[[2]string{name, whose}] = m
	}
	if unit > 0 && !now.Before(m.end) {
		m.used, m.end = 0, endOf(now.Add(m.Window), unit)
	}
	if m.full.Before(now) {
		m.full = now
	}
	return m
}

// endOf rounds t up to a whole unit of Unix time.
func endOf(t time.Time, unit time.Duration) time.Time {
	if whole := t.Truncate(unit); !whole.Equal(t) {
		return whole.Add(unit)
	}
	return t
}

// A charge is the units that a request takes of a limit.
type charge struct {
	*quotaMeter
	units int
}

// tryCharge charges a request. If a limit does not admit it, it charges nothing and returns that
// limit's quotaMeter.
func (v *Vendor) tryCharge(now time.Time, charges ...charge) *quotaMeter {
	for _, c := range charges {
		if c.wait(c.units, now) > 0 {
			count := v.counts[c.Name]
			v.counts[c.Name] = VendorCount{count.Admitted, count.Refused + 1}
			return c.quotaMeter
		}
	}
	for _, c := range charges {
		c.used += c.units
		if c.unit == 0 {
			c.full = c.full.Add(c.cost(c.units))
		}
		count := v.counts[c.Name]
		v.counts[c.Name] = VendorCount{count.Admitted + 1, count.Refused}
	}
	return nil
}

// wait returns how long it takes until a request of so many units is admitted. It is endless if a
// bucket never has as many.
func (m *quotaMeter) wait(units int, now time.Time) time.Duration {
	switch {
	case m.unit == 0 && units > m.Quota:
		return math.MaxInt64
	case m.unit == 0:
		return m.full.Sub(now) + m.cost(units) - m.Window
	case units > m.Quota-m.used:
		return m.end.Sub(now)
	}
	return 0
}

// cost returns how long a bucket needs to refill so many units, rounded up.
func (m *quotaMeter) cost(units int) time.Duration {
	hi, lo := bits.Mul64(uint64(units), uint64(m.Window))
	whole, rest := bits.Div64(hi, lo, uint64(m.Quota))
	return time.Duration(whole + min(rest, 1))
}

// remaining returns how many whole units are left.
func (m *quotaMeter) remaining(now time.Time) int {
	if m.unit > 0 {
		return m.Quota - m.used
	}
	hi, lo := bits.Mul64(uint64(m.Window-m.full.Sub(now)), uint64(m.Quota))
	whole, _ := bits.Div64(hi, lo, uint64(m.Window))
	return int(whole)
}

// seconds formats d for Retry-After.
func seconds(d time.Duration) string {
	return strconv.FormatInt(int64(roundUp(d, time.Second)/time.Second), 10)
}

// roundUp rounds d up to a whole unit.
func roundUp(d, unit time.Duration) time.Duration {
	return (d + unit - 1) / unit * unit
}
