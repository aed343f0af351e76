package live_test

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/heedhttp/heed/quota"
	"github.com/heedhttp/heed/serverside"
	"github.com/heedhttp/heed/serverside/live"
	"github.com/heedhttp/heed/serverside/rulefile"
)

// A site is a limited server with a page.
type site struct {
	testing.TB
	page    *live.Page
	limiter *serverside.Limiter
	handler http.Handler
}

// open starts a site with cfg. Without an Audit it logs nothing.
func open(t testing.TB, cfg serverside.Config) *site {
	t.Helper()
	if cfg.Audit == nil {
		cfg.Audit = func(serverside.Event) {}
	}
	s := &site{TB: t, page: new(live.Page)}
	var err error
	s.limiter, err = serverside.New(s.page.Instrument(cfg))
	require.NoError(t, err)
	s.handler = s.limiter.Wrap(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	return s
}

// ask sends n requests from a user.
func (s *site) ask(n int, target, user string) {
	for range n {
		r := httptest.NewRequest("GET", target, nil)
		r.Header.Set("X-User", user)
		s.handler.ServeHTTP(httptest.NewRecorder(), r)
	}
}

// api returns a rule by user.
func api(policies ...quota.Policy) serverside.Rule {
	return serverside.Rule{Name: "api", Pattern: "/v1/", Stage: serverside.AfterAuth,
		Key: serverside.Header("X-User"), Policies: policies}
}

func rules(all ...serverside.Rule) serverside.Config { return serverside.Config{Rules: all} }

// A message is what viewers are sent.
type message struct {
	Now    int64
	Title  string
	Config *struct {
		Hash  string
		Rules []struct {
			Rule, Pattern, Text string
			Policies            []string
			AtOnce              []int64
			DryRun              bool
		}
	}
	Outage *struct{ Mode string }
	First  int64
	Counts []struct {
		Rule, Pattern string
		Seconds       [][5]int64
	}
	Keys []struct {
		Rule, Key string
		Denied    int64
		Quotas    []left
	}
	Denials, Notices []struct {
		ID              int64
		Kind, Rule, Key string
		Wait            int64
		Status          int
	}
}

// left says what was left of a policy, and when.
type left struct{ Remaining, Limit, At int64 }

// sum adds up a rule's counts.
func (m *message) sum(rule string) (sum [5]int64) {
	for _, r := range m.Counts {
		for _, counts := range r.Seconds {
			for k, n := range counts {
				if r.Rule == rule {
					sum[k] += n
				}
			}
		}
	}
	return sum
}

// A memory is the latest counts of a rule that a viewer was sent, by second.
type memory map[int64][5]int64

func (known memory) add(rule string, m message) {
	for _, r := range m.Counts {
		for i, counts := range r.Seconds {
			if r.Rule == rule {
				known[m.First+int64(i)] = counts
			}
		}
	}
}

func (known memory) sum() (sum [5]int64) {
	for _, counts := range known {
		for k, n := range counts {
			sum[k] += n
		}
	}
	return sum
}

// A viewer is a viewer's connection inside a bubble.
type viewer struct {
	header http.Header
	status int
	leave  context.CancelFunc
	ended  chan struct{}
	hold   chan struct{} // full while the viewer does not read

	mu   sync.Mutex
	text strings.Builder // guarded by mu
}

func (v *viewer) Header() http.Header { return v.header }
func (v *viewer) WriteHeader(s int)   { v.status = s }
func (v *viewer) Flush()              {}

func (v *viewer) Write(b []byte) (int, error) {
	v.hold <- struct{}{}
	defer func() { <-v.hold }()
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.text.Write(b)
}

// watch opens the stream of events.
func (s *site) watch() *viewer {
	ctx, cancel := context.WithCancel(s.Context())
	v := &viewer{header: make(http.Header), leave: cancel, ended: make(chan struct{}), hold: make(chan struct{}, 1)}
	go func() {
		defer close(v.ended)
		s.page.ServeHTTP(v, httptest.NewRequestWithContext(ctx, "GET", "http://localhost/events", nil))
	}()
	synctest.Wait()
	return v
}

// close disconnects, and waits until the handler has returned.
func (v *viewer) close() {
	v.leave()
	<-v.ended
}

// gone reports whether the stream has ended.
func (v *viewer) gone() bool {
	synctest.Wait()
	select {
	case <-v.ended:
		return true
	default:
		return false
	}
}

// messages returns the messages since the last call.
func (v *viewer) messages(t testing.TB) (all []message) {
	synctest.Wait()
	v.mu.Lock()
	defer v.mu.Unlock()
	for line := range strings.Lines(v.text.String()) {
		if data, ok := strings.CutPrefix(line, "data: "); ok {
			var m message
			require.NoError(t, json.Unmarshal([]byte(data), &m), data)
			all = append(all, m)
		}
	}
	v.text.Reset()
	return all
}

// only returns the one message that has come.
func (v *viewer) only(t testing.TB) message {
	t.Helper()
	all := v.messages(t)
	require.Len(t, all, 1)
	return all[0]
}

func TestViewerGetsTheHistory(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := open(t, rules(api(quota.PerHour(3)), serverside.Rule{Name: "next", Stage: serverside.AfterAuth,
			DryRun: true, Policies: []quota.Policy{quota.PerHour(1)}}))
		s.ask(5, "/v1/x", "ann")
		time.Sleep(2 * time.Second)
		s.ask(1, "/v1/x", "bob")
		v := s.watch()
		defer v.close()
		assert.Equal(t, "text/event-stream", v.header.Get("Content-Type"))
		assert.Equal(t, "no-store", v.header.Get("Cache-Control"))

		m := v.only(t)
		assert.Equal(t, "Limits", m.Title)
		assert.Equal(t, s.limiter.Hash(), m.Config.Hash)
		require.Len(t, m.Config.Rules, 2)
		assert.Equal(t, "api", m.Config.Rules[0].Rule)
		assert.Equal(t, []string{"3/1h"}, m.Config.Rules[0].Policies)
		assert.Equal(t, []int64{3}, m.Config.Rules[0].AtOnce)
		assert.Contains(t, m.Config.Rules[0].Text, "At most 3 in 1h of requests to /v1/")
		assert.True(t, m.Config.Rules[1].DryRun)

		assert.Equal(t, [5]int64{4, 2, 0, 0, 0}, m.sum("api"))
		assert.EqualValues(t, 5, m.sum("next")[4], "would have been denied")
		last := m.Counts[0].Seconds
		require.Len(t, last, 120)
		assert.Equal(t, m.Now/1000, m.First+119)

		require.Len(t, m.Denials, 7)
		d := m.Denials[1]
		assert.Equal(t, "would deny", m.Denials[0].Kind)
		assert.Equal(t, "denied", m.Denials[len(m.Denials)-2].Kind)
		assert.NotEmpty(t, d.Key)
		require.NotEmpty(t, m.Keys)
		assert.Equal(t, "api", m.Keys[0].Rule)
		assert.EqualValues(t, 2, m.Keys[0].Denied)
		require.Len(t, m.Keys[0].Quotas, 1)
		assert.EqualValues(t, 0, m.Keys[0].Quotas[0].Remaining)
		assert.EqualValues(t, 3, m.Keys[0].Quotas[0].Limit)
		assert.Equal(t, "configured", m.Notices[0].Kind)
	})
}

