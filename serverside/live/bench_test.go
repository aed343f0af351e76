package live_test

import (
	"fmt"
	"net/http"
	"net/url"
	"testing"

	"github.com/heedhttp/heed/quota"
	"github.com/heedhttp/heed/serverside"
	"github.com/heedhttp/heed/serverside/live"
)

// null is a ResponseWriter that discards what is written.
type null struct{ header http.Header }

func (w null) Header() http.Header         { return w.header }
func (w null) Write(b []byte) (int, error) { return len(b), nil }
func (w null) WriteHeader(int)             {}

// BenchmarkRequest measures what the page adds to a request.
func BenchmarkRequest(b *testing.B) {
	silent := serverside.Config{Audit: func(serverside.Event) {}, Observe: func(serverside.Observation) {}}
	for _, c := range []struct {
		name   string
		policy quota.Policy
	}{{"admitted", quota.PerSecond(1e9)}, {"denied", quota.PerDay(1)}} {
		instrumented := new(live.Page).Instrument(silent)
		for name, cfg := range map[string]serverside.Config{"alone": silent, "with page": instrumented} {
			cfg.Rules = []serverside.Rule{{Name: "api", Policies: []quota.Policy{c.policy}}}
			l, err := serverside.New(cfg)
			if err != nil {
				b.Fatal(err)
			}
			h := l.Wrap(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
			b.Run(c.name+"/"+name, func(b *testing.B) {
				b.ReportAllocs()
				b.RunParallel(func(pb *testing.PB) {
					w, r := null{make(http.Header)}, &http.Request{Method: "GET", RemoteAddr: "192.0.2.1:1234"}
					for pb.Next() {
						clear(w.header)
						h.ServeHTTP(w, r)
					}
				})
			})
		}
	}
}

// BenchmarkObserve measures the worst case, a new key for each request.
func BenchmarkObserve(b *testing.B) {
	observe := new(live.Page).Instrument(serverside.Config{}).Observe
	var all []serverside.Observation
	l, err := serverside.New(serverside.Config{
		Rules:   []serverside.Rule{api(quota.PerSecond(1e9))},
		Observe: func(o serverside.Observation) { all = append(all, o) },
	})
	if err != nil {
		b.Fatal(err)
	}
	for i := range 1000 {
		r := &http.Request{Method: "GET", URL: &url.URL{Path: "/v1/"}, Header: http.Header{"X-User": {fmt.Sprint(i)}}}
		l.Wrap(http.NotFoundHandler()).ServeHTTP(null{make(http.Header)}, r)
	}
	b.ReportAllocs()
	for i := 0; b.Loop(); i++ {
		observe(all[i%len(all)])
	}
}
