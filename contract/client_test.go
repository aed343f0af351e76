package contract_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/heedhttp/heed/contract"
)

const second = time.Second

// ra is a header with Retry-After.
func ra(value string, more ...string) []string {
	return append([]string{"Retry-After", value}, more...)
}

// date is an HTTP-date this many seconds after noon. The logs start 0.4 s after noon.
func date(seconds int) string {
	return fmt.Sprintf("Fri, 20 Nov 2026 12:%02d:%02d GMT", seconds/60, seconds%60)
}

func clientJudgements() []judgement {
	all := []judgement{}
	for _, group := range [][]judgement{waitJudgements(), coolDownJudgements(), retryJudgements(), requestJudgements(),
		herdJudgements()} {
		all = append(all, group...)
	}
	return all
}

func waitJudgements() []judgement {
	refused := entry{status: 503, fields: ra("10"), took: 50 * ms}
	const s, d = "client/wait-seconds", "client/wait-date"
	dated := func(h ...string) entry { return entry{status: 503, fields: h} }
	return []judgement{
		{clause: s, says: breaks, name: "a millisecond early", log: log(refused, entry{at: 10*second + 49*ms, status: 200}),
			where: []int{0, 1}, want: "no arrival before 10.05s, 10s after the answer", got: "one at 10.049s, 1ms too early"},
		{clause: s, says: keeps, name: "on time", log: log(refused, entry{at: 10*second + 50*ms, status: 200})},
		{clause: s, says: keeps, name: "on time by the milliseconds",
			log: log(entry{status: 429, fields: ra("2", "Retry-After-Ms", "1500")}, entry{at: 1500 * ms, status: 200})},
		{clause: s, says: breaks, name: "early by the milliseconds",
			log:   log(entry{status: 429, fields: ra("2", "X-Ms-Retry-After-Ms", "1500")}, entry{at: 1499 * ms, status: 200}),
			where: []int{0, 1}, want: "no arrival before 1.5s, 1.5s after the answer", got: "one at 1.499s, 1ms too early"},
		{clause: s, says: breaks, name: "milliseconds that are no rounding",
			log:   log(entry{status: 429, fields: ra("2", "Retry-After-Ms", "1000")}, entry{at: 1500 * ms, status: 200}),
			where: []int{0, 1}, want: "no arrival before 2s, 2s after the answer", got: "one at 1.5s, 500ms too early"},
		{clause: s, says: breaks, name: "two fields of milliseconds",
			log: log(entry{status: 429, fields: ra("2", "Retry-After-Ms", "1500", "Retry-After-Ms", "1500")},
				entry{at: 1500 * ms, status: 200}),
			where: []int{0, 1}, want: "no arrival before 2s, 2s after the answer", got: "one at 1.5s, 500ms too early"},
		{clause: s, says: breaks, name: "more milliseconds than seconds",
			log:   log(entry{status: 429, fields: ra("2", "Retry-After-Ms", "9000")}, entry{at: 1500 * ms, status: 200}),
			where: []int{0, 1}, want: "no arrival before 2s, 2s after the answer", got: "one at 1.5s, 500ms too early"},
		{clause: s, says: silent, name: "never repeated", log: log(refused)},
		{clause: s, says: silent, name: "another URL", log: log(refused, entry{at: second, path: "/b", status: 200})},
		{clause: s, says: silent, name: "another caller", log: log(refused, entry{at: second, auth: "b", status: 200})},
		{clause: s, says: silent, name: "another request by name",
			log: log(entry{id: "a", status: 503, fields: ra("10")}, entry{at: second, id: "b", status: 200})},
		{clause: s, says: silent, name: "a redirect",
			log: log(entry{status: 307, fields: ra("10")}, entry{at: second, status: 200})},
		{clause: s, says: silent, name: "0 seconds", log: log(entry{status: 503, fields: ra("0")}, entry{status: 200})},
		{clause: s, says: silent, name: "no number", log: log(entry{status: 503, fields: ra("1.5")}, entry{status: 200})},
		{clause: s, says: silent, name: "two fields",
			log: log(entry{status: 503, fields: ra("5", "Retry-After", "6")}, entry{status: 200})},
		{clause: s, says: silent, name: "it is unknown which request is repeated",
			log: log(entry{status: 503, fields: ra("10")},
				entry{at: 20 * second, took: second, status: 503, fields: ra("10")},
				entry{at: 20*second + ms, took: second, status: 503, fields: ra("10")}, entry{at: 22 * second, status: 200})},
		{clause: s, says: silent, name: "too long a wait to be the same request",
			log: log(entry{status: 503, fields: ra("61")}, entry{at: second, status: 200})},
		{clause: s, says: breaks, name: "unless it has a name",
			log:   log(entry{id: "a", status: 503, fields: ra("61")}, entry{at: second, id: "a", status: 200}),
			where: []int{0, 1}, want: "no arrival before 1m1s, 1m1s after the answer", got: "one at 1s, 1m0s too early"},
		{clause: s, says: breaks, name: "the first hint still holds",
			log: log(entry{idem: "a", status: 503, fields: ra("10")},
				entry{at: 10 * second, idem: "a", status: 503, fields: ra("30")},
				entry{at: 40 * second, idem: "a", status: 503, fields: ra("1")},
				entry{at: 40*second + 500*ms, idem: "a", status: 200}),
			where: []int{2, 3}, want: "no arrival before 41s, 1s after the answer", got: "one at 40.5s, 500ms too early"},
		{clause: s, says: breaks, name: "two answers to one request: the longer hint holds",
			log: log(entry{idem: "a", took: 2 * second, status: 503, fields: ra("10")},
				entry{at: second, took: 2 * second, idem: "a", status: 503, fields: ra("1")},
				entry{at: 5 * second, idem: "a", status: 200}),
			where: []int{0, 2}, want: "no arrival before 12s, 10s after the answer", got: "one at 5s, 7s too early"},
		{clause: s, says: breaks, name: "10^30 seconds",
			log: log(entry{id: "a", status: 429, fields: ra("1" + fmt.Sprintf("%030d", 0))},
				entry{at: 1000 * time.Hour, id: "a", status: 200}),
			where: []int{0, 1}, want: "no arrival before 596523h14m8s, 596523h14m8s after the answer",
			got: "one at 1000h0m0s, 595523h14m8s too early"},

		{clause: d, says: breaks, name: "a millisecond before the date",
			log:   log(dated("Retry-After", date(10), "Date", date(0)), entry{at: 9*second + 599*ms, status: 200}),
			where: []int{0, 1}, want: "no arrival before 9.6s, 9.6s after the answer", got: "one at 9.599s, 1ms too early"},
		{clause: d, says: keeps, name: "on the date",
			log: log(dated("Retry-After", date(10), "Date", date(0)), entry{at: 9*second + 600*ms, status: 200})},
		{clause: d, says: breaks, name: "by the server's clock",
			log:   log(dated("Retry-After", date(110), "Date", date(100)), entry{at: 9*second + 599*ms, status: 200}),
			where: []int{0, 1}, want: "no arrival before 9.6s, 9.6s after the answer", got: "one at 9.599s, 1ms too early"},
		{clause: d, says: keeps, name: "by the server's clock",
			log: log(dated("Retry-After", date(110), "Date", date(100)), entry{at: 9*second + 600*ms, status: 200})},
		{clause: d, says: breaks, name: "RFC 850, without a Date",
			log:   log(dated("Retry-After", "Friday, 20-Nov-26 12:00:10 GMT"), entry{at: 9 * second, status: 200}),
			where: []int{0, 1}, want: "no arrival before 9.6s, 9.6s after the answer", got: "one at 9s, 600ms too early"},
		{clause: d, says: breaks, name: "asctime",
			log:   log(dated("Retry-After", "Fri Nov 20 12:00:10 2026"), entry{at: 9 * second, status: 200}),
			where: []int{0, 1}, want: "no arrival before 9.6s, 9.6s after the answer", got: "one at 9s, 600ms too early"},
		{clause: d, says: silent, name: "a date in the past",
			log: log(dated("Retry-After", date(0), "Date", date(1)), entry{status: 200})},
		{clause: d, says: silent, name: "the wrong weekday",
			log: log(dated("Retry-After", "Mon, 20 Nov 2026 12:00:10 GMT"), entry{status: 200})},
		{clause: d, says: silent, name: "seconds", log: log(refused, entry{at: second, status: 200})},
	}
}

