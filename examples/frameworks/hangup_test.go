package main

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/heedhttp/heed/serverside"
)

// A handler that returns because its client has gone writes nothing. gin then writes 200 for it.
func TestAClientThatHangsUpIsForgivenNothing(t *testing.T) {
	each(t, func(t *testing.T, w way) {
		srv, events := w.serveLogins(t)
		logIn(t, srv, wrong, wrong, wrong)
		told := events.count(serverside.ResponseUnseen)
		ctx, hangUp := context.WithCancel(t.Context())
		time.AfterFunc(time.Millisecond, hangUp)
		_, err := srv.Transport().RoundTrip(attempt(t, srv, "POST", "/login", slow).WithContext(ctx))
		require.ErrorIs(t, err, context.Canceled)
		synctest.Wait() // until the handler has returned
		assert.Equal(t, told, events.count(serverside.ResponseUnseen), "the server is not to blame")
		assert.Equal(t, []int{401, 429}, logIn(t, srv, wrong, wrong))
	})
}
