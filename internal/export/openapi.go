package export

import (
	"bytes"
	"cmp"
	_ "embed"
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/heedhttp/heed/ratelimit"
	"github.com/heedhttp/heed/serverside/rulefile"
)

// openapi writes an OpenAPI 3.1 document: the paths of all patterns, the limits that apply there, and
// the responses that deny a request.
func openapi(e *exporter) string {
	if len(e.Config.Exempt) > 0 {
		e.settingGap("exempt", "these requests are not limited, even where the document has them under a path")
	}
	e.allowGaps("some clients have limits of their own, which the document does not show")

	o := &openapiFile{e, make(map[operation][]pattern), make(map[string]string), make(object), make(object)}
	for i := range e.Rules {
		o.addRule(&e.Rules[i])
	}
	for op, patterns := range o.patterns {
		o.paths[op.path].(object)[op.method] = o.describe(op, patterns)
	}
	schemas := object{"RateLimited": o.schema()} // before the comment, because it may add a gap
	document := struct {
		OpenAPI    string `yaml:"openapi"`
		Info       object
		Paths      object
		Components object
	}{
		"3.1.0", object{"title": "Limits", "version": "1"}, o.paths,
		object{"responses": o.responses, "headers": o.fields(), "schemas": schemas},
	}
	return e.comment("The limits of "+e.source()+", made by heed rules export: a document of OpenAPI 3.1 to",
		"refer to from yours, or to copy from. It does not have the application's own responses.") + toYAML(document)
}

// An object is a YAML or JSON object.
type object = map[string]any

// toYAML encodes a value that YAML can express.
func toYAML(v any) string {
	var b bytes.Buffer
	encoder := yaml.NewEncoder(&b)
	encoder.SetIndent(2)
	if err := encoder.Encode(v); err != nil {
		panic(err) // cannot happen: v has only strings, numbers, lists and maps
	}
	return b.String()
}

type openapiFile struct {
	*exporter
	patterns  map[operation][]pattern // the rules' patterns, by operation
	pathOf    map[string]string       // the path used for all that differ only in names of variables
	paths     object
	responses object // the components that operations refer to
}

// An operation is a method of a path.
type operation struct{ path, method string }

// methods are the methods that OpenAPI has.
var methods = []string{"get", "post", "put", "patch", "delete", "head", "options", "trace"}

// methodsOfAny are the methods documented for a pattern without one.
var methodsOfAny = methods[:5]

// addRule adds the operations that a rule's pattern stands for.
func (o *openapiFile) addRule(r *rulefile.Listed) {
	p := newPattern(r.Rule.Pattern)
	method := strings.ToLower(p.method)
	switch {
	case r.Rule.DryRun:
		o.ruleGap(r, "it is a dry run, which clients do not see")
		return
	case method != "" && (!slices.Contains(methods, method) || p.method != strings.ToUpper(method)):
		o.ruleGap(r, "OpenAPI has no operation %s", quoted(p.method))
		return
	case p.host != "":
		o.ruleGap(r, "OpenAPI has no paths of one host only, here %s", quoted(p.host))
		return
	}
	path := o.addPath(p)
	if p.beneath {
		o.ruleGap(r, "OpenAPI has no way to say all paths beneath one: "+
			"the variable at the end of %s stands for them", quoted(path))
	}
	of := methodsOfAny
	if method != "" {
		of = []string{method}
	}
	for _, method := range of {
		op := operation{path, method}
		o.patterns[op] = append(o.patterns[op], p)
	}
}

var variable = regexp.MustCompile(`{[^}]*}`)

// addPath adds the path of a pattern, with a variable for each wildcard, and one for all that is
// beneath. OpenAPI has no two paths that differ only in the names of variables: if there is such
// a path already, addPath returns that.
func (o *openapiFile) addPath(p pattern) (path string) {
	var parameters []any
	add := func(name, description string) {
		path += "/{" + name + "}"
		parameters = append(parameters, object{
			"name": name, "in": "path", "required": true, "description": description, "schema": object{"type": "string"},
		})
	}
	for _, s := range p.segments {
		if s.wildcard {
			add(s.name, "One segment of the path.")
		} else {
			path += "/" + url.PathEscape(s.name)
		}
	}
	if p.slash {
		path += "/"
	}
	if p.beneath {
		name := cmp.Or(p.rest, "rest")
		for strings.Contains(path, "{"+name+"}") {
			name += "_"
		}
		add(name, "Any number of segments of the path.")
	}
	shape := variable.ReplaceAllLiteralString(path, "{}")
	if known := o.pathOf[shape]; known != "" {
		return known
	}
	o.pathOf[shape] = path
	item := make(object)
	if len(parameters) > 0 {
		item["parameters"] = parameters
	}
	o.paths[path] = item
	return path
}