// There is one message each second.
func TestViewerGetsEventsAsTheyHappen(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := open(t, rules(api(quota.PerHour(100))))
		v := s.watch()
		defer v.close()
		v.only(t)
		time.Sleep(10*time.Second - time.Millisecond)
		assert.Len(t, v.messages(t), 9)

		for range 40 { // 10 ms each
			s.ask(1, "/v1/x", "ann")
			time.Sleep(10 * time.Millisecond)
		}
		time.Sleep(time.Second)
		all := v.messages(t)
		assert.Len(t, all, 2)
		known := memory{}
		for _, m := range all {
			assert.Nil(t, m.Config, "which is known")
			known.add("api", m)
		}
		assert.Equal(t, [5]int64{40}, known.sum())
	})
}

func TestEachVerdictIsCounted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := open(t, rules(api(quota.PerHour(1))))
		observe := s.page.Instrument(serverside.Config{}).Observe
		all := []serverside.Verdict{serverside.Admitted, serverside.Refused, serverside.Uncounted, serverside.Trusted}
		for i, verdict := range all {
			for range i + 1 {
				observe(serverside.Observation{Verdict: verdict, Rule: "api"})
			}
		}
		v := s.watch()
		defer v.close()
		m := v.only(t)
		assert.Equal(t, [5]int64{1, 2, 3, 4}, m.sum("api"))
	})
}

