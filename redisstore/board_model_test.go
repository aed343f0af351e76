package redisstore_test

import (
	"cmp"
	"maps"
	"slices"
	"time"
)

// A boardModel does in plain Go what the script of a Board does, without any limit on what it keeps. Its
// times are in µs.
type boardModel struct {
	start, last int64
	all         map[string]modelled
}

type modelled struct{ ends, wait, every, round, slots, replaced, change int64 }

func (c modelled) lastRelease() int64 { return c.ends + c.every*c.slots }

// run takes the arguments of the script, and returns its reply.
func (m *boardModel) run(now int64, args []any) (reply []any) {
	start, upto := args[0].(int64), args[1].(int64)
	if start != 0 && start == m.start && m.last < upto {
		m.start = max(now, start+1)
	}
	var answers []any
	for args = args[2:]; len(args) > 0; args = args[7:] {
		n := func(i int) int64 { return args[2+i].(int64) }
		answers = append(answers, m.operate(now, args[0].(string), args[1].(string), n(0), n(1), n(2), n(3), n(4)))
	}
	if start != m.start {
		upto = 0
	}
	reply = append([]any{m.start, m.last, m.last, ""}, answers...)
	byChange := func(a, b string) int { return cmp.Compare(m.all[a].change, m.all[b].change) }
	for _, key := range slices.SortedFunc(maps.Keys(m.all), byChange) {
		c := m.all[key]
		kept := c.lastRelease() + (10 * time.Second).Microseconds()
		if c.replaced > 0 {
			kept = max(kept, c.replaced+day.Microseconds())
		}
		if c.change > upto && kept > now {
			age := c.wait - min(c.ends-now, c.wait)
			reply = append(reply, key, c.ends, c.wait, age, c.every, c.round, c.slots, c.replaced)
		}
	}
	return reply
}

// operate executes one operation and returns its answer.
func (m *boardModel) operate(now int64, name, key string, left, every, ago, round, replaced int64) int64 {
	old := m.all[key]
	c := old
	if c.ends <= now { // a new one
		c = modelled{ends: now, replaced: c.replaced}
	}
	switch name {
	case "post":
		if now+left > c.ends || every > c.every {
			m.save(now, key, c.lengthened(now, left, every, ago))
		}
	case "replace":
		if replaced < 0 || old.replaced <= replaced {
			m.save(now, key, modelled{ends: now + left, wait: left, every: every, replaced: -1})
		}
	case "restore":
		if replaced < c.replaced {
			return 0
		}
		newer := replaced > c.replaced
		if newer && c.round < replaced {
			c = modelled{ends: now}
		}
		c.replaced, c.round = replaced, cmp.Or(c.round, round)
		if newer || now+left > c.ends || every > c.every {
			m.save(now, key, c.lengthened(now, left, every, ago))
		}
	case "claim":
		if old.round != round || old.lastRelease() <= now {
			return -1
		}
		old.slots++
		m.save(now, key, old)
		return old.slots - 1
	case "probe":
		if old.ends-now <= every || now-(old.ends-old.wait) < every {
			return 0
		}
		old.wait = old.ends - now
		m.save(now, key, old)
		return 1
	}
	return 0
}

func (c modelled) lengthened(now, left, every, ago int64) modelled {
	if now+left > c.ends {
		c.ends, c.wait = now+left, left+ago
	}
	c.every = max(every, c.every)
	return c
}

// save stores c with the number of a new change. If replaced is -1, this change replaces.
func (m *boardModel) save(now int64, key string, c modelled) {
	if m.all == nil {
		m.start, m.all = now, make(map[string]modelled)
	}
	m.last = max(m.last, now, c.round, c.replaced) + 1
	c.change, c.round = m.last, cmp.Or(c.round, m.last)
	if c.replaced < 0 {
		c.replaced = m.last
	}
	m.all[key] = c
}

// copied returns a copy of m, for a Redis that loses what is later.
func (m *boardModel) copied() boardModel {
	return boardModel{start: m.start, last: m.last, all: maps.Clone(m.all)}
}
