package rulefile

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"
)

// What a file may hold, besides maxBytes. Each bound is far beyond a file that a person
// keeps, and far below what a machine notices.
const (
	maxValues = 50_000 // of objects and lists, those that YAML's aliases repeat counted each time
	maxItems  = 1000   // of one list
	maxText   = 1000   // bytes of a value
	maxDepth  = 32     // of the expression of a key
	maxFaults = 100    // that are reported: a file with more has a few of them often
)

// A walk goes over the nodes of a file once, from the top down by the tables of
// fields.go, makes a Listing of them, and collects what is wrong.
//
// The tables end, so a walk does too: where an alias stands for something around it,
// there is sooner or later no field for it.
type walk struct {
	Listing
	env    Env
	faults []*Fault
	key    key // what the file's key is

	broken []string              // paths at which something is wrong
	places map[string]*yaml.Node // by path
	values int                   // of all objects and lists so far

	named []string // what the rule or allowance has named so far: "cost weight"
}

// A value is a node in its place.
type value struct {
	*yaml.Node
	path string // such as rules[2].key; "" is the file
}

// at is a node at a path, which is remembered.
func (w *walk) at(n *yaml.Node, path string) value {
	n = unaliased(n)
	w.places[path] = n
	return value{n, path}
}

// unaliased is what a node stands for, if it is an alias.
func unaliased(n *yaml.Node) *yaml.Node {
	if n.Kind == yaml.AliasNode {
		return n.Alias
	}
	return n
}

func within(outer, name string) string { return strings.TrimPrefix(outer+"."+name, ".") }

// fault says what is wrong with v.
func (w *walk) fault(v value, format string, args ...any) {
	w.faultAt(v.Node, v.path, format, args...)
	w.broken = append(w.broken, v.path)
}

func (w *walk) faultAt(n *yaml.Node, field, format string, args ...any) {
	if len(w.faults) < maxFaults {
		w.faults = append(w.faults, &Fault{w.File, n.Line, n.Column, field, fmt.Sprintf(format, args...)})
	}
}

// warn says what v means by mistake.
func (w *walk) warn(v value, format string, args ...any) {
	if len(w.Warnings) < maxFaults {
		w.Warnings = append(w.Warnings, &Fault{w.File, v.Line, v.Column, v.path, fmt.Sprintf(format, args...)})
	}
}

// isBroken reports whether something is wrong at a path, in it or around it: what else
// is wrong there may only follow from that.
func (w *walk) isBroken(path string) bool {
	return slices.ContainsFunc(w.broken, func(b string) bool { return isIn(b, path) || isIn(path, b) })
}

// isIn reports whether a path is another, or in it.
func isIn(path, other string) bool {
	rest, ok := strings.CutPrefix(path, other)
	return ok && (rest == "" || other == "" || rest[0] == '.' || rest[0] == '[')
}

// place is the node at a path, or the nearest around it that the file has.
func (w *walk) place(path string) *yaml.Node {
	for w.places[path] == nil {
		path = path[:max(0, strings.LastIndexAny(path, ".["))]
	}
	return w.places[path]
}

var kinds = map[yaml.Kind]string{yaml.ScalarNode: "a value", yaml.SequenceNode: "a list", yaml.MappingNode: "an object"}

// wants reports whether v is of a kind, which is a fault if not.
func (w *walk) wants(v value, k yaml.Kind) bool {
	switch {
	case v.Kind == yaml.ScalarNode && (v.ShortTag() == "!!null" || strings.TrimSpace(v.Value) == ""):
		w.fault(v, "is empty: leave it out, or say what it is")
	case v.Kind != k:
		w.fault(v, "is %s: must be %s", kinds[v.Kind], kinds[k])
	default:
		return true
	}
	return false
}

// mayHold reports whether n more values may be read, those of v.
func (w *walk) mayHold(v value, n int) bool {
	if w.values <= maxValues && w.values+n > maxValues {
		w.fault(value{v.Node, ""}, "there is too much in the file")
	}
	w.values += n
	return w.values <= maxValues && len(w.faults) < maxFaults
}

// A field is one that an object of the file may have.
type field[T any] struct {
	name string // in the file
	goes string // in T, as serverside and quota call it
	read func(*walk, value, *T)
}

// object reads an object into T. Fields are read in the order of the table, whatever
// that of the file is.
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

// keys returns the values of an object by their keys, which are to be among names, and
// each there once.
func (w *walk) keys(v value, names []string) map[string]*yaml.Node {
	values, lines := make(map[string]*yaml.Node), make(map[string]int)
	for i := 0; i+1 < len(v.Content) && len(w.faults) < maxFaults; i += 2 {
		key := unaliased(v.Content[i])
		name := key.Value
		switch {
		case key.Kind != yaml.ScalarNode:
			w.fault(value{key, v.path}, "has %s for a key", kinds[key.Kind])
		case !slices.Contains(names, name):
			meant, hint := nearest(name, names)
			w.faultAt(key, v.path, "unknown key %s%s", quote(name), hint)
			w.broken = append(w.broken, within(v.path, meant))
		case values[name] != nil:
			w.fault(value{key, within(v.path, name)}, "is there twice: it is in line %d too", lines[name])
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

// items are the elements of a list. One that is alone may do without brackets.
func (w *walk) items(v value) (items []value) {
	if v.Kind != yaml.SequenceNode {
		return []value{w.at(v.Node, v.path+"[0]")}
	}
	if len(v.Content) > maxItems {
		w.fault(v, "has %d elements: there may be %d", len(v.Content), maxItems)
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

// text returns the text of a scalar, or "" if there is none, which is a fault.
func (w *walk) text(v value) string {
	if !w.wants(v, yaml.ScalarNode) {
		return ""
	}
	if len(v.Value) > maxText {
		w.fault(v, "has %d bytes: there may be %d", len(v.Value), maxText)
		return ""
	}
	return strings.TrimSpace(v.Value)
}

// parsed reads a scalar by parse, whose error says what is wrong with the text.
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

// list reads a list of scalars by parse. It is never nil.
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

// oneOf parses the name of one of choices.
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

// function reads the name of a function: one of ours, or one that the program has in
// Env. If Env is Lenient, unknown stands in for those that it does not have.
func function[F any](w *walk, v value, what string, ours, programs map[string]F, unknown F) F {
	return parsed(w, v, func(name string) (F, error) {
		w.note(v, name)
		return find(w, what, name, ours, programs, unknown)
	})
}

// find returns the function of a name, as function does.
func find[F any](w *walk, what, name string, ours, programs map[string]F, unknown F) (F, error) {
	if f, ok := programs[name]; ok {
		return f, nil
	}
	if f, ok := ours[name]; ok {
		return f, nil
	}
	if w.env.Lenient && isToken(name) {
		return unknown, nil
	}
	names := slices.Sorted(maps.Keys(ours))
	names = append(names, slices.Sorted(maps.Keys(programs))...)
	if len(names) == 0 {
		return unknown, fmt.Errorf("there is no %s %s: the program has named none", what, quote(name))
	}
	_, hint := nearest(name, names)
	return unknown, fmt.Errorf("there is no %s %s: there is %s%s", what, quote(name), strings.Join(names, ", "), hint)
}

// note remembers what the field v has named, in words that are the same whenever they
// mean the same.
func (w *walk) note(v value, text string) {
	w.named = append(w.named, v.path[strings.LastIndexByte(v.path, '.')+1:]+" "+text)
}

// noted are the notes on the rule or allowance that has been read.
func (w *walk) noted() []string {
	named := w.named
	w.named = nil
	return named
}
