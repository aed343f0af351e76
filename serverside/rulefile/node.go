package rulefile

import "unicode/utf8"

// What a file may hold. Each bound is far beyond a file that a person keeps, and
// far below what a machine notices.
const (
	mostBytes = 1 << 20
	mostNodes = 50_000 // values, those that YAML's aliases repeat counted each time
	mostDepth = 32
	mostItems = 1000 // of one list
	mostText  = 1000 // bytes of a value
)

// A kind is what a node is.
type kind int

const (
	scalar kind = iota
	list
	object
	null
)

var kindNames = [...]string{"a value", "a list", "an object", "nothing"}

func (k kind) String() string { return kindNames[k] }

// A node is a value of a file, whether that is YAML or JSON.
type node struct {
	kind         kind
	text         string // of a scalar
	quoted       bool   // the scalar is text whatever it looks like
	line, column int    // from 1
	keys         []*node
	items        []*node // of a list; or the values of keys
}

// get returns the first value that an object has for key, or nil.
func (n *node) get(key string) *node {
	for i, k := range n.keys {
		if k.text == key {
			return n.items[i]
		}
	}
	return nil
}

// A tally counts the nodes of a file as they are made.
type tally int

// add reports what is wrong with one more node at depth, or "".
func (t *tally) add(depth int) string {
	*t++
	switch {
	case depth > mostDepth:
		return "is nested too deeply"
	case *t > mostNodes:
		return "there is too much in the file"
	default:
		return ""
	}
}

// A syntaxError is a file that is neither YAML nor JSON.
type syntaxError struct {
	line, column int
	reason       string
}

// position returns the line and column of an offset, in characters from 1.
func position(data []byte, offset int) (line, column int) {
	line, start := 1, 0
	for i, c := range data[:offset] {
		if c == '\n' {
			line, start = line+1, i+1
		}
	}
	return line, 1 + utf8.RuneCount(data[start:offset])
}
