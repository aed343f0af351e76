package testserver

import (
	"math"
	"math/bits"
	"strconv"
	"time"
)

// A meter counts what one customer used of one limit: in windows that end at a whole unit of
// the fields that tell it, or, if there is no such unit, in a bucket that refills.
type meter struct {
	VendorLimit
	unit time.Duration
	used int       // in the window
	end  time.Time // of the window
	full time.Time // when the bucket is full again
}

// meter returns a customer's meter of a limit. A window that is over was followed by another.
func (v *Vendor) meter(name, whose string, unit time.Duration, now time.Time) *meter {
	m := v.meters[[2]string{name, whose}]
	if m == nil {
		limit, known := v.limits[name]
		if !known {
			limit = v.limits[""]
		}
		limit.Name = name
		m = &meter{VendorLimit: limit, unit: unit}
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

// endOf returns t, or the next whole unit of Unix time.
func endOf(t time.Time, unit time.Duration) time.Time {
	if whole := t.Truncate(unit); !whole.Equal(t) {
		return whole.Add(unit)
	}
	return t
}

// A charge is what a request takes of a limit.
type charge struct {
	*meter
	units int
}

// exceeded charges a request, unless it exceeds a limit: then it returns the first such one.
func (v *Vendor) exceeded(now time.Time, charges ...charge) *meter {
	for _, c := range charges {
		if c.wait(c.units, now) > 0 {
			count := v.counts[c.Name]
			v.counts[c.Name] = VendorCount{count.Admitted, count.Refused + 1}
			return c.meter
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

// wait is how long it takes until a request of so many units is admitted: for ever, if a
// bucket never has as many.
func (m *meter) wait(units int, now time.Time) time.Duration {
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

// cost is how long it takes until so many units of a bucket are back, rounded up.
func (m *meter) cost(units int) time.Duration {
	hi, lo := bits.Mul64(uint64(units), uint64(m.Window))
	whole, rest := bits.Div64(hi, lo, uint64(m.Quota))
	return time.Duration(whole + min(rest, 1))
}

// remaining is how many whole units there are.
func (m *meter) remaining(now time.Time) int {
	if m.unit > 0 {
		return m.Quota - m.used
	}
	hi, lo := bits.Mul64(uint64(m.Window-m.full.Sub(now)), uint64(m.Quota))
	whole, _ := bits.Div64(hi, lo, uint64(m.Window))
	return int(whole)
}

// seconds writes d as Retry-After does.
func seconds(d time.Duration) string {
	return strconv.FormatInt(int64(upTo(d, time.Second)/time.Second), 10)
}

// upTo rounds d up to a whole unit.
func upTo(d, unit time.Duration) time.Duration {
	return (d + unit - 1) / unit * unit
}
