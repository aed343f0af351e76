package contract

import (
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"mime"
	"net/url"
	"strings"
)

// jsonMembers returns the members of the JSON object in e's body. ok is false if there is none, or
// if the body was not kept whole.
func jsonMembers(e *Exchange) (m map[string]json.RawMessage, ok bool) {
	if e.truncated() {
		return nil, false
	}
	err := json.Unmarshal(e.ResponseBody, &m)
	return m, err == nil && m != nil
}

func (e *Exchange) truncated() bool { return e.ResponseLength > int64(len(e.ResponseBody)) }

// hasNoBody reports whether e's response cannot have a body (RFC 9110 section 6.4.1).
func (e *Exchange) hasNoBody() bool {
	return e.Method == "HEAD" || e.Status == 204 || e.Status == 304
}

// isProblem reports whether e's response declares a problem document.
func (e *Exchange) isProblem() bool {
	media, _, err := mime.ParseMediaType(e.ResponseHeader.Get("Content-Type"))
	return err == nil && media == "application/problem+json"
}

// problemFault returns what is wrong with the problem document in e's body, by RFC 9457 section 3.
func problemFault(e *Exchange) error {
	m, ok := jsonMembers(e)
	if !ok {
		return errors.New("a body that is not a JSON object")
	}
	var fault error
	for _, name := range []string{"type", "title", "detail", "instance"} {
		s, err := stringMember(m, name)
		if _, uri := url.Parse(s); err == nil && uri != nil && (name == "type" || name == "instance") {
			err = fmt.Errorf("%s, which is not a URI reference", name)
		}
		fault = errors.Join(fault, err)
	}
	if raw, ok := m["status"]; ok && strings.TrimSpace(string(raw)) != fmt.Sprint(e.Status) {
		fault = errors.Join(fault, fmt.Errorf("status %s in a %d", clip(string(raw)), e.Status))
	}
	return fault
}

// stringMember returns a member of m, "" if it is missing, and an error if it is not a string.
func stringMember(m map[string]json.RawMessage, name string) (s string, err error) {
	raw, ok := m[name]
	if !ok {
		return "", nil
	}
	var p *string
	if json.Unmarshal(raw, &p) != nil || p == nil {
		return "", fmt.Errorf("%s that is not a string", name)
	}
	return *p, nil
}

// neverAdmitted reports whether e says that its request will not be admitted however long the
// client waits, by X-Should-Retry or by its own problem type.
func neverAdmitted(e *Exchange) bool {
	if e.ResponseHeader.Get("X-Should-Retry") == "false" {
		return true
	}
	m, _ := jsonMembers(e)
	s, _ := stringMember(m, "type")
	return e.isProblem() && s != "" && s != "about:blank" &&
		!strings.HasPrefix(s, "https://iana.org/assignments/http-problem-types#")
}

// violated returns the policies in the problem document's violated-policies.
func violated(e *Exchange) (names []string) {
	m, _ := jsonMembers(e)
	if json.Unmarshal(m["violated-policies"], &names) != nil {
		return nil
	}
	return names
}

// retryMembers are the members in which JSON bodies say how long to wait, with their units per
// second.
var retryMembers = []struct {
	name      string
	perSecond float64
}{{"retryAfter", 1}, {"retry_after", 1}, {"retry-after", 1}, {"retry_after_ms", 1000}}

// bodyWaits returns the waits in seconds that a JSON body has, in itself or in its member error.
func bodyWaits(e *Exchange) map[string]float64 {
	m, ok := jsonMembers(e)
	if !ok {
		return nil
	}
	var inner map[string]json.RawMessage
	_ = json.Unmarshal(m["error"], &inner) // error may be no object
	waits := make(map[string]float64)
	for _, r := range retryMembers {
		for _, object := range []map[string]json.RawMessage{m, inner} {
			var n *float64
			if json.Unmarshal(object[r.name], &n) == nil && n != nil {
				waits[r.name] = *n / r.perSecond
			}
		}
	}
	return waits
}

// roundsUpTo reports whether wait, rounded up to a second, is seconds.
func roundsUpTo(wait, seconds float64) bool { return math.Max(1, math.Ceil(wait-1e-9)) == seconds }
