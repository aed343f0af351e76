package live

import (
	"cmp"
	"encoding/json"
	"slices"
	"time"
)

// A message is what changed since the one before; live.js reads it.
type message struct {
	Now     int64         `json:"now"` // Unix milliseconds
	Title   string        `json:"title,omitempty"`
	Config  *rules        `json:"config,omitempty"` // if it is another one
	Outage  *outage       `json:"outage,omitempty"` // while the Store fails
	First   int64         `json:"first"`            // the second that the counts begin with
	Counts  []*ruleCounts `json:"counts,omitempty"` // of a rule that is not there, all are 0
	Keys    []*keyStats   `json:"keys,omitempty"`
	Denials []entry       `json:"denials,omitempty"`
	Notices []entry       `json:"notices,omitempty"`
}

// ruleCounts are what was counted of one rule.
type ruleCounts struct {
	Rule    string   `json:"rule"`
	Pattern string   `json:"pattern"`
	Seconds []counts `json:"seconds"`
}

// A viewer is what one has been sent already.
type viewer struct {
	page            *Page
	started         bool
	rules           *rules
	second          int64 // the latest, which was not over
	denials, notice int64 // the IDs of the last
}

// next returns what v has not been sent yet.
func (v *viewer) next(now time.Time) *message {
	p, second := v.page, now.Unix()
	m := &message{Now: now.UnixMilli(), Outage: p.outage.Load(), First: max(v.second, second-span+1)}
	if !v.started {
		m.Title = cmp.Or(p.Title, "Limits")
	}
	if r := p.rules.Load(); r != v.rules {
		m.Config, v.rules = r, r
	}
	var keys []*keyStats
	for _, r := range p.stats.all() {
		keys = append(keys, r.keys.all(r.name, now)...)
		seconds := r.history.read(m.First, second)
		if slices.ContainsFunc(seconds, func(c counts) bool { return c != counts{} }) {
			m.Counts = append(m.Counts, &ruleCounts{r.name.rule, r.name.pattern, seconds})
		}
	}
	m.Keys = top(keys)
	m.Denials, v.denials = p.denials.after(v.denials)
	m.Notices, v.notice = p.notices.after(v.notice)
	v.started, v.second = true, second
	return m
}

// encode is m as an event of a stream (HTML, section 9.2.6).
func (m *message) encode() []byte {
	data, err := json.Marshal(m)
	if err != nil {
		panic(err) // it has nothing that could not be encoded
	}
	return append(append([]byte("data: "), data...), "\n\n"...)
}
