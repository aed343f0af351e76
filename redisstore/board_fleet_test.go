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

// aliveAfter answers its first requests with 429, for a day at first, and all later ones with 200.
type aliveAfter struct {
	mu    sync.Mutex
	hints []string // Retry-After of the first answers
	sent  []time.Time
}

func (a *aliveAfter) RoundTrip(req *http.Request) (*http.Response, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	resp := &http.Response{
		StatusCode: 200, Proto: "HTTP/1.1", ProtoMajor: 1, Header: http.Header{}, Body: http.NoBody, Request: req,
	}
	if n := len(a.sent); n < len(a.hints) {
		resp.StatusCode = 429
		resp.Header.Set("Retry-After", a.hints[n])
	}
	a.sent = append(a.sent, time.Now())
	return resp, nil
}

// A wrong hint of a day costs a fleet one minute: a probe of one process ends the cool-down for all.
func TestAFleetRecoversFromAWrongHint(t *testing.T) {
	for name, hints := range map[string][]string{
		"the probe succeeds": {"86400"}, "the probe gets a hint of a second": {"86400", "1"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s, server := newBoardFake(t), &aliveAfter{hints: hints}
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
				start := time.Now()
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
					if at.Sub(start) < time.Minute {
						early++
					}
				}
				assert.Equal(t, 1, early, "the refused one, and no probe before a minute has passed")
				assert.GreaterOrEqual(t, len(good), 20*(300-65), "all go on within seconds of the first probe")
				assert.Empty(t, good[0].Sub(start).Truncate(time.Minute)-time.Minute)
			})
		})
	}
}
