package live

import (
	"cmp"
	"encoding/json"
	"slices"
	"time"
)

// A message is what has changed since the last one. live.js reads it.
type message struct {
	Now     int64         `json:"now"` // Unix milliseconds
	Title   string        `json:"title,omitempty"`
	Config  *rules        `json:"config,omitempty"` // set if it has changed
	Outage  *outage       `json:"outage,omitempty"` // set while the Store fails
	First   int64         `json:"first"`            // the first second of the counts
	Counts  []*ruleCounts `json:"counts,omitempty"` // missing rules have counts of 0
	Keys    []*keyStats   `json:"keys,omitempty"`
	Denials []entry       `json:"denials,omitempty"`
	Notices []entry       `json:"notices,omitempty"`
}

// ruleCounts are the counts of one rule.
type ruleCounts struct {
	Rule    string   `json:"rule"`
	Pattern string   `json:"pattern"`
	Seconds []counts `json:"seconds"`
}

// A viewer records what one viewer has been sent.
type viewer struct {
	page            *Page
	started         bool
	rules           *rules
	second          int64 // the last second sent, which was not over
	denials, notice int64 // the last IDs sent
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

// encode returns m as a server-sent event (HTML, section 9.2.6).
func (m *message) encode() []byte {
	data, err := json.Marshal(m)
	if err != nil {
		panic(err) // cannot happen: all fields can be encoded
	}
	return append(append([]byte("data: "), data...), "\n\n"...)
}
