package docs_test

import (
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/heedhttp/heed/internal/redistest"
	"github.com/heedhttp/heed/redisstore"
	"github.com/heedhttp/heed/serverside"
	"github.com/heedhttp/heed/serverside/rulefile"
)

// limitsFrom is the function of redis.md.
func limitsFrom(rdb redis.UniversalClient) rulefile.Env {
	return rulefile.Env{
		Config: serverside.Config{Store: &redisstore.Store{Client: rdb}},
		Limits: map[string]serverside.Limits{"bought": &redisstore.Limits{Client: rdb}}, // limits: bought
	}
}

func TestALimitInRedisRaisesOneKeys(t *testing.T) {
	rdb := redis.NewClient(&redis.Options{
		Addr: redistest.Shared(t).Addr, DialTimeout: time.Minute, ReadTimeout: time.Minute, WriteTimeout: time.Minute,
	})
	defer rdb.Close()
	require.NoError(t, rdb.HSet(t.Context(), "heed:limits:docs-ann", "per_hour", 3).Err())
	defer rdb.Del(t.Context(), "heed:limits:docs-ann", "heed:quota:2:key:docs-ann", "heed:quota:2:key:docs-bob")
	env := limitsFrom(rdb)
	env.Config.Store.(*redisstore.Store).Timeout = time.Minute // for a busy machine
	env.Config.StoreTimeout = time.Minute
	env.Limits["bought"].(*redisstore.Limits).Timeout = time.Minute
	user := func(r *http.Request) string { return r.Header.Get("X-User") }
	env.Keys = map[string]serverside.Key{"user": serverside.KeyFunc(user)}
	rules := `rules: [{name: docs-bought, key: user, stage: after-auth, limits: bought, policies: 1/1h}]`
	cfg, err := rulefile.Parse("rules.yaml", []byte(rules), env)
	require.NoError(t, err)
	cfg.Audit = func(serverside.Event) {}
	limiter, err := serverside.New(cfg)
	require.NoError(t, err)
	h := limiter.Wrap(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	admitted := func(user string) (n int) {
		for range 5 {
			r, w := httptest.NewRequest("GET", "/", nil), httptest.NewRecorder()
			r.Header.Set("X-User", user)
			if h.ServeHTTP(w, r); w.Code == http.StatusOK {
				n++
			}
		}
		return n
	}
	assert.Equal(t, 3, admitted("docs-ann"))
	assert.Equal(t, 1, admitted("docs-bob"))
}
