package main

import (
	"fmt"
	"math"
)

// A figure is what is compared: one benchmark as it is, or what it costs more
// than another one, divided.
type figure struct {
	title     string
	benchmark string
	less      string  // a benchmark whose cost is taken away; none if empty
	over      float64 // what the cost is divided by; 1 if zero
	targets   []target
}

// A target is what heed is measured by.
type target struct {
	text string
	met  func(rows) bool
}

type rows []row

// A row is what one library costs in one figure.
type row struct {
	figure, library   string
	ns, bytes, allocs float64
	conns             float64
	ofBare, ofHeed    float64 // 0 if there is none
	counted           bool    // whether conns was
}

// figures are all that is compared. The target of a success is meant for a
// machine on which the bare base takes 70 ns, and grows with that.
var figures = []figure{
	{title: "success, serial", benchmark: "SuccessSerial", targets: []target{adds60, noAllocs}},
	{title: "success, parallel", benchmark: "SuccessParallel", targets: []target{adds60, noAllocs}},
	{title: "success, http.Client", benchmark: "SuccessClient", targets: []target{atMost(1.1)}},
	{title: "body of 1 MiB", benchmark: "Body", targets: []target{atMost(1.05), noBytes}},
	{title: "a retry", benchmark: "RetryNoBody", less: "RetryNone", over: 3, targets: []target{ns(200), allocs(1)}},
	{title: "a retry, 16 KiB", benchmark: "RetryBody", less: "RetryNone", over: 3, targets: []target{allocs(4)}},
	{title: "3 retries, TCP, 16 KiB", benchmark: "RetrySocket", targets: []target{noConns}},
	{title: "pacing", benchmark: "Pacing", targets: []target{atMost(1.3), noAllocs}},
	{title: "middleware", benchmark: "Middleware", targets: []target{halfOfTheBest}},
}

func (f figure) rows(all samples) (rs rows) {
	over := f.over
	if over == 0 {
		over = 1
	}
	for _, library := range all.libraries(f.benchmark) {
		of := func(unit string) float64 {
			return (all.median(f.benchmark, library, unit) - all.median(f.less, library, unit)) / over
		}
		_, counted := all[sample{f.benchmark, library, "conns/retry"}]
		rs = append(rs, row{
			figure: f.title, library: library, ns: of("ns/op"), bytes: of("B/op"), allocs: of("allocs/op"),
			conns: all.median(f.benchmark, library, "conns/retry"), counted: counted,
		})
	}
	bare, heed := rs.of("bare"), rs.of("heed")
	for i := range rs {
		rs[i].ofBare, rs[i].ofHeed = rs[i].ns/bare.ns, rs[i].ns/heed.ns
	}
	return rs
}

// of is the row of library, one of NaN if there is none: no target is met by it.
func (rs rows) of(library string) row {
	for _, r := range rs {
		if r.library == library {
			return r
		}
	}
	nan := math.NaN()
	return row{ns: nan, bytes: nan, allocs: nan, conns: nan}
}

func (r row) String() string {
	ratio := func(x float64) string {
		if math.IsNaN(x) {
			return ""
		}
		return fmt.Sprintf("%.2f×", x)
	}
	note := ""
	if r.counted {
		note = fmt.Sprintf("%.2f connections", r.conns)
	}
	return fmt.Sprintf("%s\t%s\t%.0f\t%.0f\t%.1f\t%s\t%s\t%s\t\t",
		r.figure, r.library, r.ns, r.bytes, r.allocs, ratio(r.ofBare), ratio(r.ofHeed), note)
}

var (
	adds60 = target{"adds at most 60 ns to a bare 70", func(rs rows) bool {
		return rs.of("heed").ns-rs.of("bare").ns <= rs.of("bare").ns*60/70
	}}
	noAllocs = target{"adds no allocation", func(rs rows) bool { return rs.of("heed").allocs <= rs.of("bare").allocs }}
	noBytes  = target{"adds no bytes", func(rs rows) bool { return rs.of("heed").bytes <= rs.of("bare").bytes }}
	noConns  = target{"no new connection", func(rs rows) bool { return rs.of("heed").conns == 0 }}

	halfOfTheBest = target{"adds at most half of what the best rival adds", func(rs rows) bool {
		bare, heed := rs.of("bare"), rs.of("heed")
		for _, r := range rs {
			if rank(r.library) < 2 && r.library != "" {
				continue
			}
			if !(2*(heed.ns-bare.ns) <= r.ns-bare.ns && 2*(heed.allocs-bare.allocs) <= r.allocs-bare.allocs) {
				return false
			}
		}
		return true
	}}
)

func atMost(ratio float64) target {
	return target{fmt.Sprintf("at most %.2f× bare", ratio), func(rs rows) bool { return rs.of("heed").ofBare <= ratio }}
}

func ns(most float64) target {
	return target{fmt.Sprintf("at most %.0f ns", most), func(rs rows) bool { return rs.of("heed").ns <= most }}
}

func allocs(most float64) target {
	return target{fmt.Sprintf("at most %.0f allocations", most), func(rs rows) bool { return rs.of("heed").allocs <= most }}
}
