package export

import (
	"bytes"
	"cmp"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/heedhttp/heed/quota"
	"github.com/heedhttp/heed/ratelimit"
	"github.com/heedhttp/heed/serverside"
	"github.com/heedhttp/heed/serverside/rulefile"
)

// An object is one of OpenAPI.
type object = map[string]any

// openapi makes a document of OpenAPI 3.1: the paths that rules are for, and what
// those get that are denied there.
func openapi(e *exporter) string {
	o := &openapiFile{exporter: e, paths: make(object), responses: make(object), templates: make(map[string]string)}
	o.notSaid()
	for i := range e.Rules {
		o.patterns = append(o.patterns, newPattern(e.Rules[i].Rule.Pattern))
	}
	for i := range e.Rules {
		o.rule(&e.Rules[i])
	}
	for _, d := range o.described {
		o.paths[d.path].(object)[d.method] = o.operation(d.pattern)
	}
	document := struct {
		OpenAPI    string `yaml:"openapi"`
		Info       object
		Paths      object
		Components object
	}{
		"3.1.0", object{"title": "Limits", "version": "1"}, o.paths,
		object{"responses": o.responses, "headers": o.headers(), "schemas": object{"RateLimited": o.body()}},
	}
	return hashed(e.comment("What "+e.source()+" limits, made by heed rules export: a document of OpenAPI 3.1 to",
		"refer to from yours, or to take parts of. The application's own answers are not in it.")) + marshaled(document)
}

// marshaled is what is made of plain values, as YAML.
func marshaled(v any) string {
	var b bytes.Buffer
	encoder := yaml.NewEncoder(&b)
	encoder.SetIndent(2)
	if err := encoder.Encode(v); err != nil {
		panic(err) // of plain values, it cannot be
	}
	return b.String()
}

type openapiFile struct {
	*exporter
	patterns   []pattern // of the rules
	described  []described
	paths      object
	responses  object
	components []component
	templates  map[string]string // the path of one with other names for the same variables
}

// A described is where an operation is.
type described struct {
	path, method string
	pattern      pattern // whose denials it has
}

// notSaid are the gaps of what is beside the rules.
func (o *openapiFile) notSaid() {
	if len(o.Config.Exempt) > 0 {
		o.gapOf("exempt", 1, 1, "these requests are not limited, also where they are among paths here")
	}
	for i := range o.Allow {
		a := &o.Allow[i]
		o.gapOf("allowance "+quoted(a.Rule.Name), a.Line, a.Column, "some clients have limits of their own: others are told nothing of it")
	}
}

// anyMethod are the operations of a pattern without a method.
var anyMethod = []string{"get", "post", "put", "patch", "delete"}

// operations are the methods that OpenAPI has.
var operations = append(anyMethod, "head", "options", "trace")

// rule has the operations described that r is for.
func (o *openapiFile) rule(r *rulefile.Listed) {
	p := newPattern(cmp.Or(r.Rule.Pattern, "/"))
	if reason := unsaid(r, p); reason != "" {
		o.gap(r, "%s", reason)
		return
	}
	methods := anyMethod
	if p.method != "" {
		methods = []string{strings.ToLower(p.method)}
	}
	path, parameters, beneath := template(p)
	path = o.sameAs(path)
	if beneath {
		o.gap(r, "OpenAPI has no word for all paths beneath one: it is the variable at the end of %s", quoted(path))
	}
	if o.paths[path] == nil {
		item := make(object)
		if len(parameters) > 0 {
			item["parameters"] = parameters
		}
		o.paths[path] = item
	}
	for _, method := range methods {
		o.describe(path, method, p)
	}
	if n := o.crossed(p, methods); n > 0 {
		o.gap(r, "it has some requests in common with %d of the other rules: of each of those the document says what one of the rules alone denies", n)
	}
}

// unsaid says why r, which has p, is left out; "" if it is not.
func unsaid(r *rulefile.Listed, p pattern) string {
	switch {
	case r.Rule.DryRun:
		return "it is a dry run: nobody is told of it"
	case p.method != "" && (!slices.Contains(operations, strings.ToLower(p.method)) || strings.ToUpper(p.method) != p.method):
		return "OpenAPI has no operation " + quoted(p.method)
	case p.host != "":
		return "OpenAPI has no host " + quoted(p.host) + " for a path of its own: the rule is left out"
	}
	return ""
}

// crossed is with how many rules one of p has some requests in common that no operation is
// for: what is said of either is not said of all that it has.
func (o *openapiFile) crossed(p pattern, methods []string) (n int) {
	for i, q := range o.patterns {
		crosses := func(method string) bool {
			p, q := p.as(method), q.as(method)
			return p.overlaps(q) && !p.covers(q) && !q.covers(p)
		}
		if unsaid(&o.Rules[i], q) == "" && slices.ContainsFunc(methods, crosses) {
			n++
		}
	}
	return n
}

