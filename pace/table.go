package pace

import (
	"container/list"
	"strings"
)

// A table keeps an E for each key, in the order of their use. The zero table is
// empty. It must be guarded by its owner.
type table[E any] struct {
	byKey  map[string]*list.Element // of recent
	recent list.List                // of *entry[E], the most recently used first
}

type entry[E any] struct {
	key string
	val E
}

// use returns key's E, as the most recently used one, or nil if there is none.
func (t *table[E]) use(key string) *E {
	place := t.byKey[key]
	if place == nil {
		return nil
	}
	t.recent.MoveToFront(place)
	return &place.Value.(*entry[E]).val
}

// add makes an E for a key that has none. If there are most already, the least
// recently used one goes that may: none, if the oldest 32 must all stay.
func (t *table[E]) add(key string, most int, may func(*E) bool) *E {
	if t.byKey == nil {
		t.byKey = make(map[string]*list.Element)
	}
	if len(t.byKey) >= most {
		t.forget(may)
	}
	e := &entry[E]{key: strings.Clone(key)} // it may be a part of something large
	t.byKey[e.key] = t.recent.PushFront(e)
	return &e.val
}

func (t *table[E]) forget(may func(*E) bool) {
	place := t.recent.Back()
	for looks := 0; looks < mostLooks && place != nil; looks++ {
		if e := place.Value.(*entry[E]); may(&e.val) {
			delete(t.byKey, e.key)
			t.recent.Remove(place)
			return
		}
		place = place.Prev()
	}
}
