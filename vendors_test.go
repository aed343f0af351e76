package heed_test

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/heedhttp/heed"
	"github.com/heedhttp/heed/contract"
	"github.com/heedhttp/heed/pace"
	"github.com/heedhttp/heed/ratelimit"
	"github.com/heedhttp/heed/testserver"
)

// vendorPacers are the pacers that each test runs with.
var vendorPacers = map[string]func() heed.Pacer{
	"without a pacer": func() heed.Pacer { return nil },
	"Advertised":      func() heed.Pacer { return &pace.Advertised{} },
}

// vendorBoards are the ways in which a fleet's Transports share cool-downs: a Board for each
// Transport.
var vendorBoards = map[string]func(fleet int) []heed.Board{
	"one process": func(int) []heed.Board { return make([]heed.Board, 1) },
	"a fleet with one LocalBoard": func(fleet int) (boards []heed.Board) {
		shared := &heed.LocalBoard{}
		for range fleet {
			boards = append(boards, shared)
		}
		return boards
	},
	"a fleet with a Board elsewhere": func(fleet int) (boards []heed.Board) {
		shared := &sharedBoard{}
		for range fleet {
			boards = append(boards, shared)
		}
		return boards
	},
}

const (
	vendorWorkers = 50
	vendorTook    = 20 * time.Millisecond // how long the handler takes
)

// A vendorScenario is a stand-in of a vendor with one limit, a request that counts against it, and
// others that have their own limits.
type vendorScenario struct {
	vendor          func(testing.TB) *testserver.Vendor
	limit           string // its name
	quota           int
	window          time.Duration
	line            string   // a request that counts against limit: method and URL
	others          []string // requests that do not
	otherCredential string   // of others, if it is not the same
	profiles        bool     // a refusal is no 429
	refill          bool     // units come back one by one
}

func vendorLimit(name string, quota int, window time.Duration, routes ...string) testserver.VendorLimit {
	return testserver.VendorLimit{Name: name, Quota: quota, Window: window, Routes: routes}
}

var vendorScenarios = map[string]vendorScenario{
	"GitHub's search": {
		vendor: func(t testing.TB) *testserver.Vendor {
			return testserver.GitHub(t, vendorLimit("secondary", 1e9, time.Minute))
		},
		limit: "search", quota: 30, window: time.Minute, profiles: true,
		line: "GET http://api.github.com/search/issues",
		others: []string{"GET http://api.github.com/repos/o/r/issues/7", "GET http://api.github.com/search/code",
			"POST http://api.github.com/graphql"},
	},
	"GitHub's core": {
		vendor: func(t testing.TB) *testserver.Vendor {
			return testserver.GitHub(t, vendorLimit("core", 60, 10*time.Minute))
		},
		limit: "core", quota: 60, window: 10 * time.Minute, profiles: true,
		line: "GET http://api.github.com/repos/o/r/issues/7", others: []string{"GET http://api.github.com/search/issues"},
	},
	"a method of Slack": {
		vendor: func(t testing.TB) *testserver.Vendor {
			return testserver.Slack(t, vendorLimit("users.list", 20, time.Minute))
		},
		limit: "users.list", quota: 20, window: time.Minute,
		line:   "GET http://slack.com/api/users.list",
		others: []string{"GET http://slack.com/api/users.info", "POST http://slack.com/api/reactions.add"},
	},
	"a bucket of Discord": {
		vendor: func(t testing.TB) *testserver.Vendor {
			return testserver.Discord(t, vendorLimit("abcd", 10, 5*time.Second, "/api/v10/channels/{c}/messages"),
				vendorLimit("ef01", 50, 5*time.Second, "/api/v10/channels/{c}/pins"))
		},
		limit: "abcd", quota: 10, window: 5 * time.Second,
		line: "POST http://discord.com/api/v10/channels/7/messages",
		others: []string{"POST http://discord.com/api/v10/channels/8/messages",
			"GET http://discord.com/api/v10/channels/7/pins"},
	},
	"an endpoint of Okta": {
		vendor: func(t testing.TB) *testserver.Vendor {
			return testserver.Okta(t, vendorLimit("GET /api/v1/users/*", 60, time.Minute))
		},
		limit: "GET /api/v1/users/*", quota: 60, window: time.Minute,
		line:   "GET http://acme.okta.com/api/v1/users/00u1",
		others: []string{"GET http://acme.okta.com/api/v1/users", "PUT http://acme.okta.com/api/v1/users/00u1"},
	},
	"OpenAI's requests": {
		vendor: func(t testing.TB) *testserver.Vendor {
			return testserver.OpenAI(t, vendorLimit("requests", 60, time.Minute))
		},
		limit: "requests", quota: 60, window: time.Minute, refill: true,
		line: "POST http://api.openai.com/v1/responses", others: []string{"POST http://api.openai.com/v1/responses"},
		otherCredential: "other",
	},
}