// probes are a refusal for some seconds, and probes so many minutes later, which are refused for as long.
func probes(seconds int, minutes ...time.Duration) []entry {
	refused := entry{path: "/a", status: 429, fields: ra(fmt.Sprint(seconds))}
	all := []entry{refused}
	for i, at := range minutes {
		refused.at, refused.path = at*time.Minute, fmt.Sprint("/", i)
		all = append(all, refused)
	}
	return all
}

// short are an answer, a refusal some time later, and another request 200 ms after that.
func short(status int, later time.Duration, hint ...string) []entry {
	return []entry{
		{path: "/a", status: status}, {at: later, path: "/b", status: 429, fields: ra(hint[0], hint[1:]...)},
		{at: later + 200*time.Millisecond, path: "/c", status: 200},
	}
}

func coolDownJudgements() []judgement {
	const c = "client/cool-down"
	refused := entry{path: "/a", status: 429, fields: ra("10")}
	long := entry{path: "/a", status: 429, fields: ra("61")}
	return []judgement{
		{clause: c, says: breaks, name: "another worker, a millisecond early",
			log:   log(refused, entry{at: 10*second - ms, path: "/b", status: 200}),
			where: []int{0, 1}, want: "no arrival before 10s, 10s after the answer", got: "one at 9.999s, 1ms too early"},
		{clause: c, says: keeps, name: "another worker, on time",
			log: log(refused, entry{at: 10 * second, path: "/b", status: 200})},
		{clause: c, says: keeps, name: "under way during the refusal", log: log(refused,
			entry{at: ms, path: "/b", status: 429, fields: ra("9")}, entry{at: 11 * second, path: "/b", status: 200})},
		{clause: c, says: breaks, name: "its own retry cannot have been under way",
			log:   log(refused, entry{at: ms, path: "/a", status: 200}),
			where: []int{0, 1}, want: "no arrival before 10s, 10s after the answer", got: "one at 1ms, 9.999s too early"},
		{clause: c, says: breaks, name: "two hints: the longer one holds",
			log: log(refused, entry{path: "/b", status: 429, fields: ra("3")},
				entry{at: 4 * second, path: "/b", status: 200}),
			where: []int{0, 2}, want: "no arrival before 10s, 10s after the answer", got: "one at 4s, 6s too early"},
		{clause: c, says: silent, name: "a 503 speaks for one request",
			log: log(entry{path: "/a", status: 503, fields: ra("10")}, entry{at: second, path: "/b", status: 200})},
		{clause: c, says: silent, name: "another key", log: log(refused, entry{at: second, key: "b", status: 200})},
		{clause: c, says: silent, name: "no request came", log: log(refused)},
		{clause: c, says: keeps, name: "a probe after a minute",
			log: log(long, entry{at: 60 * second, path: "/b", status: 200})},
		{clause: c, says: breaks, name: "not before", log: log(long, entry{at: 60*second - ms, path: "/b", status: 200}),
			where: []int{0, 1}, want: "no arrival before 1m1s, 1m1s after the answer", got: "one at 59.999s, 1.001s too early"},
		{clause: c, says: breaks, name: "not two", log: log(long, entry{at: 60 * second, path: "/b", status: 503},
			entry{at: 60*second + 500*ms, path: "/c", status: 200}),
			where: []int{0, 2}, want: "no arrival before 1m1s, 1m1s after the answer", got: "one at 1m0.5s, 500ms too early"},
		{clause: c, says: breaks, name: "not when it is a minute",
			log:   log(entry{status: 429, fields: ra("60")}, entry{at: 60*second - ms, path: "/b", status: 200}),
			where: []int{0, 1}, want: "no arrival before 1m0s, 1m0s after the answer", got: "one at 59.999s, 1ms too early"},
		{clause: c, says: keeps, name: "after 1, 2, 4 and 8 minutes", log: log(probes(600, 1, 2, 4, 8)...)},
		{clause: c, says: breaks, name: "not each minute", log: log(probes(600, 1, 2, 3)...),
			where: []int{2, 3}, want: "no arrival before 12m0s, 10m0s after the answer", got: "one at 3m0s, 9m0s too early"},
		{clause: c, says: breaks, name: "nothing is left", log: log(
			entry{status: 429, fields: ra("600", "X-RateLimit-Remaining", "0", "X-RateLimit-Reset", "600")},
			entry{at: time.Minute, path: "/b", status: 200}),
			where: []int{0, 1}, want: "no arrival before 10m0s, 10m0s after the answer", got: "one at 1m0s, 9m0s too early"},
		{clause: c, says: keeps, name: "a probe that is answered well opens the key", log: log(long,
			entry{at: 60 * second, path: "/b", status: 200}, entry{at: 60*second + 500*ms, path: "/c", status: 200})},
		{clause: c, says: breaks, name: "one that is told longer closes it for longer", log: log(long,
			entry{at: 60 * second, path: "/b", status: 429, fields: ra("30")}, entry{at: 80 * second, path: "/c", status: 200}),
			where: []int{1, 2}, want: "no arrival before 1m30s, 30s after the answer", got: "one at 1m20s, 10s too early"},
		{clause: c, says: silent, name: "a short hint, answered well before", log: log(short(200, time.Second, "2")...)},
		{clause: c, says: breaks, name: "of more than two seconds", log: log(short(200, time.Second, "3")...),
			where: []int{1, 2}, want: "no arrival before 4s, 3s after the answer", got: "one at 1.2s, 2.8s too early"},
		{clause: c, says: breaks, name: "nothing is left, in the short run",
			log:   log(short(200, time.Second, "1", "X-RateLimit-Remaining", "0", "X-RateLimit-Reset", "1")...),
			where: []int{1, 2}, want: "no arrival before 2s, 1s after the answer", got: "one at 1.2s, 800ms too early"},
		{clause: c, says: breaks, name: "answered long before", log: log(short(200, 11*time.Second, "1")...),
			where: []int{1, 2}, want: "no arrival before 12s, 1s after the answer", got: "one at 11.2s, 800ms too early"},
		{clause: c, says: breaks, name: "not answered well before", log: log(short(503, time.Second, "1")...),
			where: []int{1, 2}, want: "no arrival before 2s, 1s after the answer", got: "one at 1.2s, 800ms too early"},
		{clause: c, says: breaks, name: "the second one", log: log(append(short(200, time.Second, "1"),
			entry{at: 1300 * ms, path: "/d", status: 429, fields: ra("1")}, entry{at: 1500 * ms, path: "/e", status: 200})...),
			where: []int{3, 4}, want: "no arrival before 2.3s, 1s after the answer", got: "one at 1.5s, 800ms too early"},
		{clause: c, says: silent, name: "the second one, among good answers", log: log(append(append(short(200, time.Second, "1"),
			times(4, 10*ms, entry{at: 1220 * ms, path: "/g", status: 200})...),
			entry{at: 1300 * ms, path: "/d", status: 429, fields: ra("1")}, entry{at: 1500 * ms, path: "/e", status: 200})...)},
	}
}

