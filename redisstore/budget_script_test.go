package redisstore_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/heedhttp/heed/internal/redistest"
	"github.com/heedhttp/heed/redisstore"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

const (
	unit  = 1_000_000_000 // a retry
	earns = unit / 10     // a request at a ratio of 0.1
)

// A step is one call of the script at the time at, in milliseconds since t0, and its reply.
type step struct {
	at int64
	sent

	granted bool
	balance int64
}

// sent is what one call of a Budget sends, and terms are its settings, in the script's units.
type (
	sent  struct{ earned, refunded, owed, price int64 }
	terms struct{ rate, most, tenth int64 }
)

// oneASecond are the settings of the zero Budget: one retry a second, ten at once, a TTL of 10 s.
var oneASecond = terms{unit / 1000, 10 * unit, 1000}

// A budgetScript runs the script of a Budget, by default as a process that is always counted already.
type budgetScript struct {
	*luaServer
	t *testing.T
}

func newBudgetScript(t *testing.T) budgetScript { return budgetScript{newLuaServer(t), t} }

// run returns whether the price was granted, the balance, the current tenth, and the number of processes.
func (s budgetScript) run(key string, by terms, at, counted int64, what sent) []any {
	s.t.Helper()
	reply, err := s.luaServer.run(s.budget, (t0+at)*1000+999, []string{key},
		what.earned, what.refunded, what.owed, what.price, by.rate, by.most, by.tenth, counted)
	require.NoError(s.t, err, "%+v", what)
	return reply.([]any)
}

func TestBudgetScriptTimelines(t *testing.T) {
	const most = 1 << 48
	const unlimited = 1 << 62
	for name, test := range map[string]struct {
		terms terms
		steps []step
	}{
		"a clock that steps back earns nothing twice": {oneASecond, []step{
			{60_000, sent{price: 10 * unit}, true, 0},
			{60_000, sent{earned: unit}, false, unit},
			{57_000, sent{}, false, unit},
			{60_000, sent{}, false, unit},
			{61_000, sent{}, false, 2 * unit},
			{0, sent{}, false, unit}, // by more than TTL: the deposit is ignored
			{10_000, sent{}, false, unit},
			{11_000, sent{}, false, 2 * unit},
		}},
		"sums saturate": {terms{tenth: 1000}, []step{
			{0, sent{earned: unlimited}, false, most},
			{1000, sent{earned: most, refunded: most}, false, 2 * most},
			{1000, sent{price: 2 * most}, true, 0},
			{1000, sent{earned: most, price: most}, true, 0},
			{1000, sent{earned: unit, refunded: unlimited}, false, 2 * most},
			{1000, sent{price: unit}, true, 2*most - unit},
		}},
	} {
		s := newBudgetScript(t)
		for i, st := range test.steps {
			got := s.run("k", test.terms, st.at, t0+st.at-st.at%1000, st.sent)
			require.Equal(t, []any{st.granted, st.balance}, []any{got[0] == int64(1), got[1]}, "%s: %d, %+v", name, i, st)
		}
	}
}

// It compares random timelines of processes with a model that keeps each deposit separately and computes the
// floor from the start.
func TestBudgetScriptAgreesWithAModel(t *testing.T) {
	s := newBudgetScript(t)
	for seed := range uint64(stated(40, 12)) {
		r := rand.New(rand.NewPCG(seed, 0))
		m := budgetModel{terms: terms{rate: r.Int64N(3 * unit / 1000), tenth: 1 + r.Int64N(1000)}}
		m.terms.most = r.Int64N(10)*unit + r.Int64N(unit)
		m.floor, m.at = m.terms.most, r.Int64N(1000)
		key, at, counted := fmt.Sprint("model", seed), m.at, make([]int64, 4)
		for range 120 {
			at += r.Int64N(1 + r.Int64N(3*m.terms.tenth))
			st := step{at: at, sent: sent{earned: r.Int64N(20) * earns, price: r.Int64N(2) * unit,
				refunded: r.Int64N(2) * unit, owed: r.Int64N(5) / 4 * r.Int64N(3) * unit}}
			process := &counted[r.IntN(1+r.IntN(4))]
			want := m.run(st, *process)
			got := s.run(key, m.terms, st.at, *process, st.sent)
			require.Equal(t, want, got, "seed %d: %+v", seed, st)
			*process = got[2].(int64)
		}
	}
}

type budgetModel struct {
	terms    terms
	deposits [][3]int64 // tenth's number, units left, units spent
	calls    []int64    // the numbers of the tenths in which a process was counted
	floor    int64
	at       int64
}

