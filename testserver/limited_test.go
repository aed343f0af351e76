package testserver_test

import (
	"fmt"
	"math"
	"net/http"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/heedhttp/heed/contract"
	"github.com/heedhttp/heed/testserver"
)

// A model is the simplest limiter that keeps the contract: burst requests at once, and one more per
// interval. Each fault breaks a clause.
type model struct {
	burst    int
	interval time.Duration
	fault    string

	mu   sync.Mutex
	full time.Time // when the bucket will be full
}

func (m *model) wrap(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		m.mu.Lock()
		wait, left, next1, full := m.take(time.Now())
		m.mu.Unlock()
		m.announce(w.Header(), left, next1, full)
		if wait > 0 {
			m.deny(w, wait)
			return
		}
		next.ServeHTTP(w, r)
	})
}

// take returns how long a request has to wait, how much is left, how long until there is one more,
// and when the bucket will be full.
func (m *model) take(now time.Time) (wait time.Duration, left int, next time.Duration, full time.Time) {
	if m.full.Before(now) {
		m.full = now
	}
	debt := m.full.Sub(now)
	if room := time.Duration(m.burst-1) * m.interval; debt > room {
		wait = debt - room
		if m.fault == "admits later than Retry-After" {
			wait = max(wait-2*time.Second, time.Millisecond)
		}
	} else {
		m.full = m.full.Add(m.interval)
		debt += m.interval
	}
	left = m.burst - int(math.Ceil(float64(debt)/float64(m.interval)))
	next = debt - time.Duration(m.burst-left-1)*m.interval
	return wait, left, next, m.full
}

func (m *model) announce(h http.Header, left int, next time.Duration, full time.Time) {
	if m.fault == "sends no fields" {
		return
	}
	r, t := left, int(math.Ceil(next.Seconds()))
	switch m.fault {
	case "counts below zero":
		r--
	case "sends nonsense":
		h.Set("X-RateLimit-Reset", "tomorrow")
	case "reports more than there is":
		r, left = r+1, left+1
	case "contradicts itself":
		left++
	case "announces a later time than Retry-After":
		t++
	}
	h.Set("RateLimit-Policy", fmt.Sprintf(`"model";q=%d`, m.burst))
	h.Set("RateLimit", fmt.Sprintf(`"model";r=%d;t=%d`, r, t))
	h.Set("X-RateLimit-Limit", fmt.Sprint(m.burst))
	h.Set("X-RateLimit-Remaining", fmt.Sprint(left))
	if h.Get("X-RateLimit-Reset") == "" {
		h.Set("X-RateLimit-Reset", fmt.Sprint(full.Add(2*time.Second-1).Unix()))
	}
}

func (m *model) deny(w http.ResponseWriter, wait time.Duration) {
	h, status := w.Header(), 429
	seconds := int(math.Ceil(wait.Seconds()))
	h.Set("Content-Type", "application/problem+json")
	if m.fault != "sends no no-store" {
		h.Set("Cache-Control", "no-store")
	}
	switch m.fault {
	case "sends no Retry-After":
	case "sends two Retry-After":
		h.Add("Retry-After", fmt.Sprint(seconds))
		h.Add("Retry-After", fmt.Sprint(seconds))
	default:
		h.Set("Retry-After", fmt.Sprint(seconds))
	}
	switch m.fault {
	case "sends no problem document":
		h.Set("Content-Type", "text/html")
	case "has another status in its body":
		status = 503
	}
	w.WriteHeader(429)
	fmt.Fprintf(w, `{"type":"about:blank","title":"Too Many Requests","status":%d,"retry_after_ms":%d}`, status,
		int(math.Ceil(wait.Seconds()*1000)))
}

// obey uses up the burst, is refused, and returns on time, several times.
func obey(t *testing.T, srv *testserver.Server) {
	c := &http.Client{Transport: srv.Transport()}
	for range 3 {
		for get(t, c, srv.URL) == "200 ok\n" {
		}
		log := srv.Log()
		wait := time.Second
		if after := log[len(log)-1].ResponseHeader.Get("Retry-After"); after != "" {
			d, err := time.ParseDuration(after + "s")
			assert.NoError(t, err)
			wait = d
		}
		time.Sleep(wait)
	}
	get(t, c, srv.URL)
}

func TestEachServerFaultBreaksItsClause(t *testing.T) {
	for fault, clause := range map[string]string{
		"":                                        "",
		"admits later than Retry-After":           "server/obeyed",
		"sends no Retry-After":                    "server/retry-after",
		"sends two Retry-After":                   "server/retry-after",
		"sends no fields":                         "server/fields",
		"sends nonsense":                          "server/fields-valid",
		"counts below zero":                       "server/remaining",
		"reports more than there is":              "server/used-up",
		"contradicts itself":                      "server/fields-agree",
		"announces a later time than Retry-After": "server/denial-agrees",
		"sends no problem document":               "server/explained",
		"has another status in its body":          "server/problem",
		"sends no no-store":                       "server/no-store",
	} {
		t.Run(fault, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				time.Sleep(123 * time.Millisecond)
				f := &fakeTB{}
				srv := testserver.NewLimited(f, (&model{burst: 3, interval: 4 * time.Second, fault: fault}).wrap)
				obey(t, srv)
				broken := brokenClauses(contract.Check(srv.Log(), contract.Server()...))
				srv.Check(f)
				f.end()
				if fault == "" {
					assert.Empty(t, broken)
					assert.Empty(t, f.failures)
					return
				}
				assert.Contains(t, broken, clause)
				assert.Len(t, f.failures, 1)
				assert.Contains(t, f.failures[0], clause)
			})
		})
	}
}

func TestAModelServerCoversEveryServerClause(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		srv := testserver.NewLimited(t, (&model{burst: 3, interval: 4 * time.Second}).wrap)
		obey(t, srv)
		for _, c := range contract.Server() {
			breaches, applicable := c.Check(srv.Log())
			assert.Empty(t, breaches, c.ID)
			assert.True(t, applicable, c.ID)
		}
	})
}
