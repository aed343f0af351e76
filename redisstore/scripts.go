package redisstore

import (
	_ "embed"
	"slices"

	"github.com/heedhttp/heed/quota"
)

var (
	//go:embed lua/number.lua
	numberSource string
	//go:embed lua/cell.lua
	cellSource string
	//go:embed lua/bucket.lua
	bucketSource string
	//go:embed lua/window.lua
	windowSource string
	//go:embed lua/log.lua
	logSource string
	//go:embed lua/plan.lua
	planSource string
	//go:embed lua/run.lua
	runSource string
	//go:embed lua/write.lua
	writeSource string
	//go:embed lua/expiry.lua
	expirySource string
	//go:embed lua/plain.lua
	plainSource string

	embedded = newStoreScripts(numberSource, expirySource)
)

// storeScripts are what a Store runs: one that knows every Algorithm; one that does not
// have to find out about windows and logs each time; and one that does no more than most
// calls need.
type storeScripts struct{ all, buckets, plain *script }

func newStoreScripts(number, expiry string) *storeScripts {
	rest := planSource + runSource + expiry + writeSource
	return &storeScripts{
		all:     newScript(number + cellSource + bucketSource + windowSource + logSource + rest),
		buckets: newScript(number + cellSource + bucketSource + rest),
		plain:   newScript(number + expiry + plainSource),
	}
}

// of returns the one for p.
func (s *storeScripts) of(p *plan) *script {
	switch {
	case p.plain():
		return s.plain
	case p.ofBuckets():
		return s.buckets
	}
	return s.all
}

// ofBuckets reports whether p is about no Algorithm but TokenBucket and LeakyBucket.
func (p *plan) ofBuckets() bool {
	return !slices.ContainsFunc(p.limits, func(l *quota.Limit) bool { return l.Rate() == 0 })
}

// plain reports whether p is what plain.lua can do, as far as is known here: to take,
// from buckets, what is no dry run and has no ID, by one Limit of each name.
func (p *plan) plain() bool {
	if p.special || len(p.ids) > 0 || !p.ofBuckets() {
		return false
	}
	if slices.ContainsFunc(p.errands, func(e *errand) bool { return e.verb != toTake }) {
		return false
	}
	return !slices.ContainsFunc(p.targets, func(t target) bool {
		return p.cells[t.cell].limit != t.limit || p.cells[t.cell].dryRun
	})
}
