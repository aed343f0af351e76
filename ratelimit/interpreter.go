package ratelimit

import (
	"math/big"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"
)

// An interpreter reads one response by a Profile.
type interpreter struct {
	profile *Profile
	status  int
	header  http.Header // all fields of the response
	body    document
	reader  reader // of the fields that profile does not name; see others
}

// others returns the reader of the fields that the Profile does not name. It sets them
// apart on first use, because that allocates and most responses do not need it.
func (e *interpreter) others() *reader {
	if e.reader.header == nil {
		e.reader.header = e.profile.others(e.header)
	}
	return &e.reader
}

// sign returns the first of the Profile's Signs that the response shows. Without one, a
// 429 is Limited and anything else Unsaid.
func (e *interpreter) sign() Sign {
	for i := range e.profile.Signs {
		if s := &e.profile.Signs[i]; e.shows(s) {
			return *s
		}
	}
	if e.status == http.StatusTooManyRequests {
		return Sign{Means: Limited}
	}
	if e.profile.HasEvents(e.status, e.header) {
		means, data, _ := e.profile.firstEvent(e.body.text)
		e.body = data // of which Delays are read
		return Sign{Means: means}
	}
	return Sign{Means: Unsaid}
}

// shows reports whether the response has everything that s names.
func (e *interpreter) shows(s *Sign) bool {
	if !e.mayShow(s) {
		return false
	}
	return s.Body == "" || e.body.any(s.Body, s.Is)
}

// mayShow reports whether the status and the header allow s. The body may still rule it
// out.
func (e *interpreter) mayShow(s *Sign) bool {
	switch {
	case len(s.Status) == 0 && 100 <= e.status && e.status < 400,
		len(s.Status) > 0 && !slices.Contains(s.Status, e.status),
		s.Without != "" && len(e.header[s.Without]) > 0:
		return false
	case s.Spent && !e.spent():
		return false
	case s.Header == "":
		return true
	}
	is := s.Is
	if s.Body != "" {
		is = nil // Is applies to Body
	}
	return slices.ContainsFunc(e.header[s.Header], func(line string) bool { return isOneOf(trim(line), is) })
}

// spent reports whether a quota is used up.
func (e *interpreter) spent() bool {
	var space [4]Limit
	limits := e.others().quotas(e.quotas(space[:0]), false)
	return slices.ContainsFunc(limits, func(l Limit) bool { return l.Remaining == 0 })
}

// wait returns how long the response asks the client to wait.
func (e *interpreter) wait(m Meaning) time.Duration {
	limited := m == Limited || limitsOnly(e.status)
	refused := limited || e.status < 100 || e.status >= 400
	switch {
	case !refused && e.status < 300:
		return unknown
	case !refused:
		e.body = document{} // a redirect's body says nothing
	}
	coarse, fine := e.others().coarse(), max(e.others().fine(), e.delay())
	wait := refine(coarse, fine)
	switch {
	case wait == unknown:
		wait = e.others().lastResort()
	case limited && roundedDown(coarse, fine):
		wait = unrounded(wait, e.others().quotas(e.quotas(nil), false))
	}
	if wait == unknown && refused {
		wait = e.untilRestored(limited)
	}
	if wait == unknown && m == Limited && e.profile.Otherwise > 0 {
		wait = min(e.profile.Otherwise, maxWait)
	}
	return wait
}

// untilRestored returns the time until some quota is available again.
func (e *interpreter) untilRestored(limited bool) time.Duration {
	if wait := e.cost(); wait != unknown {
		return wait
	}
	return spent(e.others().quotas(e.quotas(nil), false), limited)
}

// delay returns the longest wait of the Profile's Delays.
func (e *interpreter) delay() time.Duration {
	longest := unknown
	for i := range e.profile.Delays {
		longest = max(longest, e.until(&e.profile.Delays[i]))
	}
	return longest
}

// until returns the longest wait of one Delay.
func (e *interpreter) until(d *Delay) time.Duration {
	wait := unknown
	switch {
	case d.Form == Pacific:
		wait = untilMidnight(pacific(), e.others().clock.now())
	case d.Body == "":
		wait = e.others().longest(e.header[d.Header], d.Form.syntax())
	case d.Header == "":
		wait = e.within(&e.body, d)
	default:
		for _, line := range e.header[d.Header] {
			wait = max(wait, e.within(&document{text: []byte(line)}, d))
		}
	}
	if wait == 0 && d.NotZero {
		return unknown
	}
	return wait
}

