package export

import (
	"fmt"
	"strings"
	"time"

	"github.com/heedhttp/heed/quota"
	"github.com/heedhttp/heed/serverside/rulefile"
)

// A limit is a policy with all its defaults.
type limit struct{ quota.Policy }

func newLimit(p quota.Policy) limit {
	if compiled, err := p.Compile(); err == nil { // always: List has checked it
		p = compiled.Policy()
	}
	return limit{p}
}

// String returns l in words: "60 in 1m, 10 at once".
func (l limit) String() string {
	if l.Calendar != 0 {
		return fmt.Sprintf("%d in each %v", l.Quota, l.Calendar)
	}
	text := fmt.Sprintf("%d in %s", l.Quota, brief(l.Window))
	if l.Burst != l.Quota {
		text += fmt.Sprintf(", %d at once", l.Burst)
	}
	return text
}

// in returns how many requests l admits in the long run in a time.
func (l limit) in(d time.Duration) float64 {
	return float64(l.Quota) * float64(d) / float64(l.Window)
}

// brief returns d without its zeros: 1m, 24h, 1h30m.
func brief(d time.Duration) string {
	text := d.String()
	if strings.HasSuffix(text, "m0s") {
		text = strings.TrimSuffix(text, "0s")
	}
	if strings.HasSuffix(text, "h0m") {
		text = strings.TrimSuffix(text, "0m")
	}
	return text
}

// limitsOf returns a rule's limits in words: "60 in 1m, 20 at the same time, by ip".
func limitsOf(r *rulefile.Listed) string {
	var parts []string
	for _, p := range r.Rule.Policies {
		parts = append(parts, newLimit(p).String())
	}
	for _, t := range r.Rule.Tiers {
		for _, p := range t.Policies {
			parts = append(parts, t.Name+": "+newLimit(p).String())
		}
	}
	if n := r.Rule.MaxInFlight; n > 0 {
		parts = append(parts, fmt.Sprintf("%d at the same time", n))
	}
	return strings.Join(append(parts, "by "+r.Key), ", ")
}
