package profiles_test

import (
	"errors"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/heedhttp/heed"
	"github.com/heedhttp/heed/contract"
	"github.com/heedhttp/heed/internal/redistest"
	"github.com/heedhttp/heed/internal/testenv"
	"github.com/heedhttp/heed/serverside"
	"github.com/heedhttp/heed/serverside/profiles"
	"github.com/heedhttp/heed/testserver"
)

// The matrix: each profile, each client, each proxy that changes the response, with a few more
// requests than the limit.

// A job is a number of requests, one after the other.
type job struct {
	profile string
	config  func(profiles.Options) serverside.Config
	what    string
	fields  []string
	n       int
}

// slow are jobs for fake time: some of their waits are minutes.
var slow = []job{
	{"Forge", profiles.Forge, "GET /search", nil, 63},
	{"Forja", profiles.Forja, "GET /x", nil, 103},
	{"Universal", profiles.Universal, "POST /api/account/email", []string{"X-User", "ann"}, 8},
	{"API", profiles.API, "POST /upload", []string{"X-User", "ann"}, 13},
	{"Patterns", profiles.Patterns, "GET /search", []string{"X-User", "ann"}, 61},
}

// short are jobs for real time: with few requests beyond the burst, waits are about a second.
var short = []job{
	{"Forge", profiles.Forge, "GET /api/items", []string{"X-Token", "t"}, 75},
	{"Forja", profiles.Forja, "GET /x", nil, 50},
	{"Universal", profiles.Universal, "POST /api/data", []string{"X-User", "ann"}, 50},
	{"API", profiles.API, "POST /api/items", []string{"X-User", "ann"}, 33},
	{"Patterns", patternsWithTiers, "GET /x", []string{"X-User", "ann", "X-Tier", "pro"}, 100},
}

func patternsWithTiers(o profiles.Options) serverside.Config { return profiles.Patterns(withTiers(o)) }

// A proxy changes responses.
type proxy struct {
	name   string
	change func(http.Header)
}

var proxies = []proxy{
	{"as it is", func(http.Header) {}},
	{"a date", func(h http.Header) {
		if wait, err := time.ParseDuration(h.Get("Retry-After") + "s"); err == nil {
			sent, err := http.ParseTime(h.Get("Date"))
			if err != nil {
				panic(err)
			}
			h.Set("Retry-After", sent.Add(wait).UTC().Format(http.TimeFormat))
		}
	}},
	{"stripped", func(h http.Header) { h.Del("Retry-After") }},
}

// A changing is a transport behind a proxy.
type changing struct {
	http.RoundTripper
	change func(http.Header)
}

func (c changing) RoundTrip(r *http.Request) (*http.Response, error) {
	resp, err := c.RoundTripper.RoundTrip(r)
	if err == nil {
		c.change(resp.Header)
	}
	return resp, err
}

// A result is the outcome of a job.
type result struct {
	job
	client, proxy string
	sent, served  int
	denied        int
	early         int // requests before the denial's Retry-After was over
	took          time.Duration
	breaks        []string // clauses of the contract that the client breaks
	server        []string // those that the server breaks
}

// run sends a job's requests by a client.
func (j job) run(t testing.TB, o profiles.Options, c client, p proxy) result {
	srv := testserver.NewLimited(t, must(t, patient(j.config(o))).Wrap)
	r, base, began := result{job: j, client: c.name, proxy: p.name}, changing{srv.Transport(), p.change}, time.Now()
	over := &http.Client{Transport: base}
	if c.name == "heed" {
		over = patientClient(base)
	}
	for i := range j.n {
		if c.get(over, func() *http.Request { return j.request(t, srv.URL, i) }) {
			r.served++
		}
	}
	r.took = time.Since(began)
	log := srv.Log()
	r.count(log)
	r.breaks, r.server = broken(asSeen(log, p), contract.Client()), broken(log, contract.Server())
	return r
}

