package ratelimit

var months = [...]string{"jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec"}

var weekdays = [...]string{"sunday", "monday", "tuesday", "wednesday", "thursday", "friday", "saturday"}

// A weekdayForm tells the forms of a date apart.
type weekdayForm int

const (
	noWeekday weekdayForm = iota
	shortWeekday
	longWeekday
)

// formOf returns in which form word names a day of the week.
func formOf(word string) weekdayForm {
	for _, name := range weekdays {
		switch {
		case fold(word, name):
			return longWeekday
		case fold(word, name[:3]):
			return shortWeekday
		}
	}
	return noWeekday
}

// isWeekday reports whether word names a day of the week.
func isWeekday(word string) bool { return formOf(word) != noWeekday }

// fold reports whether s is lower, without regard to the case of ASCII letters.
// strings.EqualFold knows of others: to it, ſun is Sunday.
func fold(s, lower string) bool {
	if len(s) != len(lower) {
		return false
	}
	for i := range len(s) {
		if toLower(s[i]) != lower[i] {
			return false
		}
	}
	return true
}

func toLower(c byte) byte {
	if 'A' <= c && c <= 'Z' {
		return c - 'A' + 'a'
	}
	return c
}

func isLetter(c byte) bool { c = toLower(c); return 'a' <= c && c <= 'z' }
