package serverside_test

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"mime"
	"mime/multipart"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"net/url"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
	"unicode"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/heedhttp/heed/internal/redistest"
	"github.com/heedhttp/heed/quota"
	"github.com/heedhttp/heed/redisstore"
	"github.com/heedhttp/heed/serverside"
)

// --- logins ---------------------------------------------------------------------------

// reaches returns how many of 60 guesses within a minute reach the account for which isVictim
// returns true. Each guess comes from another network.
func reaches(t *testing.T, request func(n int) *http.Request, isVictim func(*http.Request) bool) (n int) {
	synctest.Test(t, func(t *testing.T) {
		h := must(t, serverside.Config{
			Rules: logins(), Audit: silent,
		}).Wrap(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if isVictim(r) {
				n++
			}
			w.WriteHeader(401)
		}))
		for i := range 60 {
			r := request(i)
			r.RemoteAddr = fmt.Sprintf("10.%d.1.7:1", i)
			serve(h, r)
			time.Sleep(time.Second)
		}
	})
	return n
}

func bodyOf(r *http.Request) string { b, _ := io.ReadAll(r.Body); return string(b) }

// Decoders of other languages accept JSON that encoding/json rejects, and read the account after
// it: Python accepts NaN, V8 any depth, sonic and jsoniter a tab in a string.
func TestGuessesInJSONThatGoRejectsAreLimited(t *testing.T) {
	for name, value := range map[string]string{
		"NaN (Python's json)":                    "NaN",
		"Infinity":                               "-Infinity",
		"depth (V8's JSON.parse)":                strings.Repeat("[", 10_001) + strings.Repeat("]", 10_001),
		"a raw tab (Python strict=False, sonic)": "\"\t\"",
		"a comment":                              "1/**/",
	} {
		n := reaches(t, func(n int) *http.Request {
			return post("/login", asJSON, fmt.Sprintf(`{"user":"decoy%d","x":%s,"user":"victim"}`, n, value))
		}, func(r *http.Request) bool { return strings.HasSuffix(bodyOf(r), `"user":"victim"}`) }) // the last of two
		assert.LessOrEqual(t, n, 10, name)
	}
}

func TestGuessesInSpellingsOfANumberAreLimited(t *testing.T) {
	n := reaches(t, func(n int) *http.Request {
		return post("/login", asJSON, `{"user":4711.`+strings.Repeat("0", n+1)+`}`)
	}, func(r *http.Request) bool {
		var body struct{ User any }
		json.NewDecoder(r.Body).Decode(&body)
		return fmt.Sprint(body.User) == "4711"
	})
	assert.LessOrEqual(t, n, 10)
}

func TestGuessesBesideADecoyAreLimited(t *testing.T) {
	n := reaches(t, func(n int) *http.Request {
		return post("/login", asJSON, fmt.Sprintf(`{"user":["victim"],"USER":"decoy%d"}`, n))
	}, func(r *http.Request) bool { // like Node's mysql, which treats a list of one as its element
		var body map[string]any
		json.NewDecoder(r.Body).Decode(&body)
		return fmt.Sprint(body["user"]) == "[victim]"
	})
	assert.LessOrEqual(t, n, 10)
}

// A middleware behind Wrap decompresses the body. A comment in the gzip header has the decoy.
func TestGuessesInCompressedBodiesAreLimited(t *testing.T) {
	n := reaches(t, func(n int) *http.Request {
		var b bytes.Buffer
		z := gzip.NewWriter(&b)
		z.Comment = fmt.Sprintf("&user=decoy%d&", n)
		io.WriteString(z, "user=victim&password=x")
		z.Close()
		r := post("/login", urlencoded, b.String())
		r.Header.Set("Content-Encoding", "gzip")
		return r
	}, func(r *http.Request) bool {
		z, err := gzip.NewReader(r.Body)
		if err != nil {
			return false
		}
		r.Body = io.NopCloser(z)
		return r.FormValue("user") == "victim"
	})
	assert.LessOrEqual(t, n, 10)
}

func TestGuessesInMultipartMixedAreLimited(t *testing.T) {
	n := reaches(t, func(n int) *http.Request {
		return post("/login", "multipart/mixed; boundary=b",
			fmt.Sprintf(`{"user":"decoy%d"}`,
				n)+"\r\n--b\r\nContent-Disposition: form-data; name=\"user\"\r\n\r\nvictim\r\n--b--\r\n")
	}, multipartVictim)
	assert.LessOrEqual(t, n, 10)
}

