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
// 413 Content Too Large; and one that says two different values, or another than the query
// does, or that programs read in different ways, such as one that is compressed or is no
// JSON to the end, 400 Bad Request: a handler might take what was not counted. What Header says
// of values that nobody has checked holds for it too.
func FormValue(name string) Key {
	read := func(r *http.Request) string {
		b := readBody(r)
		if b.values == nil {
			b.values = make(map[string]string)
		}
		value, ok := b.values[name]
		if !ok {
			value = b.value(r, name)
			b.values[name] = value
		}
		return value
	}
	return &builtIn{
		origin: claimed, text: "form value " + name, hashed: "Form " + name, body: true,
		of:    func(r *http.Request) string { return HashKey("Form "+name, fold(read(r))) },
		exact: func(r *http.Request) string { return HashKey("Form "+name, read(r)) },
	}
}

// A body is the body of a request, read in advance. It is the request's Body afterwards.
type body struct {
	io.Reader // what was read, and an error or more
	io.Closer
	data    []byte
	tooLong bool
	doubt   bool // what it says is ambiguous

	values map[string]string // by name; what FormValue found, as it is written
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

// value is what all that a handler might read agrees on, or "". If there is a doubt about
// it, b says so.
func (b *body) value(r *http.Request, name string) (value string) {
	if b.tooLong {
		return ""
	}
	values, err := b.all(r, name)
	if r.Method != http.MethodGet && r.Method != http.MethodHead {
		if values = append(values, r.URL.Query()[name]...); len(b.data) == 0 && len(values) > 0 {
			err = errDoubt // which is in the query alone
		}
	}
	for _, v := range values {
		if value = v; fold(v) != fold(values[0]) {
			err = errDoubt
		}
	}
	if b.doubt = b.doubt || err != nil; b.doubt {
		return ""
	}
	return value
}

// errDoubt is that programs differ in what they read.
var errDoubt = errors.New("ambiguous")

// all are the values called name that a handler could find. Many do not look at the
// Content-Type; and what begins with an object is JSON to a decoder, whatever follows.
func (b *body) all(r *http.Request, name string) (values []string, err error) {
	if encoding := r.Header.Get("Content-Encoding"); encoding != "" && encoding != "identity" {
		return nil, errDoubt
	}
	kind, params, _ := mime.ParseMediaType(r.Header.Get("Content-Type"))
	text := bytes.TrimLeft(b.data, " \t\r\n")
	isObject := len(text) > 0 && text[0] == '{'
	if isObject {
		values, err = jsonValues(text, name)
	}
	switch {
	case strings.HasPrefix(kind, "multipart/"):
		values = append(values, multipartValues(b.data, params["boundary"], name)...)
	case isObject && strings.HasSuffix(kind, "json"):
	default:
		form, fault := url.ParseQuery(string(b.data))
		values = append(values, form[name]...)
		if fault != nil && !isObject && len(form[name]) > 0 { // of which others may read the rest
			err = errDoubt
		}
	}
	return values, err
}

// multipartValues are the parts called name, files among them.
func multipartValues(data []byte, boundary, name string) (values []string) {
	parts := multipart.NewReader(bytes.NewReader(data), boundary)
	for {
		part, err := parts.NextPart()
		if err != nil {
			return values
		}
		_, params, _ := mime.ParseMediaType(part.Header.Get("Content-Disposition"))
		if params["name"] == name {
			value, _ := io.ReadAll(part)
			values = append(values, string(value))
		}
	}
}

// jsonValues are the members called name, in any case, of an object, which is all of data:
// decoders differ in which of two they take, and in what they make of anything else.
func jsonValues(data []byte, name string) (values []string, err error) {
	d := json.NewDecoder(bytes.NewReader(data))
	d.UseNumber()
	if _, err := d.Token(); err != nil {
		return nil, errDoubt
	}
	for d.More() {
		key, err := d.Token()
		if err != nil {
			return nil, errDoubt
		}
		var value any
		if d.Decode(&value) != nil {
			return nil, errDoubt
		}
		if member, _ := key.(string); !strings.EqualFold(member, name) {
			continue
		}
		switch value := value.(type) {
		case string:
			values = append(values, value)
		case json.Number:
			if strings.ContainsAny(value.String(), ".eE") { // one number in many spellings
				return nil, errDoubt
			}
			values = append(values, value.String())
		default:
			return nil, errDoubt
		}
	}
	if _, err := d.Token(); err != nil || len(bytes.TrimSpace(data[d.InputOffset():])) > 0 {
		return nil, errDoubt
	}
	return values, nil
}

// fold makes equal what differs in case and in spaces around it.
func fold(s string) string { return strings.ToLower(strings.ToUpper(strings.TrimSpace(s))) }
