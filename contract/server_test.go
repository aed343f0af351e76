package contract_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/heedhttp/heed/contract"
)

func serverJudgements() []judgement {
	return slices.Concat(denialJudgements(), obeyedJudgements(), presentJudgements(), fieldJudgements(), bodyJudgements())
}

const whole = "a response that keeps the clause" // the Want of clauses about a single response

// denial is a correct 429.
func denial(more ...string) entry {
	return entry{status: 429, reply: `{"type":"about:blank","title":"Too Many Requests","status":429}`,
		fields: append([]string{
			"Retry-After", "10", "Cache-Control", "no-store", "Content-Type", "application/problem+json",
			"RateLimit-Policy", `"default";q=5;w=50`, "RateLimit", `"default";r=0;t=10`,
			"X-RateLimit-Limit", "5", "X-RateLimit-Remaining", "0", "X-RateLimit-Reset", "1795176050",
		}, more...)}
}

// answer is a log of one response with these fields.
func answer(status int, fields ...string) []contract.Exchange {
	return log(entry{status: status, fields: fields})
}

func denialJudgements() []judgement {
	const r, s, e = "server/retry-after", "server/no-store", "server/explained"
	want := "one Retry-After of at least 1, or a future date"
	bad := func(name, got string, values ...string) judgement {
		var h []string
		for _, v := range values {
			h = append(h, "Retry-After", v)
		}
		return judgement{clause: r, says: breaks, name: name, log: answer(429, h...), where: []int{0}, want: want, got: got}
	}
	stored := func(name string, h ...string) judgement {
		j := judgement{clause: s, says: breaks, name: name, log: answer(429, h...), where: []int{0}, want: whole,
			got: `Cache-Control ""`}
		if len(h) > 0 {
			j.got = `Cache-Control "` + h[1] + `"`
		}
		return j
	}
	return []judgement{
		{clause: r, says: keeps, name: "1 second", log: answer(429, ra("1")...)},
		{clause: r, says: keeps, name: "a future date", log: answer(429, ra(date(2), "Date", date(1))...)},
		{clause: r, says: keeps, name: "RFC 850", log: answer(429, ra("Friday, 20-Nov-26 12:00:02 GMT")...)},
		{clause: r, says: keeps, name: "50 years ahead", log: answer(429, ra("Friday, 20-Nov-76 12:00:00 GMT")...)},
		bad("51 years ahead is 49 years ago", `1: "Saturday, 20-Nov-77 12:00:00 GMT"`, "Saturday, 20-Nov-77 12:00:00 GMT"),
		{clause: r, says: breaks, name: "X-Should-Retry: false does not allow a wrong Retry-After",
			log:   answer(429, ra("0", "X-Should-Retry", "false")...),
			where: []int{0}, want: want, got: `1: "0"`},
		{clause: r, says: keeps, name: "a leap second", log: answer(429, ra("Thu, 31 Dec 2026 23:59:60 GMT")...)},
		bad("none", `0: ""`),
		bad("0", `1: "0"`, "0"),
		bad("-1", `1: "-1"`, "-1"),
		bad("a fraction", `1: "1.5"`, "1.5"),
		bad("spaces", `1: " 1"`, " 1"),
		bad("two lines", `2: "1, 1"`, "1", "1"),
		bad("now as a date", `1: "Fri, 20 Nov 2026 12:00:00 GMT"`, date(0)),
		bad("another zone", `1: "Fri, 20 Nov 2026 13:00:00 UTC"`, "Fri, 20 Nov 2026 13:00:00 UTC"),
		bad("minute 60", `1: "Fri, 20 Nov 2026 13:60:59 GMT"`, "Fri, 20 Nov 2026 13:60:59 GMT"),
		bad("a long one is cut", `1: "xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx…"`, strings.Repeat("x", 4096)),
		{clause: r, says: silent, name: "no 429", log: answer(503)},
		{clause: r, says: silent, name: "a cost that never fits", log: answer(429, "X-Should-Retry", "false")},
		{clause: r, says: silent, name: "its own problem type",
			log: log(entry{status: 429, fields: []string{"Content-Type", "application/problem+json"},
				reply: `{"type":"https://example.com/too-big"}`})},
		{clause: r, says: breaks, name: "a registered problem type",
			log: log(entry{status: 429, fields: []string{"Content-Type", "application/problem+json"},
				reply: `{"type":"about:blank"}`}),
			where: []int{0}, want: want, got: `0: ""`},

		stored("no Cache-Control"),
		stored("max-age", "Cache-Control", "max-age=0"),
		stored("a name that is longer", "Cache-Control", "no-store-please"),
		{clause: s, says: keeps, name: "among others",
			log: answer(429, "Cache-Control", "private", "Cache-Control", "max-age=0, No-Store")},
		{clause: s, says: silent, name: "no 429", log: answer(200)},

		{clause: e, says: breaks, name: "plain text", log: answer(429, "Content-Type", "text/plain"), where: []int{0},
			want: whole, got: `Content-Type "text/plain"`},
		{clause: e, says: breaks, name: "nothing", log: answer(429), where: []int{0}, want: whole,
			got: `Content-Type "(none)"`},
		{clause: e, says: keeps, name: "a problem",
			log: answer(429, "Content-Type", "application/problem+json; charset=utf-8")},
		{clause: e, says: keeps, name: "a HEAD has no body", log: log(entry{method: "HEAD", status: 429})},
		{clause: e, says: silent, name: "no 429", log: answer(503)},
	}
}

