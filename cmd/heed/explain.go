package main

import (
	"errors"
	"fmt"
	"net/http"
	"net/textproto"
	"strconv"
	"strings"
	"time"

	"github.com/heedhttp/heed/ratelimit"
)

// A response is what is explained: a status and header fields.
type response struct {
	status int // 0 if it is not told
	header http.Header
	taken  string // what was taken for granted
}

// explain says what a response, or one value, means.
func (s *session) explain(args []string) error {
	f := s.flags("explain")
	status := f.Int("status", 0, "the response's status `code`, if it is not in the header")
	args, err := s.parse(f, args, 0, 1)
	if err != nil {
		return err
	}
	text := ""
	if len(args) == 1 {
		text = args[0]
	} else if text, err = s.input(); err != nil {
		return err
	}
	r, err := s.read(text)
	if err != nil {
		return err
	}
	if *status != 0 {
		r.status = *status
	}
	if r.status == 0 {
		r.status = http.StatusTooManyRequests
		r.taken += "No status is told: it is taken for 429.\n"
	}
	return s.say(r)
}

// read reads a header, or a value by itself.
func (s *session) read(text string) (*response, error) {
	if r := parseHeader(text); len(r.header) > 0 {
		return r, nil
	}
	value := strings.TrimSpace(text)
	for _, guess := range guesses {
		h := guess.of(value)
		wait, ok := ratelimit.Wait(http.StatusTooManyRequests, h, s.now)
		if ok && !guess.isFar(wait) || !guess.waits && strings.Contains(value, "=") && len(ratelimit.Parse(h, s.now)) > 0 {
			return &response{http.StatusTooManyRequests, h, "It is taken for a " + guess.field + " of a 429.\n"}, nil
		}
	}
	return nil, errors.New("heed: this is neither a response header nor a value of Retry-After, RateLimit or the like")
}

// A guess is what a value may be of.
type guess struct {
	field string
	waits bool // it tells a wait, or nothing
	until bool // a number of that size is a moment, not a delay
}

var guesses = []guess{
	{"Retry-After", true, true}, {"RateLimit", false, false}, {"RateLimit-Policy", false, false}, {"X-RateLimit-Reset", true, false},
}

func (g guess) of(value string) http.Header {
	h := make(http.Header)
	h.Set(g.field, value)
	if g.field == "X-RateLimit-Reset" {
		h.Set("X-RateLimit-Remaining", "0")
	}
	return h
}

// isFar reports whether a delay is so long that it is meant for Unix time.
func (g guess) isFar(wait time.Duration) bool { return g.until && wait >= 1e9*time.Second }

// parseHeader reads what curl -i and -v print, and browsers copy: a status line, if
// there is one, and fields, up to an empty line.
func parseHeader(text string) *response {
	r := &response{header: make(http.Header)}
	for line := range strings.Lines(text) {
		line = strings.TrimSpace(strings.TrimPrefix(line, "< "))
		if line == "" && len(r.header) > 0 {
			break
		}
		if version, rest, _ := strings.Cut(line, " "); strings.HasPrefix(version, "HTTP/") {
			code, _, _ := strings.Cut(strings.TrimSpace(rest), " ")
			r.status, _ = strconv.Atoi(code)
			continue
		}
		name, value, ok := strings.Cut(line, ":")
		if ok && isName(name) {
			name = textproto.CanonicalMIMEHeaderKey(name)
			r.header[name] = append(r.header[name], strings.TrimSpace(value))
		}
	}
	return r
}

// isName reports whether name is one that header fields have, and no part of a time:
// 2026-11-20T19 would be one by the standard.
func isName(name string) bool {
	const letters = "abcdefghijklmnopqrstuvwxyz"
	name = strings.ToLower(name)
	return strings.IndexAny(name, letters) == 0 && strings.Trim(name, letters+"0123456789-_") == ""
}

// say says r in words.
func (s *session) say(r *response) error {
	wait, ok := ratelimit.Wait(r.status, r.header, s.now)
	limits := ratelimit.Parse(r.header, s.now)
	fmt.Fprint(s.out, r.taken)
	switch {
	case ok:
		fmt.Fprintf(s.out, "Wait %s: until %s.\n", brief(wait), s.moment(wait))
		fmt.Fprintf(s.out, "It says so in %s.\n", usual.Replace(strings.Join(ratelimit.Sources(r.status, r.header, s.now), ", ")))
	default:
		fmt.Fprintf(s.out, "It asks for no wait.\n")
	}
	if len(limits) > 0 {
		fmt.Fprintf(s.out, "\nQuotas, the tightest first:\n")
	}
	for i := range limits {
		fmt.Fprintf(s.out, "   %s\n", s.quota(&limits[i]))
	}
	if !ok && len(limits) == 0 {
		return errWrong
	}
	fmt.Fprintf(s.out, snippet, fmt.Sprintf("%v, %v", wait, ok))
	return nil
}

// usual is how the names of fields are written where they are defined.
var usual = strings.NewReplacer("Ratelimit", "RateLimit", "-Ms", "-ms")

const snippet = `
In Go, a client that obeys it by itself is

	client := &http.Client{Transport: &heed.Transport{}}

and with a client of your own, it is read by

	wait, ok := ratelimit.Wait(resp.StatusCode, resp.Header, time.Now()) // %s
`

// moment is the time by the clock of who reads.
func (s *session) moment(wait time.Duration) string {
	at := s.now.Add(wait + time.Second - 2*time.Millisecond).Truncate(time.Second) // rounded up, as waits are to a millisecond
	return at.Format("Monday, 2 January 2006, 15:04:05 MST")
}

// quota says l in words.
func (s *session) quota(l *ratelimit.Limit) string {
	unit := "requests"
	if l.Unit != "" {
		unit = l.Unit
	}
	var parts []string
	switch {
	case l.Remaining >= 0 && l.Quota > 0:
		parts = append(parts, fmt.Sprintf("%d of %d %s left", l.Remaining, l.Quota, unit))
	case l.Remaining >= 0:
		parts = append(parts, fmt.Sprintf("%d %s left", l.Remaining, unit))
	case l.Quota > 0:
		parts = append(parts, fmt.Sprintf("%d %s", l.Quota, unit))
	}
	if l.Window > 0 {
		parts = append(parts, "per "+brief(l.Window))
	}
	if l.Next > 0 {
		parts = append(parts, fmt.Sprintf("one more in %s", brief(l.Next)))
	}
	if l.Reset > 0 {
		parts = append(parts, fmt.Sprintf("whole in %s, %s", brief(l.Reset), s.moment(l.Reset)))
	}
	name := l.Name
	if name == "" {
		name = "default"
	}
	return fmt.Sprintf("%q: %s", name, strings.Join(parts, ", "))
}

// brief is d without the units of which there are none: 1m, 1h30m, 2d.
func brief(d time.Duration) string {
	if day := 24 * time.Hour; d >= day && d%day == 0 {
		return fmt.Sprintf("%dd", d/day)
	}
	text := d.Round(time.Millisecond).String()
	if strings.HasSuffix(text, "m0s") {
		text = strings.TrimSuffix(text, "0s")
	}
	if strings.HasSuffix(text, "h0m") {
		text = strings.TrimSuffix(text, "0m")
	}
	return text
}
