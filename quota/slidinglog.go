package quota

// SlidingLog remembers when each unit was charged, and admits at most Quota units
// in any time as long as a Window, exactly: in (t - Window, t], for every t. What
// is charged in one microsecond is one entry of 9 bytes, so a log is of up to
// 9·Quota bytes, and Quota may be 1000 at most.
//
// What is reserved ahead is an entry to come, which counts at once. There are at
// most 2000 entries; what would need more is not reserved.
const SlidingLog Algorithm = 4

const (
	// entrySize is that of a time, 7 bytes, and units, 2 bytes.
	entrySize = 9

	// maxLogged is the largest Quota of a SlidingLog.
	maxLogged = 1000

	// maxEntries bounds a log in which units are reserved ahead, or owed.
	maxEntries = 2 * maxLogged

	// maxLogOwed is how many units a log holds at most, and so an entry.
	maxLogOwed = 1<<16 - 1
)

// entryAt returns the entry of log that begins at byte i.
func entryAt(log string, i int) (time, units int64) {
	e := log[i : i+entrySize]
	time = int64(e[0])<<48 | int64(e[1])<<40 | int64(e[2])<<32 | int64(e[3])<<24 | int64(e[4])<<16 | int64(e[5])<<8 | int64(e[6])
	return time, int64(e[7])<<8 | int64(e[8])
}

// logEntry returns the bytes of an entry.
func logEntry(time, units int64) string {
	return string([]byte{
		byte(time >> 48), byte(time >> 40), byte(time >> 32), byte(time >> 24), byte(time >> 16), byte(time >> 8), byte(time),
		byte(units >> 8), byte(units),
	})
}

// drainLog is Drain: entries that are a Window old have left.
func (l *Limit) drainLog(b Bucket, now int64) Bucket {
	if !believed(b, now) || len(b.Log)%entrySize != 0 {
		return Bucket{Time: now, Unit: 1}
	}
	if b.Log == "" {
		b = l.logged(b)
	}
	gone := 0
	for ; gone < len(b.Log); gone += entrySize {
		time, units := entryAt(b.Log, gone)
		if time > now-l.window {
			break
		}
		b.Level -= units
	}
	if gone == len(b.Log) {
		return Bucket{Time: now, Unit: 1}
	}
	return Bucket{Time: b.Time, Level: max(0, b.Level), Unit: 1, Log: b.Log[gone:]}
}

// logged returns what another Algorithm counted as a log: of one entry.
func (l *Limit) logged(b Bucket) Bucket {
	owed := indebted(l.units(b), b.Prev, l.most)
	if owed == 0 || b.Time < 0 {
		return Bucket{Time: b.Time, Unit: 1}
	}
	return Bucket{Time: b.Time, Level: owed, Unit: 1, Log: logEntry(b.Time, owed)}
}

// logMoment is when n units, no more than Quota, fit at the earliest: when enough
// of the oldest entries have left.
func (l *Limit) logMoment(b Bucket, n int64) (at int64) {
	over := b.Level + n - l.atOnce
	for i := 0; over > 0 && i < len(b.Log); i += entrySize {
		time, units := entryAt(b.Log, i)
		at, over = time+l.window, over-units
	}
	return at
}

func (l *Limit) tryLog(b Bucket, n, now int64) (after Bucket, fits bool) {
	if n > l.atOnce-b.Level {
		return b, false
	}
	return l.chargeLog(b, n, now)
}

// chargeLog adds an entry, if there is room for one. It is never older than the
// newest: who comes after another is counted after it, whatever clock he has.
func (l *Limit) chargeLog(b Bucket, n, at int64) (after Bucket, fits bool) {
	merges := b.Log != "" && at <= b.Time
	if n > l.most-b.Level || !merges && len(b.Log) >= maxEntries*entrySize {
		return b, false
	}
	units := n
	if merges {
		_, last := entryAt(b.Log, len(b.Log)-entrySize)
		at, units, b.Log = b.Time, last+n, b.Log[:len(b.Log)-entrySize]
	}
	return Bucket{Time: at, Level: b.Level + n, Unit: 1, Log: b.Log + logEntry(at, units)}, true
}

// settleLog charges at now. It gives back units of the entries from at on, the
// oldest first, since none of these is newer than the one that is corrected; or if
// at is zero, of the newest.
func (l *Limit) settleLog(b Bucket, n, at, now int64) Bucket {
	switch {
	case n > 0:
		return l.oweLog(b, min(n, l.most-b.Level), now)
	case at == 0:
		return l.refundNewest(b, refund(n))
	case at > now-l.window:
		return l.refundFrom(b, refund(n), at)
	default:
		return b
	}
}

// oweLog is chargeLog for what has been used already: if there is no room for
// another entry, the newest one takes it in, and is as old as it.
func (l *Limit) oweLog(b Bucket, n, now int64) Bucket {
	if n == 0 {
		return b
	}
	if len(b.Log) >= maxEntries*entrySize {
		b = moved(b, max(b.Time, now))
	}
	b, _ = l.chargeLog(b, n, now)
	return b
}

// moved returns b with its newest entry at another time.
func moved(b Bucket, to int64) Bucket {
	last := len(b.Log) - entrySize
	_, units := entryAt(b.Log, last)
	b.Time, b.Log = to, b.Log[:last]+logEntry(to, units)
	return b
}

// refundNewest takes up to n units from the newest entries.
func (l *Limit) refundNewest(b Bucket, n int64) Bucket {
	for n > 0 && b.Log != "" {
		last := len(b.Log) - entrySize
		time, units := entryAt(b.Log, last)
		less := min(n, units)
		n, b.Level, b.Log = n-less, b.Level-less, b.Log[:last]
		if units > less {
			b.Log += logEntry(time, units-less)
		}
	}
	return restamped(b)
}

// refundFrom takes up to n units from the oldest entries that are not before at.
func (l *Limit) refundFrom(b Bucket, n, at int64) Bucket {
	i := 0
	for ; i < len(b.Log); i += entrySize {
		if time, _ := entryAt(b.Log, i); time >= at {
			break
		}
	}
	kept, rest := b.Log[:i], b.Log[i:]
	for n > 0 && rest != "" {
		time, units := entryAt(rest, 0)
		less := min(n, units)
		n, b.Level, rest = n-less, b.Level-less, rest[entrySize:]
		if units > less {
			kept += logEntry(time, units-less)
		}
	}
	b.Log = kept + rest
	return restamped(b)
}

// restamped returns b with the time of its newest entry, if it has one.
func restamped(b Bucket) Bucket {
	if b.Log != "" {
		b.Time, _ = entryAt(b.Log, len(b.Log)-entrySize)
	}
	b.Level = max(0, b.Level)
	return b
}

// logWhole is when the newest entry leaves.
func (l *Limit) logWhole(b Bucket) int64 {
	if b.Log == "" {
		return b.Time
	}
	return b.Time + l.window
}
