package serverside_test

import (
	"bufio"
	"context"
	"encoding/base64"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
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
)

func TestForwardedRequestIsNotTrustedAsItsPeer(t *testing.T) {
	trusted := serverside.Peers(serverside.Loopback()...)
	r := request("GET", "/", "127.0.0.1:1")
	assert.True(t, trusted(r))
	for _, field := range []string{
		"Via", "Forwarded", "X-Forwarded-For", "X-Forwarded-Host", "X-Forwarded-Proto", "X-Original-Forwarded-For",
		"X-Real-IP", "True-Client-IP",
		"X-Client-IP", "X-Cluster-Client-IP", "Fly-Client-IP", "Fastly-Client-IP", "CF-Connecting-IP",
		"X-Envoy-External-Address",
	} {
		r := request("GET", "/", "127.0.0.1:1")
		r.Header.Set(field, "x")
		assert.False(t, trusted(r), field)
	}
	assert.False(t, trusted(request("GET", "/", "192.0.2.1:1")))
}

func TestUserNamedLikeAnAddressDoesNotShareItsQuota(t *testing.T) {
	rules := oneRule(quota.PerHour(1))
	rules[0].Key, rules[0].Stage = user, serverside.AfterAuth
	h := must(t, serverside.Config{Rules: rules, Key: serverside.ClientIP()}).Wrap(new(ok))
	assert.Equal(t, 200, askFrom("192.0.2.9:1", h, "GET", "/", "X-User", "192.0.2.1").Code)
	assert.Equal(t, 200, askFrom("192.0.2.1:1", h, "GET", "/").Code)
	assert.Equal(t, 429, askFrom("192.0.2.1:1", h, "GET", "/").Code)
}

func TestDisputedForwardingIsReportedOnceAMinute(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var events eventLog
		h := must(t, serverside.Config{
			Rules: oneRule(quota.PerHour(1000)), Key: serverside.ClientIP(proxies...), Audit: events.add,
		}).Wrap(new(ok))
		forge := func(client string) string {
			return askFrom("10.0.0.1:1", h, "GET", "/", "X-Forwarded-For", client, "X-Real-IP",
				"203.0.113.9").Header().Get("X-RateLimit-Remaining")
		}
		assert.Equal(t, []string{"999", "998", "997"}, []string{forge("1.1.1.1"), forge("2.2.2.2"), forge("3.3.3.3")},
			"made-up clients share one quota")
		assert.Len(t, events.of(serverside.ForwardingDisputed), 1)
		time.Sleep(time.Minute)
		forge("4.4.4.4")
		assert.Len(t, events.of(serverside.ForwardingDisputed), 2)
		assert.Equal(t, "999", forge("203.0.113.9"), "an honest client has its own quota")
	})
}

func TestOnlyALimitForAllCapsMadeUpKeys(t *testing.T) {
	header, per := serverside.Header("X-Api-Key"), []quota.Policy{quota.PerHour(5)}
	claimed := serverside.Rule{Name: "key", Pattern: "/{$}", Key: header, Policies: per}
	for name, c := range map[string]struct {
		by    serverside.Rule
		wrong bool
	}{
		"by address": {serverside.Rule{Policies: per}, false},
		"by address, named": {
			serverside.Rule{Policies: per, Key: serverside.Named("ip", serverside.ClientIP())}, false,
		},
		"only those that say so": {serverside.Rule{Policies: per, If: serverside.Repeated}, true},
		"which may be given back": {
			serverside.Rule{Policies: per, Settle: serverside.RefundIf(serverside.Succeeded)}, true,
		},
		"or pardoned": {
			serverside.Rule{
				Policies: per,
				Penalty:  &serverside.Penalty{After: 1, Within: 1e9, First: 1e9, Pardon: serverside.Succeeded},
			},
			true,
		},
		"in flight alone": {serverside.Rule{MaxInFlight: 5}, true},
		"of a function": {
			serverside.Rule{Policies: per, Key: serverside.KeyFunc(func(r *http.Request) string { return header.Of(r) })},
			true,
		},
		"of a function and address": {
			serverside.Rule{Policies: per, Key: serverside.Join(serverside.ClientIP(), user)}, true,
		},
		"tried out":             {serverside.Rule{Policies: per, DryRun: true}, true},
		"another path":          {serverside.Rule{Policies: per, Pattern: "/{x}"}, true},
		"behind authentication": {serverside.Rule{Policies: per, Stage: serverside.AfterAuth}, true},
	} {
		c.by.Name = "by"
		_, err := serverside.New(serverside.Config{Rules: []serverside.Rule{claimed, c.by}, Audit: silent})
		assert.Equal(t, c.wrong, err != nil, "%s: %v", name, err)
	}
}