// after is e, later by d.
func after(d time.Duration, e entry) entry {
	e.at = d
	return e
}

// slow is e with an answer d after its arrival.
func slow(d time.Duration, e entry) entry {
	e.took = d
	return e
}

func of(path string, e entry) entry {
	e.path = path
	return e
}

func by(caller string, e entry) entry {
	e.auth = caller
	return e
}

func obeyedJudgements() []judgement {
	const o = "server/obeyed"
	no, yes := denial(), entry{status: 200}
	fine := no
	fine.reply = `{"retry_after_ms":9500}`
	broken := func(name string, where []int, want, got string, list ...entry) judgement {
		return judgement{clause: o, says: breaks, name: name, log: log(list...), where: where,
			want: "a request at " + want + " or later to be admitted", got: "one at " + got + " denied"}
	}
	return []judgement{
		broken("denied when it came back", []int{0, 1}, "10s", "10s", no, after(10*second, no)),
		{clause: o, says: keeps, name: "admitted when it came back", log: log(no, after(10*second, yes))},
		{clause: o, says: silent, name: "a millisecond early", log: log(no, after(10*second-ms, no))},
		broken("the wait counts from the answer", []int{0, 1}, "10.2s", "10.2s", slow(200*ms, no),
			after(10*second+200*ms, no)),
		{clause: o, says: silent, name: "the wait counts from the answer",
			log: log(slow(200*ms, no), after(10*second+199*ms, no))},
		{clause: o, says: silent, name: "another one was admitted in between",
			log: log(no, of("/b", after(9*second, yes)), after(10*second, no))},
		{clause: o, says: silent, name: "another one arrived in between",
			log: log(no, slow(second, of("/b", after(10*second-ms, yes))), after(10*second, no))},
		{clause: o, says: silent, name: "another one arrived together with it",
			log: log(no, slow(ms, after(10*second, no)), of("/b", after(10*second+ms/2, yes)))},
		{clause: o, says: silent, name: "another one was in flight",
			log: log(slow(second, of("/b", yes)), after(ms, no), after(10*second+ms, no))},
		broken("another one was admitted before", []int{1, 2}, "10s", "10s", of("/b", yes), no, after(10*second, no)),
		broken("another one was admitted later", []int{0, 1}, "10s", "10s", no, after(10*second, no),
			of("/b", after(10*second+ms, yes))),
		broken("another one was denied", []int{0, 2}, "10s", "10s", no, of("/b", after(second, no)), after(10*second, no)),
		broken("one of another key was admitted", []int{0, 2}, "10s", "10s", no, entry{at: second, key: "b", status: 200},
			after(10*second, no)),
		{clause: o, says: silent, name: "another caller", log: log(by("a", no), by("b", after(10*second, no)))},
		{clause: o, says: silent, name: "another resource", log: log(of("/a", no), of("/b", after(10*second, no)))},
		{clause: o, says: silent, name: "another query, which may cost more",
			log: log(of("/a?x=1", no), of("/a?x=2", after(10*second, no)))},
		broken("the body is finer than the header", []int{0, 1}, "9.5s", "9.5s", fine, after(9500*ms, no)),
		{clause: o, says: silent, name: "no hint was given", log: log(entry{status: 429}, after(10*second, no))},
	}
}

