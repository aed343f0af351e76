package main

import (
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"
)

// A metric is a column of a table: values of one unit of package testing, formatted for people.
type metric struct {
	title string
	unit  string
	rate  bool // the value is a time, and shown as a rate per second
	show  func(float64) string
}

var (
	nanoseconds = metric{"ns", "ns/op", false, number}
	bytes       = metric{"B", "B/op", false, number}
	allocations = metric{"allocs", "allocs/op", false, decimal}
	connections = metric{"connections", "conns/retry", false, decimal}

	inParallel  = metric{"ns, parallel", "parallel-ns", false, number}
	bytesPerKey = metric{"B/key", "B/key", false, decimal}
	collection  = metric{"GC", "gc-ns", false, duration}
	wrong       = metric{"wrong", "wrong-%", false, percent}

	perSecond  = metric{"per second", "ns/op", true, thousands}
	median     = metric{"median", "p50-ns", false, duration}
	slowest    = metric{"p99", "p99-ns", false, duration}
	clientTime = metric{"client CPU", "client-ns", false, duration}
	redisTime  = metric{"Redis CPU", "redis-ns", false, duration}
	serverTime = metric{"server CPU", "server-ns", false, duration}
	oneRule    = metric{"one rule", "one-B", false, number}
	fourRules  = metric{"four rules", "four-B", false, number}
)

// of returns the value of a library, or NaN.
func (m metric) of(r row) float64 {
	v, ok := r.values[m.unit]
	switch {
	case !ok:
		return math.NaN()
	case m.rate:
		return 1e9 / v
	}
	return v
}

// text returns that value, or an empty string.
func (m metric) text(r row) string {
	v := m.of(r)
	if math.IsNaN(v) {
		return ""
	}
	return m.show(v)
}

func number(v float64) string { return strconv.FormatFloat(v, 'f', 0, 64) }

func decimal(v float64) string { return strings.TrimSuffix(strconv.FormatFloat(v, 'f', 1, 64), ".0") }

func percent(v float64) string {
	if v == 0 {
		return "none"
	}
	return strconv.FormatFloat(v, 'g', 2, 64) + " %"
}

// duration shows v nanoseconds in three digits.
func duration(v float64) string {
	d := time.Duration(v)
	for _, unit := range []time.Duration{time.Second, time.Millisecond, time.Microsecond} {
		if d >= unit {
			return d.Round(unit / 100).String()
		}
	}
	return d.String()
}

// thousands groups the digits of v by three.
func thousands(v float64) string {
	digits := number(v)
	var groups []string
	for len(digits) > 3 {
		groups = append([]string{digits[len(digits)-3:]}, groups...)
		digits = digits[:len(digits)-3]
	}
	return strings.Join(append([]string{digits}, groups...), ",")
}

func ratio(v float64) string {
	if math.IsNaN(v) {
		return ""
	}
	return fmt.Sprintf("%.2f×", v)
}
