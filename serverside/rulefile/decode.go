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

// maxBytes is how large a file may be: far larger than one that a person keeps, far
// smaller than what a machine notices.
const maxBytes = 1 << 20

// decode reads the nodes of a file, of JSON or of YAML. The Fault has no File.
func decode(name string, data []byte) (root *yaml.Node, fault *Fault) {
	defer func() {
		if p := recover(); p != nil { // a file must not stop a server, even if it makes the parser panic
			root, fault = nil, &Fault{Line: 1, Column: 1, Reason: fmt.Sprintf("cannot be read: %v", p)}
		}
	}()
	if len(data) > maxBytes {
		return nil, &Fault{Line: 1, Column: 1, Reason: fmt.Sprintf("has %d bytes: there may be %d", len(data), maxBytes)}
	}
	if strings.EqualFold(path.Ext(name), ".json") {
		return decodeJSON(data)
	}
	documents, err := parseYAML(bytes.NewReader(data))
	switch {
	case err != nil:
		return nil, yamlFault(data, err)
	case len(documents) == 0:
		return nil, &Fault{Line: 1, Column: 1, Reason: "there is nothing in the file"}
	case len(documents) > 1:
		second := documents[1]
		return nil, &Fault{Line: second.Line, Column: second.Column, Reason: "there is a second document: a file has one"}
	}
	return documents[0].Content[0], nil
}

// parseYAML returns the first two documents of a file of YAML 1.2, or as many as there
// are. Aliases are left as they are: what they repeat is counted as it is used.
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

// yamlFault says where data ceases to be YAML: in the line after its longest beginning
// that is YAML by itself. The line in err is often that in which an outer list begins.
func yamlFault(data []byte, err error) *Fault {
	r := bytes.NewReader(data)
	parseYAML(byteReader{r})
	start, budget := len(data)-r.Len(), 4<<20 // bytes that are parsed at most to find the line
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

// A byteReader returns single bytes, so that its Reader tells how far a parser got.
type byteReader struct{ *bytes.Reader }

func (r byteReader) Read(p []byte) (int, error) { return r.Reader.Read(p[:1]) }

// decodeJSON reads one value of JSON (RFC 8259) into nodes as those of YAML. A parser of
// YAML would read most of JSON, but not all escapes, nor tabs between values.
func decodeJSON(data []byte) (*yaml.Node, *Fault) {
	r := &jsonReader{data: data, tokens: json.NewDecoder(bytes.NewReader(data)), line: 1, column: 1}
	r.tokens.UseNumber()
	if err := json.Unmarshal(data, new(json.RawMessage)); err != nil {
		if wrong, ok := errors.AsType[*json.SyntaxError](err); ok {
			r.moveTo(int(wrong.Offset) - 1) // it is after what is wrong
		}
		return nil, &Fault{Line: r.line, Column: r.column, Reason: "is not JSON: " + err.Error()}
	}
	root := r.value(1)
	if root == nil {
		return nil, &Fault{Line: r.line, Column: r.column, Reason: "is nested too deeply"}
	}
	return root, nil
}

// A jsonReader makes nodes of what is known to be JSON, and counts lines and columns.
type jsonReader struct {
	data   []byte
	tokens *json.Decoder

	offset, line, column int
}

// next returns the next token. The reader is then where it begins.
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

// value reads the next value. It is nil if that is nested too deeply.
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
		for r.tokens.More() { // keys and their values take turns, as in YAML
			item := r.value(depth + 1)
			if item == nil {
				return nil
			}
			n.Content = append(n.Content, item)
		}
		r.next() // the end
	default: // a number, true or false
		n.Value = fmt.Sprint(v)
	}
	return n
}