// A fleet sends requests to a stand-in, through several Transports in turns.
type fleet struct {
	srv        *testserver.Server
	vendor     *testserver.Vendor
	transports []*heed.Transport
	start      time.Time
	boardDelay time.Duration // how late other Transports learn of a cool-down
	paced      bool          // the Transports have a Pacer

	mu    sync.Mutex
	calls map[string]*calls // by line
}

// calls counts the outcomes for one line.
type calls struct {
	done, lost int
	slowest    time.Duration
}

func (s vendorScenario) fleet(t *testing.T, boards func(int) []heed.Board, pacer func() heed.Pacer) *fleet {
	f := &fleet{vendor: s.vendor(t), calls: map[string]*calls{}, start: time.Now(), paced: pacer() != nil}
	f.srv = testserver.NewLimited(t, func(http.Handler) http.Handler {
		return f.vendor.Wrap(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			time.Sleep(vendorTook)
			_, _ = io.WriteString(w, "{}")
		}))
	})
	for _, board := range boards(5) {
		if _, far := board.(*sharedBoard); far {
			f.boardDelay = 10 * time.Millisecond // how often waiters read the Board
		}
		tr := &heed.Transport{Base: f.srv.Transport(), Board: board, Pacer: pacer()}
		tr.Retry = heed.RetryPolicy{MaxWait: time.Hour, MaxElapsed: 24 * time.Hour}
		if s.profiles {
			tr.Retry.Profiles = ratelimit.Vendors()
		}
		if s.refill {
			tr.Retry.MaxAttempts = 20 // no field says at which rate units come back
		}
		f.transports = append(f.transports, tr)
	}
	return f
}

