package quota

import (
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"
)

// FuzzDivisor holds a divisor to the processor's division.
func FuzzDivisor(f *testing.F) {
	for _, d := range []int64{1, 2, 3, 7, 10, 864, 1<<32 - 1, 1 << 32, 1<<53 - 1, 1<<62 - 1, 1 << 62, 1<<63 - 1} {
		for _, n := range []int64{0, 1, d - 1, d, d + 1, 2*d - 1, 1<<53 - 1, 1<<62 - 1} {
			f.Add(n, d)
		}
	}
	f.Fuzz(func(t *testing.T, n, d int64) {
		if n, d = n&(1<<62-1), d&(1<<63-1); d == 0 {
			return
		}
		require.Equal(t, n/d, by(d).floor(n), "%d / %d", n, d)
	})
}

func TestDivisorsAgreeAtEveryMultiple(t *testing.T) {
	for range 20_000 {
		d := rand.Int64()>>rand.IntN(63) | 1
		d <<= rand.IntN(4)
		if d <= 0 {
			continue
		}
		times := 1 + rand.Int64N(max(1, (1<<62-1)/d))
		for _, n := range []int64{d*times - 1, d * times} {
			if n >= 0 && n < 1<<62 {
				require.Equal(t, n/d, by(d).floor(n), "%d / %d", n, d)
			}
		}
	}
}
