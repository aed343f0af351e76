package pace_test

import (
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/heedhttp/heed"
	"github.com/heedhttp/heed/internal/testenv"
	"github.com/heedhttp/heed/pace"
	"github.com/heedhttp/heed/ratelimit"
)

// A tokenServer answers as an API of language models does: after about five seconds, with
// X-RateLimit-*-Tokens. It counts max_tokens of a request's body.
type tokenServer struct {
	quota  int    // a minute
	counts string // "bucket", "fixed" or "sliding"
	atEnd  bool   // it charges what a request used when that ends, and refuses only without any tokens
	rand   *rand.Rand

	mu      sync.Mutex
	at      time.Time // of the last change of a bucket, or the start of a window
	used    float64   // in the bucket or window
	log     []tokenUse
	refused int
}

type tokenUse struct {
	at time.Time
	n  int
}

func (s *tokenServer) renew(now time.Time) {
	switch s.counts {
	case "bucket":
		s.used = max(0, s.used-float64(s.quota)*now.Sub(s.at).Minutes())
		s.at = now
	case "fixed":
		if now.Sub(s.at) >= time.Minute {
			s.used, s.at = 0, now
		}
	case "sliding":
		for len(s.log) > 0 && now.Sub(s.log[0].at) >= time.Minute {
			s.used -= float64(s.log[0].n)
			s.log = s.log[1:]
		}
	}
}

func (s *tokenServer) charge(n int, now time.Time) {
	s.used += float64(n)
	s.log = append(s.log, tokenUse{now, n})
}

// reset returns the time until all units are back.
func (s *tokenServer) reset(now time.Time) time.Duration {
	switch {
	case s.used <= 0:
		return 0
	case s.counts == "bucket":
		return time.Duration(s.used / float64(s.quota) * float64(time.Minute))
	case s.counts == "fixed":
		return s.at.Add(time.Minute).Sub(now)
	}
	return s.log[len(s.log)-1].at.Add(time.Minute).Sub(now)
}

// fits returns the time until n units are left.
func (s *tokenServer) fits(n int, now time.Time) time.Duration {
	missing := s.used + float64(n) - float64(s.quota)
	switch {
	case missing <= 0:
		return 0
	case s.counts == "bucket":
		return time.Duration(missing / float64(s.quota) * float64(time.Minute))
	case s.counts == "fixed":
		return s.at.Add(time.Minute).Sub(now)
	}
	for _, u := range s.log {
		if missing -= float64(u.n); missing <= 0 {
			return u.at.Add(time.Minute).Sub(now)
		}
	}
	return time.Minute
}

func (s *tokenServer) RoundTrip(req *http.Request) (*http.Response, error) {
	var asked struct {
		N int `json:"max_tokens"`
	}
	_ = json.NewDecoder(req.Body).Decode(&asked)
	req.Body.Close()
	s.mu.Lock()
	defer s.mu.Unlock()
	now, need := time.Now(), asked.N
	if s.renew(now); s.atEnd {
		need = 1
	}
	if wait := s.fits(need, now); wait > 0 {
		s.refused++
		resp := s.answer(req, 429, now)
		resp.Header.Set("Retry-After-Ms", strconv.Itoa(int(wait/time.Millisecond)+1))
		return resp, nil
	}
	took := 4500*ms + time.Duration(s.rand.Int64N(int64(time.Second)))
	if !s.atEnd {
		s.charge(asked.N, now)
	}
	resp := s.answer(req, 200, now)
	s.mu.Unlock()
	sleeps(req.Context(), took)
	s.mu.Lock()
	if s.atEnd {
		now = time.Now()
		s.renew(now)
		s.charge(asked.N, now)
		resp = s.answer(req, 200, now)
	}
	return resp, nil
}

func (s *tokenServer) answer(req *http.Request, status int, now time.Time) *http.Response {
	h := http.Header{}
	h.Set("X-RateLimit-Limit-Tokens", strconv.Itoa(s.quota))
	h.Set("X-RateLimit-Remaining-Tokens", strconv.Itoa(max(0, s.quota-int(s.used+.999))))
	h.Set("X-RateLimit-Reset-Tokens", (s.reset(now) + ms - 1).Truncate(ms).String())
	return &http.Response{StatusCode: status, Header: h, Body: http.NoBody, Request: req}
}