func TestDescribeCallsAKeyFuncUnknown(t *testing.T) {
	header := serverside.Header("X-Api-Key")
	rule := serverside.Rule{
		Name: "key", Policies: []quota.Policy{quota.PerHour(5)},
		Key: serverside.KeyFunc(func(r *http.Request) string { return header.Of(r) }),
	}
	assert.Contains(t, rule.Describe(), "each value of a function of the program")
	rule.Key = serverside.Named("ip", serverside.ClientIP())
	assert.Contains(t, rule.Describe(), "each client's address")
}

func TestOneCredentialIsOneKey(t *testing.T) {
	key := func(value string) string {
		r := request("GET", "/", "192.0.2.1:1")
		r.Header.Set("Authorization", value)
		return serverside.Header("Authorization").Of(r)
	}
	const alphabet = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_"
	respelt := func(text string, alphabet string, bits int) (all []string) {
		last := strings.IndexByte(alphabet, text[len(text)-1])
		for i := range 1 << bits {
			all = append(all, text[:len(text)-1]+string(alphabet[last&^(1<<bits-1)|i]))
		}
		return all
	}
	signature := base64.RawURLEncoding.EncodeToString(make([]byte, 256)) // RS256: four bits to spare
	jwt := "eyJhbGciOiJSUzI1NiJ9.eyJzdWIiOiJhbm4ifQ."
	spellings := respelt(signature, alphabet, 4)
	assert.Len(t, spellings, 16)
	for _, s := range append(spellings, signature+"==") {
		assert.Equal(t, key("Bearer "+jwt+signature), key("bearer  "+jwt+s))
	}
	assert.NotEqual(t, key("Bearer "+jwt+signature), key("Bearer "+jwt+"B"+signature[1:]), "anyone can write claims")

	basic := base64.RawStdEncoding.EncodeToString([]byte("ann:x")) // two bits to spare
	for _, s := range respelt(basic, strings.NewReplacer("-", "+", "_", "/").Replace(alphabet), 2) {
		assert.Equal(t, key("Basic "+basic+"="), key("BASIC "+s+"="))
	}
	assert.NotEqual(t, key("Basic "+basic), key("Basic "+base64.StdEncoding.EncodeToString([]byte("bob:x"))))
}

// unread is a body that fails the test when it is read.
type unread struct{ t *testing.T }

func (u unread) Read([]byte) (int, error) {
	assert.Fail(u.t, "the body was read")
	return 0, io.EOF
}
func (unread) Close() error { return nil }

// tables is a Limits that counts its calls.
type tables struct{ asked atomic.Int64 }

func (l *tables) Limits(context.Context, string) ([]quota.Policy, error) {
	l.asked.Add(1)
	return nil, nil
}

func TestDenialByAddressReadsNoBodyAndNoLimits(t *testing.T) {
	eachStore(t, func(t *testing.T, store quota.Store) {
		limits := new(tables)
		byKey := serverside.Rule{
			Name: "key", Key: serverside.Header("X-Api-Key"), Limits: limits,
			Policies: []quota.Policy{quota.PerHour(100)},
		}
		rules := append(logins(), byKey, perHour("narrow", "", 3))
		l := must(t, serverside.Config{Rules: rules, Store: store, Audit: silent})
		h := l.Wrap(http.HandlerFunc(doors))
		for range 3 {
			require.Equal(t, 401, login(h, "192.0.2.1:1", "ann", "guess").Code)
		}
		asked := limits.asked.Load()
		for range 100 {
			r := httptest.NewRequest("POST", "/login", unread{t})
			r.Header.Set("X-Api-Key", "made up")
			require.Equal(t, 429, serve(h, r).Code)
		}
		assert.Equal(t, asked, limits.asked.Load())
	})
}

