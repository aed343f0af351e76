package oas_test

import (
	"bytes"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/santhosh-tekuri/jsonschema/v6"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.yaml.in/yaml/v3"

	"github.com/heedhttp/heed/internal/export"
	"github.com/heedhttp/heed/serverside"
	"github.com/heedhttp/heed/serverside/rulefile"
)

// schemaOf31 is https://spec.openapis.org/oas/3.1/schema/2022-10-07, as it is published.
const schemaOf31 = "testdata/oas31-schema.json"

func document(t *testing.T, rules []byte) (any, *rulefile.Listing) {
	l, err := rulefile.List("rules.yaml", rules, rulefile.Env{Lenient: true})
	require.NoError(t, err)
	out, err := export.Export("openapi", l, export.Options{})
	require.NoError(t, err)
	var d any
	require.NoError(t, yaml.Unmarshal([]byte(out.Text), &d))
	return d, l
}

func compiled(t *testing.T, path string) *jsonschema.Schema {
	s, err := jsonschema.NewCompiler().Compile(path)
	require.NoError(t, err)
	return s
}

// at is what a document has at a place, such as "components/schemas".
func at(t *testing.T, d any, place string) any {
	for name := range strings.SplitSeq(place, "/") {
		inner, ok := d.(map[string]any)[name]
		require.True(t, ok, "%s of %s", name, place)
		d = inner
	}
	return d
}

// references calls found with all references in d.
func references(d any, found func(string)) {
	switch d := d.(type) {
	case []any:
		for _, inner := range d {
			references(inner, found)
		}
	case map[string]any:
		for name, inner := range d {
			if to, ok := inner.(string); ok && name == "$ref" {
				found(to)
			}
			references(inner, found)
		}
	}
}

// The document is one of OpenAPI 3.1, and has all that it refers to.
func TestTheDocumentIsOneOfOpenAPI(t *testing.T) {
	schema := compiled(t, schemaOf31)
	files, err := filepath.Glob("../testdata/*.yaml")
	require.NoError(t, err)
	require.NotEmpty(t, files)
	for _, file := range append(files, "../../../examples/quickstart/rules.yaml") {
		rules, err := os.ReadFile(file)
		require.NoError(t, err)
		d, _ := document(t, rules)
		assert.NoError(t, schema.Validate(d), file)
		references(d, func(to string) {
			require.True(t, strings.HasPrefix(to, "#/"), to)
			at(t, d, to[2:])
		})
	}
	d, _ := document(t, []byte("rules: [{policies: 1/1s}]"))
	delete(d.(map[string]any), "info")
	assert.Error(t, schema.Validate(d), "the schema sees what is missing")
}

// What a server answers to those that it denies is as documented.
func TestDenialsAreAsDocumented(t *testing.T) {
	for _, body := range []string{
		"problem", "timed-problem https://example.com/slow", "coded-problem https://example.com/slow",
		"envelope", "limit", "detail", "flat",
	} {
		rules := []byte("body: " + body + "\nretry_after_ms: true\nrules: [{policies: 1/1h}]")
		d, l := document(t, rules)
		resp := denial(t, l.Config)
		headers := at(t, d, "components/headers").(map[string]any)
		assert.Contains(t, headers, "Retry-After")
		for name, header := range headers {
			conforms(t, at(t, header, "schema"), resp.Header().Get(name), name)
		}
		responses := at(t, d, "components/responses").(map[string]any)
		require.Len(t, responses, 1)
		for _, response := range responses {
			assert.Contains(t, at(t, response, "content"), resp.Header().Get("Content-Type"))
		}
		schema := at(t, d, "components/schemas/RateLimited").(map[string]any)
		validates(t, schema, resp.Body.String())
		for name := range schema["properties"].(map[string]any) {
			if name != "cost" && name != "fits_now" {
				assert.Contains(t, resp.Body.String(), `"`+name+`"`, body)
			}
		}
	}
}

// denial is what is answered to the second request.
func denial(t *testing.T, cfg serverside.Config) *httptest.ResponseRecorder {
	cfg.Audit = func(serverside.Event) {}
	l, err := serverside.New(cfg)
	require.NoError(t, err)
	h := l.Wrap(http.NotFoundHandler())
	h.ServeHTTP(httptest.NewRecorder(), httptest.NewRequest("GET", "/", nil))
	w, r := httptest.NewRecorder(), httptest.NewRequest("GET", "/", nil)
	r.Header.Set("X-Request-Id", "01HXY")
	h.ServeHTTP(w, r)
	require.Equal(t, http.StatusTooManyRequests, w.Code)
	return w
}

// conforms holds a field's value to its schema.
func conforms(t *testing.T, schema any, value, name string) {
	if at(t, schema, "type") == "integer" {
		assert.Regexp(t, `^\d+$`, value, name)
	} else {
		assert.NotEmpty(t, value, name)
	}
}

// validates holds JSON to a schema.
func validates(t *testing.T, schema map[string]any, text string) {
	c := jsonschema.NewCompiler()
	c.AssertFormat()
	require.NoError(t, c.AddResource("body.json", schema))
	s, err := c.Compile("body.json")
	require.NoError(t, err)
	body, err := jsonschema.UnmarshalJSON(bytes.NewReader([]byte(text)))
	require.NoError(t, err, text)
	assert.NoError(t, s.Validate(body), text)
	assert.Error(t, s.Validate(map[string]any{}), "nothing is not a body")
}
