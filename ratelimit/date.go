package ratelimit

import "time"

// parseDate reads a date: the three forms that RFC 9110, section 5.6.7 makes
// recipients accept, and RFC 3339.
//
//	Sun, 06 Nov 1994 08:49:37 GMT    IMF-fixdate
//	Sunday, 06-Nov-94 08:49:37 GMT   RFC 850, its year relative to now
//	Sun Nov  6 08:49:37 1994         asctime, always UTC
//	1994-11-06T08:49:37.5Z           RFC 3339
//
// It does not mind case, the wrong day of the week, a day of one digit, second
// 60, or UTC, UT, Z or a numeric zone instead of GMT; in RFC 3339, nor a space
// for the T and before the zone, nor missing seconds. It does mind a missing
// zone, any other name of a zone, which time.Parse would read as UTC, and a day
// that the calendar does not have.
func parseDate(s string, now time.Time) (t time.Time, ok bool) {
	var d civil
	sc := scanner{rest: s}
	switch sc.weekday() {
	case noWeekday:
		d = sc.rfc3339()
	case longWeekday:
		sc.comma()
		d = sc.rfc850()
	case shortWeekday:
		if sc.is(',') {
			sc.comma()
			d = sc.imfFixdate()
		} else {
			d = sc.asctime()
		}
	}
	if d.short {
		d = d.near(now)
	}
	if sc.failed || sc.rest != "" || !d.valid() {
		return time.Time{}, false
	}
	return d.time(), true
}

// parseJavaScript reads a date as JavaScript's Date.toString prints it: Fri Nov 20 2026
// 20:30:30 GMT+0100 (Central European Standard Time).
func parseJavaScript(s string) (t time.Time, ok bool) {
	var d civil
	sc := scanner{rest: s}
	sc.weekday()
	sc.skip(' ')
	d.month = sc.month()
	sc.skip(' ')
	d.day = sc.number(1, 2)
	sc.skip(' ')
	d.year = sc.number(4, 4)
	sc.skip(' ')
	sc.timeOfDay(&d)
	sc.skip(' ')
	if sc.zone(); sc.is('+') || sc.is('-') {
		d.offset = sc.offset()
	}
	if sc.failed || sc.rest != "" && !sc.is(' ') || !d.valid() {
		return time.Time{}, false
	}
	return d.time(), true
}

// imfFixdate reads 06 Nov 1994 08:49:37 GMT.
func (sc *scanner) imfFixdate() (d civil) {
	d.day = sc.number(1, 2)
	sc.skip(' ')
	d.month = sc.month()
	sc.skip(' ')
	d.year = sc.number(4, 4)
	sc.skip(' ')
	sc.timeOfDay(&d)
	sc.skip(' ')
	d.offset = sc.zone()
	return d
}

// rfc850 reads 06-Nov-94 08:49:37 GMT.
func (sc *scanner) rfc850() (d civil) {
	d.day = sc.number(1, 2)
	sc.skip('-')
	d.month = sc.month()
	sc.skip('-')
	d.year, d.short = sc.number(2, 2), true
	sc.skip(' ')
	sc.timeOfDay(&d)
	sc.skip(' ')
	d.offset = sc.zone()
	return d
}

// asctime reads Nov  6 08:49:37 1994, and the space before it.
func (sc *scanner) asctime() (d civil) {
	sc.skip(' ')
	d.month = sc.month()
	sc.skip(' ')
	if sc.is(' ') {
		sc.skip(' ')
		d.day = sc.number(1, 1)
	} else {
		d.day = sc.number(1, 2)
	}
	sc.skip(' ')
	sc.timeOfDay(&d)
	sc.skip(' ')
	d.year = sc.number(4, 4)
	return d
}

// rfc3339 reads 1994-11-06T08:49:37.5Z.
func (sc *scanner) rfc3339() (d civil) {
	d.year = sc.number(4, 4)
	sc.skip('-')
	d.month = time.Month(sc.number(2, 2))
	sc.skip('-')
	d.day = sc.number(2, 2)
	if sc.is(' ') {
		sc.skip(' ')
	} else {
		sc.skip('t')
	}
	d.hour = sc.number(2, 2)
	sc.skip(':')
	d.minute = sc.number(2, 2)
	if sc.is(':') {
		sc.skip(':')
		d.second = sc.number(2, 2)
		d.nanos = sc.fraction()
	}
	if sc.is(' ') {
		sc.skip(' ')
	}
	d.offset = sc.zone()
	return d
}

// timeOfDay reads 08:49:37.
func (sc *scanner) timeOfDay(d *civil) {
	d.hour = sc.number(2, 2)
	sc.skip(':')
	d.minute = sc.number(2, 2)
	sc.skip(':')
	d.second = sc.number(2, 2)
}
