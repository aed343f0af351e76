package ratelimit

import (
	"maps"
	"net/http"
	"slices"
	"time"
)

// Sources returns the canonical names, sorted, of the fields that the answer of
// Wait to the same arguments comes from: those without which it would be another
// one; or, where several say the same, each that says it by itself. It is empty if
// Wait is not ok, or if there are more than 64 fields that may say something, or more than
// 64 KiB of them. It calls Wait for each of them, and is for people: for a log, or to
// explain a wait.
func Sources(status int, h http.Header, now time.Time) (names []string) {
	if now.IsZero() {
		now = time.Now()
	}
	wait, ok := Wait(status, h, now)
	if !ok {
		return nil
	}
	if h = telling(h); h == nil {
		return nil
	}
	for _, name := range slices.Sorted(maps.Keys(h)) {
		if !isClock(name) && !says(status, without(h, name), now, wait) {
			names = append(names, name)
		}
	}
	if names != nil {
		return names
	}
	for _, name := range slices.Sorted(maps.Keys(h)) {
		if !isClock(name) && says(status, only(h, name), now, wait) {
			names = append(names, name)
		}
	}
	return names
}

const mostSources = 64

// telling returns the fields of h that Wait reads, or nil if they are too many to be asked
// one by one.
func telling(h http.Header) http.Header {
	fields, size := http.Header{}, 0
	for name, lines := range h {
		if familyOf(name) == noFamily && !isDelay(name) && !isClock(name) {
			continue
		}
		fields[name] = lines
		for _, line := range lines {
			size += len(line) + 1 // which the line takes, too
		}
		if size += len(name); len(fields) > mostSources || size > longestField {
			return nil
		}
	}
	return fields
}

// isClock reports whether a field says what the time is, and never what to wait.
func isClock(name string) bool { return name == "Date" || name == "Age" }

func says(status int, h http.Header, now time.Time, wait time.Duration) bool {
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
