package explain

import (
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/heedhttp/heed/ratelimit"
)

const (
	defaultMaxWait    = time.Minute     // of a heed.RetryPolicy
	defaultMaxElapsed = 5 * time.Minute // of a heed.RetryPolicy
	jitterWindow      = 10 * time.Second
	longestCoolDown   = 24 * time.Hour
)

// advise returns Go code that makes a client that obeys a response, "" if none should, and
// what there is to be said of it.
func advise(status int, h http.Header, wait time.Duration, now time.Time) (client string, notes []string) {
	policy, notes := policyFor(status, h, wait)
	if past(h, now) {
		notes = append(notes, "The moment that Retry-After names is past.")
	}
	switch {
	case wait > longestCoolDown:
		return "", notes
	case len(policy) == 0:
		return "client := &http.Client{Transport: &heed.Transport{}}", notes
	}
	return "client := &http.Client{Transport: &heed.Transport{\n" +
		"\tRetry: heed.RetryPolicy{" + strings.Join(policy, ", ") + "},\n}}", notes
}

// policyFor returns what a client's RetryPolicy must have so that it obeys a response, and
// why.
func policyFor(status int, h http.Header, wait time.Duration) (fields, notes []string) {
	if note := vendorNote(status, h); note != "" {
		fields, notes = append(fields, "Profiles: ratelimit.Vendors()"), append(notes, note)
	}
	switch {
	case wait > longestCoolDown:
		notes = append(notes, "No client should wait that long: heed.Transport returns the response at once.")
	case wait > defaultMaxWait:
		fields = append(fields, "MaxWait: "+goDuration(wait))
		if wait+jitterWindow > defaultMaxElapsed {
			fields = append(fields, "MaxElapsed: "+goDuration(2*wait))
		}
		notes = append(notes, "By default, heed.Transport returns a response at once that asks for more than a minute.")
	}
	return fields, notes
}

// vendorNote says whose profile knows more of a response than its status and header say;
// "" if none does.
func vendorNote(status int, h http.Header) string {
	if status < 400 || status == http.StatusTooManyRequests || status == http.StatusServiceUnavailable {
		return ""
	}
	var titles []string
	for _, p := range ratelimit.Vendors() {
		sentBy := p.Name == "github" && status == http.StatusForbidden && h.Get("X-Github-Request-Id") != ""
		if sentBy || p.Judge(status, h, nil, time.Time{}).Meaning == ratelimit.Limited {
			titles = append(titles, p.Title)
		}
	}
	if len(titles) == 0 {
		return ""
	}
	return fmt.Sprintf("What a %d means depends on the vendor, and the body may say it: a limit, or no permission. "+
		"The profiles of ratelimit.Vendors() know that of %s.", status, strings.Join(titles, ", "))
}

// goDuration is d in Go, rounded up to minutes.
func goDuration(d time.Duration) string {
	minutes := (d + time.Minute - 1) / time.Minute
	if minutes%60 == 0 {
		if minutes == 60 {
			return "time.Hour"
		}
		return fmt.Sprintf("%d * time.Hour", minutes/60)
	}
	return fmt.Sprintf("%d * time.Minute", minutes)
}

// past reports whether Retry-After names a moment before now.
func past(h http.Header, now time.Time) bool {
	value := h.Get("Retry-After")
	at, err := http.ParseTime(value)
	if err != nil {
		at, err = time.Parse(time.RFC3339, value)
	}
	return err == nil && at.Before(now)
}