// describe has an operation described. Of several patterns that are one path, all rules that
// hold for one hold for a narrower one too.
func (o *openapiFile) describe(path, method string, p pattern) {
	p = p.as(method)
	i := slices.IndexFunc(o.described, func(d described) bool { return d.path == path && d.method == method })
	switch {
	case i < 0:
		o.described = append(o.described, described{path, method, p})
	case o.described[i].pattern.covers(p):
		o.described[i].pattern = p
	}
}

// sameAs is the path that is there with the same variables by any names.
func (o *openapiFile) sameAs(path string) string {
	var shape strings.Builder
	for segment := range strings.SplitSeq(path, "/") {
		if strings.HasPrefix(segment, "{") {
			segment = "{}"
		}
		shape.WriteString("/" + segment)
	}
	if o.templates[shape.String()] == "" {
		o.templates[shape.String()] = path
	}
	return o.templates[shape.String()]
}

// template is p's path with variables. Where it is for all paths beneath, the last
// of them stands for what is there.
func template(p pattern) (path string, parameters []any, beneath bool) {
	variable := func(name, says string) string {
		parameters = append(parameters, object{"name": name, "in": "path", "required": true, "description": says, "schema": object{"type": "string"}})
		return "/{" + name + "}"
	}
	for _, s := range p.segments {
		switch s.kind {
		case literal:
			path += "/" + url.PathEscape(s.name)
		case wildcard:
			path += variable(s.name, "One segment of the path.")
		case rest:
			name := cmp.Or(s.name, "rest")
			for s.name == "" && strings.Contains(path, "{"+name+"}") {
				name += "_"
			}
			path += variable(name, "Any number of segments of the path.")
			beneath = true
		case ending:
			path += "/"
		}
	}
	return path, parameters, beneath
}

// operation is what those get that are denied by the rules that hold for a pattern.
func (o *openapiFile) operation(p pattern) object {
	denials, closed := make(map[int][]*rulefile.Listed), false
	for i := range o.Rules {
		r := &o.Rules[i]
		if r.Rule.DryRun || !o.patterns[i].covers(p) {
			continue
		}
		closed = closed || cmp.Or(r.Rule.OnStoreError, o.Config.OnStoreError) == serverside.FailClosed
		status := cmp.Or(r.Rule.Status, http.StatusTooManyRequests)
		denials[status] = append(denials[status], r)
	}
	responses := object{"default": object{"description": "What the application answers."}}
	for _, status := range slices.Sorted(maps.Keys(denials)) {
		responses[strconv.Itoa(status)] = object{"$ref": "#/components/responses/" + o.response(status, denials[status])}
	}
	if unavailable := cmp.Or(o.Config.ClosedStatus, http.StatusServiceUnavailable); closed && denials[unavailable] == nil {
		responses[strconv.Itoa(unavailable)] = object{"$ref": "#/components/responses/" + o.unavailable()}
	}
	return object{"responses": responses}
}

// unavailable is the name of the component for requests that cannot be counted.
func (o *openapiFile) unavailable() string {
	o.responses["Unavailable"] = object{
		"description": "Requests cannot be counted at the moment, and are refused.",
		"headers":     object{"Retry-After": object{"$ref": "#/components/headers/Retry-After"}},
	}
	return "Unavailable"
}

// policiesOf are r's policies, for programs and for people.
func policiesOf(r *rulefile.Listed) (limits []any, texts []string) {
	add := func(tier string, policies []quota.Policy) {
		for _, p := range policies {
			if compiled, err := p.Compile(); err == nil {
				l := limit{Policy: compiled.Policy()}
				limits, texts = append(limits, limitOf(r, tier, l)), append(texts, strings.TrimPrefix(tier+": "+l.String(), ": "))
			}
		}
	}
	add("", r.Rule.Policies)
	for _, t := range r.Rule.Tiers {
		add(t.Name, t.Policies)
	}
	if n := r.Rule.MaxInFlight; n > 0 {
		limits, texts = append(limits, object{"rule": r.Rule.Name, "key": r.Key, "in-flight": n}), append(texts, strconv.FormatInt(n, 10)+" at the same time")
	}
	return limits, texts
}

// limitOf is a policy of r, for programs.
func limitOf(r *rulefile.Listed, tier string, l limit) object {
	o := object{"rule": r.Rule.Name, "key": r.Key, "quota": l.Quota, "burst": l.Burst, "algorithm": l.Algorithm.String()}
	if l.Calendar != 0 {
		o["calendar"] = l.Calendar.String()
	} else {
		o["window"] = l.Window.Seconds()
	}
	if tier != "" {
		o["tier"] = tier
	}
	return o
}

// response is the name of a component that says what some rules deny, and how.
func (o *openapiFile) response(status int, rules []*rulefile.Listed) string {
	kind := "RateLimited"
	if status != http.StatusTooManyRequests {
		kind = "Overloaded"
	}
	same := func(c component) bool { return c.kind == kind && slices.Equal(c.rules, rules) }
	if i := slices.IndexFunc(o.components, same); i >= 0 {
		return o.components[i].name
	}
	c := component{kind: kind, name: kind + strconv.Itoa(len(o.components)+1), rules: rules}
	o.components = append(o.components, c)
	o.responses[c.name] = o.denial(rules)
	return c.name
}