func (m *budgetModel) run(st step, counted int64) []any {
	number := (t0 + st.at) / m.terms.tenth
	for ; m.at < st.at; m.at++ {
		m.floor = min(m.terms.most, m.floor+m.terms.rate)
	}
	m.deposits = append(m.deposits, [3]int64{number, st.earned})
	m.deposits = slices.DeleteFunc(m.deposits, func(d [3]int64) bool { return d[0] <= number-10 })
	if counted != number*m.terms.tenth {
		m.calls = append(m.calls, number)
	}
	processes, in := int64(1), map[int64]int64{}
	for _, n := range m.calls {
		if in[n]++; n > number-10 {
			processes = max(processes, in[n])
		}
	}
	rest := max(0, m.floor+st.refunded-m.terms.most)
	m.floor = min(m.terms.most, m.floor+st.refunded)
	for i := range slices.Backward(m.deposits) {
		rest -= m.move(i, -min(rest, m.deposits[i][2]))
	}
	m.spend(min(st.owed, m.balance()))
	granted := int64(0)
	if st.price > 0 && m.balance() >= st.price {
		granted = 1
		m.spend(st.price)
	}
	return []any{granted, m.balance(), number * m.terms.tenth, processes}
}

func (m *budgetModel) balance() int64 {
	balance := m.floor
	for _, d := range m.deposits {
		balance += d[1]
	}
	return balance
}

func (m *budgetModel) spend(rest int64) {
	for i := range m.deposits {
		rest -= m.move(i, min(rest, m.deposits[i][1]))
	}
	m.floor -= rest
}

// move spends so much of a deposit, or gives it back, and returns how much.
func (m *budgetModel) move(i int, units int64) int64 {
	m.deposits[i][1] -= units
	m.deposits[i][2] += units
	return max(units, -units)
}

func TestBudgetScriptIgnoresInvalidFields(t *testing.T) {
	s := newBudgetScript(t)
	field := func(kind string, at int64) string { return fmt.Sprint(kind, t0+at) }
	values := []string{"", "x", "-1", "-0", "-1e300", "1e300", "1e3", "inf", "-inf", "nan", "-nan", "0.5", "0x10",
		" 1", "9007199254740992", strings.Repeat("9", 400)}
	large := append(values, "9007199254740991", "281474976710657")
	for name, values := range map[string][]string{
		"floor": append(values, "9007199254740991", "10000000001"), "at": values, // more than the floor holds
		field("e", 0): large, field("e", -1000): large, field("s", 0): large, field("s", -1000): large,
		field("p", 0): large, field("p", -1000): large,
		field("e", -10_000): {"1000000000"}, "e" + strings.Repeat("9", 400): {"1"}, "exx": {"1"}, "zz": {"1"},
	} {
		for _, value := range values {
			key := name + value
			require.NoError(t, s.client.HSet(ctx, key, name, value).Err())
			got := s.run(key, oneASecond, 0, -1, sent{price: unit, refunded: 100 * unit})
			require.Equal(t, []any{int64(1), int64(9 * unit), t0, int64(1)}, got, "%s = %s", name, value)
			require.Equal(t, 3, int(s.client.HLen(ctx, key).Val()), "%s = %s", name, value)
			got = s.run(key, oneASecond, 500, t0, sent{})
			require.Equal(t, []any{int64(0), int64(9*unit + unit/2), t0, int64(1)}, got, "%s = %s", name, value)
		}
	}
}

func TestBudgetScriptKeyOutlivesItsContents(t *testing.T) {
	client := newClient(t, redistest.Shared(t))
	for _, test := range []struct {
		terms
		sent
		want time.Duration
	}{
		{oneASecond, sent{}, 10_001 * ms},
		{oneASecond, sent{price: 10 * unit}, 10_001 * ms},
		{terms{tenth: 1000}, sent{earned: unit}, 10_001 * ms},
		// A floor of one retry that takes 1000 s to fill.
		{terms{1000, unit, 1000}, sent{price: unit, earned: unit, owed: 99 * unit}, 1_000_001 * ms},
	} {
		began := time.Now()
		require.NoError(t, client.Eval(ctx, redisstore.BudgetSource, []string{"k"}, test.earned, test.refunded,
			test.owed, test.price, test.rate, test.most, test.tenth, 0).Err())
		expiresIn(t, client, "k", test.want, began)
		assert.EqualValues(t, 1, client.Del(ctx, "k").Val())
	}
}
