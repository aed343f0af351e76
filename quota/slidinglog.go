package quota

// SlidingLog remembers when each unit was charged. It admits at most Quota units in any
// time as long as a Window, exactly: in (t - Window, t], for every t. Charges within one
// microsecond are one entry of 9 bytes, so a log has up to 9·Quota bytes. Quota is at
// most 1000.
//
// A reservation is an entry in the future, which counts at once. A log has at most 2000
// entries; Reserve refuses what would need more.
const SlidingLog Algorithm = 4

const (
	// entrySize is the size of a time, 7 bytes, and units, 2 bytes.
	entrySize = 9

	// maxLogged is the largest Quota of a SlidingLog.
	maxLogged = 1000

	// maxEntries caps the entries of a log with reservations or debt.
	maxEntries = 2 * maxLogged

	// maxLogOwed caps the units of a log, and so of an entry.
	maxLogOwed = 1<<16 - 1
)

// entryAt returns the entry at byte i of log.
func entryAt(log string, i int) (time, units int64) {
	e := log[i : i+entrySize]
	first := int64(e[0])<<56 | int64(e[1])<<48 | int64(e[2])<<40 | int64(e[3])<<32 |
		int64(e[4])<<24 | int64(e[5])<<16 | int64(e[6])<<8 | int64(e[7]) // the compiler makes this one load
	return first >> 8, first&0xff<<8 | int64(e[8])
}

// logEntry returns the bytes of an entry.
func logEntry(time, units int64) string {
	return string([]byte{
		byte(time >> 48), byte(time >> 40), byte(time >> 32), byte(time >> 24),
		byte(time >> 16), byte(time >> 8), byte(time),
		byte(units >> 8), byte(units),
	})
}

// drainLog drops the entries that are a Window old, and counts the others.
func (l *Limit) drainLog(b *Bucket, now int64) {
	log := b.Log
	if log == "" && b.plausible() && b.Level+b.Prev > 0 { // another Algorithm counted it
		log = logEntry(b.Time, addCapped(convert(b.Level, b.Unit, 1), b.Prev, l.most))
	}
	live, units, newest := entriesAfter(setBackLog(log, now+b.Ahead), now-l.window)
	if live == "" || units > l.most || !b.plausible() {
		*b = Bucket{Time: now, Unit: 1}
		return
	}
	*b = Bucket{Time: newest, Level: units, Unit: 1, Log: live}
	b.setAhead(now)
}

// setBackLog returns log with latest as the time of all later entries.
func setBackLog(log string, latest int64) string {
	if len(log)%entrySize != 0 {
		return log // invalid
	}
	later := len(log) // where later entries start
	for ; later > 0; later -= entrySize {
		if time, _ := entryAt(log, later-entrySize); time <= latest {
			break
		}
	}
	moved := log[:later]
	for i := later; i < len(log); i += entrySize {
		_, units := entryAt(log, i)
		moved += logEntry(latest, units)
	}
	return moved
}

// entriesAfter returns the entries of log after a moment, their units, and the time of
// the newest. It returns none if log is invalid.
func entriesAfter(log string, moment int64) (live string, units, newest int64) {
	if len(log)%entrySize != 0 {
		return "", 0, 0
	}
	gone := 0
	for i := 0; i < len(log); i += entrySize {
		time, n := entryAt(log, i)
		if time < newest || n == 0 {
			return "", 0, 0
		}
		newest = time
		if time <= moment {
			gone = i + entrySize
		} else {
			units += n
		}
	}
	return log[gone:], units, newest
}

// logMoment returns the earliest time at which n units fit, at most Quota: when enough of
// the oldest entries have expired.
func (l *Limit) logMoment(b *Bucket, n int64) (at int64) {
	over := b.Level + n - l.atOnce
	for i := 0; over > 0 && i < len(b.Log); i += entrySize {
		time, units := entryAt(b.Log, i)
		at, over = time+l.window, over-units
	}
	return at
}

// chargeLog adds an entry if there is room. The entry is never older than the newest,
// whatever the clock says.
func (l *Limit) chargeLog(b *Bucket, n, at int64) (fits bool) {
	if n > l.most-b.Level {
		return false
	}
	last := len(b.Log) - entrySize
	switch {
	case last >= 0 && at <= b.Time:
		_, units := entryAt(b.Log, last)
		b.Log = b.Log[:last] + logEntry(b.Time, units+n)
	case len(b.Log) >= maxEntries*entrySize:
		return false
	default:
		b.Time, b.Log = at, b.Log+logEntry(at, n)
	}
	b.Level += n
	return true
}

// settleLog charges at now. It refunds units of entries from at on, the oldest first,
// because the entry to correct is the oldest of these; if at is zero, it refunds the
// newest.
func (l *Limit) settleLog(b *Bucket, n, at, now int64) {
	switch {
	case n > 0:
		l.oweLog(b, min(n, l.most-b.Level), now)
	case at == 0:
		b.refundNewest(refundOf(n))
	case at > now-l.window:
		b.refundFrom(at, refundOf(n))
	}
	if b.Log == "" {
		b.Time = now
	}
}

// oweLog is chargeLog for units that were used already. If there is no room for another
// entry, the newest one takes them and gets the present time.
func (l *Limit) oweLog(b *Bucket, n, now int64) {
	if n == 0 {
		return
	}
	if last := len(b.Log) - entrySize; len(b.Log) >= maxEntries*entrySize && b.Time < now {
		_, units := entryAt(b.Log, last)
		b.Time, b.Log = now, b.Log[:last]+logEntry(now, units)
	}
	l.chargeLog(b, n, now)
}

// refundNewest removes up to n units from the newest entries.
func (b *Bucket) refundNewest(n int64) {
	for n > 0 && b.Log != "" {
		last := len(b.Log) - entrySize
		n = b.refundEntry(last, n)
	}
}

// refundFrom removes up to n units from the oldest entries that are not before at.
func (b *Bucket) refundFrom(at, n int64) {
	for i := 0; n > 0 && i < len(b.Log); {
		if time, _ := entryAt(b.Log, i); time < at {
			i += entrySize
			continue
		}
		n = b.refundEntry(i, n)
	}
}

// refundEntry removes up to n units from the entry at byte i, and the entry if nothing is
// left of it. It returns how many units it lacked.
func (b *Bucket) refundEntry(i int, n int64) (rest int64) {
	time, units := entryAt(b.Log, i)
	less := min(n, units)
	left := ""
	if units > less {
		left = logEntry(time, units-less)
	}
	b.Level, b.Log = b.Level-less, b.Log[:i]+left+b.Log[i+entrySize:]
	if b.Log != "" {
		b.Time, _ = entryAt(b.Log, len(b.Log)-entrySize)
	}
	return n - less
}

// logWhole returns when the newest entry expires.
func (l *Limit) logWhole(b *Bucket) int64 {
	if b.Log == "" {
		return b.Time
	}
	return b.Time + l.window
}
