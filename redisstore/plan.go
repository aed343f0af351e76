package redisstore

import (
	"slices"
	"sync"

	"github.com/heedhttp/heed/quota"
)

// A plan is what one script does: errands, one after the other. It tells Redis what
// plan.lua describes, and works out what that did with the counts it found, by the
// functions of package quota.
//
// It is reused, so that nothing is allocated but the names of keys.
type plan struct {
	errands  []*errand
	keys     []string // of the script
	names    []byte   // of the hashes among them, one after the other
	args     []byte
	subjects []subject
	cells    []cell
	limits   []*quota.Limit
	ids      []identity
	targets  []target // of the charges of all errands
	known    map[string]int
	starts   []calendar
	special  bool // plain.lua would find what it cannot read
}

// A subject is a Key, whose hash is keys at its place.
type subject struct {
	key   string
	cells int // the first in a list; none is -1
	set   int // of its IDs, in keys; none is -1
}

// A cell is a field of a subject's hash.
type cell struct {
	limit  int // whose name it has
	dryRun bool
	next   int // of its subject; none is -1
	number int // as the script counts

	value   string       // that was found
	bucket  quota.Bucket // what it holds
	changed bool         // since it was found
	revoked *errand      // the last one that was
	errand  *errand      // the last one that took of it, if it is made
	last    int          // its last charge that did
}

// An identity is the ID of charges of one cell.
type identity struct {
	cell int
	id   string
	set  int // in keys

	known  bool    // charged
	errand *errand // by which it is charged, if that is allowed
}

// A target is what a charge is about, by its place. If it has no ID, id is -1.
type target struct{ cell, limit, id int }

var plans = sync.Pool{New: func() any { return new(plan) }}

// newPlan returns the plan of errands whose keys begin with prefix. It is to be freed.
func newPlan(prefix string, errands []*errand) *plan {
	p := plans.Get().(*plan)
	p.errands = append(p.errands, errands...)
	for _, e := range errands {
		for i := range e.charges {
			p.aim(&e.charges[i])
		}
	}
	p.addHashes(prefix)
	p.addSets(prefix)
	return p
}

// addHashes adds the keys of all subjects, which are parts of one string, so that they
// are one to the collector as well.
func (p *plan) addHashes(prefix string) {
	p.names = p.names[:0]
	for i := range p.subjects {
		p.names = append(append(p.names, prefix...), p.subjects[i].key...)
	}
	rest := string(p.names)
	for i := range p.subjects {
		size := len(prefix) + len(p.subjects[i].key)
		p.keys, rest = append(p.keys, rest[:size]), rest[size:]
	}
}

// free keeps what p has allocated for the next plan, and nothing that it was about.
func (p *plan) free() {
	clear(p.errands)
	clear(p.keys)
	clear(p.subjects)
	clear(p.cells)
	clear(p.limits)
	clear(p.ids)
	clear(p.known)
	*p = plan{
		errands: p.errands[:0], keys: p.keys[:0], names: p.names, args: p.args[:0], subjects: p.subjects[:0], cells: p.cells[:0],
		limits: p.limits[:0], ids: p.ids[:0], targets: p.targets[:0], known: p.known, starts: p.starts,
	}
	plans.Put(p)
}

// aim adds the target of c.
func (p *plan) aim(c *quota.Charge) {
	t := target{limit: p.limit(c.Limit), id: -1}
	s := p.subject(c.Key)
	t.cell = p.cell(s, t.limit, c.DryRun)
	if c.ID != "" {
		t.id = p.identity(s, t.cell, c)
	}
	p.targets = append(p.targets, t)
}

// few is how many subjects are looked through sooner than a map is asked.
const few = 8

// subject returns the place of key's.
func (p *plan) subject(key string) int {
	if len(p.subjects) <= few {
		for i := range p.subjects {
			if p.subjects[i].key == key {
				return i
			}
		}
	} else if i, ok := p.index()[key]; ok {
		return i
	}
	p.subjects = append(p.subjects, subject{key, -1, -1})
	return len(p.subjects) - 1
}

// index returns where each subject is.
func (p *plan) index() map[string]int {
	if p.known == nil {
		p.known = make(map[string]int)
	}
	for i := len(p.known); i < len(p.subjects); i++ {
		p.known[p.subjects[i].key] = i
	}
	return p.known
}

// cell returns the place of that of subject s which has the name of a limit.
func (p *plan) cell(s, limit int, dryRun bool) int {
	last := &p.subjects[s].cells
	for *last >= 0 {
		known := &p.cells[*last]
		if known.dryRun == dryRun && p.sameName(known.limit, limit) {
			return *last
		}
		last = &known.next
	}
	*last = len(p.cells)
	p.cells = append(p.cells, cell{limit: limit, dryRun: dryRun, next: -1})
	return len(p.cells) - 1
}

func (p *plan) sameName(l, m int) bool {
	return l == m || p.limits[l].Name() == p.limits[m].Name()
}

func (p *plan) limit(l *quota.Limit) int {
	if at := slices.Index(p.limits, l); at >= 0 {
		return at
	}
	p.limits = append(p.limits, l)
	return len(p.limits) - 1
}

// identity returns the place of the ID of c, which is charged in a cell of subject s.
func (p *plan) identity(s, cell int, c *quota.Charge) int {
	at := slices.IndexFunc(p.ids, func(i identity) bool { return i.cell == cell && i.id == c.ID })
	if at < 0 {
		at = len(p.ids)
		p.ids = append(p.ids, identity{cell: cell, id: c.ID, set: s})
	}
	return at
}

// addSets adds the keys of the sets that IDs are in.
func (p *plan) addSets(prefix string) {
	for i := range p.ids {
		s := &p.subjects[p.ids[i].set]
		if s.set < 0 {
			s.set = len(p.keys)
			p.keys = append(p.keys, setOf(prefix, s.key))
		}
		p.ids[i].set = s.set
	}
}
