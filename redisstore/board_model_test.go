package redisstore_test

import (
	"cmp"
	"maps"
	"slices"
	"time"
)

// A boardModel does what the script of a Board does, in plain Go, and keeps
// everything. Its times are µs.
type boardModel struct {
	begun, last int64
	all         map[string]*modelled
}

type modelled struct {
	key                                     string
	ends, wait, every, round, seats, change int64
}

func (m *modelled) closes() int64 { return m.ends + m.every*m.seats }

// run takes the script's arguments, and returns its reply and whether there is
// something to be notified.
func (m *boardModel) run(now int64, args []any) (reply []any, changed bool) {
	begun, upto, posts := args[0].(int64), args[1].(int64), args[2].(int)
	before := m.last
	args = args[3:]
	for ; posts > 0; posts-- {
		m.post(now, args[0].(string), args[1].(int64), args[2].(int64))
		args = args[3:]
	}
	var seats []any
	for ; len(args) > 0; args = args[2:] {
		seats = append(seats, m.claim(now, args[0].(string), args[1].(int64)))
	}
	if begun != m.begun || m.last < upto {
		upto = 0
	}
	reply = append([]any{m.begun, m.last, m.last, ""}, seats...)
	return append(reply, m.changes(now, upto)...), m.last != before
}

func (m *boardModel) post(now int64, key string, wait, every int64) {
	c := m.all[key]
	if c == nil || c.ends <= now {
		c = &modelled{key: key}
	}
	if now+wait <= c.ends && every <= c.every {
		return
	}
	if now+wait > c.ends {
		c.ends, c.wait = now+wait, wait
	}
	c.every = max(every, c.every)
	m.save(now, c)
}

func (m *boardModel) claim(now int64, key string, round int64) int64 {
	c := m.all[key]
	if c == nil || c.round != round || c.closes() <= now {
		return -1
	}
	c.seats++
	m.save(now, c)
	return c.seats - 1
}

func (m *boardModel) save(now int64, c *modelled) {
	if m.all == nil {
		m.begun, m.all = now, make(map[string]*modelled)
	}
	m.last = max(m.last, now) + 1
	c.change, c.round = m.last, cmp.Or(c.round, m.last)
	m.all[c.key] = c
}

// changes are those since upto, of what is not over for more than ten seconds.
func (m *boardModel) changes(now, upto int64) (list []any) {
	for _, c := range slices.SortedFunc(maps.Values(m.all), func(a, b *modelled) int { return cmp.Compare(a.change, b.change) }) {
		if c.change > upto && c.closes()+(10*time.Second).Microseconds() > now {
			list = append(list, c.key, c.ends, min(c.ends-now, c.wait), c.every, c.round, c.seats)
		}
	}
	return list
}