func TestDenialByALaterRuleRefundsEarlierRules(t *testing.T) {
	eachStore(t, func(t *testing.T, store quota.Store) {
		rules := []serverside.Rule{perHour("ip", "", 10), {
			Name: "account", Pattern: "POST /login", Key: serverside.FormValue("user"),
			Policies: []quota.Policy{quota.PerHour(2)},
		}}
		h := must(t, serverside.Config{Rules: rules, Store: store, Audit: silent}).Wrap(new(ok))
		for range 2 {
			require.Equal(t, 200, login(h, "192.0.2.1:1", "ann", "").Code)
		}
		for range 50 {
			w := login(h, "192.0.2.1:1", "ann", "")
			require.Equal(t, 429, w.Code)
			require.Equal(t, []string{"account"}, problemOf(t, w).Violated)
		}
		for range 8 {
			require.Equal(t, 200, ask(h, "GET", "/").Code, "the address was charged twice")
		}
		assert.Equal(t, 429, ask(h, "GET", "/").Code)
	})
}

// The Store works, but is overloaded.
func TestSaturatedProcessAdmitsAtMostTwiceItsLimit(t *testing.T) {
	for _, mode := range []serverside.FailureMode{0, serverside.FailOpen, serverside.FailClosed} {
		synctest.Test(t, func(t *testing.T) {
			var memory quota.Memory
			var queue sync.Mutex // the Store decides on one charge at a time
			slow := store(func(ctx context.Context, dst []quota.Decision, charges ...quota.Charge) ([]quota.Decision, error) {
				queue.Lock()
				defer queue.Unlock()
				return memory.Take(ctx, dst, charges...)
			})
			var events eventLog
			h := must(t, serverside.Config{
				Rules: oneRule(quota.PerHour(20)), Store: slow, OnStoreError: mode, Audit: events.add,
			}).Wrap(http.HandlerFunc(bare))
			var admitted, other atomic.Int64
			var group sync.WaitGroup
			for range 8000 {
				group.Go(func() {
					switch ask(h, "GET", "/").Code {
					case 204:
						admitted.Add(1)
					case 429:
					default:
						other.Add(1)
					}
				})
			}
			group.Wait()
			assert.LessOrEqual(t, admitted.Load(), int64(40))
			assert.GreaterOrEqual(t, admitted.Load(), int64(20))
			assert.Zero(t, other.Load())
			assert.Empty(t, events.of(serverside.StoreFailed), "it is not gone")
		})
	}
}

func TestSubRequestIsCharged(t *testing.T) {
	var l *serverside.Limiter
	var admitted int
	mux := http.NewServeMux()
	mux.HandleFunc("POST /batch", func(w http.ResponseWriter, r *http.Request) {
		for range 500 {
			sub, _ := http.NewRequestWithContext(r.Context(), "POST", "/login", nil)
			sub.RemoteAddr = r.RemoteAddr
			if serve(l.Wrap(mux), sub).Code == 200 {
				admitted++
			}
		}
	})
	mux.Handle("POST /login", new(ok))
	l = must(t, serverside.Config{Rules: []serverside.Rule{perHour("login", "POST /login", 5)}, Audit: silent})
	ask(l.Wrap(mux), "POST", "/batch")
	assert.Equal(t, 5, admitted)
}

func TestRequestIsChargedOnceHoweverOftenWrapIsCalled(t *testing.T) {
	rules := []serverside.Rule{perHour("ip", "", 1)}
	each := func(l *serverside.Limiter, wrap func(http.Handler) http.Handler, h http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { wrap(h).ServeHTTP(w, r) })
	}
	for name, open := range map[string]func(*serverside.Limiter) http.Handler{
		"early and late, for each request": func(l *serverside.Limiter) http.Handler {
			return each(l, l.WrapEarly, each(l, l.Wrap, new(ok)))
		},
		"twice, for each request": func(l *serverside.Limiter) http.Handler {
			return each(l, l.Wrap, each(l, l.Wrap, new(ok)))
		},
		"once, and for each request behind a router": func(l *serverside.Limiter) http.Handler {
			mux := http.NewServeMux()
			mux.Handle("/v1/", http.StripPrefix("/v1", each(l, l.Wrap, new(ok))))
			return l.Wrap(mux)
		},
	} {
		h := open(must(t, serverside.Config{Rules: rules, Audit: silent}))
		assert.Equal(t, 200, ask(h, "GET", "/v1/x").Code, name)
		assert.Equal(t, 429, ask(h, "GET", "/v1/x").Code, name)
	}
}

