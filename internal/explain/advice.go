package explain

import (
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/heedhttp/heed/ratelimit"
)

const (
	defaultMaxWait    = time.Minute     // default of heed.RetryPolicy
	defaultMaxElapsed = 5 * time.Minute // default of heed.RetryPolicy
	jitterWindow      = 10 * time.Second
	longestCoolDown   = 24 * time.Hour
)

// noHint is the note about a 429 that says nothing about limits.
const noHint = "heed.Transport backs off, and finds the rate after some refusals. If you know the rate, set it: " +
	"Pacer: pace.PerHost(10, 1) sends 10 requests a second to each host."

// advise returns Go code for a client that obeys a response, or "" if none should, and notes about it.
func advise(status int, h http.Header, wait time.Duration, now time.Time) (client string, notes []string) {
	policy, notes := policyFor(status, h, wait)
	if past(h, now) {
		notes = append(notes, "The date in Retry-After is in the past.")
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

// policyFor returns the fields of a RetryPolicy with which a client obeys a response, and the reasons.
func policyFor(status int, h http.Header, wait time.Duration) (fields, notes []string) {
	if note := vendorNote(status, h); note != "" {
		notes = append(notes, note)
	}
	switch {
	case wait > longestCoolDown:
		notes = append(notes, "No client should wait that long: heed.Transport returns the response at once.")
	case wait > defaultMaxWait:
		fields = append(fields, "MaxWait: "+goDuration(wait))
		if wait+jitterWindow > defaultMaxElapsed {
			fields = append(fields, "MaxElapsed: "+goDuration(2*wait))
		}
		notes = append(notes, "By default, heed.Transport waits for a minute at most, and returns this response at once.")
	}
	return fields, notes
}

// vendorNote names the vendors whose profiles may find out more about a response than its status and
// header say, or returns "".
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
	return fmt.Sprintf("A %d may mean a limit or a missing permission, depending on the vendor and the body. "+
		"heed.Transport can tell for %s, which it knows by the host.", status, strings.Join(titles, ", "))
}

// goDuration formats d as Go code, rounded up to minutes.
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

// past reports whether Retry-After is a date before now.
func past(h http.Header, now time.Time) bool {
	value := h.Get("Retry-After")
	at, err := http.ParseTime(value)
	if err != nil {
		at, err = time.Parse(time.RFC3339, value)
	}
	return err == nil && at.Before(now)
}
