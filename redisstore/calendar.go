package redisstore

import (
	"slices"

	"github.com/heedhttp/heed/quota"
)

// A calendar is when windows of a limit begin, in µs since the Unix epoch: the one
// before that of some moment, that one, and four more.
type calendar struct {
	limit  *quota.Limit
	starts [6]int64
}

// startsOf returns the calendar of l for now. Those that were looked up last are
// remembered: it takes a while.
func (p *plan) startsOf(l *quota.Limit, now int64) [6]int64 {
	at := slices.IndexFunc(p.starts, func(c calendar) bool { return c.limit == l })
	if at >= 0 && p.starts[at].starts[1] <= now && now < p.starts[at].starts[2] {
		return p.starts[at].starts
	}
	if at < 0 {
		if len(p.starts) == few {
			p.starts = slices.Delete(p.starts, 0, 1)
		}
		at = len(p.starts)
		p.starts = append(p.starts, calendar{limit: l})
	}
	near := l.Starts(now)
	far := l.Starts(near[3])
	p.starts[at].starts = [6]int64{near[0], near[1], near[2], near[3], far[2], far[3]}
	return p.starts[at].starts
}
