package keyed

import (
	"fmt"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/heedhttp/heed/internal/hostkey"
)

func name(i int) hostkey.Name { return hostkey.NameOf(fmt.Sprint(i)) }

func never(*int) State { return Spare }

func TestATableFindsWhatItHas(t *testing.T) {
	var table Table[int]
	assert.Nil(t, table.Find(name(1)))
	*table.Get(name(1), never) = 7
	assert.Equal(t, 7, *table.Find(name(1)))
	assert.Equal(t, 7, *table.Get(name(1), never))
	assert.Nil(t, table.Find(name(2)))
	assert.Equal(t, 1, table.Len())
}

func TestAFullTableEvicts(t *testing.T) {
	var table Table[int]
	for i := range Most + 1000 {
		*table.Get(name(i), never) = i + 1
		assert.LessOrEqual(t, table.Len(), Most)
	}
	assert.Equal(t, Most, table.Len())
	for i := range Most + 1000 {
		if v := table.Find(name(i)); v != nil {
			assert.Equal(t, i+1, *v, "the value belongs to this key")
		}
	}
}

func TestATableDropsIdleEntriesGradually(t *testing.T) {
	var table Table[int]
	idle := func(v *int) State {
		if *v == 0 {
			return Idle
		}
		return InUse
	}
	*table.Get(name(0), idle) = 1
	for i := range 100_000 {
		table.Get(name(1+i), idle)
	}
	assert.LessOrEqual(t, table.Len(), 2*firstSweep)
	assert.NotNil(t, table.Find(name(0)), "it is not idle")
}

func TestGoroutinesShareATablesEntries(t *testing.T) {
	var table Table[sync.Map]
	var all sync.WaitGroup
	for g := range 8 {
		all.Go(func() {
			for i := range 1000 {
				table.Get(name(i), func(*sync.Map) State { return Spare }).Store(g, i)
			}
		})
	}
	all.Wait()
	for i := range 1000 {
		for g := range 8 {
			v, _ := table.Find(name(i)).Load(g)
			assert.Equal(t, i, v)
		}
	}
}

func TestAFullTableEvictsIdleThenLeastRecentlyUsed(t *testing.T) {
	table := Table[State]{Most: 3}
	state := func(s *State) State { return *s }
	for i, s := range []State{Spare, InUse, Spare} {
		*table.Get(name(i), state) = s
	}
	table.Find(name(0)) // so 2 is the least recently used
	*table.Get(name(3), state) = Spare
	assert.Nil(t, table.Find(name(2)))
	*table.Find(name(3)) = Idle
	table.Get(name(4), state)
	assert.Nil(t, table.Find(name(3)), "it was idle, though recently used")
	for _, i := range []int{0, 1, 4} {
		*table.Find(name(i)) = InUse
	}
	table.Get(name(5), state)
	assert.Equal(t, 4, table.Len(), "entries in use are not removed")
}