func TestGuessesInFilePartsAreLimited(t *testing.T) {
	n := reaches(t, func(n int) *http.Request {
		var b strings.Builder
		form := multipart.NewWriter(&b)
		form.WriteField("user", fmt.Sprint("decoy", n))
		part, _ := form.CreateFormFile("user", "x")
		io.WriteString(part, "victim")
		form.Close()
		return post("/login", form.FormDataContentType(), b.String())
	}, multipartVictim)
	assert.LessOrEqual(t, n, 10)
}

// multipartVictim reads parts itself, as the doc of MultipartReader shows.
func multipartVictim(r *http.Request) bool {
	parts, err := r.MultipartReader()
	if err != nil {
		return false
	}
	user := ""
	for {
		part, err := parts.NextPart()
		if err != nil {
			return user == "victim"
		}
		if part.FormName() == "user" {
			b, _ := io.ReadAll(part)
			user = string(b)
		}
	}
}

// The handler ignores the Content-Type.
func TestGuessesWithAnotherContentTypeAreLimited(t *testing.T) {
	n := reaches(t, func(n int) *http.Request {
		return post("/login", "text/plain", fmt.Sprintf(`{"user":"decoy%d"}&user=victim`, n))
	}, func(r *http.Request) bool {
		form, _ := url.ParseQuery(bodyOf(r))
		return form.Get("user") == "victim"
	})
	assert.LessOrEqual(t, n, 10)
}

// In Rack 2, older Python and Perl a semicolon separates pairs. Go drops such a pair.
func TestGuessesAfterASemicolonAreLimited(t *testing.T) {
	n := reaches(t, func(n int) *http.Request {
		return post("/login", urlencoded, fmt.Sprintf("user=decoy%d&x=1;user=victim", n))
	}, func(r *http.Request) bool {
		form, _ := url.ParseQuery(strings.ReplaceAll(bodyOf(r), ";", "&"))
		return form["user"][len(form["user"])-1] == "victim"
	})
	assert.LessOrEqual(t, n, 10)
}

// The handler treats every method but GET as a login, and its route has no method.
func TestGuessesByOtherMethodsAreLimited(t *testing.T) {
	for _, method := range []string{"PUT", "PATCH", "post", "pOST", "QUERY"} {
		n := reaches(t, func(n int) *http.Request {
			r := post("/login", urlencoded, "user=victim&password=x")
			r.Method = method
			return r
		}, func(r *http.Request) bool {
			if r.Method == http.MethodGet {
				return false // the login form
			}
			form, _ := url.ParseQuery(bodyOf(r))
			return form.Get("user") == "victim"
		})
		assert.LessOrEqual(t, n, 10, method)
	}
}

func TestGuessesByEquivalentPathsAreLimited(t *testing.T) {
	for _, path := range []string{"/login;jsessionid=1", "/login;"} {
		n := reaches(t, func(n int) *http.Request { return post(path, urlencoded, "user=victim&password=x") },
			func(r *http.Request) bool { return true })
		assert.LessOrEqual(t, n, 10, path)
	}
}

// The application treats "Victim" and "victim" as two accounts (Django, any plain text column).
// The attacker owns the first, and logs in to it to be forgiven guesses at the second.
func TestSuccessAtASimilarAccountForgivesNothing(t *testing.T) {
	for name, own := range map[string]string{"case": "VICTIM", "dotless i": "vıctim", "spaces": "victim\u00a0"} {
		eachStore(t, func(t *testing.T, store quota.Store) {
			guesses := 0
			h := must(t, serverside.Config{
				Rules: logins(), Audit: silent, Store: store,
			}).Wrap(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				switch user, password := r.PostFormValue("user"), r.PostFormValue("password"); {
				case user == own && password == "mine":
					w.WriteHeader(200)
				case user == "victim":
					guesses++
					w.WriteHeader(401)
				default:
					w.WriteHeader(401)
				}
			}))
			for range 60 {
				login(h, "198.51.100.1:1", own, "mine")
				for range 3 {
					login(h, "198.51.100.1:1", "victim", "guess")
				}
				time.Sleep(time.Second)
			}
			assert.LessOrEqual(t, guesses, 10, name)
		})
	}
}

