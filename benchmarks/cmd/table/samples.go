package main

import (
	"cmp"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// bare uses no library.
const (
	bare = "bare"
	heed = "heed"
)

// plain has the rows that are not libraries: simple limiters, and the Store that a Lease is
// compared with. All others are rivals.
var plain = []string{bare, "simple", "plain-script", "auto-pipeline", "store"}

// samples has all measured values, by benchmark, library and unit.
type samples map[sample][]float64

type sample struct{ benchmark, library, unit string }

// line is a result as the testing package prints it, its name and its values.
var line = regexp.MustCompile(`^Benchmark(\w+)/([\w/-]+?)(?:-\d+)?\s+\d+\s+(.*)$`)

func (s samples) parse(out string) {
	for text := range strings.Lines(out) {
		m := line.FindStringSubmatch(strings.TrimSpace(text))
		if m == nil {
			continue
		}
		fields := strings.Fields(m[3])
		for i := 0; i+1 < len(fields); i += 2 {
			if v, err := strconv.ParseFloat(fields[i], 64); err == nil {
				at := sample{m[1], m[2], fields[i+1]}
				s[at] = append(s[at], v)
			}
		}
	}
}

// medians returns the values of a library in a benchmark, by unit.
func (s samples) medians(benchmark, library string) map[string]float64 {
	values := make(map[string]float64)
	for at, all := range s {
		if at.benchmark == benchmark && at.library == library {
			sorted := slices.Sorted(slices.Values(all))
			values[at.unit] = sorted[len(sorted)/2]
		}
	}
	return values
}

// libraries returns those of a benchmark: bare and heed first, then the plain rows.
func (s samples) libraries(benchmark string) (names []string) {
	for at := range s {
		if at.benchmark == benchmark && !slices.Contains(names, at.library) {
			names = append(names, at.library)
		}
	}
	slices.SortFunc(names, func(a, b string) int {
		return cmp.Or(rank(a)-rank(b), strings.Compare(a, b))
	})
	return names
}

func rank(library string) int {
	switch library {
	case bare:
		return 0
	case heed:
		return 1
	}
	if slices.Contains(plain, library) {
		return 2
	}
	return 3
}
