package live

import (
	"cmp"
	"encoding/json"
	"slices"
	"sync"
	"time"
)

// A message is what changed since the one before; live.js reads it.
type message struct {
	Now     int64    `json:"now"` // Unix milliseconds
	Title   string   `json:"title,omitempty"`
	Config  *rules   `json:"config,omitempty"` // if it is another one
	Outage  *outage  `json:"outage,omitempty"` // while the Store fails
	Viewers int64    `json:"viewers"`
	First   int64    `json:"first"` // the second that Seconds begin with; what is not there is 0
	Routes  []counts `json:"routes,omitempty"`
	Keys    []bucket `json:"keys"`
	Denials []entry  `json:"denials,omitempty"`
	Notices []entry  `json:"notices,omitempty"`

	news bool // something has happened since the message before
}

// counts are what was counted of one rule.
type counts struct {
	Rule    string  `json:"rule"`
	Pattern string  `json:"pattern"`
	Seconds []tally `json:"seconds"`
}

// A viewer is how far one has got.
type viewer struct {
	page            *Page
	begun           bool
	rules           *rules
	counted         int64 // of all kinds
	second          int64 // that was not over when it was told; the one before may have been late, too
	denials, notice int64 // the last that were told
}

// next is what v has not been told yet.
func (v *viewer) next(now time.Time) message {
	p, last := v.page, now.Unix()
	p.roll(now)
	m := message{Now: now.UnixMilli(), Outage: p.store.failing.Load(), Viewers: p.streams.open.Load(),
		First: max(v.second-1, last-span+1), Keys: p.worst.of(p, now)}
	if !v.begun {
		m.Title = cmp.Or(p.Title, "Limits")
	}
	if c := p.rules.Load(); c != v.rules {
		m.Config, v.rules = c, c
	}
	counted := m.count(p, last)
	m.Denials, v.denials = p.denials.after(v.denials)
	m.Notices, v.notice = p.notices.after(v.notice)
	m.news = !v.begun || m.Config != nil || counted != v.counted || len(m.Denials)+len(m.Notices) > 0
	v.begun, v.counted, v.second = true, counted, last
	return m
}

// count fills Routes in, and returns how much was ever counted.
func (m *message) count(p *Page, last int64) (n int64) {
	current := p.second.Load()
	for _, r := range p.all() {
		for _, of := range r.history.now() {
			n += of
		}
		seconds := r.history.between(m.First, last, current)
		if slices.ContainsFunc(seconds, func(t tally) bool { return t != tally{} }) {
			m.Routes = append(m.Routes, counts{r.name.rule, r.name.pattern, seconds})
		}
	}
	return n
}

// encode is m as an event of a stream (HTML, section 9.2.6).
func (m *message) encode() []byte {
	data, err := json.Marshal(m)
	if err != nil {
		panic(err) // it has nothing that could not be encoded
	}
	return append(append([]byte("data: "), data...), "\n\n"...)
}

// A cache is the worst buckets, found once for all viewers.
type cache struct {
	mu      sync.Mutex // guards what follows
	found   time.Time
	buckets []bucket
}

func (c *cache) of(p *Page, now time.Time) []bucket {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.buckets != nil && now.Sub(c.found) < beat {
		return c.buckets
	}
	all := []bucket{}
	for _, r := range p.all() {
		all = append(all, r.keys.buckets(r.name)...)
	}
	c.buckets, c.found = worst(all), now
	return c.buckets
}