func presentJudgements() []judgement {
	const p, u = "server/fields", "server/used-up"
	announced := entry{status: 200, fields: []string{"RateLimit", `"a";r=1`}}
	none := func(where int, list ...entry) judgement {
		return judgement{clause: p, says: breaks, log: log(list...), where: []int{where},
			want: "RateLimit or X-RateLimit fields", got: "none"}
	}
	named := func(name string, j judgement) judgement { j.name = name; return j }
	headed := func(e entry) entry { e.method = "HEAD"; return e }
	left := func(r, status int) entry {
		return entry{status: status, fields: []string{"RateLimit", fmt.Sprintf(`"a";r=%d, "b";r=900`, r)}}
	}
	return []judgement{
		named("a denial without", none(0, entry{status: 429})),
		named("on the denial alone", none(0, entry{status: 200}, denial())),
		named("not on an error", none(1, announced, entry{status: 500})),
		{clause: p, says: keeps, name: "on all",
			log: log(announced, denial(), entry{status: 304, fields: []string{"X-RateLimit-Remaining", "1"}})},
		{clause: p, says: keeps, name: "a 503 may have nothing to tell", log: log(announced, entry{status: 503})},
		{clause: p, says: keeps, name: "another resource may have no limit",
			log: log(announced, of("/health", entry{status: 200}))},
		{clause: p, says: silent, name: "no limit", log: log(entry{status: 200})},

		{clause: u, says: breaks, name: "denied with 1 left", log: log(left(3, 200), left(2, 200), left(1, 429)),
			where: []int{2}, want: "a policy with 0 remaining", got: "at least 1 of each"},
		{clause: u, says: keeps, name: "denied with 0 left", log: log(left(1, 200), left(0, 200), left(0, 429))},
		{clause: u, says: silent, name: "a request costs two", log: log(left(5, 200), left(3, 200), left(1, 429))},
		{clause: u, says: silent, name: "the cost is unknown",
			log: log(left(3, 200), after(second, left(2, 200)), left(1, 429))},
		{clause: u, says: silent, name: "a HEAD, which has no body to tell its cost",
			log: log(headed(left(3, 200)), headed(left(2, 200)), headed(left(1, 429)))},
		{clause: u, says: silent, name: "nothing announced", log: log(left(3, 200), left(2, 200), entry{status: 429})},
	}
}

