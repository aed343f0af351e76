package main

import (
	"fmt"
	"math"
	"slices"
)

// A figure is one value to compare: a benchmark, or its difference from another one, divided.
type figure struct {
	title     string
	benchmark string
	less      string   // a benchmark whose cost is subtracted, if any
	over      float64  // the divisor of the cost; 1 if zero
	drawn     []metric // in the picture; the first of the group if nil
	targets   []target
}

// A target is a bound on the value of heed: the most it may be, or the least if it is a rate.
type target struct {
	text   string
	metric metric
	bound  func(rows) float64
}

// met reports whether the value of heed is within the bound. It is not if one is missing.
func (t target) met(rs rows) bool {
	v, bound := t.metric.of(rs.of(heed)), t.bound(rs)
	if t.metric.rate {
		return v >= bound
	}
	return v <= bound
}

type rows []row

// A row has the values of one library in one figure, by unit.
type row struct {
	library string
	values  map[string]float64
}

func (f figure) rows(all samples) (rs rows) {
	over := f.over
	if over == 0 {
		over = 1
	}
	for _, library := range all.libraries(f.benchmark) {
		values := all.medians(f.benchmark, library)
		less := all.medians(f.less, library)
		for unit := range values {
			values[unit] = (values[unit] - less[unit]) / over
		}
		rs = append(rs, row{library, values})
	}
	return rs
}

// of returns the row of library, without values if there is none.
func (rs rows) of(library string) row {
	for _, r := range rs {
		if r.library == library {
			return r
		}
	}
	return row{library: library}
}

// best returns the best value of all rivals. A row that is not a library is not a rival.
func (rs rows) best(m metric) float64 {
	best := math.NaN()
	for _, r := range rs {
		v := m.of(r)
		if r.library == heed || slices.Contains(plain, r.library) || math.IsNaN(v) {
			continue
		}
		if math.IsNaN(best) || m.rate == (v > best) {
			best = v
		}
	}
	return best
}

// atMost is met if the value of heed is at most most.
func atMost(m metric, most float64) target {
	return target{fmt.Sprintf("%s at most %s", m.title, m.show(most)), m, func(rows) float64 { return most }}
}

// none is met if the value of heed is zero.
func none(m metric) target {
	return target{m.title + ": none", m, func(rows) float64 { return 0 }}
}

// times is met if heed has at most, or of a rate at least, factor times the value of library.
func times(m metric, factor float64, library string) target {
	return target{fmt.Sprintf("%s %s %g× %s", m.title, m.side(), factor, library), m,
		func(rs rows) float64 { return factor * m.of(rs.of(library)) }}
}

// timesBest is the same with the best rival.
func timesBest(m metric, factor float64) target {
	return target{fmt.Sprintf("%s %s %g× the best rival", m.title, m.side(), factor), m,
		func(rs rows) float64 { return factor * rs.best(m) }}
}

// addsHalf is met if heed adds to bare at most half of what the best rival adds.
func addsHalf(m metric) target {
	return target{m.title + " added: at most half of the best rival's", m, func(rs rows) float64 {
		least := m.of(rs.of(bare))
		return least + (rs.best(m)-least)/2
	}}
}

// addsNone is met if heed adds nothing to bare.
func addsNone(m metric) target {
	t := times(m, 1, bare)
	t.text = m.title + " added: none"
	return t
}

func (m metric) side() string {
	if m.rate {
		return "at least"
	}
	return "at most"
}
