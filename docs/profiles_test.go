package docs_test

import (
	"net/http"
	"net/http/httptest"
	"net/netip"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/heedhttp/heed/quota"
	"github.com/heedhttp/heed/serverside"
	"github.com/heedhttp/heed/serverside/profiles"
)

// newServer is the code in profiles.md.
func newServer(
	store quota.Store, tokenOf func(*http.Request) string, trusted []netip.Prefix,
	authenticate func(http.Handler) http.Handler, mux http.Handler,
) (*http.Server, error) {
	limiter, err := serverside.New(profiles.Forge(profiles.Options{
		Store:   store,                                // a redisstore.Store, if there are several processes
		Token:   serverside.KeyFunc(tokenOf),          // the client, as authentication has found out
		Proxies: serverside.Proxies{Trusted: trusted}, // they say what the client's address is
	}))
	if err != nil {
		return nil, err
	}
	handler := limiter.WrapEarly(authenticate(limiter.Wrap(mux)))
	return &http.Server{
		Addr: ":8080", Handler: http.MaxBytesHandler(handler, 1<<20),
		ReadHeaderTimeout: 5 * time.Second, ReadTimeout: 10 * time.Second, IdleTimeout: 2 * time.Minute,
	}, nil
}

func TestAProfileServesAndLimits(t *testing.T) {
	token := func(r *http.Request) string { return r.Header.Get("X-Token") }
	nobody := func(h http.Handler) http.Handler { return h }
	server, err := newServer(new(quota.Memory), token, nil, nobody, http.NotFoundHandler())
	require.NoError(t, err)
	var statuses []int
	for range 6 {
		w := httptest.NewRecorder()
		server.Handler.ServeHTTP(w, httptest.NewRequest("GET", "/login", nil))
		statuses = append(statuses, w.Code)
	}
	assert.Equal(t, []int{404, 404, 404, 404, 404, 429}, statuses)
}
