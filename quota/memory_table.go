package quota

import (
	"math/bits"
	"unique"
)

// An entry is the state of one count of one Key, in 24 bytes without a pointer, so that
// the garbage collector does not scan it:
//
//	key    64 bits of the keyHash; 0 if the entry is empty
//	time   Bucket.Time in 53 bits, 11 more bits of the keyHash
//	level  Bucket.Level in 53 bits, the number of the count in 11 bits
//
// Two Keys collide if these 75 bits and those that choose the shard are the same: among a
// million Keys with a probability of less than 1 in 10^10.
type entry struct {
	key   uint64
	time  int64
	level uint64
}

const (
	lowBits = 11
	lowMask = 1<<lowBits - 1

	// maxNumber is the largest number of a count. Further counts go to overflow.
	maxNumber = lowMask

	// minEntries is the size of an empty table.
	minEntries = 8
)

// fits reports whether b fits in an entry. Buckets and fixed windows do, unless they are reserved ahead.
func fits(b *Bucket) bool {
	return b.Prev == 0 && b.Ahead == 0 && b.Log == "" && b.Time<<lowBits>>lowBits == b.Time
}

func newEntry(h keyHash, number uint64, b *Bucket) entry {
	e := entry{key: h.place, time: int64(h.check / maxShards & lowMask), level: number}
	e.set(b)
	return e
}

// set stores b, which fits.
func (e *entry) set(b *Bucket) {
	e.time = b.Time<<lowBits | e.time&lowMask
	e.level = uint64(b.Level)<<lowBits | e.level&lowMask
}

// numbered returns e with another number.
func (e entry) numbered(number uint64) entry {
	e.level = e.level&^lowMask | number
	return e
}

// of reports whether e belongs to the Key of h.
func (e *entry) of(h keyHash) bool {
	return e.key == h.place && uint64(e.time&lowMask) == h.check/maxShards&lowMask
}

// hash returns the keyHash of e, as far as it is stored.
func (e *entry) hash() keyHash { return keyHash{e.key, uint64(e.time&lowMask) * maxShards} }

func (e *entry) number() uint64 { return e.level & lowMask }

// bucket returns the state of e, whose last charge was by a Limit.
func (e *entry) bucket(by *Limit) Bucket {
	return Bucket{Time: e.time >> lowBits, Level: int64(e.level >> lowBits), Unit: by.unit}
}

// A count is what entries of one number count.
type count struct {
	limit  *Limit
	dryRun bool
}

// place returns where the entry of a Key belongs, as a fraction of 2^64 of the table.
func (c count) place(key uint64) uint64 {
	if c.dryRun {
		key = ^key
	}
	return key ^ c.limit.spread
}

// A table finds entries by open addressing: an entry is at its first place, or after it
// with no empty entry between.
type table struct {
	entries []entry
	used    int
	counts  []count // by number; number 0 is unused
	numbers map[countID]uint64
}

// A countID is the same for all Limits compiled from one Policy.
type countID struct {
	policy unique.Handle[Policy]
	dryRun bool
}

// newTable returns an empty table with room for a fifth more than entries.
func newTable(entries int) table {
	return table{
		entries: make([]entry, max(minEntries, entries*8/5)),
		counts:  make([]count, 1),
		numbers: make(map[countID]uint64),
	}
}

// full reports whether the table must be rebuilt before another entry is added.
func (t *table) full() bool { return (t.used+1)*4 > len(t.entries)*3 }

// number returns the number of a count, or 0 if there are too many.
func (t *table) number(c count) uint64 {
	id := countID{c.limit.id, c.dryRun}
	if number, ok := t.numbers[id]; ok {
		return number
	}
	if len(t.counts) > maxNumber {
		return 0
	}
	t.numbers[id] = uint64(len(t.counts))
	t.counts = append(t.counts, c)
	return t.numbers[id]
}

// first returns the first index for an entry with this place.
//
// It is rounded down to an entry that starts a cache line of 64 bytes, which entries 0, 3
// and 6 of eight do: fetching another line takes longer than comparing all of this one.
func (t *table) first(place uint64) int {
	i, _ := bits.Mul64(place, uint64(len(t.entries)))
	return int(i - i%8%3)
}

// next returns the index after i.
func (t *table) next(i int) int {
	if i++; i < len(t.entries) {
		return i
	}
	return 0
}

// find returns the index of the entry of a Key for the Name of a Limit, or -1.
func (t *table) find(h keyHash, l *Limit, dryRun bool) int {
	for i := t.first(count{l, dryRun}.place(h.place)); ; i = t.next(i) {
		switch e := &t.entries[i]; {
		case e.key == 0:
			return -1
		case e.of(h):
			if c := &t.counts[e.number()]; c.limit.name == l.name && c.dryRun == dryRun {
				return i
			}
		}
	}
}

// add adds an entry. The table must have room.
func (t *table) add(e entry) {
	i := t.first(t.counts[e.number()].place(e.key))
	for t.entries[i].key != 0 {
		i = t.next(i)
	}
	t.entries[i] = e
	t.used++
}

// remove empties index i, and moves the entries up that were behind it only because it
// was taken.
func (t *table) remove(i int) {
	for j := t.next(i); t.entries[j].key != 0; j = t.next(j) {
		e := &t.entries[j]
		first := t.first(t.counts[e.number()].place(e.key))
		if t.distance(first, j) >= t.distance(i, j) { // i is not before its first place
			t.entries[i] = *e
			i = j
		}
	}
	t.entries[i] = entry{}
	t.used--
}

// distance returns how far j is after i.
func (t *table) distance(i, j int) int {
	if j < i {
		j += len(t.entries)
	}
	return j - i
}

// whole returns when the entry at i owes nothing.
func (t *table) whole(i int) int64 {
	e := &t.entries[i]
	by := t.counts[e.number()].limit
	b := e.bucket(by)
	return by.whole(&b)
}