func TestHistoryCoversTwoMinutes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := open(t, rules(api(quota.PerSecond(1000))))
		for range 200 {
			s.ask(2, "/v1/x", "ann")
			time.Sleep(time.Second)
		}
		s.ask(3, "/v1/x", "ann")
		v := s.watch()
		defer v.close()
		m := v.only(t)
		require.Len(t, m.Counts, 1)
		seconds := m.Counts[0].Seconds
		require.Len(t, seconds, 120)
		for i, counts := range seconds[:119] {
			assert.EqualValues(t, 2, counts[0], i)
		}
		assert.EqualValues(t, 3, seconds[119][0])

		time.Sleep(119 * time.Second)
		s.ask(1, "/v1/x", "ann")
		later := s.watch()
		defer later.close()
		m = later.only(t)
		assert.EqualValues(t, 3, m.Counts[0].Seconds[0][0])
		assert.EqualValues(t, 1, m.Counts[0].Seconds[119][0])
		assert.EqualValues(t, 4, m.sum("api")[0])
	})
}

// Seconds older than two minutes are not shown again, even if no requests came since.
func TestSecondsWithoutRequestsAreEmpty(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := open(t, rules(api(quota.PerSecond(1000))))
		start := time.Now().Unix()
		for range 120 {
			s.ask(1, "/v1/x", "ann")
			time.Sleep(time.Second)
		}
		for _, asked := range []int64{0, 2} {
			time.Sleep(30 * time.Second)
			s.ask(int(asked), "/v1/x", "ann")
			want := map[int64]int64{time.Now().Unix(): asked}
			for second := range int64(120) {
				want[start+second] = 1
			}
			v := s.watch()
			m := v.only(t)
			v.close()
			for i, counts := range m.Counts[0].Seconds {
				assert.Equal(t, want[m.First+int64(i)], counts[0], i)
			}
		}
	})
}

func TestKeyShowsWhatWasLeftOfEachPolicy(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := open(t,
			rules(api(quota.PerHour(24), quota.PerSecond(10)), serverside.Rule{Name: "all", Stage: serverside.AfterAuth,
				Key: serverside.Header("X-User"), Policies: []quota.Policy{quota.PerDay(1000)}}))
		s.ask(11, "/v1/x", "ann")
		began := time.Now().UnixMilli()
		time.Sleep(10 * time.Second)
		s.ask(1, "/v1/x", "ann") // the second's quota is full again, the hour's is not
		s.ask(1, "/v1/x", "bob")
		v := s.watch()
		defer v.close()
		m := v.only(t)
		assert.Equal(t, []int64{24, 10}, m.Config.Rules[0].AtOnce)
		require.Len(t, m.Keys, 2)
		assert.Equal(t, []left{{0, 10, began}, {13, 24, began + 10_000}}, m.Keys[0].Quotas)
		assert.EqualValues(t, 1, m.Keys[0].Denied)
		assert.Equal(t, []left{{9, 10, began + 10_000}}, m.Keys[1].Quotas)
	})
}

// A key whose limits keep changing, as with Limits, shows the latest.
func TestPoliciesOfAKeyAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := open(t, rules(api(quota.PerHour(3))))
		observe := s.page.Instrument(serverside.Config{}).Observe
		var want []left
		for i := range int64(40) {
			observe(serverside.Observation{Verdict: serverside.Admitted, Rule: "api", Pattern: "/v1/",
				Remaining: i, Limit: 1000 - i})
			want = append([]left{{i, 1000 - i, time.Now().UnixMilli()}}, want...)
			time.Sleep(time.Millisecond)
		}
		v := s.watch()
		defer v.close()
		m := v.only(t)
		require.Len(t, m.Keys, 1)
		assert.Equal(t, want[:4], m.Keys[0].Quotas)
	})
}

