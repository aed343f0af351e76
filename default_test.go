package heed_test

import (
	"context"
	"net/http"
	"net/http/httptest"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/heedhttp/heed"
)

// setDefault replaces http.DefaultTransport until the end of the test.
func setDefault(t *testing.T, rt http.RoundTripper) {
	before := http.DefaultTransport
	http.DefaultTransport = rt
	t.Cleanup(func() { http.DefaultTransport = before })
}

// hiding is a RoundTripper that does not show what is inside. It copies requests, as otelhttp does.
type hiding struct {
	inside http.RoundTripper
	passed *atomic.Int64
}

func (h hiding) RoundTrip(req *http.Request) (*http.Response, error) {
	h.passed.Add(1)
	return h.inside.RoundTrip(req.Clone(context.WithValue(req.Context(), hiding{}, "its own")))
}

func (h hiding) CloseIdleConnections() {
	h.passed.Add(1)
	if c, ok := h.inside.(interface{ CloseIdleConnections() }); ok {
		c.CloseIdleConnections()
	}
}

// counting returns a server that counts what arrives, and answers with status.
func counting(t *testing.T, status int) (url string, arrived *atomic.Int64) {
	arrived = new(atomic.Int64)
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		arrived.Add(1)
		w.WriteHeader(status)
	}))
	t.Cleanup(srv.Close)
	return srv.URL, arrived
}

var impatient = heed.RetryPolicy{MaxOutage: -1, Backoff: func(heed.Attempt) time.Duration { return 0 }}

func TestAZeroTransportFollowsTheDefaultTransport(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var tr heed.Transport
		for _, status := range []int{299, 298} {
			var got *http.Request
			setDefault(t, roundTripFunc(func(req *http.Request) (*http.Response, error) {
				got = req
				return response(req, reply{status: status}), nil
			}))
			req := get(t.Context())
			resp := roundTrip(t, &tr, req)
			assert.Equal(t, status, resp.StatusCode)
			assert.Same(t, req, resp.Request, "the caller does not see the copy")
			assert.Equal(t, req.URL, got.URL)
		}
		s := newScript(unavailable, ok)
		var counts []int
		setDefault(t, roundTripFunc(func(req *http.Request) (*http.Response, error) {
			counts = append(counts, heed.ResendCount(req.Context()))
			return s.RoundTrip(req)
		}))
		assert.Equal(t, 200, status(t, &tr, get(t.Context())))
		assert.Equal(t, []int{0, 1}, counts)
		setDefault(t, newScript(reply{status: 297}))
		tr.Base = newScript(ok)
		assert.Equal(t, 200, status(t, &tr, get(t.Context())), "a Base is a Base")
	})
}

func TestNoWayIntoTheDefaultTransportMultipliesAttempts(t *testing.T) {
	around := func(rt http.RoundTripper) http.RoundTripper { return hiding{rt, new(atomic.Int64)} }
	function := func(rt http.RoundTripper) http.RoundTripper {
		return roundTripFunc(func(req *http.Request) (*http.Response, error) { return rt.RoundTrip(req) })
	}
	original := http.DefaultTransport
	for name, makeDefault := range map[string]func(a, b *heed.Transport) http.RoundTripper{
		"the one of the start":      func(_, _ *heed.Transport) http.RoundTripper { return original },
		"none":                      func(_, _ *heed.Transport) http.RoundTripper { return nil },
		"itself":                    func(a, _ *heed.Transport) http.RoundTripper { return a },
		"another":                   func(_, b *heed.Transport) http.RoundTripper { return b },
		"in a type that hides it":   func(a, _ *heed.Transport) http.RoundTripper { return around(a) },
		"in two":                    func(a, _ *heed.Transport) http.RoundTripper { return around(function(a)) },
		"in a function":             func(a, _ *heed.Transport) http.RoundTripper { return function(a) },
		"another one, in a type":    func(_, b *heed.Transport) http.RoundTripper { return around(b) },
		"the Base of another":       func(a, _ *heed.Transport) http.RoundTripper { return &heed.Transport{Base: around(a)} },
		"within one with a Base":    func(a, b *heed.Transport) http.RoundTripper { b.Base = a; return around(b) },
		"one after the other":       func(a, b *heed.Transport) http.RoundTripper { return inTurn(around(a), function(b)) },
		"one within the other":      func(a, b *heed.Transport) http.RoundTripper { b.Base = around(a); return around(b) },
		"that one within the other": func(a, b *heed.Transport) http.RoundTripper { a.Base = original; b.Base = around(a); return b },
	} {
		t.Run(name, func(t *testing.T) {
			for code, want := range map[int]int64{200: 1, 404: 1, 503: 4} {
				url, arrived := counting(t, code)
				a, b := &heed.Transport{Retry: impatient}, &heed.Transport{Retry: impatient}
				a.Budget, b.Budget = heed.Unlimited, heed.Unlimited
				setDefault(t, makeDefault(a, b))
				clients := []*http.Client{{Transport: a}, {Transport: b}}
				if http.DefaultTransport != nil && name != "the one of the start" {
					clients = append(clients, &http.Client{})
				}
				for i, client := range clients {
					arrived.Store(0)
					req, err := http.NewRequestWithContext(t.Context(), "GET", url, nil)
					require.NoError(t, err)
					resp, err := client.Do(req)
					require.NoError(t, err)
					resp.Body.Close()
					assert.Equal(t, code, resp.StatusCode)
					assert.Equal(t, want, arrived.Load(), "client %d", i)
					client.CloseIdleConnections()
				}
				_, err := a.RoundTrip(&http.Request{})
				assert.Error(t, err, "a request without a URL")
			}
		})
	}
}

