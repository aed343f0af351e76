package main

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/slack-go/slack"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/heedhttp/heed/examples/sdks/internal/apitest"
	"github.com/heedhttp/heed/testserver"
)

// It is not an Example, which would run in real time: there heed reads a body only if it comes
// within a second.
func TestTheExamplePostsItsMessage(t *testing.T) {
	out, err := os.Create(filepath.Join(t.TempDir(), "out"))
	require.NoError(t, err)
	defer out.Close()
	defer func(before *os.File) { os.Stdout = before }(os.Stdout)
	os.Stdout = out
	synctest.Test(t, func(*testing.T) { main() })
	printed, err := os.ReadFile(out.Name())
	require.NoError(t, err)
	assert.Equal(t, "posted message 1.7\n", string(printed))
}

const (
	limited = `{"ok": false, "error": "ratelimited"}`
	posted  = `{"ok": true, "channel": "C1", "ts": "1.7"}`
)

// start starts a Slack that limits each method.
func start(t *testing.T) *testserver.Server {
	srv := apitest.Start(t)
	srv.Key = method
	return srv
}

func post(client *slack.Client, text string) (timestamp string, err error) {
	_, timestamp, err = client.PostMessage("C1", slack.MsgOptionText(text, false))
	return timestamp, err
}

func TestAMessageIsPostedAfterTheWait(t *testing.T) {
	for _, status := range []int{200, 429} {
		synctest.Test(t, func(t *testing.T) {
			srv := start(t)
			srv.Route("/api/chat.postMessage", apitest.JSON(status, limited, "Retry-After", "30"), apitest.JSON(200, posted))
			timestamp, err := post(newClient(srv.Transport(), "xoxb-1"), strings.Repeat("x", 30_000))
			require.NoError(t, err)
			assert.Equal(t, "1.7", timestamp)
			assert.Greater(t, srv.Log()[1].BodyLength, int64(30_000))
			apitest.Waited(t, srv, 30*time.Second)
		})
	}
}

func TestALastRefusalIsAnErrorOfSlackGo(t *testing.T) {
	for status, want := range map[int]string{200: "ratelimited", 429: "slack rate limit exceeded, retry after 10s"} {
		synctest.Test(t, func(t *testing.T) {
			srv := start(t)
			refusal := apitest.JSON(status, limited, "Retry-After", "10")
			refusal.Times = -1
			srv.Route("/api/chat.postMessage", refusal)
			_, err := post(newClient(srv.Transport(), "xoxb-1"), "Hello")
			assert.EqualError(t, err, want)
			apitest.Waited(t, srv, 10*time.Second, 10*time.Second, 10*time.Second)
		})
	}
}

func TestAnErrorOf200IsNotRepeated(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		srv := start(t)
		missing := apitest.JSON(200, `{"ok": false, "error": "channel_not_found"}`, "Retry-After", "10")
		srv.Route("/api/chat.postMessage", missing)
		_, err := post(newClient(srv.Transport(), "xoxb-1"), "Hello")
		assert.EqualError(t, err, "channel_not_found")
		apitest.Waited(t, srv)
	})
}

func TestTheLimitOfOneMethodDelaysNoOther(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		srv := start(t)
		srv.Route("/api/chat.postMessage", apitest.JSON(429, limited, "Retry-After", "30"), apitest.JSON(200, posted))
		srv.Route("/api/auth.test", apitest.JSON(200, `{"ok": true, "user": "heed"}`))
		client := newClient(srv.Transport(), "xoxb-1")
		begin := time.Now()
		done := make(chan error)
		go func() {
			_, err := post(client, "Hello")
			done <- err
		}()
		synctest.Wait()
		who, err := client.AuthTest()
		require.NoError(t, err)
		assert.Equal(t, "heed", who.User)
		assert.Zero(t, time.Since(begin))
		require.NoError(t, <-done)
		assert.GreaterOrEqual(t, time.Since(begin), 30*time.Second)
		srv.Check(t)
	})
}

// upload sends a file as slack-go does: from a pipe, without GetBody.
func upload(client *slack.Client, size int) error {
	return client.UploadToURL(context.Background(), slack.UploadToURLParameters{
		UploadURL: "https://files.slack.com/upload/v1/abc", Filename: "a.txt",
		Reader: strings.NewReader(strings.Repeat("x", size)),
	})
}

func TestASmallFileIsUploadedAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		srv := start(t)
		srv.Route("/upload/v1/abc", apitest.JSON(429, limited, "Retry-After", "30"), apitest.JSON(200, `{"ok": true}`))
		require.NoError(t, upload(newClient(srv.Transport(), "xoxb-1"), 900_000))
		assert.Greater(t, srv.Log()[1].BodyLength, int64(900_000))
		apitest.Waited(t, srv, 30*time.Second)
	})
}

func TestALargeFileIsUploadedOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		srv := start(t)
		srv.Route("/upload/v1/abc", apitest.JSON(429, limited, "Retry-After", "30"))
		var refused *slack.RateLimitedError
		require.ErrorAs(t, upload(newClient(srv.Transport(), "xoxb-1"), 2<<20), &refused)
		assert.Equal(t, 30*time.Second, refused.RetryAfter)
		apitest.Waited(t, srv)
	})
}