// A component is a response that is described once.
type component struct {
	kind, name string
	rules      []*rulefile.Listed
}

// denial describes what some rules deny.
func (o *openapiFile) denial(rules []*rulefile.Listed) object {
	description := "Too many requests. There are"
	var all []any
	for i, r := range rules {
		limits, texts := policiesOf(r)
		all = append(all, limits...)
		description += strings.Repeat(", and", min(i, 1)) + " " + strings.Join(texts, ", ") + ", by " + r.Key
	}
	headers := make(object)
	for _, f := range o.fields() {
		headers[f.name] = object{"$ref": "#/components/headers/" + f.name}
	}
	response := object{"description": description + ".", "headers": headers, "x-rate-limits": all}
	if media := o.media(); media != "" {
		response["content"] = object{media: object{"schema": object{"$ref": "#/components/schemas/RateLimited"}}}
	}
	return response
}

// A fieldText is what a field says that denials may carry.
type fieldText struct {
	name, says string
	example    any // a number is that of a number
}

var fieldTexts = []fieldText{
	{"Retry-After", "In how many seconds the same request will be admitted.", 12},
	{"Retry-After-Ms", "The same in milliseconds.", 11_400},
	{"RateLimit-Policy", "The limits that hold: q units in each w seconds.", `"default";q=100;w=60`},
	{"RateLimit", "What is left of them: r units, and t seconds until there is one more.", `"default";r=0;t=12`},
	{"X-RateLimit-Limit", "The limit that is closest to be reached.", 100},
	{"X-RateLimit-Remaining", "What is left of it.", 0},
	{"X-RateLimit-Reset", "When all of it will be left.", 1_795_262_400},
	{"RateLimit-Limit", "The limit that is closest to be reached.", 100},
	{"RateLimit-Remaining", "What is left of it.", 0},
	{"RateLimit-Reset", "In how many seconds all of it will be left.", 60},
}

// fields are those of denials: those that the style writes, and Retry-After.
func (o *openapiFile) fields() (fields []fieldText) {
	h := http.Header{"Retry-After": nil}
	ratelimit.Set(h, o.Config.Style, ratelimit.Limit{Quota: 1, Window: 1e9})
	if o.Config.RetryAfterMS {
		h["Retry-After-Ms"] = nil
	}
	for _, f := range fieldTexts {
		if _, ok := h[http.CanonicalHeaderKey(f.name)]; ok {
			fields = append(fields, f)
		}
	}
	return fields
}

func (o *openapiFile) headers() object {
	headers := make(object)
	for _, f := range o.fields() {
		if f.name == "Retry-After" && o.Config.RetryAfterDate {
			f.says, f.example = "When the same request will be admitted.", "Sat, 21 Nov 2026 12:00:00 GMT"
		}
		schema := object{"type": "string"}
		if _, ok := f.example.(int); ok {
			schema = object{"type": "integer", "minimum": 0}
		}
		headers[f.name] = object{"description": f.says, "schema": schema, "example": f.example}
	}
	return headers
}

// media is the type of the body of denials; "" if only the program knows.
func (o *openapiFile) media() string {
	switch o.Body {
	case "problem":
		return "application/problem+json"
	case "envelope", "limit", "detail", "flat":
		return "application/json"
	default:
		return ""
	}
}

// body is the schema of the body of denials.
func (o *openapiFile) body() object {
	text, number := object{"type": "string"}, object{"type": "integer"}
	switch o.Body {
	case "problem":
		return record("A problem document (RFC 9457).", object{
			"type": object{"type": "string", "format": "uri", "examples": []any{serverside.ProblemQuota}}, "title": text, "status": number, "detail": text,
			"violated-policies": object{"type": "array", "items": text}, "retry_after_ms": number, "cost": number, "fits_now": number,
		}, "type", "title", "status", "detail")
	case "envelope":
		return record("", object{"error": record("", object{"code": text, "message": text, "request_id": text}, "code", "message")}, "error")
	case "limit":
		return record("", object{"error": record("", object{"code": text, "message": text, "retry_after": number, "limit": number,
			"reset_at": object{"type": "string", "format": "date-time"}}, "code", "message")}, "error")
	case "detail":
		return record("", object{"detail": text}, "detail")
	case "flat":
		return record("", object{"error": text, "message": text, "retryAfter": number}, "error", "message")
	default:
		o.gapOf("body", 1, 1, "only the program knows the body %s", quoted(o.Body))
		return object{}
	}
}

// record is the schema of an object.
func record(says string, properties object, required ...string) object {
	schema := object{"type": "object", "properties": properties, "required": required}
	if says != "" {
		schema["description"] = says
	}
	return schema
}
