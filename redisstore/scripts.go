package redisstore

import _ "embed"

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

	embedded = newStoreScripts(numberSource, writeSource)
)

// storeScripts are what a Store runs: one that knows every Algorithm, and one that
// does not have to find out about windows and logs each time.
type storeScripts struct{ all, buckets *script }

func newStoreScripts(number, write string) *storeScripts {
	rest := planSource + runSource + write
	return &storeScripts{
		all:     newScript(number + cellSource + bucketSource + windowSource + logSource + rest),
		buckets: newScript(number + cellSource + bucketSource + rest),
	}
}

// of returns the one for p.
func (s *storeScripts) of(p *plan) *script {
	for _, l := range p.limits {
		if l.Rate() == 0 {
			return s.all
		}
	}
	return s.buckets
}
