package ratelimit

import (
	"net/http"
	"slices"
	"strings"
	"time"
)

// A Profile says how to read one vendor's responses where Wait and Parse would misread
// them: statuses and bodies that mean a limit, and vendor fields that hold a delay or a
// quota.
//
//	policy := heed.RetryPolicy{Profiles: []*ratelimit.Profile{ratelimit.Vendor("github")}}
//
// Vendor returns the known Profiles. Write one for another vendor, or correct a copy that
// is out of date:
//
//	crm := &ratelimit.Profile{
//		Name:      "crm",
//		Hosts:     []string{"api.crm.example"},
//		Signs:     []ratelimit.Sign{{Means: ratelimit.Limited, Status: []int{403}, Header: "Retry-After"}},
//		Otherwise: 30 * time.Second, // after a refusal without a delay
//	}
//
// A Profile is data; do not change it while it is in use.
type Profile struct {
	Name    string   // in lower case; the argument of Vendor
	Title   string   // the vendor's own name
	Hosts   []string // in lower case: "api.github.com", "*.myshopify.com", with one * at most; if empty, every host
	Sends   string   // what the vendor sends, in words
	Checked string   // the year and month of the last look at Source
	Source  string   // where the vendor documents it
	Hearsay bool     // Source was not read, only others' notes on it

	// Signs tell what a response means: the first Sign that it shows. If it shows none, a
	// 429 is Limited and anything else Unsaid.
	Signs []Sign

	// Events tell what the first event of a stream means, if the Signs leave the response
	// Unsaid. An event that shows none of them is a good answer.
	Events []Event

	// Delays are where the vendor announces a wait, besides the fields that Wait reads.
	// The longest counts, except that a more precise one refines Retry-After.
	Delays []Delay

	// Quotas are in fields that Parse does not know or would misread. A field named in
	// Delays or Quotas is read only as they say.
	Quotas []Quota

	// Cost says where the body announces the cost of a query. If nil, it does not.
	Cost *Cost

	// MaxTokens are members of a request's JSON body, one of which limits the tokens of the
	// answer, such as "max_tokens". See MostTokens.
	MaxTokens []string

	// Scope says which requests share a limit. heed's cool-downs and pace.Advertised use
	// it.
	Scope Scope

	// Repeats say which requests may be sent again although they are not idempotent, because the vendor's own
	// client does so by default.
	Repeats []Repeat

	// Otherwise is the wait after a Limited response that announces none. If zero, that
	// wait is unknown.
	Otherwise time.Duration

	// Exact says that the vendor means the waits that it announces, and may ban who comes
	// earlier: heed sends no probe before their end.
	Exact bool
}

// A Meaning is what a response means.
type Meaning int

const (
	Unsaid  Meaning = iota // nothing about limits; only the status counts
	Limited                // a limit refused the request, which had no effect
	Retry                  // the vendor asks for another attempt, whatever the status
	Final                  // no wait helps, or only one so long that the caller should decide: a quota of a day
)

var meanings = [...]string{Unsaid: "unsaid", Limited: "limited", Retry: "retry", Final: "final"}

// String returns m in lower case.
func (m Meaning) String() string {
	if m < 0 || int(m) >= len(meanings) {
		return "unknown meaning"
	}
	return meanings[m]
}

// A Sign maps a kind of response to its Meaning. A response shows a Sign if it matches
// every field that is set.
type Sign struct {
	Means   Meaning
	Status  []int    // one of these; if empty, any from 400
	Spent   bool     // a quota is used up
	Header  string   // this field is present and not blank
	Without string   // this field is absent
	Body    string   // this member of the JSON body (by its Content-Type) is present; see Delay.Body
	Is      []string // one value of Body, or else of Header, is one of these; * matches any text at either end
	Until   Delay    // if Final: when the quota that is used up comes back; if zero, nobody knows
	All     bool     // the limit holds for all requests of the credential, whatever the Scope
	Own     bool     // the limit holds for requests with the same body only, so nothing else waits
}

// A Delay is where a vendor announces a wait.
type Delay struct {
	Header string // the name of a field, canonical
	// Body is the path of a member in the body, whose Content-Type must be JSON, such as
	// "error.details.*.retryDelay"; * stands for every element of an array and every
	// member of an object. "<Code>" is an element of an XML body. If Header is set, the
	// path is in the JSON that this field holds.
	Body    string
	Form    Form
	NotZero bool // 0 is no wait but no information
}

