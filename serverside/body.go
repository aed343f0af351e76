package serverside

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"mime"
	"mime/multipart"
	"net/http"
	"net/url"
	"strings"
)

// longestBody is how much of a body is read for a key.
const longestBody = 64 << 10

// FormValue is the value called name in the request's body, without case and surrounding
// spaces, as a hash; or "" if there is none. The body is a form, a multipart form or a JSON
// object, in which name is that of a member. It is for the account that a login is for.
//
// The body is read, and kept for the handler. One that is longer than 64 KiB is answered
// 413 Content Too Large, and one that says two different values, or another than the query
// does, 400 Bad Request: a handler might take the one that was not counted. What Header says
// of values that nobody has checked holds for it too.
func FormValue(name string) Key {
	of := func(r *http.Request) string {
		b := readBody(r)
		if b.values == nil {
			b.values = make(map[string]string)
		}
		value, ok := b.values[name]
		if !ok {
			value = b.value(r, name)
			b.values[name] = value
		}
		return HashKey("Form "+name, value)
	}
	return &builtIn{origin: claimed, text: "form value " + name, hashed: "Form " + name, body: true, of: of}
}

// A body is the body of a request, read in advance. It is the request's Body afterwards.
type body struct {
	io.Reader // what was read, and an error or more
	io.Closer
	data    []byte
	tooLong bool
	doubt   bool // what it says is ambiguous

	values map[string]string // by name, folded; what FormValue found
}

// readBody reads r's body, once.
func readBody(r *http.Request) *body {
	if b, ok := r.Body.(*body); ok {
		return b
	}
	if r.Body == nil {
		r.Body = http.NoBody
	}
	data, err := io.ReadAll(io.LimitReader(r.Body, longestBody+1))
	_, tooLarge := errors.AsType[*http.MaxBytesError](err)
	b := &body{Closer: r.Body, data: data, tooLong: tooLarge || len(data) > longestBody}
	rest := io.Reader(r.Body)
	if err != nil {
		rest = failingReader{err}
	}
	b.Reader = io.MultiReader(bytes.NewReader(data), rest)
	r.Body = b
	return b
}

// A failingReader reads nothing.
type failingReader struct{ err error }

func (f failingReader) Read([]byte) (int, error) { return 0, f.err }

// value is what all that a handler might read agrees on, or "".
func (b *body) value(r *http.Request, name string) (value string) {
	if b.tooLong {
		return ""
	}
	for _, v := range b.all(r, name) {
		v = fold(v)
		switch {
		case v == "" || v == value:
		case value == "":
			value = v
		default:
			b.doubt = true
			return ""
		}
	}
	if r.Method == http.MethodGet || r.Method == http.MethodHead {
		return value
	}
	for _, v := range r.URL.Query()[name] {
		if fold(v) != value {
			b.doubt = true
			return ""
		}
	}
	return value
}

// all are the values called name that a handler could find. Many do not look at the
// Content-Type; and what begins with an object is JSON to a decoder, whatever follows.
func (b *body) all(r *http.Request, name string) (values []string) {
	kind, params, _ := mime.ParseMediaType(r.Header.Get("Content-Type"))
	switch kind {
	case "multipart/form-data":
		values = multipartValues(b.data, params["boundary"], name)
	case "application/x-www-form-urlencoded", "":
		form, _ := url.ParseQuery(string(b.data)) // what is malformed is left out, as by http.Request
		values = form[name]
	}
	if text := bytes.TrimLeft(b.data, " \t\r\n"); len(text) > 0 && text[0] == '{' {
		values = append(values, jsonValues(text, name)...)
	}
	return values
}

// multipartValues are the fields called name that are no files.
func multipartValues(data []byte, boundary, name string) (values []string) {
	parts := multipart.NewReader(bytes.NewReader(data), boundary)
	for {
		part, err := parts.NextPart()
		if err != nil {
			return values
		}
		if part.FormName() == name && part.FileName() == "" {
			value, _ := io.ReadAll(part)
			values = append(values, string(value))
		}
	}
}

// jsonValues are the members called name, in any case, of an object: decoders differ in
// which of two they take.
func jsonValues(data []byte, name string) (values []string) {
	d := json.NewDecoder(bytes.NewReader(data))
	d.UseNumber()
	if _, err := d.Token(); err != nil {
		return nil
	}
	for d.More() {
		key, err := d.Token()
		if err != nil {
			return values
		}
		var value any
		if d.Decode(&value) != nil {
			return values
		}
		if member, _ := key.(string); !strings.EqualFold(member, name) {
			continue
		}
		switch value := value.(type) {
		case string:
			values = append(values, value)
		case json.Number:
			values = append(values, value.String())
		}
	}
	return values
}

// fold makes equal what differs in case and in spaces around it.
func fold(s string) string { return strings.ToLower(strings.ToUpper(strings.TrimSpace(s))) }
