package main

import (
	"bytes"
	"compress/gzip"
	"context"
	"fmt"
	"io"
	"maps"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-github/v84/github"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/heedhttp/heed"
	"github.com/heedhttp/heed/examples/sdks/internal/apitest"
	"github.com/heedhttp/heed/testserver"
)

func Example() {
	main()
	// Output: opened issue 7
}

// spent returns the fields of a quota that is used up, and restored after a while.
func spent(in time.Duration) []string {
	return []string{"X-RateLimit-Limit", "5000", "X-RateLimit-Remaining", "0", "X-RateLimit-Used", "5000",
		"X-RateLimit-Resource", "core", "X-RateLimit-Reset", strconv.FormatInt(time.Now().Add(in).Unix(), 10)}
}

func open(client *github.Client, body string) (*github.Issue, error) {
	request := &github.IssueRequest{Title: new("Hello"), Body: &body}
	issue, _, err := client.Issues.Create(context.Background(), "heedhttp", "heed", request)
	return issue, err
}

const (
	exceeded = `{"message": "API rate limit exceeded for user ID 1.",
		"documentation_url": "https://docs.github.com/rest/overview/resources-in-the-rest-api#rate-limiting"}`
	secondary = `{"message": "You have exceeded a secondary rate limit.", "documentation_url":
		"https://docs.github.com/rest/overview/rate-limits-for-the-rest-api#about-secondary-rate-limits"}`
	forbidden = `{"message": "Resource not accessible by personal access token",
		"documentation_url": "https://docs.github.com/rest/issues"}`
)

func TestAnIssueIsOpenedWhenTheQuotaIsRestored(t *testing.T) {
	for _, status := range []int{403, 429} {
		synctest.Test(t, func(t *testing.T) {
			srv := apitest.Start(t)
			srv.Route("/", apitest.JSON(status, exceeded, spent(45*time.Second)...), apitest.JSON(201, `{"number": 12}`))
			issue, err := open(newClient(srv.Transport()), strings.Repeat("x", 1<<20))
			require.NoError(t, err)
			assert.Equal(t, 12, issue.GetNumber())
			assert.Greater(t, srv.Log()[1].BodyLength, int64(1<<20))
			apitest.Waited(t, srv, 45*time.Second)
		})
	}
}

func TestASecondaryLimitIsWaitedOut(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		srv := apitest.Start(t,
			apitest.JSON(403, secondary, "Retry-After", "30"),
			// without Retry-After a minute, as GitHub documents
			apitest.JSON(403, secondary, "X-RateLimit-Remaining", "4000", "X-RateLimit-Reset", "1795000000"),
			compressed(t, apitest.JSON(403, secondary)),
			apitest.JSON(201, `{"number": 12}`),
		)
		issue, err := open(newClient(srv.Transport()), "body")
		require.NoError(t, err)
		assert.Equal(t, 12, issue.GetNumber())
		apitest.Waited(t, srv, 30*time.Second, time.Minute, time.Minute)
	})
}

func compressed(t *testing.T, s testserver.Step) testserver.Step {
	var b bytes.Buffer
	w := gzip.NewWriter(&b)
	_, err := w.Write([]byte(s.Body))
	require.NoError(t, err)
	require.NoError(t, w.Close())
	s.Header.Set("Content-Encoding", "gzip")
	s.Body = b.String()
	return s
}

func TestAForbiddenRequestIsNotRetried(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		srv := apitest.Start(t, apitest.JSON(403, forbidden, "X-RateLimit-Remaining", "4000"))
		_, err := open(newClient(srv.Transport()), "body")
		var response *github.ErrorResponse
		require.ErrorAs(t, err, &response)
		assert.Equal(t, "Resource not accessible by personal access token", response.Message)
		apitest.Attempts(t, srv.Log()) // not Check: go-github leaves the body of an error open
	})
}

func TestNothingIsSentUntilADistantResetOfTheQuota(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		srv := apitest.Start(t)
		srv.Route("/", apitest.JSON(403, exceeded, spent(40*time.Minute)...), apitest.JSON(201, `{"number": 12}`))
		client := newClient(srv.Transport())
		_, err := open(client, "body")
		var limited *github.RateLimitError
		require.ErrorAs(t, err, &limited)
		assert.Equal(t, "API rate limit exceeded for user ID 1.", limited.Message)
		assert.Equal(t, 40*time.Minute, time.Until(limited.Rate.Reset.Time))
		_, err = open(client, "body")
		var overdue *heed.OverdueError
		require.ErrorAs(t, err, &overdue)
		apitest.Attempts(t, srv.Log())
		time.Sleep(41 * time.Minute)
		issue, err := open(client, "body")
		require.NoError(t, err)
		assert.Equal(t, 12, issue.GetNumber())
	})
}

