package rulefile

import (
	"bytes"
	"fmt"
	"io"
	"regexp"
	"sort"
	"strings"

	"go.yaml.in/yaml/v3"
)

// readYAML reads one document of YAML 1.2.
func readYAML(data []byte) (root *node, fault *syntaxError) {
	defer func() {
		if p := recover(); p != nil { // a file must not stop a server, whatever its parser thinks of it
			root, fault = nil, &syntaxError{1, 1, fmt.Sprintf("cannot be read: %v", p)}
		}
	}()
	d := yaml.NewDecoder(bytes.NewReader(data))
	var first, second yaml.Node
	if err := d.Decode(&first); err == io.EOF {
		return nil, &syntaxError{1, 1, "there is nothing in the file"}
	} else if err != nil {
		return nil, syntaxOf(data, err)
	}
	if err := d.Decode(&second); err == nil {
		return nil, &syntaxError{second.Line, second.Column, "there is a second document: a file has one"}
	} else if err != io.EOF {
		return nil, syntaxOf(data, err)
	}
	var t tally
	return t.ofYAML(first.Content[0], 1)
}

var yamlError = regexp.MustCompile(`^yaml: (?:line \d+: )?(.*)$`)

// syntaxOf says where a file ceases to be YAML.
func syntaxOf(data []byte, err error) *syntaxError {
	parts := yamlError.FindStringSubmatch(err.Error())
	if parts == nil {
		return &syntaxError{1, 1, "is not YAML: " + err.Error()}
	}
	line := firstWrong(data, err.Error())
	return &syntaxError{line, indent(data, line), "is not YAML: " + parts[1]}
}

// mostTried bounds how many bytes are parsed to find where a file is wrong.
const mostTried = 4 << 20

// firstWrong returns the line after the longest beginning of data that is YAML and
// ends before the fault. The line that the parser itself tells is that of something
// around the fault, or the one before.
func firstWrong(data []byte, fault string) int {
	var ends []int // of lines
	for i, c := range data {
		if c == '\n' {
			ends = append(ends, i+1)
		}
	}
	tried := 0
	parse := func(end int) string {
		if tried += end; tried > mostTried {
			return fault
		}
		var n yaml.Node
		if err := yaml.Unmarshal(data[:end], &n); err != nil {
			return err.Error()
		}
		return ""
	}
	// Once the parser has met the fault, what follows makes no difference.
	last := sort.Search(len(ends), func(i int) bool { return parse(ends[i]) == fault })
	for i := last - 1; i >= 0 && tried <= mostTried; i-- {
		if parse(ends[i]) == "" {
			return i + 2
		}
	}
	if tried > mostTried {
		return last + 1
	}
	return 1
}

// indent is the column in which a line's text begins.
func indent(data []byte, line int) int {
	for range line - 1 {
		_, data, _ = bytes.Cut(data, []byte("\n"))
	}
	data, _, _ = bytes.Cut(data, []byte("\n"))
	return 1 + len(data) - len(bytes.TrimLeft(data, " "))
}

// ofYAML makes a node of y, and of what its aliases stand for.
func (t *tally) ofYAML(y *yaml.Node, depth int) (*node, *syntaxError) {
	if reason := t.add(depth); reason != "" {
		return nil, &syntaxError{y.Line, y.Column, reason}
	}
	n := &node{line: y.Line, column: y.Column}
	switch y.Kind {
	case yaml.AliasNode:
		return t.ofYAML(y.Alias, depth+1)
	case yaml.ScalarNode:
		return n.scalarOf(y), nil
	case yaml.SequenceNode:
		n.kind = list
	case yaml.MappingNode:
		n.kind = object
	}
	for i, child := range y.Content {
		made, fault := t.ofYAML(child, depth+1)
		if fault != nil {
			return nil, fault
		}
		if n.kind == object && i%2 == 0 {
			n.keys = append(n.keys, made)
		} else {
			n.items = append(n.items, made)
		}
	}
	return n, nil
}

func (n *node) scalarOf(y *yaml.Node) *node {
	n.text = strings.TrimSpace(y.Value)
	n.quoted = y.Style&(yaml.SingleQuotedStyle|yaml.DoubleQuotedStyle|yaml.LiteralStyle|yaml.FoldedStyle) != 0
	if y.ShortTag() == "!!null" {
		n.kind = null
	}
	return n
}