// The handler's writer has every combination of methods that the server's writer may have.
func TestOptionalWriterMethodsPassThrough(t *testing.T) {
	type (
		flush  struct{ http.Flusher }
		hijack struct{ http.Hijacker }
		from   struct{ io.ReaderFrom }
		push   struct{ http.Pusher }
	)
	all := new(able)
	f, h, r, p := flush{all}, hijack{all}, from{all}, push{all}
	base := null{make(http.Header)}
	for i, w := range []http.ResponseWriter{
		base,
		struct {
			null
			flush
		}{base, f}, struct {
			null
			hijack
		}{base, h}, struct {
			null
			flush
			hijack
		}{base, f, h}, struct {
			null
			from
		}{base, r}, struct {
			null
			flush
			from
		}{base, f, r}, struct {
			null
			hijack
			from
		}{base, h, r}, struct {
			null
			flush
			hijack
			from
		}{base, f, h, r}, struct {
			null
			push
		}{base, p}, struct {
			null
			flush
			push
		}{base, f, p}, struct {
			null
			hijack
			push
		}{base, h, p}, struct {
			null
			flush
			hijack
			push
		}{base, f, h, p}, struct {
			null
			from
			push
		}{base, r, p}, struct {
			null
			flush
			from
			push
		}{base, f, r, p}, struct {
			null
			hijack
			from
			push
		}{base, h, r, p}, struct {
			null
			flush
			hijack
			from
			push
		}{base, f, h, r, p},
	} {
		rules := oneRule(quota.PerHour(100))
		rules[0].Settle = func(r serverside.Response) int64 { return r.Cost }
		var got int
		must(t, serverside.Config{Rules: rules}).Wrap(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			_, flushes := w.(http.Flusher)
			_, hijacks := w.(http.Hijacker)
			_, reads := w.(io.ReaderFrom)
			_, pushes := w.(http.Pusher)
			for bit, has := range []bool{flushes, hijacks, reads, pushes} {
				if has {
					got |= 1 << bit
				}
			}
			_, flushesError := w.(interface{ FlushError() error })
			assert.Equal(t, flushes, flushesError)
			w.WriteHeader(200)
		})).ServeHTTP(w, request("GET", "/", "192.0.2.1:1"))
		assert.Equal(t, i, got)
	}
}

// able is a writer with all optional methods.
type able struct{ done []string }

func (a *able) Flush()            { a.done = append(a.done, "flush") }
func (a *able) FlushError() error { a.done = append(a.done, "flush"); return errDown }
func (a *able) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	return nil, nil, errDown
}
func (a *able) ReadFrom(r io.Reader) (int64, error)  { return io.Copy(io.Discard, r) }
func (a *able) Push(string, *http.PushOptions) error { return errDown }
func (a *able) EnableFullDuplex() error              { a.done = append(a.done, "duplex"); return nil }
func (a *able) SetReadDeadline(time.Time) error      { a.done = append(a.done, "read"); return nil }
func (a *able) SetWriteDeadline(time.Time) error     { a.done = append(a.done, "write"); return nil }

func TestAResponseControllerReachesTheServersWriter(t *testing.T) {
	rules := oneRule(quota.PerHour(100))
	rules[0].Settle = func(r serverside.Response) int64 { return r.Cost }
	a := new(able)
	w := struct {
		null
		*able
	}{null{make(http.Header)}, a}
	must(t, serverside.Config{Rules: rules}).Wrap(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		c := http.NewResponseController(w)
		assert.NoError(t, c.EnableFullDuplex())
		assert.NoError(t, c.SetReadDeadline(time.Time{}))
		assert.NoError(t, c.SetWriteDeadline(time.Time{}))
		assert.ErrorIs(t, c.Flush(), errDown, "its error is seen")
		w.(http.Flusher).Flush()
		_, _, err := c.Hijack()
		assert.ErrorIs(t, err, errDown)
	})).ServeHTTP(w, request("GET", "/", "192.0.2.1:1"))
	assert.Equal(t, []string{"duplex", "read", "write", "flush", "flush"}, a.done)
}

