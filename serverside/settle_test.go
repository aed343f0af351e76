package serverside_test

import (
	"bufio"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/heedhttp/heed/quota"
	"github.com/heedhttp/heed/serverside"
)

// left returns what remains after one more request with cost 1.
func left(t *testing.T, h http.Handler) int64 {
	n, err := strconv.ParseInt(ask(h, "GET", "/").Header().Get("X-RateLimit-Remaining"), 10, 64)
	require.NoError(t, err)
	synctest.Wait()
	return n
}

// settled limits a handler to 100 requests an hour, with Settle. The handler answers with the
// request's header fields.
func settled(t *testing.T, store quota.Store, settle func(serverside.Response) int64) http.Handler {
	return must(t, serverside.Config{Store: store, Audit: silent, Rules: []serverside.Rule{{
		Name: "api", Policies: []quota.Policy{{Quota: 100, Window: time.Hour, Algorithm: quota.FixedWindow}}, Settle: settle,
	}}}).Wrap(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		for name, values := range r.Header {
			w.Header()[name] = values
		}
		w.WriteHeader(200)
	}))
}

func TestCachedResponseIsRefunded(t *testing.T) {
	eachStore(t, func(t *testing.T, store quota.Store) {
		h := settled(t, store, serverside.RefundIf(serverside.FromCache))
		for _, c := range []struct {
			name, value string
			cost        int64
		}{
			{"X-Cache", "HIT",
				0}, {"X-Cache", "Hit from cloudfront", 0}, {"X-Cache", "MISS", 1}, {"Age", "7", 0}, {"Age", "0", 1},
			{"X-Other", "HIT", 1},
			{"Cache-Status", "Origin; fwd=miss, Near; hit",
				0}, {"Cache-Status", "Near; hit; ttl=376", 0}, {"Cache-Status", "Near; hit, Far; fwd=uri-miss", 1},
		} {
			before := left(t, h)
			require.Equal(t, 200, ask(h, "GET", "/", c.name, c.value).Code)
			synctest.Wait()
			assert.Equal(t, before-c.cost-1, left(t, h), "%s: %s", c.name, c.value)
		}
	})
}

func TestSettleCorrectsTheCost(t *testing.T) {
	rows := func(r serverside.Response) int64 {
		if n, err := strconv.ParseInt(r.Header.Get("X-Rows"), 10, 64); err == nil {
			return n
		}
		return r.Cost
	}
	eachStore(t, func(t *testing.T, store quota.Store) {
		h := settled(t, store, rows)
		for _, n := range []int64{1, 10, 0, 60} {
			before := left(t, h)
			ask(h, "GET", "/", "X-Rows", strconv.FormatInt(n, 10))
			synctest.Wait()
			assert.Equal(t, before-n-1, left(t, h))
		}
		ask(h, "GET", "/", "X-Rows", "2000")
		synctest.Wait()
		w := ask(h, "GET", "/")
		assert.Equal(t, 429, w.Code)
		assert.Equal(t, "0", w.Header().Get("X-RateLimit-Remaining"), "a debt is shown as 0")
	})
}

func TestDeniedOrUncountedRequestIsNotSettled(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := &slowMemory{memory: new(quota.Memory)}
		h := settled(t, store, func(serverside.Response) int64 { return -5 }) // a mistake
		for range 200 {
			require.Equal(t, 200, ask(h, "GET", "/").Code)
			synctest.Wait()
		}
		assert.Equal(t, int64(99), left(t, h), "but never more than there is")
		store.down = true
		assert.Equal(t, 200, ask(h, "GET", "/").Code)
		synctest.Wait()
	})
}

func TestFailedSettlementIsReportedAndTheChargeStays(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store, events := &slowMemory{memory: new(quota.Memory)}, eventLog{}
		h := must(t, serverside.Config{Store: store, Audit: events.add, Rules: []serverside.Rule{{
			Name: "api", Policies: []quota.Policy{quota.PerHour(10)}, Settle: func(serverside.Response) int64 { return 0 },
		}}}).Wrap(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { store.down = true; w.WriteHeader(200) }))
		assert.Equal(t, 200, ask(h, "GET", "/").Code)
		synctest.Wait()
		require.Equal(t, []serverside.EventKind{serverside.StoreFailed}, events.kinds())
		store.down = false
		assert.Equal(t, int64(8), left(t, h))
	})
}

