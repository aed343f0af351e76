package quota

import (
	"math/rand/v2"
	"testing"

	"github.com/heedhttp/heed/internal/testenv"
	"github.com/stretchr/testify/require"
)

// Half of the tenants belong at the end of the table, and many of those are at its beginning
// for want of room; of large tables, where they take long to find, an eighth does by
// default. The last cache line of some tables is not whole.
func TestATableFindsAllTenantsAndNobodyElse(t *testing.T) {
	for _, slots := range []int{fewestSlots, 37, small - 1, small, small + 1, small + 2, small + 3} {
		r := rand.New(rand.NewPCG(uint64(slots), 1))
		table := &table{slots: make([]slot, slots)}
		states := make(map[hash]int64)
		late := 2
		if slots >= small-1 && !testenv.Long() {
			late = 8
		}
		var tenants []hash
		for step := range 8 * slots {
			switch n := len(tenants); {
			case n > 0 && (!table.roomy() || r.IntN(3) == 0):
				i := r.IntN(n)
				gone := tenants[i]
				tenants[i], tenants = tenants[n-1], tenants[:n-1]
				delete(states, gone)
				place := table.find(gone)
				table.slots[place].hold()
				table.remove(place)
				if place := table.find(gone); place != -1 {
					t.Fatalf("%d slots: who is gone is at %d", slots, place)
				}
			default:
				h := hash(r.Uint64()) | 1<<scaleBits // an empty slot's tag is 0
				if r.IntN(late) == 0 {
					h |= hash(0xfffff) << 44
				}
				tenants, states[h] = append(tenants, h), r.Int64N(maxState)
				table.add(h.tag(uint64(r.IntN(5))), h.check(), states[h])
			}
			if table.taken != len(tenants) {
				t.Fatalf("%d slots: %d are taken by %d tenants", slots, table.taken, len(tenants))
			}
			if step%(slots/4) == 0 {
				holds(t, table, states)
			}
		}
	}
}

// holds fails unless t has what states are of, for those who have locked it and for others.
func holds(t *testing.T, table *table, states map[hash]int64) {
	t.Helper()
	for h, state := range states {
		place := table.find(h)
		if place < 0 {
			t.Fatalf("%x is not found", h)
		}
		slot, word := table.read(table.slots[place].tag.Load(), h.check())
		if slot != &table.slots[place] || stateOf(word) != state || word&held != 0 {
			t.Fatalf("%x at %d has %d, not %d; held: %v; read where it is: %v",
				h, place, stateOf(word), state, word&held != 0, slot == &table.slots[place])
		}
	}
}

// Seven of eight tenants are in the line that is fetched first, in a large table that is
// just made, and nearly as many in one that is full.
func TestMostTenantsAreInTheCacheLineWhereTheyBelong(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	for taken, least := range map[int]float64{emptiest: 0.875, fullest: 0.84} {
		table := &table{slots: make([]slot, 64*small)}
		var tenants []hash
		for range taken * small {
			h := hash(r.Uint64())
			table.add(h.tag(1), h.check(), 1)
			tenants = append(tenants, h)
		}
		first := 0
		for _, h := range tenants {
			if table.find(h)/slotsPerLine == table.home(uint64(h))/slotsPerLine {
				first++
			}
		}
		require.Greater(t, float64(first), least*float64(len(tenants)))
	}
}
