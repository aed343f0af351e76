package ratelimit

import (
	"strings"
	"time"
)

// The date formats that parseDate reads: the three of RFC 9110, section 5.6.7, and RFC
// 3339. dateString is what JavaScript's Date.toString prints. In a format,
//
//	a A   is a weekday, short or long              H M S  two digits of the time of day
//	d D   a day of one or two digits, or of two    s      optional seconds with a fraction
//	e     a day; one digit may follow a space      z      a zone
//	w     a weekday of either length               j      a zone with JavaScript's additions
//	b m   a month by name, or in two digits        T      a T or a space
//	y Y   a year of two or four digits             _      an optional space
//
// and any other byte is itself. Blanks may follow a comma.
const (
	imfFixdate = "a,d b Y H:M:S z" // Sun, 06 Nov 1994 08:49:37 GMT
	rfc850     = "A,d-b-y H:M:S z" // Sunday, 06-Nov-94 08:49:37 GMT, its year relative to now
	asctime    = "a b e H:M:S Y"   // Sun Nov  6 08:49:37 1994, always UTC
	rfc3339    = "Y-m-DTH:Ms_z"    // 1994-11-06T08:49:37.5Z
	dateString = "w b d Y H:M:S j" // Fri Nov 20 2026 20:30:30 GMT+0100 (Central European Standard Time)
)

// parseDate reads a date in the first four formats. It accepts any case, a wrong weekday,
// a day of one digit, second 60, and UTC, UT, Z or a numeric zone instead of GMT. In RFC
// 3339 it also accepts a space instead of the T or before the zone, and missing seconds.
// It rejects a missing zone, any other zone name, which time.Parse would read as UTC, and
// a day that does not exist.
func parseDate(s string, now time.Time) (t time.Time, ok bool) {
	for _, form := range [...]string{imfFixdate, rfc850, asctime, rfc3339} {
		if d, ok := scanDate(form, s); ok {
			if d.short {
				d = d.near(now)
			}
			return d.time(), d.valid()
		}
	}
	return time.Time{}, false
}

// parseJavaScript reads a date as JavaScript's Date.toString prints it.
func parseJavaScript(s string) (t time.Time, ok bool) {
	d, ok := scanDate(dateString, s)
	return d.time(), ok && d.valid()
}

// scanDate reads a date in a format. It does not check that the date exists.
func scanDate(form, s string) (d civil, ok bool) {
	sc := scanner{rest: s}
	for i := 0; i < len(form) && !sc.failed; i++ {
		switch c := form[i]; c {
		case 'a':
			sc.name(weekdays[:], true)
		case 'A':
			sc.name(weekdays[:], false)
		case 'w':
			sc.failed = !isWeekday(sc.word())
		case 'b':
			d.month = time.Month(sc.name(months[:], true) + 1)
		case 'm':
			d.month = time.Month(sc.number(2, 2))
		case 'd':
			d.day = sc.number(1, 2)
		case 'D':
			d.day = sc.number(2, 2)
		case 'e':
			if sc.cut(' ') {
				d.day = sc.number(1, 1)
			} else {
				d.day = sc.number(1, 2)
			}
		case 'y':
			d.year, d.short = sc.number(2, 2), true
		case 'Y':
			d.year = sc.number(4, 4)
		case 'H':
			d.hour = sc.number(2, 2)
		case 'M':
			d.minute = sc.number(2, 2)
		case 'S':
			d.second = sc.number(2, 2)
		case 's':
			if sc.cut(':') {
				d.second, d.nanos = sc.number(2, 2), sc.fraction()
			}
		case 'z':
			d.offset = sc.zone()
		case 'j':
			if d.offset = sc.zone(); strings.HasPrefix(sc.rest, "+") || strings.HasPrefix(sc.rest, "-") {
				d.offset = sc.offset()
			}
			if strings.HasPrefix(sc.rest, " ") {
				sc.rest = ""
			}
		case 'T':
			sc.failed = !sc.cut('T') && !sc.cut('t') && !sc.cut(' ')
		case '_':
			sc.cut(' ')
		default:
			sc.failed = !sc.cut(c)
			for c == ',' && (sc.cut(' ') || sc.cut('\t')) {
			}
		}
	}
	return d, !sc.failed && sc.rest == ""
}

// A scanner cuts the parts of a date off the front of rest. Once failed is set, its
// results are meaningless.
type scanner struct {
	rest   string
	failed bool
}

// cut removes c if it comes next, and reports whether it did.
func (sc *scanner) cut(c byte) bool {
	if sc.rest == "" || sc.rest[0] != c {
		return false
	}
	sc.rest = sc.rest[1:]
	return true
}

// number cuts off between least and most digits.
func (sc *scanner) number(least, most int) int {
	n := min(countDigits(sc.rest), most)
	sc.failed = sc.failed || n < least
	value := atoi(sc.rest[:n], 9999)
	sc.rest = sc.rest[n:]
	return int(value)
}

// fraction cuts off an optional fraction of a second.
func (sc *scanner) fraction() time.Duration {
	if !sc.cut('.') {
		return 0
	}
	n := countDigits(sc.rest)
	part := fractionOf(sc.rest[:n], time.Second)
	sc.rest, sc.failed = sc.rest[n:], sc.failed || n == 0
	return part
}

// word cuts off letters.
func (sc *scanner) word() string {
	n := 0
	for n < len(sc.rest) && isLetter(sc.rest[n]) {
		n++
	}
	word := sc.rest[:n]
	sc.rest = sc.rest[n:]
	return word
}

// name cuts off one of names, or its first three letters if short, and returns its index.
func (sc *scanner) name(names []string, short bool) int {
	word := sc.word()
	for i, name := range names {
		if short {
			name = name[:3]
		}
		if fold(word, name) {
			return i
		}
	}
	sc.failed = true
	return 0
}

// zone cuts off GMT, UTC, UT, Z or ±hh[:]mm, and returns the offset from UTC.
func (sc *scanner) zone() time.Duration {
	if strings.HasPrefix(sc.rest, "+") || strings.HasPrefix(sc.rest, "-") {
		return sc.offset()
	}
	word := sc.word()
	sc.failed = sc.failed || !fold(word, "gmt") && !fold(word, "utc") && !fold(word, "ut") && !fold(word, "z")
	return 0
}

// offset cuts off ±hh[:]mm.
func (sc *scanner) offset() time.Duration {
	west := sc.cut('-') || !sc.cut('+')
	hours := sc.number(2, 2)
	sc.cut(':')
	minutes := sc.number(2, 2)
	sc.failed = sc.failed || hours > 23 || minutes > 59
	east := time.Duration(hours)*time.Hour + time.Duration(minutes)*time.Minute
	if west {
		return -east
	}
	return east
}

var months = [...]string{"jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec"}

var weekdays = [...]string{"sunday", "monday", "tuesday", "wednesday", "thursday", "friday", "saturday"}

// isWeekday reports whether word is a weekday, short or long.
func isWeekday(word string) bool {
	for _, name := range weekdays {
		if fold(word, name) || fold(word, name[:3]) {
			return true
		}
	}
	return false
}

// fold reports whether s equals lower, ignoring the case of ASCII letters.
// strings.EqualFold folds too much: it takes ſun for sun.
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
