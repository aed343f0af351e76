package redisstore_test

import (
	"net/http"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/heedhttp/heed"
	"github.com/heedhttp/heed/redisstore"
)

var _ heed.ProbeBoard = (*redisstore.Board)(nil)

// aliveAfter refuses its first request for a day, and is healthy from then on.
type aliveAfter struct {
	mu   sync.Mutex
	told []string // the hints of its first answers
	sent []time.Time
}

func (a *aliveAfter) RoundTrip(req *http.Request) (*http.Response, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	resp := &http.Response{StatusCode: 200, Proto: "HTTP/1.1", ProtoMajor: 1, Header: http.Header{}, Body: http.NoBody, Request: req}
	if n := len(a.sent); n < len(a.told) {
		resp.StatusCode = 429
		resp.Header.Set("Retry-After", a.told[n])
	}
	a.sent = append(a.sent, time.Now())
	return resp, nil
}

// A bogus day that one process was told costs a fleet a minute: one of all probes, and what
// it finds holds for all.
func TestAFleetRecoversFromABogusHint(t *testing.T) {
	for name, told := range map[string][]string{
		"the probe is answered well": {"86400"}, "the probe is told a second": {"86400", "1"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s, server := newBoardStand(t), &aliveAfter{told: told}
				var fleet []*heed.Transport
				for _, b := range openBoards(t, s, 20) {
					fleet = append(fleet, &heed.Transport{Base: server, Board: b})
				}
				ask := func(tr *heed.Transport) (status int) {
					req, _ := http.NewRequestWithContext(t.Context(), "GET", host+"/", nil)
					resp, err := tr.RoundTrip(req)
					if err != nil {
						assert.ErrorAs(t, err, new(*heed.OverdueError))
						return 0
					}
					resp.Body.Close()
					return resp.StatusCode
				}
				begin := time.Now()
				assert.Equal(t, 429, ask(fleet[0]))
				var mu sync.Mutex
				var good []time.Time
				var all sync.WaitGroup
				for _, tr := range fleet {
					all.Go(func() {
						for range 300 {
							time.Sleep(time.Second)
							if ask(tr) == 200 {
								mu.Lock()
								good = append(good, time.Now())
								mu.Unlock()
							}
						}
					})
				}
				all.Wait()
				early := 0
				for _, at := range server.sent {
					if at.Sub(begin) < time.Minute {
						early++
					}
				}
				assert.Equal(t, 1, early, "the one that was told, and no probe before a minute is over")
				assert.GreaterOrEqual(t, len(good), 20*(300-65), "all go on within seconds of the first probe")
				assert.Empty(t, good[0].Sub(begin).Truncate(time.Minute)-time.Minute)
			})
		})
	}
}