// call makes the nth call.
func (f *fleet) call(t *testing.T, n int, line, credential string) {
	method, url, _ := strings.Cut(line, " ")
	req, err := http.NewRequestWithContext(t.Context(), method, url, nil)
	require.NoError(t, err)
	req.Header.Set("Authorization", "Bearer "+credential)
	start := time.Now()
	resp, err := f.transports[n%len(f.transports)].RoundTrip(req)
	good := err == nil && resp.StatusCode == 200
	if err == nil {
		_, err = io.Copy(io.Discard, resp.Body)
		assert.NoError(t, err)
		resp.Body.Close()
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	c := f.calls[line+credential]
	if c == nil {
		c = &calls{}
		f.calls[line+credential] = c
	}
	c.slowest = max(c.slowest, time.Since(start))
	if good {
		c.done++
	} else {
		c.lost++
	}
}

// every has fifty workers make n calls of a line, the first one after some time, then one per
// interval.
func (f *fleet) every(t *testing.T, all *sync.WaitGroup, n int, after, interval time.Duration, line,
	credential string) {
	for w := range vendorWorkers {
		all.Go(func() {
			for i := w; i < n; i += vendorWorkers {
				time.Sleep(time.Until(f.start.Add(after + time.Duration(i)*interval)))
				f.call(t, i, line, credential)
			}
		})
	}
}

// assertNoneEarly fails the test if a request arrives before the wait of an earlier refusal is
// over. name returns the limit that a request counts against, or "" to ignore it.
func (f *fleet) assertNoneEarly(t *testing.T, name func(contract.Exchange) string) {
	type closure struct{ since, until time.Time }
	closures := map[string][]closure{}
	profiles := ratelimit.Vendors()
	log := f.srv.Log()
	for _, e := range log {
		host := strings.Split(e.URL, "/")[2]
		answer := ratelimit.For(host, profiles).Judge(e.Status, e.ResponseHeader, e.ResponseBody, e.Answered)
		if answer.Meaning == ratelimit.Limited && answer.Known && name(e) != "" {
			closures[name(e)] = append(closures[name(e)], closure{e.Answered.Add(f.boardDelay), e.Answered.Add(answer.Wait)})
		}
	}
	for _, e := range log {
		for _, c := range closures[name(e)] {
			if e.Arrived.After(c.since) && e.Arrived.Before(c.until) {
				t.Errorf("%s %s arrives at %v, %v too early", e.Method, e.URL, e.Arrived.Sub(f.start), c.until.Sub(e.Arrived))
				return
			}
		}
	}
}

// eachVendor runs a test for each scenario, pacer and board.
func eachVendor(t *testing.T, test func(t *testing.T, s vendorScenario, f *fleet)) {
	for name, s := range vendorScenarios {
		for pacerName, pacer := range vendorPacers {
			for boardName, boards := range vendorBoards {
				t.Run(fmt.Sprintf("%s/%s/%s", name, pacerName, boardName), func(t *testing.T) {
					synctest.Test(t, func(t *testing.T) { test(t, s, s.fleet(t, boards, pacer)) })
				})
			}
		}
	}
}

func TestBelowAVendorsLimitsNoRequestWaits(t *testing.T) {
	eachVendor(t, func(t *testing.T, s vendorScenario, f *fleet) {
		var all sync.WaitGroup
		n := 2 * s.quota
		f.every(t, &all, n, 0, 2*s.window/time.Duration(s.quota), s.line, "a")
		all.Wait()
		assert.Equal(t, &calls{done: n, slowest: vendorTook}, f.calls[s.line+"a"])
		assert.Equal(t, testserver.VendorCount{Admitted: n}, f.vendor.Counts()[s.limit])
	})
}

func TestAtAVendorsLimitsNoRequestWaits(t *testing.T) {
	eachVendor(t, func(t *testing.T, s vendorScenario, f *fleet) {
		var all sync.WaitGroup
		n := 3 * s.quota
		f.every(t, &all, n, 0, s.window/time.Duration(s.quota), s.line, "a")
		all.Wait()
		// A Pacer spreads what is left, and delays others by at most a second until the first
		// answer of a new window.
		f.assertDone(t, n, s.line+"a", max(3*s.window/time.Duration(s.quota), 1100*time.Millisecond))
		assert.Equal(t, testserver.VendorCount{Admitted: n}, f.vendor.Counts()[s.limit])
	})
}

// assertDone fails the test unless all n calls were answered, at once or, with a Pacer, a little
// later.
func (f *fleet) assertDone(t *testing.T, n int, which string, later time.Duration) {
	t.Helper()
	c := f.calls[which]
	assert.Equal(t, n, c.done, which)
	assert.Zero(t, c.lost, which)
	if f.paced {
		assert.LessOrEqual(t, c.slowest, vendorTook+later, which)
	} else {
		assert.Equal(t, vendorTook, c.slowest, which)
	}
}

// The fleet sends twice what a limit admits, and the same customer's other requests below their
// limits, which must not be slowed.
func TestBeyondAVendorsLimitNoCallIsLost(t *testing.T) {
	eachVendor(t, func(t *testing.T, s vendorScenario, f *fleet) {
		var all sync.WaitGroup
		n := 4 * s.quota
		f.every(t, &all, n, 0, s.window/time.Duration(2*s.quota), s.line, "a")
		credential := "a"
		if s.otherCredential != "" {
			credential = s.otherCredential
		}
		for _, line := range s.others {
			f.every(t, &all, s.quota/4, 0, 8*s.window/time.Duration(s.quota), line, credential)
		}
		all.Wait()
		assert.Equal(t, n, f.calls[s.line+"a"].done)
		assert.Zero(t, f.calls[s.line+"a"].lost)
		count := f.vendor.Counts()[s.limit]
		t.Logf("%+v in %v", count, time.Since(f.start))
		if s.refill {
			assert.LessOrEqual(t, count.Refused, count.Admitted)
		} else {
			assert.LessOrEqual(t, count.Refused, count.Admitted/2)
		}
		for _, line := range s.others {
			f.assertDone(t, s.quota/4, line+credential, vendorTook)
		}
		f.assertNoneEarly(t, func(e contract.Exchange) string {
			if e.Method+" "+e.URL == s.line && e.Header.Get("Authorization") == "Bearer a" {
				return s.line
			}
			return ""
		})
	})
}

// GitHub's secondary limit and Discord's global one count all requests of a customer.
func TestAnAccountWideLimitClosesAllScopes(t *testing.T) {
	for name, s := range map[string]vendorScenario{
		"GitHub's secondary limit": {
			vendor: func(t testing.TB) *testserver.Vendor {
				return testserver.GitHub(t, vendorLimit("secondary", 60, time.Minute))
			},
			limit: "secondary", quota: 60, window: time.Minute, profiles: true,
			line:   "GET http://api.github.com/repos/o/r/issues/7",
			others: []string{"GET http://api.github.com/search/issues", "POST http://api.github.com/graphql"},
		},
		"Discord's global limit": {
			vendor: func(t testing.TB) *testserver.Vendor {
				return testserver.Discord(t, vendorLimit("global", 30, 10*time.Second), vendorLimit("", 1000, time.Second))
			},
			limit: "global", quota: 30, window: 10 * time.Second,
			line:   "POST http://discord.com/api/v10/channels/7/messages",
			others: []string{"GET http://discord.com/api/v10/channels/8/pins", "GET http://discord.com/api/v10/gateway"},
		},
	} {
		for boardName, boards := range vendorBoards {
			for pacerName, pacer := range vendorPacers {
				t.Run(name+"/"+boardName+"/"+pacerName, func(t *testing.T) {
					synctest.Test(t, func(t *testing.T) {
						f := s.fleet(t, boards, pacer)
						var all sync.WaitGroup
						interval := s.window / time.Duration(s.quota)
						for i, line := range append(s.others, s.line) { // half more than the limit
							f.every(t, &all, s.quota, time.Duration(i)*interval/2, 2*interval, line, "a")
						}
						f.every(t, &all, s.quota/2, 0, 2*interval, s.line, "b")
						all.Wait()
						for _, line := range append(s.others, s.line) {
							c := f.calls[line+"a"]
							assert.Equal(t, s.quota, c.done, line)
							assert.Greater(t, c.slowest, s.window/10, "%s waits with the others", line)
						}
						assert.Equal(t, &calls{done: s.quota / 2, slowest: vendorTook}, f.calls[s.line+"b"], "another customer")
						count := f.vendor.Counts()[s.limit]
						t.Logf("%+v in %v", count, time.Since(f.start))
						assert.Positive(t, count.Refused)
						assert.LessOrEqual(t, count.Refused, count.Admitted/2)
						f.assertNoneEarly(t, func(e contract.Exchange) string { return e.Header.Get("Authorization") })
					})
				})
			}
		}
	}
}

// GitHub's refusals under its secondary limit and its limit for searches.
var (
	secondaryRefusal = reply{status: 403, header: []string{"Retry-After", "3600", "X-RateLimit-Remaining", "12"}}
	searchRefusal    = reply{status: 403,
		header: []string{"Retry-After", "3600", "X-RateLimit-Remaining", "0", "X-RateLimit-Resource", "search"}}
)

// github is a policy that knows GitHub and does not retry.
func github() heed.RetryPolicy {
	return heed.RetryPolicy{MaxAttempts: 1, Profiles: ratelimit.Vendors()}
}

// vendorRequest returns the request of a line such as "GET http://example.com/path", with a
// credential.
func vendorRequest(t *testing.T, line string) *http.Request {
	method, url, _ := strings.Cut(line, " ")
	req, err := http.NewRequestWithContext(t.Context(), method, url, nil)
	require.NoError(t, err)
	req.Header.Set("Authorization", "Bearer a")
	return req
}

// sentAtOnce reports whether a request is sent without a wait.
func sentAtOnce(t *testing.T, rt http.RoundTripper, line string) bool {
	start := time.Now()
	resp, err := rt.RoundTrip(vendorRequest(t, line))
	assert.Equal(t, start, time.Now())
	if err != nil {
		assert.ErrorAs(t, err, new(*heed.OverdueError))
		return false
	}
	resp.Body.Close()
	return true
}

const (
	core       = "GET http://api.github.com/user"
	search     = "GET http://api.github.com/search/issues"
	codeSearch = "GET http://api.github.com/search/code"
)

// probed is github without the knowledge that its hints are exact, which need no probes.
func probed() heed.RetryPolicy {
	vendor := ratelimit.Vendor("github")
	vendor.Exact = false
	retry := github()
	retry.Profiles = []*ratelimit.Profile{vendor}
	return retry
}

// A probe of any scope serves all scopes and processes.
func TestAGoodAnswerToAProbeOpensAllScopes(t *testing.T) {
	for name, boards := range vendorBoards {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newScript(secondaryRefusal, secondaryRefusal, ok)
				var fleet []*heed.Transport
				for _, board := range boards(3) {
					fleet = append(fleet, &heed.Transport{Base: s, Board: board, Retry: probed()})
				}
				assert.Equal(t, 403, status(t, fleet[0], vendorRequest(t, search)))
				round := func() (sent int) {
					for _, tr := range fleet {
						for _, line := range []string{core, search, codeSearch} {
							if sentAtOnce(t, tr, line) {
								sent++
							}
						}
					}
					return sent
				}
				assert.Zero(t, round())
				time.Sleep(time.Minute - 1)
				assert.Zero(t, round())
				time.Sleep(time.Nanosecond)
				assert.Equal(t, 1, round(), "a probe, which is refused")
				assert.Zero(t, round())
				time.Sleep(time.Minute)
				assert.Equal(t, 3*len(fleet), round(), "the probe opens all scopes")
				assert.Equal(t, 2+3*len(fleet), s.count())
			})
		})
	}
}

