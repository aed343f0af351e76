package keyed

import (
	"fmt"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/heedhttp/heed/internal/hostkey"
)

func name(i int) hostkey.Name { return hostkey.NameOf(fmt.Sprint(i)) }

func never(*int) bool { return false }

func TestATableFindsWhatItHas(t *testing.T) {
	var table Table[int]
	assert.Nil(t, table.Find(name(1)))
	*table.Get(name(1), never) = 7
	assert.Equal(t, 7, *table.Find(name(1)))
	assert.Equal(t, 7, *table.Get(name(1), never))
	assert.Nil(t, table.Find(name(2)))
	assert.Equal(t, 1, table.Len())
}

func TestAFullTableForgets(t *testing.T) {
	var table Table[int]
	for i := range Most + 1000 {
		*table.Get(name(i), never) = i + 1
		assert.LessOrEqual(t, table.Len(), Most)
	}
	assert.Equal(t, Most, table.Len())
	for i := range Most + 1000 {
		if v := table.Find(name(i)); v != nil {
			assert.Equal(t, i+1, *v, "it is this key's")
		}
	}
}

func TestATableForgetsTheIdleInPassing(t *testing.T) {
	var table Table[int]
	idle := func(v *int) bool { return *v == 0 }
	*table.Get(name(0), idle) = 1
	for i := range 100_000 {
		table.Get(name(1+i), idle)
	}
	assert.LessOrEqual(t, table.Len(), 2*firstSweep)
	assert.NotNil(t, table.Find(name(0)), "it is none")
}

func TestATableIsOneForAllGoroutines(t *testing.T) {
	var table Table[sync.Map]
	var all sync.WaitGroup
	for g := range 8 {
		all.Go(func() {
			for i := range 1000 {
				table.Get(name(i), func(*sync.Map) bool { return false }).Store(g, i)
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
