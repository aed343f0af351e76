package serverside_test

import (
	"context"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/assert"

	"github.com/heedhttp/heed/serverside"
)

// Handlers often return without writing when the client disconnects. Frameworks such as gin then
// write 200.
func TestResponseToADisconnectedClientIsNoSuccess(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := must(t, serverside.Config{
			Audit: silent, Rules: logins(),
		}).Wrap(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.Context().Err() != nil {
				w.WriteHeader(http.StatusOK)
				return
			}
			w.WriteHeader(http.StatusUnauthorized)
		}))
		guess := func(ctx context.Context) int {
			r := httptest.NewRequestWithContext(ctx, "POST", "/login", strings.NewReader("user=ann&password=guess"))
			r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
			return serve(h, r).Code
		}
		gone, hangUp := context.WithCancel(t.Context())
		hangUp()
		for range 4 {
			assert.Equal(t, 401, guess(t.Context()))
		}
		guess(gone)
		assert.Equal(t, 429, guess(t.Context()), "it has forgiven nothing, and was charged")
	})
}
