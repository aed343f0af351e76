package ratelimit

import (
	"bytes"
	"encoding/json"
	"iter"
	"math/big"
	"strings"
)

// A document is the beginning of a body. It is decoded when it is asked for the first
// time.
type document struct {
	text    []byte
	decoded bool
	root    any // nil if text is no JSON
}

// any reports whether there is a value at path that is one of those, or any if there
// are none.
func (d *document) any(path string, is []string) bool {
	for value := range d.values(path) {
		if isOneOf(value, is) {
			return true
		}
	}
	return false
}

// values returns those at path: strings as they are, numbers as they were written.
func (d *document) values(path string) iter.Seq[string] {
	return func(yield func(string) bool) {
		switch {
		case path == "" || len(d.text) == 0:
		case path[0] == '<':
			d.elements(path, yield)
		default:
			walk(d.json(), path, yield)
		}
	}
}

func (d *document) json() any {
	if !d.decoded {
		d.decoded = true
		d.root = decode(d.text)
	}
	return d.root
}

// decode returns a JSON value, or nil if text is none.
func decode(text []byte) any {
	decoder := json.NewDecoder(bytes.NewReader(text))
	decoder.UseNumber()
	var root any
	if decoder.Decode(&root) != nil {
		return nil
	}
	return root
}

// walk yields the values at path below node. It returns false if yield did.
func walk(node any, path string, yield func(string) bool) bool {
	if path == "" {
		value, ok := scalar(node)
		return !ok || yield(value)
	}
	step, rest, _ := strings.Cut(path, ".")
	switch node := node.(type) {
	case map[string]any:
		if step != "*" {
			return walk(node[step], rest, yield)
		}
		for _, member := range node {
			if !walk(member, rest, yield) {
				return false
			}
		}
	case []any:
		if step != "*" {
			return true
		}
		for _, element := range node {
			if !walk(element, rest, yield) {
				return false
			}
		}
	}
	return true
}

// scalar returns a string, a number or a boolean as text.
func scalar(node any) (value string, ok bool) {
	switch node := node.(type) {
	case string:
		return node, true
	case json.Number:
		return node.String(), true
	case bool:
		if node {
			return "true", true
		}
		return "false", true
	}
	return "", false
}

// elements yields the texts of the elements of an XML body whose tag is tag. It knows
// no attributes or entities: error codes have none.
func (d *document) elements(tag string, yield func(string) bool) {
	end := "</" + tag[1:]
	for text := string(d.text); ; {
		_, after, found := strings.Cut(text, tag)
		if !found {
			return
		}
		value, rest, found := strings.Cut(after, end)
		if !found || !yield(strings.TrimSpace(value)) {
			return
		}
		text = rest
	}
}

// number returns the first value at path, or nil if it is not a number of reasonable
// length.
func (d *document) number(path string) *big.Rat {
	for value := range d.values(path) {
		number, rest, ok := cutDecimal(value)
		if !ok || rest != "" || len(value) > 40 {
			return nil
		}
		r, _ := new(big.Rat).SetString("0" + number.whole + "." + number.fraction + "0")
		return r
	}
	return nil
}

// isOneOf reports whether value matches a pattern, or is not empty if there are none.
// AWS puts a name space before its codes, and an address after them.
func isOneOf(value string, patterns []string) bool {
	if len(patterns) == 0 {
		return value != ""
	}
	code, _, _ := strings.Cut(value[strings.LastIndexByte(value, '#')+1:], ":")
	for _, pattern := range patterns {
		if matches(value, pattern) || code == pattern {
			return true
		}
	}
	return false
}

// matches reports whether value is pattern, which may begin and end in * for
// anything.
func matches(value, pattern string) bool {
	head, open := strings.CutSuffix(pattern, "*")
	tail, floating := strings.CutPrefix(head, "*")
	switch {
	case open && floating:
		return strings.Contains(value, tail)
	case open:
		return strings.HasPrefix(value, head)
	case floating:
		return strings.HasSuffix(value, tail)
	}
	return value == pattern
}

// recordOf reads what one field holds: a JSON object, or pairs as in total=100;
// remaining=0.
func recordOf(line string) map[string][]string {
	record := map[string][]string{}
	if line = trim(line); strings.HasPrefix(line, "{") {
		object, _ := decode([]byte(line)).(map[string]any)
		for key, node := range object {
			if value, ok := scalar(node); ok {
				record[key] = []string{value}
			}
		}
		return record
	}
	for pair := range strings.SplitSeq(line, ";") {
		if key, value, ok := strings.Cut(pair, "="); ok {
			record[trim(key)] = append(record[trim(key)], trim(value))
		}
	}
	return record
}
