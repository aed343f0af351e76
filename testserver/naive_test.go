package testserver_test

import (
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/heedhttp/heed/contract"
	"github.com/heedhttp/heed/testserver"
)

// naive retries at once, and gives up after twenty retries.
func naive(t testing.TB, c *http.Client, method, url, body string) {
	t.Helper()
	for range 21 {
		req, err := http.NewRequest(method, url, strings.NewReader(body))
		require.NoError(t, err)
		resp, err := c.Do(req)
		if err != nil {
			continue
		}
		resp.Body.Close()
		if resp.StatusCode == 200 {
			return
		}
	}
}

// brokenClauses counts the breaches in an error of contract.Check by clause.
func brokenClauses(err error) map[string]int {
	ids := make(map[string]int)
	var joined interface{ Unwrap() []error }
	if errors.As(err, &joined) {
		for _, err := range joined.Unwrap() {
			var breach *contract.BreachError
			if errors.As(err, &breach) {
				ids[breach.Clause.ID]++
			}
		}
	}
	return ids
}

func TestANaiveClientBreaksFourClauses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		srv := testserver.New(t, testserver.Step{Status: 429, RetryAfter: time.Minute, Times: 21})
		naive(t, &http.Client{Transport: srv.Transport()}, "GET", srv.URL+"/a?token=secret", "")
		err := contract.Check(srv.Log(), contract.Client()...)
		assert.Equal(t, map[string]int{"client/wait-seconds": 20, "client/cool-down": 20, "client/attempts": 1,
			"client/budget": 1}, brokenClauses(err))
		assert.NotContains(t, err.Error(), "secret")

		f := &fakeTB{}
		srv.Check(f)
		require.Len(t, f.failures, 1)
		require.Contains(t, f.failures[0], "client/budget: MUST: Retries are at most")
	})
}

func TestANaivePostBreaksFourClauses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		srv := testserver.New(t,
			testserver.Step{Status: 503, RetryAfter: 10 * time.Second, Times: 12}, testserver.Step{Drop: true, Times: 9})
		naive(t, &http.Client{Transport: srv.Transport()}, "POST", srv.URL, "pay")
		assert.Equal(t,
			map[string]int{"client/wait-seconds": 20, "client/idempotent": 20, "client/attempts": 1, "client/budget": 1},
			brokenClauses(contract.Check(srv.Log(), contract.Client()...)))
	})
}

func TestCheckTakesFilters(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &fakeTB{}
		defer f.end()
		srv := testserver.New(f, testserver.Step{Status: 503, Times: 2})
		naive(t, &http.Client{Transport: srv.Transport()}, "POST", srv.URL, "pay")
		srv.Check(f, contract.HeedOnly)
		srv.Check(f, contract.MustOnly, contract.Except("client/idempotent"))
		require.Empty(t, f.failures)
		srv.Check(f, contract.MustOnly, contract.IETFOnly)
		require.Len(t, f.failures, 1)
		require.Contains(t, f.failures[0], "contract: client/idempotent: MUST")
		require.PanicsWithValue(t, fatal("testserver: Check: the filters leave no clause"),
			func() { srv.Check(f, contract.HeedOnly, contract.IETFOnly) })
	})
}

// All workers wait exactly as long as they should, and return together.
func TestAHerdBreaksItsClause(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		srv := testserver.New(t, testserver.Step{Status: 429, RetryAfter: 10 * time.Second, Times: 5})
		c := &http.Client{Transport: srv.Transport()}
		var wg sync.WaitGroup
		for i := range 5 {
			wg.Go(func() {
				get(t, c, fmt.Sprint(srv.URL, "/", i))
				time.Sleep(10 * time.Second)
				get(t, c, fmt.Sprint(srv.URL, "/", i))
			})
		}
		wg.Wait()
		assert.Equal(t, map[string]int{"client/herd": 1}, brokenClauses(contract.Check(srv.Log(), contract.Client()...)))
	})
}

// A real client that is a millisecond early breaks the clause.
func TestAWaitIsJudgedToTheMillisecond(t *testing.T) {
	for wait, want := range map[time.Duration]map[string]int{
		10 * time.Second:                      {},
		10*time.Second - time.Millisecond:     {"client/wait-seconds": 1, "client/cool-down": 1},
		10*time.Second + 300*time.Millisecond: {},
	} {
		synctest.Test(t, func(t *testing.T) {
			srv := testserver.New(t, testserver.Step{Status: 429, RetryAfter: 10 * time.Second})
			c := &http.Client{Transport: srv.Transport()}
			get(t, c, srv.URL)
			time.Sleep(wait)
			get(t, c, srv.URL)
			assert.Equal(t, want, brokenClauses(contract.Check(srv.Log(), contract.Client()...)), "%v", wait)
		})
	}
}
