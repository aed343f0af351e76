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

// maxBody is the length of the longest body that is read for a key.
const maxBody = 64 << 10

// FormValue returns a Key that reads the value called name from the request's body and hashes
// it. It is for the account in a login:
//
//	serverside.Logins("login", "POST /login", serverside.FormValue("user"))
//
// The body is a form, a multipart form, or a JSON object with a member called name. The handler
// can still read it. Case and surrounding spaces are ignored. The key is "" if the value is
// absent. Clients can make up values: see Header.
//
// A body longer than 64 KiB is denied with 413 Content Too Large. A body that programs might
// read differently is denied with 400 Bad Request, because the handler might use another value
// than the one counted: one with two different values, with a value that differs from the
// query's, with compression, or with malformed JSON.
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

// A body is a request body that was read in advance. It replaces http.Request.Body.
type body struct {
	io.Reader // what was read, then the rest of the body or its error
	io.Closer
	data      []byte
	tooLong   bool
	ambiguous bool // programs may read it differently

	values map[string]string // found by FormValue, by name, not folded
}

// readBody reads r's body, if it was not read before.
func readBody(r *http.Request) *body {
	if b, ok := r.Body.(*body); ok {
		return b
	}
	if r.Body == nil {
		r.Body = http.NoBody
	}
	data, err := io.ReadAll(io.LimitReader(r.Body, maxBody+1))
	_, tooLarge := errors.AsType[*http.MaxBytesError](err)
	b := &body{Closer: r.Body, data: data, tooLong: tooLarge || len(data) > maxBody}
	rest := io.Reader(r.Body)
	if err != nil {
		rest = failingReader{err}
	}
	b.Reader = io.MultiReader(bytes.NewReader(data), rest)
	r.Body = b
	return b
}

// A failingReader returns an error at once.
type failingReader struct{ err error }

func (f failingReader) Read([]byte) (int, error) { return 0, f.err }

// value returns the value called name. If handlers might find different ones, it sets
// b.ambiguous and returns "".
func (b *body) value(r *http.Request, name string) (value string) {
	if b.tooLong {
		return ""
	}
	values, err := b.all(r, name)
	if r.Method != http.MethodGet && r.Method != http.MethodHead {
		if values = append(values, r.URL.Query()[name]...); len(b.data) == 0 && len(values) > 0 {
			err = errAmbiguous // only the query has it
		}
	}
	for _, v := range values {
		if value = v; fold(v) != fold(values[0]) {
			err = errAmbiguous
		}
	}
	if b.ambiguous = b.ambiguous || err != nil; b.ambiguous {
		return ""
	}
	return value
}

// errAmbiguous says that programs may read a body differently.
var errAmbiguous = errors.New("ambiguous")

// all returns the values called name that a handler might find. Many handlers ignore the
// Content-Type, and JSON decoders accept an object with anything after it.
func (b *body) all(r *http.Request, name string) (values []string, err error) {
	if encoding := r.Header.Get("Content-Encoding"); encoding != "" && encoding != "identity" {
		return nil, errAmbiguous
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
		if fault != nil && !isObject && len(form[name]) > 0 { // other parsers may read the rest
			err = errAmbiguous
		}
	}
	return values, err
}

// multipartValues returns the contents of parts called name, including files.
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

// jsonValues returns the members called name, in any case, of the object that data is. If
// decoders may differ about them, it returns errAmbiguous.
func jsonValues(data []byte, name string) (values []string, err error) {
	d := json.NewDecoder(bytes.NewReader(data))
	d.UseNumber()
	if _, err := d.Token(); err != nil {
		return nil, errAmbiguous
	}
	for d.More() {
		key, err := d.Token()
		if err != nil {
			return nil, errAmbiguous
		}
		var value any
		if d.Decode(&value) != nil {
			return nil, errAmbiguous
		}
		if member, _ := key.(string); !strings.EqualFold(member, name) {
			continue
		}
		switch value := value.(type) {
		case string:
			values = append(values, value)
		case json.Number:
			if strings.ContainsAny(value.String(), ".eE") { // a number with several spellings
				return nil, errAmbiguous
			}
			values = append(values, value.String())
		default:
			return nil, errAmbiguous
		}
	}
	if _, err := d.Token(); err != nil || len(bytes.TrimSpace(data[d.InputOffset():])) > 0 {
		return nil, errAmbiguous
	}
	return values, nil
}

// fold maps strings that differ only in case and surrounding spaces to one.
func fold(s string) string { return strings.ToLower(strings.ToUpper(strings.TrimSpace(s))) }