func TestARefusedScopeStaysClosedWhenOthersOpen(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tr := &heed.Transport{Base: newScript(searchRefusal, secondaryRefusal, ok), Retry: probed()}
		assert.True(t, sentAtOnce(t, tr, search))
		assert.False(t, sentAtOnce(t, tr, search))
		assert.True(t, sentAtOnce(t, tr, core), "it meets the secondary limit")
		assert.False(t, sentAtOnce(t, tr, core))
		time.Sleep(time.Minute)
		assert.True(t, sentAtOnce(t, tr, core), "a probe of the secondary limit, which is over")
		assert.True(t, sentAtOnce(t, tr, codeSearch))
		assert.False(t, sentAtOnce(t, tr, search), "of which nothing is left, so it is not probed")
	})
	const channel, user = "GET https://discord.com/api/v10/channels/1/messages", "GET https://discord.com/api/v10/users/@me"
	own := throttle("3600")
	global := reply{status: 429, header: []string{"Retry-After", "3600", "X-RateLimit-Global", "true"}}
	synctest.Test(t, func(t *testing.T) {
		tr := &heed.Transport{Base: newScript(own, global, own, ok), Retry: github()}
		assert.True(t, sentAtOnce(t, tr, channel))
		assert.True(t, sentAtOnce(t, tr, user), "it meets the global limit")
		time.Sleep(time.Minute)
		assert.True(t, sentAtOnce(t, tr, channel), "a probe of both, whose answer concerns the channel only")
		assert.False(t, sentAtOnce(t, tr, channel))
		assert.False(t, sentAtOnce(t, tr, user))
		time.Sleep(time.Minute)
		assert.True(t, sentAtOnce(t, tr, user), "a probe, which opens the account")
		assert.True(t, sentAtOnce(t, tr, user))
	})
}