func TestKeysAreForgottenAfterTenMinutes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := open(t, rules(api(quota.PerHour(1))))
		s.ask(3, "/v1/x", "ann")
		for _, c := range []struct {
			after time.Duration
			keys  int
		}{{0, 1}, {5 * time.Minute, 1}, {5 * time.Minute, 0}} {
			time.Sleep(c.after)
			v := s.watch()
			assert.Len(t, v.only(t).Keys, c.keys, c.after)
			v.close()
		}
		s.ask(1, "/v1/x", "ann")
		for _, c := range []struct {
			after time.Duration
			keys  int
		}{{10*time.Minute - time.Second, 1}, {time.Second, 0}} { // without viewers in between
			time.Sleep(c.after)
			v := s.watch()
			assert.Len(t, v.only(t).Keys, c.keys, c.after)
			v.close()
		}
		s.ask(1, "/v1/x", "ann")
		time.Sleep(time.Hour)
		v := s.watch()
		defer v.close()
		assert.Empty(t, v.only(t).Keys, "nobody has watched for an hour")
	})
}

// Once a slow viewer reads again, it gets the latest denials only.
func TestSlowViewerLosesEventsAndBlocksNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := open(t, rules(api(quota.PerHour(1))))
		v, other := s.watch(), s.watch()
		defer v.close()
		defer other.close()
		v.messages(t)
		other.messages(t)
		v.hold <- struct{}{}
		s.ask(101, "/v1/x", "ann")
		time.Sleep(30 * time.Second)
		assert.NotEmpty(t, other.messages(t))
		assert.Empty(t, v.messages(t))
		<-v.hold
		time.Sleep(time.Second)
		denials, known := 0, memory{}
		for _, m := range v.messages(t) {
			if n := len(m.Denials); n > 0 {
				denials += n
				assert.EqualValues(t, 100, m.Denials[n-1].ID)
			}
			known.add("api", m)
		}
		assert.Equal(t, 64, denials)
		assert.EqualValues(t, 100, known.sum()[1], "numbers are not lost")
	})
}

func TestOldestViewerIsDisconnected(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := open(t, rules(api(quota.PerHour(1))))
		s.page.MaxViewers = 2
		a, b := s.watch(), s.watch()
		a.close()
		c := s.watch()
		assert.False(t, b.gone(), "there was room")
		d := s.watch()
		assert.True(t, b.gone())
		assert.Contains(t, b.text.String(), "event: replaced\ndata: {}\n\n")
		e := s.watch()
		defer e.close()
		assert.True(t, c.gone())
		assert.False(t, d.gone())
		d.close()
		f := s.watch()
		defer f.close()
		assert.False(t, e.gone())
		f.only(t)
	})
}

func TestThirtyTwoViewersAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := open(t, rules(api(quota.PerHour(1))))
		var all []*viewer
		for range 33 {
			all = append(all, s.watch())
		}
		for i, v := range all {
			assert.Equal(t, i == 0, v.gone(), i)
			v.close()
		}
	})
}

// A viewer that does not read is disconnected when it reads, or after a timeout.
func TestStuckViewerIsDisconnected(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := open(t, rules(api(quota.PerHour(1))))
		s.page.MaxViewers = 1
		a := s.watch()
		a.hold <- struct{}{}
		time.Sleep(2 * time.Second)
		b := s.watch()
		assert.Len(t, b.messages(t), 1)
		c := s.watch()
		defer c.close()
		assert.True(t, b.gone())
		assert.False(t, a.gone())
		<-a.hold
		assert.True(t, a.gone())
		assert.False(t, c.gone())
	})
}

// The browser then reconnects, and has to authenticate again.
func TestStreamLastsTenMinutes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := open(t, rules(api(quota.PerHour(1))))
		begun := time.Now()
		v := s.watch()
		defer v.leave()
		<-v.ended
		assert.Equal(t, 10*time.Minute, time.Since(begun))
	})
}

func TestOutageIsShownUntilItEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var down atomic.Bool
		down.Store(true)
		cfg := rules(api(quota.PerHour(100)))
		cfg.OnStoreError = serverside.FailOpen
		cfg.Store = &switched{down: &down}
		s := open(t, cfg)
		s.ask(3, "/v1/x", "ann")
		v := s.watch()
		defer v.close()
		m := v.only(t)
		require.NotNil(t, m.Outage)
		assert.Equal(t, "open", m.Outage.Mode)
		assert.Equal(t, [5]int64{0, 0, 3}, m.sum("api"))
		require.Len(t, m.Notices, 2, "of each outage one")
		assert.Equal(t, "store failed", m.Notices[1].Kind)
		down.Store(false)
		s.ask(1, "/v1/x", "ann")
		time.Sleep(time.Second)
		all := v.messages(t)
		assert.Nil(t, all[0].Outage)
		assert.Equal(t, "store recovered", all[0].Notices[0].Kind)
	})
}

// A switched is a Store that can be turned off. Its error contains a secret.
type switched struct {
	quota.Memory
	down *atomic.Bool
}

func (s *switched) Take(ctx context.Context, dst []quota.Decision, charges ...quota.Charge) ([]quota.Decision, error) {
	if s.down.Load() {
		return nil, errors.New("redis://:s3cr3t@10.0.0.7:6379: connection refused")
	}
	return s.Memory.Take(ctx, dst, charges...)
}

func TestNewConfigurationIsShown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := open(t, rules(api(quota.PerHour(1))))
		v := s.watch()
		defer v.close()
		before := v.only(t).Config.Hash
		cfg := rules(api(quota.PerHour(2)))
		cfg.Audit = func(serverside.Event) {}
		cfg = s.page.Instrument(cfg)
		require.NoError(t, s.limiter.Reconfigure(cfg))
		require.Error(t, s.limiter.Reconfigure(s.page.Instrument(serverside.Config{})))
		time.Sleep(time.Second)
		m := v.only(t)
		require.NotNil(t, m.Config)
		assert.NotEqual(t, before, m.Config.Hash)
		assert.Equal(t, s.limiter.Hash(), m.Config.Hash)
		require.Len(t, m.Notices, 2)
		assert.Equal(t, "config rejected", m.Notices[1].Kind)
	})
}

func TestNoSecretsAreShown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var down atomic.Bool
		cfg := rules(serverside.Rule{Name: "api", Pattern: "/v1/{rest...}", Policies: []quota.Policy{quota.PerHour(1)},
			Stage: serverside.AfterAuth, Key: serverside.Header("Authorization")})
		cfg.OnStoreError = serverside.FailOpen
		cfg.Store = &switched{down: &down}
		s := open(t, cfg)
		ask := func() {
			r := httptest.NewRequest("GET", "/v1/path-s3cr3t?q=query-s3cr3t", nil)
			r.Header.Set("Authorization", "Bearer header-s3cr3t")
			s.handler.ServeHTTP(httptest.NewRecorder(), r)
		}
		ask()
		ask()
		down.Store(true)
		ask()
		v := s.watch()
		defer v.close()
		text := v.text.String()
		assert.NotContains(t, text, "s3cr3t")
		assert.NotContains(t, text, "192.0.2.1")
		m := v.only(t)
		require.Len(t, m.Denials, 1)
		assert.Regexp(t, "^[0-9a-f]{32}$", m.Denials[0].Key)
		assert.Equal(t, m.Denials[0].Key, m.Keys[0].Key)
	})
}

func TestInstrumentKeepsExistingFunctions(t *testing.T) {
	var events, observations int
	s := open(t, serverside.Config{Rules: []serverside.Rule{api(quota.PerHour(1))},
		Audit: func(serverside.Event) { events++ }, Observe: func(serverside.Observation) { observations++ }})
	s.ask(2, "/v1/x", "ann")
	assert.Equal(t, 3, events, "configured, near its limit, and denied")
	assert.Equal(t, 2, observations)
}

