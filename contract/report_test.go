package contract_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/heedhttp/heed/contract"
)

// breachesOf returns the breaches in an error of Check.
func breachesOf(t testing.TB, err error) (all []*contract.BreachError) {
	t.Helper()
	for _, err := range err.(interface{ Unwrap() []error }).Unwrap() {
		var b *contract.BreachError
		require.ErrorAs(t, err, &b)
		all = append(all, b)
	}
	return all
}

func TestTheReportHasEveryClause(t *testing.T) {
	l := log(
		entry{path: "/a?token=secret", status: 429, fields: []string{"Retry-After", "10"}},
		entry{at: time.Second, path: "/a?token=secret", status: 429, fields: []string{"Retry-After", "0"}},
	)
	l[0].URL = "http://user:secret@api.example/a?token=secret"
	err := contract.Check(l, clause(t, "client/cool-down"), clause(t, "server/retry-after"), clause(t, "client/attempts"))
	require.EqualError(t, err,
		"contract: client/cool-down: MUST: "+clause(t, "client/cool-down").Text+" "+
			`(heed: cool-down; RFC 6585 section 4)
	want no arrival before 10s, 10s after the answer
	got  one at 1s, 9s too early
	#0 at 0s: GET http://api.example/a?…: 429
	#1 at 1s: GET http://api.example/a?…: 429
contract: server/retry-after: MUST: `+"A 429 has exactly one Retry-After, of at least one second or with a future "+
			"date, unless it says that the request will never be admitted. "+`(RFC 9110 section 10.2.3; RFC 6585 section 4)
	want one Retry-After of at least 1, or a future date
	got  1: "0"
	#1 at 1s: GET http://api.example/a?…: 429`)

	var breach *contract.BreachError
	require.True(t, errors.As(err, &breach))
	assert.Equal(t, "client/cool-down", breach.Clause.ID)
	assert.Equal(t, []int{0, 1}, breach.Breach.Exchanges)
}

func TestTheReportCountsRepeatedBreaches(t *testing.T) {
	l := log(times(30, time.Second, entry{method: "POST", path: "/pay", status: 503})...)
	err := contract.Check(l, clause(t, "client/idempotent"))
	breaches := breachesOf(t, err)
	require.Len(t, breaches, 29)
	require.Equal(t, []int{28, 29}, breaches[28].Breach.Exchanges)
	head := "contract: client/idempotent: MUST: " + breaches[0].Clause.Text + ` (RFC 9110 section 9.2.2)
	want no retry after 503
	got  a retry
`
	note := `
contract: these breaches take identical requests for attempts of one: client/idempotent
	if they are different requests, give each an X-Request-Id`
	require.EqualError(t, err, head+`	#0 at 0s: POST http://api.example/pay: 503
	#1 at 1s: POST http://api.example/pay: 503
	and 28 more: #2, #3, #4, #5, #6, …`+note)
	require.EqualError(t, breaches[28], head+`	#28 at 28s: POST http://api.example/pay: 503
	#29 at 29s: POST http://api.example/pay: 503`+note)
	require.ErrorContains(t, contract.Check(l[:7], clause(t, "client/idempotent")), "and 5 more: #2, #3, #4, #5, #6\n")
}

func TestTheReportGivesAdviceOnIdenticalRequestsOnce(t *testing.T) {
	post := entry{method: "POST", status: 503, fields: ra("10")}
	err := contract.Check(log(times(30, 0, post)...), contract.Client()...)
	require.Less(t, strings.Count(err.Error(), "\n"), 30)
	require.ErrorContains(t, err, "attempts of one: "+
		"client/wait-seconds, client/attempts, client/budget, client/idempotent\n\tif")
	require.Equal(t, 1, strings.Count(err.Error(), "X-Request-Id"))
}

func TestABreachSaysWhetherItIsGuessed(t *testing.T) {
	post := entry{method: "POST", status: 503, fields: ra("10")}
	dated := entry{status: 503, fields: ra(date(10), "Date", date(0))}
	for id, l := range map[string][]entry{
		"client/wait-seconds": times(2, second, post),
		"client/wait-date":    times(2, second, dated),
		"client/cool-down":    times(2, 50*ms, entry{status: 429, fields: ra("10")}),
		"client/attempts":     times(11, second, post),
		"client/budget":       times(30, 0, post),
		"client/idempotent":   times(2, second, post),
	} {
		for name, guessed := range map[string]bool{"": true, "a": false} {
			for i := range l {
				l[i].id = name
			}
			breaches, _ := clause(t, id).Check(log(l...))
			require.NotEmpty(t, breaches, id)
			require.Equal(t, guessed, breaches[0].Guessed, "%s, X-Request-Id %q", id, name)
		}
	}
	later, _ := clause(t, "client/cool-down").Check(log(times(2, second, entry{status: 429, fields: ra("10")})...))
	require.Len(t, later, 1)
	require.False(t, later[0].Guessed, "the cool-down stops all requests")
}

func TestTheReportCopesWithIncompleteLogs(t *testing.T) {
	own := contract.Clause{ID: "own/never", Text: "No request.", Ref: "us",
		Check: func(log []contract.Exchange) ([]contract.Breach, bool) {
			return []contract.Breach{{Exchanges: []int{-1, 0, 99}, Want: "silence", Got: "noise"}, {}}, true
		}}
	const head = "contract: own/never: MUST: No request. (us)\n\twant silence\n\tgot  noise\n\t#0 at 0s: "
	require.EqualError(t, contract.Check(log(entry{path: "/", status: 204}), own),
		head+"GET http://api.example/: 204\n\tand 1 more")
	require.EqualError(t, contract.Check([]contract.Exchange{{}}, own), head+"GET (no URL): no answer yet\n\tand 1 more")
	require.EqualError(t, contract.Check([]contract.Exchange{{URL: "http://%", Dropped: true}}, own),
		head+"GET (unreadable URL): dropped\n\tand 1 more")
}