// It waits for the key that is closed for longer, within its MaxWait.
func TestARequestWaitsForItsScopeAndItsAccount(t *testing.T) {
	closed := func(seconds string, remaining string) reply {
		return reply{status: 403, header: []string{"Retry-After", seconds, "X-RateLimit-Remaining", remaining}}
	}
	for name, replies := range map[string][]reply{
		"first for its scope":     {closed("50", "0"), closed("20", "5"), ok},
		"first for all requests":  {closed("20", "0"), closed("50", "5"), ok},
		"for both, equally long":  {closed("50", "0"), closed("50", "5"), ok},
		"longer than it may wait": {closed("61", "0"), closed("10", "5"), ok},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				board := &heed.LocalBoard{}
				once := &heed.Transport{Base: newScript(replies...), Board: board, Retry: github()}
				assert.Equal(t, 403, status(t, once, vendorRequest(t, search)))
				assert.Equal(t, 403, status(t, once, vendorRequest(t, core)))
				tr := &heed.Transport{Base: once.Base, Board: board}
				if name == "longer than it may wait" {
					assert.False(t, sentAtOnce(t, tr, search))
					return
				}
				start := time.Now()
				assert.Equal(t, 200, status(t, tr, vendorRequest(t, search)))
				between(t, 50*time.Second, time.Since(start), 60*time.Second)
				start = time.Now()
				assert.Equal(t, 200, status(t, tr, vendorRequest(t, core)))
				assert.Zero(t, time.Since(start))
			})
		})
	}
}

