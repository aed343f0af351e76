package clientside

import (
	"slices"
	"sync"

	"github.com/prometheus/client_golang/prometheus"
)

// A Budget is a retry budget whose balance can be read: a *heed.LocalBudget.
type Budget interface {
	// Balance reports how many retries it would allow now to the server with that key,
	// scheme://host.
	Balance(key string) float64
}

// Watch adds the gauge heed_budget_retries_left: how many retries b has left for each host
// that has a label of its own. Give b to the Transport, too: a Transport without a Budget
// keeps one that no other code can read.
//
// A host may have several balances: of several budgets that are watched, or one for http and
// one for https. The gauge is the least of them. A budget is watched as long as the program
// runs.
func (m *Metrics) Watch(b Budget) { m.budgets.add(b) }

var retriesLeft = prometheus.NewDesc("heed_budget_retries_left",
	"How many retries the budget allows now.", []string{"host"}, nil)

// budgets are those that are watched.
type budgets struct {
	mu  sync.Mutex
	all []Budget // guarded by mu
}

func (s *budgets) add(b Budget) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.all = append(s.all, b)
}

// collect tells the least balance of each label. labels has those of the keys.
func (s *budgets) collect(metrics chan<- prometheus.Metric, labels map[string]string) {
	s.mu.Lock()
	all := slices.Clone(s.all)
	s.mu.Unlock()
	left := make(map[string]float64)
	for key, label := range labels {
		for _, b := range all {
			balance := b.Balance(key)
			if least, ok := left[label]; ok {
				balance = min(balance, least)
			}
			left[label] = balance
		}
	}
	for label, balance := range left {
		metrics <- prometheus.MustNewConstMetric(retriesLeft, prometheus.GaugeValue, balance, label)
	}
}
