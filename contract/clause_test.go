package contract_test

import (
	"cmp"
	"net/http"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/heedhttp/heed/contract"
)

// A verdict is what a clause says about a log.
type verdict int

const (
	silent verdict = iota // it is not applicable
	keeps
	breaks
)

// A judgement is a log and the expected verdict of one clause.
type judgement struct {
	clause string
	says   verdict
	name   string
	log    []contract.Exchange

	// The expected breach.
	where     []int
	want, got string
}

// start is when the logs begin: not on a full second, as usual.
var start = time.Date(2026, time.November, 20, 12, 0, 0, 400e6, time.UTC)

const ms = time.Millisecond

// An entry is a short form of Exchange.
type entry struct {
	at     time.Duration // when it arrives, after start
	took   time.Duration // until the answer
	method string        // if empty, GET
	path   string
	id     string // X-Request-Id
	idem   string // Idempotency-Key
	auth   string
	key    string
	body   string // the hash
	unread bool
	status int // 0 means dropped
	fields []string
	reply  string
}

// log makes a log of entries.
func log(entries ...entry) []contract.Exchange {
	list := make([]contract.Exchange, len(entries))
	for i, e := range entries {
		arrived := start.Add(e.at)
		list[i] = contract.Exchange{
			Key: e.key, Method: cmp.Or(e.method, "GET"), URL: "http://api.example" + e.path, Header: http.Header{},
			BodySHA256: e.body, BodyUnread: e.unread,
			Arrived: arrived, Answered: arrived.Add(e.took), Finished: arrived.Add(e.took),
			Status: e.status, Dropped: e.status == 0,
			ResponseHeader: fields(e.fields...), ResponseBody: []byte(e.reply), ResponseLength: int64(len(e.reply)),
		}
		for name, value := range map[string]string{"X-Request-Id": e.id, "Idempotency-Key": e.idem,
			"Authorization": e.auth} {
			if value != "" {
				list[i].Header.Set(name, value)
			}
		}
	}
	return list
}

// fields makes a header of names and values.
func fields(pairs ...string) http.Header {
	h := http.Header{}
	for pair := range slices.Chunk(pairs, 2) {
		h.Add(pair[0], pair[1])
	}
	return h
}

// times repeats an entry n times, one per step.
func times(n int, step time.Duration, e entry) (list []entry) {
	for range n {
		list = append(list, e)
		e.at += step
	}
	return list
}

func TestEachClauseJudgesItsLogsAsExpected(t *testing.T) {
	seen := make(map[string][3]int)
	for _, j := range slices.Concat(clientJudgements(), serverJudgements()) {
		t.Run(j.clause+"/"+j.name, func(t *testing.T) { j.test(t) })
		n := seen[j.clause]
		n[j.says]++
		seen[j.clause] = n
	}
	for _, c := range slices.Concat(contract.Client(), contract.Server()) {
		for v, n := range seen[c.ID] {
			assert.NotZero(t, n, "%s has no log of verdict %d", c.ID, v)
		}
		delete(seen, c.ID)
	}
	assert.Empty(t, seen, "no such clause")
}

func (j judgement) test(t *testing.T) {
	c := clause(t, j.clause)
	breaches, applicable := c.Check(j.log)
	require.Equal(t, j.says != silent, applicable, "%v", breaches)
	err := contract.Check(j.log, c)
	if j.says != breaks {
		require.Empty(t, breaches)
		require.NoError(t, err)
		return
	}
	require.Len(t, breaches, 1)
	require.Equal(t, j.where, breaches[0].Exchanges)
	require.Equal(t, [2]string{j.want, j.got}, [2]string{breaches[0].Want, breaches[0].Got})
	for _, part := range []string{c.ID, c.Level.String(), c.Text, c.Ref, j.want, j.got} {
		require.ErrorContains(t, err, part)
	}
}

func clause(t testing.TB, id string) contract.Clause {
	t.Helper()
	all := slices.Concat(contract.Client(), contract.Server())
	i := slices.IndexFunc(all, func(c contract.Clause) bool { return c.ID == id })
	require.GreaterOrEqual(t, i, 0, id)
	return all[i]
}

func TestClausesAreWellFormed(t *testing.T) {
	seen := make(map[string]bool)
	for _, c := range slices.Concat(contract.Client(), contract.Server()) {
		assert.Regexp(t, `^(client|server)/[a-z-]+$`, c.ID)
		assert.Regexp(t, `^[A-Z].*\.$`, c.Text)
		assert.NotEmpty(t, c.Ref)
		assert.False(t, seen[c.ID], c.ID)
		seen[c.ID] = true
	}
	assert.Equal(t, "MUST", contract.Must.String())
	assert.Equal(t, "SHOULD", contract.Should.String())
}

func TestCheckWithoutClausesChecksAll(t *testing.T) {
	require.NoError(t, contract.Check(nil))
	err := contract.Check(log(times(12, 0, entry{status: 429})...))
	require.ErrorContains(t, err, "client/attempts")
	require.ErrorContains(t, err, "server/retry-after")
}