// The other key closes while the request waits for the first.
func TestAKeyThatClosesDuringAWaitIsObeyed(t *testing.T) {
	patient := heed.RetryPolicy{MaxWait: time.Hour, MaxElapsed: time.Hour, Profiles: ratelimit.Vendors()}
	post := func(t *testing.T, board heed.Board, after time.Duration, key string, wait time.Duration) {
		time.AfterFunc(after, func() { assert.NoError(t, board.Post(t.Context(), key, wait, 0)) })
	}
	synctest.Test(t, func(t *testing.T) {
		s, board := newScript(ok), &heed.LocalBoard{}
		tr := &heed.Transport{Base: s, Board: board, Retry: patient}
		all := heed.ByCredential(vendorRequest(t, search))
		require.NoError(t, board.Post(t.Context(), all, 10*time.Second, 0))
		post(t, board, 5*time.Second, all+" search", 30*time.Second)
		post(t, board, 20*time.Second, all, 60*time.Second)
		assert.Equal(t, 200, status(t, tr, vendorRequest(t, search)))
		between(t, 80*time.Second, s.times()[0], 90*time.Second)
	})
	// After its wait for the scope, the request is refused because of the account.
	synctest.Test(t, func(t *testing.T) {
		s, board := newScript(reply{status: 403, header: []string{"Retry-After", "10"}}, ok), &heed.LocalBoard{}
		tr := &heed.Transport{Base: s, Board: board, Retry: patient}
		all := heed.ByCredential(vendorRequest(t, search))
		require.NoError(t, board.Post(t.Context(), all+" search", 10*time.Second, 0))
		post(t, board, 15*time.Second, all+" search", 45*time.Second)
		assert.Equal(t, 200, status(t, tr, vendorRequest(t, search)))
		require.Len(t, s.times(), 2)
		between(t, 10*time.Second, s.times()[0], 13*time.Second)
		between(t, 60*time.Second, s.times()[1], 74*time.Second)
	})
}

// Discord's responses say which routes share a bucket; each channel has its own.
func TestRoutesOfOneBucketShareACoolDown(t *testing.T) {
	const (
		pin     = "PUT http://discord.com/api/v10/channels/7/pins/8"
		unpin   = "DELETE http://discord.com/api/v10/channels/7/pins/9"
		another = "PUT http://discord.com/api/v10/channels/8/pins/8"
		message = "POST http://discord.com/api/v10/channels/7/messages"
	)
	named := []string{"X-RateLimit-Bucket", "abcd"}
	refused := reply{status: 429, header: append([]string{"Retry-After", "300", "X-RateLimit-Scope", "user"}, named...)}
	good := reply{status: 200, header: named}
	for name, test := range map[string]struct {
		replies []reply
		before  []string // sent first
		closed  []string
		open    []string
	}{
		"after good answers": {[]reply{good, good, refused, ok}, []string{pin, unpin, pin},
			[]string{pin, unpin}, []string{another, message}},
		"of another channel": {[]reply{good, good, refused, ok},
			[]string{another, strings.Replace(unpin, "7", "9", 1), pin}, []string{pin, unpin}, []string{another, message}},
		"when each was refused": {[]reply{refused, refused, ok}, []string{pin, unpin}, []string{pin, unpin},
			[]string{another, message}},
		"not before the responses say so": {[]reply{refused, ok}, []string{pin}, []string{pin},
			[]string{unpin, another, message}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				tr := &heed.Transport{Base: newScript(test.replies...), Retry: heed.RetryPolicy{MaxAttempts: 1}}
				for _, line := range test.before {
					assert.True(t, sentAtOnce(t, tr, line), line)
				}
				for _, line := range test.closed {
					assert.False(t, sentAtOnce(t, tr, line), line)
				}
				for _, line := range test.open {
					assert.True(t, sentAtOnce(t, tr, line), line)
				}
			})
		})
	}
}

