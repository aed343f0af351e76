package live

import (
	"encoding/json"
	"errors"
	"io"
	"mime"
	"net/http"
	"slices"
	"strconv"
	"time"

	"github.com/heedhttp/heed/internal/explain"
	"github.com/heedhttp/heed/ratelimit"
)

// maxQuestion is the largest question in bytes.
const maxQuestion = 64 << 10

// A question is the form that explain.js sends.
type question struct {
	Text     string `json:"text"`
	Status   string `json:"status"`   // if "", the status in Text
	Received string `json:"received"` // an HTTP-date or RFC 3339; if "", now
	Vendor   string `json:"vendor"`   // if "", any server
}

// answer answers a question. It neither keeps nor logs it.
func answer(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Cache-Control", "no-store")
	// A form on another site cannot send this type.
	if kind, _, _ := mime.ParseMediaType(r.Header.Get("Content-Type")); kind != "application/json" {
		http.Error(w, "Content-Type must be application/json", http.StatusUnsupportedMediaType)
		return
	}
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxQuestion))
	if tooLarge := new(http.MaxBytesError); errors.As(err, &tooLarge) {
		http.Error(w, "this is longer than 64 KiB", http.StatusRequestEntityTooLarge)
		return
	}
	var q question
	if err != nil || json.Unmarshal(body, &q) != nil {
		http.Error(w, "the body must be a JSON object whose members are strings", http.StatusBadRequest)
		return
	}
	e, err := q.explain(time.Now())
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(e) // fails only if the client has disconnected
}

// explain answers q, or returns what is wrong with it.
func (q *question) explain(now time.Time) (*explain.Answer, error) {
	status, err := strconv.Atoi(q.Status)
	if q.Status != "" && (err != nil || status < 100 || status > 999) {
		return nil, errors.New("the status must be a number of three digits")
	}
	if q.Received != "" {
		if now, err = parseDate(q.Received); err != nil {
			return nil, errors.New("the time received must be a date such as 2026-11-20T19:30:00Z")
		}
	}
	var profile *ratelimit.Profile
	if q.Vendor != "" {
		if !slices.Contains(ratelimit.VendorNames(), q.Vendor) { // Vendor panics for others
			return nil, errors.New("the vendor is unknown")
		}
		profile = ratelimit.Vendor(q.Vendor)
	}
	return explain.Text(q.Text, status, profile, now)
}

func parseDate(text string) (time.Time, error) {
	if t, err := http.ParseTime(text); err == nil {
		return t, nil
	}
	return time.Parse(time.RFC3339, text)
}
