package pace

import "time"

// TickAt makes a line believe that its timer fires at now, while something
// happens for which waiters need the lock to notice it.
func (k *Keyed) TickAt(key string, now time.Time, meanwhile func()) {
	k.lines[key].Value.(*keyedLine).tickAt(now, meanwhile)
}

func (w *with) TickAt(now time.Time) { w.line.tickAt(now, func() {}) }

func (l *line) tickAt(now time.Time, meanwhile func()) {
	l.mu.Lock()
	defer l.mu.Unlock()
	meanwhile()
	l.refreshLocked(now)
}
