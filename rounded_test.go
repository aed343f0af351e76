package heed_test

import (
	"fmt"
	"math"
	"math/rand/v2"
	"net/http"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/heedhttp/heed"
)

// A koa counts in fixed windows, as koa-ratelimit does: its Retry-After is rounded down.
type koa struct {
	quota  int
	window time.Duration
	reset  func(unix float64) string // the field's value

	mu            sync.Mutex
	end           time.Time // of the window
	left          int
	sent, refused int
}

func (k *koa) RoundTrip(req *http.Request) (*http.Response, error) {
	time.Sleep(200 * time.Microsecond)
	k.mu.Lock()
	defer k.mu.Unlock()
	now := time.Now()
	if !now.Before(k.end) {
		k.end, k.left = now.Add(k.window), k.quota
	}
	k.sent++
	k.left--
	end := float64(k.end.UnixMilli()) / 1000
	fields := []string{
		"Date", now.UTC().Format(http.TimeFormat), "X-RateLimit-Limit", fmt.Sprint(k.quota), "X-RateLimit-Remaining",
		fmt.Sprint(max(0, k.left)),
		"X-RateLimit-Reset", k.reset(end),
	}
	if k.left >= 0 {
		return response(req, reply{status: 200, header: fields}), nil
	}
	k.refused++
	after := math.Floor(end - float64(now.UnixMilli())/1000)
	return response(req, reply{status: 429, header: append(fields, "Retry-After", fmt.Sprint(after))}), nil
}

// Thirty workers lose no call to a server that rounds Retry-After down.
func TestARetryAfterRoundedDownLosesNoCall(t *testing.T) {
	for name, reset := range map[string]func(float64) string{
		"seconds, rounded up": func(unix float64) string { return fmt.Sprintf("%.0f", math.Ceil(unix)) },
		"milliseconds":        func(unix float64) string { return fmt.Sprintf("%.0f", unix*1000) },
		"a fraction":          func(unix float64) string { return fmt.Sprintf("%.3f", unix) },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				time.Sleep(300 * time.Millisecond) // windows do not end on a full second
				k := &koa{quota: 100, window: 5 * time.Second, reset: reset}
				client := &heed.Transport{Base: k}
				thinks := roundTripFunc(func(req *http.Request) (*http.Response, error) {
					time.Sleep(rand.N(100 * time.Millisecond)) // otherwise all thirty arrive at once, for ever
					return client.RoundTrip(req)
				})
				done, lost := work(t, thinks, 30, 0, 30*time.Second)
				refused := float64(k.refused) / float64(k.sent)
				t.Logf("%d done, %d lost; %.1f %% of %d refused", done, lost, 100*refused, k.sent)
				assert.Zero(t, lost)
				// Each of five or six windows ends with a refusal, and with those of the requests that are under
				// way then: 0.85 on average, in all. Such a Poisson number exceeds 2 % once in 8,000 runs, and 3 %
				// once in 1e11.
				assert.LessOrEqual(t, refused, 0.03)
				assert.GreaterOrEqual(t, done, 500)
			})
		})
	}
}
