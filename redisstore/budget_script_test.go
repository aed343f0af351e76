package redisstore_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/heedhttp/heed/internal/redistest"
	"github.com/heedhttp/heed/redisstore"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

const (
	unit  = 1_000_000_000 // a retry
	earns = unit / 10     // a request at a ratio of 0.1
)

// budgetScript is the script of a Budget with a clock of the test.
type budgetScript struct {
	client  *redis.Client
	source  string
	counted int64
}

func newBudgetScript(t *testing.T) *budgetScript {
	const clock = "local time = redis.call('TIME')\n"
	require.Equal(t, 1, strings.Count(redisstore.BudgetSource, clock))
	return &budgetScript{
		client:  newClient(t, redistest.Shared(t)),
		source:  strings.Replace(redisstore.BudgetSource, clock, "local time = {ARGV[9], ARGV[10]}\n", 1),
		counted: -1,
	}
}

// A step is one call of the script at the time at, in milliseconds since t0.
type step struct {
	at                            int64
	earned, refunded, owed, price int64

	granted bool
	balance int64
}

// terms are the settings of a Budget, in the script's units.
type terms struct{ rate, most, tenth int64 }

// oneASecond are the settings of the zero Budget: one retry a second, ten at once, a TTL of 10 s.
var oneASecond = terms{unit / 1000, 10 * unit, 1000}

func (s *budgetScript) run(t *testing.T, key string, terms terms, st step) []int64 {
	t.Helper()
	now := t0 + st.at
	got, err := s.client.Eval(context.Background(), s.source, []string{key},
		st.earned, st.refunded, st.owed, st.price, terms.rate, terms.most, terms.tenth, s.counted,
		now/1000, now%1000*1000+999).Int64Slice()
	require.NoError(t, err, "%+v", st)
	require.Len(t, got, 4)
	s.counted = got[2]
	return got
}

func (s *budgetScript) timeline(t *testing.T, terms terms, steps ...step) {
	t.Helper()
	for i, st := range steps {
		got := s.run(t, t.Name(), terms, st)
		require.Equal(t, st.granted, got[0] == 1, "step %d, %+v: granted", i, st)
		require.Equal(t, st.balance, got[1], "step %d, %+v: balance", i, st)
	}
}

func TestBudgetScriptFloorStartsFullAndRefills(t *testing.T) {
	newBudgetScript(t).timeline(t, oneASecond,
		step{at: 0, balance: 10 * unit},
		step{at: 0, price: 10 * unit, granted: true, balance: 0},
		step{at: 0, price: unit, balance: 0},
		step{at: 999, price: unit, balance: 999 * unit / 1000},
		step{at: 1000, price: unit, granted: true, balance: 0},
		step{at: 10_999, balance: unit * 9999 / 1000},
		step{at: 11_000, balance: 10 * unit},
		step{at: 99_000, balance: 10 * unit},
	)
}

func TestBudgetScriptExpiresDepositsAfterTTL(t *testing.T) {
	newBudgetScript(t).timeline(t, terms{tenth: 1000},
		step{at: 0, earned: 5 * unit, balance: 5 * unit},
		step{at: 999, earned: 1 * unit, balance: 6 * unit}, // the same tenth
		step{at: 1000, earned: 2 * unit, balance: 8 * unit},
		step{at: 9_999, price: unit, granted: true, balance: 7 * unit}, // from the oldest deposit
		step{at: 10_000, balance: 2 * unit},
		step{at: 10_999, price: unit, granted: true, balance: unit},
		step{at: 11_000, price: unit, balance: 0},
	)
}

func TestBudgetScriptSpendsDepositsBeforeTheFloor(t *testing.T) {
	newBudgetScript(t).timeline(t, terms{most: 2 * unit, rate: 1, tenth: 1000},
		step{at: 0, earned: 1000 * earns, balance: 102 * unit},
		step{at: 0, price: 100 * unit, granted: true, balance: 2 * unit},
		step{at: 10_000, price: 2 * unit, granted: true, balance: 0}, // the deposits have expired, the floor remains
	)
}

func TestBudgetScriptPaysFromBoth(t *testing.T) {
	newBudgetScript(t).timeline(t, oneASecond,
		step{at: 0, price: 10 * unit, granted: true, balance: 0},
		step{at: 0, earned: 5 * earns, price: unit, balance: unit / 2},
		step{at: 500, price: unit, granted: true, balance: 0},
	)
}