// inTurn uses one RoundTripper after the other.
func inTurn(rts ...http.RoundTripper) http.RoundTripper {
	var n atomic.Int64
	return roundTripFunc(func(req *http.Request) (*http.Response, error) {
		return rts[int(n.Add(1))%len(rts)].RoundTrip(req)
	})
}

// A deposit, a hook or a wait for each pass would count an attempt twice.
func TestAnAttemptThatComesBackIsOnlySent(t *testing.T) {
	url, arrived := counting(t, 503)
	budget, decided := &countingBudget{}, 0
	tr := &heed.Transport{Retry: impatient, Budget: budget,
		Trace: &heed.Trace{Decided: func(heed.Attempt, heed.Verdict, time.Duration) { decided++ }}}
	wrapper := hiding{tr, new(atomic.Int64)}
	setDefault(t, wrapper)
	resp, err := http.Get(url)
	require.NoError(t, err)
	resp.Body.Close()
	assert.EqualValues(t, 4, arrived.Load())
	assert.Equal(t, 4, decided)
	assert.Equal(t, []int{1, 3, 0}, []int{budget.deposits, budget.withdrawals, budget.refunds})
	assert.EqualValues(t, 5, wrapper.passed.Load(), "the call, and each attempt")
	tr.CloseIdleConnections()
	assert.EqualValues(t, 6, wrapper.passed.Load())
}

// The mark of one Transport means nothing to another one with the same context.
func TestAMarkedRequestIsNewToAnotherTransport(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newScript(unavailable, ok)
		other := &heed.Transport{Base: s}
		var tr heed.Transport
		setDefault(t, roundTripFunc(func(req *http.Request) (*http.Response, error) { return other.RoundTrip(req) }))
		assert.Equal(t, 200, status(t, &tr, get(t.Context())))
		assert.Equal(t, 2, s.count(), "the other one retries")
	})
}

func TestTheDefaultTransportIsReplacedUnder64Requests(t *testing.T) {
	url, arrived := counting(t, 503)
	original := http.DefaultTransport
	var tr heed.Transport
	tr.Retry, tr.Budget = impatient, heed.Unlimited
	function := roundTripFunc(func(req *http.Request) (*http.Response, error) { return tr.RoundTrip(req) })
	for name, c := range map[string]struct{ first, next http.RoundTripper }{
		"by itself":                            {original, &tr},
		"by a type that hides it":              {original, hiding{&tr, new(atomic.Int64)}},
		"by a function":                        {original, function},
		"by that of the start":                 {original, original},
		"a function by that of the start":      {function, original},
		"a function by itself":                 {function, &tr},
		"a function by a type that hides it":   {function, hiding{&tr, new(atomic.Int64)}},
		"a type that hides it by a function":   {hiding{&tr, new(atomic.Int64)}, function},
		"a type that hides it by another kind": {hiding{&tr, new(atomic.Int64)}, original.(*http.Transport).Clone()},
	} {
		t.Run(name, func(t *testing.T) {
			arrived.Store(0)
			var inside, calls sync.WaitGroup
			goOn := make(chan struct{})
			inside.Add(64)
			setDefault(t, roundTripFunc(func(req *http.Request) (*http.Response, error) {
				inside.Done()
				<-goOn
				return c.first.RoundTrip(req)
			}))
			for range 64 {
				calls.Go(func() {
					req, err := http.NewRequest("GET", url, nil)
					if !assert.NoError(t, err) {
						return
					}
					resp, err := tr.RoundTrip(req)
					if assert.NoError(t, err) {
						resp.Body.Close()
						assert.Equal(t, 503, resp.StatusCode)
					}
				})
			}
			inside.Wait()
			http.DefaultTransport = c.next
			close(goOn)
			calls.Wait()
			assert.EqualValues(t, 64*4, arrived.Load())
		})
	}
}