func (j job) request(t testing.TB, url string, i int) *http.Request {
	method, path, _ := strings.Cut(j.what, " ")
	r, err := http.NewRequest(method, url+path, nil)
	require.NoError(t, err)
	r.Header.Set("X-Request-Id", fmt.Sprint(i))
	for i := 0; i < len(j.fields); i += 2 {
		r.Header.Set(j.fields[i], j.fields[i+1])
	}
	return r
}

// count counts what the server saw.
func (r *result) count(log []contract.Exchange) {
	var until time.Time
	for _, e := range log {
		r.sent++
		if e.Arrived.Before(until) {
			r.early++
		}
		if e.Status == http.StatusTooManyRequests {
			r.denied++
			wait, _ := time.ParseDuration(e.ResponseHeader.Get("Retry-After") + "s")
			until = e.Answered.Add(wait)
		}
	}
}

// asSeen returns log as the client saw it, behind the proxy.
func asSeen(log []contract.Exchange, p proxy) []contract.Exchange {
	seen := slices.Clone(log)
	for i := range seen {
		seen[i].ResponseHeader = seen[i].ResponseHeader.Clone()
		p.change(seen[i].ResponseHeader)
	}
	return seen
}

// broken returns the clauses that a log breaks, sorted.
func broken(log []contract.Exchange, clauses []contract.Clause) []string {
	ids := map[string]bool{}
	if joined, ok := contract.Check(log, clauses...).(interface{ Unwrap() []error }); ok {
		for _, err := range joined.Unwrap() {
			if breach, ok := errors.AsType[*contract.BreachError](err); ok {
				ids[breach.Clause.ID] = true
			}
		}
	}
	return slices.Sorted(maps.Keys(ids))
}

// measured caches inMemory.
var measured []result

// inMemory runs the matrix in fake time. Only the waits of heed's client, which have jitter, differ
// between runs.
func inMemory(t *testing.T) (results []result) {
	if measured != nil {
		return measured
	}
	defer func() { unloadDice(); measured = results }()
	for _, j := range slow {
		for _, c := range clients {
			loadDice()
			for _, p := range proxies {
				synctest.Test(t, func(t *testing.T) {
					time.Sleep(time.Until(time.Date(2026, 1, 1, 0, 0, 0, 1e8, time.UTC)))
					results = append(results, j.run(t, options(), c, p))
				})
			}
		}
	}
	return results
}

// table formats results.
func table(results []result) string {
	var b strings.Builder
	fmt.Fprintf(&b, "%-10s %-24s %-10s %-9s %6s %6s %6s %6s %10s  %s\n",
		"profile", "request", "client", "wait", "sent", "denied", "early", "served", "took", "clauses broken")
	for _, r := range results {
		fmt.Fprintf(&b, "%-10s %-24s %-10s %-9s %6d %6d %6d %6s %10v  %s\n", r.profile, r.what, r.client, r.proxy,
			r.sent, r.denied, r.early, fmt.Sprintf("%d/%d", r.served, r.n),
			r.took.Round(10*time.Millisecond), strings.Join(r.breaks, " "))
	}
	return b.String()
}

// Whatever a proxy does to Retry-After, heed's client gets all requests served and is never early.
func TestMatrixInFakeTime(t *testing.T) {
	results := inMemory(t)
	t.Log("\n" + table(results))
	require.Len(t, results, len(slow)*len(clients)*len(proxies))
	for _, r := range results {
		who := fmt.Sprintf("%s of %s, Retry-After %s", r.client, r.profile, r.proxy)
		keepsItsWord(t, r, who)
		switch r.client {
		case "heed":
			obeys(t, r, who)
		case "deaf":
			assert.Positive(t, r.early, who)
			assert.Contains(t, r.breaks, "client/attempts", who)
		}
		if r.proxy == "a date" && (r.client == "Forge's" || r.client == "Patterns'") {
			assert.Positive(t, r.early, "%s: a date is no number to it", who)
			assert.Contains(t, r.breaks, "client/wait-date", who)
		}
	}
}