func retryJudgements() []judgement {
	const a, b = "client/attempts", "client/budget"
	named := func(n int) []entry { return times(n, second, entry{idem: "x", status: 503}) }
	// Ten requests, and as many retries in a second as n.
	load := func(n int) []entry {
		list := times(10, 0, entry{path: "/b", status: 200})
		list = append(list, entry{path: "/a", status: 503})
		return append(list, times(n, 0, entry{at: second, path: "/a", status: 503})...)
	}
	// One request that is refused each half second, and comes back each time.
	refused := times(24, second/2, entry{status: 429, fields: ra("1", "Retry-After-Ms", "500")})
	// The same, with a good answer to another one each time.
	among := func(good entry) (list []entry) {
		for _, again := range times(30, second/2, refused[0]) {
			list = append(list, good, again)
			good.at += second / 2
		}
		return list
	}
	// Twenty requests that are refused together, twice.
	var pool []entry
	for _, at := range []time.Duration{0, 2 * second, 4 * second} {
		for i := range 20 {
			pool = append(pool, entry{at: at, path: fmt.Sprint("/", i), status: 429, fields: ra("2")})
		}
	}
	var alternating []entry
	for i := range 12 {
		alternating = append(alternating, entry{at: time.Duration(2*i) * second, status: 503},
			entry{at: time.Duration(2*i+1) * second, status: 200})
	}
	return []judgement{
		{clause: a, says: breaks, name: "11", log: log(named(11)...), where: []int{0, 10}, want: "at most 10 attempts",
			got: "11"},
		{clause: a, says: keeps, name: "10", log: log(named(10)...)},
		{clause: a, says: keeps, name: "after a success comes another request", log: log(alternating...)},
		{clause: a, says: silent, name: "a success of one worker leaves another's failure", log: log(
			entry{idem: "x", status: 503}, entry{at: second, idem: "x", status: 200}, // this one is clear
			entry{at: 2 * second, took: second, status: 503}, entry{at: 2*second + ms, took: 2 * second, status: 200},
			entry{at: 5 * second, status: 200})},
		{clause: a, says: silent, name: "no retry", log: log(times(20, second, entry{status: 200})...)},
		{clause: a, says: silent, name: "a success ends the request",
			log: log(times(20, second, entry{id: "same", status: 200})...)},
		{clause: a, says: silent, name: "workers that do the same",
			log: log(times(20, ms, entry{took: second, status: 503})...)},

		{clause: b, says: breaks, name: "13 for 11 requests in a second", log: log(load(13)...), where: []int{23},
			want: "at most 12 such retries for 11 requests in 1s", got: "13"},
		{clause: b, says: keeps, name: "12 for 11 requests in a second", log: log(load(12)...)},
		{clause: b, says: silent, name: "answered in the end", log: log(append(load(13), entry{at: second, path: "/a",
			status: 404})...)},
		{clause: b, says: breaks, name: "lost in the end", log: log(append(load(12), entry{at: second, path: "/a"})...),
			where: []int{23}, want: "at most 12 such retries for 11 requests in 1s", got: "13"},
		{clause: b, says: breaks, name: "refused in the end", log: log(append(load(12), entry{at: second, path: "/a",
			status: 429})...), where: []int{23}, want: "at most 12 such retries for 11 requests in 1s", got: "13"},
		{clause: b, says: silent, name: "waited out", log: log(refused[:2]...)},
		{clause: b, says: breaks, name: "waited out 23 times without a good answer", log: log(refused...),
			where: []int{23}, want: "at most 21 such retries for 1 requests in 11.5s", got: "22"},
		{clause: b, says: keeps, name: "waited out 22 times", log: log(refused[:23]...)},
		{clause: b, says: silent, name: "waited out among good answers", log: log(among(entry{path: "/b", status: 200})...)},
		{clause: b, says: breaks, name: "waited out among good answers to another caller",
			log: log(among(entry{path: "/b", status: 200, auth: "b"})...), where: []int{59},
			want: "at most 27 such retries for 31 requests in 14.5s", got: "28"},
		{clause: b, says: breaks, name: "waited out among good answers with another key",
			log: log(among(entry{path: "/b", status: 200, key: "b"})...), where: []int{59},
			want: "at most 27 such retries for 31 requests in 14.5s", got: "28"},
		{clause: b, says: breaks, name: "good answers before the end of each wait",
			log: log(among(entry{at: -ms, path: "/b", status: 200})...), where: []int{59},
			want: "at most 27 such retries for 31 requests in 14.501s", got: "28"},
		{clause: b, says: silent, name: "waited out, but sent before the end of a longer hint",
			log: log(append([]entry{{path: "/b", status: 429, fields: ra("30")}}, refused...)...)},
		{clause: b, says: keeps, name: "only the first of many that are refused again is paid", log: log(pool...)},
		{clause: b, says: silent, name: "workers that do the same",
			log: log(append(times(5, ms, entry{took: second, status: 503}), entry{at: 2 * second, status: 200})...)},
	}
}

