package main

import (
	"bytes"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"regexp"
	"strings"
)

// A mutant is code with one change: in its file, the bytes from start to end become text.
type mutant struct {
	change
	of     *pkg
	path   string // of the file, absolute
	source []byte

	start, end int
	text       string
}

// A change is what a reader sees of a mutant: the lines that it changes, before and after.
type change struct {
	File   string `json:"file"` // from the root of the module
	Line   int    `json:"line"`
	Kind   string `json:"kind"`
	Before string `json:"before"`
	After  string `json:"after"`
}

func (c change) place() string { return fmt.Sprintf("%s:%d", c.File, c.Line) }

// mutated returns the source with the change.
func (m *mutant) mutated() []byte {
	return bytes.Join([][]byte{m.source[:m.start], m.source[m.end:]}, []byte(m.text))
}

// newMutant returns a mutant without a file.
func newMutant(source []byte, kind string, start, end int, text string) *mutant {
	from := bytes.LastIndexByte(source[:start], '\n') + 1
	rest, _, _ := strings.Cut(string(source[end:]), "\n")
	return &mutant{source: source, start: start, end: end, text: text, change: change{
		Line:   bytes.Count(source[:start], []byte("\n")) + 1,
		Kind:   kind,
		Before: strings.TrimSpace(string(source[from:end]) + rest),
		After:  strings.TrimSpace(string(source[from:start]) + text + rest),
	}}
}

// swaps has, for operators and names, the kind of change and what takes their place.
var swaps = map[string]struct{ kind, to string }{
	"<": {"comparison", "<="}, "<=": {"comparison", "<"}, ">": {"comparison", ">="}, ">=": {"comparison", ">"},
	"==": {"comparison", "!="}, "!=": {"comparison", "=="},
	"Before": {"comparison", "After"}, "After": {"comparison", "Before"},
	"+": {"arithmetic", "-"}, "-": {"arithmetic", "+"}, "*": {"arithmetic", "/"}, "/": {"arithmetic", "*"},
	"%": {"arithmetic", "*"}, "<<": {"arithmetic", ">>"}, ">>": {"arithmetic", "<<"},
	"&": {"arithmetic", "|"}, "|": {"arithmetic", "&"}, "++": {"arithmetic", "--"}, "--": {"arithmetic", "++"},
	"+=": {"arithmetic", "-="}, "-=": {"arithmetic", "+="}, "*=": {"arithmetic", "/="}, "/=": {"arithmetic", "*="},
	"min": {"arithmetic", "max"}, "max": {"arithmetic", "min"},
	"&&": {"logic", "||"}, "||": {"logic", "&&"}, "and": {"logic", "or"}, "or": {"logic", "and"},
	"true": {"constant", "false"}, "false": {"constant", "true"},
}

// goMutants returns the mutants of a Go file, unless it is generated. Some may not compile.
func goMutants(source []byte) (all []*mutant, err error) {
	fset := token.NewFileSet()
	file, err := parser.ParseFile(fset, "", source, parser.ParseComments|parser.SkipObjectResolution)
	if err != nil || ast.IsGenerated(file) {
		return nil, err
	}
	offset := fset.File(file.Package).Offset
	add := func(kind string, from, to token.Pos, text string) {
		all = append(all, newMutant(source, kind, offset(from), offset(to), text))
	}
	replace := func(at token.Pos, old string) {
		if s, found := swaps[old]; found {
			add(s.kind, at, at+token.Pos(len(old)), s.to)
		}
	}
	drop := func(statements []ast.Stmt) {
		for _, s := range statements {
			if droppable(s) {
				add("statement", s.Pos(), s.End(), "")
			}
		}
	}
	tags := map[*ast.BasicLit]bool{}
	ast.Inspect(file, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.ImportSpec:
			return false
		case *ast.Field:
			tags[n.Tag] = true
		case *ast.BasicLit:
			if text, ok := otherValue(n); ok && !tags[n] {
				add("constant", n.Pos(), n.End(), text)
			}
		case *ast.Ident:
			replace(n.Pos(), n.Name)
		case *ast.BinaryExpr:
			replace(n.OpPos, n.Op.String())
		case *ast.AssignStmt:
			replace(n.TokPos, n.Tok.String())
		case *ast.IncDecStmt:
			replace(n.TokPos, n.Tok.String())
		case *ast.IfStmt:
			// The condition stays in the code, or its variables may be unused.
			from, to := n.Cond.Pos(), n.Cond.End()
			cond := string(source[offset(from):offset(to)])
			add("branch", from, to, "true || "+cond)
			add("branch", from, to, "false && ("+cond+")")
		case *ast.BlockStmt:
			drop(n.List)
		case *ast.CaseClause:
			drop(n.Body)
		case *ast.CommClause:
			drop(n.Body)
		}
		return true
	})
	return all, nil
}

// otherValue returns another constant. It has none for a text with spaces: few tests are about words for people.
func otherValue(lit *ast.BasicLit) (text string, ok bool) {
	switch {
	case lit.Kind != token.STRING:
		return "(" + lit.Value + " + 1)", true
	case len(lit.Value) == len(`""`):
		return `"other"`, true
	}
	return `""`, !strings.Contains(lit.Value, " ")
}

// droppable reports whether code may compile without s.
func droppable(s ast.Stmt) bool {
	switch s := s.(type) {
	case *ast.AssignStmt:
		return s.Tok != token.DEFINE
	case *ast.ExprStmt, *ast.IncDecStmt, *ast.SendStmt, *ast.GoStmt, *ast.DeferStmt, *ast.BranchStmt, *ast.ReturnStmt:
		return true
	}
	return false
}

var (
	luaToken     = regexp.MustCompile(`--.*|'[^']*'|"[^"]*"|[<>=~]=|[<>]| [-+*/%] |\b\d+(\.\d+)?\b|\b[a-z]+\b`)
	luaStatement = regexp.MustCompile(`^(return\b|if |[\w.]+(\[[^]]*\])*(, [\w.]+(\[[^]]*\])*)* = |[\w.]+\().*[^,]$`)
	luaOpens     = regexp.MustCompile(`\b(if|for|while|function)\b|[({]`)
	luaCloses    = regexp.MustCompile(`\bend\b|[)}]`)
)

// luaMutants returns the mutants of a Lua file with spaces around its operators. It changes text, because the standard
// library has no parser of Lua. The statements that it drops are whole lines.
func luaMutants(source []byte) (all []*mutant) {
	start := 0
	for line := range strings.Lines(string(source)) {
		for _, at := range luaToken.FindAllStringIndex(line, -1) {
			old, from, to := line[at[0]:at[1]], start+at[0], start+at[1]
			if old[0] >= '0' && old[0] <= '9' {
				all = append(all, newMutant(source, "constant", from, to, "("+old+" + 1)"))
			}
			name := strings.TrimSpace(strings.ReplaceAll(old, "~", "!"))
			if s, found := swaps[name]; found {
				text := strings.Replace(old, strings.TrimSpace(old), strings.ReplaceAll(s.to, "!", "~"), 1)
				all = append(all, newMutant(source, s.kind, from, to, text))
			}
		}
		code, _, _ := strings.Cut(line, "--")
		code = strings.TrimSpace(code)
		whole := len(luaOpens.FindAllString(code, -1)) == len(luaCloses.FindAllString(code, -1))
		if whole && luaStatement.MatchString(code) {
			from := start + strings.Index(line, code)
			all = append(all, newMutant(source, "statement", from, from+len(code), ""))
		}
		start += len(line)
	}
	return all
}
