package quota

import (
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"
)

// Half of the tenants belong at the end of the table, and many of those are at its beginning
// for want of room. The last cache line of some tables is not whole.
func TestATableFindsAllTenantsAndNobodyElse(t *testing.T) {
	for _, slots := range []int{fewestSlots, 37, small - 1, small, small + 1, small + 2, small + 3} {
		r := rand.New(rand.NewPCG(uint64(slots), 1))
		table := &table{slots: make([]slot, slots)}
		states := make(map[hash]int64)
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
				require.Equal(t, -1, table.find(gone))
			default:
				h := hash(r.Uint64()) | 1<<scaleBits // an empty slot's tag is 0
				if r.IntN(2) == 0 {
					h |= hash(0xfffff) << 44
				}
				tenants, states[h] = append(tenants, h), r.Int64N(maxState)
				table.add(h.tag(uint64(r.IntN(5))), h.check(), states[h])
			}
			require.Equal(t, len(tenants), table.taken)
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
		require.GreaterOrEqual(t, place, 0)
		slot, word := table.read(table.slots[place].tag.Load(), h.check())
		require.Same(t, &table.slots[place], slot)
		require.Equal(t, state, stateOf(word))
		require.Zero(t, word&held)
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