// Each Reconfigure may bring other rules.
func TestRulesAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		page := new(live.Page)
		cfg := page.Instrument(serverside.Config{Audit: func(serverside.Event) {}})
		for i := range 1000 {
			cfg.Observe(serverside.Observation{Verdict: serverside.Admitted, Rule: fmt.Sprint(i)})
		}
		cfg.Observe(serverside.Observation{Verdict: 77, Rule: "0"})
		v := (&site{TB: t, page: page}).watch()
		defer v.close()
		m := v.only(t)
		assert.Len(t, m.Counts, 257)
		assert.EqualValues(t, 1000-256, m.sum("other")[0])
		assert.EqualValues(t, 1, m.sum("0")[0])
	})
}

func TestConcurrentRequestsAreCountedExactly(t *testing.T) {
	const each, many = 2000, 8
	s := open(t, rules(api(quota.Policy{Quota: 5000, Window: 720 * time.Hour}))) // refills one in nine minutes
	server := httptest.NewServer(s.page)
	t.Cleanup(server.Close) // after the streams have ended
	want := [5]int64{10000, each*many - 10000}
	var group sync.WaitGroup
	for range 3 {
		group.Go(func() {
			known := memory{}
			for body := s.events(server); known.sum() != want; {
				known.add("api", next(t, body))
			}
		})
	}
	for i := range many {
		group.Go(func() { s.ask(each, "/v1/x", fmt.Sprint("user ", i%2)) })
	}
	group.Wait()
	m := next(t, s.events(server))
	assert.Equal(t, want, m.sum("api"))
}

// events opens a stream until the test ends.
func (s *site) events(server *httptest.Server) *bufio.Reader {
	req, err := http.NewRequestWithContext(s.Context(), "GET", server.URL+"/any/prefix/events", nil)
	require.NoError(s, err)
	resp, err := server.Client().Do(req)
	require.NoError(s, err)
	s.Cleanup(func() { resp.Body.Close() })
	return bufio.NewReader(resp.Body)
}

// next returns the next message.
func next(t testing.TB, r *bufio.Reader) (m message) {
	require.NoError(t, read(r, &m))
	return m
}

// read reads the next message into m.
func read(r *bufio.Reader, m *message) error {
	for {
		line, err := r.ReadString('\n')
		if err != nil {
			return err
		}
		if data, ok := strings.CutPrefix(line, "data: "); ok {
			return json.Unmarshal([]byte(data), m)
		}
	}
}

// The server's timeouts are shorter than the stream.
func TestServerShutsDownWithViewers(t *testing.T) {
	for _, version := range []int{1, 2} {
		t.Run(fmt.Sprint("HTTP/", version), func(t *testing.T) {
			t.Parallel()
			s := open(t, rules(api(quota.PerHour(1))))
			server := httptest.NewUnstartedServer(s.page)
			server.Config.ReadTimeout, server.Config.WriteTimeout = 100*time.Millisecond, 100*time.Millisecond
			server.EnableHTTP2 = version == 2
			server.StartTLS()
			defer server.Close()
			var body *bufio.Reader
			for begun := time.Now(); body == nil; { // a busy server may reach its timeouts before the handler runs
				require.Less(t, time.Since(begun), time.Minute)
				resp, err := server.Client().Get(server.URL + "/events")
				if err != nil {
					continue
				}
				defer resp.Body.Close()
				require.Equal(t, version, resp.ProtoMajor)
				body = bufio.NewReader(resp.Body)
				for range 2 { // the second message comes after a second
					if err := read(body, new(message)); err != nil {
						body = nil
						break
					}
				}
			}
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			require.NoError(t, server.Config.Shutdown(ctx))
			_, err := io.ReadAll(body)
			assert.NoError(t, err, "the stream has ended, and was not cut")
		})
	}
}

