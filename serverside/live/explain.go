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

// maxQuestion bounds a question, in bytes.
const maxQuestion = 64 << 10

// A question is what explain.js sends: what somebody filled in.
type question struct {
	Text     string `json:"text"`
	Status   string `json:"status"`   // if "", that of Text
	Received string `json:"received"` // an HTTP-date or one of RFC 3339; if "", now
	Vendor   string `json:"vendor"`   // if "", any server
}

// answer answers a question. It keeps and logs nothing of it.
func answer(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Cache-Control", "no-store")
	// A form of another site cannot send this type.
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
	_ = json.NewEncoder(w).Encode(e) // fails only if the client is gone
}

// explain answers q, or says what is wrong with it.
func (q *question) explain(now time.Time) (*explain.Answer, error) {
	status, err := strconv.Atoi(q.Status)
	if q.Status != "" && (err != nil || status < 100 || status > 999) {
		return nil, errors.New("the status is no code of three digits")
	}
	if q.Received != "" {
		if now, err = parseDate(q.Received); err != nil {
			return nil, errors.New("when it was received is no date: write as in 2026-11-20T19:30:00Z")
		}
	}
	var profile *ratelimit.Profile
	if q.Vendor != "" {
		if !slices.Contains(ratelimit.VendorNames(), q.Vendor) { // of which Vendor would panic
			return nil, errors.New("there is no such vendor")
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