// Databases and programs that ignore case use simple case folding.
func TestFoldCoversSimpleCaseFolding(t *testing.T) {
	key := serverside.FormValue("user")
	of := func(s string) string {
		return key.Of(post("/login", urlencoded, url.Values{"user": {s}}.Encode()))
	}
	for r := rune(1); r < unicode.MaxRune; r++ {
		if f := unicode.SimpleFold(r); f != r && of("x"+string(r)+"x") != of("x"+string(f)+"x") {
			t.Errorf("%U and %U", r, f)
		}
	}
}

func TestDryRunNeverDeniesAnUnreadableBody(t *testing.T) {
	handler := new(ok)
	dry := func(rule *serverside.Rule) { rule.DryRun = true }
	h := must(t, serverside.Config{Rules: logins(dry), Audit: silent}).Wrap(handler)
	assert.Equal(t, 200, serve(h, post("/login", urlencoded, "password=x")).Code, "no account")
	assert.Equal(t, 200, serve(h, post("/login", urlencoded, "user=a&x="+strings.Repeat("x", 70<<10))).Code, "long")
	uploads := must(t, serverside.Config{Audit: silent, Rules: []serverside.Rule{perHour("ip", "", 100),
		{
			Name: "new", DryRun: true, Key: serverside.FormValue("user"), Policies: []quota.Policy{quota.PerHour(5)},
		}}}).Wrap(handler)
	assert.Equal(t, 200, serve(uploads, post("/upload", "image/png", strings.Repeat("x", 70<<10))).Code, "an upload")
}

// As on OAuth's token endpoint, If reads the body before FormValue does.
func TestIfMayReadTheBodyFirst(t *testing.T) {
	rule := serverside.Logins("token", "POST /token", serverside.FormValue("username"))
	rule.If = func(r *http.Request) bool { return r.PostFormValue("grant_type") == "password" }
	h := must(t, serverside.Config{Rules: []serverside.Rule{rule, perHour("ip", "", 100)}, Audit: silent}).Wrap(new(ok))
	assert.Equal(t, 200, serve(h, post("/token", urlencoded, "grant_type=password&username=ann&password=x")).Code)
}

// Every peer is trusted as a proxy, so clients can make up their network.
func TestMadeUpNetworksAreNoWayAroundALogin(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, err := serverside.New(serverside.Config{Audit: silent,
			Key: serverside.ClientIP(netip.MustParsePrefix("0.0.0.0/0")), Rules: []serverside.Rule{
				serverside.Logins("login", "POST /login", serverside.FormValue("user")),
				{Name: "ip", Key: serverside.ClientIP(), Policies: []quota.Policy{quota.PerHour(1000)}},
			}})
		if err != nil {
			return // New may reject the Config instead
		}
		h := l.Wrap(http.HandlerFunc(doors))
		from := func(xff, password string) int {
			r := post("/login", urlencoded, "user=ann&password="+password)
			r.RemoteAddr = "198.51.100.1:1"
			r.Header.Set("X-Forwarded-For", xff)
			return serve(h, r).Code
		}
		require.Equal(t, 200, from("192.0.2.1", "right"))
		for range 10 {
			from("192.0.2.1", "guess")
		}
		assert.Equal(t, 200, from("192.0.2.1", "right"), "the attacker claimed to be in the owner's network")
	})
}

var _ = mime.FormatMediaType

// --- charging -------------------------------------------------------------------------

// batch serves a batch of requests, each through the whole handler.
func batch(make func(r *http.Request, i int) *http.Request, l *serverside.Limiter, served *int) http.Handler {
	var h http.Handler
	mux := http.NewServeMux()
	mux.HandleFunc("POST /batch", func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Inner") != "" {
			*served++
			w.WriteHeader(200)
			return
		}
		for i := range 100 {
			h.ServeHTTP(httptest.NewRecorder(), make(r, i))
		}
		w.WriteHeader(200)
	})
	mux.HandleFunc("POST /login", func(w http.ResponseWriter, r *http.Request) { *served++; w.WriteHeader(401) })
	h = l.Wrap(mux)
	return h
}

