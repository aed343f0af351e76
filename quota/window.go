package quota

// windowAt returns the start and the end of the window that contains t, in µs since the
// Unix epoch. Windows are aligned to the epoch, or to a Calendar.
func (l *Limit) windowAt(t int64) (start, end int64) {
	if l.policy.Calendar != 0 {
		return l.calendarAt(t)
	}
	into := t % l.window
	if into < 0 {
		into += l.window
	}
	return t - into, t - into + l.window
}

// Starts returns the starts of four windows of a FixedWindow or SlidingWindow, in µs
// since the Unix epoch: the one before the window that contains now, that one, and the
// next two. A Store with the clock of another machine uses them to find its window.
func (l *Limit) Starts(now int64) [4]int64 {
	if l.policy.Calendar != 0 {
		return *l.around(now)
	}
	start, end := l.windowAt(now)
	return [4]int64{start - l.window, start, end, end + l.window}
}
