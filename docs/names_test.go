package docs_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"maps"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

var (
	fence = regexp.MustCompile("(?ms)^```.*?^```$")
	code  = regexp.MustCompile("`([^`\n]+)`")
)

// exported are the names of a package, with those of fields and methods behind a dot.
func exported(t *testing.T, dir string) map[string]bool {
	t.Helper()
	names := map[string]bool{}
	files, err := filepath.Glob(filepath.Join(dir, "*.go"))
	require.NoError(t, err)
	require.NotEmpty(t, files, dir)
	for _, file := range files {
		if strings.HasSuffix(file, "_test.go") {
			continue
		}
		f, err := parser.ParseFile(token.NewFileSet(), file, nil, 0)
		require.NoError(t, err)
		for _, d := range f.Decls {
			declare(names, d)
		}
	}
	return names
}

func declare(names map[string]bool, d ast.Decl) {
	if f, ok := d.(*ast.FuncDecl); ok {
		name := f.Name.Name
		if f.Recv != nil {
			name = receiver(f.Recv.List[0].Type) + "." + name
		}
		names[name] = true
		return
	}
	for _, spec := range d.(*ast.GenDecl).Specs {
		switch s := spec.(type) {
		case *ast.ValueSpec:
			for _, name := range s.Names {
				names[name.Name] = true
			}
		case *ast.TypeSpec:
			names[s.Name.Name] = true
			if of, ok := s.Type.(*ast.StructType); ok {
				for _, field := range of.Fields.List {
					for _, name := range field.Names {
						names[s.Name.Name+"."+name.Name] = true
					}
				}
			}
		}
	}
}

func receiver(e ast.Expr) string {
	if star, ok := e.(*ast.StarExpr); ok {
		e = star.X
	}
	if name, ok := e.(*ast.Ident); ok {
		return name.Name
	}
	return ""
}

// packages are the directories of this repository's, by their names.
func packages(t *testing.T) map[string]string {
	t.Helper()
	dirs := map[string]string{"heed": ".."}
	for _, top := range []string{"pace", "quota", "ratelimit", "redisstore", "serverside", "retryable", "contract", "testserver"} {
		require.NoError(t, filepath.WalkDir(filepath.Join("..", top), func(path string, d fs.DirEntry, err error) error {
			if goes, _ := filepath.Glob(filepath.Join(path, "*.go")); err == nil && d.IsDir() && len(goes) > 0 {
				dirs[filepath.Base(path)] = path
			}
			return err
		}))
	}
	return dirs
}

// What is named as pkg.Name, pkg.Type.Member or Type.Member is there. F205, F209.
func TestThePageNamesWhatIsThere(t *testing.T) {
	anywhere, of, checked := map[string]bool{}, map[string]map[string]bool{}, 0
	for name, dir := range packages(t) {
		of[name] = exported(t, dir)
		maps.Copy(anywhere, of[name])
	}
	words := regexp.MustCompile(`\b(\w+)\.([A-Z]\w*(?:\.[A-Z]\w*)?)`)
	for _, span := range code.FindAllStringSubmatch(fence.ReplaceAllString(read(t, page), ""), -1) {
		for _, m := range words.FindAllStringSubmatch(span[1], -1) {
			names, ours := of[m[1]]
			switch {
			case ours:
				assert.True(t, names[m[2]], m[0])
			case m[1][0] >= 'A' && m[1][0] <= 'Z':
				assert.True(t, anywhere[m[1]+"."+m[2]], m[0])
			default:
				assert.Contains(t, []string{"http.Client", "http.Handler", "http.ServeMux", "http.MaxBytesHandler"}, m[0])
			}
			checked++
		}
	}
	assert.Greater(t, checked, 20)
}