func TestClonedSubRequestsAreCharged(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		served := 0
		l := must(t, serverside.Config{Rules: logins(), Audit: silent})
		h := batch(func(r *http.Request, i int) *http.Request {
			sub := r.Clone(r.Context())
			sub.URL = &url.URL{Path: "/login"}
			body := "user=victim&password=" + fmt.Sprint(i)
			sub.Body, sub.ContentLength = io.NopCloser(strings.NewReader(body)), int64(len(body))
			sub.Header.Set("Content-Type", urlencoded)
			return sub
		}, l, &served)
		require.Equal(t, 200, serve(h, post("/batch", asJSON, `[]`)).Code)
		assert.LessOrEqual(t, served, 5)
	})
}

func TestSubRequestsWithTheSameURIAreCharged(t *testing.T) {
	served := 0
	l := must(t, serverside.Config{Rules: oneRule(quota.PerHour(5)), Audit: silent})
	h := batch(func(r *http.Request, i int) *http.Request {
		sub, _ := http.NewRequestWithContext(r.Context(), "POST", "/batch", strings.NewReader("x"))
		sub.RemoteAddr = r.RemoteAddr
		sub.Header.Set("Inner", "yes")
		return sub
	}, l, &served)
	require.Equal(t, 200, serve(h, post("/batch", asJSON, `[]`)).Code)
	assert.LessOrEqual(t, served, 5)
}

func TestNegativeSettleRefundsNoMoreThanTheCharge(t *testing.T) {
	rule := perHour("api", "", 10)
	cost := int64(1)
	rule.Settle = func(serverside.Response) int64 { return cost }
	h := must(t, serverside.Config{Rules: []serverside.Rule{rule}, Audit: silent}).Wrap(new(ok))
	spend(t, h, 5)
	cost = -3
	spend(t, h, 1)
	cost = 1
	w := ask(h, "GET", "/")
	assert.Equal(t, "4", w.Header().Get("X-Ratelimit-Remaining"), "5 and this one were charged")
}

func TestUnreadableRequestsAreCharged(t *testing.T) {
	h := must(t, serverside.Config{Audit: silent, Rules: []serverside.Rule{
		serverside.Logins("login", "POST /login", serverside.FormValue("user")), perHour("ip", "", 20),
	}}).Wrap(new(ok))
	counts := make(map[int]int)
	for range 200 {
		r := post("/login", asJSON, strings.Repeat("x", 64<<10))
		r.RemoteAddr = "192.0.2.1:1"
		counts[serve(h, r).Code]++
	}
	assert.LessOrEqual(t, counts[400], 20, "%v", counts)
}

// --- the Store ------------------------------------------------------------------------

// flaky is a Memory that fails on demand, and counts calls.
type flaky struct {
	quota.Memory
	takes, settles atomic.Int64
	take, settle   func(n int64, charges []quota.Charge) error
}

type flakyStore struct{ *flaky }

func (f flakyStore) Take(ctx context.Context, dst []quota.Decision,
	charges ...quota.Charge) ([]quota.Decision, error) {
	n := f.takes.Add(1)
	if f.flaky.take != nil {
		if err := f.flaky.take(n, charges); err != nil {
			return dst, err
		}
	}
	return f.Memory.Take(ctx, dst, charges...)
}

func (f flakyStore) Settle(ctx context.Context, charges ...quota.Charge) error {
	n := f.settles.Add(1)
	if f.flaky.settle != nil {
		if err := f.flaky.settle(n, charges); err != nil {
			return err
		}
	}
	return f.Memory.Settle(ctx, charges...)
}

// The Store fails only in the first of two steps. What the second charges to the Store is refunded
// there, so right passwords are never denied.
func TestChargesAreSettledWhereTheyWereMade(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &flaky{}
		h := must(t, serverside.Config{Rules: logins(), Audit: silent, Store: flakyStore{f}}).Wrap(http.HandlerFunc(doors))
		require.Equal(t, 200, login(h, "192.0.2.1:1", "ann", "right").Code)
		f.take = func(_ int64, charges []quota.Charge) error {
			if charges[0].Limit.Name() == "ip/1h" {
				return errDown
			}
			return nil
		}
		for i := range 20 {
			require.Equal(t, 200, login(h, "192.0.2.1:1", "ann", "right").Code, "%d", i)
		}
	})
}