func TestRulesOfAFileAreShown(t *testing.T) {
	file := filepath.Join(t.TempDir(), "rules.yaml")
	write := func(text string) { require.NoError(t, os.WriteFile(file, []byte(text), 0o644)) }
	write("rules: [{name: orders, pattern: /v1/, policies: 60/1m}]")
	s := &site{TB: t, page: new(live.Page)}
	cfg := s.page.Instrument(serverside.Config{Audit: func(serverside.Event) {}})
	watcher, err := rulefile.Watch(file, rulefile.Env{Config: cfg})
	require.NoError(t, err)
	defer watcher.Close()
	server := httptest.NewServer(s.page)
	t.Cleanup(server.Close)
	for _, policy := range []string{"60/1m", "70/1m"} {
		write("rules: [{name: orders, pattern: /v1/, policies: " + policy + "}]")
		require.NoError(t, watcher.Reload())
		m := next(t, s.events(server))
		require.Len(t, m.Config.Rules, 1)
		assert.Equal(t, "orders", m.Config.Rules[0].Rule)
		assert.Equal(t, []string{policy}, m.Config.Rules[0].Policies)
		assert.Equal(t, watcher.Limiter.Hash(), m.Config.Hash)
	}
}

func TestFiles(t *testing.T) {
	get := func(method, path string, fields ...string) *httptest.ResponseRecorder {
		r, w := httptest.NewRequest(method, "http://localhost/"+path, nil), httptest.NewRecorder()
		for i := 0; i < len(fields); i += 2 {
			r.Header.Set(fields[i], fields[i+1])
		}
		new(live.Page).ServeHTTP(w, r)
		return w
	}
	for path, kind := range map[string]string{
		"":               "text/html; charset=utf-8",
		"limits/":        "text/html; charset=utf-8",
		"limits/explain": "text/html; charset=utf-8",
		"limits/live.js": "text/javascript; charset=utf-8",
		"explain.js":     "text/javascript; charset=utf-8",
		"style.css":      "text/css; charset=utf-8",
		"icon.svg":       "image/svg+xml",
	} {
		w := get("GET", path)
		assert.Equal(t, 200, w.Code, path)
		assert.Equal(t, kind, w.Header().Get("Content-Type"), path)
		assert.Equal(t, policy, w.Header().Get("Content-Security-Policy"), path)
		assert.Equal(t, "nosniff", w.Header().Get("X-Content-Type-Options"))
		assert.Equal(t, "no-referrer", w.Header().Get("Referrer-Policy"))
		assert.Equal(t, "same-origin", w.Header().Get("Cross-Origin-Resource-Policy"))
		assert.Equal(t, 304, get("GET", path, "If-None-Match", w.Header().Get("ETag")).Code, path)
		assert.Empty(t, get("HEAD", path).Body.String(), path)
		assert.NotContains(t, w.Body.String(), "innerHTML", path)
		assert.NotContains(t, w.Body.String(), "//unpkg", path)
	}
	assert.Contains(t, get("GET", "explain").Body.String(), `<option value="shopify-graphql">Shopify`)
	assert.Equal(t, 404, get("GET", "index.html").Code)
	assert.Equal(t, 404, get("GET", "../doc.go").Code)
	assert.Equal(t, 405, get("POST", "").Code)
	assert.Equal(t, "GET, HEAD", get("POST", "").Header().Get("Allow"))
	assert.Equal(t, "GET, HEAD, POST", get("PUT", "explain").Header().Get("Allow"))
	w := get("HEAD", "events")
	assert.Equal(t, 200, w.Code)
	assert.Equal(t, "text/event-stream", w.Header().Get("Content-Type"))
}

const policy = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; " +
	"base-uri 'none'; form-action 'none'; frame-ancestors 'none'"

func TestPageRedirectsToTheSlash(t *testing.T) {
	for target, location := range map[string]string{
		"/admin/limits": "limits/", "/limits?x=/y": "limits/", "//evil.example": "evil.example/",
	} {
		r, w := httptest.NewRequest("GET", "http://localhost/", nil), httptest.NewRecorder()
		r.URL.Path, r.RequestURI = "", target
		new(live.Page).ServeHTTP(w, r)
		assert.Equal(t, 302, w.Code)
		assert.Equal(t, location, w.Header().Get("Location"))
	}
}

// A hiding is a ResponseWriter without the optional methods of the one it wraps.
type hiding struct{ http.ResponseWriter }

func TestWriterWithoutFlushIsRefused(t *testing.T) {
	w := httptest.NewRecorder()
	new(live.Page).ServeHTTP(hiding{w}, httptest.NewRequest("GET", "http://localhost/events", nil))
	assert.Equal(t, 500, w.Code)
	assert.Contains(t, w.Body.String(), "Flush")
}
