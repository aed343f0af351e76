package quota

import (
	"math"
	"sync/atomic"
	"time"
)

// A ledger is all that a Memory knows. It is made at the first use.
type ledger struct {
	clock func() time.Time // if nil, the monotonic one
	start time.Time
	epoch int64  // start, in µs since the Unix epoch
	mask  uint64 // of the bits of a hash that choose the shard
	most  int64  // MaxKeys

	_ [64]byte // keeps what every call reads away from what some write

	kept      atomic.Int64 // slots that are taken
	forgotten atomic.Int64
	glanced   atomic.Uint64 // shards that glanceAround looked at

	_ [64]byte

	shards [maxShards]shard
}

// ledger returns m's.
func (m *Memory) ledger() *ledger {
	if g := m.books.Load(); g != nil {
		return g
	}
	m.books.CompareAndSwap(nil, m.newLedger())
	return m.books.Load()
}

func (m *Memory) newLedger() *ledger {
	n := shardsFor(m.maxKeys())
	g := &ledger{clock: m.now, start: time.Now(), mask: uint64(n - 1), most: int64(m.maxKeys())}
	g.epoch = g.start.UnixMicro()
	for i := range g.shards[:n] {
		g.shards[i].ledger = g
		g.shards[i].table.Store(nothing)
	}
	return g
}

// now returns the time in µs since the Unix epoch.
func (g *ledger) now() int64 {
	if g.clock != nil {
		return g.clock().UnixMicro()
	}
	return g.monotonic()
}

// monotonic is now without a clock of one's own.
func (g *ledger) monotonic() int64 {
	return g.epoch + int64(time.Since(g.start)/time.Microsecond)
}

// origin returns that of a table that is made at now. A clock of one's own may be
// set back, so that the Time of each Bucket must be known: none is after its
// table's origin then, and all are kept aside.
func (g *ledger) origin(now int64) int64 {
	const second = 1_000_000
	if g.clock != nil {
		return math.MaxInt64 / 2
	}
	return now - now%second
}

// over returns since when nothing must be owed by what is forgotten at now. A clock
// of one's own may be set back a little without any difference.
func (g *ledger) over(now int64) int64 {
	if g.clock != nil {
		return now - linger
	}
	return now
}

// shardOf returns the shard of h.
func (g *ledger) shardOf(h hash) *shard { return &g.shards[g.indexOf(h)] }

func (g *ledger) indexOf(h hash) uint64 { return uint64(h) & g.mask & (maxShards - 1) }
