package ratelimit

import (
	"strings"
	"time"
)

// The forms of a date that parseDate reads: the three that RFC 9110, section 5.6.7 makes
// recipients accept, and RFC 3339; and that of JavaScript's Date.toString. In them stand
//
//	a A   a day of the week, short or long        H M S  two digits of the time of day
//	d D   a day of the month, of one or two        s      seconds with a fraction, or none
//	      digits or of two                         z      a zone
//	e     the same, or of one after a space        j      a zone, and what JavaScript adds
//	b m   a month by its name, or in two digits    T      a T or a space
//	y Y   two or four digits of a year             _      a space, or none
//
// and for other bytes themselves; after a comma, blanks may follow.
const (
	imfFixdate = "a,d b Y H:M:S z" // Sun, 06 Nov 1994 08:49:37 GMT
	rfc850     = "A,d-b-y H:M:S z" // Sunday, 06-Nov-94 08:49:37 GMT, its year relative to now
	asctime    = "a b e H:M:S Y"   // Sun Nov  6 08:49:37 1994, always UTC
	rfc3339    = "Y-m-DTH:Ms_z"    // 1994-11-06T08:49:37.5Z
	dateString = "w b d Y H:M:S j" // Fri Nov 20 2026 20:30:30 GMT+0100 (Central European Standard Time)
)

// parseDate reads a date in one of four forms. It does not mind case, the wrong day of
// the week, a day of one digit, second 60, or UTC, UT, Z or a numeric zone instead of GMT;
// in RFC 3339, nor a space for the T and before the zone, nor missing seconds. It does mind
// a missing zone, any other name of a zone, which time.Parse would read as UTC, and a day
// that the calendar does not have.
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

// scanDate reads a date in a form. Whether there is such a day is not asked.
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

// A scanner cuts the parts of a date off its front. Once a part is not there it
// has failed, and what it returns means nothing.
type scanner struct {
	rest   string
	failed bool
}

// cut cuts c off, if it comes next.
func (sc *scanner) cut(c byte) bool {
	if sc.rest == "" || sc.rest[0] != c {
		return false
	}
	sc.rest = sc.rest[1:]
	return true
}

// number cuts least to most digits off.
func (sc *scanner) number(least, most int) int {
	n := min(countDigits(sc.rest), most)
	sc.failed = sc.failed || n < least
	value := atoi(sc.rest[:n], 9999)
	sc.rest = sc.rest[n:]
	return int(value)
}

// fraction cuts the fraction of a second off, if there is one.
func (sc *scanner) fraction() time.Duration {
	if !sc.cut('.') {
		return 0
	}
	n := countDigits(sc.rest)
	part := fractionOf(sc.rest[:n], time.Second)
	sc.rest, sc.failed = sc.rest[n:], sc.failed || n == 0
	return part
}

// word cuts letters off.
func (sc *scanner) word() string {
	n := 0
	for n < len(sc.rest) && isLetter(sc.rest[n]) {
		n++
	}
	word := sc.rest[:n]
	sc.rest = sc.rest[n:]
	return word
}

// name cuts one of names off, of which only three letters are there if it is short, and
// returns which.
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

// zone cuts GMT, UTC, UT, Z, or ±hh[:]mm off, and returns the offset from UTC.
func (sc *scanner) zone() time.Duration {
	if strings.HasPrefix(sc.rest, "+") || strings.HasPrefix(sc.rest, "-") {
		return sc.offset()
	}
	word := sc.word()
	sc.failed = sc.failed || !fold(word, "gmt") && !fold(word, "utc") && !fold(word, "ut") && !fold(word, "z")
	return 0
}

// offset cuts ±hh[:]mm off.
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

// isWeekday reports whether word names a day of the week, short or long.
func isWeekday(word string) bool {
	for _, name := range weekdays {
		if fold(word, name) || fold(word, name[:3]) {
			return true
		}
	}
	return false
}

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