func requestJudgements() []judgement {
	const s, i = "client/same-request", "client/idempotent"
	post := entry{method: "POST", path: "/pay", id: "r", idem: "k", body: "0123456789abcdef", status: 503}
	with := func(change func(*entry)) []contract.Exchange {
		again := post
		again.at = second
		change(&again)
		return log(post, again)
	}
	bare := func(status int, h ...string) []contract.Exchange {
		e := entry{method: "POST", path: "/pay", body: "x", status: status, fields: h}
		again := e
		again.at, again.status = 20*second, 201
		return log(e, again)
	}
	questions := func(url string) []contract.Exchange {
		l := bare(500)
		l[0].URL, l[1].URL = url, url
		return l
	}
	unread := bare(500)
	unread[0].BodyUnread = true
	return []judgement{
		{clause: s, says: keeps, name: "the same", log: with(func(*entry) {})},
		{clause: s, says: breaks, name: "another body", log: with(func(e *entry) { e.body = "fedcba9876543210" }),
			where: []int{0, 1}, want: "body of SHA-256 0123456789ab", got: "body of SHA-256 fedcba987654"},
		{clause: s, says: keeps, name: "a body that was not read to its end", log: with(func(e *entry) { e.body = "" })},
		{clause: s, says: breaks, name: "another Idempotency-Key", log: with(func(e *entry) { e.idem = "l" }),
			where: []int{0, 1}, want: "Idempotency-Key of the first attempt", got: "Idempotency-Key another one, or none"},
		{clause: s, says: breaks, name: "no Idempotency-Key", log: with(func(e *entry) { e.idem = "" }),
			where: []int{0, 1}, want: "Idempotency-Key of the first attempt", got: "Idempotency-Key another one, or none"},
		{clause: s, says: breaks, name: "another method",
			log:   log(entry{idem: "k", status: 503}, entry{at: second, method: "PUT", idem: "k", status: 200}),
			where: []int{0, 1}, want: "method GET", got: "method PUT"},
		{clause: s, says: breaks, name: "another URL",
			log:   log(entry{idem: "k", path: "/?a=1", status: 503}, entry{at: second, idem: "k", path: "/?a=2", status: 200}),
			where: []int{0, 1}, want: "URL http://api.example/?…", got: "URL http://api.example/?… (or another query)"},
		{clause: s, says: silent, name: "requests without a name", log: log(times(3, second, entry{status: 503})...)},

		{clause: i, says: breaks, name: "after a 500", log: bare(500), where: []int{0, 1}, want: "no retry after 500",
			got: "a retry"},
		{clause: i, says: breaks, name: "after a lost answer", log: bare(0), where: []int{0, 1},
			want: "no retry after dropped", got: "a retry"},
		{clause: i, says: breaks, name: "after a 503 with Retry-After", log: bare(503, ra("10")...), where: []int{0, 1},
			want: "no retry after 503", got: "a retry"},
		{clause: i, says: breaks, name: "after a 500 that asks for no retry", log: bare(500, "X-Should-Retry", "false"),
			where: []int{0, 1}, want: "no retry after 500", got: "a retry"},
		{clause: i, says: keeps, name: "after a 500 that asks for a retry", log: bare(500, "X-Should-Retry", "true")},
		{clause: i, says: keeps, name: "after Stripe's", log: bare(500, "Stripe-Should-Retry", "true")},
		{clause: i, says: keeps, name: "after a 429", log: bare(429)},
		{clause: i, says: keeps, name: "after a 425", log: bare(425)},
		{clause: i, says: keeps, name: "after a 529 with Retry-After", log: bare(529, ra("10")...)},
		{clause: i, says: keeps, name: "after a 418 with Retry-After", log: bare(418, ra("10")...)},
		{clause: i, says: keeps, name: "of a body that was not read", log: unread},
		{clause: i, says: silent, name: "with an Idempotency-Key", log: with(func(*entry) {})},
		{clause: i, says: silent, name: "of a question to a model", log: questions("https://api.openai.com:443/v1/responses")},
		{clause: i, says: breaks, name: "of a file", log: questions("https://api.openai.com/v1/files"), where: []int{0, 1},
			want: "no retry after 500", got: "a retry"},
		{clause: i, says: breaks, name: "of another host", log: questions("https://openai.example/v1/responses"),
			where: []int{0, 1}, want: "no retry after 500", got: "a retry"},
		{clause: i, says: silent, name: "of a PUT", log: log(times(3, second, entry{method: "PUT", status: 503})...)},
		{clause: i, says: silent, name: "of a QUERY", log: log(times(3, second, entry{method: "QUERY", status: 503})...)},
		{clause: i, says: silent, name: "after a success",
			log: log(times(3, second, entry{method: "POST", status: 201})...)},
	}
}