// The Store fails only in the second step, whose rule then denies in this process.
func TestStoreIsRefundedWhenALaterStepDeniesLocally(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &flaky{}
		h := must(t, serverside.Config{Rules: logins(), Audit: silent, Store: flakyStore{f}}).Wrap(http.HandlerFunc(doors))
		f.take = func(_ int64, charges []quota.Charge) error {
			if strings.HasPrefix(charges[0].Limit.Name(), "login/") {
				return errDown
			}
			return nil
		}
		for range 5 {
			login(h, "192.0.2.1:1", "ann", "guess")
		}
		for range 50 {
			require.Equal(t, 429, login(h, "192.0.2.1:1", "ann", "guess").Code)
		}
		states, _ := f.Inspect(t.Context(), "192.0.2.1")
		for _, s := range states {
			if s.Name == "ip/1h" {
				used := 100_000 - remaining(perHourLimit(t, 100_000), s)
				assert.LessOrEqual(t, used, int64(5), "50 denied requests were charged")
			}
		}
	})
}

func perHourLimit(t *testing.T, n int64) *quota.Limit {
	p := quota.PerHour(n)
	p.Name = "ip/1h"
	l, err := p.Compile()
	require.NoError(t, err)
	return l
}

func remaining(l *quota.Limit, s quota.State) int64 {
	now := time.Now().UnixMicro()
	return l.Describe(s.Bucket, now).Remaining
}

func TestHangingStoreIsWaitedForOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		hang := store(func(ctx context.Context, dst []quota.Decision, _ ...quota.Charge) ([]quota.Decision, error) {
			<-ctx.Done()
			return nil, ctx.Err()
		})
		h := must(t, serverside.Config{
			Rules: logins(), Audit: silent, Store: settlingStore{hang}, StoreTimeout: 100 * time.Millisecond,
		}).
			Wrap(http.HandlerFunc(doors))
		start := time.Now()
		login(h, "192.0.2.1:1", "ann", "guess")
		assert.LessOrEqual(t, time.Since(start), 100*time.Millisecond)
	})
}

type settlingStore struct{ store }

func (s settlingStore) Settle(ctx context.Context, _ ...quota.Charge) error {
	<-ctx.Done()
	return ctx.Err()
}

// One of the Store's nodes is gone while others answer.
func TestStoreErrorIsNotTakenForLate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var events eventLog
		var m quota.Memory
		s := store(func(ctx context.Context, dst []quota.Decision, charges ...quota.Charge) ([]quota.Decision, error) {
			if strings.HasSuffix(charges[0].Key, "192.0.2.1") {
				time.Sleep(10 * time.Millisecond)
				return nil, errDown // CLUSTERDOWN, connection refused
			}
			time.Sleep(time.Millisecond)
			return m.Take(ctx, dst, charges...)
		})
		rule := perHour("api", "", 1000)
		rule.OnStoreError = serverside.FailClosed
		h := must(t, serverside.Config{
			Rules: []serverside.Rule{rule}, Audit: events.add, Store: s,
		}).Wrap(http.HandlerFunc(bare))
		done := make(chan int)
		go func() { done <- askFrom("192.0.2.1:1", h, "GET", "/").Code }()
		time.Sleep(2 * time.Millisecond)
		askFrom("192.0.2.2:1", h, "GET", "/")
		assert.Equal(t, 503, <-done)
		assert.Empty(t, events.of(serverside.StoreLate))
		assert.Len(t, events.of(serverside.StoreFailed), 1)
	})
}

// The Gate waits for its context to end, as quota.Gate requires.
func TestGateIsAskedAgainAfterAnOutage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := &gateFunc{}
		rule := perHour("api", "", 100_000)
		rule.MaxInFlight, rule.OnStoreError = 10, serverside.FailClosed
		h := must(t, serverside.Config{Rules: []serverside.Rule{rule}, Audit: silent, Gate: g}).Wrap(http.HandlerFunc(bare))
		ctx, end := context.WithCancel(t.Context())
		g.hangs.Store(true)
		for range 200 {
			ask(h, "GET", "/")
		}
		g.hangs.Store(false)
		time.Sleep(time.Hour)
		assert.Equal(t, 204, ask(h, "GET", "/").Code, "the Gate is well again")
		end()
		<-ctx.Done()
		close(g.free())
		synctest.Wait()
	})
}