func TestDenyMayFlush(t *testing.T) {
	deny := func(w http.ResponseWriter, _ *http.Request, _ serverside.Denial) {
		io.WriteString(w, "no")
		assert.NoError(t, http.NewResponseController(w).Flush())
	}
	h := must(t, serverside.Config{Rules: oneRule(quota.PerHour(1)), Audit: silent, Deny: deny}).Wrap(new(ok))
	spend(t, h, 1)
	w := ask(h, "GET", "/")
	assert.Equal(t, 429, w.Code)
	assert.True(t, w.Flushed)
}

// pinged is a Store whose Ping returns err.
type pinged struct {
	quota.Memory
	err error
}

func (p *pinged) Ping(context.Context) error { return p.err }

func TestUnreachableStoreIsReportedByNew(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		refused := errors.New("dial tcp 127.0.0.1:6379: connect: connection refused")
		var events eventLog
		cfg := serverside.Config{Rules: oneRule(quota.PerHour(1)), Store: &pinged{err: refused}, Audit: events.add}
		l := must(t, cfg)
		synctest.Wait()
		require.Len(t, events.of(serverside.StoreFailed), 1)
		assert.ErrorIs(t, events.of(serverside.StoreFailed)[0].Err, refused)
		require.NoError(t, l.Reconfigure(cfg))
		synctest.Wait()
		assert.Len(t, events.of(serverside.StoreFailed), 1, "the same Store is not asked again")
	})
}

func TestUnmatchableLimitTableIsAWarning(t *testing.T) {
	var events eventLog
	rule := func(key serverside.Key, table serverside.LimitTable) serverside.Rule {
		return serverside.Rule{Name: "key", Stage: serverside.AfterAuth, Key: key, Limits: table,
			Policies: []quota.Policy{quota.PerHour(5)}}
	}
	header := serverside.Header("X-Api-Key")
	hashed := serverside.HashKey("X-Api-Key", "k1")
	for _, r := range []serverside.Rule{
		rule(header, serverside.LimitTable{hashed: {PerHour: 1}}), rule(user, serverside.LimitTable{"ann": {PerHour: 1}}),
	} {
		must(t, serverside.Config{Rules: []serverside.Rule{r, perHour("ip", "", 10)}, Audit: events.add})
	}
	assert.Empty(t, events.of(serverside.ConfigWarning))
	must(t, serverside.Config{
		Rules: []serverside.Rule{
			rule(header, serverside.LimitTable{"k1": {}, "k2": {}, hashed: {}}), perHour("ip", "", 10),
		},
		Audit: events.add,
	})
	require.Len(t, events.of(serverside.ConfigWarning), 1)
	assert.EqualError(t, events.of(serverside.ConfigWarning)[0].Err,
		`2 of 3 keys of Limits match nothing: header X-Api-Key is known by its hash, HashKey("X-Api-Key", …)`)
}

func TestAuditAddresses(t *testing.T) {
	for _, on := range []bool{false, true} {
		var events eventLog
		h := must(t, serverside.Config{
			Rules: oneRule(quota.PerHour(1)), Key: serverside.ClientIP(netip.MustParsePrefix("192.0.2.0/24")),
			AuditAddresses: on, Audit: events.add,
		}).Wrap(new(ok))
		for range 2 {
			ask(h, "GET", "/", "X-Forwarded-For", "203.0.113.9")
		}
		require.Len(t, events.of(serverside.Denied), 1)
		assert.Equal(t, map[bool]string{true: "203.0.113.9"}[on], events.of(serverside.Denied)[0].Address)
	}
}

func TestConfigMemoryIsUsed(t *testing.T) {
	small := &quota.Memory{MaxKeys: 64}
	l := must(t, serverside.Config{Rules: oneRule(quota.PerHour(10)), Memory: small, Audit: silent})
	h := l.Wrap(new(ok))
	for i := range 10_000 {
		askFrom(netip.AddrFrom4([4]byte{10, byte(i >> 16), byte(i >> 8), byte(i)}).String()+":1", h, "GET", "/")
	}
	assert.Same(t, small, l.Memory())
	assert.Positive(t, l.Memory().Forgotten())
	assert.NotNil(t, limit(t, quota.PerHour(1)).Memory())
}
