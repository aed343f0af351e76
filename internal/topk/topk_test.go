package topk_test

import (
	"fmt"
	"math/rand/v2"
	"strconv"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/heedhttp/heed/internal/topk"
)

// add adds each key n times.
func add(r *topk.Recent[int], n int, keys ...string) {
	for range n {
		for _, key := range keys {
			*r.Add(key)++
		}
	}
}

// most returns Most as text.
func most(r *topk.Recent[int], n int) (all []string) {
	for _, c := range r.Most(n) {
		all = append(all, fmt.Sprintf("%s %d (%d)", c.Key, c.N, c.Value))
	}
	return all
}

func TestMostFrequentKeysComeFirst(t *testing.T) {
	var r topk.Recent[int]
	assert.Empty(t, r.Most(3))
	add(&r, 1, "b", "a", "c")
	add(&r, 2, "c")
	assert.Equal(t, []string{"c 3 (3)", "a 1 (1)", "b 1 (1)"}, most(&r, 9), "equal ones by name")
	assert.Equal(t, []string{"c 3 (3)"}, most(&r, 1))
	assert.Nil(t, r.Most(0))
	assert.Nil(t, r.Most(-1))
}

func TestWindowIsForgottenAfterTheNextOne(t *testing.T) {
	var r topk.Recent[int]
	add(&r, 2, "a")
	r.Rotate()
	add(&r, 1, "a", "b")
	assert.Equal(t, []string{"a 3 (1)", "b 1 (1)"}, most(&r, 9), "what was kept last is the newer window's")
	r.Rotate()
	assert.Equal(t, []string{"a 1 (1)", "b 1 (1)"}, most(&r, 9))
	r.Rotate()
	assert.Empty(t, r.Most(9))
}

// The guarantee of the paper, checked against exact counts: every key that is more than 1/Size of all
// is found, and no count is too high.
func TestFloodOfKeysHidesNoFrequentKey(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	exact, total := map[string]int64{}, int64(0)
	var r topk.Recent[int]
	for i := range 100_000 {
		key := "flood " + strconv.Itoa(i)
		if random.IntN(10) == 0 {
			key = "frequent " + strconv.Itoa(random.IntN(5))
		}
		exact[key]++
		total++
		*r.Add(key) = i
	}
	counts := r.Most(2 * topk.Size)
	require.Len(t, counts, topk.Size)
	found := map[string]bool{}
	for _, c := range counts {
		assert.LessOrEqual(t, c.N, exact[c.Key], c.Key)
		found[c.Key] = true
	}
	for key, n := range exact {
		assert.True(t, found[key] || n <= total/topk.Size, key)
	}
	for i := range 5 {
		assert.Contains(t, counts[i].Key, "frequent")
	}
}

func BenchmarkAdd(b *testing.B) {
	keys := make([]string, 4*topk.Size)
	for i := range keys {
		keys[i] = strconv.Itoa(i)
	}
	for name, n := range map[string]int{"known": topk.Size, "flood": len(keys)} {
		b.Run(name, func(b *testing.B) {
			var r topk.Recent[int]
			for i := 0; b.Loop(); i++ {
				r.Add(keys[i%n])
			}
		})
	}
}
