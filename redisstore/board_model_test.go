package redisstore_test

import (
	"cmp"
	"maps"
	"slices"
	"time"
)

// A boardModel does in plain Go what the script of a Board does, without any limit on what it keeps.
// Its times are in µs.
type boardModel struct {
	begun, last int64
	all         map[string]*modelled
	grants      map[string][]int64 // when probes were granted
}

type modelled struct {
	key                                     string
	ends, wait, every, round, slots, change int64
	replaced                                int64
}

func (m *modelled) closes() int64 { return m.ends + m.every*m.slots }

func (m *modelled) kept() int64 {
	if m.replaced == 0 {
		return m.closes() + (10 * time.Second).Microseconds()
	}
	return max(m.closes()+(10*time.Second).Microseconds(), m.replaced+(24*time.Hour).Microseconds())
}

// run takes the arguments of the script, and returns its reply and whether it would publish a
// message.
func (m *boardModel) run(now int64, args []any) (reply []any, changed bool) {
	begun, upto := args[0].(int64), args[1].(int64)
	before := *m
	if begun != 0 && begun == m.begun && m.last < upto {
		m.begun = max(now, begun+1)
	}
	var answers []any
	for args = args[2:]; len(args) > 0; args = args[7:] {
		key := args[1].(string)
		n := func(i int) int64 { return args[2+i].(int64) }
		left, every, ago, round, replaced := n(0), n(1), n(2), n(3), n(4)
		var answer int64
		switch args[0] {
		case "post":
			m.lengthen(now, m.current(now, key), left, every, ago, false)
		case "replace":
			m.replace(now, key, left, every, replaced)
		case "restore":
			m.restore(now, key, left, every, ago, replaced, round)
		case "claim":
			answer = m.claim(now, key, round)
		case "probe":
			answer = m.probe(now, key, every)
		}
		answers = append(answers, answer)
	}
	if begun != m.begun {
		upto = 0
	}
	reply = append([]any{m.begun, m.last, m.last, ""}, answers...)
	return append(reply, m.changes(now, upto)...), m.last != before.last || m.begun != before.begun
}

// current returns key's cool-down, or a new one if it is over.
func (m *boardModel) current(now int64, key string) modelled {
	c := m.all[key]
	if c == nil {
		return modelled{key: key, ends: now}
	}
	if c.ends <= now {
		return modelled{key: key, ends: now, replaced: c.replaced}
	}
	return *c
}

func (m *boardModel) lengthen(now int64, c modelled, left, every, ago int64, changed bool) {
	if now+left <= c.ends && every <= c.every && !changed {
		return
	}
	if now+left > c.ends {
		c.ends, c.wait = now+left, left+ago
	}
	c.every = max(every, c.every)
	m.save(now, &c)
}

func (m *boardModel) replace(now int64, key string, left, every, known int64) {
	if old := m.all[key]; old != nil && known >= 0 && old.replaced > known {
		return
	}
	c := &modelled{key: key, ends: now + left, wait: left, every: every}
	m.save(now, c)
	c.replaced = c.change
}

func (m *boardModel) restore(now int64, key string, left, every, ago, replaced, round int64) {
	c := m.current(now, key)
	changed := replaced > c.replaced
	switch {
	case replaced < c.replaced:
		return
	case changed && c.round < replaced:
		c = modelled{key: key, ends: now, replaced: replaced}
	case changed:
		c.replaced = replaced
	}
	c.round = cmp.Or(c.round, round)
	m.lengthen(now, c, left, every, ago, changed)
}

func (m *boardModel) claim(now int64, key string, round int64) int64 {
	c := m.all[key]
	if c == nil || c.round != round || c.closes() <= now {
		return -1
	}
	c.slots++
	m.save(now, c)
	return c.slots - 1
}

func (m *boardModel) probe(now int64, key string, apart int64) int64 {
	c := m.all[key]
	if c == nil || c.ends-now <= apart || now-(c.ends-c.wait) < apart {
		return 0
	}
	c.wait = c.ends - now
	m.save(now, c)
	if m.grants == nil {
		m.grants = make(map[string][]int64)
	}
	m.grants[key] = append(m.grants[key], now)
	return 1
}

func (m *boardModel) save(now int64, c *modelled) {
	if m.all == nil {
		m.begun, m.all = now, make(map[string]*modelled)
	}
	m.last = max(m.last, now, c.round, c.replaced) + 1
	c.change, c.round = m.last, cmp.Or(c.round, m.last)
	m.all[c.key] = c
}

// changes returns the changes since upto.
func (m *boardModel) changes(now, upto int64) (list []any) {
	byChange := func(a, b *modelled) int { return cmp.Compare(a.change, b.change) }
	for _, c := range slices.SortedFunc(maps.Values(m.all), byChange) {
		if c.change > upto && c.kept() > now {
			left := min(c.ends-now, c.wait)
			list = append(list, c.key, c.ends, c.wait, c.wait-left, c.every, c.round, c.slots, c.replaced)
		}
	}
	return list
}

// copied returns a deep copy of m.
func (m *boardModel) copied() boardModel {
	c := boardModel{begun: m.begun, last: m.last, all: maps.Clone(m.all), grants: maps.Clone(m.grants)}
	for key, cooling := range m.all {
		one := *cooling
		c.all[key] = &one
	}
	return c
}