func fieldJudgements() []judgement {
	const v, r, a = "server/fields-valid", "server/remaining", "server/fields-agree"
	bad := func(clause, got string, fields ...string) judgement {
		return judgement{clause: clause, says: breaks, name: strings.Join(fields, " "), log: answer(200, fields...),
			where: []int{0}, want: whole, got: got}
	}
	good := func(clause string, fields ...string) judgement {
		return judgement{clause: clause, says: keeps, name: strings.Join(fields, " "), log: answer(200, fields...)}
	}
	const policy = "RateLimit-Policy"
	sf := func(field, got string) string { return field + ": not a structured field: " + got }
	return []judgement{
		{clause: v, says: silent, name: "none", log: answer(200)},
		{clause: r, says: silent, name: "none", log: answer(200)},
		{clause: a, says: silent, name: "none", log: answer(200)},

		good(v, policy, `"a";q=10;w=60;qu="requests";pk=:aGVlZA==:, "b \" \\";q=0;x;y=?0;z=1.5;u=tok/en`, "RateLimit",
			`"a";r=1;t=0`, "RateLimit", `"b";  r=0`),
		good(v, policy, `10;w=1, 100;w=60;comment="x"`, "RateLimit", "limit=10, remaining=5, reset=1"),
		good(v, "RateLimit-Limit", "10, 10;w=1", "RateLimit-Remaining", "3", "RateLimit-Reset", "1"),
		good(v, "X-RateLimit-Limit", "10", "X-RateLimit-Remaining", "-1", "X-RateLimit-Reset", "1795176050"),
		bad(v, sf(policy, "a value is missing"), policy, `"a";q=10,`),
		bad(v, sf(policy, `";q=1" instead of a comma`), policy, `"a" ;q=1`),
		bad(v, sf(policy, `"Q=1" instead of a key`), policy, `"a";Q=1`),
		bad(v, sf(policy, `a string without its end`), policy, `"a;q=1`),
		bad(v, sf(policy, `byte 0xc3 in a string`), policy, `"é";q=1`),
		bad(v, sf(policy, `a backslash before neither quote nor backslash`), policy, `"\a";q=1`),
		bad(v, sf(policy, `"1234567890123456" is not a number`), policy, `"a";q=1234567890123456`),
		bad(v, sf(policy, `"1." is not a number`), policy, `"a";q=1.`),
		bad(v, sf(policy, `"?2" is not a boolean`), policy, `"a";q=1;x=?2`),
		bad(v, sf(policy, `":x" is not a byte sequence`), policy, `"a";q=1;pk=:x`),
		bad(v, policy+": a policy's name is not a String", policy, `a;q=1`),
		bad(v, policy+`: "a": q is not an Integer`, policy, `"a";w=1`),
		bad(v, policy+`: "a": q is -1, less than 0`, policy, `"a";q=-1`),
		bad(v, policy+`: "a": w is 0, less than 1`, policy, `"a";q=1;w=0`),
		bad(v, policy+`: "a": w is not an Integer`, policy, `"a";q=1;w=1.5`),
		bad(v, `RateLimit: "a": r is not an Integer`, "RateLimit", `"a";t=1`),
		bad(v, `RateLimit: "a": t is -1, less than 0`, "RateLimit", `"a";r=1;t=-1`),
		good(v, policy, `"a";q=10;w=60`, "RateLimit", `"a";a=1;w=17;c=3`, "RateLimit", `"a";r=1;t=17;a=1;w=17`),
		bad(v, `RateLimit: "a": r is not an Integer`, "RateLimit", `"a";w=1`),
		bad(v, `RateLimit: "a": a is not an Integer`, "RateLimit", `"a";r=1;a=1.5`),
		bad(v, `RateLimit: "a": w is -1, less than 0`, "RateLimit", `"a";a=1;w=-1`),
		bad(v, `RateLimit: "a": c is -1, less than 0`, "RateLimit", `"a";a=1;c=-1`),
		bad(v, `RateLimit: limit is not an Integer`, "RateLimit", `remaining=1`),
		bad(v, `X-RateLimit-Reset: "1.5" is not a number`, "X-RateLimit-Reset", "1.5"),
		bad(v, `X-RateLimit-Remaining: "1, 2" is not a number`, "X-RateLimit-Remaining", "1", "X-RateLimit-Remaining", "2"),
		bad(v, `X-RateLimit-Limit: "ten" is not a number`, "X-RateLimit-Limit", "ten"),

		good(r, policy, `"a";q=5`, "RateLimit", `"a";r=5`, "X-RateLimit-Limit", "5", "X-RateLimit-Remaining", "5"),
		good(r, "X-RateLimit-Limit", "5"),
		bad(r, `RateLimit "a": 6 remaining of 5`, policy, `"a";q=5`, "RateLimit", `"a";r=6`),
		bad(r, `RateLimit "a": -1 remaining`, "RateLimit", `"a";r=-1`),
		good(r, policy, `"a";q=5`, "RateLimit", `"a";a=5`),
		bad(r, `RateLimit "a": 6 remaining of 5`, policy, `"a";q=5`, "RateLimit", `"a";a=6`),
		bad(r, `RateLimit "a": -1 remaining`, policy, `"a";q=5`, "RateLimit", `"a";r=5;a=-1`),
		good(a, policy, `"a";q=5`, "RateLimit", `"a";a=1;w=10`, "X-RateLimit-Limit", "5", "X-RateLimit-Remaining", "1",
			"X-RateLimit-Reset", "1795176009"),
		bad(a, `RateLimit-Remaining: 1 remaining, reset 9, where RateLimit is "\"a\";a=1;w=10"`, "RateLimit", `"a";a=1;w=10`,
			"RateLimit-Remaining", "1", "RateLimit-Reset", "9"),
		bad(a, `X-RateLimit-Remaining: 2 remaining, limit 5, where RateLimit is "\"a\";r=2;a=1"`, policy, `"a";q=5`,
			"RateLimit", `"a";r=2;a=1`, "X-RateLimit-Limit", "5", "X-RateLimit-Remaining", "2"),
		bad(r, `X-RateLimit-Remaining: -1 remaining`, "X-RateLimit-Remaining", "-1"),
		bad(r, `X-RateLimit-Remaining: -2 remaining`, "X-RateLimit-Remaining", "-2"),
		bad(r, `RateLimit-Remaining: 6 remaining of 5`, "RateLimit-Limit", "5", "RateLimit-Remaining", "6"),
		bad(r, `RateLimit: 6 remaining of 5`, "RateLimit", "limit=5, remaining=6"),
		bad(r, `RateLimit "": -1 remaining`, "RateLimit", `"";r=-1`),

		good(a, policy, `"a";q=5`, "RateLimit", `"a";r=1;t=10`, "X-RateLimit-Limit", "5", "X-RateLimit-Remaining", "1",
			"X-RateLimit-Reset", "1795176009"),
		good(a, policy, `"a";q=5, "b";q=9`, "RateLimit", `"a";r=1;t=10, "b";r=3`, "X-RateLimit-Limit", "9",
			"X-RateLimit-Remaining", "3", "X-RateLimit-Reset", "0"),
		good(a, "X-RateLimit-Remaining", "1", "RateLimit-Remaining", "2"),
		bad(a, `RateLimit of "b", which RateLimit-Policy does not name`, policy, `"a";q=5`, "RateLimit", `"b";r=1`),
		bad(a, `X-RateLimit-Remaining: 2 remaining, limit 5, where RateLimit is "\"a\";r=1"`, policy, `"a";q=5`, "RateLimit",
			`"a";r=1`, "X-RateLimit-Limit", "5", "X-RateLimit-Remaining", "2"),
		bad(a, `X-RateLimit-Remaining: 1 remaining, limit 6, where RateLimit is "\"a\";r=1"`, policy, `"a";q=5`, "RateLimit",
			`"a";r=1`, "X-RateLimit-Limit", "6", "X-RateLimit-Remaining", "1"),
		bad(a, `RateLimit-Remaining: 1 remaining, reset 9, where RateLimit is "\"a\";r=1;t=10"`, "RateLimit", `"a";r=1;t=10`,
			"RateLimit-Remaining", "1", "RateLimit-Reset", "9"),
		bad(a, `X-RateLimit-Remaining: 1 remaining, reset 1795176008, where RateLimit is "\"a\";r=1;t=10"`, "RateLimit",
			`"a";r=1;t=10`, "X-RateLimit-Remaining", "1", "X-RateLimit-Reset", "1795176008"),
	}
}

