package pace

import (
	"errors"
	"net/http"
	"sync"
	"time"

	"golang.org/x/time/rate"

	"github.com/heedhttp/heed"
	"github.com/heedhttp/heed/ratelimit"
)

// documentedLimits keeps the limits that vendors document and no response announces: of each window's quota a quarter may
// go at once, and the rest evenly. So no window has more, but for requests that cannot wait: they go without a token.
// The zero value is ready to use. A request is known by its pointer until observe.
type documentedLimits struct {
	mu     sync.Mutex
	limits map[*ratelimit.Documented]*Keyed
	taken  map[*http.Request]each // the limits of which a request in flight has a token
}

// covering returns the Pacers of the limits of p, which may be nil, that cover req.
func (d *documentedLimits) covering(p *ratelimit.Profile, req *http.Request, like *Advertised) (pacers each) {
	if p == nil {
		return nil
	}
	for i := range p.Documented {
		if limit := &p.Documented[i]; limit.Covers(req) && limit.Quota > 0 && limit.Window > 0 {
			pacers = append(pacers, d.pacer(limit, like))
		}
	}
	return pacers
}

func (d *documentedLimits) pacer(limit *ratelimit.Documented, like *Advertised) *Keyed {
	d.mu.Lock()
	defer d.mu.Unlock()
	k := d.limits[limit]
	if k == nil {
		burst := max(1, limit.Quota/4)
		rest := max(float64(limit.Quota-burst), 0.5)
		k = &Keyed{
			Limit: rate.Limit(rest / limit.Window.Seconds()), Burst: int(burst), Key: like.key, MaxKeys: like.MaxKeys,
		}
		if d.limits == nil {
			d.limits = make(map[*ratelimit.Documented]*Keyed)
		}
		d.limits[limit] = k
	}
	return k
}

// wait waits for all of pacers. A request that cannot wait so long goes on at once: the vendor may admit it.
func (d *documentedLimits) wait(pacers each, req *http.Request, most time.Duration) error {
	var taken each
	start := time.Now()
	for _, p := range pacers {
		err := waitAtMost(p, req, most-time.Since(start))
		if overdue := (*heed.OverdueError)(nil); errors.As(err, &overdue) {
			continue
		}
		if err != nil {
			taken.Observe(heed.Attempt{Request: req, Err: heed.ErrNotSent})
			return err
		}
		taken = append(taken, p)
	}
	if taken != nil {
		d.mu.Lock()
		defer d.mu.Unlock()
		if d.taken == nil {
			d.taken = make(map[*http.Request]each)
		}
		d.taken[req] = taken
	}
	return nil
}

// observe gives the tokens of a request back that was not sent.
func (d *documentedLimits) observe(a heed.Attempt) {
	d.mu.Lock()
	taken := d.taken[a.Request]
	delete(d.taken, a.Request)
	d.mu.Unlock()
	taken.Observe(a)
}
