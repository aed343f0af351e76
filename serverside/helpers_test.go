package serverside_test

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"log"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/heedhttp/heed/quota"
	"github.com/heedhttp/heed/serverside"
)

func init() {
	slog.SetDefault(slog.New(slog.DiscardHandler)) // a log line for each 429 would hide why a test fails
	log.SetOutput(os.Stderr)                       // SetDefault has sent package log to slog too
}

// must returns a Limiter for a valid Config.
func must(t testing.TB, cfg serverside.Config) *serverside.Limiter {
	t.Helper()
	l, err := serverside.New(cfg)
	require.NoError(t, err)
	return l
}

// limit returns a Limiter with one rule for every request.
func limit(t testing.TB, policies ...quota.Policy) *serverside.Limiter {
	t.Helper()
	return must(t, serverside.Config{Rules: []serverside.Rule{{Name: "api", Policies: policies}}})
}

// ok answers 200 and counts requests.
type ok struct{ served int }

func (h *ok) ServeHTTP(w http.ResponseWriter, _ *http.Request) {
	h.served++
	io.WriteString(w, "ok")
}

// ask sends a request from 192.0.2.1, with header fields given in pairs.
func ask(h http.Handler, method, target string, fields ...string) *httptest.ResponseRecorder {
	return askFrom("192.0.2.1:1234", h, method, target, fields...)
}

func askFrom(peer string, h http.Handler, method, target string, fields ...string) *httptest.ResponseRecorder {
	r := httptest.NewRequest(method, target, nil)
	r.RemoteAddr = peer
	for i := 0; i < len(fields); i += 2 {
		r.Header.Add(fields[i], fields[i+1])
	}
	return serve(h, r)
}

func serve(h http.Handler, r *http.Request) *httptest.ResponseRecorder {
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	return w
}

// spend sends n requests, which must be admitted.
func spend(t testing.TB, h http.Handler, n int) {
	t.Helper()
	for range n {
		require.Equal(t, http.StatusOK, ask(h, "GET", "/").Code)
	}
}

// problem is the document of a denial.
type problem struct {
	Type, Title, Detail string
	Status              int
	Violated            []string `json:"violated-policies"`
	RetryAfterMS        *int64   `json:"retry_after_ms"`
}

func problemOf(t testing.TB, w *httptest.ResponseRecorder) (p problem) {
	t.Helper()
	require.Equal(t, "application/problem+json", w.Header().Get("Content-Type"))
	require.NoError(t, json.Unmarshal(w.Body.Bytes(), &p), w.Body.String())
	return p
}

// eventLog is an Audit that keeps Events.
type eventLog struct {
	mu     sync.Mutex
	events []serverside.Event // guarded by mu
}

// add keeps e unless it is routine.
func (l *eventLog) add(e serverside.Event) {
	if e.Kind != serverside.Configured && e.Kind != serverside.NearLimit {
		l.all(e)
	}
}

// all keeps every Event.
func (l *eventLog) all(e serverside.Event) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.events = append(l.events, e)
}

// of returns the Events of a kind.
func (l *eventLog) of(kind serverside.EventKind) (events []serverside.Event) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, e := range l.events {
		if e.Kind == kind {
			events = append(events, e)
		}
	}
	return events
}

// silent is an Audit that drops Events.
func silent(serverside.Event) {}

func (l *eventLog) kinds() (kinds []serverside.EventKind) {
	for _, e := range l.events {
		kinds = append(kinds, e.Kind)
	}
	return kinds
}

// store is a quota.Store made of a function.
type store func(ctx context.Context, dst []quota.Decision, charges ...quota.Charge) ([]quota.Decision, error)

func (s store) Take(ctx context.Context, dst []quota.Decision, charges ...quota.Charge) ([]quota.Decision, error) {
	return s(ctx, dst, charges...)
}

var errDown = errors.New("connection refused")

func down(context.Context, []quota.Decision, ...quota.Charge) ([]quota.Decision, error) {
	return nil, errDown
}

func oneRule(policies ...quota.Policy) []serverside.Rule {
	return []serverside.Rule{{Name: "api", Policies: policies}}
}

// recovering answers 500 to a panic.
func recovering(h http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		defer func() {
			if recover() != nil {
				w.WriteHeader(500)
			}
		}()
		h.ServeHTTP(w, r)
	})
}

func limitFields(h http.Header) http.Header {
	fields := make(http.Header)
	for name, values := range h {
		if strings.Contains(name, "Ratelimit") {
			fields[name] = values
		}
	}
	return fields
}

// answering is a Store that always decides as given.
func answering(decisions ...quota.Decision) quota.Store {
	return store(func(_ context.Context, dst []quota.Decision, _ ...quota.Charge) ([]quota.Decision, error) {
		return append(dst, decisions...), nil
	})
}