func bodyJudgements() []judgement {
	const d, p = "server/denial-agrees", "server/problem"
	says := func(clause string, says verdict, reply, got string, more ...string) judgement {
		e := denial(more...)
		e.reply = reply
		j := judgement{clause: clause, says: says, name: reply + strings.Join(more, " "), log: log(e)}
		if says == breaks {
			j.where, j.want, j.got = []int{0}, whole, got
		}
		return j
	}
	cut := says(p, silent, `{"status":`, "")
	cut.log[0].ResponseLength++
	head := says(p, silent, "", "")
	head.log[0].Method = "HEAD"
	dated := denial()
	dated.fields[1] = date(10)
	return []judgement{
		says(d, keeps,
			`{"retryAfter":10,"error":{"retry_after":9.01},"retry_after_ms":9999,"violated-policies":["default"]}`, ""),
		says(d, keeps, `no JSON`, ""),
		says(d, keeps, `{"retryAfter":"soon","violated-policies":"x"}`, ""),
		says(d, breaks, `{"retryAfter":9}`, "Retry-After of 10 s, but retryAfter of 9 s"),
		says(d, breaks, `{"retry-after":11}`, "Retry-After of 10 s, but retry-after of 11 s"),
		says(d, breaks, `{"error":{"retry_after":9}}`, "Retry-After of 10 s, but retry_after of 9 s"),
		says(d, breaks, `{"retry_after_ms":10001}`, "Retry-After of 10 s, but retry_after_ms of 10.001 s"),
		says(d, breaks, `{"violated-policies":["other"]}`,
			`violated-policies with "other", which RateLimit-Policy does not name`),
		{clause: d, says: keeps, name: "policies of old drafts have no names", log: log(entry{status: 429,
			fields: ra("10", "RateLimit-Policy", "5;w=50", "RateLimit", "limit=5, remaining=0, reset=50"),
			reply:  `{"violated-policies":["x"]}`})},
		says(d, breaks, `{}`, `Retry-After of 10 s, but "x" is exhausted for 11 s`, "RateLimit", `"x";r=0;t=11`),
		says(d, keeps, `{ }`, "", "RateLimit", `"x";r=1;t=11`),
		says(d, breaks, `{  }`, `Retry-After of 10 s, but "x" is exhausted for 11 s`, "RateLimit", `"x";a=0;w=11`),
		says(d, breaks, `{   }`, `Retry-After of 10 s, but "x" is exhausted for 11 s`, "RateLimit", `"x";r=1;t=9;a=0;w=11`),
		{clause: d, says: keeps, name: "a date may be off by its second", log: log(dated)},
		{clause: d, says: silent, name: "no denial", log: answer(200, "RateLimit", `"a";r=0;t=9`)},

		says(p, keeps, `{"type":"about:blank","title":"a","status":429,"detail":"b","instance":"/c","more":[1]}`, ""),
		says(p, keeps, `{}`, ""),
		says(p, breaks, ``, "a body that is not a JSON object"),
		says(p, breaks, `null`, "a body that is not a JSON object"),
		says(p, breaks, `[]`, "a body that is not a JSON object"),
		says(p, breaks, `{"status":429}{}`, "a body that is not a JSON object"),
		says(p, breaks, `{"status":503}`, "status 503 in a 429"),
		says(p, breaks, `{"status":"429"}`, `status "429" in a 429`),
		says(p, breaks, `{"type":7,"title":null}`, "type that is not a string; title that is not a string"),
		says(p, breaks, `{"type":"%"}`, "type, which is not a URI reference"),
		cut, head,
		{clause: p, says: silent, name: "no problem", log: answer(429, "Content-Type", "application/json")},
	}
}

func TestACorrectDenialKeepsEveryClause(t *testing.T) {
	l := log(entry{status: 200,
		fields: []string{"RateLimit-Policy", `"default";q=5;w=50`, "RateLimit", `"default";r=0;t=10`}}, denial(),
		after(10*second, entry{status: 200, fields: []string{"RateLimit", `"default";r=0;t=10`}}))
	require.NoError(t, contract.Check(l))
}
