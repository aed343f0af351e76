package rulefile_test

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.yaml.in/yaml/v3"

	"github.com/heedhttp/heed/serverside/rulefile"
)

// JSON is read as encoding/json reads it, except for deep nesting. Anything else is refused.
func FuzzJSON(f *testing.F) {
	f.Add([]byte("{\"a\":\t[1.5e3, -0, true, null, \"x\\ud83d\\ude00\\\\ud83d\\/\\u0000\"],\r\n\"b\" : {\"\":{}}}"))
	f.Add([]byte(`{"a":"b","a":["c: d","- e","#f","'","*x","&y","!z","{","%","---"]}`))
	f.Add([]byte("[1]:"))
	f.Add([]byte("[\"\u2028\u0085\u00a0\ufeff\x7f\", \" a \"]"))
	f.Fuzz(func(t *testing.T, data []byte) {
		n, fault := rulefile.Decode("r.json", data)
		if fault != nil {
			assert.True(t, !json.Valid(data) || strings.Contains(fault.Reason, "nested too deeply"), fault.Reason)
			return
		}
		require.True(t, json.Valid(data))
		d := json.NewDecoder(bytes.NewReader(data))
		d.UseNumber()
		var want any
		require.NoError(t, d.Decode(&want))
		assert.Equal(t, want, valueOf(n))
	})
}

// valueOf returns a node as encoding/json decodes it.
func valueOf(n *yaml.Node) any {
	switch {
	case n.Kind == yaml.MappingNode:
		object := make(map[string]any)
		for i := 0; i < len(n.Content); i += 2 {
			object[n.Content[i].Value] = valueOf(n.Content[i+1])
		}
		return object
	case n.Kind == yaml.SequenceNode:
		list := []any{}
		for _, item := range n.Content {
			list = append(list, valueOf(item))
		}
		return list
	case n.Style == yaml.DoubleQuotedStyle:
		return n.Value
	case n.Value == "null":
		return nil
	case n.Value == "true" || n.Value == "false":
		return n.Value == "true"
	default:
		return json.Number(n.Value)
	}
}
