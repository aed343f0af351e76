package ratelimit

import (
	"bytes"
	"encoding/json"
	"iter"
	"math/big"
	"strings"
)

// A document is the beginning of a body. It is decoded on first use.
type document struct {
	text    []byte
	decoded bool
	root    any // nil if text is not JSON
}

// any reports whether a value at path matches one of is, or is not empty if is has none.
func (d *document) any(path string, is []string) bool {
	for value := range d.values(path) {
		if isOneOf(value, is) {
			return true
		}
	}
	return false
}

// values yields the values at path: strings without quotes, numbers as written.
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

// decode returns a JSON value, or nil if text is not JSON.
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

// elements yields the text of each XML element with the start tag tag. It ignores
// attributes and entities: error codes have none.
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

// number returns the first value at path, or nil if it is not a number or has more than
// 40 bytes.
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

// isOneOf reports whether value matches one of patterns, or is not empty if there are
// none. AWS writes a namespace before its codes and a URL after them; both are ignored.
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

// matches reports whether value equals pattern, which may begin and end with * for any
// text.
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

// recordOf reads the members of one field: a JSON object, or pairs such as total=100;
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