func herdJudgements() []judgement {
	const h = "client/herd"
	together := func(n int, back ...time.Duration) []contract.Exchange {
		list := times(n, 0, entry{status: 429, fields: ra("10")})
		for _, at := range back {
			list = append(list, entry{at: at, status: 200})
		}
		return log(list...)
	}
	return []judgement{
		{clause: h, says: breaks, name: "three at once", log: together(3, 10*second, 10*second, 10*second+5*ms),
			where: []int{2, 5}, want: "3 requests spread out", got: "all of them within 5ms"},
		{clause: h, says: keeps, name: "one a little later", log: together(3, 10*second, 10*second, 10*second+6*ms)},
		{clause: h, says: silent, name: "two are not a herd", log: together(2, 10*second, 10*second)},
		{clause: h, says: silent, name: "no request came back", log: together(3)},
		{clause: h, says: breaks, name: "refused again each time", log: log(
			entry{status: 429, fields: ra("10")}, entry{status: 429, fields: ra("10")}, entry{status: 429, fields: ra("10")},
			entry{at: 10 * second, status: 429, fields: ra("10")}, entry{at: 10 * second, status: 429, fields: ra("10")},
			entry{at: 10 * second, status: 429, fields: ra("10")},
			entry{at: 20*second + 10*ms, status: 200}, entry{at: 20*second + 20*ms, status: 200}),
			where: []int{2, 5}, want: "3 requests spread out", got: "all of them within 5ms"},
	}
}