type gateFunc struct {
	quota.Memory
	hangs atomic.Bool
	once  sync.Once
	c     chan struct{}
}

func (g *gateFunc) free() chan struct{} { g.once.Do(func() { g.c = make(chan struct{}) }); return g.c }

func (g *gateFunc) Acquire(ctx context.Context, key string, limit, n int64) (*quota.Hold, quota.Decision, error) {
	if g.hangs.Load() {
		select {
		case <-ctx.Done():
		case <-g.free():
		}
		return nil, quota.Decision{}, errDown
	}
	return g.Memory.Acquire(ctx, key, limit, n)
}

func TestPanicInPingIsReported(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var events eventLog
		must(t, serverside.Config{Rules: oneRule(quota.PerHour(5)), Audit: events.add, Store: pinger{}})
		synctest.Wait()
		failed := events.of(serverside.StoreFailed)
		require.Len(t, failed, 1)
		assert.ErrorContains(t, failed[0].Err, "panicked: Ping")
	})
}

type pinger struct{ quota.Store }

func (pinger) Ping(context.Context) error { panic("Ping") }

// --- keys -----------------------------------------------------------------------------

func TestNilKeyFuncIsAFault(t *testing.T) {
	_, err := serverside.New(serverside.Config{
		Rules: []serverside.Rule{{Name: "api", Key: serverside.KeyFunc(nil), Policies: []quota.Policy{quota.PerHour(1)}}},
	})
	assert.Error(t, err, "it panics at the first request")
}

func TestLongKeysHaveTheirOwnLimits(t *testing.T) {
	tenant := strings.Repeat("t", 129)
	rule := perHour("api", "", 100)
	rule.Key = serverside.KeyFunc(func(*http.Request) string { return tenant })
	rule.Limits = serverside.LimitTable{tenant: {PerHour: 1}}
	h := must(t, serverside.Config{Rules: []serverside.Rule{rule}, Audit: silent}).Wrap(new(ok))
	ask(h, "GET", "/")
	assert.Equal(t, 429, ask(h, "GET", "/").Code)
}

func TestTwoLimitsWithOneWindowCountApart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rule := perHour("api", "", 100)
		rule.Key = serverside.KeyFunc(func(*http.Request) string { return "ann" })
		rule.Limits = limitsFunc(func() []quota.Policy {
			return []quota.Policy{
				{Quota: 10, Window: time.Minute}, {Quota: 6, Window: time.Minute, Algorithm: quota.SlidingLog},
			}
		})
		h := must(t, serverside.Config{Rules: []serverside.Rule{rule}, Audit: silent}).Wrap(new(ok))
		admitted := 0
		for range 10 {
			if ask(h, "GET", "/").Code == 200 {
				admitted++
			}
		}
		assert.Equal(t, 6, admitted)
	})
}

type limitsFunc func() []quota.Policy

func (f limitsFunc) Limits(context.Context, string) ([]quota.Policy, error) { return f(), nil }

// --- writers --------------------------------------------------------------------------

// statusOf returns the status that Settle sees and the status that the client gets, over a real
// connection.
func statusOf(t *testing.T, around func(http.Handler) http.Handler, h http.HandlerFunc) (seen, sent int) {
	var status atomic.Int64
	rule := perHour("api", "", 10)
	rule.Settle = func(r serverside.Response) int64 { status.Store(int64(r.Status)); return 1 }
	srv := listen(t, around(must(t, serverside.Config{Rules: []serverside.Rule{rule}, Audit: silent}).Wrap(h)))
	resp := get(t, srv.Client(), "GET", srv.URL, nil)
	return int(status.Load()), resp.StatusCode
}

func plainly(h http.Handler) http.Handler { return h }

type failing struct{}

func (failing) Read([]byte) (int, error) { return 0, errDown }

func TestReaderThatFailsAtOnceWritesNoStatus(t *testing.T) {
	seen, sent := statusOf(t, plainly, func(w http.ResponseWriter, r *http.Request) {
		if _, err := io.Copy(w, failing{}); err != nil {
			http.Error(w, "upstream", http.StatusBadGateway)
		}
	})
	assert.Equal(t, sent, seen)
}

// noHijack is a middleware's writer: it has Hijack, which fails for HTTP/2.
type noHijack struct{ http.ResponseWriter }

