package docs_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"net/http"
	"strconv"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/heedhttp/heed"
	"github.com/heedhttp/heed/testserver"
)

// The programs of client.md.

// sayWhen tells our own caller when to come back.
func sayWhen(w http.ResponseWriter, err error) {
	var overdue *heed.OverdueError
	if errors.As(err, &overdue) {
		w.Header().Set("Retry-After", strconv.Itoa(int(math.Ceil(overdue.Wait.Seconds()))))
		http.Error(w, "try again later", http.StatusServiceUnavailable)
		return
	}
	http.Error(w, "bad gateway", http.StatusBadGateway)
}

// story prints what became of one call.
func story(ctx context.Context, client *http.Client, url string) (string, error) {
	req, err := http.NewRequestWithContext(heed.WithLedger(ctx), "GET", url, nil)
	if err != nil {
		return "", err
	}
	resp, err := client.Do(req)
	if err != nil {
		return heed.FromContext(req.Context()).String(), err
	}
	defer resp.Body.Close()
	return heed.FromResponse(resp).String(), nil
}

func TestTheStoryOfACallIsTold(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		srv := testserver.New(t, testserver.Step{Status: 503, Delay: 20 * time.Millisecond}, testserver.Step{Status: 429, RetryAfter: 30 * time.Second, Delay: 30 * time.Millisecond})
		var log bytes.Buffer
		client := &http.Client{Transport: &heed.Transport{
			Base: srv.Transport(), Trace: heed.LogTrace(slog.New(slog.NewTextHandler(&log, nil))),
			Retry: heed.RetryPolicy{MaxWait: 20 * time.Second, Backoff: heed.Exponential(50*time.Millisecond, time.Second)},
		}}
		text, err := story(t.Context(), client, srv.URL)
		require.NoError(t, err)
		assert.Equal(t, "1. 503 in 20ms: again\n"+
			"2. waited 50ms (backoff 50ms), 429 in 30ms, asked to wait 30s by Retry-After: wait too long\n", text)
		_, err = story(t.Context(), client, srv.URL)
		require.ErrorAs(t, err, new(*heed.OverdueError))
		fmt.Println(log.String())
		fmt.Println(err)
	})
}
