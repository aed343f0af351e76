package live

import (
	"maps"
	"slices"
	"sync"
)

// maxRules bounds the rules that are told apart: each Reconfigure may bring others.
const maxRules = 256

// others stands for all rules beyond maxRules.
var others = ruleName{"other", "other"}

// A ruleName is a rule's name and pattern.
type ruleName struct{ rule, pattern string }

// A ruleStats is what is known of one rule.
type ruleStats struct {
	name    ruleName
	history history
	keys    keys
}

// stats are those of all rules. The zero value is ready for use.
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

// add returns the stats of a rule that may be new.
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
