package serverside

import (
	"cmp"
	"fmt"
	"net/http"
	"strings"

	"github.com/heedhttp/heed/quota"
)

// Describe describes r in two sentences, for a page of documentation:
//
//	At most 60 in 1m of requests to /v1/, counted for each key that the server knows.
//	Others get 429 Too Many Requests with Retry-After.
//
// It cannot describe what a KeyFunc reads.
func (r Rule) Describe() string {
	return fmt.Sprintf("%s of %s, counted for %s. %s.", r.amounts(), r.requests(), r.whose(), r.consequence())
}

// amounts describes r's limits.
func (r Rule) amounts() string {
	var all []string
	for _, t := range r.Tiers {
		all = append(all, policiesIn(t.Policies)+" for "+t.Name)
	}
	if len(r.Policies) > 0 {
		all = append(all, policiesIn(r.Policies))
	}
	if r.MaxInFlight > 0 {
		all = append(all, fmt.Sprintf("%d at the same time", r.MaxInFlight))
	}
	return "At most " + strings.Join(all, ", ")
}

func policiesIn(policies []quota.Policy) string {
	var all []string
	for _, p := range policies {
		s := fmt.Sprintf("%d in %s", p.Quota, windowName(p))
		if p.Burst > 0 && p.Burst != p.Quota {
			s += fmt.Sprintf(" (%d at once)", p.Burst)
		}
		all = append(all, s)
	}
	return strings.Join(all, " and ")
}

func (r Rule) requests() string {
	if r.Pattern == "" {
		return "all requests"
	}
	return "requests to " + r.Pattern
}

// whose describes what r counts apart.
func (r Rule) whose() string {
	switch {
	case r.Login != nil:
		return "each account and network, and each account"
	case r.Key == nil && r.Stage == Overload:
		return "all clients together"
	case r.Key == nil:
		return "each address, or each key of Config.Key"
	default:
		return known(r.Key).each()
	}
}

func (r Rule) consequence() string {
	status := cmp.Or(r.Status, http.StatusTooManyRequests)
	if r.DryRun {
		return "Others are counted, but still served"
	}
	s := fmt.Sprintf("Others get %d %s with Retry-After", status, http.StatusText(status))
	if p := r.Penalty; p != nil && p.First > 0 {
		s += fmt.Sprintf(", and after %d strikes are blocked for %v or longer", p.After, p.First)
	}
	return s
}
