package clientside_test

import (
	"context"
	"net/http"
	"sync"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/heedhttp/heed"
	"github.com/heedhttp/heed/serverside/metrics/clientside"
)

// balances are a Budget that says the same each time.
type balances map[string]float64

func (b balances) Balance(key string) float64 { return b[key] }

// failing is a client that retries once, of a server that is down.
func failing(m *clientside.Metrics, budget heed.Budget) *http.Client {
	return &http.Client{Transport: &heed.Transport{
		Base:  answer(func(string) (int, error) { return 503, nil }),
		Retry: heed.RetryPolicy{MaxAttempts: 2}, Budget: budget, Trace: m.Trace(nil),
	}}
}

func get(t *testing.T, client *http.Client, url string) {
	resp, err := client.Get(url)
	require.NoError(t, err)
	resp.Body.Close()
}

func TestTheRetriesThatAreLeftAreShown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m, reg := open(t, clientside.Options{Hosts: 2})
		budget := new(heed.LocalBudget)
		m.Watch(budget)
		client := failing(m, budget)
		left := func() string { return shown(t, reg, "heed_budget_retries_left") }
		assert.Empty(t, left(), "nothing was sent")
		for _, host := range []string{"a.example", "A.example:80", "b.example:8080", "c.example"} {
			get(t, client, "http://"+host)
		}
		budget.Deposit(t.Context(), "http://a.example key:c0ffee")
		assert.Equal(t, `heed_budget_retries_left{host="a.example"} 1.2
heed_budget_retries_left{host="b.example:8080"} 2.1
`, left(), "of hosts that have a label")
		get(t, client, "http://a.example")
		assert.Contains(t, left(), "{host=\"a.example\"} 0.3\n", "which is not enough for a retry")
	})
}

func TestAHostWithSeveralBalancesShowsTheLeast(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m, reg := open(t, clientside.Options{})
		m.Watch(balances{"http://a.example": 5, "https://a.example": 3, "http://b.example": 1})
		m.Watch(balances{"http://a.example": 4, "https://a.example": 7, "http://b.example": 2})
		client := failing(m, nil)
		for _, url := range []string{"http://a.example", "https://a.example", "http://b.example"} {
			get(t, client, url)
		}
		assert.Equal(t, `heed_budget_retries_left{host="a.example"} 3
heed_budget_retries_left{host="b.example"} 1
`, shown(t, reg, "heed_budget_retries_left"))
	})
}

func TestScrapesMayReadABudgetThatIsUsed(t *testing.T) {
	m, reg := open(t, clientside.Options{})
	budget := new(heed.LocalBudget)
	client := &http.Client{Transport: &heed.Transport{
		Base: answer(func(string) (int, error) { return 200, nil }), Budget: budget, Trace: m.Trace(nil)}}
	var group sync.WaitGroup
	for range 4 {
		group.Go(func() {
			m.Watch(budget)
			for range 50 {
				get(t, client, "http://a.example")
				budget.Withdraw(context.Background(), "http://a.example")
				shown(t, reg)
			}
		})
	}
	group.Wait()
	assert.Contains(t, shown(t, reg, "heed_budget_retries_left"), `{host="a.example"} `)
}
