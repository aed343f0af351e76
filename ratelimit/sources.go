package ratelimit

import (
	"maps"
	"net/http"
	"slices"
	"time"
)

// Sources returns the names of the fields that decided the result of Wait, sorted and
// canonical: for a log, or to explain a wait to a person.
//
// They are the fields without which Wait would return something else. If several fields
// say the same, they are those that say it alone. Sources returns nil if Wait is not ok,
// or if the fields that might matter are more than 64 or exceed 64 KiB. It calls Wait
// once or twice for each of them.
func Sources(status int, h http.Header, now time.Time) (names []string) {
	if now.IsZero() {
		now = time.Now()
	}
	wait, ok := Wait(status, h, now)
	if !ok {
		return nil
	}
	if h = relevant(h); h == nil {
		return nil
	}
	for _, name := range slices.Sorted(maps.Keys(h)) {
		if !isClock(name) && !yields(status, without(h, name), now, wait) {
			names = append(names, name)
		}
	}
	if names != nil {
		return names
	}
	for _, name := range slices.Sorted(maps.Keys(h)) {
		if !isClock(name) && yields(status, only(h, name), now, wait) {
			names = append(names, name)
		}
	}
	return names
}

const mostSources = 64

// relevant returns the fields of h that Wait reads, or nil if they are too many to try
// one by one.
func relevant(h http.Header) http.Header {
	fields, size := http.Header{}, 0
	for name, lines := range h {
		if familyOf(name) == noFamily && !isDelay(name) && !isClock(name) {
			continue
		}
		fields[name] = lines
		for _, line := range lines {
			size += len(line) + 1 // a line takes time even if it is empty
		}
		if size += len(name); len(fields) > mostSources || size > longestField {
			return nil
		}
	}
	return fields
}

// isClock reports whether a field tells the time, and never a wait.
func isClock(name string) bool { return name == "Date" || name == "Age" }

func yields(status int, h http.Header, now time.Time, wait time.Duration) bool {
	other, ok := Wait(status, h, now)
	return ok && other == wait
}

func without(h http.Header, name string) http.Header {
	rest := maps.Clone(h)
	delete(rest, name)
	return rest
}

func only(h http.Header, name string) http.Header {
	return http.Header{name: h[name], "Date": h["Date"], "Age": h["Age"]}
}