func TestARefusedRequestWaitsForItsNamedBucket(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		named := []string{"X-RateLimit-Bucket", "abcd", "Retry-After", "30"}
		s := newScript(reply{status: 429, header: []string{"Retry-After", "10"}}, reply{status: 429, header: named}, ok)
		board := &heed.LocalBoard{}
		tr := &heed.Transport{Base: s, Board: board}
		const line = "POST http://discord.com/api/v10/channels/7/messages"
		hasty := &heed.Transport{Base: s, Board: board, Retry: heed.RetryPolicy{MaxWait: -1}}
		time.AfterFunc(20*time.Second, func() { assert.False(t, sentAtOnce(t, hasty, line)) })
		assert.Equal(t, 200, status(t, tr, vendorRequest(t, line)))
		require.Len(t, s.times(), 3)
		between(t, 10*time.Second, s.times()[1], 13*time.Second)
		between(t, s.times()[1]+30*time.Second, s.times()[2], s.times()[1]+39*time.Second)
		assert.True(t, sentAtOnce(t, tr, line))
	})
}

func TestScopesAreSeparateOnlyWhereAVendorHasThem(t *testing.T) {
	own := &ratelimit.Profile{Hosts: []string{"api.github.com"},
		Signs: []ratelimit.Sign{{Means: ratelimit.Limited, Status: []int{403}}}}
	spent := reply{status: 429, header: []string{"X-RateLimit-Remaining", "0", "X-RateLimit-Reset", "300"}}
	for name, test := range map[string]struct {
		tr    *heed.Transport
		reply reply
		apart bool // search and core do not share the cool-down
	}{
		"without Profiles, the built-in one's": {&heed.Transport{}, spent, true},
		"without Profiles, a limit of all":     {&heed.Transport{}, throttle("300"), false},
		"with Profiles":                        {&heed.Transport{Retry: github()}, searchRefusal, true},
		"with Profiles, a limit of all":        {&heed.Transport{Retry: github()}, secondaryRefusal, false},
		"with a Profile of one's own, without any": {
			&heed.Transport{Retry: heed.RetryPolicy{Profiles: []*ratelimit.Profile{own}}}, spent, false},
		"with Profiles of other hosts": {
			&heed.Transport{Retry: heed.RetryPolicy{Profiles: []*ratelimit.Profile{ratelimit.Vendor("slack")}}}, spent, true},
		"with a Key": {&heed.Transport{Key: heed.ByCredential, Retry: github()}, searchRefusal, false},
		"with a Key that is empty": {&heed.Transport{Key: func(*http.Request) string { return "" }, Retry: github()},
			secondaryRefusal, true},
		"without a Board": {&heed.Transport{Board: heed.NoBoard, Retry: github()}, secondaryRefusal, true},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				tr := &heed.Transport{Base: newScript(test.reply, ok), Key: test.tr.Key, Board: test.tr.Board,
					Retry: test.tr.Retry}
				tr.Retry.MaxAttempts = 1
				status(t, tr, vendorRequest(t, search))
				assert.Equal(t, test.apart, sentAtOnce(t, tr, core))
			})
		})
	}
}

// The key is in errors and logs.
func TestAKeyNamesTheScopeAndNoSecret(t *testing.T) {
	const webhook = "POST http://discord.com/api/v10/webhooks/7/s3cret-s3cret-s3cret-s3cret-s3cret-"
	for line, want := range map[string]string{
		search:  "http://api.github.com [0-9a-f]{32} search$",
		webhook: `http://discord.com [0-9a-f]{32} POST /api/\*/webhooks/7/#[0-9a-f]{1,16}$`,
	} {
		synctest.Test(t, func(t *testing.T) {
			tr := &heed.Transport{Base: newScript(reply{status: 429,
				header: []string{"X-RateLimit-Remaining", "0", "X-RateLimit-Reset", "300"}}, ok)}
			tr.Retry.MaxAttempts = 1
			assert.Equal(t, 429, status(t, tr, vendorRequest(t, line)))
			_, err := tr.RoundTrip(vendorRequest(t, line))
			var overdue *heed.OverdueError
			require.ErrorAs(t, err, &overdue)
			assert.Regexp(t, want, overdue.Key)
			assert.NotContains(t, err.Error(), "s3cret")
		})
	}
}

