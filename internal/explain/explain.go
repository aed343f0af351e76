// Package explain explains what a pasted response, or one value of its header, says about limits.
package explain

import (
	"cmp"
	"errors"
	"fmt"
	"net/http"
	"net/textproto"
	"strconv"
	"strings"
	"time"

	"github.com/heedhttp/heed/ratelimit"
)

// An Answer explains a response, in sentences and in code. Fields that are unknown or do not apply
// are zero.
type Answer struct {
	Assumed []string `json:"assumed,omitempty"` // sentences about assumptions
	Known   bool     `json:"known"`             // whether the server asks for a wait
	Wait    string   `json:"wait"`              // 1m30s
	Until   int64    `json:"until"`             // end of the wait, Unix milliseconds
	Meaning string   `json:"meaning"`           // a sentence; only for a vendor's response
	Fields  []string `json:"fields,omitempty"`  // with the wait; not for a vendor's response
	Quotas  []Quota  `json:"quotas,omitempty"`  // the tightest first
	Notes   []string `json:"notes,omitempty"`   // about the client; not for a vendor's response
	Client  string   `json:"client"`            // Go code for a client that obeys; "" if none should
	Call    string   `json:"call"`              // Go code that reads the wait, and its result
}

// A Quota is what a response says about one quota. Missing values are zero.
type Quota struct {
	Name  string `json:"name"`  // "default" if unnamed
	Left  string `json:"left"`  // 3
	Of    string `json:"of"`    // 100
	Unit  string `json:"unit"`  // requests
	Per   string `json:"per"`   // 1h
	Next  string `json:"next"`  // 36s, until one more fits
	Reset string `json:"reset"` // 59m12s, until it is full
	Whole int64  `json:"whole"` // the time of Reset, Unix milliseconds
}

// Text explains text: a response as curl -i and -v print it and browsers copy it, with or without
// its body, or a single value of Retry-After, RateLimit and the like. status replaces the status in
// text unless it is 0; if both are missing, 429 is assumed. profile is the vendor of the server, or
// nil for any. The response was received now. Text returns an error if text is not a response.
func Text(text string, status int, profile *ratelimit.Profile, now time.Time) (*Answer, error) {
	r := parse(text)
	if len(r.header) == 0 && r.status == 0 {
		if r = guess(strings.TrimSpace(text), now); r == nil {
			return nil, errors.New("this is neither a response header nor a value of Retry-After, RateLimit or the like")
		}
	}
	r.status = cmp.Or(status, r.status)
	if r.status == 0 {
		r.status = http.StatusTooManyRequests
		r.assumed = append(r.assumed, "The status is missing: 429 is assumed.")
	}
	if profile != nil {
		return r.ofVendor(profile, now), nil
	}
	return r.ofAnybody(now), nil
}

// A response is a pasted response.
type response struct {
	status  int // 0 if unknown
	header  http.Header
	body    []byte
	assumed []string
}

// parse reads an optional status line, fields up to an empty line, and the body. Of several
// responses, such as redirects that curl followed, it returns the last.
func parse(text string) *response {
	r := &response{header: make(http.Header)}
	for text != "" {
		var line string
		line, text, _ = strings.Cut(text, "\n")
		line = strings.TrimSpace(strings.TrimPrefix(line, "< "))
		version, rest, _ := strings.Cut(line, " ")
		name, value, isField := strings.Cut(line, ":")
		switch {
		case line == "" && (r.status != 0 || len(r.header) > 0):
			if strings.HasPrefix(strings.TrimPrefix(text, "< "), "HTTP/") {
				return parse(text)
			}
			r.body = []byte(strings.TrimSpace(text))
			return r
		case strings.HasPrefix(version, "HTTP/"):
			code, _, _ := strings.Cut(strings.TrimSpace(rest), " ")
			if n, err := strconv.Atoi(code); err == nil && n >= 100 && n <= 999 {
				r.status = n
			}
		case isField && isName(name):
			name = textproto.CanonicalMIMEHeaderKey(name)
			r.header[name] = append(r.header[name], strings.TrimSpace(value))
		}
	}
	return r
}

// isName reports whether name looks like the name of a header field. It excludes times, such as
// 2026-11-20T19, although the standard allows them.
func isName(name string) bool {
	const letters = "abcdefghijklmnopqrstuvwxyz"
	name = strings.ToLower(name)
	return strings.IndexAny(name, letters) == 0 && strings.Trim(name, letters+"0123456789-_") == ""
}

// candidates are the fields that a single value may belong to.
var candidates = []struct {
	field string
	waits bool // its value is a wait
	until bool // a number of 10⁹ or more is a time, not a delay
}{
	{"Retry-After", true, true},
	{"RateLimit", false, false},
	{"RateLimit-Policy", false, false},
	{"X-RateLimit-Reset", true, false},
}

