package rulefile

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"strconv"
	"strings"
)

// A jsonReader makes nodes of JSON. YAML's parser would read most of it, but not
// tabs, nor all escapes.
type jsonReader struct {
	data   []byte
	tokens *json.Decoder
	tally  tally
}

// readJSON reads one value of JSON (RFC 8259).
func readJSON(data []byte) (*node, *syntaxError) {
	r := &jsonReader{data: data, tokens: json.NewDecoder(bytes.NewReader(data))}
	r.tokens.UseNumber()
	root, fault := r.value(1)
	if fault != nil {
		return nil, fault
	}
	end := r.start()
	if _, err := r.tokens.Token(); err != io.EOF {
		return nil, r.fault(end, "there is more after the object")
	}
	return root, nil
}

// start is the offset at which the next token begins.
func (r *jsonReader) start() int {
	offset := int(r.tokens.InputOffset())
	return offset + len(r.data[offset:]) - len(bytes.TrimLeft(r.data[offset:], " \t\r\n,:"))
}

func (r *jsonReader) fault(offset int, reason string) *syntaxError {
	line, column := position(r.data, min(offset, len(r.data)))
	return &syntaxError{line, column, reason}
}

// value reads the next value.
func (r *jsonReader) value(depth int) (*node, *syntaxError) {
	start := r.start()
	if reason := r.tally.add(depth); reason != "" {
		return nil, r.fault(start, reason)
	}
	token, err := r.tokens.Token()
	if err != nil {
		return nil, r.syntax(start, err)
	}
	n := new(node)
	n.line, n.column = position(r.data, start)
	switch v := token.(type) {
	case nil:
		n.kind = null
	case bool:
		n.text = strconv.FormatBool(v)
	case json.Number:
		n.text = v.String()
	case string:
		n.text, n.quoted = strings.TrimSpace(v), true
	case json.Delim:
		return n, r.content(n, v, depth)
	}
	return n, nil
}

// content reads what is in an object or a list, to its end.
func (r *jsonReader) content(n *node, open json.Delim, depth int) *syntaxError {
	n.kind = list
	if open == '{' {
		n.kind = object
	}
	for r.tokens.More() {
		if n.kind == object {
			key, fault := r.value(depth + 1)
			if fault != nil {
				return fault
			}
			n.keys = append(n.keys, key)
		}
		item, fault := r.value(depth + 1)
		if fault != nil {
			return fault
		}
		n.items = append(n.items, item)
	}
	if _, err := r.tokens.Token(); err != nil {
		return r.syntax(r.start(), err)
	}
	return nil
}

func (r *jsonReader) syntax(start int, err error) *syntaxError {
	if fault, ok := errors.AsType[*json.SyntaxError](err); ok {
		return r.fault(max(start, int(fault.Offset)-1), "is not JSON: "+fault.Error())
	}
	if start == len(r.data) && len(bytes.TrimSpace(r.data)) == 0 {
		return r.fault(0, "there is nothing in the file")
	}
	return r.fault(start, "is not JSON: its end is missing")
}