// A Quota is where a vendor announces the state of a quota. Its strings are canonical
// field names. If In is set, they are names inside that field: members of a JSON object,
// or keys as in total=100; remaining=0.
type Quota struct {
	In        string // the field; with a * at the end, every field that begins so, each with its own quota
	Name      string // of the Limit
	Limit     string
	Remaining string
	Used      string // used and limit, with a slash between: 32/40
	Reset     string
	Form      Form // of Reset
	Window    string

	WindowForm Form // of Window
}

// A Cost says where a body announces the cost of a query: what it requested, what was
// available, what comes back per second, and the maximum. The strings are paths as in
// Delay.Body. The wait is (Requested − Available) / Rate seconds; a request above Maximum
// is Final.
type Cost struct{ Requested, Available, Rate, Maximum string }

// A Form is how a vendor writes a wait.
type Form int

const (
	Any          Form = iota // seconds below 10⁹, else Unix time in a unit by its magnitude; a duration; a date
	Seconds                  // a number, or a date
	Milliseconds             // a number
	Duration                 // 1m30s
	JavaScript               // a date as Date.toString prints it: Fri Nov 20 2026 20:30:30 GMT+0100 (CET)
	Window                   // w=21600 in 0;w=21600, in seconds: the quota's window, the longest possible wait
	Minutes                  // a number
	Pacific                  // no field: the next midnight in California, whatever else is announced
)

var forms = [...]string{
	Any:     "a number by its magnitude, a duration or a date",
	Seconds: "seconds", Milliseconds: "milliseconds", Duration: "a duration",
	JavaScript: "a date of JavaScript's", Window: "the window", Minutes: "minutes", Pacific: "midnight in California",
}

// String describes f in words.
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

// On returns a copy of p for other hosts, such as those of your own installation. Without
// hosts, the copy is for every host.
func (p *Profile) On(hosts ...string) *Profile {
	q := *p
	q.Hosts = hosts
	return &q
}

// Serves reports whether p is for host, which may include a port.
func (p *Profile) Serves(host string) bool { return p.serves(hostname(host)) }

// For returns the first of profiles for host, which may include a port, or nil.
func For(host string, profiles []*Profile) *Profile {
	host = hostname(host)
	for _, p := range profiles {
		if p != nil && p.serves(host) {
			return p
		}
	}
	return nil
}

// serves runs for every Profile of a client and every response.
func (p *Profile) serves(hostname string) bool {
	for _, pattern := range p.Hosts {
		prefix, suffix, wild := strings.Cut(pattern, "*")
		if !wild && hostname == pattern || wild && len(hostname) > len(prefix)+len(suffix) &&
			strings.HasPrefix(hostname, prefix) && strings.HasSuffix(hostname, suffix) {
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

// An Answer is what a response means and how long it asks the client to wait.
type Answer struct {
	Meaning Meaning
	Wait    time.Duration // from now; 0 unless Known; if Final, until a quota that is used up comes back
	Known   bool
	All     bool // the limit holds for all requests of the credential, whatever the Profile's Scope
	Own     bool // the limit holds for this request and says nothing about others; see Sign.Own
}

// Judge returns what a response of p's vendor means, given its body, or nil if the body
// was not read: Read reads it if necessary. now is as for Wait. Judge may be called
// concurrently.
func (p *Profile) Judge(status int, h http.Header, body []byte, now time.Time) Answer {
	e := p.interpret(status, h)
	e.body.text, e.reader.clock.local = body, now
	sign := e.sign()
	meaning, wait := sign.Means, unknown
	if meaning != Final {
		wait = e.wait(meaning)
	} else if sign.Until != (Delay{}) {
		wait = e.until(&sign.Until)
	}
	if wait == impossible {
		meaning, wait = Final, unknown
	}
	limited := meaning == Limited || meaning == Final && wait != unknown
	return Answer{
		Meaning: meaning,
		Wait:    max(wait, 0),
		Known:   wait != unknown,
		All:     sign.All && limited,
		Own:     sign.Own && limited,
	}
}

// interpret returns the interpreter of a response.
func (p *Profile) interpret(status int, h http.Header) interpreter {
	return interpreter{profile: p, status: status, header: h}
}

// impossible is the wait for a request that will never be admitted.
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

// names reports whether p says how to read a field.
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

// Parse is the package's Parse with the quotas that p describes.
func (p *Profile) Parse(h http.Header, now time.Time) []Limit {
	e := p.interpret(http.StatusOK, h)
	e.reader.clock.local = now
	return e.others().finish(e.others().quotas(e.quotas(nil), true))
}