// A tokenCase is a batch of 200 jobs by 40 workers.
type tokenCase struct {
	host   string
	quota  int
	counts string
	atEnd  bool
	least  int // the size of the smallest job
	most   int // of the largest
}

// jobs runs the batch. It returns how often the server refused, and the time it took as a
// multiple of the shortest possible.
func (c *tokenCase) jobs(t *testing.T, seed uint64) (refused int, slower float64) {
	random := rand.New(rand.NewPCG(seed, 0))
	server := &tokenServer{quota: c.quota, counts: c.counts, atEnd: c.atEnd, rand: random}
	client := &http.Client{Transport: &heed.Transport{
		Base: server,
		Retry: heed.RetryPolicy{
			Profiles: ratelimit.Vendors(), MaxAttempts: 10, MaxWait: 90 * time.Minute, MaxElapsed: 3 * time.Hour,
		},
		Pacer: &pace.Advertised{},
	}}
	sizes, sum := make(chan int, 200), 0
	for range 200 {
		n := c.least + random.IntN(c.most-c.least+1)
		sum += n
		sizes <- n
	}
	close(sizes)
	start := time.Now()
	var wg sync.WaitGroup
	for range 40 {
		wg.Go(func() {
			for n := range sizes {
				body := fmt.Sprintf(`{"model":"m","max_tokens":%d,"messages":[]}`, n)
				req, _ := http.NewRequestWithContext(t.Context(), "POST", "https://"+c.host+"/v1/chat/completions",
					strings.NewReader(body))
				req.Header.Set("Authorization", "Bearer k")
				resp, err := client.Do(req)
				if assert.NoError(t, err) {
					assert.Equal(t, 200, resp.StatusCode)
					_, _ = io.Copy(io.Discard, resp.Body)
				}
			}
		})
	}
	wg.Wait()
	ideal := time.Duration(float64(sum-c.quota) / float64(c.quota) * float64(time.Minute))
	if c.counts == "fixed" {
		ideal = time.Duration((sum-1)/c.quota) * time.Minute
	}
	return server.refused, time.Since(start).Seconds() / (ideal + 5*time.Second).Seconds()
}

// README's recipe at a server that limits tokens, without code for them. In the shortest time
// all of a window is used at its start, while an Advertised spreads it.
func TestTokensArePacedWithoutCode(t *testing.T) {
	const known, unknown = "api.openai.com", "example.com"
	for i, test := range []struct {
		tokenCase
		refused int
		slower  float64
	}{
		{tokenCase{known, 30_000, "bucket", false, 1500, 1500}, 10, 1.05},
		{tokenCase{known, 30_000, "bucket", true, 1500, 1500}, 10, 1.05},
		{tokenCase{known, 30_000, "bucket", false, 300, 3000}, 10, 1.05},
		{tokenCase{known, 10_000, "bucket", false, 300, 3000}, 30, 1.05},
		{tokenCase{known, 100_000, "bucket", false, 300, 3000}, 10, 1.1},
		{tokenCase{known, 100_000, "bucket", true, 300, 3000}, 10, 1.1},
		{tokenCase{unknown, 30_000, "bucket", false, 1500, 1500}, 10, 1.05},
		{tokenCase{unknown, 30_000, "bucket", false, 300, 3000}, 10, 1.05},
		{tokenCase{known, 30_000, "fixed", false, 1500, 1500}, 10, 1.4},
		{tokenCase{unknown, 30_000, "fixed", false, 300, 3000}, 10, 1.6},
		{tokenCase{known, 30_000, "sliding", false, 1500, 1500}, 10, 1.5},
		{tokenCase{unknown, 30_000, "sliding", false, 300, 3000}, 10, 1.7},
	} {
		name := fmt.Sprintf("%s, %d a minute, %s, at end %v, %d to %d",
			test.host, test.quota, test.counts, test.atEnd, test.least, test.most)
		t.Run(name, func(t *testing.T) {
			seeds := uint64(2)
			if i == 0 || testenv.Long() {
				seeds = 10
			}
			for seed := range seeds {
				synctest.Test(t, func(t *testing.T) {
					refused, slower := test.jobs(t, seed)
					t.Logf("seed %d: %d refused, %.3f of the shortest time", seed, refused, slower)
					assert.LessOrEqual(t, refused, test.refused)
					assert.LessOrEqual(t, slower, test.slower)
				})
			}
		})
	}
}