func (noHijack) Hijack() (c net.Conn, b *bufio.ReadWriter, err error) {
	return nil, nil, http.ErrNotSupported
}

func TestFailedHijackWritesNoStatus(t *testing.T) {
	seen, sent := statusOf(t, func(h http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { h.ServeHTTP(noHijack{w}, r) })
	}, func(w http.ResponseWriter, r *http.Request) {
		if _, _, err := w.(http.Hijacker).Hijack(); err != nil {
			http.Error(w, "no websocket", http.StatusUnauthorized)
		}
	})
	assert.Equal(t, sent, seen)
}

// noFlush has Flush although the writer below has none.
type noFlush struct{ http.ResponseWriter }

func (noFlush) FlushError() error { return http.ErrNotSupported }
func (noFlush) Flush()            {}

func TestUnsupportedFlushWritesNoStatus(t *testing.T) {
	seen, sent := statusOf(t, func(h http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { h.ServeHTTP(noFlush{w}, r) })
	}, func(w http.ResponseWriter, r *http.Request) {
		w.(http.Flusher).Flush()
		w.WriteHeader(401)
	})
	assert.Equal(t, sent, seen)
}

func TestConcurrentGuessesOverRedisAreLimited(t *testing.T) {
	srv := redistest.Start(t)
	rdb := redis.NewClient(slowly(srv.Addr))
	defer rdb.Close()
	var guesses atomic.Int64
	h := must(t, serverside.Config{
		Store: &redisstore.Store{Client: rdb, Timeout: time.Minute}, StoreTimeout: time.Minute, Audit: silent,
		Rules: logins(hourly),
	}).
		Wrap(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { guesses.Add(1); w.WriteHeader(401) }))
	var all sync.WaitGroup
	for i := range 300 {
		all.Go(func() { login(h, fmt.Sprintf("10.%d.%d.1:1", i/200, i%200), "victim", "x") })
	}
	all.Wait()
	assert.Equal(t, int64(5), guesses.Load())
}

// RateLimit-Policy and RateLimit list the same policies, whatever rules apply.
func TestFieldsOfRandomRulesAreConsistent(t *testing.T) {
	names := func(line string) (all string) {
		for item := range strings.SplitSeq(line, ", ") {
			all += strings.SplitN(item, ";", 2)[0] + " "
		}
		return all
	}
	for seed := range uint64(3000) {
		rnd := rand.New(rand.NewPCG(seed, 1))
		var rules []serverside.Rule
		rules = append(rules, perHour("ip", "", 50))
		for i := range rnd.IntN(5) {
			r := perHour(fmt.Sprint("r", i), []string{
				"", "/a/", "/a/b", "GET /a/", "POST /a/b",
			}[rnd.IntN(5)], int64(1+rnd.IntN(30)))
			r.Stage = serverside.Stage(rnd.IntN(3))
			r.DryRun = rnd.IntN(4) == 0
			if rnd.IntN(3) == 0 {
				r.Policies = append(r.Policies, quota.PerMinute(int64(1+rnd.IntN(20))))
			}
			if rnd.IntN(5) == 0 {
				r.Key = serverside.KeyFunc(func(*http.Request) string { return "ann" })
				r.Limits = serverside.LimitTable{"ann": {PerMinute: 7, PerDay: 9}}
			}
			rules = append(rules, r)
		}
		if rnd.IntN(2) == 0 {
			r := perHour("form", "POST /a/", 9)
			r.Key = serverside.FormValue("user")
			rules = append(rules, r)
		}
		var allow []serverside.Allow
		if rnd.IntN(3) == 0 {
			allow = append(allow, serverside.Allow{Name: "in", Match: func(r *http.Request) bool {
				return r.Header.Get("In") != ""
			},
				Policies: []quota.Policy{quota.PerHour(3), quota.PerMinute(2)}})
		}
		l, err := serverside.New(serverside.Config{Rules: rules, Allow: allow, Audit: silent})
		require.NoError(t, err)
		h := l.Wrap(new(ok))
		if rnd.IntN(2) == 0 {
			h = l.WrapEarly(h)
		}
		for range 25 {
			r := post([]string{"/", "/a/", "/a/b"}[rnd.IntN(3)], urlencoded, "user=ann")
			if rnd.IntN(2) == 0 {
				r.Method = "GET"
			}
			if rnd.IntN(4) == 0 {
				r.Header.Set("In", "1")
			}
			w := serve(h, r)
			p, s := names(w.Header().Get("Ratelimit-Policy")), names(w.Header().Get("Ratelimit"))
			if len(strings.Fields(p)) != len(strings.Fields(s)) || !sameWords(p, s) {
				t.Fatalf("seed %d: %d: %q %q\n%v", seed, w.Code, w.Header().Get("Ratelimit-Policy"), w.Header().Get("Ratelimit"),
					rules)
			}
			if w.Code == 429 && w.Header().Get("Retry-After") == "" {
				t.Fatalf("seed %d", seed)
			}
		}
	}
}

