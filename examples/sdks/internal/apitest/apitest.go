// Package apitest tests clients of APIs against a testserver that plays the API.
package apitest

import (
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/heedhttp/heed/contract"
	"github.com/heedhttp/heed/testserver"
)

// Start starts a server in memory. Before that it waits for 2026, because a bubble begins in 2000,
// when Unix time had nine digits.
func Start(t *testing.T, steps ...testserver.Step) *testserver.Server {
	time.Sleep(time.Until(time.Date(2026, time.November, 21, 0, 0, 0, 0, time.UTC)))
	return testserver.New(t, steps...)
}

// JSON returns a step with a body and fields, as names and values in turn.
func JSON(status int, body string, fields ...string) testserver.Step {
	h := http.Header{"Content-Type": {"application/json; charset=utf-8"}}
	for i := 0; i+1 < len(fields); i += 2 {
		h.Set(fields[i], fields[i+1])
	}
	return testserver.Step{Status: status, Header: h, Body: body}
}

// Waited asserts that one call was sent again after each wait, and that the client kept the
// contract.
func Waited(t *testing.T, srv *testserver.Server, waits ...time.Duration) {
	t.Helper()
	srv.Check(t)
	Attempts(t, srv.Log(), waits...)
}

// Attempts asserts that log is of one call that was sent again after each wait, plus at most
// heed's jitter, and that the whole body arrived with each attempt.
func Attempts(t *testing.T, log []contract.Exchange, waits ...time.Duration) {
	t.Helper()
	require.NoError(t, contract.Check(log, contract.Client()...))
	require.Len(t, log, len(waits)+1)
	assert.NotEmpty(t, log[0].BodySHA256)
	for i, wait := range waits {
		before, after := log[i], log[i+1]
		took := after.Arrived.Sub(before.Answered)
		assert.GreaterOrEqual(t, took, wait)
		assert.LessOrEqual(t, took, wait+min(wait*3/10, 10*time.Second))
		assert.Equal(t, before.BodySHA256, after.BodySHA256)
		assert.Equal(t, before.BodyLength, after.BodyLength)
		assert.Equal(t, before.Method+before.URL, after.Method+after.URL)
	}
}
