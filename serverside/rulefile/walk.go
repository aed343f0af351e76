package rulefile

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"
)

// Limits of a file, besides maxBytes. A file written by a person stays far below them.
const (
	maxValues = 50_000 // values in objects and lists, counting each use of an alias
	maxItems  = 1000   // items of a list
	maxText   = 1000   // bytes of a value
	maxDepth  = 32     // nesting of a key expression
	maxFaults = 100    // faults that are reported
)

// A walk reads the nodes of a file from the top down, by the tables of fields.go. It fills a
// Listing and collects faults.
//
// It ends even if an alias contains itself, because the tables have no field at some depth.
type walk struct {
	Listing
	env    Env
	faults []*Fault
	key    key // the file's key

	broken []string              // paths with faults
	places map[string]*yaml.Node // nodes by path
	values int                   // values read so far, for maxValues

	named []string // functions named by the current rule or allowance, such as "cost weight"
}

// A value is a node and its path.
type value struct {
	*yaml.Node
	path string // such as rules[2].key; "" is the whole file
}

// at returns the value at a path, and records its place.
func (w *walk) at(n *yaml.Node, path string) value {
	n = unaliased(n)
	w.places[path] = n
	return value{n, path}
}

// unaliased returns the node that n stands for.
func unaliased(n *yaml.Node) *yaml.Node {
	if n.Kind == yaml.AliasNode {
		return n.Alias
	}
	return n
}

func within(outer, name string) string { return strings.TrimPrefix(outer+"."+name, ".") }

// fault reports a fault of v.
func (w *walk) fault(v value, format string, args ...any) {
	w.faultAt(v.Node, v.path, format, args...)
	w.broken = append(w.broken, v.path)
}

func (w *walk) faultAt(n *yaml.Node, field, format string, args ...any) {
	if len(w.faults) < maxFaults {
		w.faults = append(w.faults, &Fault{w.File, n.Line, n.Column, field, fmt.Sprintf(format, args...)})
	}
}

// warn reports a probable mistake in v.
func (w *walk) warn(v value, format string, args ...any) {
	if len(w.Warnings) < maxFaults {
		w.Warnings = append(w.Warnings, &Fault{w.File, v.Line, v.Column, v.path, fmt.Sprintf(format, args...)})
	}
}

// isBroken reports whether there is a fault at a path, inside it or around it. Another fault
// there may only be a consequence.
func (w *walk) isBroken(path string) bool {
	return slices.ContainsFunc(w.broken, func(b string) bool { return isIn(b, path) || isIn(path, b) })
}

// isIn reports whether path equals other or is inside it.
func isIn(path, other string) bool {
	rest, ok := strings.CutPrefix(path, other)
	return ok && (rest == "" || other == "" || rest[0] == '.' || rest[0] == '[')
}

// place returns the node at a path, or the nearest one around it.
func (w *walk) place(path string) *yaml.Node {
	for w.places[path] == nil {
		path = path[:max(0, strings.LastIndexAny(path, ".["))]
	}
	return w.places[path]
}

var kinds = map[yaml.Kind]string{
	yaml.ScalarNode: "a value", yaml.SequenceNode: "a list", yaml.MappingNode: "an object",
}

// wants reports whether v is of kind k. If not, it reports a fault.
func (w *walk) wants(v value, k yaml.Kind) bool {
	switch {
	case v.Kind == yaml.ScalarNode && (v.ShortTag() == "!!null" || strings.TrimSpace(v.Value) == ""):
		w.fault(v, "is empty: set a value or leave it out")
	case v.Kind != k:
		w.fault(v, "is %s: must be %s", kinds[v.Kind], kinds[k])
	default:
		return true
	}
	return false
}

// mayHold reports whether the n values of v may still be read.
func (w *walk) mayHold(v value, n int) bool {
	if w.values <= maxValues && w.values+n > maxValues {
		w.fault(value{v.Node, ""}, "the file has more than %d values", maxValues)
	}
	w.values += n
	return w.values <= maxValues && len(w.faults) < maxFaults
}

// A field is a field of an object in the file.
type field[T any] struct {
	name string // name in the file
	goes string // name in Go
	read func(*walk, value, *T)
}

// object reads an object into T, in the order of fields.
func object[T any](w *walk, v value, fields []field[T], into *T) {
	if !w.wants(v, yaml.MappingNode) || !w.mayHold(v, len(v.Content)/2) {
		return
	}
	names := make([]string, len(fields))
	for i, f := range fields {
		names[i] = f.name
	}
	values := w.keys(v, names)
	for _, f := range fields {
		if n := values[f.name]; n != nil {
			f.read(w, w.at(n, within(v.path, f.name)), into)
		}
	}
}