// guess returns a 429 with the first field that value may belong to, or nil.
func guess(value string, now time.Time) *response {
	for _, c := range candidates {
		h := make(http.Header)
		h.Set(c.field, value)
		if c.field == "X-RateLimit-Reset" {
			h.Set("X-RateLimit-Remaining", "0")
		}
		wait, ok := ratelimit.Wait(http.StatusTooManyRequests, h, now)
		isWait := ok && !(c.until && wait >= 1e9*time.Second)
		isQuota := !c.waits && strings.Contains(value, "=") && len(ratelimit.Parse(h, now)) > 0
		if isWait || isQuota {
			assumed := []string{"It is read as the " + c.field + " of a 429."}
			return &response{status: http.StatusTooManyRequests, header: h, assumed: assumed}
		}
	}
	return nil
}

func (r *response) ofAnybody(now time.Time) *Answer {
	wait, known := ratelimit.Wait(r.status, r.header, now)
	a := r.answer(wait, known, ratelimit.Parse(r.header, now), now)
	for _, name := range ratelimit.Sources(r.status, r.header, now) {
		a.Fields = append(a.Fields, usual.Replace(name))
	}
	a.Client, a.Notes = advise(r.status, r.header, wait, now)
	if r.status == http.StatusTooManyRequests && !known && len(a.Quotas) == 0 {
		a.Notes = append(a.Notes, noHint)
	}
	a.Call = fmt.Sprintf("wait, ok := ratelimit.Wait(resp.StatusCode, resp.Header, time.Now()) // %v, %v", wait, known)
	return a
}

func (r *response) ofVendor(p *ratelimit.Profile, now time.Time) *Answer {
	judged := p.Judge(r.status, r.header, r.body, now)
	a := r.answer(judged.Wait, judged.Known, p.Parse(r.header, now), now)
	a.Meaning = meanings[judged.Meaning]
	if judged.Meaning == ratelimit.Final && judged.Known {
		a.Meaning = "A quota is used up for so long that nothing is sent again."
	}
	a.Client = "client := &http.Client{Transport: &heed.Transport{}} // it knows the host"
	if len(p.Hosts) == 0 {
		a.Client = "client := &http.Client{Transport: &heed.Transport{\n" +
			fmt.Sprintf("\tRetry: heed.RetryPolicy{Profiles: []*ratelimit.Profile{ratelimit.Vendor(%q).On(host)}},\n}}", p.Name)
	}
	a.Call = fmt.Sprintf("answer := ratelimit.Vendor(%q).Read(resp, time.Now()) // %v, %v, %v",
		p.Name, judged.Meaning, judged.Wait, judged.Known)
	return a
}

var meanings = map[ratelimit.Meaning]string{
	ratelimit.Unsaid:  "It says nothing about limits: only the status counts.",
	ratelimit.Limited: "A limit refused the request, and nothing was done.",
	ratelimit.Retry:   "The server asks for another attempt, whatever the status is.",
	ratelimit.Final:   "Waiting does not help.",
}

// answer returns the parts that all Answers have.
func (r *response) answer(wait time.Duration, known bool, limits []ratelimit.Limit, now time.Time) *Answer {
	a := &Answer{Assumed: r.assumed, Known: known}
	if known {
		a.Wait, a.Until = roughly(wait), end(now, wait)
	}
	for _, l := range limits {
		a.Quotas = append(a.Quotas, quotaOf(l, now))
	}
	return a
}

func quotaOf(l ratelimit.Limit, now time.Time) Quota {
	q := Quota{Name: cmp.Or(l.Name, "default"), Unit: cmp.Or(l.Unit, "requests")}
	if l.Remaining >= 0 {
		q.Left = strconv.FormatInt(l.Remaining, 10)
	}
	if l.Quota > 0 {
		q.Of = strconv.FormatInt(l.Quota, 10)
	}
	if l.Window > 0 {
		q.Per = Brief(l.Window)
	}
	if l.Next > 0 {
		q.Next = roughly(l.Next)
	}
	if l.Reset > 0 {
		q.Reset, q.Whole = roughly(l.Reset), end(now, l.Reset)
	}
	return q
}

// usual writes names of fields as their definitions do.
var usual = strings.NewReplacer("Ratelimit", "RateLimit", "-Ms", "-ms")

// end returns the end of a wait from now, rounded up to a second. Waits are rounded up to a
// millisecond already, so an end less than 2 ms after a second counts as that second.
func end(now time.Time, wait time.Duration) int64 {
	return now.Add(wait + time.Second - 2*time.Millisecond).Truncate(time.Second).UnixMilli()
}

// roughly formats a wait. It is exact below a year.
func roughly(d time.Duration) string {
	const year = 8766 * time.Hour // 365 days and a quarter
	switch years := int64(d / year); {
	case years > 1:
		return fmt.Sprintf("%d years", years)
	case years == 1:
		return "1 year"
	}
	return Brief(d)
}

// Brief formats d without zero units: 1m, 1h30m, 2d, 2d1h.
func Brief(d time.Duration) string {
	d = d.Round(time.Millisecond)
	if day := 24 * time.Hour; d >= day {
		text := strconv.FormatInt(int64(d/day), 10) + "d"
		if d%day != 0 {
			text += Brief(d % day)
		}
		return text
	}
	text := d.String()
	if strings.HasSuffix(text, "m0s") {
		text = strings.TrimSuffix(text, "0s")
	}
	if strings.HasSuffix(text, "h0m") {
		text = strings.TrimSuffix(text, "0m")
	}
	return text
}
