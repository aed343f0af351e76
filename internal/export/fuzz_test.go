package export_test

import (
	"encoding/json"
	"fmt"
	"net/url"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.yaml.in/yaml/v3"

	"github.com/heedhttp/heed/internal/export"
	"github.com/heedhttp/heed/internal/gatewaytest"
	"github.com/heedhttp/heed/serverside/rulefile"
)

// shapes reduce an output to the parts that must not depend on texts in the rule file.
var shapes = map[string]func(testing.TB, string) []string{
	"nginx":      nginxShape,
	"kong":       yamlShape,
	"grafana":    yamlShape, // JSON is YAML
	"openapi":    yamlShape,
	"prometheus": yamlShape,
}

// odd are names, patterns and keys that need escapes.
var odd = [][5]string{
	{"api", "POST /login", "GET /health", "header:X-Tenant", "ours"},
	{`a"; } evil on; #`, "GET /x\"; } return 200; # /$1", "GET /a\n}\nevil on;", "header:X", "x"},
	{`'\`, "PUT /'\nhttp-request allow\n\\", "POST /'x \"y\\", "tenant", `a'"`},
	{"'a", "GET /`b` }\n/", "/`c`", "header:X", "d"},
	{"${X} {$HOME} {env.HOME} [[x]]", "/$x/{$}", "/$y/{a...}", "cookie:a", "{}"},
	{"- [a]: &b *c !d | >", "h$1;/é\u2028\\", "/{x}/#", "first(a, ip)", "%[1]s"},
}

// Whatever names, patterns and other texts are, the output has the same directives as for plain ones.
func FuzzTextsAreEscaped(f *testing.F) {
	for _, o := range odd {
		f.Add(o[0], o[1], o[2], o[3], o[4])
	}
	f.Fuzz(func(t *testing.T, name, pattern, exempt, key, other string) {
		l, err := rulefile.List("r.json", document(t, name, pattern, exempt, key, other), rulefile.Env{Lenient: true})
		if err != nil {
			t.Skip()
		}
		plain, err := rulefile.List("r.json",
			document(t, "name", plainLike(pattern), strings.ReplaceAll(plainLike(exempt), "%C3%A9", "é"), plainKey(l),
				"other"), rulefile.Env{Lenient: true})
		require.NoError(t, err)
		for _, target := range export.Targets() {
			out, err := export.Export(target, l, export.Options{})
			require.NoError(t, err)
			want, err := export.Export(target, plain, export.Options{})
			require.NoError(t, err)
			require.Contains(t, shapes, target)
			shape := shapes[target]
			assert.Equal(t, shape(t, want.Text), shape(t, out.Text), "%s\n%s", target, out.Text)
			assert.Equal(t, len(want.Gaps), len(out.Gaps))
			for _, g := range out.Gaps {
				assert.NotContains(t, g.String(), "\n")
			}
		}
	})
}

// nginx reads the same directives as nginxShape.
func TestNginxAcceptsOddTexts(t *testing.T) {
	for _, o := range odd {
		l, err := rulefile.List("r.json", document(t, o[0], o[1], o[2], o[3], o[4]), rulefile.Env{Lenient: true})
		require.NoError(t, err)
		out, err := export.Export("nginx", l, export.Options{})
		require.NoError(t, err)
		gatewaytest.CheckNginx(t, out.Text)
	}
}

// document returns a rule file with these texts in every place for text.
func document(t testing.TB, name, pattern, exempt, key, other string) []byte {
	policies := []any{"10/1s", map[string]any{"name": other, "quota": 60, "window": "1m"}}
	data, err := json.Marshal(map[string]any{
		"exempt": exempt,
		"allow":  []any{map[string]any{"name": other, "peers": "10.0.0.1", "policies": policies}},
		"rules": []any{
			map[string]any{"name": name, "pattern": pattern, "policies": policies},
			map[string]any{"name": name + "2", "stage": "after-auth", "key": key, "policies": policies},
			map[string]any{"name": name + "3", "policies": "1/1s"},
		},
	})
	require.NoError(t, err)
	return data
}

// plainLike returns a pattern of the same form with plain text.
func plainLike(pattern string) string {
	slash := strings.IndexByte(pattern, '/')
	front, path := pattern[:slash], pattern[slash:]
	plain := ""
	if method, host, ok := strings.Cut(strings.ReplaceAll(front, "\t", " "), " "); ok {
		plain, front = plainMethod(method), strings.TrimLeft(host, " ")
	}
	if front != "" {
		plain += "host"
	}
	for i, segment := range strings.Split(path[1:], "/") {
		switch {
		case segment == "" || segment == "{$}":
			plain += "/" + segment
		case segment[0] == '{' && strings.HasSuffix(segment, "...}"):
			plain += fmt.Sprintf("/{p%d...}", i)
		case segment[0] == '{':
			plain += fmt.Sprintf("/{p%d}", i)
		default:
			plain += "/" + plainSegment(segment)
		}
	}
	return plain
}

// plainMethod returns method if OpenAPI has it, and otherwise one that OpenAPI does not have.
func plainMethod(method string) string {
	switch {
	case method == "":
		return ""
	case slices.Contains([]string{"GET", "HEAD", "PUT", "POST", "PATCH", "DELETE", "OPTIONS", "TRACE"}, method):
		return method + " "
	default:
		return "BREW "
	}
}

// plainSegment returns a segment with escapes if segment has any, because not all gateways decode them.
func plainSegment(segment string) string {
	if name, err := url.PathUnescape(segment); err == nil {
		segment = name
	}
	if (&url.URL{Path: segment}).EscapedPath() != segment {
		return "%C3%A9"
	}
	return "x"
}

// plainKey returns a key of the same kind as the key of l's second rule.
func plainKey(l *rulefile.Listing) string {
	if key := l.Rules[1].Key; key == "ip" || key == "peer" {
		return key
	}
	return "header:X"
}

// nginxShape returns the directives, read by nginx' own rules for tokens.
func nginxShape(t testing.TB, text string) (shape []string) {
	var words []string
	depth := 0
	for _, token := range nginxTokens(t, text) {
		switch token {
		case ";", "{", "}":
			if len(words) > 0 {
				shape = append(shape, fmt.Sprintf("%d %s %d%s", depth, nginxWord(words[0]), len(words), token))
			}
			words = nil
			depth += strings.Count(token, "{") - strings.Count(token, "}")
			require.GreaterOrEqual(t, depth, 0)
		default:
			words = append(words, token)
		}
	}
	require.Zero(t, depth)
	require.Empty(t, words)
	return shape
}

// nginxWord returns a directive's name, or the kind of a map's line.
func nginxWord(word string) string {
	if strings.HasPrefix(word, `"~`) {
		return "~"
	}
	return word
}

func nginxTokens(t testing.TB, text string) (tokens []string) {
	for i := 0; i < len(text); {
		switch c := text[i]; {
		case strings.IndexByte(" \t\r\n", c) >= 0:
			i++
		case c == '#':
			i += strings.IndexByte(text[i:]+"\n", '\n')
		case strings.IndexByte(";{}", c) >= 0:
			tokens = append(tokens, string(c))
			i++
		case c == '"' || c == '\'':
			end := i + 1
			for ; text[end] != c; end++ {
				if text[end] == '\\' {
					end++
				}
			}
			tokens = append(tokens, text[i:end+1])
			i = end + 1
			require.True(t, strings.IndexByte(" \t\r\n;{", text[i]) >= 0, "after %s", text[:i])
		default:
			end := i
			for strings.IndexByte(" \t\r\n;{", text[end]) < 0 {
				end++
			}
			tokens = append(tokens, text[i:end])
			i = end
		}
	}
	return tokens
}

// yamlShape returns the structure of YAML and of its comments, with keys in any order.
func yamlShape(t testing.TB, text string) []string {
	var document yaml.Node
	require.NoError(t, yaml.Unmarshal([]byte(text), &document), text)
	return []string{nodeShape(&document), fmt.Sprint(strings.Count("\n"+text, "\n#"))}
}

func nodeShape(n *yaml.Node) string {
	var inner []string
	for i, c := range n.Content {
		if n.Kind != yaml.MappingNode || i%2 == 1 {
			inner = append(inner, nodeShape(c))
		}
	}
	slices.Sort(inner)
	return fmt.Sprintf("%d(%s)", n.Kind, strings.Join(inner, " "))
}

func TestShapesDetectUnescapedTexts(t *testing.T) {
	assert.NotEqual(t, nginxShape(t, `map $a $b { "~^/x" 1; }`), nginxShape(t, `map $a $b { "~^/x" 1; "~^" 2; }`))
	assert.NotEqual(t, nginxShape(t, "a;\n# x\n"), nginxShape(t, "a;\n# x\nevil on;\n"))
	assert.NotEqual(t, yamlShape(t, "# x\na: 1\n"), yamlShape(t, "# x\nb: 1\na: 1\n"))
	assert.True(t, slices.Contains(nginxShape(t, "map a b { default c; }"), "1 default 2;"))
}
