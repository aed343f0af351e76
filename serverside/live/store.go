package live

import (
	"sync/atomic"
	"time"

	"github.com/heedhttp/heed/serverside"
)

// A store is how the Store is.
type store struct{ failing atomic.Pointer[outage] }

// An outage is a Store that fails since a moment.
type outage struct {
	Since int64  `json:"since"` // Unix milliseconds
	Mode  string `json:"mode"`  // what was done about it first
}

// fail reports whether e is the first failure of an outage.
func (s *store) fail(e serverside.Event, now time.Time) bool {
	return s.failing.Load() == nil && s.failing.CompareAndSwap(nil, &outage{now.UnixMilli(), e.Mode.String()})
}

func (s *store) recover() { s.failing.Store(nil) }
