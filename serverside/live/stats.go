package live

import (
	"maps"
	"slices"
	"sync"
)

// maxRules bounds the rules that are counted apart, because each Reconfigure may add some.
const maxRules = 256

// others is where all rules beyond maxRules are counted.
var others = ruleName{"other", "other"}

// A ruleName is a rule's name and pattern.
type ruleName struct{ rule, pattern string }

// A ruleStats is the history and the keys of one rule.
type ruleStats struct {
	name    ruleName
	history history
	keys    keys
}

// stats are the ruleStats of all rules. The zero value is ready to use.
type stats struct {
	mu    sync.RWMutex // guards what follows
	rules map[ruleName]*ruleStats
}

// of returns the stats of a rule.
func (s *stats) of(n ruleName) *ruleStats {
	s.mu.RLock()
	r := s.rules[n]
	s.mu.RUnlock()
	if r == nil {
		return s.add(n)
	}
	return r
}

// add returns the stats of a rule, and creates them if the rule is new.
func (s *stats) add(n ruleName) *ruleStats {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.rules == nil {
		s.rules = make(map[ruleName]*ruleStats)
	}
	if s.rules[n] == nil && len(s.rules) >= maxRules {
		n = others
	}
	if s.rules[n] == nil {
		s.rules[n] = &ruleStats{name: n}
	}
	return s.rules[n]
}

func (s *stats) all() []*ruleStats {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return slices.Collect(maps.Values(s.rules))
}