// A retry is free only if it waited for as long as the hint said.
func TestAnEarlyRetryCostsBudget(t *testing.T) {
	early := times(25, second, entry{status: 429, fields: ra("2")})
	free := times(25, 2*second, entry{status: 429, fields: ra("2")})
	breaches, _ := clause(t, "client/budget").Check(log(early...))
	assert.Empty(t, breaches, "24 retries in 24 s are within the floor")
	early = times(25, second/2, entry{status: 429, fields: ra("2")})
	breaches, _ = clause(t, "client/budget").Check(log(early...))
	assert.Len(t, breaches, 1, "24 in 12 s are not")
	breaches, _ = clause(t, "client/budget").Check(log(free...))
	assert.Empty(t, breaches)
}

func TestEachHostHasItsOwnBudget(t *testing.T) {
	l := log(append(times(11, 0, entry{status: 503}), times(11, 0, entry{status: 503})...)...)
	for i := range l[11:] {
		l[11+i].URL = "http://other.example/"
	}
	breaches, applicable := clause(t, "client/budget").Check(l)
	assert.Empty(t, breaches)
	assert.True(t, applicable)
}

// In a synctest bubble many events have the same time. The log need not be in order.
func TestNumbersOrderSimultaneousEvents(t *testing.T) {
	l := log(entry{status: 200}, entry{status: 503, fields: ra("10")})
	c := clause(t, "client/wait-seconds")
	_, applicable := c.Check(l)
	assert.False(t, applicable, "the failure was last")
	l[1].ArrivalNo, l[1].AnswerNo, l[0].ArrivalNo, l[0].AnswerNo = 1, 2, 3, 4
	breaches, _ := c.Check(l)
	if assert.Len(t, breaches, 1) {
		assert.Equal(t, []int{1, 0}, breaches[0].Exchanges)
	}
	l[1].ArrivalNo, l[0].ArrivalNo, l[1].AnswerNo, l[0].AnswerNo = 1, 2, 3, 4
	_, applicable = c.Check(l)
	assert.False(t, applicable, "neither can be a retry of the other")
}