func TestResponseHasTheStatusOfTheHandler(t *testing.T) {
	for name, c := range map[string]struct {
		handler http.HandlerFunc
		want    int
	}{
		"a body":       {func(w http.ResponseWriter, _ *http.Request) { io.WriteString(w, "x") }, 200},
		"bytes":        {func(w http.ResponseWriter, _ *http.Request) { w.Write(nil) }, 200},
		"a status":     {func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(404) }, 404},
		"the first":    {func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(404); io.WriteString(w, "x") }, 404},
		"after a hint": {func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(103); w.WriteHeader(403) }, 403},
		"a flush":      {func(w http.ResponseWriter, _ *http.Request) { http.NewResponseController(w).Flush() }, 200},
		"a copy":       {func(w http.ResponseWriter, _ *http.Request) { io.Copy(w, strings.NewReader("x")) }, 200},
		"a panic":      {func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }, 500},
		"a late panic": {
			func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(202); panic(http.ErrAbortHandler) }, 202,
		},
		"a hijacking": {func(w http.ResponseWriter, _ *http.Request) {
			conn, _, _ := http.NewResponseController(w).Hijack()
			conn.Close()
		}, 101},
		"an asserted": {func(w http.ResponseWriter, _ *http.Request) { w.(http.Flusher).Flush() }, 200},
		"a file's copy": {
			func(w http.ResponseWriter, _ *http.Request) { w.(io.ReaderFrom).ReadFrom(strings.NewReader("x")) }, 200,
		},
	} {
		seen := make(chan int, 1)
		rules := oneRule(quota.PerHour(10))
		rules[0].Settle = func(r serverside.Response) int64 {
			seen <- r.Status
			return r.Cost
		}
		srv := listen(t, must(t, serverside.Config{Rules: rules}).Wrap(c.handler))
		srv.Config.ErrorLog = nil
		if resp, err := srv.Client().Get(srv.URL); err == nil {
			resp.Body.Close()
		}
		assert.Equal(t, c.want, <-seen, name)
	}
}

func TestUnseenResponseSettlesNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var events eventLog
		rule := serverside.Logins("login", "POST /login", serverside.FormValue("user"))
		rules := []serverside.Rule{rule, perHour("ip", "", 1000), {
			Name: "api", Pattern: "POST /login", Policies: []quota.Policy{quota.PerHour(100)},
			Settle: func(serverside.Response) int64 { return 0 },
		}}
		h := must(t, serverside.Config{
			Rules: rules, Audit: events.add,
		}).Wrap(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
		for range 5 {
			require.Equal(t, 200, login(h, "192.0.2.1:1", "ann", "right").Code)
		}
		w := login(h, "192.0.2.1:1", "ann", "right")
		assert.Equal(t, 429, w.Code)
		assert.Contains(t, w.Header().Get("RateLimit"), `"login";r=0`)
		assert.Len(t, events.of(serverside.ResponseUnseen), 1, "reported once")
		assert.Empty(t, events.of(serverside.Penalized), "it is no failure either")
	})
}

func TestWatchedWriterHasTheServersMethods(t *testing.T) {
	rules := oneRule(quota.PerHour(10))
	rules[0].Settle = func(r serverside.Response) int64 { return r.Cost }
	l := must(t, serverside.Config{Rules: rules})
	inspect := func(w http.ResponseWriter) (has [4]bool) {
		l.Wrap(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			_, has[0] = w.(http.Flusher)
			_, has[1] = w.(http.Hijacker)
			_, has[2] = w.(io.ReaderFrom)
			_, has[3] = w.(http.Pusher)
		})).ServeHTTP(w, request("GET", "/", "192.0.2.1:1"))
		return has
	}
	assert.Equal(t, [4]bool{true, true, true, false}, inspect(http1{}))
	assert.Equal(t, [4]bool{true, false, false, true}, inspect(http2{}))
	assert.Equal(t, [4]bool{true, false, false, false}, inspect(httptest.NewRecorder()))
	assert.Equal(t, [4]bool{}, inspect(null{make(http.Header)}))
}

// http1 and http2 have the methods of net/http's ResponseWriters.
type http1 struct{ null }

func (http1) Header() http.Header                          { return make(http.Header) }
func (http1) Flush()                                       {}
func (http1) ReadFrom(io.Reader) (int64, error)            { return 0, nil }
func (http1) Hijack() (net.Conn, *bufio.ReadWriter, error) { return nil, nil, nil }

type http2 struct{ null }

func (http2) Header() http.Header                  { return make(http.Header) }
func (http2) Flush()                               {}
func (http2) Push(string, *http.PushOptions) error { return nil }

// A Settle that returns nonsense once blocks a key for ten windows, and not for a lifetime.
func TestADebtThatIsCutIsReported(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var events eventLog
		rules := oneRule(quota.PerMinute(60))
		rules[0].Settle = func(serverside.Response) int64 { return 1e15 }
		h := must(t, serverside.Config{Rules: rules, Audit: events.add}).Wrap(new(ok))
		codes(1, h, "GET", "/")
		cut := events.of(serverside.DebtCut)
		require.Len(t, cut, 1)
		assert.ErrorAs(t, cut[0].Err, new(*quota.DebtError))
		assert.Equal(t, map[int]int{429: 1}, codes(1, h, "GET", "/"))
		time.Sleep(11 * time.Minute)
		assert.Equal(t, map[int]int{200: 1}, codes(1, h, "GET", "/"))
	})
}
