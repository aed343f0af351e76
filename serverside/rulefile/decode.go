package rulefile

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"path"
	"regexp"
	"strings"
	"unicode/utf8"

	"go.yaml.in/yaml/v3"
)

// maxBytes is the size of the largest file that is read.
const maxBytes = 1 << 20

// decode reads a JSON or YAML file into nodes. The Fault has no File.
func decode(name string, data []byte) (root *yaml.Node, fault *Fault) {
	defer func() {
		if p := recover(); p != nil { // no file may stop a server, even if the parser panics
			root, fault = nil, &Fault{Line: 1, Column: 1, Reason: fmt.Sprintf("cannot be read: %v", p)}
		}
	}()
	if len(data) > maxBytes {
		reason := fmt.Sprintf("the file is %d bytes long: the limit is %d", len(data), maxBytes)
		return nil, &Fault{Line: 1, Column: 1, Reason: reason}
	}
	if strings.EqualFold(path.Ext(name), ".json") {
		return decodeJSON(data)
	}
	documents, err := parseYAML(bytes.NewReader(data))
	switch {
	case err != nil:
		return nil, yamlFault(data, err)
	case len(documents) == 0:
		return nil, &Fault{Line: 1, Column: 1, Reason: "the file is empty"}
	case len(documents) > 1:
		second := documents[1]
		return nil, &Fault{Line: second.Line, Column: second.Column, Reason: "the file must not have a second document"}
	}
	return documents[0].Content[0], nil
}

// parseYAML returns at most two YAML 1.2 documents. It keeps aliases, so that walk counts what
// they repeat.
func parseYAML(from io.Reader) (documents []*yaml.Node, err error) {
	decoder := yaml.NewDecoder(from)
	for len(documents) < 2 && err == nil {
		document := new(yaml.Node)
		if err = decoder.Decode(document); err == nil {
			documents = append(documents, document)
		}
	}
	if err == io.EOF {
		err = nil
	}
	return documents, err
}

var yamlError = regexp.MustCompile(`^yaml: (line \d+: )?`)

// yamlFault returns the fault in data that is not YAML. Its line is the one after the longest
// beginning of data that is YAML. The line in err is often the start of an outer list instead.
func yamlFault(data []byte, err error) *Fault {
	r := bytes.NewReader(data)
	parseYAML(byteReader{r})
	start, budget := len(data)-r.Len(), 4<<20 // most bytes to parse in search of the line
	for start > 0 {
		start = bytes.LastIndexByte(data[:start-1], '\n') + 1
		if budget -= start; budget < 0 {
			break
		}
		if _, err := parseYAML(bytes.NewReader(data[:start])); err == nil {
			break
		}
	}
	line, _, _ := bytes.Cut(data[start:], []byte("\n"))
	return &Fault{
		Line:   1 + bytes.Count(data[:start], []byte("\n")),
		Column: 1 + len(line) - len(bytes.TrimLeft(line, " ")),
		Reason: "is not YAML: " + yamlError.ReplaceAllString(err.Error(), ""),
	}
}

// A byteReader returns one byte at a time, which shows how far a parser got.
type byteReader struct{ *bytes.Reader }

func (r byteReader) Read(p []byte) (int, error) { return r.Reader.Read(p[:1]) }

// decodeJSON reads one JSON value (RFC 8259) into nodes. A YAML parser would read most JSON,
// but not all escapes, nor tabs between values.
func decodeJSON(data []byte) (*yaml.Node, *Fault) {
	r := &jsonReader{data: data, tokens: json.NewDecoder(bytes.NewReader(data)), line: 1, column: 1}
	r.tokens.UseNumber()
	if err := json.Unmarshal(data, new(json.RawMessage)); err != nil {
		if wrong, ok := errors.AsType[*json.SyntaxError](err); ok {
			r.moveTo(int(wrong.Offset) - 1) // Offset is after the error
		}
		return nil, &Fault{Line: r.line, Column: r.column, Reason: "is not JSON: " + err.Error()}
	}
	root := r.value(1)
	if root == nil {
		return nil, &Fault{Line: r.line, Column: r.column, Reason: "is nested too deeply"}
	}
	return root, nil
}

// A jsonReader converts valid JSON to nodes, and counts lines and columns.
type jsonReader struct {
	data   []byte
	tokens *json.Decoder

	offset, line, column int
}

// next returns the next token, and moves to its position.
func (r *jsonReader) next() json.Token {
	after := r.data[r.tokens.InputOffset():]
	r.moveTo(len(r.data) - len(bytes.TrimLeft(after, " \t\r\n,:")))
	token, _ := r.tokens.Token()
	return token
}

func (r *jsonReader) moveTo(offset int) {
	for ; r.offset < offset; r.offset++ {
		switch c := r.data[r.offset]; {
		case c == '\n':
			r.line, r.column = r.line+1, 1
		case utf8.RuneStart(c):
			r.column++
		}
	}
}

// value reads the next value. It returns nil if the value is nested too deeply.
func (r *jsonReader) value(depth int) *yaml.Node {
	token := r.next()
	if depth > maxDepth {
		return nil
	}
	n := &yaml.Node{Kind: yaml.ScalarNode, Line: r.line, Column: r.column}
	switch v := token.(type) {
	case string:
		n.Value, n.Style = v, yaml.DoubleQuotedStyle
	case nil:
		n.Value = "null"
	case json.Delim:
		n.Kind = map[json.Delim]yaml.Kind{'{': yaml.MappingNode, '[': yaml.SequenceNode}[v]
		for r.tokens.More() { // keys and values alternate, as in YAML nodes
			item := r.value(depth + 1)
			if item == nil {
				return nil
			}
			n.Content = append(n.Content, item)
		}
		r.next() // the closing bracket
	default: // a number, true or false
		n.Value = fmt.Sprint(v)
	}
	return n
}
