package ratelimit

import "time"

// A scanner cuts the parts of a date off its front. Once a part is not there it
// has failed, and what it returns means nothing.
type scanner struct {
	rest   string
	failed bool
}

// is reports whether c comes next.
func (sc *scanner) is(c byte) bool { return sc.rest != "" && sc.rest[0] == c }

// skip cuts c off; if it is a small letter, a capital one too.
func (sc *scanner) skip(c byte) {
	if sc.rest == "" || toLower(sc.rest[0]) != c {
		sc.failed = true
		return
	}
	sc.rest = sc.rest[1:]
}

// comma cuts a comma and the blanks after it off.
func (sc *scanner) comma() {
	sc.skip(',')
	for sc.is(' ') || sc.is('\t') {
		sc.rest = sc.rest[1:]
	}
}

// number cuts least to most digits off.
func (sc *scanner) number(least, most int) int {
	n := min(countDigits(sc.rest), most)
	if n < least {
		sc.failed = true
		return 0
	}
	value := atoi(sc.rest[:n], 9999)
	sc.rest = sc.rest[n:]
	return int(value)
}

// fraction cuts the fraction of a second off, if there is one.
func (sc *scanner) fraction() time.Duration {
	if !sc.is('.') {
		return 0
	}
	sc.skip('.')
	n := countDigits(sc.rest)
	if n == 0 {
		sc.failed = true
	}
	part := fractionOf(sc.rest[:n], time.Second)
	sc.rest = sc.rest[n:]
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

// weekday cuts the name of a day of the week off, if there is one.
func (sc *scanner) weekday() weekdayForm {
	word := sc.word()
	form := formOf(word)
	if form == noWeekday && word != "" {
		sc.failed = true
	}
	return form
}

// month cuts the short name of a month off.
func (sc *scanner) month() time.Month {
	word := sc.word()
	for i, name := range months {
		if fold(word, name) {
			return time.Month(i + 1)
		}
	}
	sc.failed = true
	return 0
}

// zone cuts GMT, UTC, UT, Z, or ±hh[:]mm off, and returns the offset from UTC.
func (sc *scanner) zone() time.Duration {
	if sc.is('+') || sc.is('-') {
		return sc.offset()
	}
	switch word := sc.word(); {
	case fold(word, "gmt"), fold(word, "utc"), fold(word, "ut"), fold(word, "z"):
	default:
		sc.failed = true
	}
	return 0
}

// offset cuts ±hh[:]mm off.
func (sc *scanner) offset() time.Duration {
	west := sc.is('-')
	sc.rest = sc.rest[1:]
	hours := sc.number(2, 2)
	if sc.is(':') {
		sc.skip(':')
	}
	minutes := sc.number(2, 2)
	if hours > 23 || minutes > 59 {
		sc.failed = true
	}
	east := time.Duration(hours)*time.Hour + time.Duration(minutes)*time.Minute
	if west {
		return -east
	}
	return east
}