// keepsItsWord checks that the server keeps its clauses. Some profiles break one on purpose: their
// body is not a problem document.
func keepsItsWord(t *testing.T, r result, who string) {
	t.Helper()
	if r.profile == "Forja" || r.profile == "API" {
		assert.Empty(t, r.server, who)
	} else {
		assert.Equal(t, []string{"server/explained"}, r.server, who)
	}
}

// obeys checks heed's client.
func obeys(t *testing.T, r result, who string) {
	t.Helper()
	assert.Equal(t, r.n, r.served, who)
	assert.Zero(t, r.early, who)
	assert.Empty(t, r.breaks, who)
	assert.Positive(t, r.denied, "%s: the limit was met", who)
	assert.Equal(t, r.served+r.denied, r.sent, who)
}

// The matrix in real time with a real Redis, for three clients. HEED_TEST=long runs it for all
// clients, for longer, and without Retry-After.
func TestMatrixWithRedis(t *testing.T) {
	server := redistest.Start(t)
	some, more, told := []client{clients[0], clients[3], clients[4]}, 1, proxies[:2]
	long := testenv.Long()
	if long {
		some, more, told = clients, 10, proxies
	}
	var results []result
	var mu sync.Mutex
	var all sync.WaitGroup
	for i, j := range short {
		j.n += more
		for k, c := range some {
			for l, p := range told {
				_, o := inRedis(t, server.Addr, fmt.Sprintf("%d:%d:%d:", i, k, l))
				all.Go(func() {
					r := j.run(t, o, c, p)
					mu.Lock()
					defer mu.Unlock()
					results = append(results, r)
				})
			}
		}
		if long { // even a slow client meets the limit
			all.Wait()
		}
	}
	all.Wait()
	slices.SortFunc(results, func(a, b result) int {
		return strings.Compare(a.profile+a.client+a.proxy, b.profile+b.client+b.proxy)
	})
	t.Log("\n" + table(results))
	require.Len(t, results, len(short)*len(some)*len(told))
	for _, r := range results {
		who := fmt.Sprintf("%s of %s, Retry-After %s", r.client, r.profile, r.proxy)
		if r.denied > 0 { // on a slow machine the quota may refill fast enough
			keepsItsWord(t, r, who)
		}
		if r.client == "heed" {
			assert.Equal(t, r.n, r.served, who)
			assert.Zero(t, r.early, who)
			assert.Empty(t, r.breaks, who)
		}
		// In fake time this client always comes early; here it may be too slow to.
		if long && r.client == "Patterns'" && r.proxy == "a date" && r.denied > 0 {
			assert.Contains(t, r.breaks, "client/wait-date", who)
		}
	}
}

func TestWorkersKeepTheContractWithEachProfile(t *testing.T) {
	for _, j := range slow {
		synctest.Test(t, func(t *testing.T) {
			time.Sleep(time.Until(time.Date(2026, 1, 1, 0, 0, 0, 1e8, time.UTC)))
			srv := testserver.NewLimited(t, must(t, j.config(options())).Wrap)
			over := patientClient(srv.Transport())
			// Other workers may take the quota each time. One run in a hundred needs five attempts, and each
			// further attempt is ten times rarer. Ten are the most that the contract allows.
			over.Transport.(*heed.Transport).Retry.MaxAttempts = 10
			numbers := make(chan int)
			var served atomic.Int64
			var all sync.WaitGroup
			for range 8 {
				all.Go(func() {
					for n := range numbers {
						if status, _ := send(over, func() *http.Request { return j.request(t, srv.URL, n) }); status == 200 {
							served.Add(1)
						}
					}
				})
			}
			for n := range j.n + 10 {
				numbers <- n
			}
			close(numbers)
			all.Wait()
			assert.EqualValues(t, j.n+10, served.Load(), j.profile)
			assert.Empty(t, broken(srv.Log(), contract.Client()), j.profile)
		})
	}
}
