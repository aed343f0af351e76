package docs_test

import (
	"bytes"
	"context"
	"log"
	"log/slog"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/heedhttp/heed"
	"github.com/heedhttp/heed/testserver"
)

// tell sends a request and logs the story of the call.
func tell(client *http.Client, url string) error {
	ctx := heed.WithLedger(context.Background())
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return err
	}
	resp, err := client.Do(req)
	log.Print(heed.FromContext(ctx))
	if err != nil {
		return err
	}
	return resp.Body.Close()
}

func TestTheLogAndTheLedgerTellOneStory(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		logger, lines := logWithoutTime(t)
		transport := &heed.Transport{
			Trace: heed.LogTrace(logger),
		}
		client := &http.Client{Transport: transport}

		srv := testserver.New(t, testserver.Step{Status: 503, Delay: 20 * time.Millisecond},
			testserver.Step{Status: 429, RetryAfter: 10 * time.Minute})
		transport.Base = srv.Transport()
		transport.Retry.Backoff = func(heed.Attempt) time.Duration { return 50 * time.Millisecond }
		require.NoError(t, tell(client, srv.URL))
		require.Error(t, tell(client, srv.URL))
		assert.Equal(t, []string{
			`level=WARN msg="request will be retried" method=GET host=server.test ` +
				`status=503 verdict=again attempt=1 max=4 wait=50ms cause=backoff`,
			`level=WARN msg="request not retried" method=GET host=server.test ` +
				`status=429 verdict="wait too long" attempt=2 max=4 wait=10m0s limit=RetryPolicy.MaxWait`,
			`1. 503 in 20ms: again`,
			`2. waited 50ms (backoff 50ms), 429 in 0s, asked to wait 10m0s by Retry-After: wait too long`,
			`level=WARN msg="request not sent" method=GET host=server.test ` +
				`cause=cool-down wait=10m0s limit=RetryPolicy.MaxWait`,
			`not sent: must wait 10m0s (cool-down), too long for RetryPolicy.MaxWait`,
		}, strings.FieldsFunc(lines.String(), func(r rune) bool { return r == '\n' }))
	})
}

// logWithoutTime returns a logger, and what it and package log write until the test ends.
func logWithoutTime(t *testing.T) (*slog.Logger, *bytes.Buffer) {
	lines, writer, flags := new(bytes.Buffer), log.Writer(), log.Flags()
	log.SetOutput(lines)
	log.SetFlags(0)
	t.Cleanup(func() {
		log.SetOutput(writer)
		log.SetFlags(flags)
	})
	options := slog.HandlerOptions{ReplaceAttr: func(_ []string, a slog.Attr) slog.Attr {
		if a.Key == slog.TimeKey {
			return slog.Attr{}
		}
		return a
	}}
	return slog.New(slog.NewTextHandler(lines, &options)), lines
}
