package ratelimit

import (
	"bytes"
	"net/http"
	"slices"
	"strings"
)

// An Event maps a kind of event to its Meaning, for vendors that begin an event stream with status
// 200 and refuse the request within it. An event shows an Event if it matches every field that is
// set.
type Event struct {
	Means Meaning  // if Unsaid, this event says nothing, and the next one counts
	Name  string   // the event has this name
	Body  string   // this member of its data, in JSON, is present; see Delay.Body
	Is    []string // the member is one of these; see Sign.Is
}

// HasEvents reports whether a response is an event stream that p has Events for: a 200 with the
// Content-Type text/event-stream that is not compressed. Judge then needs the stream's beginning,
// until Decides. Read does not read streams; heed's Transport does.
func (p *Profile) HasEvents(status int, h http.Header) bool {
	if len(p.Events) == 0 || status != http.StatusOK || len(h["Content-Encoding"]) > 0 {
		return false
	}
	kind, _, _ := strings.Cut(first(h["Content-Type"]), ";")
	return strings.EqualFold(trim(kind), "text/event-stream")
}

// Decides reports whether the beginning of an event stream holds the first event that counts, so
// that what follows does not change what Judge returns.
func (p *Profile) Decides(beginning []byte) bool {
	_, _, found := p.firstEvent(beginning)
	return found
}

// firstEvent returns the Meaning and the data of the first event in stream that does not show an
// Event without a Meaning.
func (p *Profile) firstEvent(stream []byte) (Meaning, document, bool) {
	for rest := bytes.TrimPrefix(stream, []byte("\uFEFF")); ; {
		name, data, after, found := cutEvent(rest)
		if !found {
			return Unsaid, document{}, false
		}
		doc := document{text: data}
		shown := slices.IndexFunc(p.Events, func(e Event) bool {
			return (e.Name == "" || e.Name == name) && (e.Body == "" || doc.any(e.Body, e.Is))
		})
		switch {
		case shown < 0:
			return Unsaid, doc, true
		case p.Events[shown].Means != Unsaid:
			return p.Events[shown].Means, doc, true
		}
		rest = after
	}
}

// cutEvent cuts the first complete event with data off stream, as the section "Interpreting an event
// stream" of the HTML standard says.
func cutEvent(stream []byte) (name string, data, rest []byte, found bool) {
	for {
		line, after, found := cutLine(stream)
		if !found {
			return "", nil, nil, false
		}
		stream = after
		field, value, _ := bytes.Cut(line, []byte(":"))
		value = bytes.TrimPrefix(value, []byte(" "))
		switch {
		case len(line) == 0 && len(data) > 0:
			return name, data, stream, true
		case len(line) == 0:
			name = "" // without data it is no event
		case string(field) == "event":
			name = string(value)
		case string(field) == "data":
			data = append(append(data, value...), '\n')
		}
	}
}

// cutLine cuts off a line that ends with CR, LF or both.
func cutLine(text []byte) (line, rest []byte, found bool) {
	end := bytes.IndexAny(text, "\r\n")
	if end < 0 {
		return nil, nil, false
	}
	rest = text[end+1:]
	if text[end] == '\r' {
		rest = bytes.TrimPrefix(rest, []byte("\n"))
	}
	return text[:end], rest, true
}

// anthropicEvents are what the vendor's SDK reads; see the Profile's Source. The types of errors are those
// of the statuses 429, 529, 500 and 504.
func anthropicEvents() []Event {
	return []Event{
		{Name: "ping"},
		{Means: Limited, Name: "error", Body: "error.type", Is: []string{"overloaded_error", "rate_limit_error"}},
		{Means: Retry, Name: "error", Body: "error.type", Is: []string{"api_error", "timeout_error"}},
	}
}

// openAIEvents are those of chat completions (error in any event) and of responses (the events error and
// response.failed), of OpenAI and of Azure. Refused responses begin with response.created, too.
func openAIEvents() []Event {
	events := []Event{
		{Body: "type", Is: []string{"response.created", "response.queued", "response.in_progress"}},
	}
	add := func(means Meaning, codes ...string) {
		for _, place := range []string{"error.code", "error.type", "code", "response.error.code"} {
			events = append(events, Event{Means: means, Body: place, Is: codes})
		}
	}
	add(Final, "insufficient_quota")
	add(Limited, "rate_limit_exceeded", "server_is_overloaded", "slow_down")
	add(Retry, "server_error")
	return events
}

// Where the vendors' events are from.
const (
	anthropicEventSource = "its stream's errors: packages/ssestream/ssestream.go:243 and shared/shared.go:121 of v1.84.0"
	openAIEventSource    = "its streams' errors: packages/ssestream/ssestream.go:257, shared/shared.go:1421 and " +
		"responses/response.go:8831, 8937, 8967 of github.com/openai/openai-go v3.98.0; " +
		"github.com/anomalyco/opencode/issues/25730"
)