// describe returns the OpenAPI object of an operation, with the limits that apply there and the
// responses of clients that have used them up, or that a lost store refuses.
func (o *openapiFile) describe(op operation, patterns []pattern) object {
	method := strings.ToUpper(op.method)
	applies := func(p pattern) bool {
		return slices.ContainsFunc(patterns, func(q pattern) bool {
			return p.withMethod(method).concerns(q.withMethod(method))
		})
	}
	responses := object{"default": object{"description": "The application's own response."}}
	var limits []string
	closed := false
	for i := range o.Rules {
		r := &o.Rules[i]
		if r.Rule.DryRun || !applies(newPattern(r.Rule.Pattern)) {
			continue
		}
		limits, closed = append(limits, limitsOf(r)), closed || o.failsClosed(r)
		status := strconv.Itoa(cmp.Or(r.Rule.Status, http.StatusTooManyRequests))
		responses[status] = object{"$ref": "#/components/responses/" + o.denial(status)}
	}
	status := strconv.Itoa(cmp.Or(o.Config.ClosedStatus, http.StatusServiceUnavailable))
	if closed && responses[status] == nil {
		responses[status] = object{"$ref": "#/components/responses/" + o.unavailable()}
	}
	return object{"description": "Limits: " + strings.Join(limits, "; ") + ".", "responses": responses}
}

// denial adds the component for responses by which rules deny requests with a status, and
// returns its name.
func (o *openapiFile) denial(status string) (name string) {
	name, description := "RateLimited", "Too many requests."
	if status != "429" {
		name, description = "Overloaded", "The server has too much to do."
	}
	headers := make(object)
	for field := range o.fields() {
		headers[field] = object{"$ref": "#/components/headers/" + field}
	}
	response := object{"description": description, "headers": headers}
	if media := openapiParts.Bodies[o.Body].Media; media != "" {
		response["content"] = object{media: object{"schema": object{"$ref": "#/components/schemas/RateLimited"}}}
	}
	o.responses[name] = response
	return name
}

// unavailable adds the component for responses to requests that cannot be counted, and returns
// its name.
func (o *openapiFile) unavailable() (name string) {
	o.responses["Unavailable"] = object{
		"description": "Requests cannot be counted at the moment, and are denied.",
		"headers":     object{"Retry-After": object{"$ref": "#/components/headers/Retry-After"}},
	}
	return "Unavailable"
}

//go:embed openapi.yml
var openapiYAML []byte

// openapiParts is the contents of openapi.yml.
var openapiParts = func() (parts struct {
	Headers        object
	RetryAfterDate object `yaml:"retryAfterDate"`
	Bodies         map[string]struct {
		Media  string
		Schema object
	}
}) {
	if err := yaml.Unmarshal(openapiYAML, &parts); err != nil {
		panic(err) // cannot happen: it is embedded
	}
	return parts
}()

// fields returns the fields of responses that deny a request, by their names: Retry-After, and
// those of the configured style.
func (o *openapiFile) fields() object {
	written := http.Header{"Retry-After": nil}
	ratelimit.Set(written, o.Config.Style, ratelimit.Limit{Quota: 1, Window: 1e9})
	if o.Config.RetryAfterMS {
		written["Retry-After-Ms"] = nil
	}
	fields := make(object)
	for name, description := range openapiParts.Headers {
		if _, ok := written[http.CanonicalHeaderKey(name)]; ok {
			fields[name] = description
		}
	}
	if o.Config.RetryAfterDate {
		fields["Retry-After"] = openapiParts.RetryAfterDate
	}
	return fields
}

// schema returns the schema of denials' bodies. A body of the program is a gap.
func (o *openapiFile) schema() object {
	body, ok := openapiParts.Bodies[o.Body]
	if !ok {
		o.settingGap("body", "only the program knows the body %s", quoted(o.Body))
		return object{}
	}
	return body.Schema
}