// keys returns the values of an object by key. It reports keys that are not in names or are
// repeated.
func (w *walk) keys(v value, names []string) map[string]*yaml.Node {
	values, lines := make(map[string]*yaml.Node), make(map[string]int)
	for i := 0; i+1 < len(v.Content) && len(w.faults) < maxFaults; i += 2 {
		key := unaliased(v.Content[i])
		name := key.Value
		switch {
		case key.Kind != yaml.ScalarNode:
			w.fault(value{key, v.path}, "has %s as a key", kinds[key.Kind])
		case !slices.Contains(names, name):
			meant, hint := nearest(name, names)
			w.faultAt(key, v.path, "unknown key %s%s", quote(name), hint)
			w.broken = append(w.broken, within(v.path, meant))
		case values[name] != nil:
			w.fault(value{key, within(v.path, name)}, "is set twice: see line %d", lines[name])
		default:
			values[name], lines[name] = v.Content[i+1], key.Line
		}
	}
	return values
}

// objects reads a list of objects.
func objects[T any](w *walk, v value, fields []field[T], add func(value, *T)) {
	if !w.wants(v, yaml.SequenceNode) {
		return
	}
	for _, item := range w.items(v) {
		into := new(T)
		object(w, item, fields, into)
		add(item, into)
	}
}

// items returns the elements of a list. A single value is a list of one.
func (w *walk) items(v value) (items []value) {
	if v.Kind != yaml.SequenceNode {
		return []value{w.at(v.Node, v.path+"[0]")}
	}
	if len(v.Content) > maxItems {
		w.fault(v, "has %d elements: the limit is %d", len(v.Content), maxItems)
		return nil
	}
	if !w.mayHold(v, len(v.Content)) {
		return nil
	}
	for i, n := range v.Content {
		items = append(items, w.at(n, v.path+"["+strconv.Itoa(i)+"]"))
	}
	return items
}

// text returns the text of a scalar. If there is none, it reports a fault and returns "".
func (w *walk) text(v value) string {
	if !w.wants(v, yaml.ScalarNode) {
		return ""
	}
	if len(v.Value) > maxText {
		w.fault(v, "has %d bytes: the limit is %d", len(v.Value), maxText)
		return ""
	}
	return strings.TrimSpace(v.Value)
}

// parsed reads a scalar with parse, whose error is the fault.
func parsed[T any](w *walk, v value, parse func(string) (T, error)) (read T) {
	text := w.text(v)
	if text == "" {
		return read
	}
	read, err := parse(text)
	if err != nil {
		w.fault(v, "%v", err)
	}
	return read
}

// list reads a list of scalars with parse. It never returns nil.
func list[T any](w *walk, v value, parse func(string) (T, error)) []T {
	all := []T{}
	for _, item := range w.items(v) {
		all = append(all, parsed(w, item, parse))
	}
	return all
}

// bool reads true or false.
func (w *walk) bool(v value) bool {
	text := w.text(v)
	if text != "" && (v.Style != 0 || text != "true" && text != "false") {
		w.fault(v, "is %s: must be true or false", quote(text))
	}
	return text == "true"
}

// oneOf returns a function that looks up a name in choices.
func oneOf[T any](choices map[string]T) func(name string) (T, error) {
	return func(name string) (T, error) {
		choice, ok := choices[name]
		if !ok {
			names := slices.Sorted(maps.Keys(choices))
			_, hint := nearest(name, names)
			return choice, fmt.Errorf("is %s: must be one of %s%s", quote(name), strings.Join(names, ", "), hint)
		}
		return choice, nil
	}
}

// function reads the name of a function in ours or, first, in programs, from Env. If Env is
// Lenient, an unknown name gives unknown.
func function[F any](w *walk, v value, what string, ours, programs map[string]F, unknown F) F {
	return parsed(w, v, func(name string) (F, error) {
		w.note(v, name)
		return find(w, v, what, name, ours, programs, unknown)
	})
}

// find looks up a name in v, like function.
func find[F any](w *walk, v value, what, name string, ours, programs map[string]F, unknown F) (F, error) {
	if f, ok := programs[name]; ok {
		return f, nil
	}
	if f, ok := ours[name]; ok {
		return f, nil
	}
	if w.env.Lenient && isToken(name) {
		for _, our := range slices.Sorted(maps.Keys(ours)) {
			if isTypo(name, our) {
				w.warn(v, "%s is not built in, so the program must provide it: did you mean %q?", quote(name), our)
				break
			}
		}
		return unknown, nil
	}
	names := slices.Sorted(maps.Keys(ours))
	names = append(names, slices.Sorted(maps.Keys(programs))...)
	if len(names) == 0 {
		return unknown, fmt.Errorf("%s is not a %s: the program provides none", quote(name), what)
	}
	_, hint := nearest(name, names)
	return unknown, fmt.Errorf("%s is not a %s: must be one of %s%s",
		quote(name), what, strings.Join(names, ", "), hint)
}

// note records what the field v names, for Listed.Functions and Config.Description.
func (w *walk) note(v value, text string) {
	w.named = append(w.named, v.path[strings.LastIndexByte(v.path, '.')+1:]+" "+text)
}

// noted returns and clears the notes on the current rule or allowance.
func (w *walk) noted() []string {
	named := w.named
	w.named = nil
	return named
}
