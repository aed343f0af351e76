package testserver_test

import (
	"context"
	"io"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/heedhttp/heed/testserver"
)

// Each case leaves a goroutine in the bubble. If it were not ended, synctest.Test would panic.
func TestABubbleEndsWhateverIsLeftOpen(t *testing.T) {
	long := testserver.Step{Body: strings.Repeat("x", 1<<20)}
	cases := map[string]func(t *testing.T){
		"an unread body": func(t *testing.T) {
			srv := testserver.New(t, long)
			_, err := (&http.Client{Transport: srv.Transport()}).Get(srv.URL)
			require.NoError(t, err)
		},
		"a half-read body": func(t *testing.T) {
			srv := testserver.New(t, long)
			resp, err := (&http.Client{Transport: srv.Transport()}).Get(srv.URL)
			require.NoError(t, err)
			_, err = resp.Body.Read(make([]byte, 10))
			require.NoError(t, err)
		},
		"a body being read": func(t *testing.T) {
			srv := testserver.NewLimited(t, func(http.Handler) http.Handler {
				return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
					w.(http.Flusher).Flush()
					<-r.Context().Done()
				})
			})
			resp, err := (&http.Client{Transport: srv.Transport()}).Get(srv.URL)
			require.NoError(t, err)
			go io.ReadAll(resp.Body)
			synctest.Wait()
		},
		"a request without an answer": func(t *testing.T) {
			srv := testserver.New(t, testserver.Step{Delay: 1000 * time.Hour})
			go http.NewRequest("GET", srv.URL, nil)
			go (&http.Client{Transport: srv.Transport()}).Get(srv.URL)
			synctest.Wait()
			require.Len(t, srv.Log(), 1)
		},
		"a request body that does not end": func(t *testing.T) {
			srv := testserver.New(t)
			body, _ := io.Pipe()
			go func() {
				<-t.Context().Done()
				body.Close()
			}()
			go (&http.Client{Transport: srv.Transport()}).Post(srv.URL, "", body)
			synctest.Wait()
		},
		"a large request body that is not read": func(t *testing.T) {
			srv := testserver.NewLimited(t, func(http.Handler) http.Handler { return http.NotFoundHandler() })
			resp,
				err := (&http.Client{Transport: srv.Transport()}).Post(srv.URL, "", strings.NewReader(strings.Repeat("x", 1<<20)))
			if err == nil {
				require.NoError(t, resp.Body.Close())
			}
		},
		"idle connections": func(t *testing.T) {
			srv := testserver.New(t)
			get(t, &http.Client{Transport: srv.Transport()}, srv.URL)
		},
		"a cancelled request": func(t *testing.T) {
			srv := testserver.New(t, testserver.Step{Delay: time.Hour})
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			req, err := http.NewRequestWithContext(ctx, "GET", srv.URL, nil)
			require.NoError(t, err)
			_, err = srv.Transport().RoundTrip(req)
			require.ErrorIs(t, err, context.DeadlineExceeded)
		},
	}
	for name, leave := range cases {
		t.Run(name, func(t *testing.T) { synctest.Test(t, leave) })
	}
}

func TestCheckNamesUnclosedBodies(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &fakeTB{}
		srv := testserver.New(f)
		c := &http.Client{Transport: srv.Transport()}
		get(t, c, srv.URL+"/closed")
		_, err := c.Get(srv.URL + "/left?secret=1")
		require.NoError(t, err)
		late, err := c.Get(srv.URL + "/late")
		require.NoError(t, err)

		srv.Check(f)
		srv.Check(f)
		require.Empty(t, f.failures, "a deferred Close may still follow")
		require.NoError(t, late.Body.Close())
		f.end()
		require.Equal(t, []string{`testserver: response bodies that were not closed: ["GET /left: 200 OK"]`}, f.failures)
	})
}

func TestNothingIsReportedWithoutCheck(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &fakeTB{}
		srv := testserver.New(f)
		_, err := (&http.Client{Transport: srv.Transport()}).Get(srv.URL)
		require.NoError(t, err)
		f.end()
		require.Empty(t, f.failures)
	})
}

func TestAHandlerThatDoesNotEndIsReported(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &fakeTB{}
		srv := testserver.NewLimited(f, func(http.Handler) http.Handler {
			return http.HandlerFunc(func(http.ResponseWriter, *http.Request) { time.Sleep(time.Minute) })
		})
		go (&http.Client{Transport: srv.Transport()}).Get(srv.URL)
		synctest.Wait()
		f.end()
		require.Len(t, f.failures, 1)
		require.Contains(t, f.failures[0], "a handler still runs")
		time.Sleep(time.Minute)
	})
}

func TestTheNetworkIsDownAfterTheTest(t *testing.T) {
	for name, start := range map[string]func(testing.TB,
		...testserver.Step) *testserver.Server{"memory": testserver.New, "TCP": testserver.NewTCP} {
		t.Run(name, func(t *testing.T) {
			f := &fakeTB{}
			srv := start(f)
			f.end()
			_, err := (&http.Client{Transport: srv.Transport()}).Get(srv.URL)
			require.Error(t, err)
		})
	}
}