func TestBudgetScriptRefundsOnlyWhatWasSpent(t *testing.T) {
	newBudgetScript(t).timeline(t, oneASecond,
		step{at: 0, price: unit, granted: true, balance: 9 * unit},
		step{at: 0, refunded: unit, balance: 10 * unit},
		step{at: 0, refunded: unit, balance: 10 * unit},
		step{at: 0, earned: 2 * unit, price: unit, granted: true, balance: 11 * unit},
		step{at: 1000, earned: 2 * unit, price: 2 * unit, granted: true, balance: 11 * unit},
		step{at: 9_999, refunded: unit, balance: 12 * unit}, // of the last one
		step{at: 10_000, balance: 12 * unit},
		step{at: 10_000, refunded: 9 * unit, balance: 12 * unit}, // the others have expired
		step{at: 11_000, balance: 10 * unit},
	)
}

// A third of the requests fails for an hour, and all retries are given back.
func TestBudgetScriptRefundsDoNotPileUp(t *testing.T) {
	s := newBudgetScript(t)
	var got []int64
	for at := range int64(stated(3600, 60)) {
		s.run(t, "k", oneASecond, step{at: 1000 * at, earned: 10 * unit})
		got = s.run(t, "k", oneASecond, step{at: 1000 * at, price: 20 * unit})
		s.run(t, "k", oneASecond, step{at: 1000*at + 999, refunded: got[0] * 20 * unit})
	}
	assert.EqualValues(t, 1, got[0])
	assert.LessOrEqual(t, got[1], int64((100+10-20)*unit))
}

func TestBudgetScriptChargesDebtUpToTheBalance(t *testing.T) {
	newBudgetScript(t).timeline(t, oneASecond,
		step{at: 0, owed: 3 * unit, balance: 7 * unit},
		step{at: 0, owed: 9 * unit, price: unit, balance: 0},
		step{at: 1000, price: unit, granted: true, balance: 0},
	)
}

func TestBudgetScriptEarnsNothingTwiceWhenTheClockStepsBack(t *testing.T) {
	newBudgetScript(t).timeline(t, oneASecond,
		step{at: 60_000, price: 10 * unit, granted: true, balance: 0},
		step{at: 60_000, earned: unit, balance: unit},
		step{at: 57_000, balance: unit},
		step{at: 60_000, balance: unit},
		step{at: 61_000, balance: 2 * unit},
		step{at: 0, balance: unit}, // by more than TTL: the deposit is ignored
		step{at: 10_000, balance: unit},
		step{at: 11_000, balance: 2 * unit},
	)
}

func TestBudgetScriptSaturates(t *testing.T) {
	const most = 1 << 48
	newBudgetScript(t).timeline(t, terms{tenth: 1000},
		step{at: 0, earned: 1 << 62, balance: most},
		step{at: 1000, earned: most, refunded: most, balance: 2 * most},
		step{at: 1000, price: 2 * most, granted: true, balance: 0},
		step{at: 1000, earned: most, price: most, granted: true, balance: 0},
		step{at: 1000, earned: unit, refunded: 1 << 62, balance: 2 * most},
		step{at: 1000, price: unit, granted: true, balance: 2*most - unit},
	)
}

func TestBudgetScriptCountsTheProcessesOfATenth(t *testing.T) {
	s := newBudgetScript(t)
	processes := func(at, counted int64) int64 {
		s.counted = counted
		return s.run(t, "k", oneASecond, step{at: at})[3]
	}
	assert.EqualValues(t, 1, processes(0, -1))
	assert.EqualValues(t, 1, processes(10, t0), "the same one")
	assert.EqualValues(t, 2, processes(20, -1))
	assert.EqualValues(t, 3, processes(30, t0-1000))
	assert.EqualValues(t, 3, processes(1000, t0), "the most of the last ten tenths")
	assert.EqualValues(t, 3, processes(9999, t0))
	assert.EqualValues(t, 1, processes(10_000, t0))
}

func TestBudgetScriptKeyOutlivesItsContents(t *testing.T) {
	s := newBudgetScript(t)
	expires := func(ttl time.Duration, terms terms, st step) {
		t.Helper()
		began := time.Now()
		s.run(t, "k", terms, st)
		expiresIn(t, s.client, "k", ttl, began)
	}
	expires(10_001*ms, oneASecond, step{})
	expires(10_001*ms, oneASecond, step{price: 10 * unit})
	expires(10_001*ms, terms{tenth: 1000}, step{earned: unit})
	// A floor of one retry that takes 1000 s to fill.
	expires(1_000_001*ms, terms{1000, unit, 1000}, step{price: unit, earned: unit, owed: 99 * unit})
}

func TestBudgetScriptReplacesAnInvalidHash(t *testing.T) {
	s := newBudgetScript(t)
	ctx := context.Background()
	require.NoError(t, s.client.HSet(ctx, t.Name(), "floor", "x", "at", "", "e12", "y", "exx", "1", "zz", "1").Err())
	s.timeline(t, oneASecond, step{balance: 10 * unit})
	assert.EqualValues(t, 3, s.client.HLen(ctx, t.Name()).Val())
}

