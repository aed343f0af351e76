package ratelimit

import (
	"net/http"
	"slices"
	"strings"
	"time"
)

// A Profile says what the responses of one vendor mean where that differs from what
// Wait makes of everybody's: which other statuses and bodies are a limit's, and in
// which fields and members the vendor tells how long to wait. It is data, and must
// not change while it is in use. Vendor has those that are known; write one for a
// vendor of your own, or mend one that is out of date.
type Profile struct {
	Name    string   // in lower case, as Vendor knows it
	Title   string   // the vendor's own name
	Hosts   []string // that it is for, in lower case: "api.github.com", "*.myshopify.com"; if empty, every host
	Sends   string   // what is sent, for people to read
	Checked string   // the year and month in which its source was last looked at
	Source  string   // where it is documented
	Hearsay bool     // only notes of others on the source were looked at

	// Signs are looked for in their order; the first that a response shows says
	// what it means. If it shows none, 429 means Limited, and nothing else is
	// said.
	Signs []Sign

	// Delays are where the vendor tells a wait outright, beside the fields that
	// Wait reads: what is told more finely refines, else the longest counts.
	Delays []Delay

	// Quotas are those that are told in fields of which Wait and Parse do not
	// know, or in another way than they take them for. A field that Delays or
	// Quotas name is read as they say, and in no other way.
	Quotas []Quota

	// Cost is how a body tells what a query costs. If nil, it does not.
	Cost *Cost

	// Scope says which requests share a limit. A client's cool-down and its
	// pace.Advertised go by it.
	Scope Scope

	// Otherwise is the wait after a Limited response that does not tell one. If
	// zero, none is known.
	Otherwise time.Duration
}

// A Meaning is what a response means.
type Meaning int

const (
	Unsaid  Meaning = iota // nothing of limits: its status says it all
	Limited                // a limit refused the request, on which nothing was done
	Retry                  // the vendor asks for another attempt, whatever the status
	Final                  // no wait helps
)

var meanings = [...]string{Unsaid: "unsaid", Limited: "limited", Retry: "retry", Final: "final"}

// String returns m in lower case.
func (m Meaning) String() string {
	if m < 0 || int(m) >= len(meanings) {
		return "unknown meaning"
	}
	return meanings[m]
}

// A Sign is what tells a response's meaning. The response must show all that the
// Sign names.
type Sign struct {
	Means   Meaning
	Status  []int    // one of these; if empty, any from 400 on
	Spent   bool     // some quota is used up
	Header  string   // a field that is there, and is not blank
	Without string   // a field that is not there
	Body    string   // a member of the JSON body that is there: see Delay
	Is      []string // one value of Header or Body is one of these, which may begin and end in *; if empty, any is
	All     bool     // the limit is one of all requests of the credential, whatever the Profile's Scope
	Own     bool     // the limit is one of requests that nothing but their bodies tells from others: only this one waits
}

// A Delay is where a vendor tells a wait.
type Delay struct {
	Header string // the name of a field, canonical
	// Body is the path of a member of the JSON body, such as
	// "error.details.*.retryDelay", in which * is every element of an array and every
	// member of an object; or the name of an element of an XML body in angle brackets.
	// If Header is not empty, it is of the JSON that the field holds.
	Body    string
	Form    Form
	NotZero bool // 0 tells nothing
}

// A Quota is where a vendor tells the state of a quota. Its strings are names of
// fields, canonical, or if In is not empty, of what one field holds: the members of a
// JSON object, or pairs as in total=100; remaining=0.
type Quota struct {
	In        string // the name of that field; ending in *, of every field that begins so, whose names tell quotas apart
	Name      string // of the Limit
	Limit     string
	Remaining string
	Used      string // what is used, and after a slash the limit: 32/40
	Reset     string
	Form      Form // of Reset
	Window    string

	WindowForm Form // of Window
}

// A Cost is where the body tells what was asked for, what there was, how much is
// restored each second, and how much there can ever be: paths as a Delay's. The wait is
// (Requested − Available) / Rate seconds; what exceeds Maximum is Final.
type Cost struct{ Requested, Available, Rate, Maximum string }

// A Form is how a vendor writes a wait.
type Form int

const (
	Any          Form = iota // seconds below 10⁹, else Unix time by its magnitude; a duration; a date
	Seconds                  // a number of them, or a date
	Milliseconds             // a number of them
	Duration                 // 1m30s
	JavaScript               // a date as its Date.toString prints it: Fri Nov 20 2026 20:30:30 GMT+0100 (CET)
	Window                   // the seconds after w=, as in 0;w=21600: of the quota's window, and so the longest that a wait can be
	Minutes                  // a number of them
)

