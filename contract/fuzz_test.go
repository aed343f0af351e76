package contract_test

import (
	"encoding/binary"
	"fmt"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/dunglas/httpsfv"
	"github.com/stretchr/testify/require"

	"github.com/heedhttp/heed/contract"
	"github.com/heedhttp/heed/internal/testenv"
)

// FuzzCheck makes a log of any bytes. No clause may panic, change the log, name an exchange that
// does not exist, or find a breach where it is not applicable.
func FuzzCheck(f *testing.F) {
	f.Add([]byte("\x00\x01\x02\x03\x04\x05\x06\x07\x08\x09"), "1", `"a";q=1`)
	f.Add([]byte(strings.Repeat("\x00\x10\x20\x30\x40\xf0\xff\x7f", 40)), "Fri, 20 Nov 2026 12:00:10 GMT",
		`{"status":429}`)
	f.Fuzz(func(t *testing.T, moves []byte, value, text string) {
		l := anyLog(moves, value, text)
		before := fmt.Sprint(l)
		for _, c := range slices.Concat(contract.Client(), contract.Server()) {
			breaches, applicable := c.Check(l)
			require.False(t, len(breaches) > 0 && !applicable, c.ID)
			for _, b := range breaches {
				require.NotEmpty(t, b.Want)
				require.NotEmpty(t, b.Got)
				for _, i := range b.Exchanges {
					require.True(t, 0 <= i && i < len(l), c.ID)
				}
			}
		}
		_ = contract.Check(l)
		require.Equal(t, before, fmt.Sprint(l))
	})
}

// anyLog makes an exchange of every eight bytes of moves.
func anyLog(moves []byte, value, text string) []contract.Exchange {
	var l []contract.Exchange
	for ; len(moves) >= 8; moves = moves[8:] {
		bits := binary.LittleEndian.Uint64(moves)
		pick := func(of ...string) string {
			s := of[bits%uint64(len(of))]
			bits = bits>>2 | bits<<62
			return s
		}
		e := contract.Exchange{
			Method: pick("GET", "POST", "HEAD", ""), URL: pick("http://a/", "http://a/b?c", value, text),
			Key: pick("", "", "k", value), BodySHA256: pick("", "x", "y", value),
			Header: http.Header{pick("Idempotency-Key", "X-Request-Id", "Authorization",
				"X"): {pick("1", "2", value, "")}},
			ResponseHeader: http.Header{pick("Retry-After", "RateLimit", "X-Ratelimit-Remaining",
				"Ratelimit-Policy"): {pick(value, text, "1", "9")}, "Date": {value}},
			ResponseBody: []byte(text), ResponseLength: int64(len(pick(text, text, "", value))),
			Status: []int{0, 200, 429, 503}[bits%4], Dropped: bits%8 == 0, BodyUnread: bits%16 == 3,
			Arrived: time.Unix(int64(bits%100), int64(bits>>40)), ArrivalNo: int64(bits>>50) - 1,
		}
		if bits%3 == 0 {
			e.Answered = e.Arrived.Add(time.Duration(bits))
		}
		if bits%1000 == 7 {
			e.Arrived = time.Time{}
		}
		l = append(l, e)
	}
	return l
}

// FuzzRetryAfter compares what the clause accepts with the grammar and with net/http.
func FuzzRetryAfter(f *testing.F) {
	for _, s := range []string{"1", "0", "007", "99999999999999999999", "1.0", "+1", "", "Fri, 20 Nov 2026 12:00:10 GMT",
		"Fri, 20 Nov 2026 12:00:60 GMT",
		"Friday, 20-Nov-26 12:00:10 GMT", "Friday, 20-Nov-76 12:00:10 GMT", "Tuesday, 29-Feb-00 12:00:00 GMT",
		"Fri Nov 20 12:00:10 2026", "Fri Nov  6 12:00:10 2026"} {
		f.Add(s)
	}
	seconds := regexp.MustCompile(`^0*[1-9][0-9]*$`)
	c := clause(f, "server/retry-after")
	f.Fuzz(func(t *testing.T, value string) {
		breaches, _ := c.Check(answer(429, ra(value)...))
		readable := len(breaches) == 0
		if seconds.MatchString(value) {
			require.True(t, readable)
			return
		}
		_, err := http.ParseTime(strings.Replace(value, ":60 ", ":59 ", 1))
		require.False(t, readable && err != nil, "accepted, but not a date")
	})
}

// FuzzStructured compares what the clause accepts as a List with another parser.
func FuzzStructured(f *testing.F) {
	for _, s := range []string{`"a";q=1`, `"a";q=1, "b";q=2;w=3`, `"a" ;q=1`, `"a";q=1,`, `a;q=?1`, `"a";q=-0`,
		`"a";q=1.25`, `"a";q=:aGVlZA==:`, "\"a\";q=1\t,\t5", `"\"\\";*=1;q=0`} {
		f.Add(s)
	}
	c := clause(f, "server/fields-valid")
	f.Fuzz(func(t *testing.T, value string) {
		breaches, _ := c.Check(answer(200, "RateLimit-Policy", value))
		_, err := httpsfv.UnmarshalList([]string{value})
		if len(breaches) == 0 {
			require.NoError(t, err)
		}
		if strings.ContainsAny(value, "(@%:") {
			return // policies have no inner lists, dates and display strings; byte sequences may be padded or not
		}
		if err == nil && strings.Trim(value, " ") != "" && len(breaches) > 0 {
			require.NotContains(t, breaches[0].Got, "not a structured field")
		}
	})
}

// longLogs returns logs of n exchanges: in one they are all one request, in the other all wait for
// one cool-down.
func longLogs(n int) map[string][]contract.Exchange {
	return map[string][]contract.Exchange{
		"workers":             log(times(n, ms, entry{took: second, status: 503, fields: ra("5")})...),
		"one after the other": log(times(n, ms, entry{status: 429, fields: ra("5")})...),
	}
}

// checkAll runs every clause on l.
func checkAll(l []contract.Exchange) {
	for _, c := range slices.Concat(contract.Client(), contract.Server()) {
		c.Check(l)
	}
}

// fastest is the shortest of three times that checkAll takes.
func fastest(l []contract.Exchange) time.Duration {
	least := time.Hour
	for range 3 {
		began := time.Now()
		checkAll(l)
		least = min(least, time.Since(began))
	}
	return least
}

// The time to judge a log must be linear in its length. The default form only shows that a long log
// is judged within a minute; the long form measures.
func TestLongLogsAreJudgedQuickly(t *testing.T) {
	if !testenv.Long() {
		for name, l := range longLogs(3_000) {
			began := time.Now()
			checkAll(l)
			require.Less(t, time.Since(began), time.Minute, name)
		}
		return
	}
	const factor = 10 // a quadratic clause takes 100 times as long
	short, long := longLogs(5_000), longLogs(factor*5_000)
	for name := range long {
		less, more := fastest(short[name]), fastest(long[name])
		t.Logf("%s: %v, and %v for %d times as many exchanges", name, less, more, factor)
		require.Less(t, more, 4*factor*less, name)
	}
}

func BenchmarkCheck(b *testing.B) {
	for _, n := range []int{1_000, 10_000, 100_000} {
		logs := longLogs(n)
		logs["admitted"] = log(times(n, ms, entry{took: second, status: 200, fields: []string{"RateLimit", `"a";r=1`}})...)
		for name, l := range logs {
			b.Run(fmt.Sprint(name, "/", n), func(b *testing.B) {
				for b.Loop() {
					checkAll(l)
				}
				b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*n), "ns/exchange")
			})
		}
	}
}
