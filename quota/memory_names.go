package quota

import (
	"runtime"
	"slices"
	"sync"
)

// names are those of all the Limits there are, by which Memory asks for what a Key
// is counted under.
var names struct {
	mu     sync.Mutex
	limits map[string]int // guarded by mu; how many there are of each
}

// register has names know l's for as long as l is in use.
func (l *Limit) register() {
	names.mu.Lock()
	defer names.mu.Unlock()
	if names.limits == nil {
		names.limits = make(map[string]int)
	}
	names.limits[l.Name()]++
	runtime.AddCleanup(l, unregister, l.Name())
}

func unregister(name string) {
	names.mu.Lock()
	defer names.mu.Unlock()
	if names.limits[name]--; names.limits[name] == 0 {
		delete(names.limits, name)
	}
}

// registered returns the names of all Limits, sorted.
func registered() (all []string) {
	names.mu.Lock()
	defer names.mu.Unlock()
	for name := range names.limits {
		all = append(all, name)
	}
	slices.Sort(all)
	return all
}