func TestAListThatUsesUpTheQuotaArrivesWhole(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var list strings.Builder
		for i := range 1000 {
			fmt.Fprintf(&list, `,{"number": %d, "body": %q}`, i, strings.Repeat("x", 200))
		}
		srv := apitest.Start(t)
		srv.Route("/", apitest.JSON(200, "["+list.String()[1:]+"]", spent(time.Hour)...))
		client := newClient(srv.Transport())
		issues, _, err := client.Issues.ListByRepo(context.Background(), "heedhttp", "heed", nil)
		require.NoError(t, err)
		require.Len(t, issues, 1000)
		assert.Equal(t, 999, issues[999].GetNumber())
		apitest.Waited(t, srv)
	})
}

func TestASlowResponseArrivesWhole(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		srv := testserver.NewLimited(t, func(http.Handler) http.Handler {
			return http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
				step := apitest.JSON(200, "", spent(time.Hour)...)
				maps.Copy(w.Header(), step.Header)
				for _, piece := range []string{`[{"number": 1}`, `,{"number": 2}`, `]`} {
					_, _ = io.WriteString(w, piece)
					w.(http.Flusher).Flush()
					time.Sleep(3 * time.Second) // longer than heed reads it
				}
			})
		})
		client := newClient(srv.Transport())
		issues, _, err := client.Issues.ListByRepo(context.Background(), "heedhttp", "heed", nil)
		require.NoError(t, err)
		require.Len(t, issues, 2)
		assert.Equal(t, 2, issues[1].GetNumber())
		apitest.Attempts(t, srv.Log())
	})
}

func TestTheCallAfterTheLastOfAQuotaWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		srv := apitest.Start(t)
		srv.Route("/", apitest.JSON(201, `{"number": 11}`, spent(30*time.Second)...),
			apitest.JSON(403, exceeded, spent(30*time.Second)...), apitest.JSON(201, `{"number": 12}`))
		client := newClient(srv.Transport())
		for number := 11; number <= 12; number++ {
			issue, err := open(client, strconv.Itoa(number))
			require.NoError(t, err)
			assert.Equal(t, number, issue.GetNumber())
		}
		srv.Check(t)
		apitest.Attempts(t, srv.Log()[1:], 30*time.Second)
	})
}

func TestAnIssueThatMayBeOpenIsNotRepeated(t *testing.T) {
	failed := apitest.JSON(502, `{"message": "Server Error"}`, "Retry-After", "1")
	for _, step := range []testserver.Step{{Drop: true}, failed} {
		synctest.Test(t, func(t *testing.T) {
			srv := apitest.Start(t, step)
			_, err := open(newClient(srv.Transport()), "body")
			require.Error(t, err)
			apitest.Attempts(t, srv.Log())
		})
	}
}

func TestOneRefusalDelaysAllRequests(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		srv := apitest.Start(t)
		srv.Route("/", apitest.JSON(403, secondary, "Retry-After", "20"), apitest.JSON(201, `{"number": 12}`),
			testserver.Step{Body: "{}", Times: -1})
		client := newClient(srv.Transport())
		start := time.Now()
		var calls sync.WaitGroup
		for i := range 20 {
			calls.Go(func() {
				time.Sleep(time.Duration(i) * 100 * time.Millisecond)
				_, err := open(client, strconv.Itoa(i))
				assert.NoError(t, err)
			})
		}
		calls.Wait()
		require.Len(t, srv.Log(), 21)
		for _, e := range srv.Log()[1:] {
			assert.GreaterOrEqual(t, e.Arrived.Sub(start), 20*time.Second)
		}
		srv.Check(t)
	})
}

func TestAGraphQLErrorInA200IsRetried(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		srv := apitest.Start(t)
		const limited = `{"errors": [{"type": "RATE_LIMITED", "message": "API rate limit exceeded"}]}`
		srv.Route("/", apitest.JSON(200, limited, spent(15*time.Second)...),
			apitest.JSON(200, `{"data": {"viewer": {"login": "heed"}}}`))
		client := newClient(srv.Transport())
		req, err := client.NewRequest("POST", "graphql", map[string]string{"query": "{viewer{login}}"})
		require.NoError(t, err)
		var answer struct {
			Data struct{ Viewer struct{ Login string } }
		}
		_, err = client.Do(context.Background(), req, &answer)
		require.NoError(t, err)
		assert.Equal(t, "heed", answer.Data.Viewer.Login)
		apitest.Waited(t, srv, 15*time.Second)
	})
}