// pacific is the time in California, or an hour later in summer if the machine has no time zones.
var pacific = sync.OnceValue(func() *time.Location {
	if zone, err := time.LoadLocation("America/Los_Angeles"); err == nil {
		return zone
	}
	return time.FixedZone("PST", -8*60*60)
})

// untilMidnight returns the time until the next day begins in zone.
func untilMidnight(zone *time.Location, now time.Time) time.Duration {
	year, month, day := now.In(zone).Date()
	return ceilMilli(time.Date(year, month, day+1, 0, 0, 0, 0, zone).Sub(now))
}

// within returns the longest wait at the path of d in doc.
func (e *interpreter) within(doc *document, d *Delay) time.Duration {
	wait := unknown
	for value := range doc.values(d.Body) {
		wait = max(wait, e.others().value(value, d.Form.syntax()))
	}
	return wait
}

// quotas appends the Profile's Quotas, unless the response comes from a cache.
func (e *interpreter) quotas(dst []Limit) []Limit {
	if age(e.header["Age"]) > 0 {
		return dst
	}
	first := len(dst)
	for i := range e.profile.Quotas {
		q := &e.profile.Quotas[i]
		switch {
		case q.In == "":
			dst = e.quota(dst, q, q.Name, e.header)
		case strings.HasSuffix(q.In, "*"):
			for name := range e.header {
				if len(dst)-first < mostStates && matches(name, q.In) {
					dst = e.quotasIn(dst, q, strings.ToLower(name[len(q.In)-1:]), e.header[name])
				}
			}
		default:
			dst = e.quotasIn(dst, q, q.Name, e.header[q.In])
		}
	}
	return dst
}

// quotasIn appends the state of q from each line of a field.
func (e *interpreter) quotasIn(dst []Limit, q *Quota, name string, lines []string) []Limit {
	for _, line := range lines[:min(len(lines), mostStates)] {
		dst = e.quota(dst, q, name, recordOf(line))
	}
	return dst
}

// quota appends the state of q from a record, if the record has any.
func (e *interpreter) quota(dst []Limit, q *Quota, name string, record map[string][]string) []Limit {
	l := stateless
	l.Remaining, l.Quota = leftOf(record[q.Remaining]).least, max(leftOf(record[q.Limit]).least, 0)
	if used, limit := usage(record[q.Used]); limit >= 0 {
		l.Remaining, l.Quota = max(limit-used, 0), limit
	}
	l.Reset = e.others().longest(record[q.Reset], q.Form.syntax())
	l.Window = max(e.others().longest(record[q.Window], q.WindowForm.syntax()), 0)
	if l == stateless {
		return dst
	}
	l.Name = name
	return append(dst, l)
}

// usage reads lines such as 32/40. limit is -1 if there is none.
func usage(lines []string) (used, limit int64) {
	for _, line := range lines {
		head, tail, ok := strings.Cut(line, "/")
		used, limit = leftOf([]string{head}).least, leftOf([]string{tail}).least
		if ok && used >= 0 && limit >= 0 {
			return used, limit
		}
	}
	return 0, -1
}

// cost returns the wait that follows from the cost of a query, or impossible.
func (e *interpreter) cost() time.Duration {
	c := e.profile.Cost
	if c == nil {
		return unknown
	}
	requested, available := e.body.number(c.Requested), e.body.number(c.Available)
	rate, maximum := e.body.number(c.Rate), e.body.number(c.Maximum)
	switch {
	case requested == nil:
		return unknown
	case maximum != nil && requested.Cmp(maximum) > 0:
		return impossible
	case available == nil || rate == nil || rate.Sign() <= 0:
		return unknown
	}
	missing := new(big.Rat).Sub(requested, available)
	return ceilRat(missing.Quo(missing, rate))
}

// ceilRat returns seconds rounded up to a millisecond, in [0, maxWait].
func ceilRat(seconds *big.Rat) time.Duration {
	if seconds.Sign() <= 0 {
		return 0
	}
	millis := seconds.Mul(seconds, big.NewRat(1000, 1))
	n, rest := new(big.Int).QuoRem(millis.Num(), millis.Denom(), new(big.Int))
	if rest.Sign() > 0 {
		n.Add(n, big.NewInt(1))
	}
	if !n.IsInt64() || n.Int64() > int64(maxWait/time.Millisecond) {
		return maxWait
	}
	return time.Duration(n.Int64()) * time.Millisecond
}
