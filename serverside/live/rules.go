package live

import (
	"cmp"
	"time"

	"github.com/heedhttp/heed/serverside"
)

// rules are the rules in effect since a time.
type rules struct {
	Hash  string `json:"hash"`
	Since int64  `json:"since"` // Unix milliseconds
	Rules []rule `json:"rules"`
}

// A rule is a rule as the page shows it.
type rule struct {
	Rule     string   `json:"rule"` // as in Observations
	Pattern  string   `json:"pattern"`
	Text     string   `json:"text"`
	Policies []string `json:"policies"`
	AtOnce   []int64  `json:"atOnce"` // the most that fits at once, for each of Policies
	DryRun   bool     `json:"dryRun,omitempty"`
}

func rulesOf(e serverside.Event, now time.Time) *rules {
	shown := rules{Hash: e.Hash, Since: now.UnixMilli(), Rules: []rule{}}
	for _, r := range e.Rules {
		policies, atOnce := policiesOf(r)
		shown.Rules = append(shown.Rules, rule{
			Rule: cmp.Or(r.Name, r.Pattern, "default"), Pattern: r.Pattern,
			Text: r.Describe(), Policies: policies, AtOnce: atOnce, DryRun: r.DryRun,
		})
	}
	return &shown
}

// policiesOf returns the names of r's policies, and the most that fits at once of each.
func policiesOf(r serverside.Rule) (names []string, atOnce []int64) {
	names, atOnce = []string{}, []int64{}
	all := r.Policies
	for _, t := range r.Tiers {
		all = append(all[:len(all):len(all)], t.Policies...)
	}
	for _, p := range all {
		if limit, err := p.Compile(); err == nil { // the Limiter has checked this
			names, atOnce = append(names, limit.Policy().Name), append(atOnce, limit.AtOnce())
		}
	}
	return names, atOnce
}
