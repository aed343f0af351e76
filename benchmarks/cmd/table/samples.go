package main

import (
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// samples are all values that were measured, by benchmark, library and unit.
type samples map[sample][]float64

type sample struct{ benchmark, library, unit string }

// line is a result as the testing package prints it, its name and its values.
var line = regexp.MustCompile(`^Benchmark(\w+)/([\w-]+?)(?:-\d+)?\s+\d+\s+(.*)$`)

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

// median is 0 if nothing was measured.
func (s samples) median(benchmark, library, unit string) float64 {
	all := slices.Sorted(slices.Values(s[sample{benchmark, library, unit}]))
	if len(all) == 0 {
		return 0
	}
	return all[len(all)/2]
}

// libraries are those of a benchmark, bare and heed first.
func (s samples) libraries(benchmark string) (names []string) {
	for at := range s {
		if at.benchmark == benchmark && at.unit == "ns/op" {
			names = append(names, at.library)
		}
	}
	slices.SortFunc(names, func(a, b string) int {
		if rank(a) != rank(b) {
			return rank(a) - rank(b)
		}
		return strings.Compare(a, b)
	})
	return names
}

func rank(library string) int {
	switch library {
	case "bare":
		return 0
	case "heed":
		return 1
	}
	return 2
}
