package lab

import (
	"math/rand/v2"
	"sync"
	"time"
)

// Random has random numbers for several goroutines, the same for the same seed.
type Random struct {
	mu     sync.Mutex // guards source
	source *rand.Rand
}

// newRandom returns one of the streams of random numbers of a seed.
func newRandom(seed, stream uint64) *Random {
	return &Random{source: rand.New(rand.NewPCG(seed, stream))}
}

// Wait draws from an exponential distribution, as the time between two calls has it.
func (r *Random) Wait(mean time.Duration) time.Duration {
	r.mu.Lock()
	defer r.mu.Unlock()
	return time.Duration(r.source.ExpFloat64() * float64(mean))
}

// Share draws from [0, 1).
func (r *Random) Share() float64 {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.source.Float64()
}