func sameWords(a, b string) bool {
	in := make(map[string]bool)
	for w := range strings.FieldsSeq(a) {
		in[w] = true
	}
	for w := range strings.FieldsSeq(b) {
		if !in[w] {
			return false
		}
	}
	return true
}

func TestConcurrentRequestsDoNotMixUpTheirState(t *testing.T) {
	rules := []serverside.Rule{perHour("ip", "", 1000), {
		Name: "form", Pattern: "POST /", Key: serverside.FormValue("user"),
		Policies: []quota.Policy{quota.PerHour(3)},
	},
		{
			Name: "panics", Pattern: "/panics", Policies: []quota.Policy{quota.PerHour(1000)}, MaxInFlight: 4,
			Cost: func(*http.Request) int64 { panic("cost") },
		}}
	h := recovering(must(t, serverside.Config{
		Rules: rules, Audit: silent, InContext: true,
	}).Wrap(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if d, ok := serverside.FromContext(r.Context()); !ok || d.Rule != "ip" && d.Rule != "form" {
			t.Error(d)
		}
		w.WriteHeader(200)
	})))
	var all sync.WaitGroup
	for i := range 200 {
		all.Go(func() {
			for n := range 6 {
				r := post("/", urlencoded, fmt.Sprint("user=u", i))
				r.RemoteAddr = fmt.Sprintf("10.0.%d.1:1", i)
				want := 200
				if n >= 3 {
					want = 429
				}
				w := serve(h, r)
				if w.Code != want {
					t.Errorf("%d of %d: %d", n, i, w.Code)
				}
				p := post("/panics", "", "")
				p.RemoteAddr = r.RemoteAddr
				serve(h, p)
			}
		})
	}
	all.Wait()
}

// A handler serves sub-requests in two goroutines through the same Limiter.
func TestGoroutinesOfOneRequestAreSafe(t *testing.T) {
	l := limit(t, quota.PerHour(1000))
	h := l.WrapEarly(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var all sync.WaitGroup
		for range 4 {
			all.Go(func() { l.Wrap(new(ok)).ServeHTTP(httptest.NewRecorder(), r) })
		}
		all.Wait()
	}))
	for range 20 {
		ask(h, "GET", "/")
	}
}

// With FailOpen and FailClosed too, a late process counts what the Store admitted before.
func TestLateProcessRemembersWhatTheStoreAdmitted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var m quota.Memory
		var slow atomic.Bool
		s := store(func(ctx context.Context, dst []quota.Decision, charges ...quota.Charge) ([]quota.Decision, error) {
			if slow.Load() && strings.HasSuffix(charges[0].Key, "192.0.2.1") {
				time.Sleep(80 * time.Millisecond)
			}
			return m.Take(ctx, dst, charges...)
		})
		rule := perHour("api", "", 10)
		rule.OnStoreError = serverside.FailOpen
		served := 0
		h := must(t, serverside.Config{
			Rules: []serverside.Rule{rule}, Audit: silent, Store: s,
		}).Wrap(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.RemoteAddr == "192.0.2.1:1" {
				served++
			}
		}))
		for range 20 {
			askFrom("192.0.2.1:1", h, "GET", "/")
		}
		slow.Store(true)
		stop := make(chan struct{})
		go func() {
			for {
				select {
				case <-stop:
					return
				default:
					askFrom("192.0.2.2:1", h, "GET", "/")
					time.Sleep(time.Millisecond)
				}
			}
		}()
		for range 50 {
			askFrom("192.0.2.1:1", h, "GET", "/")
		}
		close(stop)
		time.Sleep(time.Second)
		assert.LessOrEqual(t, served, 10)
	})
}