var forms = [...]string{
	Any: "a number by its magnitude, a duration or a date", Seconds: "seconds", Milliseconds: "milliseconds", Duration: "a duration",
	JavaScript: "a date of JavaScript's", Window: "the window", Minutes: "minutes",
}

// String says f in words.
func (f Form) String() string {
	if f < 0 || int(f) >= len(forms) {
		return "unknown form"
	}
	return forms[f]
}

func (f Form) syntax() syntax {
	switch f {
	case Seconds:
		return delay
	case Milliseconds:
		return milliseconds
	case Minutes:
		return minutes
	case Duration:
		return duration
	case JavaScript:
		return javaScript
	case Window:
		return window
	}
	return reset
}

// On returns a copy of p for other hosts: for those of your own installation, or,
// without any, for every host.
func (p *Profile) On(hosts ...string) *Profile {
	q := *p
	q.Hosts = hosts
	return &q
}

// Serves reports whether p is for a host, which may have a port.
func (p *Profile) Serves(host string) bool { return p.serves(hostname(host)) }

// For returns the first of profiles that serves a host, which may have a port, or nil.
func For(host string, profiles []*Profile) *Profile {
	host = hostname(host)
	for _, p := range profiles {
		if p != nil && p.serves(host) {
			return p
		}
	}
	return nil
}

// serves is asked of every Profile that a client has, for every response.
func (p *Profile) serves(hostname string) bool {
	for _, pattern := range p.Hosts {
		if suffix, wild := strings.CutPrefix(pattern, "*"); !wild && hostname == pattern ||
			wild && len(hostname) > len(suffix) && strings.HasSuffix(hostname, suffix) {
			return true
		}
	}
	return len(p.Hosts) == 0
}

// hostname returns host in lower case, without a port.
func hostname(host string) string {
	if i := strings.LastIndexByte(host, ':'); i >= 0 && !strings.HasSuffix(host, "]") {
		host = host[:i]
	}
	return strings.ToLower(host)
}

// An Answer is what a response means, and how long it asks the client to wait.
type Answer struct {
	Meaning Meaning
	Wait    time.Duration // from now; 0 unless Known
	Known   bool
	All     bool // the limit is one of all requests of the credential, whatever the Profile's Scope
	Own     bool // the limit is of this request, and says nothing of others of its credential and scope: see Sign
}

// Judge returns what a response of p's vendor means. body is the response's, or nil if
// it was not read: see Read. now is as for Wait. Judge may be called concurrently.
func (p *Profile) Judge(status int, h http.Header, body []byte, now time.Time) Answer {
	e := p.evidence(status, h)
	e.body.text, e.reader.clock.local = body, now
	sign := e.sign()
	meaning, wait := sign.Means, unknown
	if meaning != Final {
		wait = e.wait(meaning)
	}
	if wait == impossible {
		meaning, wait = Final, unknown
	}
	limited := meaning == Limited
	return Answer{Meaning: meaning, Wait: max(wait, 0), Known: wait != unknown, All: sign.All && limited, Own: sign.Own && limited}
}

// evidence puts a response before p.
func (p *Profile) evidence(status int, h http.Header) evidence {
	return evidence{profile: p, status: status, header: h}
}

// impossible is the wait for what never comes.
const impossible = maxWait + 1

// others returns the fields that p does not name.
func (p *Profile) others(h http.Header) http.Header {
	if len(p.Delays) == 0 && len(p.Quotas) == 0 {
		return h
	}
	rest := make(http.Header, len(h))
	for name, lines := range h {
		if !p.names(name) {
			rest[name] = lines
		}
	}
	return rest
}

// names reports whether p says how a field is to be read.
func (p *Profile) names(name string) bool {
	return slices.ContainsFunc(p.Delays, func(d Delay) bool { return d.Header == name }) ||
		slices.ContainsFunc(p.Quotas, func(q Quota) bool { return q.names(name) })
}

func (q *Quota) names(name string) bool {
	if q.In != "" {
		return matches(name, q.In)
	}
	return name == q.Limit || name == q.Remaining || name == q.Used || name == q.Reset || name == q.Window
}

// Parse is as the function of the package, with the quotas that p knows.
func (p *Profile) Parse(h http.Header, now time.Time) []Limit {
	e := p.evidence(http.StatusOK, h)
	e.reader.clock.local = now
	return e.others().finish(e.others().quotas(e.quotas(nil), true))
}