// Sentry has one URL for all, and limits what the bodies contain.
func TestALimitOfOneRequestDelaysNoOther(t *testing.T) {
	for name, profiles := range map[string][]*ratelimit.Profile{"the zero Transport": nil,
		"with Profiles": ratelimit.Vendors()} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				srv := testserver.New(t, testserver.Step{
					Status: 429, RetryAfter: 50 * time.Second,
					Header: http.Header{"X-Sentry-Rate-Limits": {"50:transaction:organization"}},
				})
				client := &http.Client{Transport: &heed.Transport{Base: srv.Transport(),
					Retry: heed.RetryPolicy{Profiles: profiles}}}
				start := time.Now()
				var all sync.WaitGroup
				all.Go(func() {
					resp, err := client.Post("http://o1.ingest.sentry.io/api/1/envelope/", "", strings.NewReader("a transaction"))
					require.NoError(t, err)
					resp.Body.Close()
					assert.GreaterOrEqual(t, time.Since(start), 50*time.Second)
				})
				synctest.Wait()
				resp, err := client.Post("http://o1.ingest.sentry.io/api/1/envelope/", "", strings.NewReader("an error"))
				require.NoError(t, err)
				resp.Body.Close()
				assert.Zero(t, time.Since(start))
				all.Wait()
				assert.Len(t, srv.Log(), 3)
			})
		})
	}
}

// Fifty workers use tokens as well as requests, and say how many.
func TestOpenAITokensAreSpentAsTheyComeBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		vendor := testserver.OpenAI(t, vendorLimit("tokens", 10_000, time.Minute))
		srv := testserver.NewLimited(t, func(http.Handler) http.Handler {
			return vendor.Wrap(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				time.Sleep(vendorTook)
				_, _ = io.WriteString(w, "{}")
			}))
		})
		client := &http.Client{Transport: &heed.Transport{
			Base: srv.Transport(), Pacer: &pace.Advertised{},
			Retry: heed.RetryPolicy{MaxWait: time.Hour, MaxElapsed: -1, Profiles: ratelimit.Vendors()},
		}}
		start := time.Now()
		var all sync.WaitGroup
		for range 50 {
			all.Go(func() {
				ctx := pace.WithCost(t.Context(), "tokens", 1500)
				req, err := http.NewRequestWithContext(ctx, "POST", "http://api.openai.com/v1/responses",
					strings.NewReader(`{"max_tokens": 1500}`))
				require.NoError(t, err)
				resp, err := client.Do(req)
				require.NoError(t, err)
				assert.Equal(t, 200, resp.StatusCode)
				resp.Body.Close()
			})
		}
		all.Wait()
		count := vendor.Counts()["tokens"]
		t.Logf("%+v in %v", count, time.Since(start))
		assert.LessOrEqual(t, count.Refused, 50, "the first fifty go before any limit is known")
		assert.LessOrEqual(t, time.Since(start), 8*time.Minute,
			"the first tokens are enough for six, and each other call takes nine seconds")
	})
}

// The wait for one key counts against the deadline once, not again for the other key.
func TestADeadlineAppliesToBothKeysTogether(t *testing.T) {
	for _, deadline := range []time.Duration{65 * time.Second, 75 * time.Second} {
		synctest.Test(t, func(t *testing.T) {
			board := &heed.LocalBoard{}
			closed := func(seconds, remaining string) reply {
				return reply{status: 403, header: []string{"Retry-After", seconds, "X-RateLimit-Remaining", remaining}}
			}
			once := &heed.Transport{Base: newScript(closed("40", "0"), closed("39", "5"), ok), Board: board, Retry: github()}
			assert.Equal(t, 403, status(t, once, vendorRequest(t, search)))
			assert.Equal(t, 403, status(t, once, vendorRequest(t, core)))
			ctx, cancel := context.WithTimeout(t.Context(), deadline)
			defer cancel()
			tr := &heed.Transport{Base: once.Base, Board: board}
			var all sync.WaitGroup
			for range 5 {
				all.Go(func() { assert.Equal(t, 200, status(t, tr, vendorRequest(t, search).WithContext(ctx))) })
			}
			all.Wait()
		})
	}
}
