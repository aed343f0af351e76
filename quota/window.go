package quota

// windowAt returns when the window began that t is in, and when the next one
// begins, in µs since the Unix epoch. Windows are aligned to it, or to a Calendar.
func (l *Limit) windowAt(t int64) (begin, end int64) {
	if l.policy.Calendar != 0 {
		return l.calendarAt(t)
	}
	into := t % l.window
	if into < 0 {
		into += l.window
	}
	return t - into, t - into + l.window
}

// Starts returns when four windows of a FixedWindow or SlidingWindow begin, in µs
// since the Unix epoch: the one before the one that now is in, this one, the next
// one, and the one after that. A Store whose clock is another machine's can tell
// from these in which window it is.
func (l *Limit) Starts(now int64) [4]int64 {
	if l.policy.Calendar != 0 {
		return *l.around(now)
	}
	begin, end := l.windowAt(now)
	return [4]int64{begin - l.window, begin, end, end + l.window}
}