func TestBudgetScriptIgnoresInvalidFields(t *testing.T) {
	s := newBudgetScript(t)
	ctx := context.Background()
	field := func(kind string, at int64) string { return fmt.Sprint(kind, t0+at) }
	values := []string{"", "x", "-1", "-0", "-1e300", "1e300", "1e3", "inf", "-inf", "nan", "-nan", "0.5", "0x10",
		" 1", "9007199254740992", strings.Repeat("9", 400)}
	for _, test := range []struct {
		field  string
		values []string
	}{
		{"floor", values},
		{"floor", []string{"9007199254740991", "10000000001"}}, // more than the floor holds
		{"at", values},
		{field("e", 0), append(values, "9007199254740991", "281474976710657")},
		{field("e", -1000), append(values, "9007199254740991")},
		{field("s", 0), append(values, "9007199254740991", "281474976710657")},
		{field("s", -1000), append(values, "9007199254740991")},
		{field("p", 0), append(values, "9007199254740991")},
		{field("p", -1000), append(values, "9007199254740991")},
		{"e" + strings.Repeat("9", 400), []string{"1"}},
	} {
		for _, value := range test.values {
			key := test.field + value
			s.counted = -1
			began := time.Now()
			require.NoError(t, s.client.HSet(ctx, key, test.field, value).Err())
			got := s.run(t, key, oneASecond, step{price: unit, refunded: 100 * unit})
			require.Equal(t, []int64{1, 9 * unit, t0, 1}, got, "%s = %s", test.field, value)
			require.Equal(t, 3, int(s.client.HLen(ctx, key).Val()), "%s = %s", test.field, value)
			expiresIn(t, s.client, key, 10_001*ms, began)
			got = s.run(t, key, oneASecond, step{at: 500})
			require.Equal(t, []int64{0, 9*unit + unit/2, t0, 1}, got, "%s = %s", test.field, value)
		}
	}
}

// It compares random timelines with a model that keeps each deposit separately and computes the floor
// from the start.
func TestBudgetScriptAgreesWithAModel(t *testing.T) {
	s := newBudgetScript(t)
	const end = "return {granted, balance, start, processes}"
	require.Equal(t, 1, strings.Count(s.source, end))
	// No key may expire by Redis' clock, because the script has the test's.
	s.source = strings.Replace(s.source, end, "redis.call('PERSIST', KEYS[1])\n"+end, 1)
	for seed := range uint64(stated(20, 8)) {
		r := rand.New(rand.NewPCG(seed, 0))
		terms := terms{rate: r.Int64N(3 * unit / 1000), tenth: 1 + r.Int64N(1000)}
		terms.most = r.Int64N(10)*unit + r.Int64N(unit)
		m := model{terms: terms, floor: terms.most}
		key, at := fmt.Sprint("model", seed), r.Int64N(1000)
		m.at = at
		for range 100 {
			at += r.Int64N(1 + r.Int64N(3*terms.tenth))
			st := step{at: at, earned: r.Int64N(20) * earns, price: r.Int64N(2) * unit, refunded: r.Int64N(2) * unit}
			granted, balance := m.step(st)
			got := s.run(t, key, terms, st)
			require.Equal(t, []int64{granted, balance}, got[:2], "seed %d: %+v", seed, st)
		}
	}
}

type model struct {
	terms    terms
	deposits [][3]int64 // tenth's number, units left, units spent
	floor    int64
	at       int64
}

func (m *model) step(st step) (granted, balance int64) {
	number := (t0 + st.at) / m.terms.tenth
	for ; m.at < st.at; m.at++ {
		m.floor = min(m.terms.most, m.floor+m.terms.rate)
	}
	m.deposits = append(m.deposits, [3]int64{number, st.earned})
	m.deposits = slices.DeleteFunc(m.deposits, func(d [3]int64) bool { return d[0] <= number-10 })
	rest := max(0, m.floor+st.refunded-m.terms.most)
	m.floor = min(m.terms.most, m.floor+st.refunded)
	balance = m.floor
	for i := range slices.Backward(m.deposits) {
		part := min(rest, m.deposits[i][2])
		m.deposits[i][1] += part
		m.deposits[i][2] -= part
		rest -= part
		balance += m.deposits[i][1]
	}
	if st.price == 0 || balance < st.price {
		return 0, balance
	}
	rest = st.price
	for i := range m.deposits {
		part := min(rest, m.deposits[i][1])
		m.deposits[i][1] -= part
		m.deposits[i][2] += part
		rest -= part
	}
	m.floor -= rest
	return 1, balance - st.price
}
